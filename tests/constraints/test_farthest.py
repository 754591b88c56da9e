from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbounds.constraints import Ball, Box, PowerBudget, Simplex, SumBand, WeightedL1
from inbounds.errors import ConstraintError
from tests.constraints.strategies import FAMILIES, questions
from tests.slices import quick_slice

BOUNDED = [
    "box",
    "box of the state",
    "ball",
    "ball in a box",
    "ball in a box beside zero",
    "weighted l1 in a box",
    "weighted l1 in a box beside zero",
    "power budget in a box",
    "power budget in a box beside zero",
    "sum band with caps",
    "sum band in a box",
    "simplex",
    "capped simplex",
    "rate limit",
    "rate limit, budget and box",
]


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=20)
@given(data=st.data())
def test_no_other_point_lies_farther_than_the_maximiser(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]
    constraint = family.constraint
    state, gradients = data.draw(questions(family))
    for dtype in (np.float64, np.float32):
        farthest = constraint.linear_maximiser(state, gradients.astype(dtype))
        assert farthest.dtype == dtype
        assert np.all(constraint.contains(state, farthest))
        assert np.all(constraint.violation(state, farthest) <= 0)
    farthest = constraint.linear_maximiser(state, gradients)
    # The projections of points ever farther along a gradient tend to the maximiser, for any convex set.
    for gradient, point in zip(gradients, farthest, strict=True):
        if np.any(gradient):
            heading = gradient / np.linalg.norm(gradient)
            rivals = constraint.project(state, point + np.array([1.0, 30.0, 1e3])[:, None] * heading)
            best = np.max(rivals @ heading)
            size = 1 + np.max(np.abs(point)) + (np.max(np.abs(state)) if family.rounds_with_state else 0.0)
            assert point @ heading >= best - 1e-5 * size


@functools.cache
def compiled(name: str) -> Callable[..., Any]:
    return jax.jit(FAMILIES[name].constraint.linear_maximiser)


@pytest.mark.parametrize(
    "name",
    quick_slice(
        ["ball in a box beside zero", "weighted l1 in a box", "power budget in a box", "sum band with caps"],
        ["weighted l1 in a box"],
    ),
)
@settings(max_examples=20)
@given(data=st.data())
def test_jax_and_the_strict_array_api_reach_as_far(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]
    state, gradients = data.draw(questions(family))
    reached = np.sum(family.constraint.linear_maximiser(state, gradients) * gradients, axis=-1)
    scale = (1 + np.max(np.abs(state))) * (1 + np.max(np.abs(gradients)))
    single = np.asarray(compiled(name)(jnp.asarray(state), jnp.asarray(gradients)))
    assert np.all(family.constraint.violation(state, single) <= 0)
    np.testing.assert_allclose(np.sum(single * gradients, axis=-1), reached, rtol=1e-5, atol=1e-5 * scale)
    strict = family.constraint.linear_maximiser(
        array_api_strict.asarray(state), array_api_strict.asarray(gradients)
    )
    np.testing.assert_allclose(
        np.sum(np.asarray(strict) * gradients, axis=-1), reached, rtol=1e-9, atol=1e-12
    )


def test_a_budget_is_spent_where_it_gains_most_for_its_weight() -> None:
    l1 = WeightedL1(weights=[1.0, 2.0, 4.0, 0.0], bound=3.0) & Box(-np.ones(4), np.ones(4))
    # Gains per weight are 1, 2 and 0.5: the second first, then the first, nothing is left for the third.
    np.testing.assert_allclose(l1.linear_maximiser(None, [1.0, -4.0, 2.0, -1e-9]), [1, -1, 0, -1], atol=1e-5)
    power = PowerBudget(weights=[1.0, -2.0, 4.0], bound=1.0) & Box(-np.ones(3), np.ones(3))
    np.testing.assert_allclose(power.linear_maximiser(None, [1.0, 4.0, 2.0]), [1.0, 1.0, 0.0], atol=1e-5)
    band = SumBand(total=90.0, tolerance=5.0, low=0.0, high=40.0)
    np.testing.assert_allclose(band.linear_maximiser(None, [3.0, 1.0, 2.0]), [40.0, 15.0, 40.0], rtol=1e-5)
    np.testing.assert_allclose(band.linear_maximiser(None, [-3.0, -1.0, -2.0]), [5.0, 40.0, 40.0], rtol=1e-4)
    np.testing.assert_allclose(
        Simplex(2.0).linear_maximiser(None, [0.1, 0.3, 0.2]), [0.0, 2.0, 0.0], rtol=2e-5
    )
    np.testing.assert_allclose(
        Ball(radius_squared=4.0).linear_maximiser(None, [3.0, 4.0]), [1.2, 1.6], rtol=1e-6
    )


def test_a_set_without_an_end_is_refused() -> None:
    for constraint in (Box(0.0, np.inf), WeightedL1(weights=[1.0, 0.0], bound=1.0), SumBand(1.0, 0.1)):
        with pytest.raises(ConstraintError, match="& Box"):
            constraint.linear_maximiser(None, [1.0, 2.0])
    with pytest.raises(ConstraintError, match="fewer kinds"):
        (Ball(radius_squared=1.0) & WeightedL1(1.0, 1.0) & Box(-1.0, 1.0)).linear_maximiser(None, [1.0, 2.0])
