"""What ARAM's critics learn from: rewards of several steps, likelihoods instead of values, normalised batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball
from inbounds.errors import ConfigurationError
from inbounds.learners.aram import Aram
from inbounds.learners.aram_update import beliefs, policy_worth, squashed, total_loss, values_of
from inbounds.learners.critics import critic_values
from inbounds.learners.learner import Spec
from inbounds.replay.ring import Layout, Transition, draw_rows
from tests.learners import probes

ONES = np.ones(2, np.float32)
NORMALISED = {"batch_normalised": True, "preference_per_sample": True}
QUICK = {
    "hidden": (32, 32),
    "batch_size": 64,
    "proposals": 16,
    "learning_rate": 3e-3,
    "temperature": 1e-3,
    "gamma": 0.5,
}


def learnt_values(probe, learner, steps):
    """Train on a probe and return the value of each of its observations under the action that does nothing."""
    learnt = probes.learn(probe, learner, steps=steps)
    rows = learner.with_preference(jnp.asarray(probe.observations), jnp.array([0.9, 0.1]))
    outputs = critic_values(learnt.state.trained.critic, rows, jnp.zeros((len(rows), 2)))
    return np.asarray(values_of(learner, learnt.state.scale, outputs))[..., 0].mean(axis=1)


@pytest.mark.learning
@pytest.mark.slow
def test_a_reward_two_steps_ahead_is_learnt_without_asking_the_critics():
    probe = probes.delayed_reward()
    frozen = {**QUICK, "tau": 1e-9}  # a target critic that never moves cannot carry a value back
    blind = learnt_values(probe, Aram(**frozen), 3_200)
    seeing = learnt_values(probe, Aram(**frozen, return_steps=2), 3_200)
    truth = probe.value(0.5)
    np.testing.assert_allclose(seeing, truth, atol=0.12)
    assert np.max(np.abs(blind - truth)) > 0.25


@pytest.mark.learning
@pytest.mark.slow
def test_likelihoods_of_values_have_the_right_mean():
    probe = probes.delayed_reward()
    values = learnt_values(probe, Aram(**QUICK, tau=0.05, value_bins=51), 3_200)
    np.testing.assert_allclose(values, probe.value(0.5), atol=0.15)


@pytest.mark.learning
@pytest.mark.slow
def test_critics_normalised_over_their_batch_learn_a_value_two_steps_ahead_without_a_target_copy():
    probe, learner = probes.delayed_reward(), Aram(**QUICK, **NORMALISED, tau=1e-9)
    learnt = probes.learn(probe, learner, steps=3_200)
    layout = Layout(1, 2, learner.objectives)
    rows = draw_rows(learnt.replay, jax.random.key(0), 1, 1_024, learnt.state.augmented_share[None])[0]
    # The mean of what was learnt, because one preference for a whole batch is not seen.
    batch, preference = layout.unpack(rows), jnp.broadcast_to(jnp.array([0.9, 0.1]), (1_024, 2))
    following = squashed(
        learner,
        learnt.state.trained.actor,
        learnt.spec,
        batch.next_observation,
        preference,
        jax.random.normal(jax.random.key(1), (1_024, 2)),
    )
    critic, state, spec = learnt.state.trained.critic, learnt.state, learnt.spec
    values = beliefs(learner, critic, state, spec, batch, following, preference).now[:, :, 0].mean(axis=1)
    is_real = batch.reward[:, 1] == 0  # a self-loop is worth a step less
    at_each = [np.mean(values[(batch.observation[:, 0] == place) & is_real]) for place in (0.0, 1.0)]
    np.testing.assert_allclose(at_each, probe.value(0.5), atol=0.15)


def some_batch(learner):
    """Return a state, random transitions, noise, and a preference for each of them."""
    spec = Spec.of(3, -ONES, ONES, Ball(1.0))
    keys = iter(jax.random.split(jax.random.key(1), 6))
    count = learner.batch_size
    batch = Transition(
        jax.random.normal(next(keys), (count, 3)),
        jax.random.uniform(next(keys), (count, 2), minval=-1.0, maxval=1.0),
        jax.random.normal(next(keys), (count, 2)),
        jnp.ones(count),
        jax.random.normal(next(keys), (count, 3)),
    )
    noise = learner.noise(next(keys), spec)
    preference = jnp.broadcast_to(learner.preferences(noise.preference), (count, 2))
    return learner.init(jax.random.key(0), spec), spec, batch, noise, preference


def gradient_of_losses(learner, change=lambda state: state):
    """Return the gradient of all losses on random transitions, after a change to the state."""
    state, *others = some_batch(learner)
    state = change(state)
    gradient, _ = jax.grad(total_loss, argnums=1, has_aux=True)(learner, state.trained, state, *others)
    return gradient


def test_normalised_critics_learn_from_the_preference_and_need_no_target_copy():
    learner = Aram(**QUICK, **NORMALISED, least_return_weight=0.0)
    gradient = gradient_of_losses(learner)
    assert np.abs(np.asarray(gradient.critic[0].weight[:, 3:5])).max() > 1e-3
    without = gradient_of_losses(
        learner, lambda state: state._replace(target_critic=jax.tree.map(jnp.zeros_like, state.target_critic))
    )
    for leaf, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(without), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_the_policy_is_judged_relative_to_the_batch_and_teaches_the_critics_nothing():
    learner = Aram(**QUICK, **NORMALISED)
    state, spec, batch, noise, preference = some_batch(learner)

    def judged(trained, action=None):
        drawn = squashed(learner, trained.actor, spec, batch.observation, preference, noise.action)
        following = squashed(
            learner, trained.actor, spec, batch.next_observation, preference, noise.next_action
        )
        believed = beliefs(learner, trained.critic, state, spec, batch, following, preference)
        worth = policy_worth(
            learner,
            trained.critic,
            state,
            batch.observation,
            drawn.value if action is None else action,
            preference,
            noise.candidates,
            believed.moments,
        )
        return worth, believed

    gradient = jax.grad(lambda trained: judged(trained)[0].mean())(state.trained)
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(gradient.critic))
    assert any(np.abs(np.asarray(leaf)).max() > 1e-6 for leaf in jax.tree.leaves(gradient.actor))
    worth, believed = judged(state.trained, spec.box.normalise(batch.action))
    known = jnp.min(jnp.sum(believed.now * preference[:, None], axis=-1), axis=-1)
    np.testing.assert_allclose(worth, known, rtol=1e-4, atol=1e-5)


def test_critics_over_bins_begin_with_a_value_of_zero():
    learner, spec = Aram(**QUICK, value_bins=51), Spec.of(3, -ONES, ONES, Ball(1.0))
    state = learner.init(jax.random.key(0), spec)
    rows = learner.with_preference(jax.random.normal(jax.random.key(1), (5, 3)), jnp.array([0.9, 0.1]))
    outputs = critic_values(state.trained.critic, rows, jnp.zeros((5, 2)))
    np.testing.assert_array_equal(values_of(learner, state.scale, outputs), np.zeros((5, 2, 2)))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"value_bins": 50}, "must be odd"),
        ({"value_bins": 1}, "at least 3"),
        ({"value_bins": 51, "normalise_values": True}, "Drop one of them"),
        ({"value_bins": 51, "critic_loss": "scalarised"}, "critic_loss='componentwise'"),
        ({**NORMALISED, "snapshots": 4}, "snapshots=0"),
        ({**NORMALISED, "policy_preferences": 4}, "policy_preferences=1"),
        ({"batch_normalised": True}, "preference_per_sample=True"),
        ({**NORMALISED, "batch_size": 1}, "Raise batch_size"),
        ({"return_steps": 0}, "1 or more"),
        ({"return_steps": 3, "dual_replay": False}, "dual_replay=True"),
    ],
)
def test_targets_that_cannot_be_learnt_are_refused_with_the_remedy(settings, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        Aram(**settings)
