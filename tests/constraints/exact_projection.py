"""Projections by other people's solvers, to compare with: no formula here is one of the library's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize

Vector = np.ndarray[Any, np.dtype[np.float64]]
Projection = Callable[[Vector], Vector]


def onto_polyhedron(matrix: Vector, bounds: Vector) -> Projection:
    """Project on {x: matrix x <= bounds} by two solvers; of their feasible answers the nearest counts.

    Each of them fails now and then where many rows meet in one point, but not in the same places.
    """
    lengths = np.linalg.norm(matrix, axis=1)
    rows = matrix[lengths > 0] / lengths[lengths > 0, None]
    limits = bounds[lengths > 0] / lengths[lengths > 0]

    def project(action: Vector) -> Vector:
        if np.all(rows @ action <= limits):
            return action
        answers = [by_least_squares(rows, limits, action), by_quadratic_programs(rows, limits, action)]
        allowed = 1e-9 * (1.0 + np.linalg.norm(action))
        feasible = [answer for answer in answers if np.all(rows @ answer <= limits + allowed)]
        assert feasible, "no solver found a feasible point"
        return min(feasible, key=lambda answer: float(np.linalg.norm(answer - action)))

    return project


def by_least_squares(rows: Vector, limits: Vector, action: Vector) -> Vector:
    """Solve the dual, the nonnegative least-squares problem of Lawson and Hanson for the shortest move."""
    gap = rows @ action - limits
    scale = np.max(np.abs(gap))
    stacked = np.concatenate([-rows.T, gap[None] / scale])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    multipliers, _ = optimize.nnls(stacked, target, maxiter=10_000)
    residual = stacked @ multipliers - target
    return action - scale * residual[:-1] / residual[-1]


def by_quadratic_programs(rows: Vector, limits: Vector, action: Vector) -> Vector:
    """Solve the primal by sequential quadratic programming, from zero."""
    scale = 1.0 + np.linalg.norm(action)
    return optimize.minimize(
        lambda x: 0.5 * np.sum((x - action) ** 2) / scale,
        np.zeros_like(action),
        jac=lambda x: (x - action) / scale,
        constraints=[{"type": "ineq", "fun": lambda x: limits - rows @ x, "jac": lambda x: -rows}],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 500},
    ).x


def box_rows(dimension: int, low: Any, high: Any) -> tuple[Vector, Vector]:
    matrix = np.concatenate([np.eye(dimension), -np.eye(dimension)])
    bounds = np.concatenate([np.broadcast_to(high, dimension), -np.broadcast_to(low, dimension)])
    return matrix[np.isfinite(bounds)], bounds[np.isfinite(bounds)]


def onto_rows_in_box(rows: Any, bounds: Any, low: Any, high: Any) -> Projection:
    rows = np.array(rows, dtype=np.float64)
    matrix, limits = box_rows(rows.shape[1], low, high)
    return onto_polyhedron(
        np.concatenate([rows, matrix]), np.concatenate([np.array(bounds, dtype=np.float64), limits])
    )


def onto_box(dimension: int, low: Any, high: Any) -> Projection:
    return onto_polyhedron(*box_rows(dimension, low, high))


def onto_weighted_l1(weights: Vector, bound: float, low: Any, high: Any) -> Projection:
    """Project on sum |w a| <= bound in a box, written as one row per combination of signs."""
    rows = np.unique(
        [np.array(s) * weights for s in itertools.product((-1.0, 1.0), repeat=len(weights))], axis=0
    )
    return onto_rows_in_box(rows, [bound] * len(rows), low, high)


def onto_power_budget(weights: Vector, bound: float, low: Any, high: Any) -> Projection:
    """Project on sum max(w a, 0) <= bound in a box, written as one row per subset of the entries."""
    rows = np.unique(
        [np.array(s) * weights for s in itertools.product((0.0, 1.0), repeat=len(weights))], axis=0
    )
    return onto_rows_in_box(rows, [bound] * len(rows), low, high)


def onto_sum_band(total: float, tolerance: float, low: Any, high: Any, dimension: int) -> Projection:
    ones = np.ones(dimension)
    return onto_rows_in_box([ones, -ones], [total + tolerance, tolerance - total], low, high)


def onto_ball(radius_squared: float, low: Any, high: Any, dimension: int) -> Projection:
    """Project on sum a^2 <= radius_squared in a box by sequential quadratic programming."""
    limits = list(zip(np.broadcast_to(low, dimension), np.broadcast_to(high, dimension), strict=True))

    def project(action: Vector) -> Vector:
        scale = 1.0 + np.linalg.norm(action)
        return optimize.minimize(
            lambda x: 0.5 * np.sum((x - action) ** 2) / scale,
            np.clip(np.zeros(dimension), low, high),
            jac=lambda x: (x - action) / scale,
            bounds=limits,
            constraints=[
                {"type": "ineq", "fun": lambda x: radius_squared - x @ x, "jac": lambda x: -2.0 * x}
            ],
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 500},
        ).x

    return project
