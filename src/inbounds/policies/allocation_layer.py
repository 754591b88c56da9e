"""ApprOpt's layer: entries that must add up to a total are shifted together and clamped, in a few rounds."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Clamps(NamedTuple):
    """Which entries ended at their lower and at their upper limit; the others are free."""

    is_low: jax.Array
    is_high: jax.Array


def clamp_rounds(target: jax.Array, low: jax.Array, high: jax.Array, total: jax.Array) -> Clamps:
    """Return which entries are clamped: first those below their limits, round by round, then those above.

    From a target within the limits only one of the two phases ever clamps: all entries move the same way.
    Then no clamp would have to be released, and the result is the nearest allocation. From outside the limits
    it need not even be feasible, which is why the actor's output is stretched over the limits first.
    """
    nothing = jnp.zeros(target.shape, bool)

    def lower_round(_: int, is_low: jax.Array) -> jax.Array:
        shifted = allocation(target, low, high, total, Clamps(is_low, nothing))
        return is_low | (shifted < low)

    is_low = jax.lax.fori_loop(0, target.shape[-1], lower_round, nothing)

    def upper_round(_: int, is_high: jax.Array) -> jax.Array:
        shifted = allocation(target, low, high, total, Clamps(is_low, is_high))
        return is_high | (shifted > high)

    return Clamps(is_low, jax.lax.fori_loop(0, target.shape[-1], upper_round, nothing))


def allocation(
    target: jax.Array, low: jax.Array, high: jax.Array, total: jax.Array, clamps: Clamps
) -> jax.Array:
    """Return z_i = y_i + (c - sum of clamped entries - sum_free y) / |free| for free entries, else the limit."""
    fixed = jnp.where(clamps.is_low, low, high)
    is_free = ~(clamps.is_low | clamps.is_high)
    count = jnp.sum(is_free, axis=-1, keepdims=True)
    taken = jnp.sum(jnp.where(is_free, target, fixed), axis=-1, keepdims=True)
    shift = (total[..., None] - taken) / jnp.maximum(count, 1)
    return jnp.where(is_free, target + shift, fixed)


def clamped_allocation(
    target: jax.Array, low: jax.Array, high: jax.Array, total: jax.Array, leaky: bool = False
) -> jax.Array:
    """Return the nearest allocation of `total` within the limits, the target itself where it is one.

    The Jacobian is delta_ij - 1/|free| on the free entries and 0 elsewhere; `leaky` uses I - 11^T/d
    everywhere, so that clamped entries still feel a gradient.

    Args:
        target: (..., d), what the actor asks for, within the limits.
        low: lower limits, broadcast with the target.
        high: upper limits, broadcast with the target.
        total: (...), what the entries must add up to.
        leaky: whether clamped entries pass gradients.
    """
    clamps = clamp_rounds(jax.lax.stop_gradient(target), low, high, total)
    result = allocation(target, low, high, total, clamps)
    if not leaky:
        return result
    surrogate = target - jnp.mean(target, axis=-1, keepdims=True)
    return jax.lax.stop_gradient(result - surrogate) + surrogate
