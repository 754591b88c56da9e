"""The same polytopes where nothing may branch on data: compiled projections are near, strict and differentiable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, Polytope, obs
from inbounds.constraints.quadratic_program import SINGLE
from tests.constraints.polytopes import (
    NSFNET,
    POLYTOPES,
    actions_around,
    answers_of_another_solver,
    constraint_of,
    diameter,
)
from tests.slices import quick_slice

on_device = pytest.mark.parametrize("name", quick_slice(POLYTOPES, ["nsfnet"]))


@functools.cache
def compiled(name: str) -> Callable[..., Any]:
    return jax.jit(lambda action: constraint_of(name).project(None, action))


@on_device
def test_projections_on_the_device_are_within_a_ten_thousandth_of_the_diameter(name: str) -> None:
    actions, expected = answers_of_another_solver(name)
    projected = np.asarray(compiled(name)(actions.astype(np.float32)), dtype=np.float64)
    assert np.max(np.linalg.norm(projected - expected, axis=-1)) <= 1e-4 * diameter(POLYTOPES[name])


def test_no_action_of_a_large_batch_on_the_device_goes_astray_however_far_it_is() -> None:
    rng = np.random.default_rng(0)
    spread = 50.0 * 10.0 ** rng.uniform(-2.0, 2.0, (5_000, 1))
    actions = (20.0 + spread * rng.standard_normal((5_000, 9))).astype(np.float32)
    expected = constraint_of("nsfnet").project(None, actions.astype(np.float64))
    error = np.linalg.norm(np.asarray(compiled("nsfnet")(actions)) - expected, axis=-1)
    assert np.max(error) <= 1e-4 * diameter(POLYTOPES["nsfnet"])


@on_device
def test_projections_on_the_device_are_strictly_feasible_in_float64_too(name: str) -> None:
    constraint = constraint_of(name)
    actions = actions_around(POLYTOPES[name], 12, seed=2).astype(np.float32)
    projected = np.asarray(compiled(name)(actions))
    assert np.all(np.isfinite(projected))
    assert np.all(constraint.violation(None, projected.astype(np.float64)) <= 0)
    assert np.all(constraint.contains(None, projected))
    assert np.asarray(compiled(name)(projected)).tobytes() == projected.tobytes()


@pytest.mark.slow
def test_jit_vmap_and_a_plain_call_agree() -> None:
    constraint = constraint_of("nsfnet")
    actions = actions_around(NSFNET, 3).astype(np.float32)
    together = compiled("nsfnet")(actions)
    mapped = jax.jit(jax.vmap(lambda action: constraint.project(None, action)))(actions)
    np.testing.assert_allclose(mapped, together, atol=2e-3)
    np.testing.assert_allclose(constraint.project(None, jnp.asarray(actions[:2])), together[:2], atol=2e-3)


def test_the_gradient_is_that_of_moving_along_the_active_face() -> None:
    constraint = Polytope([[1.0, 1.0, 0.0]], [1.0]) & Box(-np.ones(3), np.ones(3))
    jacobian = jax.jit(jax.jacrev(lambda action: constraint.project(None, action)))
    # In single precision the normal matrix is softened by this share, and the derivative is off by as much.
    share = 2.0 * SINGLE.softness_of_derivative
    active = np.array([[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(jacobian(jnp.array([0.9, 0.8, 0.3])), active, atol=share)
    np.testing.assert_allclose(
        jacobian(jnp.array([0.9, 0.8, 7.0])), np.diag([1.0, 1.0, 0.0]) @ active, atol=share
    )
    np.testing.assert_allclose(jacobian(jnp.array([0.1, 0.2, 0.3])), np.eye(3), atol=1e-6)


def test_gradients_with_respect_to_the_observation_follow_the_rows() -> None:
    constraint = Polytope(obs[0:2].reshape(1, 2), obs[2]) & Box(-2.0 * np.ones(2), 2.0 * np.ones(2))
    sensitivity = jax.jit(jax.jacrev(lambda state: constraint.project(state, jnp.array([1.5, 1.0]))))
    state = np.array([1.0, 2.0, 1.0])

    def by_hand(state: Any) -> Any:
        normal, bound = state[:2], state[2]
        action = np.array([1.5, 1.0])
        return action - normal * (normal @ action - bound) / (normal @ normal)

    steps = 1e-5 * np.eye(3)
    expected = np.stack([(by_hand(state + step) - by_hand(state - step)) / 2e-5 for step in steps], axis=-1)
    np.testing.assert_allclose(sensitivity(jnp.asarray(state)), expected, atol=2e-3)
