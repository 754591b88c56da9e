"""Runs of a small learner that are compiled once and then trained, broken and resumed in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.faults.ledger import BrokenPromiseError
from inbounds.constraints import Ball, Box
from inbounds.learners.aram import Aram
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import Task
from inbounds.training import api
from inbounds.training.checkpoint import newest_checkpoint
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training
from inbounds.training.record import BEST_POLICY, EVALUATIONS, METRICS, POLICY, RunFolder
from inbounds.training.summary import RunSummary

LEARNER = Aram(hidden=(4,), batch_size=8, proposals=4)
SETTINGS: dict[str, Any] = {
    **{"steps": 40, "warm_up": 10, "capacity": 100, "episodes": 1, "environments": 2},
    **{"evaluate_every": 20, "checkpoint_every": 10, "keep": 2},
    **{"scale_observations": False, "scale_rewards": False},
}
HALF = 20
"""The step at which a half-finished run stopped."""
TIMES = ("seconds", "steps_per_second", "evaluation_seconds")


class Place(NamedTuple):
    """Where a point is, and since when it walks."""

    time: jax.Array
    position: jax.Array


class Walk:
    """A point walks for four steps and is paid for being near the origin: the cheapest world that learning needs."""

    observation_size = action_size = 2
    horizon = 4

    def reset(self, key: jax.Array) -> tuple[Place, jax.Array]:
        """Begin somewhere in the square."""
        position = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        return Place(jnp.zeros((), jnp.int32), position), position

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Move by the action and a little noise."""
        position = state.position + action + 0.1 * jax.random.normal(key, (2,), jnp.float32)
        time = state.time + 1
        return CompiledStep(
            state=Place(time, position),
            observation=position,
            reward=jnp.exp(-jnp.sum(position**2)),
            terminated=time >= self.horizon,
            truncated=jnp.zeros((), bool),
        )


def walk_task() -> Task:
    """Return the walk, whose steps are no longer than a half."""
    name, world, low, high = "walk", Walk(), -np.ones(2, np.float32), np.ones(2, np.float32)
    constraint = Ball(radius_squared=0.25) & Box(low, high)
    return task_of_compiled(
        world,
        constraint,
        name=name,
        action_low=low,
        action_high=high,
        reward_divisor=1.0,
        reward_shift=0.0,
        source="made for the fault suite",
        environment_id="inbounds/Walk-v0",
    )


class QuickRuns:
    """Calls `train` with a `Training` that keeps its compiled programs from run to run."""

    def __init__(self, learner: Any = LEARNER) -> None:
        """Compile with the first run."""
        self.task, self.learner, self._origin = walk_task(), learner, api.provenance()
        self._training: Training | None = None

    def train(self, out: Path, task: Task | None = None, **settings: Any) -> RunSummary:
        """Train or resume; a new run has `SETTINGS` unless told otherwise."""
        if not settings.get("resume"):
            settings = {**SETTINGS, **settings}
        built, asked = api.Training, api.provenance
        api.Training, api.provenance = self._reused, lambda: self._origin  # type: ignore[assignment, misc]
        try:
            return api.train(task or self.task, self.learner, out=out, **settings)
        finally:
            api.Training, api.provenance = built, asked  # type: ignore[misc]

    def train_half(self, out: Path) -> None:
        """Train until the middle of a run, with two checkpoints."""
        self.train(out, callbacks=[lambda row: row["step"] == HALF])

    def finish(self, out: Path) -> list[str]:
        """Bring a run to its end, whether it was begun or not, and return what was told on the way."""
        told: list[str] = []
        is_begun = (out / "config.json").exists()
        self.train(out, resume=is_begun, warn=told.append)
        return told

    def _reused(
        self, task: Task, learner: Any, config: TrainingConfig, folder: RunFolder, callbacks: Sequence[Any]
    ) -> Training:
        if self._training is None:
            self._training = Training(task, learner, config, folder, callbacks)
        training = self._training
        training.task, training.learner, training.config = task, learner, config
        training.folder, training.callbacks = folder, callbacks
        return training


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a log without its times."""
    return [
        {key: value for key, value in row.items() if key not in TIMES} for row in RunFolder(folder).rows(name)
    ]


def content_of(folder: Path) -> dict[str, Any]:
    """Return all that a run came to, bit by bit, except for when and how fast."""
    newest = newest_checkpoint(folder / "checkpoints", refuse)
    return {
        **{name: rows_of(folder, name) for name in (METRICS, EVALUATIONS)},
        **{name: (folder / name).read_bytes() for name in (POLICY, BEST_POLICY)},
        "step": newest.notes["step"],
        "arrays": {name: (array.tobytes(), array.shape) for name, array in newest.arrays.items()},
    }


def refuse(told: str) -> None:
    """Take a warning for a failure."""
    raise BrokenPromiseError(f"a finished run warns: {told}")


def require_same(folder: Path, whole: dict[str, Any]) -> None:
    """Refuse a run that is not the one that nothing happened to."""
    found = content_of(folder)
    different = [name for name in whole if whole[name] != found[name]]
    if different:
        raise BrokenPromiseError(f"the finished run differs in {', '.join(different)}")


def require_clean(folder: Path) -> None:
    """Refuse what was left unfinished by a process that died."""
    parts = [str(path.relative_to(folder)) for path in folder.rglob("*.part")]
    if parts:
        raise BrokenPromiseError(f"{', '.join(parts)} is left behind")
