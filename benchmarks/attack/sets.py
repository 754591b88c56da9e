"""Random sets of every kind and their joins, constant and observed, wide, thin and ill-conditioned, with their states.

Every set is drawn around an anchor, a point that it was made to hold. The checker says in which states it does, and how
far inside: only there is a library that finds no action at fault.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.attack.anchored_sets import Maker, Style, Varied, joined
from benchmarks.attack.checker import judge
from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading, reads_previous_action

Vector = NDArray[np.float64]
DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 21, 32, 33, 60, 200)
DIMENSION_CHANCES = np.array([6, 12, 12, 10, 8, 8, 4, 4, 3, 2, 1, 1, 0.7, 0.3])


class States(NamedTuple):
    """Observations (n, m) and previous actions (n, d), None where a set reads none."""

    observation: Vector | None
    previous_action: Vector | None

    def take(self, rows: Any) -> States:
        """Return some of the states."""
        return States(*(None if source is None else source[rows] for source in self))


@dataclasses.dataclass
class Drawn:
    """A set, how to draw states for it, and the point it was drawn around."""

    plain: Plain
    dimension: int
    anchor: Vector
    size: float
    """About how large the set is."""
    is_single: bool
    writers: list[tuple[Reading, Varied]]
    observation_size: int
    rate: float
    """How far from the anchor the previous action may be."""

    @property
    def is_moderate(self) -> bool:
        """Tell whether the set is of a size that somebody uses, so that the library has to find an action in it."""
        limit = 6.0 if self.is_single else 9.0
        return abs(np.log10(self.size)) <= limit

    def states(self, rng: np.random.Generator, count: int, wildness: float = 0.0) -> States:
        """Draw states that leave the anchor inside; a share `wildness` of them is spoilt by extreme numbers."""
        observation = rng.standard_normal((count, self.observation_size)) if self.observation_size else None
        for reading, varied in self.writers:
            if observation is None or isinstance(reading.entries, int | None):
                if isinstance(reading.entries, int) and observation is not None:
                    observation[:, reading.entries] = self._unread(reading, varied(rng, count))
                continue
            values = self._unread(reading, varied(rng, count))
            observation[:, slice(*reading.entries)] = values.reshape(count, -1)
        previous = None
        if reads_previous_action(self.plain):
            reach = 0.9 * self.rate * rng.uniform(-1.0, 1.0, (count, self.dimension))
            previous = self.anchor + reach
        if wildness > 0.0:
            for source in (observation, previous):
                if source is not None:
                    spoil(rng, source, wildness, self.size)
        if self.is_single:
            with np.errstate(over="ignore", under="ignore"):
                observation, previous = (
                    None if source is None else finite_single(source) for source in (observation, previous)
                )
        return States(observation, previous)

    def _unread(self, reading: Reading, values: Vector) -> Vector:
        with np.errstate(over="ignore"):
            return np.clip((values - reading.offset) / reading.scale, -1e308, 1e308)

    def room(self, states: States, count: int, dtype: Any = np.float64) -> Vector:
        """Return how far inside the anchor is in every state, as a number of a type."""
        with np.errstate(over="ignore"):
            point = self.anchor.astype(dtype).astype(np.float64)
        return judge(self.plain, np.broadcast_to(point, (count, self.dimension)), *states).room


def finite_single(values: Vector) -> Vector:
    """Round to float32 numbers, the largest ones instead of infinity."""
    limit = float(np.finfo(np.float32).max)
    return np.clip(values, -limit, limit).astype(np.float32).astype(np.float64)


def spoil(rng: np.random.Generator, source: Vector, share: float, size: float) -> None:
    """Replace entries of some rows by numbers that nobody expects."""
    rows = np.flatnonzero(rng.random(len(source)) < share)
    for row in rows:
        chosen = rng.random(source.shape[1]) < rng.choice([0.1, 0.5, 1.0])
        chosen[rng.integers(source.shape[1])] = True
        source[row, chosen] = extreme(rng, int(chosen.sum()), size)


def extreme(rng: np.random.Generator, count: int, size: float) -> Vector:
    """Draw numbers of all magnitudes and signs, denormal and zero ones among them."""
    way = rng.integers(6)
    sign = rng.choice([-1.0, 1.0], count)
    if way == 0:
        return np.zeros(count) * sign
    if way == 1:
        return sign * rng.choice([5e-324, 1e-310, 2.3e-308, 1e-45, 1e-38], count)
    if way == 2:
        return sign * rng.choice([1.7e308, 1e308, 1e300, 1e200, 1e154, 1e39, 3.4e38], count)
    if way == 3:
        return sign * size * 10.0 ** rng.uniform(-12.0, 12.0, count)
    if way == 4:
        return sign * 10.0 ** rng.uniform(-300.0, 300.0, count)
    return sign * rng.choice([1.0, 0.5, 2.0, 100.0, 1e6, 1e19, 1e20], count)


def draw(rng: np.random.Generator, style: Style) -> Drawn:
    """Draw one set."""
    chances = np.where(np.array(DIMENSIONS) <= style.largest_dimension, DIMENSION_CHANCES, 0.0)
    dimension = int(rng.choice(DIMENSIONS, p=chances / chances.sum()))
    range_of_size = rng.choice(style.exponents, p=[0.72, 0.18, 0.10])
    size = float(10.0 ** rng.uniform(-range_of_size, range_of_size))
    maker = Maker(rng, style, dimension, size)
    count = int(rng.choice([1, 2, 3, 4], p=[0.35, 0.35, 0.2, 0.1]))
    count = min(count, style.most_members)
    if rng.random() < style.oracles:
        function = str(rng.choice(["in_disc", "in_ring", "in_strip"]))
        maker.size, maker.anchor = 1.0, np.full(dimension, 0.6 / np.sqrt(dimension))
        plain: Plain = Leaf("Oracle", {"function": function, "dimension": dimension})
        plain = Joined("&", (plain, Leaf("Box", {"low": np.full(dimension, -2.0), "high": 2.0})))
    else:
        plain = maker.members(count)
        if rng.random() < style.unions:
            others = [maker.members(1 + int(rng.integers(2))) for _ in range(1 + int(rng.integers(2)))]
            plain = Joined("|", (plain, *others))
        if rng.random() < (1.0 if style.is_boxed else 0.55):
            plain = joined("&", plain, maker.leaf("Box", is_finite=style.is_boxed))
    return Drawn(
        plain,
        dimension,
        maker.anchor,
        maker.size,
        style.is_single,
        maker.writers,
        maker.slots,
        maker.rate,
    )
