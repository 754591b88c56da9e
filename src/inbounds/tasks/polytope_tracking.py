"""A synthetic task of any dimension: follow a moving target inside a polytope, to see how methods scale.

    s' = 0.95 s + 0.05 V a + 0.3 noise,   r(s, a) = 1 - |a - tanh(W s)|^2 / (4 d),   A a <= b,  -1 <= a <= 1

The target tanh(W s) often lies outside the polytope, so that the best action is on its boundary; the reward is in
[0, 1], as Proposition 1 wants it. A, V and W are drawn once from a fixed seed: the task is the same everywhere.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Polytope
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import Task

HIDDEN = 10
HORIZON = 100
BOUND = 0.6
"""At 50 dimensions and 30 rows about one uniform action in a hundred is feasible."""


class TrackingState(NamedTuple):
    """Where the target is, and how many steps were taken."""

    position: jax.Array
    time: jax.Array


class PolytopeTracking:
    """The environment as pure functions."""

    horizon = HORIZON

    def __init__(self, dimension: int) -> None:
        """Draw the matrices of the task."""
        generator = np.random.default_rng(50)
        self.observation_size, self.action_size = HIDDEN, dimension
        self.pull: NDArray[np.float32] = (
            generator.normal(size=(HIDDEN, dimension)) / np.sqrt(dimension)
        ).astype(np.float32)
        self.target: NDArray[np.float32] = (
            generator.normal(size=(dimension, HIDDEN)) / np.sqrt(HIDDEN)
        ).astype(np.float32)

    def reset(self, key: jax.Array) -> tuple[TrackingState, jax.Array]:
        """Draw where the target starts."""
        position = jax.random.normal(key, (HIDDEN,), jnp.float32)
        return TrackingState(position, jnp.zeros((), jnp.int32)), position

    def step(self, state: TrackingState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Reward how close the action is, then move the target."""
        gap = action - jnp.tanh(self.target @ state.position)
        reward = 1.0 - jnp.sum(gap**2) / (4.0 * self.action_size)
        noise = jax.random.normal(key, (HIDDEN,), jnp.float32)
        position = 0.95 * state.position + 0.05 * (self.pull @ action) + 0.3 * noise
        time = state.time + 1
        following = TrackingState(position, time)
        return CompiledStep(following, position, reward, jnp.asarray(False), time >= self.horizon)


@cache
def compiled_tracking(dimension: int) -> PolytopeTracking:
    """Return the one environment of a dimension, so that everything that uses it shares what was compiled."""
    return PolytopeTracking(dimension)


def polytope_tracking_task(dimension: int, rows: int) -> Task:
    """Return the task with that many entries of an action and that many random half-spaces."""
    generator = np.random.default_rng(51)
    matrix = generator.normal(size=(rows, dimension))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    low, high = -np.ones(dimension, np.float32), np.ones(dimension, np.float32)
    constraint = Polytope(matrix, np.full(rows, BOUND)) & Box(low, high)
    return task_of_compiled(
        compiled_tracking(dimension),
        constraint,
        name=f"polytope{dimension}",
        action_low=low,
        action_high=high,
        reward_divisor=1.0,
        reward_shift=0.0,
        source="ours: a polytope of any dimension, which reviewers wanted",
        environment_id=f"inbounds/Polytope{dimension}-v0",
        ends_only_in_failure=True,
    )
