"""Polytopes on the host: the nearest point by the active-set solver daqp, and linear programs."""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import lengths_of
from inbounds.errors import ConstraintError

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

PRIMAL_TOLERANCE = 1e-10
"""How far a row of unit length may be missed; daqp's own 1e-6 would leave more than the margin."""

NOWHERE = 1e30
"""A distance from which on solvers take a row for none."""


class Answers(NamedTuple):
    """Points, and which of them the solver vouches for."""

    points: FloatArray
    is_solved: np.ndarray[Any, np.dtype[np.bool_]]


_memory = threading.local()


@functools.cache
def is_available() -> bool:
    """Tell whether daqp is installed; the deployed policy works without it, only more slowly."""
    try:
        import daqp  # noqa: F401
    except ImportError:
        return False
    return True


def nearest_points(
    matrix: FloatArray, limits: FloatArray, low: FloatArray, high: FloatArray, actions: FloatArray
) -> Answers:
    """Return the nearest points of {A x <= b, low <= x <= high} to a list of actions, shape (n, d).

    `matrix` is one matrix or one for each action; `limits`, `low` and `high` have a first axis of length 1
    where they are the same for all. Every problem starts cold, so that an answer does not depend on which
    actions were asked before.
    """
    count, dimension = actions.shape
    lengths = lengths_of(np, matrix)
    # A row without coefficients says nothing about the action; whether its bound holds is checked elsewhere.
    lengths = np.where(lengths > 0, lengths, 1.0)
    limits = np.where(np.any(matrix != 0, axis=-1), limits / lengths, np.inf)
    rows = np.ascontiguousarray(matrix / lengths[..., None])
    upper = _joined(high, limits)
    lower = _joined(low, np.full_like(limits[:1], -np.inf))
    is_varied = rows.ndim == 3 or len(upper) > 1 or len(lower) > 1
    pull = -np.ascontiguousarray(actions)
    cold = np.zeros(upper.shape[-1], dtype=np.int32)
    first = rows[0] if rows.ndim == 3 else rows
    model = _model(first, pull[0], cold)
    points = np.empty((count, dimension))
    is_solved = np.empty(count, dtype=np.bool_)
    update, solve = model.update, model.solve
    # Where limits exclude one another the solver takes no problem at all, and would answer the one before.
    is_taken = update(None, pull[0], first, upper[0], lower[0], cold) >= 0
    for index in range(count):
        if is_varied:
            changed = rows[index] if rows.ndim == 3 else None
            sides = upper[index % len(upper)], lower[index % len(lower)]
            is_taken = update(None, pull[index], changed, *sides, cold) >= 0
        elif is_taken:
            update(None, pull[index], None, None, None, cold)
        answer = solve()
        points[index] = answer[0]
        is_solved[index] = is_taken and answer[2] > 0
    return Answers(points, is_solved)


def _model(matrix: FloatArray, pull: FloatArray, cold: Any) -> Any:
    """Return a solver for problems of one shape, in memory that each thread keeps for them."""
    import daqp

    workspaces = _memory.__dict__.setdefault("models", {})
    model = workspaces.get(matrix.shape)
    if model is None:
        model = daqp.Model()
        nothing = np.full(len(cold), np.inf)  # a first problem without limits is never refused
        model.setup(np.eye(matrix.shape[1]), pull, matrix, nothing, -nothing, cold)
        model.settings = {"primal_tol": PRIMAL_TOLERANCE}
        workspaces[matrix.shape] = model
    return model


def _joined(sides: FloatArray, rows: FloatArray) -> FloatArray:
    """Put the limits of entries before those of rows, as daqp wants them."""
    count = max(len(sides), len(rows))
    parts = [np.broadcast_to(part, (count, part.shape[-1])) for part in (sides, rows)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


class Conflict(NamedTuple):
    """Rows that no point satisfies together: by how much, and which rows, lower and upper limits these are."""

    missing: float
    rows: list[int]
    lower_limits: list[int]
    upper_limits: list[int]


def farthest_point(
    matrix: FloatArray, limits: FloatArray, low: FloatArray, high: FloatArray, direction: FloatArray
) -> FloatArray:
    """Return a point of {A x <= b, low <= x <= high} with the largest inner product with a direction."""
    from scipy.optimize import linprog

    if not (np.isfinite(matrix).all() and np.isfinite(limits).all()):
        raise ConstraintError(
            "the set has no point that is known to be farthest: numbers in its rows overflow. Check the observation, "
            "and the scale at which the constraint reads it."
        )
    scale = float(np.max(np.abs(direction)))
    objective = -direction / (scale if scale > 0 else 1.0)
    answer = linprog(objective, A_ub=matrix, b_ub=limits, bounds=_pairs(low, high), method="highs")
    if answer.status != 0:
        raise ConstraintError(
            f"the set has no point that is farthest in direction {direction}: {answer.message} "
            f"If nothing limits this direction, intersect the set with `& Box(low, high)`."
        )
    point: FloatArray = answer.x
    return point


def conflict(matrix: FloatArray, limits: FloatArray, low: FloatArray, high: FloatArray) -> Conflict:
    """Find the smallest violation that all rows and limits could share, and the rows that force it.

    At the optimum of min t subject to A_i x - |A_i| t <= b_i, the rows with a multiplier add up to a proof
    (Farkas) that no point does better. A simplex method returns a proof with at most d + 1 rows.
    """
    from scipy.optimize import linprog

    dimension = matrix.shape[-1]
    lengths = lengths_of(np, matrix)
    lengths = np.where(lengths > 0, lengths, 1.0)
    has_low, has_high = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    identity = np.eye(dimension)
    rows = np.concatenate([matrix / lengths[:, None], -identity[has_low], identity[has_high]])
    with np.errstate(over="ignore"):
        distances = np.minimum(limits / lengths, NOWHERE)
    bounds = np.concatenate([distances, -low[has_low], high[has_high]])
    if not (np.isfinite(rows).all() and np.isfinite(bounds).all()):
        return Conflict(-np.inf, [], [], [])  # nothing is proved with numbers that overflow
    stacked = np.concatenate([rows, -np.ones((len(rows), 1))], axis=1)
    free = [(None, None)] * (dimension + 1)
    answer = linprog(np.eye(dimension + 1)[-1], A_ub=stacked, b_ub=bounds, bounds=free, method="highs-ds")
    if answer.status != 0:
        return Conflict(-np.inf, [], [], [])
    is_forcing = np.abs(answer.ineqlin.marginals) > 1e-9
    count, lows = len(matrix), len(has_low)
    return Conflict(
        float(answer.fun),
        np.flatnonzero(is_forcing[:count]).tolist(),
        has_low[is_forcing[count : count + lows]].tolist(),
        has_high[is_forcing[count + lows :]].tolist(),
    )


def _pairs(low: FloatArray, high: FloatArray) -> list[tuple[float | None, float | None]]:
    return [
        (float(a) if np.isfinite(a) else None, float(b) if np.isfinite(b) else None)
        for a, b in zip(low, high, strict=True)
    ]
