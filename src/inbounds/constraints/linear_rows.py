"""Linear limits A a <= b from any constraints that have them: their margins, projections and interior points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints import host_solvers
from inbounds.constraints.arrays import SMALLEST, Array, clip, convert, is_traced, largest, lengths_of
from inbounds.constraints.box import Bounds, box_centre, cut_far_sides, spread
from inbounds.constraints.quadratic_program import (
    LOOSE,
    LOOSE_IN_SINGLE,
    deepest_point,
    farthest_point,
    nearest_point,
)
from inbounds.constraints.situation import RELATIVE_MARGIN, Situation

HALF_UNIT = 2.0**-24
"""The largest relative error of rounding a number to float32."""

FLOAT32_SLACK = 1.1
"""Situations in float64 ask for more slack than this where the answer will be a float32."""

HOST_SLACK = 1.01
"""Margins that projections on the host keep at least, so that the solver's own tolerance does no harm."""

NEARLY = 0.99
"""Rows that leave less than this share of their margin are empty; closer to it, the solver's own error decides."""

BEYOND = 1.0 + 1e-9
"""A factor by which a bound of rounding is enlarged, since it is itself rounded."""

VERY_FAR = 1e3
"""How many times as far away as the limits of rows and a box an action is before the size of their set is measured."""


