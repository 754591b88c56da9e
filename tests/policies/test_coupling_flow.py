"""Coupling flows: invertible, with the right determinant, and trained to fill the cube."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.networks import init_flow
from inbounds.policies import layers
from inbounds.policies.layers import flow_loss, mask_of, mollified_uniform

to_action, to_latent = jax.jit(layers.to_action), jax.jit(layers.to_latent)
to_action_with_slope = jax.jit(layers.to_action_with_slope)


def random_flow(size, condition, layers=6, seed=0):
    """Return a flow that is far from the identity."""
    flow = init_flow(jax.random.key(seed), size, condition, layers, (16, 16))
    rng = np.random.default_rng(seed + 1)  # of NumPy: JAX compiles a generator for every shape
    return jax.tree.map(lambda leaf: leaf + np.float32(0.3 * rng.standard_normal(leaf.shape)), flow)


# Every size is compiled anew: one without and one with a condition are enough for quick tests.
SIZES = [
    (1, 0),
    pytest.param(2, 0, marks=pytest.mark.slow),
    (3, 3),
    pytest.param(6, 6, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("size", "condition"), SIZES)
def test_each_map_undoes_the_other(size, condition):
    flow = random_flow(size, condition)
    latent = jax.random.uniform(jax.random.key(2), (64, size), minval=-1.0, maxval=1.0)
    seen = jax.random.normal(jax.random.key(3), (64, condition))
    action = to_action(flow, latent, seen)
    assert float(jnp.max(jnp.abs(action - latent))) > 0.1
    back = to_latent(flow, action, seen)
    np.testing.assert_allclose(back.value, latent, atol=2e-4)
    np.testing.assert_allclose(to_action_with_slope(flow, latent, seen).log_slope, -back.log_slope, atol=2e-3)


@pytest.mark.parametrize(("size", "condition"), SIZES)
def test_the_slope_is_the_determinant_of_the_jacobian(size, condition):
    flow = random_flow(size, condition)
    actions = jax.random.normal(jax.random.key(2), (16, size))
    seen = jax.random.normal(jax.random.key(3), (16, condition))
    slopes = to_latent(flow, actions, seen).log_slope
    jacobian = jax.jacfwd(lambda x, y: layers.to_latent(flow, x, y).value)
    jacobians = jax.jit(jax.vmap(jacobian))(actions, seen)
    signs, logarithms = np.linalg.slogdet(np.asarray(jacobians, np.float64))
    np.testing.assert_allclose(slopes, logarithms, atol=1e-3)
    assert np.all(signs > 0)


def test_every_entry_is_moved_by_every_other_layer():
    for size in (2, 3, 5):
        np.testing.assert_array_equal(mask_of(0, size) + mask_of(1, size), 1.0)


def test_a_fresh_flow_is_nearly_the_identity():
    flow = init_flow(jax.random.key(0), 4, 2, 6, (16, 16))
    latent = jax.random.uniform(jax.random.key(1), (32, 4), minval=-1.0, maxval=1.0)
    assert float(jnp.max(jnp.abs(to_action(flow, latent, jnp.zeros((32, 2))) - latent))) < 0.15


def test_the_prior_is_flat_inside_the_cube_and_falls_with_the_distance_outside():
    assert float(mollified_uniform(jnp.asarray([0.3, -1.0]), 0.1)) == 0.0
    assert float(mollified_uniform(jnp.asarray([1.1, -1.2]), 0.1)) == pytest.approx(-0.5 * 3.0**2, rel=1e-4)


def test_the_loss_is_minus_the_likelihood_of_the_samples():
    flow = random_flow(2, 0)
    actions = jax.random.uniform(jax.random.key(4), (8, 2))
    latents = to_latent(flow, actions, jnp.zeros((8, 0)))
    expected = -np.mean(np.asarray(mollified_uniform(latents.value, 0.5) + latents.log_slope))
    assert float(jax.jit(flow_loss)(flow, actions, jnp.zeros((8, 0)), 0.5)) == pytest.approx(
        expected, rel=1e-5
    )
