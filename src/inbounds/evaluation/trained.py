"""A trained run opened again: its task, its learner, and the learnt state of every seed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, told_by_python
from inbounds.learners.learner import Learner, Spec
from inbounds.limits import misfit
from inbounds.storage.sealed_arrays import POLICY_FILES, meaning_of_run, read_sealed
from inbounds.tasks.named_tasks import require_trained_on
from inbounds.tasks.task import Task
from inbounds.training.checkpoint import as_device_tree, fill, newest_checkpoint
from inbounds.training.config import available_bytes, require_room, seed_keys
from inbounds.training.record import POLICY, RunFolder, as_tuples, require_same_problem


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """What acting needs of a run; arrays of `states` have the seeds as their leading axis."""

    folder: RunFolder
    task: Task
    learner: Learner
    spec: Spec
    seeds: tuple[int, ...]
    states: Any
    step: int | None
    """Environment steps behind the state, where a checkpoint tells."""

    @classmethod
    def open(
        cls, path: str | Path, task: Task | None = None, policy: Literal["last", "best"] = "last"
    ) -> TrainedRun:
        """Read a run folder; a task that is not one of ours has to be given.

        The arrays come from the file of the last or of the best policy. A folder without these files needs a
        checkpoint.
        """
        from inbounds.tasks.registry import make, names

        if policy not in tuple(POLICY_FILES):
            raise InvalidInputError(f"policy={policy!r} must be 'last' or 'best'.")
        folder = RunFolder(Path(path).absolute())  # the task may change the working directory
        config = folder.config()
        if task is None:
            if config["task"] not in names():
                raise ConfigurationError(
                    f"{path} was trained on '{config['task']}', which is not one of our tasks. Pass "
                    f"yours: ib.evaluate({str(path)!r}, task), or --task FILE.py:TASK on the command line."
                )
            task = make(config["task"])
        require_trained_on(path, config["task"], task)
        require_same_problem(task, config, folder.path)
        learner = recorded_learner(config, folder.path)
        spec = Spec.of(
            task.observation_size,
            task.action_low,
            task.action_high,
            task.constraint,
            recorded_scale(folder, config, "observation_shift", task.observation_shift),
            recorded_scale(folder, config, "observation_scale", task.observation_scale),
            task.reference_action,
            task.horizon,
        )
        first, count = config["training"]["seed"], config["training"]["seeds"]
        states, step = read_states(folder, learner, spec, first, count, POLICY_FILES[policy])
        return cls(folder, task, learner, spec, tuple(range(first, first + count)), states, step)

    def only(self, seed: int) -> TrainedRun:
        """Return the same run with one seed alone."""
        if seed not in self.seeds:
            raise ConfigurationError(
                f"{self.folder.path} has seeds {list(self.seeds)}, not {seed}. Choose one of them."
            )
        index = self.seeds.index(seed)
        chosen = jax.tree.map(lambda leaf: leaf[index : index + 1], self.states)
        return dataclasses.replace(self, seeds=(seed,), states=chosen)


def recorded_learner(config: Mapping[str, Any], path: Path) -> Learner:
    """Return the learner that a run's configuration describes."""
    from inbounds.learners.registry import make_learner

    settings = {name: as_tuples(value) for name, value in config["learner"].items()}
    name = settings.pop("name")
    with described_by(path):
        learner = make_learner(name, **settings)
        if wrong := misfit(learner):
            raise ConfigurationError(f"'{wrong}' has a value that this setting cannot have")
    return learner


@contextlib.contextmanager
def described_by(path: Path) -> Iterator[None]:
    """Refuse a configuration whose settings no learner can be built from, whatever that leads to in the block."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, AssertionError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")
        raise InvalidInputError(
            f"{path} describes a learner that cannot be built here ({why}). Restore its config.json, or use the "
            f"version that wrote it."
        ) from error


def recorded_scale(folder: RunFolder, config: Mapping[str, Any], part: str, own: Any) -> Any:
    """Return what a run's networks saw observations relative to, which `train` may have measured; else the task's."""
    recorded = config.get(part)
    if recorded is None:
        return own
    size = config.get("observation_size", len(recorded))
    if len(recorded) != size or (part == "observation_scale" and min(recorded) <= 0):
        raise InvalidInputError(
            f"{folder.path} has a '{part}' that is not {size} numbers, or not positive ones. Restore config.json."
        )
    return np.asarray(recorded, np.float32)


def read_states(
    folder: RunFolder, learner: Learner, spec: Spec, first: int, count: int, file: str = POLICY
) -> tuple[Any, int | None]:
    """Return the learnt states and, where a checkpoint tells, the step they belong to."""
    with described_by(folder.path):
        shapes = jax.eval_shape(jax.vmap(lambda key: learner.init(key, spec)), seed_keys(first, count))
    if (folder.path / file).exists():
        require_room(shapes, available_bytes(), folder.path)
        arrays = read_sealed(folder.path / file, meaning_of_run(folder.config()))
        require_exported(learner, shapes, arrays)
        # Acting needs nothing beyond what was exported; the rest stays zero instead of being initialised in vain.
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return with_exported(learner, empty, arrays), None
    if file != POLICY:
        raise CheckpointError(
            f"{folder.path} holds no {file}. Evaluate the last policy, or give the folder that training wrote."
        )
    newest = newest_checkpoint(folder.checkpoints, told_by_python)
    return as_device_tree(fill(shapes, newest.arrays, "training/learner")), int(newest.notes["step"])


def with_exported(learner: Learner, states: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the states of all seeds that act with what `learner.export` returned before."""
    require_exported(learner, states, arrays)
    return learner.with_exported(states, fill(exported_shapes(learner, states), arrays))


def exported_shapes(learner: Learner, states: Any) -> Any:
    """Return what the learner exports for every seed, as shapes."""
    return jax.eval_shape(jax.vmap(learner.export), states)


def require_exported(learner: Learner, states: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays that the learner does not export from such states, or exports in other shapes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(exported_shapes(learner, states))
    shapes = {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves
    }
    if set(shapes) != set(arrays):
        missing = sorted(set(shapes) ^ set(arrays))
        raise CheckpointError(
            f"the policy file and {type(learner).__name__} disagree about {', '.join(missing[:4])}. It "
            f"belongs to another learner, configuration or version."
        )
    for name, wanted in shapes.items():
        if wanted != arrays[name].shape:
            raise CheckpointError(
                f"'{name}' is {list(arrays[name].shape)} in the policy file, but {list(wanted)} is expected. It "
                f"belongs to another task or configuration."
            )


def run_folders(paths: list[Path]) -> list[Path]:
    """Return the run folders among the paths and below them, in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InvalidInputError(
                f"{path} does not exist. Give the folder of a run, or one above run folders."
            )
        below = runs_below(path)
        if not below:
            raise InvalidInputError(
                f"{path} is not a run and holds none. Give the folder that training wrote."
            )
        found += [folder for folder in below if folder not in found]
    return found


def runs_below(path: Path) -> list[Path]:
    """Return the run folders at and below a path, of which there may be none."""
    configs = (config for config in path.rglob("config.json") if (config.parent / "provenance.json").exists())
    return sorted({config.parent for config in configs})
