"""Points of an intersection without a closed form: its members project in turns (Dykstra's method)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, clip, is_jax
from inbounds.constraints.box import Bounds, box_centre, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.situation import Situation

ROUNDS_ON_DEVICE = 100
ROUNDS_ON_HOST = 2000
SETTLED = 1e-12
"""A change per round, relative to the action, below which the host stops."""

Projection = Callable[[Array], Array]


def nearest_by_turns(
    at: Situation,
    members: Sequence[Constraint],
    bounds: Bounds | None,
    action: Array,
    rounds: int | None = None,
) -> Array:
    """Return the Euclidean projection on all members and a box, as the limit of projections in turns.

    Plain turns would end somewhere in the set; Dykstra's corrections, one per member, make it the nearest
    point. JAX runs a fixed number of rounds, so that the function can be compiled; elsewhere it stops when
    settled.
    """
    xp = at.xp
    projections = _projections(at, members, bounds)
    point = projections[0](action)
    for project in projections[1:]:
        # A first turn gives every array its final leading axes.
        point = project(point)
    start = xp.broadcast_to(action, point.shape)
    state = (start, *(xp.zeros_like(point) for _ in projections))

    def one_round(state: tuple[Array, ...]) -> tuple[Array, ...]:
        point, corrections = state[0], []
        for project, correction in zip(projections, state[1:], strict=True):
            pulled = point + correction
            point = project(pulled)
            corrections.append(pulled - point)
        return (point, *corrections)

    if is_jax(action):
        import jax

        count = ROUNDS_ON_DEVICE if rounds is None else rounds
        return jax.lax.fori_loop(0, count, lambda _, current: one_round(current), state)[0]
    for _ in range(ROUNDS_ON_HOST if rounds is None else rounds):
        previous, state = state, one_round(state)
        change = max(float(xp.max(xp.abs(new - old))) for new, old in zip(state, previous, strict=True))
        if change <= SETTLED * (1.0 + float(xp.max(xp.abs(state[0])))):
            break
    return state[0]


def central_point(
    at: Situation, members: Sequence[Constraint], bounds: Bounds | None, dimension: int
) -> Array:
    """Return the mean of the projections of points spread around the members' own interior points.

    A mean of points that touch the set from all sides lies inside it, unless the set is flat.
    """
    xp = at.xp
    box = spread(xp, unbounded(at) if bounds is None else bounds, dimension)
    centre = box_centre(xp, box)
    for member in members:
        centre = centre + member.interior(at, dimension)
    centre = centre / (len(members) + 1.0)
    width = box.high - box.low
    reach = xp.where(xp.isfinite(width), 0.5 * width, 1.0 + xp.abs(centre))
    corners = xp.asarray(np.concatenate([np.eye(dimension), -np.eye(dimension)]), dtype=at.dtype)
    corners = xp.reshape(corners, (2 * dimension, *(1,) * (centre.ndim - 1), dimension))
    touched = nearest_by_turns(at, members, bounds, centre + corners * reach)
    return xp.mean(touched, axis=0)


def _projections(at: Situation, members: Sequence[Constraint], bounds: Bounds | None) -> list[Projection]:
    """Return one projection per member, together with the box where the member knows how."""
    projections: list[Projection] = []
    is_box_missing = bounds is not None
    for member in members:
        joint: Any = getattr(member, "nearest_in_box", None)
        if joint is not None and bounds is not None:
            projections.append(functools.partial(_call_with_bounds, joint, at, bounds))
            is_box_missing = False
        else:
            projections.append(functools.partial(member.nearest, at))
    if is_box_missing and bounds is not None:
        projections.append(lambda action: clip(at.xp, action, *bounds))
    return projections


def _call_with_bounds(joint: Any, at: Situation, bounds: Bounds, action: Array) -> Array:
    return joint(at, action, bounds)
