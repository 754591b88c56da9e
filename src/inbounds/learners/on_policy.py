"""On-policy learning: one update per rollout, and the advantages of its steps.

All arrays of a rollout have the leading axes (time, environments). A step that ends an episode is its last one. Where
the episode terminated, `not_done` is 0; where a time limit cut it, the value of the successor still counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from inbounds.learners.step import Metrics, Spec, StepFunctions
from inbounds.replay import Transition


def update_on_rollout(
    learner: StepFunctions,
    spec: Spec,
    state: Any,
    rollout: Transition,
    keys: jax.Array,
    is_complete: jax.Array,
) -> tuple[Any, Metrics]:
    """Update every seed if its rollout is complete; otherwise return the state and its last metrics.

    The leading axis of states, rollouts and keys is the seed. All seeds complete a rollout at the same step.
    """

    def one_seed(own: Any, steps: Transition, key: jax.Array) -> tuple[Any, Metrics]:
        return learner.update(own, spec, steps, learner.noise(key, spec))

    updated: tuple[Any, Metrics] = jax.lax.cond(
        is_complete, lambda: jax.vmap(one_seed)(state, rollout, keys), lambda: (state, state.metrics)
    )
    return updated


class Rewarded(NamedTuple):
    """A rollout as one objective sees it."""

    reward: jax.Array
    not_done: jax.Array
    is_last: jax.Array
    value: jax.Array
    """V(s_t)."""
    next_value: jax.Array
    """V(s_{t+1}), before any reset."""


def advantages(rollout: Rewarded, gamma: float, trace: float) -> jax.Array:
    """Return A_t = sum_k (gamma trace)^k delta_{t+k} within the episode (GAE, arXiv:1506.02438, Eq. 16).

    delta_t = r_t + gamma (1 - done_t) V(s_{t+1}) - V(s_t).
    """
    surprise = rollout.reward + gamma * rollout.not_done * rollout.next_value - rollout.value

    def backwards(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, is_last = now
        advantage = delta + gamma * trace * jnp.where(is_last, 0.0, later)
        return advantage, advantage

    last = jnp.zeros(surprise.shape[1:])
    return jax.lax.scan(backwards, last, (surprise, rollout.is_last), reverse=True)[1]


def discounted_from_starts(rollout: Rewarded, gamma: float, otherwise: jax.Array) -> jax.Array:
    """Return the mean discounted sum of rewards of the episodes that start within the rollout.

    An episode that the rollout does not see to its end is completed by the value of where it stands. Where no
    episode starts, which is known from the second step on, the answer is `otherwise`.
    """
    sums = advantages(rollout, gamma, 1.0) + rollout.value
    is_start = rollout.is_last[:-1]
    count = jnp.sum(is_start)
    mean = jnp.sum(jnp.where(is_start, sums[1:], 0.0)) / jnp.maximum(count, 1)
    return jnp.where(count > 0, mean, otherwise)
