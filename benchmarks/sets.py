"""The sets that benchmarks ask about: every family of the library, with random states and actions to go with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from inbounds.constraints.constraint import Constraint

Vectors = NDArray[np.float64]


class Set(NamedTuple):
    """A constraint, and how to draw states that it depends on and actions around it."""

    constraint: Constraint
    dimension: int
    states: Callable[[np.random.Generator, int], Vectors] | None
    """`states(rng, n)` draws observations; None for a constant set."""
    scale: float
    """The size of an action that is about as large as the set."""

    def actions(self, rng: np.random.Generator, count: int) -> Vectors:
        """Draw actions inside, near and far outside the set."""
        spread = self.scale * 10.0 ** rng.uniform(-2.0, 2.0, (count, 1))
        centre = np.asarray(
            self.constraint.interior_point(
                None if self.states is None else self.states(rng, 1)[0], dimension=self.dimension
            )
        )
        drawn: Vectors = centre + spread * rng.standard_normal((count, self.dimension))
        return drawn

    def observations(self, rng: np.random.Generator, count: int) -> Vectors | None:
        """Draw states, or none for a constant set."""
        return None if self.states is None else self.states(rng, count)


def weights_and_bound(rng: np.random.Generator, count: int) -> Vectors:
    """Draw six weights, some of them zero and some a million times larger than others, and a bound."""
    weights = rng.standard_normal((count, 6)) * 10.0 ** rng.uniform(-3.0, 3.0, (count, 6))
    weights[rng.random((count, 6)) < 0.1] = 0.0
    return np.concatenate([weights, rng.uniform(0.01, 20.0, (count, 1))], axis=1)


def bounded(size: int, low: float, high: float) -> Callable[[np.random.Generator, int], Vectors]:
    """Draw uniform states."""
    return lambda rng, count: rng.uniform(low, high, (count, size))


def nsfnet() -> Constraint:
    """Return the links of the NSFnet task."""
    return ib.make("nsfnet").constraint


def several(dimension: int) -> Constraint:
    """Return a set that only alternating projections can reach: a ball, a budget and a box."""
    unit = np.ones(dimension)
    return ib.Ball(radius_squared=2.0) & ib.WeightedL1(weights=unit, bound=2.5) & ib.Box(-unit, unit)


def ellipsoid_matrix(dimension: int) -> NDArray[Any]:
    """Return a matrix whose axes differ by a factor of a hundred."""
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    return axes @ np.diag(np.geomspace(0.1, 10.0, dimension)) @ axes.T


UNIT = np.ones(6)
SETS: dict[str, Set] = {
    "box": Set(ib.Box(-UNIT, UNIT), 6, None, 1.0),
    "ball": Set(ib.Ball(radius_squared=0.05) & ib.Box(-np.ones(2), np.ones(2)), 2, None, 0.2),
    "ellipsoid": Set(ib.Ellipsoid(matrix=ellipsoid_matrix(4), bound=1.0), 4, None, 1.0),
    "weighted L1 and box": Set(
        ib.WeightedL1(weights=ib.obs[0:6], bound=ib.obs[6]) & ib.Box(-UNIT, UNIT), 6, weights_and_bound, 1.0
    ),
    "power budget and box": Set(
        ib.PowerBudget(weights=ib.obs[0:6], bound=ib.obs[6]) & ib.Box(-UNIT, UNIT), 6, weights_and_bound, 1.0
    ),
    "sum band": Set(ib.SumBand(total=150.0, tolerance=5.0, low=0.0, high=40.0), 5, None, 30.0),
    "capped simplex": Set(ib.Simplex(total=1.0, high=0.4), 5, None, 0.3),
    "rate limit and box": Set(
        ib.RateLimit(0.2, previous=ib.obs[0:6]) & ib.Box(-UNIT, UNIT), 6, bounded(6, -1.0, 1.0), 1.0
    ),
    "polytope (NSFnet)": Set(nsfnet(), 9, None, 50.0),
    "ball, budget and box": Set(several(4), 4, None, 1.0),
}
CLOSED_FORMS = (
    *("ball", "weighted L1 and box", "power budget and box", "sum band", "capped simplex"),
    "rate limit and box",
)
