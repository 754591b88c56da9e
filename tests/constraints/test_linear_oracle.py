"""The farthest action along a direction, against linear programs solved by another library."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from inbounds.constraints import Ball, Box, Polytope, PowerBudget, Simplex, SumBand, WeightedL1, obs
from tests.slices import quick_slice

LOW, HIGH = np.array([-1.0, -0.5, -1.0, -2.0]), np.array([1.0, 1.0, 0.4, 2.0])
BOX = Box(LOW, HIGH)
WEIGHTS = np.array([0.8, 2.0, 1.2, 0.5])
ROWS = np.array([[1.0, 1.0, 0.0, 0.5], [0.0, -1.0, 1.0, 1.0], [1.0, 0.0, 1.0, -1.0]])


def signs():
    return np.array(list(itertools.product([-1.0, 1.0], repeat=4)))


def subsets():
    return np.array(list(itertools.product([0.0, 1.0], repeat=4)))


# Each set, and the rows A x <= b that describe it beside the box.
CASES = {
    "box": (BOX, np.zeros((1, 4)), np.ones(1)),
    "weighted": (WeightedL1(weights=obs[0:4], bound=1.3) & BOX, signs() * WEIGHTS, np.full(16, 1.3)),
    "free": (
        WeightedL1(weights=[0.0, 1.0, 1.0, 1.0], bound=0.7) & BOX,
        signs() * [0, 1, 1, 1],
        np.full(16, 0.7),
    ),
    "power": (PowerBudget(weights=obs[0:4], bound=0.9) & BOX, subsets() * WEIGHTS, np.full(16, 0.9)),
    "band": (
        SumBand(total=0.6, tolerance=0.2) & BOX,
        np.array([[1.0] * 4, [-1.0] * 4]),
        np.array([0.8, -0.4]),
    ),
    "simplex": (
        Simplex(total=1.0, tolerance=1e-3) & Box(np.zeros(4), np.full(4, 0.4)),
        np.array([[1.0] * 4, [-1.0] * 4, *np.eye(4), *-np.eye(4)]),
        np.array([1.001, -0.999, *[0.4] * 4, *[0.0] * 4]),
    ),
    "polytope": (Polytope(ROWS, [0.5, 0.4, 0.3]) & BOX, ROWS, np.array([0.5, 0.4, 0.3])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_feasible_action_lies_farther(name):
    constraint, matrix, bound = CASES[name]
    rng = np.random.default_rng(5)
    gradients = np.concatenate([rng.standard_normal((24, 4)), 1e-4 * rng.standard_normal((4, 4)), -np.eye(4)])
    observation = np.broadcast_to(WEIGHTS, gradients.shape)
    found = np.asarray(
        constraint.linear_maximiser(
            jnp.asarray(observation, jnp.float32), jnp.asarray(gradients, jnp.float32)
        )
    )
    for gradient, action in zip(gradients, found, strict=True):
        best = linprog(-gradient, A_ub=matrix, b_ub=bound, bounds=list(zip(LOW, HIGH, strict=True)))
        scale = np.abs(gradient).max()
        # The answer on a simplex has the total itself as its sum: it leaves the tolerance of 1e-3 unused, in any type.
        allowed = {"polytope": 4e-3, "simplex": 1e-3}.get(name, 1e-5)
        assert gradient @ action / scale == pytest.approx(-best.fun / scale, abs=allowed)
    assert np.max(np.asarray(constraint.violation(observation, found.astype(np.float64)))) <= 0


@pytest.mark.parametrize("radius_squared", quick_slice([0.05, 0.25, 2.0], [0.25]))
def test_on_a_ball_the_farthest_action_follows_the_gradient_until_the_box_stops_an_entry(radius_squared):
    box = Box(np.full(3, -1.0), np.full(3, 1.0))
    gradients = np.random.default_rng(2).standard_normal((32, 3))
    found = np.asarray(
        (Ball(radius_squared=radius_squared) & box).linear_maximiser(
            jnp.zeros((32, 1)), jnp.asarray(gradients, jnp.float32)
        )
    )
    for gradient, action in zip(gradients, found, strict=True):
        low, high = 0.0, 1e3
        for _ in range(100):
            scale = 0.5 * (low + high)
            reached = np.clip(scale * gradient, -1, 1)
            low, high = (scale, high) if reached @ reached < radius_squared else (low, scale)
        np.testing.assert_allclose(action, reached, atol=2e-4)


def test_entries_that_the_gradient_ignores_spend_nothing():
    constraint = WeightedL1(weights=[1.0, 1.0, 1.0, 1.0], bound=0.5) & BOX
    found = constraint.linear_maximiser(jnp.zeros((1, 1)), jnp.asarray([[0.0, 0.0, 2.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.4, 0.0]], atol=1e-6)
