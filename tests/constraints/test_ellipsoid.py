"""Ellipsoids: projections against the optimality conditions and another solver, also where axes are free."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from inbounds.constraints import Ball, Box, Constraint, Ellipsoid, obs
from inbounds.errors import ConstraintError, EmptySetError

Vector = np.ndarray[Any, np.dtype[np.float64]]


def rotated(curvatures: list[float], seed: int = 0) -> Vector:
    """Return a symmetric matrix with these eigenvalues in random axes."""
    axes, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(curvatures), len(curvatures))))
    matrix = axes @ np.diag(curvatures) @ axes.T
    return 0.5 * (matrix + matrix.T)


MATRICES: dict[str, Vector] = {
    "round": np.eye(3),
    "long": rotated([1.0, 4.0, 0.05]),
    "needle": rotated([1.0, 1e6, 1.0, 1e-3]),
    "diagonal, with a free axis": np.diag([2.0, 0.0, 3.0]),
    "equal axes": rotated([2.0, 2.0, 5.0, 5.0, 5.0]),
    "one entry": np.array([[4.0]]),
    "zero": np.zeros((2, 2)),
}
every_matrix = pytest.mark.parametrize("name", MATRICES)
ENTRIES = st.one_of(st.floats(-3.0, 3.0, width=32), st.sampled_from([0.0, 1.0, -1.0, 30.0, -200.0]))


def exact(matrix: Vector, bound: float, action: Vector) -> Vector:
    """Solve (1 + t Q) x = a with x^T Q x = bound for t by bracketing, with another library's root finder."""
    if action @ matrix @ action <= bound:
        return action
    point = lambda t: np.linalg.solve(np.eye(len(action)) + t * matrix, action)  # noqa: E731
    level = lambda t: point(t) @ matrix @ point(t) - bound  # noqa: E731
    end = 1.0
    while level(end) > 0:
        end *= 4.0
    return point(optimize.brentq(level, 0.0, end, xtol=1e-300, rtol=1e-15, maxiter=500))


@every_matrix
@settings(max_examples=25)
@given(data=st.data())
def test_projections_are_those_of_another_root_finder(name: str, data: st.DataObject) -> None:
    matrix = MATRICES[name]
    bound = data.draw(st.floats(1e-2, 10.0))
    action = np.array(data.draw(st.lists(ENTRIES, min_size=len(matrix), max_size=len(matrix))))
    constraint = Ellipsoid(matrix=matrix, bound=bound)
    for dtype in (np.float64, np.float32):
        projected = constraint.project(None, action.astype(dtype))
        assert constraint.violation(None, projected) <= 0
        assert constraint.contains(None, projected)
        assert constraint.project(None, projected).tobytes() == projected.tobytes()
        expected = exact(matrix, bound, action.astype(dtype).astype(np.float64))
        # Across a needle, rounding to float32 alone leaves the set, and the way back is along it.
        share = 1e-4 if name == "needle" and dtype is np.float32 else 2e-6
        np.testing.assert_allclose(projected, expected, rtol=0, atol=share * (1 + np.linalg.norm(action)))


@pytest.mark.parametrize("name", ["long", "diagonal, with a free axis", "equal axes"])
def test_projections_on_the_device_agree_and_are_feasible_in_float64(name: str) -> None:
    matrix = MATRICES[name]
    constraint = Ellipsoid(matrix=matrix, bound=1.3)
    actions = np.random.default_rng(0).normal(scale=3.0, size=(300, len(matrix))).astype(np.float32)
    projected = np.asarray(jax.jit(lambda action: constraint.project(None, action))(actions))
    assert np.all(constraint.violation(None, projected.astype(np.float64)) <= 0)
    assert np.all(constraint.contains(None, projected))
    np.testing.assert_allclose(projected, constraint.project(None, actions), atol=5e-4)
    strict = np.asarray(constraint.project(None, array_api_strict.asarray(actions.astype(np.float64))))
    np.testing.assert_allclose(strict, constraint.project(None, actions), atol=1e-5)


def test_a_round_ellipsoid_is_a_ball() -> None:
    actions = np.random.default_rng(1).normal(size=(50, 3))
    ours = Ellipsoid(matrix=2.0 * np.eye(3), bound=1.0).project(None, actions)
    np.testing.assert_allclose(ours, Ball(radius_squared=0.5).project(None, actions), atol=1e-6)


