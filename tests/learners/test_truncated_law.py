"""The law of what acts: the policy restricted to C(s), its density and the gradient of its entropy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import inbounds as ib
from inbounds.learners.learner import Spec
from inbounds.learners.truncated_law import truncated
from inbounds.policies.networks import init_network

LIMIT = 0.4
SETTINGS = ib.Aram(entropy_of="truncated")
ACTOR = init_network(jax.random.key(0), (3, 2))
SPEC = Spec.of(
    1, np.array([-1.0], np.float32), np.array([1.0], np.float32), ib.Box(np.array([-1.0]), np.array([LIMIT]))
)


def drawn(parameters: jax.Array, draws: int, rows: int) -> object:
    (layer,) = ACTOR
    actor = (layer._replace(weight=0.0 * layer.weight, bias=parameters),)
    noise = jax.random.normal(jax.random.key(1), (draws, rows, 1))
    return truncated(
        SETTINGS, actor, SPEC, jnp.zeros((rows, 1)), jnp.broadcast_to(jnp.array([0.9, 0.1]), (rows, 2)), noise
    )


def exact_mean_log_density(mean: float, log_deviation: float) -> float:
    """Integrate E_{pi_C}[log pi_C] for a squashed Gaussian cut at the limit."""
    normal = stats.norm(mean, np.exp(log_deviation))
    edge = np.arctanh(LIMIT)
    share = normal.cdf(edge)

    def weighted(x: float) -> float:
        log_density = normal.logpdf(x) - np.log(1 - np.tanh(x) ** 2) - np.log(share)
        return float(normal.pdf(x) / share * log_density)

    return float(integrate.quad(weighted, mean - 12 * np.exp(log_deviation), edge, limit=200)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "deviation"), [(0.2, 0.5), (-0.5, 0.3), (0.6, 0.4)])
def test_density_and_gradient_are_those_of_the_restricted_law(mean: float, deviation: float) -> None:
    parameters = jnp.array([mean, np.log(deviation)])

    def entropy(values: jax.Array) -> jax.Array:
        return jnp.mean(drawn(values, draws=64, rows=4_000).acting.log_density)

    value, gradient = jax.value_and_grad(entropy)(parameters)
    exact = exact_mean_log_density(mean, np.log(deviation))
    step = 1e-4
    slopes = [
        (
            exact_mean_log_density(mean + step * one, np.log(deviation) + step * other)
            - exact_mean_log_density(mean - step * one, np.log(deviation) - step * other)
        )
        / (2 * step)
        for one, other in ((1, 0), (0, 1))
    ]
    assert value == pytest.approx(exact, abs=0.05)
    np.testing.assert_allclose(gradient, slopes, atol=0.03)


def test_the_draw_that_acts_is_feasible_and_the_raw_one_need_not_be() -> None:
    found = drawn(jnp.array([0.5, 0.0]), draws=64, rows=500)
    assert jnp.all(found.acting.value <= LIMIT)
    assert jnp.any(found.raw > LIMIT)


def test_where_nothing_is_feasible_the_first_draw_stands_in_with_finite_numbers() -> None:
    found = drawn(jnp.array([3.0, -5.0]), draws=8, rows=16)
    np.testing.assert_array_equal(found.acting.value, found.raw)
    assert jnp.all(jnp.isfinite(found.acting.log_density))


def test_without_a_boundary_nearby_the_law_is_that_of_the_policy() -> None:
    found = drawn(jnp.array([-1.5, -2.0]), draws=8, rows=16)
    np.testing.assert_array_equal(found.acting.value, found.raw)