class LinearRows(NamedTuple):
    """Rows `matrix a <= bound`, with what the rounding of both is relative to; axes before belong to a batch.

    `rounding` is the share of sum_j |A_ij a_j| that may be lost or invented in computing A_i a. `totals` is
    sum_j |A_ij| where it is known: what rounding can do is then bounded without another product of matrix and action.
    """

    matrix: Array
    bound: Array
    matrix_scale: Array
    bound_scale: Array
    rounding: float
    totals: Array | None = None

    def excess(self, at: Situation, action: Array) -> Array:
        """Return A a - b."""
        return times(at.xp, self.matrix, action) - self.bound

    def margin(self, at: Situation, action: Array, margins: float) -> Array:
        """Return a number of margins of every row: 1e-6 |b_i|, or the rounding of A_i a where that is more."""
        xp = at.xp
        size = xp.abs(action)
        if self.totals is not None and size.size:
            least_margin = RELATIVE_MARGIN * self.bound_scale
            if np.all(BEYOND * self.rounding * float(size.max()) * self.totals <= least_margin):
                return np.broadcast_to(margins * least_margin, (*size.shape[:-1], len(self.totals)))
        rounding = self.rounding * times(xp, self.matrix_scale, size)
        margin = margins * xp.maximum(RELATIVE_MARGIN * self.bound_scale, rounding)
        if at.is_single_precision:
            # Products too small for float32 vanish; next to a bound of 0 even they would be too much.
            is_term = (self.matrix_scale != 0) & (size[..., None, :] != 0)
            terms = xp.sum(xp.astype(is_term, at.dtype), axis=-1)
            margin = margin + terms * float(np.finfo(np.float32).tiny)
        return margin

    def goal(self, at: Situation, action: Array | None = None) -> Array:
        """Return the right-hand sides that projections of about this size aim at.

        Without an action it is the size that the bound itself implies, which rarely has to be corrected.
        """
        xp = at.xp
        # An answer that is found in float64 may still be rounded to float32.
        is_rounded = not at.is_single_precision and at.slack > FLOAT32_SLACK
        if action is None:
            share = at.slack * RELATIVE_MARGIN + (HALF_UNIT if is_rounded else 0.0)
            return self.bound - share * self.bound_scale
        goal = self.bound - self.margin(at, action, at.slack)
        return goal - HALF_UNIT * times(xp, self.matrix_scale, xp.abs(action)) if is_rounded else goal

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return, row by row, how far one can go before it is met, its growing margin included."""
        xp = at.xp
        room = -self.excess(at, point) - self.margin(at, point, at.margins)
        widening = at.margins * self.rounding * times(xp, self.matrix_scale, xp.abs(direction))
        speed = times(xp, self.matrix, direction) + widening
        is_moving = speed > 0
        length = xp.maximum(room, 0.0) / xp.where(is_moving, speed, 1.0)
        return xp.where(is_moving, length, float("inf"))

    def chord(self, at: Situation, point: Array, direction: Array) -> tuple[Array, Array]:
        """Return where a line through a point inside leaves all rows, against its direction and along it, on the host.

        Both ends share what `reach` would compute twice. With `totals` they may be nearer, by much less than a margin.
        """
        room = -self.excess(at, point) - self.margin(at, point, at.margins)
        if self.totals is None:
            widening = times(np, self.matrix_scale, np.abs(direction))
        else:
            widening = largest(np, np.abs(direction))[..., None] * self.totals
        speed, widening = times(np, self.matrix, direction), at.margins * self.rounding * widening
        share = 1.0 / np.maximum(room, SMALLEST)
        rates = [largest(np, (widening + way) * share) for way in (-speed, speed)]
        behind, ahead = (np.where(rate > 0, 1.0 / np.where(rate > 0, rate, 1.0), np.inf) for rate in rates)
        return behind, ahead


def rounding_of_sum(at: Situation, terms: int, *, is_read: bool) -> float:
    """Return how much of sum_j |A_ij a_j| can be lost or invented in A_i a - b_i.

    Each product, sum and coefficient is off by half a unit of the last place; three more are for the margin.
    Coefficients that are read from an observation may have been rounded to float32 before they came here.
    """
    if at.is_single_precision:
        return (terms + 6) * HALF_UNIT
    return 3 * HALF_UNIT if is_read else (terms + 6) * 2.0**-53


def stacked(at: Situation, parts: Sequence[LinearRows]) -> LinearRows:
    """Put the rows of several constraints below one another."""
    if len(parts) == 1:
        return parts[0]
    xp = at.xp
    lead = np.broadcast_shapes(
        *(part.bound.shape[:-1] for part in parts), *(p.matrix.shape[:-2] for p in parts)
    )
    matrices = [
        xp.concat([xp.broadcast_to(matrix, (*lead, *matrix.shape[-2:])) for matrix in column], axis=-2)
        for column in ([part.matrix for part in parts], [part.matrix_scale for part in parts])
    ]
    vectors = [
        xp.concat([xp.broadcast_to(vector, (*lead, vector.shape[-1])) for vector in column], axis=-1)
        for column in ([part.bound for part in parts], [part.bound_scale for part in parts])
    ]
    rounding = max(part.rounding for part in parts)
    return LinearRows(matrices[0], vectors[0], matrices[1], vectors[1], rounding)


def nearest_in_rows(at: Situation, rows: LinearRows, action: Array, bounds: Bounds) -> Array:
    """Return the Euclidean projection on rows and a box together, whose bounds may be infinite."""
    if at.xp is np and host_solvers.is_available():
        return _nearest_on_host(at, rows, action, bounds)
    return _nearest_by_steps(at, rows, action, spread(at.xp, bounds, action.shape[-1]))


def open_where_empty(
    at: Situation, rows: LinearRows, bounds: Bounds, dimension: int
) -> tuple[LinearRows, Bounds]:
    """Return rows and a box that limit nothing in those states in which they exclude one another.

    On the host a projection on such rows takes a hundred times as long as others. Members of an intersection that
    take turns would ask for hundreds of them, and then find out that their answer is not accepted.
    """
    if at.xp is not np or not host_solvers.is_available():
        return rows, bounds
    box = spread(np, bounds, dimension)
    near = _box_near_rows(at, rows, bounds, dimension)
    point = nearest_in_rows(at, rows, box_centre(np, near), near)

    def misses(point: Array) -> Array:
        # Rows that leave less than the margin of `contains` exclude one another as well: no answer would be accepted.
        missed = rows.excess(at, point) + NEARLY * rows.margin(at, point, at.margins) > 0
        return np.any(missed, axis=-1) | np.any(point < box.low, axis=-1)

    is_empty = misses(point)
    if np.any(is_empty):
        # Where margins grow with the action, a nearest point can miss them although the rows have room elsewhere.
        is_empty = is_empty & misses(interior_in_rows(at, rows, dimension, bounds))
    if not np.any(is_empty):
        return rows, bounds
    is_empty = is_empty[..., None]
    low, high = np.where(is_empty, -np.inf, box.low), np.where(is_empty, np.inf, box.high)
    return rows._replace(bound=np.where(is_empty, np.inf, rows.bound)), Bounds(low, high)


def box_around_rows(at: Situation, rows: LinearRows, bounds: Bounds, action: Array) -> Bounds:
    """Return a box around rows and an open box, on the host, with about the ends of their set for very far actions.

    The nearest points of points much farther out show how far the set reaches; these are two projections per entry.
    Sides on which it reaches far as well stay as they are, and so does the whole box of every other action.
    """
    dimension = action.shape[-1]
    box = spread(np, bounds, dimension)
    is_open = ~np.all(np.isfinite(box.low) & np.isfinite(box.high), axis=-1, keepdims=True)
    if not np.any(is_open):
        return box
    near = _box_near_rows(at, rows, bounds, dimension)
    centre = box_centre(np, near)
    sizes = [largest(np, np.where(np.isfinite(side), np.abs(side), 0.0)) for side in near]
    scale = np.maximum(_scale(np, rows), np.maximum(*sizes))[..., None]
    reach, outside = VERY_FAR * scale, VERY_FAR * VERY_FAR * scale
    distance = largest(np, np.abs(action - centre))[..., None]
    is_far = is_open & (distance > reach) & np.isfinite(outside)
    if not np.any(is_far):
        return box
    axes = np.concatenate([np.eye(dimension), -np.eye(dimension)])
    axes = axes.reshape(2 * dimension, *(1,) * (centre.ndim - 1), dimension)
    points = nearest_in_rows(at, rows, centre + np.where(np.isfinite(outside), outside, 0.0) * axes, bounds)
    low, high = np.min(points, axis=0), np.max(points, axis=0)
    return Bounds(
        np.where(is_far & (low > centre - reach), np.maximum(low, box.low), box.low),
        np.where(is_far & (high < centre + reach), np.minimum(high, box.high), box.high),
    )


def interior_in_rows(at: Situation, rows: LinearRows, dimension: int, bounds: Bounds) -> Array:
    """Return the centre of a largest ball inside rows and a box, or else the point that misses least.

    On the host it is an action next to zero where the solver misses and that is inside: numbers near 1e308 in a row
    defeat the solver, and zero makes all of them small.
    """
    box = _box_near_rows(at, rows, bounds, dimension)
    found = deepest_point(
        at.xp, rows.matrix, lambda point: rows.bound - rows.margin(at, point, at.margins), box, dimension
    )
    if at.xp is not np:
        return found

    def is_inside(point: Array) -> Array:
        return np.all(rows.excess(at, point) + rows.margin(at, point, at.margins) <= 0, axis=-1)

    are_inside = is_inside(found)
    if np.all(are_inside):
        return found

    def next_to_zero() -> Iterator[Array]:
        yield clip(np, np.zeros_like(found), *spread(np, bounds, dimension))
        yield nearest_in_rows(at, rows, np.zeros_like(found), bounds)

    for point in next_to_zero():
        is_better = ~are_inside & is_inside(point)
        found = np.where(is_better[..., None], point, found)
        are_inside = are_inside | is_better
        if np.all(are_inside):
            break
    return found


def _box_near_rows(at: Situation, rows: LinearRows, bounds: Bounds, dimension: int) -> Bounds:
    """Return the part of a box that is not very far from all rows."""
    return cut_far_sides(at.xp, spread(at.xp, bounds, dimension), _scale(at.xp, rows))


def _scale(xp: Any, rows: LinearRows) -> Array:
    """Return the largest distance of a row from zero; what is too far for its square limits nothing."""
    lengths = lengths_of(xp, rows.matrix)
    distances = xp.abs(rows.bound) / xp.where(lengths > 0, lengths, 1.0)
    is_near = distances < (LOOSE_IN_SINGLE if distances.dtype == xp.float32 else LOOSE)
    return largest(xp, xp.where(is_near, distances, 0.0))


def farthest_in_rows(at: Situation, rows: LinearRows, direction: Array, bounds: Bounds) -> Array:
    """Return a point of rows and a box that is farthest along a direction."""
    dimension = direction.shape[-1]
    if is_traced(direction):
        start = interior_in_rows(at, rows, dimension, bounds)
        return farthest_point(
            at.xp, rows.matrix, lambda point: rows.goal(at, point), bounds, start, direction
        )
    parts = (rows.matrix, rows.goal(at), *spread(at.xp, bounds, dimension), direction)
    problems = [np.asarray(part, dtype=np.float64) for part in parts]
    axes = (2, 1, 1, 1, 1)
    pairs = list(zip(problems, axes, strict=True))
    lead = np.broadcast_shapes(*(part.shape[: part.ndim - own] for part, own in pairs))
    problems = [np.broadcast_to(part, (*lead, *part.shape[part.ndim - own :])) for part, own in pairs]
    points = np.empty((*lead, dimension))
    for place in np.ndindex(*lead):
        points[place] = host_solvers.farthest_point(*(part[place] for part in problems))
    return convert(points, at.xp, at.dtype, at.device)


def times(xp: Any, matrix: Array, vectors: Array) -> Array:
    """Return matrix times vector for vectors along the last axis.

    Outside of numpy these are products and a sum, since an accelerator may round the factors of a matrix
    product to ten bits, and then acceptance would promise nothing.
    """
    if xp is not np:
        return xp.sum(matrix * vectors[..., None, :], axis=-1)
    if matrix.ndim == 2:
        return np.matmul(vectors, matrix.T)
    return np.matmul(matrix, vectors[..., None])[..., 0]


def _nearest_by_steps(at: Situation, rows: LinearRows, action: Array, box: Bounds) -> Array:
    return nearest_point(at.xp, rows.matrix, lambda point: rows.goal(at, point), box, action)


def _nearest_on_host(at: Situation, rows: LinearRows, action: Array, bounds: Bounds) -> Array:
    """Solve one small program per action; those whose margin turns out larger are solved once more."""
    at = at._replace(slack=max(at.slack, HOST_SLACK))
    dimension, count = action.shape[-1], rows.matrix.shape[-2]
    lead = np.broadcast_shapes(
        action.shape[:-1],
        rows.matrix.shape[:-2],
        rows.bound.shape[:-1],
        bounds.low.shape[:-1],
        bounds.high.shape[:-1],
    )
    actions = _flat(action, lead, dimension, is_spread=True)
    box = Bounds(*(_flat(side, lead, dimension) for side in bounds))
    matrix = rows.matrix
    if matrix.ndim > 2:
        matrix = np.broadcast_to(matrix, (*lead, count, dimension)).reshape(-1, count, dimension)
        flat = LinearRows(
            matrix,
            _flat(rows.bound, lead, count, is_spread=True),
            np.broadcast_to(rows.matrix_scale, (*lead, count, dimension)).reshape(-1, count, dimension),
            _flat(rows.bound_scale, lead, count, is_spread=True),
            rows.rounding,
        )
    else:
        flat = rows._replace(
            bound=_flat(rows.bound, lead, count), bound_scale=_flat(rows.bound_scale, lead, count)
        )
    first = flat.goal(at)
    points, is_solved = host_solvers.nearest_points(matrix, first, *box, actions)
    points = clip(np, points, *box)
    limits = flat.goal(at, points)
    is_missed = np.any((limits < first) & (times(np, matrix, points) > limits), axis=-1) & is_solved
    if np.any(is_missed):
        part, sides = _chosen(is_missed, flat, box)
        again = host_solvers.nearest_points(part.matrix, limits[is_missed], *sides, actions[is_missed])
        points[is_missed] = clip(np, again.points, *sides)
        is_solved[is_missed] = again.is_solved
    if not np.all(is_solved):
        part, sides = _chosen(~is_solved, flat, box)
        points[~is_solved] = _nearest_by_steps(at, part, actions[~is_solved], sides)
    return points.reshape(*lead, dimension)


def _flat(array: Array, lead: tuple[int, ...], entries: int, *, is_spread: bool = False) -> Array:
    """Return vectors as rows of a matrix; a single one stays a single row where nothing asks for more."""
    if array.ndim <= 1 and not is_spread:
        return np.broadcast_to(array, (1, entries))
    return np.broadcast_to(array, (*lead, entries)).reshape(-1, entries)


def _chosen(is_chosen: Array, rows: LinearRows, box: Bounds) -> tuple[LinearRows, Bounds]:
    """Return the problems of some actions; what all actions share stays as it is."""
    matrices = [m if m.ndim == 2 else m[is_chosen] for m in (rows.matrix, rows.matrix_scale)]
    vectors = [v if len(v) == 1 else v[is_chosen] for v in (rows.bound, rows.bound_scale, box.low, box.high)]
    part = LinearRows(matrices[0], vectors[0], matrices[1], vectors[1], rows.rounding)
    return part, Bounds(vectors[2], vectors[3])
