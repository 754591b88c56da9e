"""How large observations and rewards are: measured once, under uniformly feasible actions, and then frozen."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError, EmptySetError
from inbounds.tasks.empty_states import observation_shown, require_an_action
from inbounds.tasks.environment import batch_rollout, rollout
from inbounds.tasks.task import AssembledTask, Task


def measured_scales(
    task: Task, *, observations: bool, rewards: bool, steps: int, seed: int
) -> dict[str, Any]:
    """Return the fields of a task that scale its observations and rewards.

    An entry that does not vary keeps the scale 1, and one that is rarely far from its mean (a contact force) a tenth of
    its largest distance, so that networks meet nothing beyond 10. The divisor of rewards is their deviation, or
    a tenth of their mean size where they hardly vary, since values that are all alike need no magnification;
    where episodes end only in failure, the shift lets an average step of those met pay one deviation, so that going on
    is worth more than failing.
    """
    if steps < 2:
        raise ConfigurationError(f"steps={steps} is too few to measure a deviation. Take some hundreds.")
    met = (
        met_side_by_side(task, steps, seed) if task.is_played_compiled else met_one_by_one(task, steps, seed)
    )
    changes: dict[str, Any] = {}
    if observations:
        rows = met.observations
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation = np.maximum(deviation, 0.1 * np.abs(rows - mean).max(axis=0))
        varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1e-3)
        changes["observation_shift"] = mean.astype(np.float32)
        changes["observation_scale"] = np.where(varies, deviation, 1.0).astype(np.float32)
    if rewards:
        values = met.rewards
        divisor = max(float(values.std()), 0.1 * float(np.abs(values).mean())) or 1.0
        changes["reward_divisor"] = divisor
        lift = max(0.0, 1.0 - float(values.mean()) / divisor)
        changes["reward_shift"] = lift if task.ends_only_in_failure else 0.0
        changes["is_reward_scaled"] = changes["is_reward_measured"] = True
    return changes


class Met(NamedTuple):
    """What uniformly feasible actions met."""

    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]


def met_one_by_one(task: Task, steps: int, seed: int) -> Met:
    """Play one environment, whole episodes as far as the steps go: nothing need be known of it."""
    seen, paid = [], []
    with contextlib.closing(task.make_environment()) as environment:

        def act(observation: NDArray[np.float64]) -> Any:
            with observation_shown(task.constraint, observation, task.name):
                return environment.action_space.sample()

        environment.action_space.seed(seed)
        observation, _ = environment.reset(seed=seed)
        for step in itertools.islice(rollout(environment, act, observation), steps):
            seen += [step.observation, step.next_observation] if step.is_last else [step.observation]
            paid.append(step.reward)
    return Met(np.asarray(seen, dtype=np.float64), np.asarray(paid))


def met_side_by_side(task: Task, steps: int, seed: int, count: int = 16) -> Met:
    """Play a batch of environments that are compiled, whose single steps would take a call each."""
    assert task.host is not None  # every compiled task can be stepped from the host
    generator = np.random.default_rng(seed)

    def act(observation: NDArray[np.float64]) -> NDArray[np.float32]:
        try:
            action = task.constraint.sample(generator, observation, dimension=task.action_size)
        except EmptySetError:
            for row in observation:
                require_an_action(task.constraint, row, np.full(task.action_size, np.nan), None, task.name)
            raise
        return np.asarray(action, np.float32)

    with contextlib.closing(task.host(count, 1)) as environments:
        observation = environments.reset([int(drawn) for drawn in generator.integers(2**31, size=count)])
        seen, paid = [observation], []
        for played in batch_rollout(environments, act, observation, -(-steps // count)):
            seen.append(played.step.final_observation)
            paid.append(played.step.reward)
    return Met(np.concatenate(seen).astype(np.float64), np.concatenate(paid).astype(np.float64))


def with_recorded_scales(task: Task, recorded: Mapping[str, Any]) -> Task:
    """Return the task with the scales in a run's configuration, so that a resumed run goes on with its own."""
    values = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    for name in ("observation_shift", "observation_scale"):
        scale = recorded.get(name)
        values[name] = None if scale is None else np.asarray(scale, np.float32)
    for name in ("reward_divisor", "reward_shift"):
        own, values[name] = values[name], float(recorded.get(name, values[name]))
        # Else a resumed run would be warned of rewards that were lifted when it began.
        values["is_reward_scaled"] |= values[name] != own
    return AssembledTask(**values)
