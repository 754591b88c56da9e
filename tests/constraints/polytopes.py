"""Polytopes that are hard in different ways, and their projections by a solver that the library does not use."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from inbounds.constraints import Box, Constraint, Polytope
from tests.constraints.exact_projection import box_rows, by_least_squares, onto_polyhedron

Vector = np.ndarray[Any, np.dtype[np.float64]]


class Rows(NamedTuple):
    """A polytope A x <= b in a box; the box may be infinite."""

    matrix: Vector
    bound: Vector
    low: Vector
    high: Vector


def links(flows: int, sets: list[list[int]], capacity: float, largest: float) -> Rows:
    matrix = np.zeros((len(sets), flows))
    for row, members in enumerate(sets):
        matrix[row, members] = 1.0
    return Rows(matrix, np.full(len(sets), capacity), np.zeros(flows), np.full(flows, largest))


NSFNET = links(
    9, [[0, 1, 3, 4], [2, 5], [0, 1, 3], [2, 4, 5], [1, 3, 6, 8], [0, 7], [1, 3, 8], [1, 2, 8]], 50.0, 100.0
)
NSFNET20 = links(
    20,
    [
        *([0, 3, 6], [1, 2, 14, 16], [0, 3, 15], [11, 19], [0, 3, 6, 10, 15], [2, 9, 11, 14, 17, 18]),
        *([3, 4, 15], [0, 5, 7, 10], [4, 12, 14, 17, 18], [3, 12, 14, 15, 18], [2, 9, 11], [3, 8, 13]),
        *([6, 7, 8, 13], [5, 9, 11, 13], []),
    ],
    50.0,
    50.0,
)


def random_rows(seed: int, rows: int, dimension: int, depth: float = 0.5, limit: float = 1.0) -> Rows:
    """Return rows around a random centre; `depth` says how far they are from it."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, dimension))
    centre = rng.uniform(-0.5, 0.5, size=dimension)
    bound = matrix @ centre + depth * (0.2 + rng.exponential(size=rows)) * np.linalg.norm(matrix, axis=1)
    return Rows(matrix, bound, np.full(dimension, -limit), np.full(dimension, limit))


def _scaled(rows: Rows) -> Rows:
    factors = np.geomspace(1e-3, 1e3, len(rows.matrix))
    return rows._replace(matrix=rows.matrix * factors[:, None], bound=rows.bound * factors)


def _repeated(rows: Rows) -> Rows:
    matrix = np.concatenate([rows.matrix, 2.0 * rows.matrix, np.zeros((2, rows.matrix.shape[1]))])
    return rows._replace(matrix=matrix, bound=np.concatenate([rows.bound, 2.0 * rows.bound, [0.0, 3.0]]))


def _slab() -> Rows:
    ones = np.ones((1, 4))
    return Rows(np.concatenate([ones, -ones]), np.array([0.3005, -0.2995]), -np.ones(4), np.ones(4))


def _cone() -> Rows:
    rows = random_rows(5, 5, 3)
    return rows._replace(bound=np.zeros(5), matrix=rows.matrix - 1.5 * np.abs(rows.matrix))


POLYTOPES: dict[str, Rows] = {
    "nsfnet": NSFNET,
    "nsfnet, 20 flows": NSFNET20,
    "random, few rows": random_rows(1, 4, 5),
    "random, many rows": random_rows(2, 25, 3),
    "random, without a box": random_rows(3, 14, 4, limit=np.inf),
    "rows of all sizes": _scaled(random_rows(4, 8, 4)),
    "rows twice, and rows of zeros": _repeated(random_rows(6, 5, 4)),
    "thin slab": _slab(),
    "small": random_rows(7, 8, 4, depth=1e-3),
    "cone with its tip in the box": _cone(),
    "one entry": Rows(np.array([[2.0], [-1.0]]), np.array([1.0, 0.5]), np.array([-1.0]), np.array([1.0])),
}


def exact(rows: Rows, action: Vector) -> Vector:
    """Project by other people's active-set solvers; barrier methods stop too early where rows barely bind."""
    action = np.asarray(action, dtype=np.float64)
    sides, limits = box_rows(len(action), rows.low, rows.high)
    matrix, bound = np.concatenate([rows.matrix, sides]), np.concatenate([rows.bound, limits])
    lengths = np.linalg.norm(matrix, axis=1)
    kept = lengths > 0
    matrix, bound = matrix[kept] / lengths[kept, None], bound[kept] / lengths[kept]
    if np.all(matrix @ action <= bound):
        return action
    answer = by_least_squares(matrix, bound, action)
    is_feasible = np.all(matrix @ answer <= bound + 1e-10 * (1.0 + np.linalg.norm(action)))
    return answer if is_feasible else onto_polyhedron(matrix, bound)(action)


def diameter(rows: Rows) -> float:
    """Return the largest width of the box around the polytope, a lower bound of its diameter."""
    sides = list(zip(rows.low, rows.high, strict=True))
    widths = []
    for axis in np.eye(rows.matrix.shape[1]):
        ends = [
            linprog(sign * axis, A_ub=rows.matrix, b_ub=rows.bound, bounds=sides, method="highs").fun
            for sign in (1, -1)
        ]
        widths.append(-ends[1] - ends[0])
    return float(max(widths))


def actions_around(rows: Rows, count: int, seed: int = 0) -> Vector:
    """Return actions in the box, far outside of it, at its corners, and with entries that are exactly zero."""
    rng = np.random.default_rng(seed)
    low, high = (
        np.where(np.isfinite(rows.low), rows.low, -2.0),
        np.where(np.isfinite(rows.high), rows.high, 2.0),
    )
    dimension = len(low)
    inside = rng.uniform(low, high, size=(count, dimension))
    outside = 0.5 * (low + high) + 3.0 * (high - low) * rng.normal(size=(count, dimension))
    corners = np.where(rng.random((count, dimension)) < 0.5, low, high)
    sparse_ones = np.where(rng.random((count, dimension)) < 0.5, 0.0, inside)
    return np.concatenate([inside, outside, corners, sparse_ones])


@functools.cache
def constraint_of(name: str) -> Constraint:
    rows = POLYTOPES[name]
    polytope = Polytope(rows.matrix, rows.bound)
    return polytope & Box(rows.low, rows.high) if np.all(np.isfinite(rows.low)) else polytope


@functools.cache
def answers_of_another_solver(name: str) -> tuple[Any, Any]:
    actions = actions_around(POLYTOPES[name], 12).astype(np.float32).astype(np.float64)
    return actions, np.array([exact(POLYTOPES[name], action) for action in actions])
