from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, obs
from inbounds.errors import ConstraintError, EmptySetError


def test_a_point_outside_goes_radially_to_the_sphere() -> None:
    projected = Ball(radius_squared=0.05).project(None, [3.0, -4.0])
    np.testing.assert_allclose(projected, np.sqrt(0.05) * np.array([0.6, -0.8]), rtol=1e-6)
    assert np.sum(projected**2) <= 0.05


def test_the_box_and_the_ball_are_met_together_and_not_one_after_the_other() -> None:
    # Clipping first and scaling then would give (0.8, 0.6): the nearest point uses the corner of the box.
    projected = (Ball(radius_squared=1.0) & Box(-0.9, 0.9)).project(None, [4.0, 1.0])
    np.testing.assert_allclose(projected, [0.9, np.sqrt(1.0 - 0.81)], atol=2e-6)


@pytest.mark.parametrize("radius_squared", [0.0, 1e-12, 1e-30])
def test_a_ball_of_almost_no_radius_still_has_projections(radius_squared: float) -> None:
    for constraint in (
        Ball(radius_squared=radius_squared),
        Ball(radius_squared=radius_squared) & Box(-1.0, 1.0),
    ):
        for action in (np.array([0.3, -0.2, 0.0]), np.array([0.3, -0.2, 0.0], dtype=np.float32)):
            projected = constraint.project(None, action)
            assert constraint.violation(None, projected) <= 0
        compiled = np.asarray(
            jax.jit(lambda a, c=constraint: c.project(None, a))(jnp.array([0.3, -0.2, 0.0]))
        )
        assert constraint.violation(None, compiled) <= 0
    np.testing.assert_array_equal(Ball(radius_squared=0.0).project(None, [0.3, -0.2]), [0.0, 0.0])


def test_squares_that_underflow_in_float32_are_not_taken_for_zero() -> None:
    ball = Ball(radius_squared=0.0)
    tiny = np.array([1e-25, 0.0], dtype=np.float32)
    assert ball.violation(None, tiny) > 0
    assert not jax.jit(lambda a: ball.contains(None, a))(jnp.asarray(tiny))
    assert jax.jit(lambda a: ball.contains(None, a))(jnp.zeros(2))


def test_huge_actions_are_projected_too() -> None:
    ball = Ball(radius_squared=2.0) & Box(-1.0, 1.0)
    huge = np.array([1e30, -2e30, 1e-3], dtype=np.float32)
    compiled = np.asarray(jax.jit(lambda a: ball.project(None, a))(jnp.asarray(huge)))
    assert ball.violation(None, compiled) <= 0
    np.testing.assert_allclose(compiled, ball.project(None, huge), atol=1e-5)


@pytest.mark.parametrize("far", [1e15, 1e20, 1e100])
def test_an_entry_keeps_its_room_beside_one_that_is_much_larger(far: float) -> None:
    ball = Ball(radius_squared=1.5) & Box(-1.0, 1.0)
    for action in (np.array([far, 0.9]), np.array([[far, 0.9], [0.9, -far]])):
        projected = np.sort(np.abs(ball.project(None, action)), axis=-1)
        np.testing.assert_allclose(projected, np.broadcast_to([np.sqrt(0.5), 1.0], action.shape), rtol=1e-5)


def test_the_box_beside_the_ball_is_an_empty_set() -> None:
    with pytest.raises(EmptySetError, match=r"sum_i a_i\^2 <= 1; a\[0\] >= 2"):
        Ball(radius_squared=1.0) & Box([2.0, -1.0], [3.0, 1.0])
    with pytest.raises(EmptySetError, match="negative"):
        Ball(radius_squared=-1.0)
    with pytest.raises(ConstraintError, match="a number is expected"):
        Ball(radius_squared=[1.0, 2.0])


def test_a_ball_is_told_by_its_radius_or_by_its_square() -> None:
    assert Ball(radius=0.5).to_json() == Ball(radius_squared=0.25).to_json()
    with pytest.raises(ConstraintError, match=r"^Ball\(0.5\) does not say.*Write Ball\(radius=\.\.\.\) or"):
        Ball(0.5)  # type: ignore[arg-type]
    for given in ({}, {"radius": 0.5, "radius_squared": 0.25}):
        with pytest.raises(ConstraintError, match=r"Pass one of them: Ball\(radius=0.5\)"):
            Ball(**given)
    with pytest.raises(EmptySetError, match="is negative, so that no action"):
        Ball(radius=-0.5)
    for observed in (obs[0], obs[0] * obs[1], [obs[0] + 1.0]):
        with pytest.raises(ConstraintError, match=r"is observed.* radius_squared=obs\[0\] \*\* 2"):
            Ball(radius=observed)  # type: ignore[arg-type]


def test_a_negative_radius_of_the_state_allows_nothing() -> None:
    ball = Ball(radius_squared=obs[0])
    assert not ball.contains([-1.0], [0.0, 0.0])
    assert ball.violation([-1.0], [0.0, 0.0]) == 1.0
    with pytest.raises(EmptySetError, match=r"sum_i a_i\^2 <= obs\[0\]"):
        ball.project([-1.0], [0.0, 0.0])


def test_a_ray_leaves_where_the_quadratic_equation_says() -> None:
    ball = Ball(radius_squared=4.0)
    assert ball.distance(None, [0.0, 0.0], [0.0, 0.5]) == pytest.approx(4.0, rel=1e-6)
    assert ball.distance(None, [1.0, 0.0], [1.0, 0.0]) == pytest.approx(1.0, rel=3e-6)
    assert ball.distance(None, [1.0, 0.0], [-1.0, 0.0]) == pytest.approx(3.0, rel=1e-6)
    assert ball.distance(None, [1.0, 0.0], [0.0, 0.0]) == np.inf
