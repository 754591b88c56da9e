"""Families of sets for property tests; what varies is read from the state, so that each is compiled once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    PowerBudget,
    RateLimit,
    Simplex,
    SumBand,
    WeightedL1,
    obs,
)
from tests.constraints import exact_projection as exact

Vector = np.ndarray[Any, np.dtype[np.float64]]

UNIT = np.ones(5)
SKEW_LOW = np.array([-1.0, 0.25, -2.0, -1.0, -0.5])
SKEW_HIGH = np.array([1.0, 1.0, -0.125, 3.0, 0.75])


@dataclasses.dataclass(frozen=True)
class Family:
    """A kind of set, the states it depends on, and the projection of another solver.

    `rounds_with_state` says that bounds of the set are differences of what is read, and round relative to it.
    """

    constraint: Constraint
    dimension: int
    states: st.SearchStrategy[Vector]
    exact: Callable[[Vector], exact.Projection]
    state_size: int
    action_scale: float = 1.0
    rounds_with_state: bool = False


def vectors(size: int, entries: st.SearchStrategy[float]) -> st.SearchStrategy[Vector]:
    return st.lists(entries, min_size=size, max_size=size).map(np.array)


def joined(*parts: st.SearchStrategy[Vector]) -> st.SearchStrategy[Vector]:
    return st.tuples(*parts).map(np.concatenate)


WEIGHTS = st.one_of(
    st.floats(-8.0, 8.0, allow_subnormal=False),
    st.sampled_from([0.0, 1.0, -1.0, 1e-6, -1e-3, 5.0]),
).map(lambda weight: weight if abs(weight) >= 1e-6 else 0.0)

BOUNDS = st.one_of(st.floats(1e-2, 20.0), st.sampled_from([1.0, 0.05, 2.0]))

ENTRIES = st.one_of(
    st.floats(-3.0, 3.0, allow_subnormal=False, width=32),
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 30.0, -200.0]),
).map(lambda entry: entry if abs(entry) >= 1e-6 else 0.0)

NOTHING = st.just(np.zeros(1))

FAMILIES: dict[str, Family] = {
    "box": Family(Box(SKEW_LOW, SKEW_HIGH), 5, NOTHING, lambda _: exact.onto_box(5, SKEW_LOW, SKEW_HIGH), 1),
    "box of the state": Family(
        Box(obs[0] - 1.0, 2.0 * obs[1:6] + 4.0),
        5,
        joined(vectors(1, st.floats(-1.0, 1.0)), vectors(5, st.floats(-1.0, 1.0))),
        lambda s: exact.onto_box(5, s[0] - 1.0, 2.0 * s[1:6] + 4.0),
        state_size=6,
        rounds_with_state=True,
    ),
    "ball": Family(
        Ball(radius_squared=obs[0]),
        5,
        vectors(1, BOUNDS),
        lambda s: exact.onto_ball(s[0], -np.inf, np.inf, 5),
        state_size=1,
    ),
    "ball in a box": Family(
        Ball(radius_squared=obs[0]) & Box(-UNIT, UNIT),
        5,
        vectors(1, BOUNDS),
        lambda s: exact.onto_ball(s[0], -1.0, 1.0, 5),
        state_size=1,
    ),
    "ball in a box beside zero": Family(
        Ball(radius_squared=obs[0] + 0.25) & Box(SKEW_LOW, SKEW_HIGH),
        5,
        vectors(1, BOUNDS),
        lambda s: exact.onto_ball(s[0] + 0.25, SKEW_LOW, SKEW_HIGH, 5),
        state_size=1,
    ),
    "weighted l1": Family(
        WeightedL1(weights=obs[0:5], bound=obs[5]),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_weighted_l1(s[:5], s[5], -np.inf, np.inf),
        state_size=6,
    ),
    "weighted l1 in a box": Family(
        WeightedL1(weights=obs[0:5], bound=obs[5]) & Box(-UNIT, UNIT),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_weighted_l1(s[:5], s[5], -1.0, 1.0),
        state_size=6,
    ),
    "weighted l1 in a box beside zero": Family(
        WeightedL1(weights=obs[0:5], bound=obs[5] + 4.0) & Box(SKEW_LOW, SKEW_HIGH),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_weighted_l1(s[:5], s[5] + 4.0, SKEW_LOW, SKEW_HIGH),
        state_size=6,
    ),
    "power budget": Family(
        PowerBudget(weights=obs[0:5], bound=obs[5]),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_power_budget(s[:5], s[5], -np.inf, np.inf),
        state_size=6,
    ),
    "power budget in a box": Family(
        PowerBudget(weights=obs[0:5], bound=obs[5]) & Box(-UNIT, UNIT),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_power_budget(s[:5], s[5], -1.0, 1.0),
        state_size=6,
    ),
    "power budget in a box beside zero": Family(
        PowerBudget(weights=obs[0:5], bound=obs[5] + 4.0) & Box(SKEW_LOW, SKEW_HIGH),
        5,
        joined(vectors(5, WEIGHTS), vectors(1, BOUNDS)),
        lambda s: exact.onto_power_budget(s[:5], s[5] + 4.0, SKEW_LOW, SKEW_HIGH),
        state_size=6,
    ),
    "sum band": Family(
        SumBand(total=obs[0], tolerance=obs[1]),
        4,
        joined(vectors(1, st.floats(-50.0, 90.0)), vectors(1, st.floats(0.1, 5.0))),
        lambda s: exact.onto_sum_band(s[0], s[1], -np.inf, np.inf, 4),
        state_size=2,
        action_scale=30.0,
        rounds_with_state=True,
    ),
    "sum band with caps": Family(
        SumBand(total=obs[0], tolerance=obs[1], low=0.0, high=40.0),
        4,
        joined(vectors(1, st.floats(0.0, 160.0)), vectors(1, st.floats(0.1, 5.0))),
        lambda s: exact.onto_sum_band(s[0], s[1], 0.0, 40.0, 4),
        state_size=2,
        action_scale=30.0,
        rounds_with_state=True,
    ),
    "sum band in a box": Family(
        SumBand(total=obs[0], tolerance=obs[1], high=1.5) & Box(-np.ones(4), 2.0 * np.ones(4)),
        4,
        joined(vectors(1, st.floats(-4.0, 6.0)), vectors(1, st.floats(0.01, 0.5))),
        lambda s: exact.onto_sum_band(s[0], s[1], -1.0, 1.5, 4),
        state_size=2,
        rounds_with_state=True,
    ),
    "simplex": Family(
        Simplex(total=obs[0]),
        4,
        vectors(1, st.floats(0.5, 100.0)),
        lambda s: exact.onto_sum_band(s[0], 0.0, 0.0, np.inf, 4),
        state_size=1,
    ),
    "capped simplex": Family(
        Simplex(total=obs[0], high=0.4),
        4,
        vectors(1, st.floats(0.1, 1.6)),
        lambda s: exact.onto_sum_band(s[0], 0.0, 0.0, 0.4, 4),
        state_size=1,
    ),
    "rate limit": Family(
        RateLimit(0.3, previous=obs[0:4]),
        4,
        vectors(4, st.floats(-1.0, 1.0)),
        lambda s: exact.onto_box(4, s - 0.3, s + 0.3),
        state_size=4,
    ),
    "rate limit, budget and box": Family(
        RateLimit(0.3, previous=obs[0:4]) & WeightedL1(weights=2.0, bound=8.5) & Box(-np.ones(4), np.ones(4)),
        4,
        vectors(4, st.floats(-1.0, 1.0)),
        lambda s: exact.onto_weighted_l1(
            2.0 * np.ones(4), 8.5, np.maximum(s - 0.3, -1.0), np.minimum(s + 0.3, 1.0)
        ),
        state_size=4,
    ),
}


@st.composite
def questions(draw: st.DrawFn, family: Family, count: int = 4) -> tuple[Vector, Vector]:
    """Draw a state of a family and a few actions, some of them far outside."""
    state = draw(family.states)
    actions = draw(vectors(count * family.dimension, ENTRIES)).reshape(count, family.dimension)
    return state, actions * family.action_scale


def around_the_boundary(family: Family, state: Vector, actions: Vector) -> Vector:
    """Return float32 actions that lie on both sides of the boundary, a few rounding errors apart."""
    constraint, dimension = family.constraint, family.dimension
    centre = constraint.interior_point(state, dimension=dimension)
    border = constraint.project(state, actions)
    steps = np.concatenate([-np.geomspace(1e-4, 1e-8, 12), [0.0], np.geomspace(1e-8, 1e-4, 12)])
    points = border + steps[:, None, None] * (border - centre)
    return np.reshape(points, (-1, dimension)).astype(np.float32)
