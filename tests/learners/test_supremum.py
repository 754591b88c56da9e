"""The search for the supremum asks every critic at every preference, though it shares most of the first layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball
from inbounds.learners.aram import Aram
from inbounds.learners.aram_update import outputs_at_all, winning_preference
from inbounds.learners.critics import critic_values
from inbounds.learners.learner import Spec
from inbounds.learners.value_scale import unit_scale

ONES = np.ones(2, np.float32)
ROWS, OPTIONS, CRITICS = 16, 4, 3


def asked(learner, scale):
    """Return an ensemble of twins with rows to judge, and preferences as the learner draws them."""
    shift = None if scale is None else np.array([0.5, -1.0, 3.0], np.float32)
    spec = Spec.of(3, -ONES, ONES, Ball(1.0), shift, scale)
    keys = jax.random.split(jax.random.key(0), CRITICS + 3)
    twins = [learner.init(key, spec).trained.critic for key in keys[:CRITICS]]
    ensemble = jax.tree.map(lambda *layers: jnp.stack(layers), *twins)
    observation = 2.0 * jax.random.normal(keys[-1], (ROWS, 3))
    action = jnp.tanh(jax.random.normal(keys[-2], (ROWS, 2)))
    drawn = ROWS if learner.preference_per_sample else 1
    options = learner.preferences(jax.random.uniform(keys[-3], (OPTIONS, drawn)))
    return ensemble, observation, action, jnp.broadcast_to(options, (OPTIONS, ROWS, 2))


def one_by_one(learner, ensemble, observation, action, options):
    """Evaluate every critic at every preference by itself: (critics, twins, options, rows, outputs)."""
    return np.stack(
        [
            np.stack(
                [
                    np.moveaxis(
                        critic_values(
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


@pytest.mark.parametrize("per_sample", [False, True], ids=["one preference a batch", "one a row"])
@pytest.mark.parametrize("scale", [None, np.array([2.0, 0.5, 7.0], np.float32)], ids=["raw", "scaled"])
def test_every_critic_is_asked_at_every_preference(per_sample, scale):
    learner = Aram(
        hidden=(32, 32), policy_preferences=OPTIONS, preference_per_sample=per_sample, least_return_weight=0.0
    )
    inputs = asked(learner, scale)
    expected = one_by_one(learner, *inputs)
    np.testing.assert_allclose(outputs_at_all(learner, *inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_the_winner_is_worth_most_or_as_much_within_the_precision(half):
    learner = Aram(
        hidden=(32, 32), policy_preferences=OPTIONS, half_precision_search=half, least_return_weight=0.0
    )
    ensemble, observation, action, options = asked(learner, None)
    weights = options[0]
    worth = np.min(
        one_by_one(learner, ensemble, observation, action, options) @ np.asarray(weights)[0], axis=1
    )
    found = winning_preference(
        learner, ensemble, unit_scale(2), observation, action, options, weights
    )  # (critics, rows, 2)
    chosen = np.argmin(np.abs(np.asarray(options)[None, :, :, 0] - np.asarray(found)[:, None, :, 0]), axis=1)
    reached = np.take_along_axis(worth, chosen[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(reached, worth.max(axis=1), atol=0.05 if half else 1e-6)
    assert len(np.unique(chosen)) > 1
