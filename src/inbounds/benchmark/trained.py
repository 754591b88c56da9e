"""A trained run opened again: its task, its learner, and the learnt state of every seed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.deploy.sealed_arrays import meaning_of_run, read_sealed
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError
from inbounds.learners.learner import Learner, Spec
from inbounds.tasks.task import Task
from inbounds.training.checkpoint import as_device_tree, fill, flatten, latest_checkpoint, read_checkpoint
from inbounds.training.program import seed_keys
from inbounds.training.record import POLICY, RunFolder, require_same_constraint


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
    def open(cls, path: str | Path, task: Task | None = None) -> TrainedRun:
        """Read a run folder; a task that is not one of ours has to be given.

        The state comes from `policy.safetensors`, which travels with a published policy, or else from the
        newest checkpoint, which has everything.
        """
        from inbounds.benchmark.tasks import find_task, known_tasks
        from inbounds.learners.registry import make_learner

        folder = RunFolder(Path(path))
        config = folder.config()
        if task is None:
            if config["task"] not in known_tasks():
                raise ConfigurationError(
                    f"{path} was trained on '{config['task']}', which is none of our tasks. From Python, "
                    f"ib.audit({str(path)!r}, task) replays it on yours."
                )
            task = find_task(config["task"])
        require_same_constraint(task, config, folder.path)
        settings = {name: as_tuples(value) for name, value in config["learner"].items()}
        if settings["name"] in ("aram", "sosac"):
            settings.setdefault("start", "box")  # what runs did before they could begin anywhere else
        learner = make_learner(settings.pop("name"), **settings)
        spec = Spec.of(
            task.observation_size,
            task.action_low,
            task.action_high,
            task.constraint,
            recorded_scale(config, "observation_shift", task.observation_shift),
            recorded_scale(config, "observation_scale", task.observation_scale),
            task.starting_action,
            task.discount,
        )
        first, count = config["training"]["seed"], config["training"]["seeds"]
        states, step = read_states(folder, learner, spec, first, count)
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


def recorded_scale(config: dict[str, Any], part: str, own: Any) -> Any:
    """Return what a run's networks saw observations relative to, which `train` may have measured; else the task's."""
    recorded = config.get(part)
    return own if recorded is None else np.asarray(recorded, np.float32)


def read_states(
    folder: RunFolder, learner: Learner, spec: Spec, first: int, count: int
) -> tuple[Any, int | None]:
    """Return the learnt states and, where a checkpoint tells, the step they belong to."""
    shapes = jax.eval_shape(jax.vmap(lambda key: learner.init(key, spec)), seed_keys(first, count))
    if (folder.path / POLICY).exists():
        # Acting needs nothing beyond what was exported; the rest stays zero instead of being initialised in vain.
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        arrays = read_sealed(folder.path / POLICY, meaning_of_run(folder.config()))
        return with_exported(learner, empty, arrays), None
    arrays, notes = read_checkpoint(latest_checkpoint(folder.checkpoints))
    return as_device_tree(fill(shapes, arrays, "training/learner")), int(notes["step"])


def with_exported(learner: Learner, states: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the states with the arrays that `learner.export` selected in their place.

    `export` picks leaves of the state; exporting the numbers of the leaves tells which array belongs where.
    """
    leaves, structure = jax.tree.flatten(states)
    numbered = jax.tree.unflatten(structure, list(range(len(leaves))))
    places = {name: int(place) for name, place in flatten(learner.export(numbered)).items()}
    if set(places) != set(arrays):
        missing = sorted(set(places) ^ set(arrays))
        raise CheckpointError(
            f"the policy file and {type(learner).__name__} disagree about {', '.join(missing[:4])}. It "
            f"belongs to another learner, configuration or version."
        )
    for name, place in places.items():
        wanted, found = np.shape(leaves[place]), arrays[name].shape
        if wanted != found:
            raise CheckpointError(
                f"'{name}' is {list(found)} in the policy file, but {list(wanted)} is expected. It belongs "
                f"to another task or configuration."
            )
        leaves[place] = jnp.asarray(arrays[name])
    return jax.tree.unflatten(structure, leaves)


def as_tuples(value: Any) -> Any:
    """Return JSON's lists as the tuples that settings are made of."""
    return tuple(as_tuples(entry) for entry in value) if isinstance(value, list) else value


def run_folders(paths: list[Path]) -> list[Path]:
    """Return the run folders among the paths and below them, in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InvalidInputError(
                f"{path} does not exist. Give the folder of a run, or one above run folders."
            )
        below = sorted(
            {
                config.parent
                for config in path.rglob("config.json")
                if (config.parent / "provenance.json").exists()
            }
        )
        if not below:
            raise InvalidInputError(
                f"{path} is not a run and holds none. Give the folder that training wrote."
            )
        found += [folder for folder in below if folder not in found]
    return found
