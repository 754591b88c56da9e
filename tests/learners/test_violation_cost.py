"""The price of leaving the set: a distance, whatever the kind of row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, PowerBudget, SumBand, WeightedL1, obs
from inbounds.learners.costs import row_distances, violation_penalty
from inbounds.learners.learner import Spec
from tests.slices import quick_slice

BOX = Box(np.full(3, -1.0), np.full(3, 1.0))
SETS = {
    "ball": Ball(radius_squared=0.25) & BOX,
    "weighted": WeightedL1(weights=obs[0:3], bound=1.5) & BOX,
    "power": PowerBudget(weights=obs[0:3], bound=1.5) & BOX,
    "band": SumBand(total=0.2, tolerance=0.1) & BOX,
}


def spec_of(constraint, low=-1.0, high=1.0):
    return Spec.of(3, np.full(3, low, np.float32), np.full(3, high, np.float32), constraint)


def some(seed=0, count=64):
    rng = np.random.default_rng(seed)
    observation = jnp.asarray(rng.uniform(0.5, 2.0, (count, 3)), jnp.float32)
    return observation, jnp.asarray(rng.uniform(-1.0, 1.0, (count, 3)), jnp.float32)


@pytest.mark.parametrize("name", quick_slice(SETS, list(SETS)[:2]))
def test_nothing_is_paid_inside_the_set_and_something_outside(name):
    spec = spec_of(SETS[name])
    observation, action = some()
    price = np.asarray(violation_penalty(spec, observation, action))
    is_outside = np.asarray(spec.constraint.violation(observation, action)) > 0
    assert is_outside.any() and not is_outside.all()
    np.testing.assert_array_equal(price > 0, is_outside)


@pytest.mark.parametrize("name", quick_slice(SETS, list(SETS)[-2:]))
def test_the_gradient_is_a_unit_vector_outside_and_zero_inside(name):
    spec = spec_of(SETS[name])
    observation, action = some()

    def total(actions):
        return jnp.sum(violation_penalty(spec, observation, actions))

    slope = np.linalg.norm(np.asarray(jax.grad(total)(action)), axis=-1)
    is_outside = np.asarray(spec.constraint.violation(observation, action)) > 0
    np.testing.assert_allclose(slope, is_outside, atol=1e-5)


def test_a_broken_linear_row_costs_its_distance_in_the_range_that_networks_see():
    """The band sum = 2 +- 1 in a box of half width 10: the face at 3 is 0.1 (excess / sqrt(3)) away."""
    constraint = SumBand(total=2.0, tolerance=1.0) & Box(np.full(3, -10.0), np.full(3, 10.0))
    spec = spec_of(constraint, low=-10.0, high=10.0)
    price = violation_penalty(spec, jnp.zeros((1, 3)), jnp.asarray([[0.5, 0.2, -0.1]]))
    assert float(price[0]) == pytest.approx((6.0 - 3.0) / np.sqrt(3) / 10, rel=1e-5)


def test_rows_are_priced_one_by_one():
    spec = spec_of(SETS["ball"])
    distances = row_distances(spec, jnp.zeros((1, 3)), jnp.asarray([[0.0, 0.0, 1.2]]))
    assert np.count_nonzero(np.asarray(distances)) == 2  # the ball's row and one side of the box
