"""Critics over bins: the probabilities of a target have its mean, and the loss is least where the value is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.value_bins import (
    bin_values,
    categorical_critic_loss,
    expected_values,
    spread_over_bins,
)

BINS = 101


def test_bins_are_symmetric_and_hold_zero():
    values = bin_values(BINS)
    np.testing.assert_array_equal(values, -values[::-1])
    assert values[BINS // 2] == 0.0
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("value", [0.0, 0.3, -0.3, 17.5, -820.0, 5_000.0])
def test_a_value_is_spread_over_two_neighbours_whose_mean_it_is(value):
    probabilities = np.asarray(spread_over_bins(jnp.asarray(value), BINS), np.float64)
    assert np.count_nonzero(probabilities) <= 2
    assert probabilities.sum() == pytest.approx(1.0)
    assert probabilities @ bin_values(BINS) == pytest.approx(value, rel=1e-5, abs=1e-5)


def test_values_beyond_the_last_bin_stop_there():
    assert float(spread_over_bins(jnp.asarray(1e9), BINS)[-1]) == 1.0
    assert float(spread_over_bins(jnp.asarray(-1e9), BINS)[0]) == 1.0


def test_equally_likely_bins_are_worth_nothing():
    np.testing.assert_array_equal(expected_values(jnp.full((4, 2 * BINS), 0.7), BINS), np.zeros((4, 2)))


def test_expected_values_are_the_mean_of_each_objective():
    outputs = jax.random.normal(jax.random.key(0), (5, 3 * BINS))
    logits = np.asarray(outputs, np.float64).reshape(5, 3, BINS)
    weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        expected_values(outputs, BINS), weights @ bin_values(BINS), rtol=1e-4, atol=0.05
    )


def test_following_the_loss_leads_to_the_targets():
    target, preference = jnp.array([12.5, -0.4]), jnp.array([0.9, 0.1])
    outputs = jnp.zeros((2, BINS))
    step = jax.jit(jax.grad(categorical_critic_loss))
    for _ in range(3_000):
        outputs = outputs - 5.0 * step(outputs, target, preference)
    np.testing.assert_allclose(expected_values(outputs.reshape(-1), BINS), target, rtol=0.05, atol=0.05)


def test_an_objective_without_weight_teaches_nothing():
    slope = jax.grad(categorical_critic_loss)(
        jnp.zeros((2, BINS)), jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
    )
    assert np.any(slope[0])
    assert not np.any(slope[1])
