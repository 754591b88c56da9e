"""The readings of the paper in benchmarks/lab/readings.py: a balanced design, and what single readings change."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.lab import readings
from inbounds.learners import losses
from inbounds.policies.networks import q_values
from inbounds.replay import Transition
from tests.learners import probes
from tests.learners.test_aram import OUTCOME, SMALL, SPEC, one_draw

SEEN = jnp.full((1, 3), 7.0)


def levels():
    return 2 * np.array(readings.design()) - 1


def test_every_factor_and_every_pair_of_factors_is_balanced():
    signs = levels()
    assert len(set(map(tuple, signs))) == len(signs) == 16
    assert not signs.sum(axis=0).any()
    np.testing.assert_array_equal(signs.T @ signs, 16 * np.eye(len(readings.FACTORS)))


def test_no_main_effect_is_mixed_with_a_pair_of_factors():
    signs = levels()
    for first, second in itertools.combinations(range(signs.shape[1]), 2):
        assert not (signs.T @ (signs[:, first] * signs[:, second])).any()


def test_main_effects_are_found_again():
    """A response of known effects, an interaction of two factors among them, gives these effects back."""
    responses = {one: 3.0 * one[1] - 2.0 * one[6] + 5.0 * (one[0] == one[2]) for one in readings.design()}
    effects = readings.main_effects(responses)
    assert effects.pop("eta-decay") == 3.0
    assert effects.pop("critic-loss") == -2.0
    assert set(effects.values()) == {0.0}


def test_every_reading_can_be_made_and_differs_from_the_others():
    cells = list(readings.cells())
    made = {readings.ReadingAram(**dict(cell.settings)) for cell in cells}
    assert len(made) == 16
    assert len(cells) == 16 * len(readings.TASKS)


def test_the_published_fallback_keeps_the_proposal_and_its_penalty():
    rejected, accepted = one_draw([(0.9, 0.0), (0.0, 0.8)]), one_draw([(0.9, 0.0), (0.1, 0.1)])
    learner = readings.ReadingAram(stores_proposals=True, penalty=0.3, **SMALL)
    real = learner.remember(SPEC, SEEN, rejected, OUTCOME)["real"].transition
    np.testing.assert_array_equal(real.action, np.float32([[0.0, 0.8]]))
    np.testing.assert_array_equal(real.reward, np.float32([[2.5, -0.3]]))
    real = learner.remember(SPEC, SEEN, accepted, OUTCOME)["real"].transition
    np.testing.assert_array_equal(real.action, np.float32([[0.1, 0.1]]))
    np.testing.assert_array_equal(real.reward, np.float32([[2.5, 0.0]]))


def test_the_error_of_the_weighted_sum_lets_objectives_cancel():
    values, target, preference = jnp.array([3.0, 1.0]), jnp.array([2.0, 2.0]), jnp.array([0.5, 0.5])
    assert losses.critic_loss(values, target, preference) == 1.0
    assert readings.weighted_error(values, target, preference) == 0.0


@pytest.mark.parametrize("weighs", [False, True])
def test_the_critics_minimise_the_error_that_is_chosen(weighs):
    learner = readings.ReadingAram(weighs_errors=weighs, **SMALL)
    state, noise = probes.first_state(learner, SPEC), learner.noise(jax.random.key(0), SPEC)
    rows = learner.batch_size
    reward = jnp.stack([jnp.full(rows, 4.0), jnp.full(rows, -1.0)], axis=-1)
    batch = Transition(
        jnp.zeros((rows, 3)), jnp.zeros((rows, 2)), reward, jnp.zeros(rows), jnp.zeros((rows, 3))
    )
    found = learner.loss(state.params, state, SPEC, batch, noise)[1]["critic_loss"]
    preference = learner.preferences(noise.preference)[0]
    seen = learner.with_preference(batch.observation, jnp.broadcast_to(preference, (rows, 2)))
    q = q_values(state.params.critic, seen, batch.action)
    target = reward[0] * jnp.array([1.0, learner.penalty])  # episodes end with this step
    error = readings.weighted_error if weighs else losses.critic_loss
    wanted = jnp.mean(
        jnp.sum(jax.vmap(jax.vmap(error, (0, None, None)), (0, None, None))(q, target, preference), axis=1)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert losses.critic_loss is not readings.weighted_error
