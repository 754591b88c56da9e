"""Sets hardly wider than the gaps between numbers: what is returned is feasible as the number that it is."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Constraint, Polytope, obs
from inbounds.errors import EmptySetError
from tests.slices import quick_slice


def strip(low: float, high: float) -> Polytope:
    """Return the actions with low <= a_0 - a_1 <= high."""
    return Polytope([[1.0, -1.0], [-1.0, 1.0]], [high, -low])


BETWEEN = {
    "a hundred-millionth at 0.75": (strip(1.1e-8, 2.1e-8) & Box([0.6, 0.6], [0.9, 0.9]), 0.75),
    "a thousandth at 60,000": (strip(1e-3, 2e-3) & Box([5e4, 5e4], [6.5e4, 6.5e4]), 60_000.0),
}
"""Sets without any float32 number: differences of these are multiples of 6e-8, and of 4e-3."""


@pytest.mark.parametrize("name", BETWEEN)
def test_a_set_between_the_numbers_of_a_type_is_refused_with_the_remedy(name: str) -> None:
    constraint, size = BETWEEN[name]
    rng = np.random.default_rng(0)
    for action in rng.uniform(0.5 * size, 1.5 * size, (20, 2)):
        assert constraint.contains(None, constraint.project(None, action))
        with pytest.raises(EmptySetError, match=r"no float32 action.*Use float64 actions, or widen the set"):
            constraint.project(None, action.astype(np.float32))
    with pytest.raises(EmptySetError, match="no float32 action"):
        constraint.project(None, rng.uniform(0.5 * size, 1.5 * size, (20, 2)).astype(np.float32))


@pytest.mark.parametrize("name", quick_slice(BETWEEN, ["a thousandth at 60,000"]))
def test_a_compiled_function_answers_nan_in_a_set_between_the_numbers(name: str) -> None:
    constraint, size = BETWEEN[name]
    actions = np.random.default_rng(0).uniform(0.5 * size, 1.5 * size, (6, 2)).astype(np.float32)
    assert np.all(np.isnan(jax.jit(lambda given: constraint.project(None, given))(actions)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e-3, 0.3])
def test_numbers_that_lie_in_a_thin_set_are_found(dtype: Any, offset: float) -> None:
    thin = strip(-5e-4, 5e-4) & Box([5e4, 5e4], [6.5e4, 6.5e4])  # float32: equal entries alone
    actions = np.random.default_rng(1).uniform(5e4, 6.4e4, (200, 1)) + np.array([[offset, -offset]])
    projected = thin.project(None, actions.astype(dtype))
    assert projected.dtype == (np.float64 if dtype == np.float16 else dtype)
    assert np.all(thin.violation(None, projected.astype(np.float64)) <= 0)
    # Near its own action, and not all of them at the centre of the set.
    assert np.median(np.abs(projected - actions.astype(dtype).astype(np.float64))) < 50.0
    alone = thin.project(None, actions[0].astype(dtype))
    assert thin.violation(None, alone.astype(np.float64)) <= 0


def test_entries_of_different_sizes_make_up_a_sum_to_the_last_bit() -> None:
    row = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    limits = Box(np.zeros(6), [0.9, 0.1, 1e-3, 1e-5, 1e-7, 1.0])
    balanced = Polytope([row, -row], [2e-10, 2e-10]) & limits
    actions = np.random.default_rng(2).uniform(0.0, 1.0, (50, 6)).astype(np.float32)
    projected = balanced.project(None, actions)
    assert projected.dtype == np.float32
    assert np.all(balanced.violation(None, projected.astype(np.float64)) <= 0)


def test_a_state_between_the_numbers_is_refused_and_the_others_are_not() -> None:
    moving = Polytope([[1.0, -1.0], [-1.0, 1.0]], obs[0:2]) & Box(0.6, 0.9)
    wide, thin = np.array([0.1, 0.1]), np.array([2.1e-8, -1.1e-8])
    action = np.array([0.9, 0.6], np.float32)
    assert moving.violation(wide, moving.project(wide, action)) <= 0
    with pytest.raises(EmptySetError, match="no float32 action"):
        moving.project(np.stack([wide, thin, wide]), action)


def test_a_union_takes_the_member_that_the_type_can_hold() -> None:
    thin, _ = BETWEEN["a hundred-millionth at 0.75"]
    action = np.array([[0.75, 0.74], [0.6, 0.9]], np.float32)
    union = thin | (Ball(radius_squared=0.01) & Box(-1.0, 1.0))
    projected = union.project(None, action)
    assert projected.dtype == np.float32
    assert np.all(np.abs(projected) <= 0.1) and np.all(union.violation(None, projected) <= 0)
    with pytest.raises(EmptySetError):
        (thin | thin).project(None, action)


@pytest.mark.parametrize("dimension", [2, 3, 12, 60])
def test_what_thin_random_polytopes_return_is_feasible_as_it_is(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    found = 0
    for _ in range(12):
        heading, centre = rng.standard_normal(dimension), rng.uniform(-1.0, 1.0, dimension)
        centre[0] -= float(heading @ centre) / heading[0]
        width = 10.0 ** rng.uniform(-9.0, -6.0)
        limits = Box(centre - 0.1, centre + 0.1)
        constraint: Constraint = Polytope([heading, -heading], [width, width]) & limits
        action = (centre + rng.standard_normal(dimension)).astype(np.float32)
        try:
            projected = constraint.project(None, action)
        except EmptySetError as error:
            assert "no float32 action" in str(error)
            continue
        found += 1
        assert projected.dtype == np.float32
        assert constraint.violation(None, projected.astype(np.float64)) <= 0
    assert found >= 9


def test_an_integer_action_is_projected_on_a_thin_set_in_float64() -> None:
    thin, _ = BETWEEN["a thousandth at 60,000"]
    projected = thin.project(None, np.array([60_000, 50_000]))
    assert projected.dtype == np.float64 and thin.violation(None, projected) <= 0
