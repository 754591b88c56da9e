"""Points of polytopes by a fixed number of interior-point steps, compiled, batched and in any array library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import (
    Array,
    clip,
    largest,
    least,
    lengths_of,
    repeated,
    total,
    without_gradient,
)
from inbounds.constraints.box import Bounds, box_centre, spread

Limits = Callable[[Array], Array]
"""The right-hand sides b of A x <= b for points near x; margins make them depend on how large x is."""

FIRST_SLACK = 0.3
TO_THE_WALL = 0.99
PROXIMITY = 0.01
LOOSE, LOOSE_IN_SINGLE = 1e150, 1e30
"""How far away a row is left out: in the unit of a program its distance, or the square of it, could overflow."""
PROXIMAL_ROUNDS = 3


class Accuracy(NamedTuple):
    """How many steps are taken and where rounding makes further ones useless."""

    steps: int
    regularisation: float
    least_product: float
    softness_of_derivative: float
    settled: float
    """A change, in units in which the solution is about 1, after which nothing that matters changes any more."""


# In float32 the normal matrix keeps about six digits; the dual regularisation stays just above what is lost.
SINGLE = Accuracy(
    steps=18, regularisation=1e-6, least_product=1e-12, softness_of_derivative=3e-4, settled=1e-7
)
DOUBLE = Accuracy(
    steps=26, regularisation=1e-11, least_product=1e-19, softness_of_derivative=1e-8, settled=1e-12
)


class Program(NamedTuple):
    """Minimise curvature/2 |x|^2 - pull . x over A x <= b and a box, in units in which x is about 1.

    `room` holds b - A x, high - x and x - low at x = 0, in this order; `is_row` tells which of them exist.
    """

    matrix: Array
    room: Array
    is_row: Array
    pull: Array
    curvature: Array


class Iterate(NamedTuple):
    """A point, the slack of every row, and its multiplier; both stay positive."""

    point: Array
    slack: Array
    multiplier: Array


def nearest_point(xp: Any, matrix: Array, limits: Limits, bounds: Bounds, action: Array) -> Array:
    """Return the point of {A x <= b, low <= x <= high} that is nearest to an action.

    Mehrotra's predictor and corrector solve the optimality conditions in a number of steps that hardly
    depends on the problem, so that it can be fixed: nothing branches on data, and all actions of a batch
    share the same few kernels. Steps are taken without gradients; the derivative of the projection is that of
    one more step, which follows the active rows as they and the action change.
    """
    accuracy = SINGLE if action.dtype == xp.float32 else DOUBLE
    frozen_action, frozen_matrix = without_gradient(action), without_gradient(matrix)
    frozen_bounds = Bounds(without_gradient(bounds.low), without_gradient(bounds.high))
    origin = clip(xp, frozen_action, *frozen_bounds)
    lengths = lengths_of(xp, frozen_matrix)
    is_row = lengths > 0
    lengths = xp.where(is_row, lengths, 1.0)
    unit_matrix = frozen_matrix / lengths[..., None]
    room, is_present = _room(
        xp, unit_matrix, without_gradient(limits(origin)) / lengths, is_row, frozen_bounds, origin
    )
    away = frozen_action - origin
    distance = xp.sqrt(total(xp, away * away))[..., None]
    # The largest violation is the natural unit: it bounds the distance to the set from below.
    worst = xp.maximum(largest(xp, xp.where(is_present, -room, 0.0))[..., None], 0.01 * distance)
    scale = xp.maximum(worst, 1e-12 * (1.0 + largest(xp, xp.abs(origin))[..., None]))
    curvature = 1.0 / xp.maximum(distance / scale, 1.0)
    program = Program(
        unit_matrix, xp.where(is_present, room / scale, 1.0), is_present, curvature * away / scale, curvature
    )

    def with_margins(program: Program, point: Array) -> Program:
        rows = without_gradient(limits(origin + scale * point)) / lengths - _times(xp, unit_matrix, origin)
        return _with_rows(xp, program, rows / scale)

    iterate = solve(xp, program, accuracy, with_margins)
    found = origin + scale * iterate.point
    live_matrix = matrix / lengths[..., None]
    room, _ = _room(xp, live_matrix, limits(found) / lengths, is_row, bounds, origin)
    live = Program(
        live_matrix,
        xp.where(is_present, room / scale, 1.0),
        is_present,
        curvature * (action - origin) / scale,
        curvature,
    )
    return clip(xp, found + scale * _derivative(xp, live, iterate, accuracy), *bounds)


def deepest_point(xp: Any, matrix: Array, limits: Limits, bounds: Bounds, dimension: int) -> Array:
    """Return the centre of a largest ball in {A x <= b} and a box, or else the point that misses least.

    The linear program max r subject to A_i x + |A_i| r <= b_i is solved by a few proximal steps, each a
    quadratic program around the last solution. Boxes are rows here, since the ball must fit into them too.
    """
    box = spread(xp, bounds, dimension)
    point = box_centre(xp, box)
    dtype = point.dtype
    accuracy = SINGLE if dtype == xp.float32 else DOUBLE
    matrix, lengths = without_gradient(matrix), lengths_of(xp, without_gradient(matrix))
    is_row = lengths > 0
    lengths = xp.where(is_row, lengths, 1.0)
    identity = xp.eye(dimension, dtype=dtype)
    rows = matrix / lengths[..., None]
    lead = rows.shape[:-2]
    limits_of_entries = xp.concat([identity, -identity], axis=0)
    limits_of_entries = xp.broadcast_to(limits_of_entries, (*lead, 2 * dimension, dimension))
    stacked = xp.concat([rows, limits_of_entries], axis=-2)
    stacked = xp.concat([stacked, xp.ones_like(stacked[..., :1])], axis=-1)
    only_depth = xp.asarray(np.eye(dimension + 1)[-1], dtype=dtype)

    def room_at(point: Array) -> tuple[Array, Array]:
        limit = without_gradient(limits(point)) / lengths
        return _room(xp, rows, limit, is_row, box, point)

    room, is_present = room_at(point)
    sides = room[..., -2 * dimension :]
    half_width = largest(xp, xp.where(is_present[..., -2 * dimension :], sides, 0.0))
    worst = largest(xp, xp.where(is_present, -room, 0.0))
    depth = least(xp, xp.where(is_present, room, float("inf")))
    depth = xp.where(xp.isfinite(depth), depth, 1.0)
    # The unit is the box, or what is missing at its centre; no larger ball is asked for, as none may exist.
    scale = xp.maximum(xp.maximum(half_width, worst), depth)[..., None]
    scale = xp.where(scale > 0, scale, 1.0)
    curvature = xp.full_like(scale, PROXIMITY)
    has_roof = xp.broadcast_to(only_depth > 0, (*is_present.shape[:-1], dimension + 1))
    exists = xp.concat([is_present, has_roof, xp.zeros_like(has_roof)], axis=-1)

    def one_round(point: Array) -> Array:
        room, _ = room_at(point)
        roof = xp.ones_like(only_depth) + xp.zeros_like(room[..., :1])
        room = xp.concat([room / scale, roof, xp.ones_like(roof)], axis=-1)
        pull = only_depth + xp.zeros_like(room[..., :1])
        program = Program(stacked, xp.where(exists, room, 1.0), exists, pull, curvature)
        found = solve(xp, program, accuracy).point[..., :dimension]
        return clip(xp, point + scale * found, *box)

    found = repeated(PROXIMAL_ROUNDS, one_round, point + xp.zeros_like(scale))
    # Next to a bound of zero nothing is small enough but zero itself, which rounding hardly ever meets.
    return xp.where(xp.abs(found) <= accuracy.settled * scale, 0.0, found)


def farthest_point(
    xp: Any, matrix: Array, limits: Limits, bounds: Bounds, start: Array, direction: Array
) -> Array:
    """Return a point of {A x <= b} and a box that is farthest along a direction, from a point inside.

    As for the deepest point, a linear program is solved by a few proximal steps.
    """
    accuracy = SINGLE if direction.dtype == xp.float32 else DOUBLE
    box = spread(xp, bounds, direction.shape[-1])
    lengths = lengths_of(xp, matrix)
    is_row = lengths > 0
    lengths = xp.where(is_row, lengths, 1.0)
    rows = matrix / lengths[..., None]
    steepest = largest(xp, xp.abs(direction))[..., None]
    pull = direction / xp.where(steepest > 0, steepest, 1.0)

    def room_at(point: Array) -> tuple[Array, Array]:
        return _room(xp, rows, limits(point) / lengths, is_row, box, point)

    room, is_present = room_at(start)
    scale = largest(xp, xp.where(is_present, xp.abs(room), 0.0))[..., None]
    scale = xp.where(scale > 0, scale, 1.0)
    curvature = xp.full_like(scale, PROXIMITY)

    def one_round(point: Array) -> Array:
        room, _ = room_at(point)
        program = Program(rows, xp.where(is_present, room / scale, 1.0), is_present, pull, curvature)
        return clip(xp, point + scale * solve(xp, program, accuracy).point, *box)

    return repeated(PROXIMAL_ROUNDS, one_round, start + xp.zeros_like(pull * scale))


def solve(
    xp: Any,
    program: Program,
    accuracy: Accuracy,
    renewed: Callable[[Program, Array], Program] | None = None,
) -> Iterate:
    """Solve a program from x = 0; `renewed` may adapt the room of rows to the current point."""
    slack = xp.maximum(program.room, FIRST_SLACK)
    multiplier = xp.where(program.is_row, xp.minimum(1.0 / slack, 1.0), 0.0)
    start = Iterate(
        program.pull * 0.0 + slack[..., :1] * 0.0, slack + program.pull[..., :1] * 0.0, multiplier
    )
    start = start._replace(multiplier=multiplier + start.slack * 0.0)

    def one_step(iterate: Iterate) -> Iterate:
        current = program if renewed is None else renewed(program, iterate.point)
        after = _step(xp, current, iterate, accuracy)
        # Near the solution a row's normal matrix may round to one that has no factor: stay at its last good point.
        is_known = xp.isfinite(total(xp, after.point) + total(xp, after.multiplier))[..., None]
        return Iterate(*(xp.where(is_known, new, old) for new, old in zip(after, iterate, strict=True)))

    def is_settled(before: Iterate, after: Iterate) -> Array:
        moved = [xp.max(xp.abs(new - old)) for new, old in zip(after, before, strict=True)]
        return xp.maximum(xp.maximum(moved[0], moved[1]), moved[2]) <= accuracy.settled

    found: Iterate = repeated(accuracy.steps, one_step, start, is_settled)
    return found


def _step(xp: Any, program: Program, iterate: Iterate, accuracy: Accuracy) -> Iterate:
    _, slack, multiplier = iterate
    residuals = _residuals(xp, program, iterate)
    newton = _newton(xp, program, iterate, accuracy)
    count = total(xp, xp.where(program.is_row, xp.ones_like(slack), 0.0))[..., None]
    product = multiplier * slack
    mean = xp.maximum(total(xp, product)[..., None] / count, accuracy.least_product)
    move = newton(residuals, product)
    length = _longest(xp, iterate, move, 1.0)
    ahead = (multiplier + length * move.multiplier) * (slack + length * move.slack)
    centring = (total(xp, ahead)[..., None] / count / mean) ** 3
    target = xp.maximum(centring * mean, accuracy.least_product)
    # A second-order correction at its full length makes short steps shorter still, and then cycles.
    bend = length * length * move.slack * move.multiplier
    move = newton(residuals, xp.where(program.is_row, product + bend - target, 0.0))
    length = _longest(xp, iterate, move, TO_THE_WALL)
    tiny = accuracy.least_product
    return Iterate(
        iterate.point + length * move.point,
        xp.maximum(slack + length * move.slack, tiny),
        xp.where(program.is_row, xp.maximum(multiplier + length * move.multiplier, tiny), 0.0),
    )


def _derivative(xp: Any, program: Program, iterate: Iterate, accuracy: Accuracy) -> Array:
    """Return zero, with the derivative of the solution: that of a step which removes the residuals.

    Here the normal matrix is softened until it and its rounding are off by the same small share.
    """
    frozen = program._replace(matrix=without_gradient(program.matrix))
    softened = accuracy._replace(regularisation=accuracy.softness_of_derivative)
    newton = _newton(xp, frozen, iterate, softened)
    step = newton(_residuals(xp, program, iterate), xp.zeros_like(iterate.slack)).point
    return step - without_gradient(step)


def _residuals(xp: Any, program: Program, iterate: Iterate) -> tuple[Array, Array]:
    """Return how far the point misses stationarity and the slacks miss the rows."""
    forces = _transposed_times(xp, program.matrix, iterate.multiplier)
    stationarity = program.curvature * iterate.point - program.pull + forces
    gap = _all_rows(xp, program.matrix, iterate.point) + iterate.slack - program.room
    return stationarity, xp.where(program.is_row, gap, 0.0)


def _newton(
    xp: Any, program: Program, iterate: Iterate, accuracy: Accuracy
) -> Callable[[tuple[Array, Array], Array], Iterate]:
    """Factor the normal matrix of an iterate; the answer solves for residuals and products to be removed."""
    matrix, slack, multiplier = program.matrix, iterate.slack, iterate.multiplier
    rows, dimension = matrix.shape[-2], matrix.shape[-1]
    softness = accuracy.regularisation / program.curvature
    stiffness = slack + softness * multiplier
    weights = multiplier / stiffness
    diagonal = program.curvature + weights[..., rows : rows + dimension] + weights[..., rows + dimension :]
    on = {"device": slack.device} if "torch" in xp.__name__ else {}
    identity = xp.eye(dimension, dtype=slack.dtype, **on)
    normal = _gram(xp, matrix, weights[..., :rows]) + diagonal[..., None] * identity
    solve_normal = _solver(xp, normal)

    def newton(residuals: tuple[Array, Array], product: Array) -> Iterate:
        stationarity, gap = residuals
        forces = _transposed_times(xp, matrix, (multiplier * gap - product) / stiffness)
        point = solve_normal(-stationarity - forces)
        passed = gap + xp.where(program.is_row, _all_rows(xp, matrix, point), 0.0)
        change = (multiplier * passed - product) / stiffness
        return Iterate(point, softness * change - passed, change)

    return newton


def _longest(xp: Any, iterate: Iterate, move: Iterate, share: float) -> Array:
    """Return the part of a move, at most all of it, that keeps slacks and multipliers positive."""
    lengths = []
    for value, change in ((iterate.slack, move.slack), (iterate.multiplier, move.multiplier)):
        is_falling = change < 0
        ratio = xp.where(is_falling, -value / xp.where(is_falling, change, 1.0), 2.0)
        lengths.append(least(xp, ratio))
    return xp.minimum(share * xp.minimum(lengths[0], lengths[1]), 1.0)[..., None]


def _room(
    xp: Any, matrix: Array, limit: Array, is_row: Array, bounds: Bounds, point: Array
) -> tuple[Array, Array]:
    """Return how far a point is from every row and side of the box, and which of these exist."""
    parts = [limit - _times(xp, matrix, point), bounds.high - point, point - bounds.low]
    lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
    room = xp.concat([xp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)
    count = is_row.shape[-1]
    rows = is_row & (room[..., :count] < (LOOSE_IN_SINGLE if room.dtype == xp.float32 else LOOSE))
    is_present = xp.concat([rows, xp.isfinite(room[..., count:])], axis=-1)
    return xp.where(is_present, room, 1.0), is_present


def _with_rows(xp: Any, program: Program, rows: Array) -> Program:
    count = program.matrix.shape[-2]
    kept = program.room[..., count:]
    rows = xp.broadcast_to(rows, (*kept.shape[:-1], count))
    room = xp.concat([rows, kept], axis=-1)
    return program._replace(room=xp.where(program.is_row, room, 1.0))


def _all_rows(xp: Any, matrix: Array, point: Array) -> Array:
    parts = [_times(xp, matrix, point), point, -point]
    lead = parts[0].shape[:-1]
    return xp.concat([xp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


def _transposed_times(xp: Any, matrix: Array, values: Array) -> Array:
    rows, dimension = matrix.shape[-2], matrix.shape[-1]
    upper, lower = values[..., rows : rows + dimension], values[..., rows + dimension :]
    return _vector_product(xp, values[..., :rows], matrix) + upper - lower


def _times(xp: Any, matrix: Array, point: Array) -> Array:
    return _vector_product(xp, point, xp.matrix_transpose(matrix))


def _vector_product(xp: Any, vectors: Array, matrix: Array) -> Array:
    """Return row vectors times a matrix; one matrix for all of them makes this a single product."""
    if matrix.ndim == 2:
        return _product(xp, vectors, matrix)
    return _product(xp, vectors[..., None, :], matrix)[..., 0, :]


def _gram(xp: Any, matrix: Array, weights: Array) -> Array:
    """Return A^T diag(w) A; for one matrix and many weights this is a single matrix product."""
    rows, dimension = matrix.shape[-2], matrix.shape[-1]
    if matrix.ndim > 2 or weights.ndim == 1:
        return _product(xp, xp.matrix_transpose(matrix * weights[..., None]), matrix)
    squares = xp.reshape(matrix[:, :, None] * matrix[:, None, :], (rows, dimension * dimension))
    return xp.reshape(_product(xp, weights, squares), (*weights.shape[:-1], dimension, dimension))


def _product(xp: Any, left: Array, right: Array) -> Array:
    if _is_jax_namespace(xp):
        # The default of an accelerator may round float32 factors to ten bits.
        return xp.matmul(left, right, precision="highest")
    return xp.matmul(left, right)


def _solver(xp: Any, normal: Array) -> Callable[[Array], Array]:
    if not _is_jax_namespace(xp):
        return lambda right: xp.linalg.solve(normal, right[..., None])[..., 0]
    import jax

    factor = xp.linalg.cholesky(normal)
    triangular = jax.lax.linalg.triangular_solve

    def solve_normal(right: Array) -> Array:
        half = triangular(factor, right[..., None], left_side=True, lower=True)
        return triangular(factor, half, left_side=True, lower=True, transpose_a=True)[..., 0]

    return solve_normal


def _is_jax_namespace(xp: Any) -> bool:
    return bool(xp.__name__.startswith("jax"))
