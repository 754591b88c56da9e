"""How large observations and rewards are: measured once, under uniformly feasible actions, and then frozen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from inbounds.errors import ConfigurationError
from inbounds.tasks.task import AssembledTask, Task


def measured_scales(
    task: Task, *, observations: bool, rewards: bool, steps: int, seed: int
) -> dict[str, Any]:
    """Return the fields of a task that scale its observations and rewards.

    An entry that does not vary keeps the scale 1, and one that is rarely far from its mean (a contact force) a tenth of
    its largest distance, so that networks meet nothing beyond 10. The divisor of rewards is their deviation, or
    a tenth of their mean size where they hardly vary, since values that are all alike need no magnification;
    the shift lets an average step of those met pay one deviation: where rewards are negative, an action that is
    turned down, which earns nothing, would be worth more than one that acts.
    """
    if steps < 2:
        raise ConfigurationError(f"steps={steps} is too few to measure a deviation. Take some hundreds.")
    seen, paid = [], []
    environment = task.make_environment()
    try:
        environment.action_space.seed(seed)
        observation, _ = environment.reset(seed=seed)
        for _ in range(steps):
            seen.append(observation)
            observation, reward, terminated, truncated, _ = environment.step(
                environment.action_space.sample()
            )
            paid.append(float(reward))
            if terminated or truncated:
                seen.append(observation)
                observation, _ = environment.reset()
    finally:
        environment.close()
    changes: dict[str, Any] = {}
    if observations:
        rows = np.asarray(seen, dtype=np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation = np.maximum(deviation, 0.1 * np.abs(rows - mean).max(axis=0))
        varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1e-3)
        changes["observation_shift"] = mean.astype(np.float32)
        changes["observation_scale"] = np.where(varies, deviation, 1.0).astype(np.float32)
    if rewards:
        values = np.asarray(paid)
        divisor = max(float(values.std()), 0.1 * float(np.abs(values).mean())) or 1.0
        changes["reward_divisor"] = divisor
        changes["reward_shift"] = max(0.0, 1.0 - float(values.mean()) / divisor)
    return changes


def with_recorded_scales(task: Task, recorded: Mapping[str, Any]) -> Task:
    """Return the task with the scales in a run's configuration, so that a resumed run goes on with its own."""
    values = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    for name in ("observation_shift", "observation_scale"):
        scale = recorded.get(name)
        values[name] = None if scale is None else np.asarray(scale, np.float32)
    for name in ("reward_divisor", "reward_shift"):
        values[name] = float(recorded.get(name, values[name]))
    return AssembledTask(**values)
