"""TD3, its family, and what all learners with a deterministic actor share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box
from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.learners.learner import Outcome, Spec, project_proposals
from inbounds.learners.td3 import Dpre, Td3
from inbounds.policies.networks import q_values
from inbounds.replay import Transition
from tests.learners.probes import boundary_optimum, delayed_reward, learn, moving_optimum

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}


def spec_of(probe):
    task = probe.task
    return Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)


@pytest.mark.learning
@pytest.mark.slow
def test_td3_finds_the_best_action_though_a_better_one_is_out_of_bounds():
    probe = boundary_optimum()
    learnt = learn(probe, Td3(**SMALL), steps=1_600)
    assert learnt.regret(probe) < 0.05
    assert 0 < int(learnt.counters.projections) <= 1_600
    assert int(learnt.counters.projections) == int(learnt.counters.rejections)


@pytest.mark.learning
@pytest.mark.slow
def test_dpre_follows_a_set_that_the_observation_moves_and_stays_close_to_it():
    probe = moving_optimum()
    learnt = learn(probe, Dpre(**SMALL), steps=3_200)
    assert learnt.regret(probe) < 0.05
    outside = np.linalg.norm(learnt.raw_actions(probe) - learnt.actions(probe), axis=-1)
    assert outside.max() < 0.1


@pytest.mark.learning
@pytest.mark.slow
def test_a_value_is_carried_back_over_one_step():
    probe = delayed_reward()
    learnt = learn(probe, Dpre(penalty=0.0, gamma=0.5, **SMALL), steps=1_600)
    observations = jnp.asarray(probe.observations)
    action = learnt.learner.squashed(learnt.state.actor, observations)
    values = q_values(learnt.state.critic, observations, action)[..., 0]
    np.testing.assert_allclose(values, np.broadcast_to(probe.value(0.5)[:, None], values.shape), atol=0.1)


@pytest.mark.parametrize(
    ("learner", "is_raw"), [(Td3(), False), (Dpre(), True), (Dpre(stored="projected"), False)]
)
def test_what_is_stored_is_a_switch(learner, is_raw):
    probe = boundary_optimum()
    spec = spec_of(probe)
    observation, raw = jnp.zeros((2, 1)), jnp.asarray([[1.0, 0.0], [0.1, 0.1]])
    draw = project_proposals(spec.constraint, observation, raw[:, None])
    outcome = Outcome(jnp.ones(2), jnp.zeros(2), observation)
    stored = np.asarray(learner.remember(spec, observation, draw, outcome)["real"].transition.action)
    np.testing.assert_array_equal(stored, raw if is_raw else draw.action)
    assert np.array_equal(stored[1], raw[1])  # what is feasible is stored as it is, either way
    assert not np.array_equal(draw.action[0], raw[0])


def batch_at(observation, action, not_done):
    rows = observation.shape[0]
    return Transition(
        observation, action, jnp.full((rows, 1), 0.5), jnp.full(rows, not_done), observation + 1.0
    )


def test_the_critic_regresses_on_the_less_optimistic_target_critic():
    probe = boundary_optimum()
    spec, learner = spec_of(probe), Td3(hidden=(8,), batch_size=4, gamma=0.9)
    state = learner.init(jax.random.key(0), spec)
    batch = batch_at(jnp.zeros((4, 1)), jnp.full((4, 2), 0.1), not_done=1.0)
    following = jnp.full((4, 2), 0.3)
    loss, _ = learner.critic_loss(state.critic, state, spec, batch, following)
    target = 0.5 + 0.9 * q_values(state.target_critic, batch.next_observation, following)[..., 0].min(axis=1)
    values = q_values(state.critic, batch.observation, batch.action)[..., 0]
    assert float(loss) == pytest.approx(
        float(jnp.mean(jnp.sum((values - target[:, None]) ** 2, axis=1))), rel=1e-5
    )


def test_the_target_action_is_smoothed_and_clipped_but_not_projected():
    probe = boundary_optimum()
    spec, learner = spec_of(probe), Td3(hidden=(8,), batch_size=64)
    state = learner.init(jax.random.key(0), spec)
    noise = learner.noise(jax.random.key(1), spec)
    assert float(jnp.abs(noise).max()) == 0.5
    observation = jnp.zeros((64, 1))
    target = learner.target_action(state, spec, observation, 3.0 * noise).value
    expected = np.clip(np.asarray(learner.squashed(state.target_actor, observation) + 3.0 * noise), -1.0, 1.0)
    np.testing.assert_allclose(target, expected)
    assert not np.all(spec.constraint.contains(observation, target))


def test_actor_and_targets_wait_for_their_turn():
    probe = boundary_optimum()
    spec, learner = spec_of(probe), Td3(hidden=(8,), batch_size=4, policy_delay=2)
    state = learner.init(jax.random.key(0), spec)
    batch = batch_at(jnp.zeros((4, 1)), jnp.full((4, 2), 0.1), not_done=0.0)
    noise = learner.noise(jax.random.key(1), spec)
    step = jax.jit(lambda now: learner.update(now, spec, batch, noise)[0])
    first, second = step(state), step(step(state))

    def is_same(left, right):
        return all(
            np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
        )

    assert is_same(first.actor, state.actor) and is_same(first.target_critic, state.target_critic)
    assert not is_same(first.critic, state.critic)
    assert not is_same(second.actor, first.actor) and not is_same(second.target_critic, first.target_critic)


@pytest.mark.slow
def test_exploration_noise_is_a_share_of_half_the_box():
    """A box of half width 4 around 1: a tenth of the range that the network sees is 0.4 in the environment's units."""
    low, high = np.full(2, -3.0, np.float32), np.full(2, 5.0, np.float32)
    spec, learner = Spec.of(1, low, high, Box(low, high)), Td3(hidden=(8,), exploration=0.1)
    states = jax.vmap(lambda key: learner.init(key, spec))(jax.random.split(jax.random.key(0), 1))
    observation, keys = jnp.ones((1, 4_000, 1)), jax.random.split(jax.random.key(1), 1)
    draw = learner.act(states, spec, observation, jnp.zeros((1, 4_000, 0)), keys, is_random=False)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    centre = learner.mode(state, spec, observation[0], jnp.ones(2))
    moved = np.asarray(draw.action[0] - centre)
    np.testing.assert_allclose(moved.std(axis=0), 0.4, rtol=0.05)
    np.testing.assert_allclose(moved.mean(axis=0), 0.0, atol=0.03)
    uniform = learner.act(states, spec, observation, jnp.zeros((1, 4_000, 0)), keys, is_random=True).action[0]
    np.testing.assert_allclose([uniform.min(), uniform.max(), uniform.mean()], [-3.0, 5.0, 1.0], atol=0.1)


def test_valid_rates_are_measured_without_noise():
    probe = boundary_optimum()
    spec, learner = spec_of(probe), Td3(hidden=(8,))
    state = learner.init(jax.random.key(0), spec)
    observation = jnp.ones((3, 1))
    drawn = learner.samples(state, spec, observation, jnp.ones(2), jax.random.key(1), 5)
    raw = learner.mode(state, spec, observation, jnp.ones(2))
    np.testing.assert_array_equal(drawn, np.broadcast_to(np.asarray(raw)[:, None], (3, 5, 2)))


def test_presets_are_named_and_explicit_settings_win():
    assert Dpre(preset="kasaura").hidden == (400, 300)
    assert Dpre(preset="kasaura", hidden=(8,)).hidden == (8,)
    assert Dpre(preset="paper").batch_size == 256
    with pytest.raises(UnknownNameError, match="kasaura"):
        Td3(preset="kasaur")


@pytest.mark.parametrize("settings", [{"policy_delay": 0}, {"critics": 0}, {"exploration": -0.1}])
def test_settings_that_cannot_learn_are_refused(settings):
    with pytest.raises(ConfigurationError, match="must"):
        Td3(**settings)
