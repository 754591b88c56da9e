"""How large observations and rewards are: measured once, under uniformly feasible actions, and then frozen."""

from __future__ import annotations

from typing import Any

import numpy as np

from inbounds.errors import ConfigurationError
from inbounds.tasks.task import Task


def measured_scales(
    task: Task, *, observations: bool, rewards: bool, steps: int, seed: int
) -> dict[str, Any]:
    """Return the fields of a task that scale its observations and rewards.

    An entry that does not vary keeps the scale 1. The divisor of rewards is their deviation, or a tenth of
    their mean size where they hardly vary, since values that are all alike need no magnification.
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
        varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1e-3)
        changes["observation_shift"] = mean.astype(np.float32)
        changes["observation_scale"] = np.where(varies, deviation, 1.0).astype(np.float32)
    if rewards:
        values = np.asarray(paid)
        divisor = max(float(values.std()), 0.1 * float(np.abs(values).mean())) or 1.0
        changes["reward_divisor"] = divisor
        changes["reward_shift"] = max(0.0, -float(values.min()) / divisor)
    return changes
