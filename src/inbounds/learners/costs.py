"""Costs of infeasible actions: of a constrained MDP, as a penalty in an actor's loss, and in solver calls.

The training loop counts projections of executed actions. A learner counts its other solver calls, one per row of a
batch whether a closed form or an iteration computes it, and reports the sums with its metrics.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from inbounds.constraints.box import BoxLike
from inbounds.constraints.constraint import Constraint
from inbounds.learners.learner import Spec


def hinge_cost(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return sum_i max(g_i(s, a), 0) over all rows, those of the box too."""
    return summed_hinges(excess_of([spec.constraint], observation, action))


def published_cost(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return g(s, a) where a single row stands beside the box, and sum_i max(g_i(s, a), 0) where several do.

    With one row, charging g = (left-hand side - bound) with a budget of 0 is charging the left-hand side with a budget
    of bound (1 - gamma^H) / (1 - gamma), which is what the published code does in episodes of H steps: what stays
    below the bound pays for what exceeds it at another time. Several rows have no common left-hand side; there what
    one row leaves unused must not pay for another, and nothing is earned inside the set.

    The box is charged nothing, unless there is no other set.
    """
    members = spec.constraint.members()
    own = [member for member in members if not isinstance(member, BoxLike)]
    excess = excess_of(own or members, observation, action)
    return excess[..., 0] if excess.shape[-1] == 1 else summed_hinges(excess)


def excess_of(members: Sequence[Constraint], observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return g_i(s, a) of every row of some sets, on a last axis."""
    rows = []
    for member in members:
        at, array, _ = member.situation(observation, action)
        rows.append(member.excess(at, array))
    return jnp.concatenate(rows, axis=-1)


def summed_hinges(excess: jax.Array) -> jax.Array:
    """Return what breaks the rows, added up; 0 inside the set."""
    return jnp.sum(jnp.maximum(excess, 0.0), axis=-1)


def row_distances(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the distance to every broken row, to first order, in the range [-1, 1] that networks see.

    d_i = max(g_i(s, a), 0) / ||grad g_i(s, a)||, the distance to the face of a linear row. The norm is a
    constant for the gradient of d_i, which is therefore a unit vector for every kind of row, as that of a
    distance must be.

    Args:
        spec: the task; its box maps [-1, 1] to the environment's units.
        observation: (batch, observation size).
        action: (batch, action size) in [-1, 1].
    """
    low, high = jnp.asarray(spec.box.low), jnp.asarray(spec.box.high)

    def rows(seen: jax.Array, squashed: jax.Array) -> jax.Array:
        executed = 0.5 * (high + low) + 0.5 * (high - low) * squashed
        at, array, _ = spec.constraint.situation(seen, executed)
        excess: jax.Array = spec.constraint.excess(at, array)
        return excess

    excess = rows(observation, action)
    slope = jax.vmap(jax.jacfwd(rows, argnums=1))(observation, jax.lax.stop_gradient(action))
    steepness = jnp.sqrt(jnp.sum(slope**2, axis=-1))
    return jnp.maximum(excess, 0.0) / jax.lax.stop_gradient(jnp.maximum(steepness, 1e-9))


def violation_penalty(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return g(s, a) = ||d||_2 over the rows, one number per action, 0 inside the set."""
    squared = jnp.sum(row_distances(spec, observation, action) ** 2, axis=-1)
    is_outside = squared > 0
    # The square root has no slope at 0: inside the set the gradient must be 0, not a division by it.
    return jnp.where(is_outside, jnp.sqrt(jnp.where(is_outside, squared, 1.0)), 0.0)


Calls = dict[str, jax.Array]
"""From a cause (`layer`, `linear_program`, ...) to the number of calls so far."""


def no_calls(causes: tuple[str, ...]) -> Calls:
    """Return a count of zero for every cause that a learner knows."""
    return {cause: jnp.zeros((), jnp.int32) for cause in causes}


def add_calls(calls: Calls, more: dict[str, jax.Array | int]) -> Calls:
    """Return the sums, cause by cause."""
    return {cause: count + jnp.asarray(more.get(cause, 0), jnp.int32) for cause, count in calls.items()}


def call_metrics(calls: Calls) -> dict[str, jax.Array]:
    """Return the counts under the names that are logged."""
    return {f"{cause}_calls": count for cause, count in calls.items()}
