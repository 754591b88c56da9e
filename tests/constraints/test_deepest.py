"""Interior points of rows and weighted sums together: found whatever the weights, refused where there is none."""

from __future__ import annotations

import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints.deepest import Limits, WeightedSum, largest_ball

DIMENSION = 21
NOTHING = np.full(2, np.inf)


def far_apart_weights(rng: np.random.Generator) -> np.ndarray:
    """Return weights between 1e-5 and 1e5, of both signs, some of them zero."""
    weights = rng.normal(size=DIMENSION) * 10.0 ** rng.uniform(-5.0, 5.0, DIMENSION)
    return np.where(rng.random(DIMENSION) < 0.2, 0.0, weights)


@pytest.mark.parametrize("seed", range(6))
def test_a_set_around_an_action_is_declared_however_far_apart_its_weights_are(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr("inbounds.constraints.intersection.central_point", lambda *given: calls.append(given))
    rng = np.random.default_rng(seed)
    action = rng.uniform(0.5, 1.5, DIMENSION)
    first, second, row = far_apart_weights(rng), rng.normal(size=DIMENSION), rng.normal(size=(1, DIMENSION))
    constraint = (
        ib.WeightedL1(first, 1.1 * np.abs(first) @ action)
        & ib.PowerBudget(second, 1.1 * np.maximum(second * action, 0.0).sum())
        & ib.Polytope(row, row @ action + 0.1)
        & ib.SumBand(action.sum(), 0.05)
    )
    assert constraint.contains(None, action)
    assert constraint.contains(None, constraint.interior_point())
    assert constraint.contains(None, constraint.project(None, 10.0 * rng.normal(size=DIMENSION)))
    assert calls == []


def test_every_state_of_a_batch_gets_an_interior_point_of_its_own() -> None:
    constraint = ib.WeightedL1(ib.obs[0:3], 1.0) & ib.PowerBudget(ib.obs[3:6], ib.obs[6]) & ib.Box(-2.0, 2.0)
    observations = np.random.default_rng(0).uniform(0.1, 3.0, (5, 7))
    points = constraint.interior_point(observations, dimension=3)
    assert points.shape == (5, 3)
    for observation, point in zip(observations, points, strict=True):
        np.testing.assert_allclose(constraint.interior_point(observation, dimension=3), point, atol=1e-12)
    assert constraint.contains(observations, points).all()


def test_members_without_a_common_action_are_refused() -> None:
    with pytest.raises(ib.errors.EmptySetError, match="no action"):
        ib.WeightedL1(np.ones(3), 1.0) & ib.PowerBudget(np.ones(3), 1.0) & ib.SumBand(1.01, 1e-4)


def test_the_largest_ball_touches_what_limits_it() -> None:
    norm = WeightedSum(np.array([3.0, 4.0]), np.asarray(10.0), True)
    ball = largest_ball(Limits(np.zeros((0, 2)), np.zeros(0), -NOTHING, NOTHING, [norm]), 10.0)
    assert ball is not None
    np.testing.assert_allclose(ball.centre, 0.0, atol=1e-9)
    assert ball.radius == pytest.approx(2.0)
    power = WeightedSum(np.array([3.0, 4.0]), np.asarray(10.0), False)
    ball = largest_ball(Limits(np.zeros((0, 2)), np.zeros(0), np.full(2, -1.0), NOTHING, [power]), 10.0)
    assert ball is not None
    weighed = np.maximum(power.weights * ball.centre, 0.0).sum() + 5.0 * ball.radius
    assert weighed == pytest.approx(10.0) and ball.centre.min() - ball.radius == pytest.approx(-1.0)


def test_limits_that_exclude_one_another_have_a_ball_of_negative_radius() -> None:
    norm = WeightedSum(np.ones(2), np.asarray(1.0), True)
    ball = largest_ball(Limits(np.array([[-1.0, -1.0]]), np.array([-2.0]), -NOTHING, NOTHING, [norm]), 1.0)
    assert ball is not None and ball.radius < 0


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_weights_whose_squares_overflow_or_vanish_limit_as_others_do(size: float) -> None:
    norm = WeightedSum(size * np.array([3.0, 4.0]), np.asarray(10.0 * size), True)
    ball = largest_ball(Limits(np.zeros((0, 2)), np.zeros(0), -NOTHING, NOTHING, [norm]), 10.0)
    assert ball is not None and ball.radius == pytest.approx(2.0)
