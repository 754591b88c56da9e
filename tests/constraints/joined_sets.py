"""Joined sets of every kind, constant or read from the state, and an evaluation that shares no code with them.

Every kind's parameters allow the actions around `INSIDE`, each whatever the others are, so that no intersection
is empty. What a set says is computed a second time here, from its definition, in float64 and entry by entry.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Polytope,
    PowerBudget,
    RateLimit,
    Simplex,
    SumBand,
    WeightedL1,
    obs,
)

Vector = np.ndarray[Any, np.dtype[np.float64]]
Generator = np.random.Generator

DIMENSION = 3
INSIDE = np.array([0.25, 0.15, 0.2])
TOTAL = 0.6
ROOM = 10
"""Entries of the observation that belong to one member."""


AROUND = Box(INSIDE - 2.0, INSIDE + 2.0)
"""A box so wide that it only matters where nothing else is bounded, from which no draw could be made."""

UNBOUNDED = {"power budget", "sum band", "polytope"}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of set: how its parameters are drawn, how it is built of them, and its largest row."""

    draw: Callable[[Generator], tuple[Any, ...]]
    build: Callable[..., Constraint]
    worst_row: Callable[..., float]


def symmetric(rng: Generator) -> Vector:
    """Draw a matrix with eigenvalues between 0.3 and 2."""
    turn, _ = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))
    matrix = turn @ np.diag(rng.uniform(0.3, 2.0, DIMENSION)) @ turn.T
    return 0.5 * (matrix + matrix.T)


def weights(rng: Generator) -> Vector:
    return rng.uniform(0.3, 2.0, DIMENSION) * rng.choice([-1.0, 1.0], DIMENSION)


def above(rng: Generator, least: float) -> float:
    return float(least + rng.uniform(0.1, 0.5))


def entries(*vectors: Any) -> Iterable[tuple[float, ...]]:
    return zip(*(np.asarray(vector).tolist() for vector in vectors), strict=True)


KINDS: dict[str, Kind] = {
    "box": Kind(
        lambda rng: (INSIDE - rng.uniform(0.1, 0.8, DIMENSION), INSIDE + rng.uniform(0.1, 0.8, DIMENSION)),
        Box,
        lambda a, low, high: max(max(x - u, v - x) for x, v, u in entries(a, low, high)),
    ),
    "rate limit": Kind(
        lambda rng: (rng.uniform(0.2, 0.6, DIMENSION), INSIDE + rng.uniform(-0.1, 0.1, DIMENSION)),
        RateLimit,
        lambda a, delta, before: max(abs(x - p) - d for x, d, p in entries(a, delta, before)),
    ),
    "ball": Kind(
        lambda rng: (above(rng, INSIDE @ INSIDE),),
        lambda radius_squared: Ball(radius_squared=radius_squared),
        lambda a, radius_squared: math.fsum(x * x for x in a.tolist()) - radius_squared,
    ),
    "weighted l1": Kind(
        lambda rng: (weights(rng), above(rng, 2.0 * TOTAL)),
        WeightedL1,
        lambda a, w, bound: math.fsum(abs(x * y) for x, y in entries(a, w)) - bound,
    ),
    "power budget": Kind(
        lambda rng: (weights(rng), above(rng, 2.0 * TOTAL)),
        PowerBudget,
        lambda a, w, bound: math.fsum(max(x * y, 0.0) for x, y in entries(a, w)) - bound,
    ),
    "ellipsoid": Kind(
        lambda rng: (symmetric(rng), above(rng, 2.0 * INSIDE @ INSIDE)),
        Ellipsoid,
        lambda a, q, bound: math.fsum(q[i, j] * a[i] * a[j] for i, j in np.ndindex(*q.shape)) - bound,
    ),
    "sum band": Kind(
        lambda rng: (TOTAL + rng.uniform(-0.05, 0.05), rng.uniform(0.1, 0.3)),
        SumBand,
        lambda a, total, tolerance: abs(math.fsum(a.tolist()) - total) - tolerance,
    ),
    "simplex": Kind(
        lambda rng: (TOTAL, INSIDE + rng.uniform(0.1, 0.5, DIMENSION)),
        Simplex,
        lambda a, total, high: max(
            abs(math.fsum(a.tolist()) - total) - 1e-5 * total, *(max(-x, x - u) for x, u in entries(a, high))
        ),
    ),
    "polytope": Kind(
        lambda rng: (rng.uniform(-1.0, 1.0, (2, DIMENSION)), TOTAL + rng.uniform(0.1, 0.5, 2)),
        Polytope,
        lambda a, matrix, b: max(math.fsum(x * y for x, y in entries(a, row)) - right
                                 for row, right in zip(matrix, b.tolist(), strict=True)),
    ),
}  # fmt: skip

