"""Points of an intersection without a closed form: its members project in turns and agree (ADMM)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, clip, control_flow, is_jax, is_traced, largest, total
from inbounds.constraints.box import Bounds, box_centre
from inbounds.constraints.situation import Situation

Projection = Callable[[Array], Array]

PENALTY = 3.0
"""How much agreement counts against staying near the action; the problem has no unit, so one value serves all."""

RELAXATION = 1.6
ROUNDS_ON_DEVICE = 150
ROUNDS_ON_HOST = 400
REACH = 150.0
"""How many widths of a set away an action may be; from 1000 the rounds above end far from the nearest point."""
SETTLED = 1e-12
"""A disagreement, relative to the action, below which the host stops."""
ROUNDS_BETWEEN_TESTS = 20
"""How often the host tests whether the members have an action in common; a test costs about as much as a round."""
APART = 1e-4
"""How far apart members must be for the host to stop, relative to their entries: far more than margins and rounding."""
MOST_SIDES = 20
"""Pairs of opposite points around a set whose projections give its centre; each takes hundreds of projections."""
LEVER = 1e3
"""How far beyond a member's point the test looks, in sizes of the box; so much less do errors of the point count."""


class Agreement(NamedTuple):
    """The point of every member and its running disagreement with the others."""

    points: tuple[Array, ...]
    disagreements: tuple[Array, ...]


def nearest_by_turns(at: Situation, projections: Sequence[Projection], action: Array, box: Bounds) -> Array:
    """Return the Euclidean projection on an intersection, from projections on its members.

    The alternating direction method of multipliers: each member projects on its own, and their mean is drawn
    to the action. JAX runs a fixed number of rounds, so that it can be batched; elsewhere it stops when every
    action is settled, or its members are known to have nothing in common inside `box`, which holds the
    intersection. The answer for such an action is not accepted by all members.
    """
    xp = at.xp
    weight = 1.0 / (1.0 + PENALTY * len(projections))

    def one_round(state: Agreement) -> Agreement:
        drawn = weight * action
        for point, disagreement in zip(*state, strict=True):
            drawn = drawn + (weight * PENALTY) * (point - disagreement)
        points, disagreements = [], []
        for project, point, disagreement in zip(projections, *state, strict=True):
            wish = RELAXATION * drawn + (1.0 - RELAXATION) * point + disagreement
            points.append(project(wish))
            disagreements.append(wish - points[-1])
        return Agreement(tuple(points), tuple(disagreements))

    points = tuple(project(action) for project in projections)
    shape = np.broadcast_shapes(*(tuple(point.shape) for point in points))
    points = tuple(xp.broadcast_to(point, shape) for point in points)
    state = Agreement(points, tuple(xp.zeros_like(point) for point in points))

    def size_of(numbers: Array) -> Array:
        """Return sizes; what overflowed does not change any more, and is not waited for."""
        return xp.where(xp.isfinite(numbers), xp.abs(numbers), 0.0)

    def are_settled(before: Agreement, after: Agreement) -> Array:
        """Tell of every action whether its points and disagreements stay where they are."""
        pairs = zip(
            (*after.points, *after.disagreements), (*before.points, *before.disagreements), strict=True
        )
        changes = [largest(xp, size_of(new - old))[..., None] for new, old in pairs]
        allowed = SETTLED * (1.0 + xp.max(size_of(after.points[0])))
        return largest(xp, xp.concat(changes, axis=-1)) <= allowed

    def is_settled(before: Agreement, after: Agreement) -> Array:
        return xp.all(are_settled(before, after))

    traced = next((array for array in (action, *points) if is_jax(array) or is_traced(array)), None)
    if traced is None:
        apart: Array | bool = False
        for index in range(ROUNDS_ON_HOST):
            before, state = state, one_round(state)
            done = are_settled(before, state) | apart
            if bool(xp.all(done)):
                break
            if index % ROUNDS_BETWEEN_TESTS == ROUNDS_BETWEEN_TESTS - 1:
                apart = apart | are_apart(at, projections, state.points, box)
    elif hasattr(flow := control_flow(traced), "settling_loop"):
        state = flow.settling_loop(ROUNDS_ON_HOST, one_round, state, is_settled)
    else:
        state = flow.fori_loop(0, ROUNDS_ON_DEVICE, lambda _, current: one_round(current), state)
    return sum(state.points[1:], state.points[0]) / float(len(projections))


def are_apart(
    at: Situation, projections: Sequence[Projection], points: Sequence[Array], box: Bounds
) -> Array:
    """Tell of every action whether a certificate shows that the members have nothing in common inside a box.

    A projection p of a point y on a convex set is proof that all of the set is on one side of a plane:
    (y - p) x <= (y - p) p. The sum of such inequalities, one per member, that no x in the box satisfies is a proof
    that no x is in all members. Where turns do not settle, the members' points end where the sets are nearest to
    each other, and each looks from there past the others.
    """
    xp = at.xp
    # A box without an end in some direction proves nothing, and is a point in the sums below.
    size = xp.maximum(xp.abs(box.low), xp.abs(box.high))
    is_bounded = xp.isfinite(size)
    low, high = xp.where(is_bounded, box.low, 0.0), xp.where(is_bounded, box.high, 0.0)
    centre, scale = 0.5 * (low + high), largest(xp, xp.where(is_bounded, size, 0.0))
    mean = sum(points[1:], points[0]) / float(len(points))
    farthest = largest(xp, xp.concat([largest(xp, xp.abs(mean - p))[..., None] for p in points], axis=-1))
    lever = LEVER * scale / xp.where(farthest > 0, farthest, 1.0)
    limit, slope, lengths = xp.zeros_like(farthest), xp.zeros_like(mean), xp.zeros_like(farthest)
    for project, point in zip(projections, points, strict=True):
        beyond = point + lever[..., None] * (mean - point)
        edge = project(beyond)
        normal = beyond - edge
        limit = limit + total(xp, normal * (edge - centre))
        slope = slope + normal
        lengths = lengths + xp.sqrt(total(xp, normal * normal))
    least = -total(xp, xp.abs(slope) * (0.5 * (high - low)))
    return xp.all(is_bounded, axis=-1) & (limit < least - APART * scale * lengths)


def central_point(
    at: Situation, projections: Sequence[Projection], starts: Sequence[Array], box: Bounds
) -> Array:
    """Return the mean of the projections of points on all sides of a box that holds the set.

    A mean of points that touch the set from all sides lies inside it, unless the set is flat. In many dimensions a
    point is off the centre along several axes at once, so that there are not more of them. Where the box has no end,
    the points lie around the mean of the starts, the members' own interior points. The starts may be the same in all
    states of a batch; the points are projected state by state.
    """
    xp, dimension = at.xp, box.low.shape[-1]
    width = box.high - box.low
    centre = clip(xp, sum(starts[1:], starts[0]) / float(len(starts)), *box)
    centre = xp.where(xp.isfinite(width), box_centre(xp, box), centre)
    centre = xp.broadcast_to(centre, (*at.batch, dimension))
    reach = xp.where(xp.isfinite(width), 0.5 * width, 1.0 + xp.abs(centre))
    axes = np.eye(min(dimension, MOST_SIDES))[:, np.arange(dimension) % MOST_SIDES]
    sides = np.concatenate([axes, -axes])
    sides = at.value(sides.reshape(len(sides), *(1,) * (centre.ndim - 1), dimension))
    return xp.mean(nearest_by_turns(at, projections, centre + sides * reach, box), axis=0)
