"""The search for the supremum asks every critic at every preference, though it shares most of the first layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Spec
from inbounds.learners.q_pensieve import best_critic, best_preference, values_at_all
from inbounds.policies.networks import q_values

ONES = np.ones(2, np.float32)
ROWS, OPTIONS, CRITICS = 16, 4, 3


def asked(learner, scale):
    """Return an ensemble of twins with samples to evaluate, and preferences as the learner draws them."""
    shift = None if scale is None else np.array([0.5, -1.0, 3.0], np.float32)
    spec = Spec.of(3, -ONES, ONES, Ball(radius_squared=1.0), shift, scale)
    keys = jax.random.split(jax.random.key(0), CRITICS + 3)
    twins = [learner.init(key, spec).params.critic for key in keys[:CRITICS]]
    ensemble = jax.tree.map(lambda *layers: jnp.stack(layers), *twins)
    observation = 2.0 * jax.random.normal(keys[-1], (ROWS, 3))
    action = jnp.tanh(jax.random.normal(keys[-2], (ROWS, 2)))
    return ensemble, observation, action, learner.preferences(jax.random.uniform(keys[-3], (OPTIONS,)))


def one_by_one(learner, ensemble, observation, action, options):
    """Evaluate every critic at every preference by itself: (critics, twins, options, rows, outputs)."""
    return np.stack(
        [
            np.stack(
                [
                    np.moveaxis(
                        q_values(
                            jax.tree.map(lambda leaf, which=critic: leaf[which], ensemble),
                            learner.with_preference(observation, option),
                            action,
                        ),
                        1,
                        0,
                    )
                    for option in options
                ],
                axis=1,
            )
            for critic in range(CRITICS)
        ]
    )


LEARNER = Aram(hidden=(32, 32), preference_samples=OPTIONS, min_return_weight=0.0)


@pytest.mark.parametrize(
    "scale",
    [pytest.param(None, id="raw", marks=pytest.mark.sweep), np.array([2.0, 0.5, 7.0], np.float32)],
    ids=["raw", "scaled"],
)
def test_every_critic_is_asked_at_every_preference(scale):
    inputs = asked(LEARNER, scale)
    np.testing.assert_allclose(values_at_all(*inputs), one_by_one(LEARNER, *inputs), rtol=1e-4, atol=1e-5)


def test_the_best_preference_of_a_critic_has_its_largest_value():
    ensemble, observation, action, options = asked(LEARNER, None)
    weights = jnp.broadcast_to(options[0], (ROWS, 2))
    values = np.min(
        one_by_one(LEARNER, ensemble, observation, action, options) @ np.asarray(options)[0], axis=1
    )
    found = best_preference(ensemble, observation, action, options, weights)  # (critics, samples, 2)
    distance = np.abs(np.asarray(options)[None, :, None, 0] - np.asarray(found)[:, None, :, 0])
    chosen = np.argmin(distance, axis=1)
    reached = np.take_along_axis(values, chosen[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(reached, values.max(axis=1), atol=1e-6)
    assert len(np.unique(chosen)) > 1


def test_the_supremum_ignores_snapshots_that_were_not_taken() -> None:
    values = jnp.array([[[1.0, 0.0], [1.0, 0.0]], [[9.0, 0.0], [9.0, 0.0]]])
    preference = jnp.array([1.0, 0.0])
    assert float(best_critic(values, preference, jnp.array([True, False]))) == 1.0
    assert float(best_critic(values, preference, jnp.array([True, True]))) == 9.0
