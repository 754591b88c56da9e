"""One episode looked at closely: how much of its constraint a policy uses, step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.evaluation.inference import compiled_policy
from inbounds.evaluation.protocol import rounded
from inbounds.evaluation.trained import TrainedRun
from inbounds.tasks.guard import share_of_bound

POINTS = 200


class EpisodeTrace(NamedTuple):
    """The share of the bound that each action used, and the reward it earned; thinned to a few hundred points."""

    step: list[int]
    share: list[float]
    reward: list[float]
    total: float

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()


def trace_episode(
    run: TrainedRun, preference: tuple[float, float] = (0.9, 0.1), seed: int = 0
) -> EpisodeTrace:
    """Play one episode with the first seed's evaluation policy and measure every action it executes."""
    act = compiled_policy(run, preference)
    environment = run.task.make_environment()
    observation, _ = environment.reset(seed=seed)
    shares, rewards = [], []
    is_over = False
    while not is_over:
        action = act(observation)
        shares.append(share_of_bound(run.task.constraint, observation, action))
        observation, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(float(reward))
        is_over = bool(terminated or truncated)
    environment.close()
    stride = -(-len(shares) // POINTS)
    kept = range(0, len(shares), stride)
    return EpisodeTrace(
        step=list(kept),
        share=[rounded(float(np.max(shares[start : start + stride])), 4) for start in kept],
        reward=[rounded(float(np.mean(rewards[start : start + stride])), 4) for start in kept],
        total=rounded(sum(rewards)),
    )
