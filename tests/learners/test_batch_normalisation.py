"""Normalised critics: hidden layers are relative to a batch, which may be another's, and blind to their scale."""

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.learners.batch_normalisation import (
    apply_normalised,
    moments_of,
    values_now_and_next,
    values_relative_to,
)
from inbounds.learners.critics import init_critics
from inbounds.policies.networks import InputScale, init_network

ROWS = jax.random.normal(jax.random.key(1), (64, 5))
OTHERS = 3.0 + 2.0 * jax.random.normal(jax.random.key(2), (64, 5))
CRITICS = init_critics(jax.random.key(3), 2, 5, (16, 16), 2)


def test_every_unit_has_mean_zero_and_deviation_one_over_the_batch():
    mean, deviation = moments_of(OTHERS)
    normalised = np.asarray((OTHERS - mean) / deviation, np.float64)
    np.testing.assert_allclose(normalised.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axis=0), 1.0, atol=1e-3)


def test_a_unit_that_says_the_same_of_every_row_is_left_at_its_bias():
    first, last = init_network(jax.random.key(0), (5, 8, 1))
    first = first._replace(bias=jnp.linspace(-1.0, 1.0, 8))
    outputs, _ = apply_normalised((first, last), jnp.repeat(ROWS[:1], 7, axis=0))
    expected = jax.nn.relu(first.bias) @ last.weight + last.bias
    np.testing.assert_allclose(outputs, np.broadcast_to(expected, (7, 1)), atol=1e-4)


def test_what_the_first_layer_says_may_be_scaled_and_shifted_without_a_difference():
    network = init_network(jax.random.key(0), (5, 8, 1))
    stretched = (network[0]._replace(weight=100.0 * network[0].weight), network[1])
    plain, stretched = (apply_normalised(some, OTHERS)[0] for some in (network, stretched))
    np.testing.assert_allclose(plain, stretched, atol=2e-3)
    moved, _ = apply_normalised(network, OTHERS + 5.0)
    np.testing.assert_allclose(plain, moved, atol=1e-4)


def test_a_bias_moves_a_unit_after_it_is_normalised():
    network = init_network(jax.random.key(0), (5, 8, 1))
    lifted = (network[0]._replace(bias=network[0].bias + 10.0), network[1])
    before, after = (apply_normalised(some, ROWS)[0] for some in (network, lifted))
    assert np.abs(np.asarray(after - before)).max() > 1.0


def test_present_and_following_rows_are_normalised_together():
    now, following, moments = values_now_and_next(CRITICS, ROWS, OTHERS)
    assert now.shape == following.shape == (64, 2, 2)
    alone, _, _ = values_now_and_next(CRITICS, ROWS, ROWS)
    assert np.abs(np.asarray(now - alone)).max() > 0.1
    np.testing.assert_allclose(values_relative_to(CRITICS, moments, ROWS), now, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values_relative_to(CRITICS, moments, ROWS[:3]), now[:3], rtol=1e-4, atol=1e-5)


def test_observations_are_still_seen_relative_to_what_was_measured():
    scale = InputScale(np.full(4, 3.0, np.float32), np.full(4, 2.0, np.float32))
    measured = init_network(jax.random.key(0), (5, 8, 1), scale)
    plain = init_network(jax.random.key(0), (5, 8, 1))
    by_hand = OTHERS.at[:, :4].set((OTHERS[:, :4] - 3.0) / 2.0)
    np.testing.assert_allclose(
        apply_normalised(measured, OTHERS)[0], apply_normalised(plain, by_hand)[0], atol=1e-5
    )
