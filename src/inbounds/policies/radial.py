"""Maps that move an action along the ray from a centre of the set until it is inside: valid by construction.

Notation: c(s) is a point inside C(s), v = a - c the offset of an action, and L(v) the gauge of the set seen
from c: v / L(v) lies on the boundary, so that L <= 1 means inside.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import convert, namespace_of
from inbounds.constraints.constraint import Constraint
from inbounds.policies.box import ActionBox, like
from inbounds.policies.gaussian import log_tanh_slope

INSIDE = 1.0 - 1e-5
"""How much of the way to the boundary is used, so that rounding does not end outside."""


class Ray(NamedTuple):
    """The centre c, the offset v of an action from it, and the gauge L(v); all in the range [-1, 1]."""

    centre: Any
    offset: Any
    gauge: Any


def ray(
    constraint: Constraint, box: ActionBox, observation: Any, action: Any, previous_action: Any = None
) -> Ray:
    """Return where an action lies as seen from the set's centre.

    Args:
        constraint: the set; it must be bounded, as a set with a box always is.
        box: maps [-1, 1] to the environment's units.
        observation: (..., observation size).
        action: (..., action size); it may lie outside [-1, 1].
        previous_action: what was executed last, for sets that read it.
    """
    xp = namespace_of(action)
    # Where a set is empty this is the point that misses least: NaN from one state would spoil the whole loss.
    at, size = constraint.situation_without_action(observation, box.size, previous_action)
    interior = constraint.interior(at, size)
    centre = xp.broadcast_to(box.normalise(interior), action.shape)
    offset = convert(action, xp, centre.dtype) - centre
    # At the centre itself every direction is as good; any one keeps the derivative of the gauge finite.
    is_centre = xp.all(offset == 0, axis=-1)[..., None]
    heading = like(offset, box.half) * xp.where(is_centre, 1.0, offset)
    start = xp.broadcast_to(interior, action.shape)
    length = constraint.distance(observation, start, heading, previous_action=previous_action)
    # From a centre on the boundary every length may be 0.
    gauge = 1.0 / xp.maximum(length, float(np.finfo(np.float32).tiny))
    return Ray(centre, offset, xp.where(is_centre[..., 0], 0.0, gauge))


def alpha_projection(at: Ray) -> Any:
    """Return c + v / max(L, 1): what is outside goes to where its ray leaves the set."""
    xp = namespace_of(at.gauge)
    factor = INSIDE / xp.where(at.gauge <= INSIDE, INSIDE, at.gauge)
    return at.centre + factor[..., None] * at.offset


def radial_squash(at: Ray, shrink: Any = None) -> Any:
    """Return c + shrink v, shrink = tanh(L) / L: a smooth bijection from all of space to the interior of the set."""
    factor = INSIDE * (shrinkage(at.gauge) if shrink is None else shrink)
    return at.centre + factor[..., None] * at.offset


def radial_log_slope(at: Ray, shrink: Any) -> Any:
    """Return log |det| of the Jacobian of `radial_squash`, given `shrinkage(at.gauge)`.

    Along a ray the gauge L becomes tanh(L), and the d - 1 directions across it shrink by tanh(L) / L:
    log |det| = (d - 1) log(tanh(L) / L) + log(1 - tanh(L)^2).
    """
    along = log_tanh_slope(at.gauge)
    across = namespace_of(at.gauge).log(INSIDE * shrink)
    return (at.offset.shape[-1] - 1) * across + along + math.log(INSIDE)


def shrinkage(gauge: Any) -> Any:
    """Return tanh(L) / L = 1 - L^2 / 3 + 2 L^4 / 15 - ..., which needs no division near the centre."""
    xp = namespace_of(gauge)
    is_small = gauge < 1e-2
    large = xp.where(is_small, 1.0, gauge)
    squared = xp.where(is_small, gauge, 0.0) ** 2
    return xp.where(is_small, 1.0 - squared / 3.0 + 2.0 * squared**2 / 15.0, xp.tanh(large) / large)
