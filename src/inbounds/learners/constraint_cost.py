"""What a constrained MDP charges for a drawn action, so that its budget stands for the set."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.intersection import BoxLike
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
