"""Uniform draws: feasible without exception, uniform by test, refused where a set has no bounds."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from inbounds.constraints import Ball, Box, PowerBudget, Simplex, SumBand, WeightedL1, obs
from inbounds.constraints.randomness import randomness
from inbounds.constraints.sampling import walk
from inbounds.errors import ConstraintError, InvalidInputError

SQUARE = Box(-np.ones(2), np.ones(2))
SETS = {
    "box": SQUARE,
    "ball": Ball(radius_squared=0.5) & SQUARE,
    "ball cut by its box": Ball(radius_squared=1.5) & SQUARE,
    "weighted l1": WeightedL1(weights=np.array([2.0, 0.7]), bound=1.0) & SQUARE,
    "weighted l1 with a free entry": WeightedL1(weights=np.array([2.0, 0.0]), bound=1.0) & SQUARE,
    "power": PowerBudget(weights=np.array([2.0, -3.0]), bound=1.0) & SQUARE,
    "band": SumBand(total=0.5, tolerance=0.3, low=-1.0, high=1.0) & SQUARE,
}


@pytest.mark.parametrize("name", SETS)
def test_draws_of_both_libraries_are_feasible_and_uniform(name):
    """Compare each entry with plain rejection from the box, the slow and obviously right sampler."""
    constraint = SETS[name]
    rng = np.random.default_rng(0)
    grid = rng.uniform(-1, 1, size=(60_000, 2))
    truth = grid[np.asarray(constraint.contains(None, grid))]
    for drawn in (
        constraint.sample(rng, None, n=3_000),
        np.asarray(constraint.sample(jax.random.key(1), None, n=3_000), np.float64),
    ):
        assert np.max(constraint.violation(None, drawn)) <= 0
        for entry in range(2):
            assert stats.ks_2samp(drawn[:, entry], truth[:, entry]).pvalue > 1e-3


def test_the_same_comparison_exposes_a_sampler_that_clusters():
    constraint = SETS["ball"]
    rng = np.random.default_rng(0)
    truth = constraint.sample(rng, None, n=3_000)
    projected = constraint.project(None, rng.uniform(-1, 1, size=(3_000, 2)))
    assert stats.ks_2samp(projected[:, 0], truth[:, 0]).pvalue < 1e-6


@pytest.mark.parametrize("name", ["ball", "weighted l1", "band"])
def test_a_walk_forgets_where_it_started(name):
    constraint = SETS[name]
    rng = np.random.default_rng(2)
    at, size = constraint.situation_without_action(None, None, None)
    walked = walk(constraint, randomness(rng, np.float64), at, size, (2_000,))
    exact = constraint.sample(rng, None, n=2_000)
    assert np.max(constraint.violation(None, walked)) <= 0
    for entry in range(2):
        assert stats.ks_2samp(walked[:, entry], exact[:, entry]).pvalue > 1e-3


def test_shares_of_a_capped_simplex_are_exchangeable_and_respect_the_cap():
    constraint = Simplex(total=2.0, high=0.9) & Box(np.zeros(4), np.full(4, 2.0))
    drawn = constraint.sample(np.random.default_rng(3), None, n=4_000)
    assert np.max(constraint.violation(None, drawn)) <= 0
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5, atol=0.015)


def test_every_observation_gets_a_draw_from_its_own_set():
    constraint = WeightedL1(weights=obs[0:2], bound=1.0) & SQUARE
    observation = np.array([[0.1, 0.1], [50.0, 50.0]])
    drawn = constraint.sample(np.random.default_rng(4), observation, n=500)
    assert drawn.shape == (500, 2, 2)
    assert np.abs(drawn[:, 0]).max() > 0.9
    assert np.abs(drawn[:, 1]).max() <= 0.02


def test_the_same_generator_gives_the_same_draws():
    first, second = (SETS["ball"].sample(np.random.default_rng(5), None, n=10) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "constraint",
    [PowerBudget(weights=np.ones(2), bound=1.0), WeightedL1(weights=np.array([1.0, 0.0]), bound=1.0)],
)
def test_a_set_without_bounds_is_refused_and_a_box_is_suggested(constraint):
    with pytest.raises(ConstraintError, match=r"[Bb]ox"):
        constraint.sample(np.random.default_rng(0))


def test_a_seed_is_no_generator():
    with pytest.raises(InvalidInputError, match="default_rng"):
        SETS["ball"].sample(0)
