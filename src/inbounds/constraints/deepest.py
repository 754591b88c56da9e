"""A point deep inside an intersection, on the host: linear programs on its rows and sums, and cuts for the rest.

A linear program takes linear rows, a box and limits on weighted sums together. With one more variable u_i >= |x_i| per
entry a limit on absolute values is linear, sum_i |w_i| u_i <= b, and with u_i >= max(w_i x_i, 0) so is a limit on
positive parts. Members that take turns need the more rounds, the more their weights differ; the program is solved once
whatever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, lengths_of
from inbounds.constraints.box import Bounds, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.level_set import PowerBudget, WeightedL1
from inbounds.constraints.linear_rows import LinearRows
from inbounds.constraints.situation import Situation

SURE = 1e-5
"""The radius of a ball, relative to its unit, from which the tolerance of a linear program does not matter."""
MOST_CUTS = 60
"""Rounds of cuts; where so many are not enough, nothing is known."""


class Members(NamedTuple):
    """What an intersection consists of in some states; `box` holds all of it, and `bounds` are its own limits."""

    rows: LinearRows | None
    curved: Sequence[Constraint]
    bounds: Bounds
    box: Bounds


def deepest_point(at: Situation, members: Members, is_wanted: Array | None = None) -> Array:
    """Return a point deep inside all members, or in an empty state the one that misses their limits by least.

    The linear program takes rows, bounds and weighted sums as they are. For balls and ellipsoids it is solved again
    and again: where its answer is not in one of them, the projection gives a plane that cuts the answer off. The
    point is NaN in states where the set is too thin or too wide for the solver, the cuts do not come to an end, or
    none is wanted.
    """
    rows, box, dimension, lead = members.rows, members.box, members.box.low.shape[-1], at.batch
    sums = [member for member in members.curved if isinstance(member, WeightedL1 | PowerBudget)]
    others = [member for member in members.curved if not isinstance(member, WeightedL1 | PowerBudget)]
    matrix = np.zeros((0, dimension)) if rows is None else rows.matrix
    limit = np.zeros(0) if rows is None else rows.bound - rows.margin(at, np.zeros(dimension), at.margins)
    # What limits weighted sums alone may leave the box of all members open, which cuts cannot.
    low, high = spread(np, members.bounds if not others else box, dimension)
    parts = [(matrix, 2), (limit, 1), (low, 1), (high, 1)]
    for member in sums:
        parts += [(at.value(member.weights) + np.zeros(dimension), 1), (member.inner_bound(at, dimension), 0)]
    everywhere = [np.broadcast_to(part, (*lead, *part.shape[part.ndim - own :])) for part, own in parts]
    size = np.broadcast_to(np.maximum(np.abs(box.low), np.abs(box.high)), (*lead, dimension))
    points = np.full((*lead, dimension), np.nan)
    for place in np.ndindex(*lead):
        if is_wanted is not None and not is_wanted[place]:
            continue
        here = [part[place] for part in everywhere]
        limits = Limits(
            here[0],
            here[1],
            here[2],
            here[3],
            [
                WeightedSum(weights, bound, isinstance(member, WeightedL1))
                for member, weights, bound in zip(sums, here[4::2], here[5::2], strict=True)
            ],
        )
        sizes = size[place]
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        unit = float(np.min(sizes)) if sizes.size else 1.0
        found = _deepest_here(at.alone(place, lead), limits, others, unit)
        if found is not None:
            points[place] = found
    return points


def _deepest_here(
    at: Situation, limits: Limits, others: Sequence[Constraint], unit: float
) -> FloatArray | None:
    """Return the point of one state, or None where nothing is known."""
    for _ in range(MOST_CUTS):
        ball = largest_ball(limits, unit)
        if ball is None or abs(ball.radius) <= SURE * unit:
            return None
        broken = [member for member in others if not bool(member.accepts(at, ball.centre))]
        if ball.radius < 0 or not broken:
            return ball.centre
        edges = [np.asarray(member.nearest(at, ball.centre)) for member in broken]
        normals = np.stack([ball.centre - edge for edge in edges])
        offsets = np.stack([normal @ edge for normal, edge in zip(normals, edges, strict=True)])
        limits = limits._replace(
            matrix=np.concatenate([limits.matrix, normals]), bound=np.concatenate([limits.bound, offsets])
        )
    return None


# One linear program -------------------------------------------------------------------------------------------------

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class WeightedSum(NamedTuple):
    """The limit sum_i |w_i x_i| <= bound, or sum_i max(w_i x_i, 0) <= bound."""

    weights: FloatArray
    bound: FloatArray
    is_absolute: bool


class Limits(NamedTuple):
    """All limits of one state: A x <= b, low <= x <= high, of which some may be infinite, and weighted sums."""

    matrix: FloatArray
    bound: FloatArray
    low: FloatArray
    high: FloatArray
    sums: Sequence[WeightedSum]


class Ball(NamedTuple):
    """A largest ball inside all limits; a negative radius says by how much its centre misses the worst of them."""

    centre: FloatArray
    radius: float


def largest_ball(limits: Limits, unit: float) -> Ball | None:
    """Return the largest ball of radius up to `unit` inside all limits; None where the solver finds nothing.

    A ball of radius r around x is inside a sum's limit where sum_i |w_i x_i| + |w| r <= bound, as for a row. The
    solver's tolerance is 1e-7 of `unit`, which should be about the size of the smallest entries.
    """
    from scipy.optimize import linprog

    dimension = len(limits.low)
    sums = [one for one in limits.sums if np.any(one.weights != 0)]
    width = dimension + 1 + dimension * len(sums)
    identity, parts, sides = np.eye(dimension), [], []

    def add(
        of_point: FloatArray, of_radius: float, bound: Any, member: int = 0, of_lifted: Any = 0.0
    ) -> None:
        part = np.zeros((len(of_point), width))
        part[:, :dimension], part[:, dimension] = of_point, of_radius
        start = dimension + 1 + member * dimension
        part[:, start : start + dimension] = of_lifted
        parts.append(part)
        sides.append(np.broadcast_to(bound, len(of_point)))

    lengths = lengths_of(np, limits.matrix)
    is_row = lengths > 0
    lengths = lengths[is_row]
    if lengths.size:
        add(limits.matrix[is_row] / lengths[:, None], 1.0, limits.bound[is_row] / lengths / unit)
    for sign, side in ((1.0, limits.high), (-1.0, -limits.low)):
        has_end = np.isfinite(side)
        add(sign * identity[has_end], 1.0, side[has_end] / unit)
    for member, (weights, bound, is_absolute) in enumerate(sums):
        length = float(lengths_of(np, weights))
        shares = weights / length
        for slopes in (identity, -identity) if is_absolute else (np.diag(shares),):
            add(slopes, 0.0, 0.0, member, -identity)
        costs = np.abs(shares) if is_absolute else np.ones(dimension)
        add(np.zeros((1, dimension)), 1.0, bound / length / unit, member, costs)
    matrix, bounds = np.concatenate(parts), np.concatenate(sides)
    if not (np.isfinite(matrix).all() and np.isfinite(bounds).all()):
        return None
    free = [(None, None)] * dimension + [(None, 1.0)] + [(0.0, None)] * (dimension * len(sums))
    gain = np.zeros(width)
    gain[dimension] = -1.0
    answer = linprog(gain, A_ub=matrix, b_ub=bounds, bounds=free, method="highs")
    if answer.x is None:
        return None
    return Ball(unit * np.asarray(answer.x[:dimension]), unit * float(answer.x[dimension]))
