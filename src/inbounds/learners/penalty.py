"""How far outside its set an action is: the smooth price that DPre+ and SPre+ put on their actor."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds.learners.learner import Spec


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
