"""Sets that hold a given point: one of every kind, whose arguments are constants or read from the observation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading

Vector = NDArray[np.float64]
Varied = Callable[[np.random.Generator, int], Vector]
"""Draws values of an argument for n states, in all of which the set holds its anchor."""

KINDS = (
    *("Box", "Ball", "Ellipsoid", "WeightedL1", "PowerBudget", "SumBand", "Simplex", "Polytope", "RateLimit"),
)
MOST_CURVED_ENTRIES = 33
"""Matrices that are read from an observation stay this small; constant ones may be larger."""


@dataclasses.dataclass(frozen=True)
class Style:
    """How wildly sets are drawn."""

    largest_dimension: int = 200
    exponents: tuple[float, float, float] = (2.0, 8.0, 150.0)
    """Powers of ten of the size of a set: mostly, sometimes and rarely up to these."""
    is_single: bool = False
    """States are float32 numbers, as JAX sees them."""
    kinds: tuple[str, ...] = KINDS
    is_boxed: bool = False
    """Every set is bounded by a box that it holds."""
    most_members: int = 4
    unions: float = 0.12
    oracles: float = 0.0


def joined(sign: str, *parts: Plain) -> Plain:
    """Join sets, without a level for those that are joined by the same sign."""
    flat: list[Plain] = []
    for part in parts:
        flat += part.parts if isinstance(part, Joined) and part.sign == sign else [part]
    return flat[0] if len(flat) == 1 else Joined(sign, tuple(flat))


class Maker:
    """Draws sets around one anchor and gives places in the observation to what they read."""

    def __init__(self, rng: np.random.Generator, style: Style, dimension: int, size: float) -> None:
        """Draw the anchor."""
        self.rng, self.style, self.dimension, self.size = rng, style, dimension, size
        way = rng.integers(4)
        anchor = rng.standard_normal(dimension) * size
        if way == 0:
            anchor = np.zeros(dimension)
        elif way == 1:
            anchor = size * (1.0 + 0.1 * rng.standard_normal(dimension))
        self.anchor: Vector = anchor
        self.observed = rng.choice([0.0, 0.3, 1.0], p=[0.4, 0.3, 0.3])
        self.slots = 0
        self.rate = np.inf
        self.writers: list[tuple[Reading, Varied]] = []

    def members(self, count: int) -> Plain:
        """Draw an intersection."""
        chosen = [str(self.rng.choice(self.style.kinds)) for _ in range(count)]
        if "Simplex" in chosen and not self.writers and self.rate == np.inf:
            self.anchor = np.abs(self.anchor) + 0.01 * self.size
        elif "Simplex" in chosen:
            chosen = [kind for kind in chosen if kind != "Simplex"] or ["Box"]
        return joined("&", *(self.leaf(kind) for kind in chosen))

    def leaf(self, kind: str, *, is_finite: bool = False) -> Leaf:
        """Draw one set that holds the anchor."""
        make = getattr(self, "_" + "".join("_" + c.lower() if c.isupper() else c for c in kind)[1:])
        leaf: Leaf = make(is_finite) if kind == "Box" else make()
        return leaf

    def width(self) -> float:
        """Draw how much room a set leaves beside its anchor, relative to its size: wide, thin, or none."""
        way = self.rng.random()
        if way < 0.62:
            return float(self.rng.uniform(0.1, 2.0))
        if way < 0.82:
            return float(10.0 ** self.rng.uniform(-4.0, -1.0))
        return float(10.0 ** self.rng.uniform(-9.0, -4.0)) if way < 0.97 else 0.0

    def kept(self, value: Any, varied: Varied, *, may_be_read: bool = True) -> Any:
        """Return a constant as it is, or a reading of the observation that gives it or values like it."""
        array = np.asarray(value, np.float64)
        if not may_be_read or self.rng.random() >= self.observed or not np.isfinite(array).all():
            return value
        scale, offset = 1.0, 0.0
        if self.rng.random() < 0.4:
            scale = float(self.rng.choice([-1.0, 0.1, 10.0, 1e-3, 3.0]))
        if self.rng.random() < 0.4:
            offset = float(self.rng.choice([1.0, -0.3, 100.0]) * self.size * self.rng.random())
        entries: int | tuple[int, int] = self.slots
        if array.ndim:
            entries = (self.slots, self.slots + array.size)
        self.slots += array.size
        reading = Reading("observation", entries, scale, offset, array.shape if array.ndim == 2 else None)
        self.writers.append((reading, varied))
        return reading

    def larger(self, value: Any) -> Varied:
        """Vary a bound upwards."""
        array = np.asarray(value, np.float64)

        def varied(rng: np.random.Generator, count: int) -> Vector:
            more = rng.choice([0.0, 1.0], (count, *(1,) * array.ndim)) * rng.random((count, *array.shape))
            return array + np.abs(array) * more

        return varied

    def smaller(self, value: Any) -> Varied:
        """Vary a limit downwards."""
        upwards = self.larger(-np.asarray(value, np.float64))
        return lambda rng, count: -upwards(rng, count)

    def shrunk(self, value: Any) -> Varied:
        """Vary weights or a matrix towards zero, all by the same factor."""
        array = np.asarray(value, np.float64)
        return lambda rng, count: array * rng.choice([1.0, 0.3], (count, *(1,) * array.ndim))

    def same(self, value: Any) -> Varied:
        """Do not vary."""
        array = np.asarray(value, np.float64)
        return lambda rng, count: np.broadcast_to(array, (count, *array.shape)).copy()

    # The kinds -------------------------------------------------------------------------------------------------------

    def _box(self, is_finite: bool = False) -> Leaf:
        rng, width = self.rng, max(self.width(), 1e-12)
        low = self.anchor - width * self.size * rng.uniform(0.1, 1.0, self.dimension)
        high = self.anchor + width * self.size * rng.uniform(0.1, 1.0, self.dimension)
        low, high = np.maximum(low, -1e308), np.minimum(high, 1e308)
        way = rng.random()
        if way < 0.2:
            return Leaf(
                "Box",
                {
                    "low": self.kept(float(low.min()), self.smaller(low.min())),
                    "high": self.kept(float(high.max()), self.larger(high.max())),
                },
            )
        if way < 0.4 and not is_finite:
            low = np.where(rng.random(self.dimension) < 0.4, -np.inf, low)
            high = np.where(rng.random(self.dimension) < 0.4, np.inf, high)
        return Leaf(
            "Box", {"low": self.kept(low, self.smaller(low)), "high": self.kept(high, self.larger(high))}
        )

    def _ball(self) -> Leaf:
        with np.errstate(over="ignore"):
            square = float(np.dot(self.anchor, self.anchor) + self.width() * self.size**2)
        bound = min(square * (1.0 + self.width()), 1e308)
        return Leaf("Ball", {"radius_squared": self.kept(bound, self.larger(bound))})

    def _ellipsoid(self) -> Leaf:
        rng, dimension = self.rng, self.dimension
        axes, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
        condition = rng.choice([0.0, 1.0, 4.0, 8.0], p=[0.2, 0.4, 0.25, 0.15])
        curvatures = 10.0 ** rng.uniform(-condition, 0.0, dimension)
        if rng.random() < 0.1:
            curvatures[rng.integers(dimension)] = 0.0
        matrix = (axes * curvatures) @ axes.T * 10.0 ** rng.uniform(-2.0, 2.0)
        matrix = 0.5 * (matrix + matrix.T)
        with np.errstate(over="ignore", invalid="ignore"):
            level = float(self.anchor @ matrix @ self.anchor)
            bound = level * (1.0 + self.width()) + self.width() * np.trace(matrix) * self.size**2 / dimension
        bound = float(np.clip(np.nan_to_num(bound, nan=1.0), 0.0, 1e308))
        is_small = dimension <= MOST_CURVED_ENTRIES
        return Leaf(
            "Ellipsoid",
            {
                "matrix": self.kept(matrix, self.shrunk(matrix), may_be_read=is_small),
                "bound": self.kept(bound, self.larger(bound)),
            },
        )

    def _weights(self) -> Vector:
        rng = self.rng
        weights = rng.standard_normal(self.dimension) * 10.0 ** rng.uniform(-1.0, 1.0)
        if rng.random() < 0.3:
            weights *= 10.0 ** rng.uniform(-5.0, 5.0, self.dimension)
        weights[rng.random(self.dimension) < 0.1] = 0.0
        return np.clip(weights, -1e8, 1e8)

    def _weighted_l1(self) -> Leaf:
        return self._weighted("WeightedL1", lambda products: np.abs(products))

    def _power_budget(self) -> Leaf:
        return self._weighted("PowerBudget", lambda products: np.maximum(products, 0.0))

    def _weighted(self, kind: str, terms: Callable[[Vector], Vector]) -> Leaf:
        weights = self._weights()
        with np.errstate(over="ignore"):
            level = terms(weights * self.anchor).sum()
            bound = level * (1.0 + self.width()) + self.width() * self.size * np.abs(weights).max()
        bound = float(min(bound, 1e308))
        return Leaf(
            kind,
            {
                "weights": self.kept(weights, self.shrunk(weights)),
                "bound": self.kept(bound, self.larger(bound)),
            },
        )

    def _sum_band(self) -> Leaf:
        rng, width = self.rng, self.width()
        tolerance = float(width * self.size + width * np.abs(self.anchor).max())
        total = float(self.anchor.sum() + rng.uniform(-0.8, 0.8) * tolerance)
        arguments: dict[str, Any] = {
            "total": self.kept(total, self.same(total)),
            "tolerance": self.kept(tolerance, self.larger(tolerance)),
        }
        if rng.random() < 0.4:
            box = self._box()
            arguments |= dict(box.arguments)
        return Leaf("SumBand", arguments)

    def _simplex(self) -> Leaf:
        total = float(self.anchor.sum())
        high = float(self.anchor.max() * (1.0 + self.width())) if self.rng.random() < 0.5 else None
        stated = self.rng.random() < 0.2
        tolerance = float(total * 10.0 ** self.rng.uniform(-5.0, -1.0)) if stated else None
        return Leaf(
            "Simplex",
            {
                "total": self.kept(total, self.same(total)),
                "high": None if high is None else self.kept(high, self.larger(high)),
                "tolerance": tolerance,
            },
        )

    def _polytope(self) -> Leaf:
        rng, dimension = self.rng, self.dimension
        count = int(rng.integers(1, 2 + min(2 * dimension, 12)))
        matrix = rng.standard_normal((count, dimension)) * 10.0 ** rng.uniform(-1.0, 1.0, (count, 1))
        way = rng.random()
        if way < 0.2:  # a slab: two rows against one another
            matrix = np.concatenate([matrix, -matrix[:1]])
        elif way < 0.35:  # nearly parallel rows
            matrix = np.concatenate([matrix, matrix[:1] * (1.0 + 1e-9 * rng.standard_normal(dimension))])
        elif way < 0.45:
            matrix *= 10.0 ** rng.uniform(-6.0, 6.0, (count, 1))
        elif way < 0.55:
            matrix[rng.random(matrix.shape) < 0.6] = 0.0
        room = self.width() * np.abs(matrix).sum(axis=-1) * self.size * rng.random(len(matrix))
        with np.errstate(over="ignore"):
            bound = np.clip(matrix @ self.anchor + room, -1e308, 1e308)
        is_small = matrix.size <= 400
        return Leaf(
            "Polytope",
            {
                "A": self.kept(matrix, self.same(matrix), may_be_read=is_small),
                "b": self.kept(bound, self.larger(bound)),
            },
        )

    def _rate_limit(self) -> Leaf:
        rng = self.rng
        delta = max(self.width(), 1e-10) * self.size * rng.uniform(0.5, 1.0, self.dimension)
        given: Any = float(delta.min()) if rng.random() < 0.5 else delta
        least = float(np.min(delta))
        previous: Any = Reading("previous_action", None)
        if rng.random() < 0.4:

            def around(rng: np.random.Generator, count: int) -> Vector:
                return self.anchor + 0.9 * least * rng.uniform(-1.0, 1.0, (count, self.dimension))

            previous = Reading("observation", (self.slots, self.slots + self.dimension))
            self.slots += self.dimension
            self.writers.append((previous, around))
        else:
            self.rate = min(self.rate, least)
        return Leaf("RateLimit", {"delta": self.kept(given, self.larger(given)), "previous": previous})