FORMS: dict[str, tuple[bool, bool]] = {
    "constant": (False, False),
    "observed": (True, True),
    "first observed": (True, False),
    "last observed": (False, True),
}
"""Which of a set's two parameters are read from the state; a ball has only the first."""


@dataclasses.dataclass(frozen=True)
class Joined:
    """Several sets at once: the kinds, and in which form each of them is."""

    kinds: tuple[str, ...]
    forms: tuple[str, ...]

    def __str__(self) -> str:
        return " & ".join(f"{kind}, {form}" for kind, form in zip(self.kinds, self.forms, strict=True))

    @functools.cached_property
    def constants(self) -> list[tuple[Any, ...]]:
        """Parameters of every member, of which those are used that are not read."""
        rng = np.random.default_rng(0)
        return [KINDS[kind].draw(rng) for kind in self.kinds]

    @functools.cached_property
    def constraint(self) -> Constraint:
        """The intersection, built of constants and readings."""
        members = []
        for index, kind in enumerate(self.kinds):
            parameters, start = [], index * ROOM
            for value, is_read in zip(self.constants[index], FORMS[self.forms[index]], strict=False):
                reading = obs[start] if np.ndim(value) == 0 else obs[start : start + np.size(value)]
                reading = reading.reshape(*np.shape(value)) if np.ndim(value) == 2 else reading
                parameters.append(reading if is_read else value)
                start += np.size(value)
            members.append(KINDS[kind].build(*parameters))
        return functools.reduce(operator.and_, members)

    @property
    def bounded(self) -> Constraint:
        """The intersection, together with a box where nothing else bounds it."""
        return self.constraint & AROUND if UNBOUNDED.issuperset(self.kinds) else self.constraint

    def states(self, count: int, rng: Generator) -> Vector:
        """Draw observations, which hold the parameters of every member."""
        states = np.zeros((count, ROOM * len(self.kinds)))
        for state in states:
            for index, kind in enumerate(self.kinds):
                drawn = np.concatenate([np.ravel(value) for value in KINDS[kind].draw(rng)])
                state[index * ROOM : index * ROOM + drawn.size] = drawn
        return states

    def violation(self, states: Vector, actions: Any) -> Vector:
        """Return the largest row over all members, one state and action after another."""
        actions = np.asarray(actions, dtype=np.float64)
        lead = np.broadcast_shapes(states.shape[:-1], actions.shape[:-1])
        states = np.broadcast_to(states, (*lead, states.shape[-1]))
        actions = np.broadcast_to(actions, (*lead, DIMENSION))
        found = np.empty(lead)
        for place in np.ndindex(*lead):
            found[place] = max(
                KINDS[kind].worst_row(actions[place], *self._parameters(index, states[place]))
                for index, kind in enumerate(self.kinds)
            )
        return found

    def _parameters(self, index: int, state: Vector) -> list[Any]:
        values, start = [], index * ROOM
        for value, is_read in zip(self.constants[index], FORMS[self.forms[index]], strict=False):
            read = state[start : start + np.size(value)].reshape(np.shape(value))
            values.append(read if is_read else value)
            start += np.size(value)
        return values


def is_distinct(joined: Joined) -> bool:
    """Tell whether a ball, which has one parameter, is in one of its two forms."""
    return all(
        kind != "ball" or form in ("constant", "observed")
        for kind, form in zip(joined.kinds, joined.forms, strict=True)
    )


def one_each(size: int, patterns: Sequence[tuple[str, ...]]) -> list[Joined]:
    """Return every choice of so many kinds once, in forms that take turns."""
    chosen = []
    for index, kinds in enumerate(choices(size)):
        fitting = [joined for forms in patterns if is_distinct(joined := Joined(kinds, forms))]
        chosen.append(fitting[index % len(fitting)])
    return chosen


def choices(size: int) -> list[tuple[str, ...]]:
    """Return all pairs, those of one kind with itself included, or all triples of different kinds."""
    choose = itertools.combinations_with_replacement if size == 2 else itertools.combinations
    return list(choose(KINDS, size))
