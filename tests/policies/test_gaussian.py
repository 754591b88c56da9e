"""The squashed Gaussian and its density."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from inbounds.constraints import obs
from inbounds.learners.networks import init_network, narrow_around
from inbounds.policies.box import ActionBox
from inbounds.policies.gaussian import Gaussian, before_squashing, gaussian_of, squash
from inbounds.policies.networks import apply_network


def density(action, mean, std):
    return stats.norm.pdf(np.arctanh(action), mean, std) / (1 - action**2)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.8, 0.3), (-1.5, 0.7)])
def test_the_log_density_is_the_change_of_variables(mean, std):
    noise = np.linspace(-2, 2, 9)[:, None]
    drawn = squash(Gaussian(jnp.array([mean]), jnp.log(jnp.array([std]))), jnp.asarray(noise))
    expected = np.log(density(np.tanh(mean + std * noise[:, 0]), mean, std))
    np.testing.assert_allclose(drawn.log_density, expected, rtol=2e-4, atol=2e-4)


def test_the_density_integrates_to_one():
    total, _ = integrate.quad(lambda action: density(action, 0.5, 0.6), -1 + 1e-9, 1 - 1e-9)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_a_saturated_action_keeps_a_finite_density_and_gradient():
    def log_density(mean):
        return squash(Gaussian(mean, jnp.zeros(1)), jnp.zeros(1)).log_density

    assert np.isfinite(log_density(jnp.array([40.0])))
    assert np.isfinite(jax.grad(lambda mean: log_density(mean))(jnp.array([40.0]))).all()


def test_the_scale_is_kept_within_its_range():
    proposal = gaussian_of(jnp.array([0.0, 0.0, -50.0, 50.0]))
    np.testing.assert_array_equal(proposal.log_std, [-20.0, 2.0])


def test_squashing_undoes_before_squashing_inside_the_box():
    box = ActionBox(np.array([0.0, -3.0], np.float32), np.array([2.0, 5.0], np.float32))
    actions = jnp.array([[0.5, 4.0], [1.98, -2.9]])
    again = box.rescale(jnp.tanh(before_squashing(box, actions)))
    np.testing.assert_allclose(again, actions, rtol=1e-4)
    assert np.isfinite(before_squashing(box, jnp.array([2.0, -3.0]))).all()


@pytest.mark.parametrize(
    ("action", "mean"),
    [(obs[1:3], (0.0, 0.0)), (np.array([1.5, 0.0], np.float32), np.arctanh([0.5, -0.25]))],
    ids=["observed", "fixed"],
)
def test_a_narrow_policy_has_the_same_output_everywhere_and_keeps_its_hidden_layers(action, mean):
    box = ActionBox(np.array([0.0, -3.0], np.float32), np.array([2.0, 5.0], np.float32))
    network = init_network(jax.random.key(0), (3, 5, 4))
    narrow = narrow_around(network, box, action)
    proposal = gaussian_of(apply_network(narrow, jax.random.normal(jax.random.key(1), (6, 3))))
    np.testing.assert_allclose(proposal.mean, np.broadcast_to(mean, (6, 2)), rtol=1e-6)
    np.testing.assert_allclose(stats.norm(scale=np.exp(proposal.log_std)).entropy(), -1.0, rtol=1e-5)
    assert narrow[0] is network[0]
