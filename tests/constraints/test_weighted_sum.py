"""Weighted sums of absolute values and power budgets, whose projections share an engine: the hard cases by name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, Constraint, PowerBudget, WeightedL1, obs
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from tests.constraints import exact_projection as exact
from tests.slices import quick_slice

BOX = Box(-np.ones(5), np.ones(5))

HARD = {
    "ordinary": ([1.0, -2.0, 0.5, 3.0, -1.0], 2.0, [0.9, -0.8, 0.7, 1.0, -0.3]),
    "some weights are zero": ([0.0, 3.0, 0.0, -2.0, 0.0], 1.0, [0.9, -0.8, 0.7, 1.0, -0.3]),
    "all weights are zero": ([0.0] * 5, 1.0, [0.9, -0.8, 1.7, 1.0, -0.3]),
    "weights span a factor of a million": ([1e-3, 1e3, 1.0, 1e-3, 30.0], 2.0, [0.9, -0.8, 0.7, 1.0, -0.3]),
    "the set is thin": ([1e3, 1e3, 1e3, 1e3, 1e3], 1e-2, [0.9, -0.8, 0.7, 1.0, -0.3]),
    "the action is saturated": ([4.0, -3.0, 2.0, 5.0, -1.0], 5.0, [1.0, -1.0, 1.0, 1.0, -1.0]),
    "the action is far outside": ([4.0, -3.0, 2.0, 5.0, -1.0], 5.0, [300.0, -900.0, 20.0, 1e3, -500.0]),
    "all entries are equal": ([2.0] * 5, 3.0, [0.5] * 5),
    "a limit between the numbers of float32 around a far action": (
        [0.0, 0.0, -1.0, 1e-6, 0.0],
        1.0,
        [0.0, 0.0, -200.0, 1.0, 0.0],
    ),
    "only one entry is too large": ([1.0] * 5, 0.5, [7.0, 0.0, 0.0, 0.0, 0.0]),
}


def kinds(weights: Any, bound: Any) -> list[tuple[Constraint, Any]]:
    return [
        (WeightedL1(weights=weights, bound=bound) & BOX, exact.onto_weighted_l1),
        (PowerBudget(weights=weights, bound=bound) & BOX, exact.onto_power_budget),
    ]


@pytest.mark.parametrize(
    "name",
    quick_slice(HARD, ["the set is thin"]),
)
def test_hard_cases_are_projected_exactly_and_feasibly(name: str) -> None:
    weights, bound, action = (np.array(part) for part in HARD[name])
    for constraint, solver in kinds(weights, bound):
        projected = constraint.project(None, action)
        expected = solver(weights, float(bound), -1.0, 1.0)(action)
        np.testing.assert_allclose(projected, expected, rtol=0, atol=2e-6 * (1 + np.linalg.norm(action)))
        single = constraint.project(None, action.astype(np.float32))
        compiled = np.asarray(jax.jit(lambda a, c=constraint: c.project(None, a))(jnp.asarray(action)))
        for answer in (projected, single, compiled):
            assert constraint.violation(None, answer) <= 0
            assert constraint.contains(None, answer)
        np.testing.assert_allclose(compiled, projected, rtol=0, atol=5e-6 * (1 + np.linalg.norm(action)))


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_a_bound_of_zero_makes_weighted_entries_exactly_zero_and_leaves_the_others(library: str) -> None:
    weights, action = np.array([3.0, 0.0, -1e-3, 1e3, 0.7]), np.array([0.9, -0.8, 0.7, 2.0, 0.3])
    l1, power = (constraint for constraint, _ in kinds(weights, 0.0))
    for constraint, expected in ((l1, [0.0, -0.8, 0.0, 0.0, 0.0]), (power, [0.0, -0.8, 0.7, 0.0, 0.0])):
        if library == "numpy":
            projected = constraint.project(None, action)
        else:
            projected = np.asarray(jax.jit(lambda a, c=constraint: c.project(None, a))(jnp.asarray(action)))
        np.testing.assert_allclose(projected, expected, rtol=1e-6, atol=0)
        assert constraint.violation(None, projected) == 0
        assert constraint.contains(None, np.zeros(5))


def test_products_that_underflow_in_float32_are_not_taken_for_zero() -> None:
    action = np.array([1e-25, 0.0], dtype=np.float32)
    for kind in (WeightedL1, PowerBudget):
        constraint = kind(weights=[1e-20, 1.0], bound=0.0)
        assert constraint.violation(None, action) > 0
        assert not jax.jit(lambda a, c=constraint: c.contains(None, a))(jnp.asarray(action))


@pytest.mark.parametrize("scale", [1e-200, 1e-97, 1e-20, 1e20, 1e200])
@pytest.mark.parametrize("kind", [WeightedL1, PowerBudget])
def test_the_unit_of_weights_and_bound_does_not_matter(kind: Any, scale: float) -> None:
    constraint = kind(weights=[scale, scale, 0.0], bound=scale) & Box(-1.0, 1e30)
    for action in (np.array([2.0, 3.0, 4.0]), np.array([[2.0, 3.0, 4.0], [2.5, 3.5, 4.0]])):
        expected = np.broadcast_to([0.0, 1.0, 4.0], action.shape)
        np.testing.assert_allclose(constraint.project(None, action), expected, atol=1e-5)
    if 1e-30 < scale < 1e30:
        compiled = jax.jit(lambda a: constraint.project(None, a))(jnp.array([2.0, 3.0, 4.0]))
        np.testing.assert_allclose(compiled, [0.0, 1.0, 4.0], atol=1e-5)


def test_a_light_entry_far_away_is_shrunk_to_the_bound() -> None:
    constraint = WeightedL1(weights=[1.0, 1e-30], bound=1.0) & Box(-10.0, 1e40)
    for action in (np.array([0.0, 1e31]), np.array([[0.0, 1e31], [0.0, 2e31]])):
        projected = constraint.project(None, action)
        np.testing.assert_allclose(projected, np.broadcast_to([0.0, 1e30], action.shape), rtol=1e-5)


@pytest.mark.parametrize("share", [1.0, 1.0 - 5e-7, 1.0 - 1.5e-6, 1.0 + 1e-7])
def test_points_on_the_boundary_are_feasible_or_moved_by_little(share: float) -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    action = share * 6.0 / (5 * weights)
    constraint = WeightedL1(weights=weights, bound=6.0) & Box(-2.0, 2.0)
    projected = constraint.project(None, action)
    assert constraint.violation(None, projected) <= 0
    np.testing.assert_allclose(projected, action, atol=2e-6)
    assert bool(constraint.contains(None, action)) == (share < 1.0 - 1e-6)


def test_braking_entries_of_a_power_budget_are_left_alone() -> None:
    power = PowerBudget(weights=obs[0:3], bound=1.0) & Box(-1.0, 1.0)
    velocities, torques = np.array([2.0, -3.0, 4.0]), np.array([-0.9, 0.7, 1.0])
    projected = power.project(velocities, torques)
    np.testing.assert_array_equal(projected[:2], torques[:2])
    assert projected[2] == pytest.approx(0.25, rel=2e-6)
    assert PowerBudget(weights=obs[0:3], bound=1.0).violation(velocities, [-1.0, 1.0, 0.0]) == -1.0


def test_a_box_can_force_power_to_be_drawn() -> None:
    power = PowerBudget(weights=[2.0, -1.0], bound=1.0)
    constraint = power & Box([0.25, 0.5], [1.0, 1.0])
    np.testing.assert_allclose(constraint.project(None, [-1.0, -1.0]), [0.25, 0.5])
    np.testing.assert_allclose(constraint.project(None, [1.0, -1.0]), [0.5, 0.5], rtol=2e-6)
    with pytest.raises(EmptySetError, match=r"sum_i max\(w_i a_i, 0\) <= 1.*a\[0\] >= 0.75"):
        power & Box([0.75, 0.0], [1.0, 1.0])


def test_a_weight_that_an_offset_cancels_is_as_uncertain_as_what_was_read() -> None:
    # The observation of 1000.0003 is off by up to 3e-5 in float32, which is a tenth of the weight.
    constraint = WeightedL1(weights=obs[0:2] - 1000.0, bound=1.0)
    state = np.array([1000.0003, 1000.0001])
    actions = np.linspace(3000.0, 3400.0, 400, dtype=np.float32)[:, None] * np.array(
        [1.0, 0.0], dtype=np.float32
    )
    accepted = np.asarray(jax.jit(constraint.contains)(jnp.asarray(state), jnp.asarray(actions)))
    assert np.all(constraint.violation(state, actions[accepted]) <= 0)
    projected = np.asarray(jax.jit(constraint.project)(jnp.asarray(state), jnp.asarray(actions)))
    assert np.all(constraint.violation(state, projected) <= 0)


def test_one_weight_holds_for_every_entry() -> None:
    constraint = WeightedL1(weights=2.0, bound=3.0)
    assert constraint.size() is None
    np.testing.assert_allclose(constraint.project(None, [1.0, 1.0, 1.0]), [0.5, 0.5, 0.5], rtol=2e-6)
    assert constraint.violation(None, [1.0, 1.0, 1.0]) == 3.0


@pytest.mark.parametrize("kind", [WeightedL1, PowerBudget])
def test_wrong_declarations_are_refused(kind: Any) -> None:
    with pytest.raises(EmptySetError, match="bound=-1 is negative"):
        kind(weights=[1.0], bound=-1.0)
    with pytest.raises(ConstraintError, match="not a finite number"):
        kind(weights=[1.0, np.inf], bound=1.0)
    with pytest.raises(ConstraintError, match="same dimension"):
        kind(weights=[1.0, 2.0], bound=1.0) & Box([0.0] * 3, [1.0] * 3)
    with pytest.raises(InvalidInputError, match="where one number is expected"):
        kind(weights=1.0, bound=obs[0:2]).contains([1.0, 2.0], [0.0])


def test_the_formula_names_where_the_weights_are_read() -> None:
    assert WeightedL1(weights=obs[11:17], bound=20.0).formula() == "sum_i |w_i a_i| <= 20, w = obs[11:17]"
    assert PowerBudget(weights=2.0, bound=obs[3]).formula() == "sum_i max(w_i a_i, 0) <= obs[3], w = 2"
