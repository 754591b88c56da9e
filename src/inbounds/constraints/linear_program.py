"""Questions about polytopes that are linear programs: where a direction leads, and which rows conflict."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.errors import ConstraintError

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


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
    lengths = np.sqrt(np.sum(matrix * matrix, axis=-1))
    lengths = np.where(lengths > 0, lengths, 1.0)
    has_low, has_high = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    identity = np.eye(dimension)
    rows = np.concatenate([matrix / lengths[:, None], -identity[has_low], identity[has_high]])
    bounds = np.concatenate([limits / lengths, -low[has_low], high[has_high]])
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
