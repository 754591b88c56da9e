"""Every loss against a slow computation that is written out in plain Python."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners import losses

PREFERENCE = np.array([0.7, 0.3])


def slow_target(reward, not_done, twins, preference, log_density, alpha, gamma):
    """Write the target out twin by twin and objective by objective."""
    scalarised = [
        sum(weight * value for weight, value in zip(preference, twin, strict=True)) for twin in twins
    ]
    chosen = twins[scalarised.index(min(scalarised))]
    return [
        r + gamma * not_done * (value - alpha * log_density) for r, value in zip(reward, chosen, strict=True)
    ]


@pytest.mark.parametrize("not_done", [0.0, 1.0])
def test_the_target_takes_the_whole_vector_of_the_smaller_twin(not_done):
    twins = [[1.0, -4.0], [0.5, -1.0]]  # scalarised -0.5 and 0.05: the first twin is the smaller one
    expected = slow_target([2.0, -0.2], not_done, twins, PREFERENCE, -1.3, 0.2, 0.99)
    got = losses.bellman_target(
        jnp.array([2.0, -0.2]),
        jnp.array(not_done),
        jnp.array(twins),
        jnp.array(PREFERENCE),
        jnp.array(-1.3),
        jnp.array(0.2),
        0.99,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_smaller_twin_is_chosen_for_every_transition_of_a_batch_by_itself():
    rng = np.random.default_rng(0)
    twins, reward = rng.normal(size=(64, 2, 2)), rng.normal(size=(64, 2))
    log_density = rng.normal(size=64)
    batched = jax.vmap(losses.bellman_target, (0, None, 0, None, 0, None, None))(
        jnp.asarray(reward),
        jnp.array(1.0),
        jnp.asarray(twins),
        jnp.asarray(PREFERENCE),
        jnp.asarray(log_density),
        jnp.array(0.2),
        0.9,
    )
    expected = [
        slow_target(reward[i], 1.0, twins[i].tolist(), PREFERENCE, log_density[i], 0.2, 0.9)
        for i in range(64)
    ]
    np.testing.assert_allclose(batched, expected, rtol=1e-5, atol=1e-6)


def test_no_gradient_leaves_the_target():
    def through(values):
        return losses.bellman_target(
            jnp.zeros(2),
            jnp.array(1.0),
            values,
            jnp.asarray(PREFERENCE),
            jnp.array(0.0),
            jnp.array(0.1),
            0.99,
        ).sum()

    np.testing.assert_array_equal(jax.grad(through)(jnp.ones((2, 2))), 0.0)


def test_the_critic_loss_weighs_squared_errors():
    got = losses.critic_loss(jnp.array([1.0, 2.0]), jnp.array([0.0, 4.0]), jnp.asarray(PREFERENCE))
    assert float(got) == pytest.approx(0.7 * 1.0 + 0.3 * 4.0)


def test_alpha_rises_when_entropy_is_below_its_target():
    slope = jax.grad(losses.alpha_loss)(jnp.array(0.0), jnp.array(5.0), jnp.array(-3.0))
    assert float(slope) == pytest.approx(-5.0 + 3.0)  # negative: descent raises log alpha
