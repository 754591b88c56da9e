"""What a policy must beat: the returns of a task's reference policies, on episodes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError
from inbounds.tasks.reference_policies import reference_names, reference_policy
from inbounds.tasks.task import Task

FIRST_SEED = 1_500_000_000
"""Episodes of references start here, apart from those of training and of evaluation."""


class ReferenceReturn(NamedTuple):
    """Undiscounted, unscaled returns of one reference policy."""

    name: str
    returns: NDArray[np.float64]
    worst_violation: float


def quick_references(task: Task) -> tuple[str, ...]:
    """Return the references that need no search: those that a summary can afford."""
    return tuple(name for name in reference_names(task) if name != "constant")


def play_reference(
    task: Task, name: str, episodes: int = 10, seed: int = 0, threads: int = 1, search_steps: int = 200_000
) -> ReferenceReturn:
    """Play whole episodes side by side with a reference policy."""
    policy = reference_policy(task, name, search_steps=search_steps)
    generator = np.random.default_rng(FIRST_SEED + seed)
    seeds = [FIRST_SEED + seed * episodes + index for index in range(episodes)]
    played = play_episodes(task, lambda observation: policy(observation, generator), seeds, threads)
    return ReferenceReturn(name, played.returns, played.worst_violation)


class Played(NamedTuple):
    """Undiscounted, unscaled returns of episodes, and the worst violation of an executed action."""

    returns: NDArray[np.float64]
    worst_violation: float


def play_episodes(
    task: Task, act: Callable[[NDArray[Any]], NDArray[Any]], seeds: Sequence[int], threads: int = 1
) -> Played:
    """Play the first episode of each seed, all side by side; `act` sees all observations at once."""
    if task.host is None:
        raise ConfigurationError(
            f"{task.name} has no host environments to play episodes in. Give the task `host=`."
        )
    batch = task.host(len(seeds), threads)
    observation = batch.reset(list(seeds))
    total, is_running, worst = np.zeros(len(seeds)), np.ones(len(seeds), np.bool_), -np.inf
    for _ in range(task.horizon):
        action = act(observation)
        worst = max(worst, float(np.max(task.constraint.violation(observation, action))))
        step = batch.step(action)
        total += np.where(is_running, step.reward, 0.0)
        is_running &= ~(step.terminated | step.truncated)
        observation = step.observation
        if not is_running.any():
            break
    return Played(total, max(worst, 0.0))


def measure_references(
    tasks: Sequence[str], episodes: int, search_steps: int, report: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return, per task and reference policy, mean and deviation over episodes.

    The best constant action is searched with `search_steps` environment steps of other seeds; 0 leaves it out.
    """
    from inbounds.tasks.registry import make

    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in tasks:
        task = make(name)
        found[name] = {}
        for reference in reference_names(task) if search_steps else quick_references(task):
            played = play_reference(task, reference, episodes, search_steps=search_steps)
            mean, deviation = float(played.returns.mean()), float(played.returns.std(ddof=1))
            found[name][reference] = {
                "mean": float(f"{mean:.6g}"),
                "deviation": float(f"{deviation:.6g}"),
                "episodes": episodes,
                "worst_violation": played.worst_violation,
            }
            report(f"{name:12} {reference:14} {mean:.5g} ± {deviation:.3g}")
    return found