def test_with_a_box_both_hold_and_no_point_is_nearer() -> None:
    matrix = MATRICES["long"]
    constraint = Ellipsoid(matrix=matrix, bound=1.0) & Box(-0.8 * np.ones(3), np.array([0.5, 1.0, 2.0]))
    rng = np.random.default_rng(2)
    for action in rng.normal(scale=2.0, size=(15, 3)):
        projected = constraint.project(None, action)
        assert constraint.violation(None, projected) <= 0
        found = optimize.minimize(
            lambda x, action=action: 0.5 * np.sum((x - action) ** 2),
            np.zeros(3),
            jac=lambda x, action=action: x - action,
            bounds=[(-0.8, 0.5), (-0.8, 1.0), (-0.8, 2.0)],
            constraints=[
                {"type": "ineq", "fun": lambda x: 1.0 - x @ matrix @ x, "jac": lambda x: -2 * matrix @ x}
            ],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 300},
        )
        np.testing.assert_allclose(projected, found.x, atol=2e-5)


def test_a_matrix_read_from_the_observation_holds_state_by_state() -> None:
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=obs[4])
    rng = np.random.default_rng(3)
    factors = rng.normal(size=(20, 2, 2))
    matrices = factors @ np.swapaxes(factors, -1, -2)
    states = np.concatenate([matrices.reshape(20, 4), rng.uniform(0.1, 2.0, size=(20, 1))], axis=-1)
    actions = rng.normal(scale=3.0, size=(20, 2))
    projected = constraint.project(states, actions)
    assert np.all(constraint.violation(states, projected) <= 0)
    for state, action, point in zip(states, actions, projected, strict=True):
        expected = exact(state[:4].reshape(2, 2), state[4], action)
        np.testing.assert_allclose(point, expected, atol=2e-6 * (1 + np.linalg.norm(action)))
    mapped = jax.jit(jax.vmap(constraint.project))(states.astype(np.float32), actions.astype(np.float32))
    assert np.all(constraint.violation(states, np.asarray(mapped, dtype=np.float64)) <= 0)
    np.testing.assert_allclose(mapped, projected, atol=1e-3)


@pytest.mark.sweep
def test_the_gradient_is_the_derivative_of_the_projection() -> None:
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=obs[4])
    state, action = np.array([*matrix.ravel(), 1.0]), np.array([1.4, -0.9])
    by_action, by_state = jax.jit(jax.jacrev(lambda a, s: constraint.project(s, a), argnums=(0, 1)))(
        jnp.asarray(action), jnp.asarray(state)
    )

    def moved(action: Vector, state: Vector) -> Vector:
        return exact(0.5 * (state[:4].reshape(2, 2) + state[:4].reshape(2, 2).T), state[4], action)

    step = 1e-5
    expected = [(moved(action + e, state) - moved(action - e, state)) / (2 * step) for e in step * np.eye(2)]
    np.testing.assert_allclose(by_action, np.stack(expected, axis=-1), atol=1e-3)
    expected = [(moved(action, state + e) - moved(action, state - e)) / (2 * step) for e in step * np.eye(5)]
    np.testing.assert_allclose(
        np.sum(np.asarray(by_state)[:, 1:3], axis=-1), expected[1] + expected[2], atol=1e-3
    )
    np.testing.assert_allclose(
        np.asarray(by_state)[:, [0, 3, 4]], np.stack(expected, -1)[:, [0, 3, 4]], atol=1e-3
    )
    inside = jax.grad(lambda a: jnp.sum(constraint.project(jnp.asarray(state), a)))(jnp.array([0.1, 0.1]))
    np.testing.assert_allclose(inside, 1.0)


def test_gradients_at_zero_and_on_equal_axes_are_finite() -> None:
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=1.0)
    gradient = jax.grad(lambda s, a: jnp.sum(constraint.project(s, a)), argnums=(0, 1))
    for action in (jnp.zeros(2), jnp.array([3.0, 0.0])):
        assert all(np.all(np.isfinite(part)) for part in gradient(jnp.array([1.0, 0.0, 0.0, 1.0]), action))


