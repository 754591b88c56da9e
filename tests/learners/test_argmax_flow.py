"""Argmax flows: what explains an action really has that argmax, and its weight is the action's probability."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.iar import (
    drawn_levels,
    explained,
    init_argmax_flow,
    log_density_bounds,
    log_normal,
    log_numbers,
)

ENTRIES, LEVELS = 2, 3
SIZE = ENTRIES * LEVELS


@functools.cache
def random_policy(seed=0, entries=ENTRIES, levels=LEVELS):
    """Return a policy that is far from uniform."""
    policy = init_argmax_flow(jax.random.key(seed), 2, entries, levels, (8,), layers=2, posterior_layers=2)
    rng = np.random.default_rng(seed + 1)  # of NumPy: JAX compiles a generator for every shape
    return jax.tree.map(lambda leaf: leaf + np.float32(0.2 * rng.standard_normal(leaf.shape)), policy)


OBSERVATION = np.float32([0.3, -0.7])


def noise(seed, count):
    return jax.random.normal(jax.random.key(seed), (count, SIZE))


def spread(count):
    return jnp.broadcast_to(OBSERVATION, (count, 2))


def test_numbers_that_explain_an_action_have_its_argmax():
    level = jax.random.randint(jax.random.key(5), (500, ENTRIES), 0, LEVELS)
    numbers = explained(random_policy(), spread(500), level, noise(6, 500), LEVELS).numbers
    np.testing.assert_array_equal(jnp.argmax(numbers.reshape(500, ENTRIES, LEVELS), axis=-1), level)


@pytest.mark.sweep
def test_the_density_of_an_explanation_follows_from_its_jacobian():
    level = jnp.asarray([2, 0])
    draws = noise(7, 16)
    found = explained(random_policy(), spread(16), jnp.broadcast_to(level, (16, ENTRIES)), draws, LEVELS)
    jacobian = jax.vmap(
        jax.jacfwd(lambda one: explained(random_policy(), OBSERVATION, level, one, LEVELS).numbers)
    )(draws)
    logarithm = np.linalg.slogdet(np.asarray(jacobian, np.float64)).logabsdet
    np.testing.assert_allclose(found.log_density, np.asarray(log_normal(draws)) - logarithm, atol=2e-3)


def probability_by_quadrature(policy, observation):
    """Integrate p(v|s) of one entry with two levels over the half plane in which the first level is larger."""
    ticks = np.linspace(-14.0, 14.0, 701)
    grid = jnp.asarray(
        np.stack(np.meshgrid(ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 2), jnp.float32
    )
    density = jax.jit(lambda v: jnp.exp(log_numbers(policy, jnp.broadcast_to(observation, v.shape), v)))(grid)
    cells = np.asarray(density, np.float64).reshape(701, 701) * (ticks[1] - ticks[0]) ** 2
    # The diagonal belongs to both halves.
    return np.tril(cells, -1).sum() + 0.5 * np.trace(cells), cells.sum()


@pytest.mark.sweep
def test_the_density_of_the_numbers_integrates_to_the_probability_of_their_argmax():
    policy = random_policy(seed=5, entries=1, levels=2)
    probability, everything = probability_by_quadrature(policy, OBSERVATION)
    assert everything == pytest.approx(1.0, abs=1e-3)
    draws = jax.random.normal(jax.random.key(8), (50_000, 2))
    level = drawn_levels(policy, spread(50_000), draws, 2)
    assert np.mean(np.asarray(level) == 0) == pytest.approx(probability, abs=0.01)


@pytest.mark.sweep
@pytest.mark.parametrize("action", [0, 1])
def test_the_bounds_enclose_the_probability(action):
    policy = random_policy(seed=5, entries=1, levels=2)
    first, _ = probability_by_quadrature(policy, OBSERVATION)
    probability = np.log(first if action == 0 else 1.0 - first)
    draws = jax.random.normal(jax.random.key(9), (20_000, 2))
    bounds = log_density_bounds(policy, OBSERVATION, jnp.asarray([action]), draws, 2)
    assert float(bounds.lower) < probability + 0.01
    assert float(bounds.upper) > probability - 0.01
    assert float(bounds.middle) == pytest.approx(0.5 * float(bounds.lower + bounds.upper), rel=1e-6)


def test_a_fresh_policy_tries_every_action():
    policy = init_argmax_flow(jax.random.key(3), 2, ENTRIES, LEVELS, (8,), layers=2, posterior_layers=1)
    level = np.asarray(drawn_levels(policy, spread(5_000), noise(4, 5_000), LEVELS))
    shares = np.bincount(level @ [LEVELS, 1], minlength=9) / 5_000
    assert shares.min() > 0.05 and shares.max() < 0.2
