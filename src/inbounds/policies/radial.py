"""Layers that move an action along the ray from a centre of the set until it is inside: valid by construction.

Notation: c(s) is a point inside C(s), v = a - c the offset of an action, and L(v) the gauge of the set seen
from c: v / L(v) lies on the boundary, so that L <= 1 means inside.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from inbounds.constraints.constraint import Constraint
from inbounds.policies.proposal import ActionBox

INSIDE = 1.0 - 1e-5
"""How much of the way to the boundary is used, so that rounding does not end outside."""


class Radial(NamedTuple):
    """An action before and after a layer, in [-1, 1], with what its density needs."""

    value: jax.Array
    log_slope: jax.Array
    """log |det| of the layer's Jacobian; minus infinity where it flattens space, as alpha-projection does."""


class Ray(NamedTuple):
    """The centre c, the offset v of an action from it, and the gauge L(v); all in the range [-1, 1]."""

    centre: jax.Array
    offset: jax.Array
    gauge: jax.Array


def ray(constraint: Constraint, box: ActionBox, observation: jax.Array, action: jax.Array) -> Ray:
    """Return where an action lies as seen from the set's centre.

    Args:
        constraint: the set; it must be bounded, as a set with a box always is.
        box: maps [-1, 1] to the environment's units.
        observation: (..., observation size).
        action: (..., action size); it may lie outside [-1, 1].
    """
    # Where a set is empty this is the point that misses least: NaN from one state would spoil the whole loss.
    interior = constraint.interior(*constraint.situation_without_action(observation, box.size, None))
    centre = jnp.broadcast_to(box.normalise(interior), action.shape)
    offset = action - centre
    # At the centre itself every direction is as good; any one keeps the derivative of the gauge finite.
    is_centre = jnp.all(offset == 0, axis=-1, keepdims=True)
    heading = 0.5 * (box.high - box.low) * jnp.where(is_centre, 1.0, offset)
    length = constraint.distance(observation, jnp.broadcast_to(interior, action.shape), heading)
    gauge = jnp.where(is_centre[..., 0], 0.0, 1.0 / length)
    return Ray(centre, offset, gauge)


def alpha_projection(at: Ray) -> Radial:
    """Return c + v / max(L, 1): what is outside goes to where its ray leaves the set."""
    is_inside = at.gauge <= INSIDE
    factor = INSIDE / jnp.where(is_inside, INSIDE, at.gauge)
    log_slope = jnp.where(is_inside, 0.0, -jnp.inf)
    return Radial(at.centre + factor[..., None] * at.offset, log_slope)


def radial_squash(at: Ray) -> Radial:
    """Return c + (tanh(L) / L) v, a smooth bijection from all of space to the interior of the set.

    Along a ray the gauge L becomes tanh(L), and the d - 1 directions across it shrink by tanh(L) / L:
    log |det| = (d - 1) log(tanh(L) / L) + log(1 - tanh(L)^2).
    """
    dimension = at.offset.shape[-1]
    is_small = at.gauge < 1e-2
    gauge = jnp.where(is_small, 1.0, at.gauge)
    squared = jnp.where(is_small, at.gauge, 0.0) ** 2
    # tanh(L) / L = 1 - L^2 / 3 + 2 L^4 / 15 - ..., which needs no division near the centre.
    shrink = jnp.where(is_small, 1.0 - squared / 3.0 + 2.0 * squared**2 / 15.0, jnp.tanh(gauge) / gauge)
    log_along = 2.0 * (math.log(2.0) - at.gauge - jax.nn.softplus(-2.0 * at.gauge))
    log_slope = (dimension - 1) * jnp.log(INSIDE * shrink) + log_along + math.log(INSIDE)
    return Radial(at.centre + (INSIDE * shrink)[..., None] * at.offset, log_slope)