def test_distances_end_on_the_surface() -> None:
    constraint = Ellipsoid(matrix=np.diag([4.0, 1.0, 0.0]), bound=1.0)
    assert constraint.distance(None, [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]) == pytest.approx(0.5, rel=1e-5)
    assert constraint.distance(None, [0.0, 0.5, 0.0], [0.0, -1.0, 0.0]) == pytest.approx(1.5, rel=1e-5)
    assert constraint.distance(None, [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]) == np.inf


def test_a_distance_does_not_depend_on_how_an_observed_matrix_is_divided_above_and_below_its_diagonal() -> (
    None
):
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=1.0)
    point, direction = [0.5, 0.0], [0.0, 1.0]
    expected = constraint.distance([1.0, 0.4, 0.4, 1.0], point, direction)
    for above in (0.0, 0.8):
        observation = [1.0, above, 0.8 - above, 1.0]
        assert constraint.distance(observation, point, direction) == pytest.approx(expected, rel=1e-5)


def test_a_distance_ends_where_a_level_without_curvature_leaves_the_set() -> None:
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=1.0)
    for last, end in ((0.0, 0.75), (-0.1, (1.0 - np.sqrt(1.0 - 4 * 0.1 * 0.75)) / 0.2)):
        length = constraint.distance([1.0, 1.0, 1.0, last], [0.5, 0.0], [0.0, 1e200])
        assert length == pytest.approx(end / 1e200, rel=1e-5)
    assert constraint.distance([1.0, 1.0, 1.0, -1.0], [0.5, 0.0], [0.0, 1.0]) == np.inf


def test_a_bound_of_zero_leaves_zero() -> None:
    constraint = Ellipsoid(matrix=rotated([1.0, 3.0]), bound=0.0)
    np.testing.assert_array_equal(constraint.project(None, [1.0, -2.0]), np.zeros(2))
    on_device = jax.jit(lambda action: constraint.project(None, action))(jnp.array([1.0, -2.0]))
    np.testing.assert_array_equal(on_device, np.zeros(2))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"matrix": [[1.0, 2.0], [0.0, 1.0]], "bound": 1.0}, ConstraintError, "not symmetric"),
        ({"matrix": [[1.0, 2.0], [2.0, 1.0]], "bound": 1.0}, ConstraintError, "negative eigenvalue -1"),
        ({"matrix": [[1.0, 2.0]], "bound": 1.0}, ConstraintError, "square"),
        ({"matrix": obs[0:4], "bound": 1.0}, ConstraintError, "reshape"),
        ({"matrix": np.eye(2), "bound": -1.0}, EmptySetError, "negative"),
    ],
)
def test_what_is_no_ellipsoid_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Ellipsoid(**arguments)


def test_a_matrix_that_turns_out_not_convex_is_refused_when_it_is_read() -> None:
    constraint = Ellipsoid(matrix=obs[0:4].reshape(2, 2), bound=1.0)
    with pytest.raises(ConstraintError, match="negative eigenvalue"):
        constraint.project([1.0, 2.0, 2.0, 1.0], [5.0, 5.0])


def test_ellipsoids_survive_json() -> None:
    constraint = Ellipsoid(matrix=rotated([1.0, 2.0]), bound=obs[0])
    again = Constraint.from_json(constraint.to_json())
    np.testing.assert_array_equal(again.project([0.3], [1.0, 2.0]), constraint.project([0.3], [1.0, 2.0]))


@pytest.mark.parametrize("seed", [9, 11, 13, 16, 18])
def test_a_flat_ellipsoid_in_a_thin_and_open_box_is_not_taken_for_empty(seed: int) -> None:
    # Rounding leaves the first axis a curvature of 1e-17, so that the ellipsoid is 1e10 long.
    matrix, rng = rotated([0.0, 0.01, 0.02, 0.05, 0.05, 0.07], seed), np.random.default_rng(seed)
    inside = 30.0 * rng.standard_normal(6)
    low, high = (np.where(rng.random(6) < 0.5, inside + side, side * np.inf) for side in (-0.04, 0.04))
    bound = 1.5 * float(inside @ matrix @ inside)
    constraint = Ellipsoid(matrix, bound) & Box(low, high)
    assert constraint.contains(None, constraint.interior_point())
    assert constraint.contains(None, constraint.project(None, 10.0 * inside))
    moving = Ellipsoid(matrix, obs[0]) & Box(low, high)
    assert moving.contains([[bound], [bound]], moving.interior_point([[bound], [bound]])).all()
