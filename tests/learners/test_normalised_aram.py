"""ARAM on the normalised backbone: targets, preferences, the tuned penalty, and problems with known answers."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners import normalised_aram
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Outcome, Spec
from inbounds.policies.acceptance import accept_first
from inbounds.policies.networks import apply_network
from inbounds.replay import Transition
from tests.learners import probes

SMALL = {"preset": "normalised", "hidden": (16, 16), "batch_size": 32, "proposals": 8}
SPEC = Spec.of(3, -np.ones(2, np.float32), np.ones(2, np.float32), probes.boundary_optimum().task.constraint)
OUTCOME = Outcome(jnp.array([-2.5]), jnp.array([1.0]), jnp.zeros((1, 3)), jnp.array([False]))
LEARNER = Aram(**SMALL)
BINS = normalised_aram.RETURN_BINS


def batch_of(rows=32, seed=0, loops=8):
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(rows, 3))
    reward = np.stack([rng.normal(size=rows), -1.0 * (np.arange(rows) < loops)], axis=-1)
    arrays = (seen, np.tanh(rng.normal(size=(rows, 2))), reward, np.ones(rows), rng.normal(size=(rows, 3)))
    return Transition(*(jnp.asarray(array, jnp.float32) for array in arrays))


@functools.cache
def compiled(learner):
    return jax.jit(lambda now, key: learner.update(now, SPEC, batch_of(), learner.noise(key, SPEC)))


@functools.cache
def first_state(learner):
    return probes.first_state(learner, SPEC)


def updated(learner, state, count=1):
    for key in jax.random.split(jax.random.key(1), count):
        state, metrics = compiled(learner)(state, key)
    return state, metrics


def draw_of(acceptance):
    draw = accept_first(SPEC.constraint, jnp.zeros((1, 3)), jnp.full((1, 1, 2), 0.1))
    return draw._replace(acceptance=jnp.full(1, acceptance))


def certain(place):
    """Return logits (bins + 1,) of a return that is certainly the one of a bin."""
    return jnp.full(102, -100.0).at[place].set(100.0)


def target_of(batch, following, learner=LEARNER):
    state = first_state(learner)
    state = state._replace(
        returns=state.returns._replace(largest=jnp.asarray(4.0), number=jnp.asarray(1.0))
    )  # scale 1
    target = jax.jit(lambda rows: normalised_aram.target_distribution(learner, state, SPEC, rows, following))
    return np.sum(target(batch) * BINS, axis=-1)


def test_a_rejected_proposal_is_worth_what_follows_it_and_a_terminal_step_its_reward():
    batch = batch_of(rows=3, loops=1)._replace(
        reward=jnp.array([[0.5, -1.0], [0.5, 0.0], [-1.0, 0.0]]), not_done=jnp.array([1.0, 1.0, 0.0])
    )
    found = target_of(batch, jnp.broadcast_to(certain(73), (2, 3, 102)))
    expected = 0.5 + 0.99 * BINS[73]
    np.testing.assert_allclose(found, [expected, expected, -1.0], atol=1e-3)


def test_the_target_is_that_of_the_twin_with_the_smaller_return():
    following = jnp.stack([certain(40), certain(60)])[:, None]
    reward = jnp.zeros((1, 2))
    found = target_of(batch_of(rows=1, loops=0)._replace(reward=reward), following)
    np.testing.assert_allclose(found, 0.99 * BINS[40], atol=1e-3)


def test_the_critic_learns_the_return_of_every_row_and_which_rows_were_rejected():
    target = jnp.zeros((2, 101)).at[:, 73].set(1.0)
    right = jnp.stack([certain(73).at[-1].set(100.0), certain(73).at[-1].set(-100.0)])
    is_rejected = jnp.array([True, False])
    assert float(normalised_aram.critic_loss_of(right[None], target, is_rejected)) < 1e-6
    assert float(normalised_aram.critic_loss_of(right[None], target, ~is_rejected)) > 50
    assert float(normalised_aram.critic_loss_of(right[None, :, ::-1], target, is_rejected)) > 50


def test_one_update_moves_all_networks_and_later_ones_the_actor_every_second_time():
    state = first_state(LEARNER)
    actors = [np.asarray(state.params.actor.head.weight)]
    for _ in range(4):
        after, metrics = updated(LEARNER, state)
        assert not np.array_equal(after.params.critic.head.weight, state.params.critic.head.weight)
        assert not np.array_equal(after.target_critic.head.weight, state.target_critic.head.weight)
        assert all(np.isfinite(value) for value in metrics.values())
        state = after
        actors.append(np.asarray(state.params.actor.head.weight))
    moved = [bool(np.any(np.abs(now - before) > 1e-6)) for before, now in itertools.pairwise(actors)]
    assert moved == [True, False, True, False]


@pytest.mark.sweep
def test_weights_keep_unit_columns_while_they_learn():
    state, _ = updated(LEARNER, first_state(LEARNER), count=5)
    norms = np.linalg.norm(state.params.critic.blocks[0].inner.weight, axis=-2)
    np.testing.assert_allclose(norms, 1.0, atol=1e-5)


@pytest.mark.sweep
def test_acting_and_evaluating_leave_moments_alone_and_the_folded_actor_acts():
    state, _ = updated(LEARNER, first_state(LEARNER), count=20)
    seen, preference = batch_of().observation, jnp.array([0.9, 0.1])
    extra = normalised_aram.preference_input(LEARNER, jnp.broadcast_to(preference, (32, 2)))
    expected, _ = normalised_aram.apply_actor(state.params.actor, state.actor_moments, seen, extra, False)
    inputs = LEARNER.with_preference(seen, preference)
    np.testing.assert_allclose(apply_network(LEARNER.actor(state), inputs), expected, atol=2e-5)
    mode = LEARNER.mode(state, SPEC, seen, preference)
    np.testing.assert_allclose(mode, jnp.tanh(expected[:, :2]), atol=2e-5)


def test_preferences_differ_by_row_and_reach_the_values_in_batch_mode():
    noise = jax.jit(lambda key: LEARNER.noise(key, SPEC))(jax.random.key(0))
    np.testing.assert_array_equal(np.sort(np.floor(np.asarray(noise.preference) * 32)), np.arange(32))
    preference = LEARNER.preferences(noise.preference)
    told = np.asarray(normalised_aram.preference_input(LEARNER, preference))
    assert abs(told.mean()) < 0.05 and told.std() == pytest.approx(1.0, abs=0.05)
    state, rows = first_state(LEARNER), jnp.ones((32, 5))
    logits, _ = normalised_aram.twins(
        state.params.critic, state.critic_moments, rows, jnp.asarray(told), True
    )
    assert np.std(logits[0, :, 0]) > 1e-3


@pytest.mark.sweep
def test_a_fixed_preference_is_not_an_input():
    learner = Aram(**SMALL, preference=(0.9, 0.1))
    state, metrics = updated(learner, first_state(learner))
    assert learner.actor(state)[0].weight.shape[0] == 3
    assert np.isfinite(metrics["critic_loss"])


def test_the_target_entropy_is_that_of_the_feasible_set_from_the_first_update_on():
    state = first_state(LEARNER)._replace(feasible_fraction=jnp.array([1.0, 20.0]), updates=jnp.asarray(1))
    assert float(LEARNER.entropy_target(state, SPEC)) == pytest.approx(-1.0 + np.log(0.05), rel=1e-4)


def test_rewards_are_observed_from_the_first_step_on_and_need_no_sign():
    state = first_state(LEARNER)
    for is_random in (True, False):
        state = LEARNER.adapt(state, SPEC, draw_of(0.5), OUTCOME, jnp.asarray(0), is_random=is_random)
    assert float(state.returns.sums[0]) == pytest.approx(-2.5 * 1.99, rel=1e-5)
    assert not LEARNER.needs_positive_rewards
    assert not LEARNER.scales_task


def test_scaled_rewards_give_the_same_learner():
    def learnt(factor):
        state = first_state(LEARNER)
        outcome = OUTCOME._replace(reward=factor * OUTCOME.reward)
        state = LEARNER.adapt(state, SPEC, draw_of(0.5), outcome, jnp.asarray(0), is_random=True)
        batch = batch_of()
        return update(state, batch._replace(reward=batch.reward * jnp.array([factor, 1.0])))

    noise = jax.jit(lambda key: LEARNER.noise(key, SPEC))(jax.random.key(1))
    update = jax.jit(lambda now, batch: LEARNER.update(now, SPEC, batch, noise)[0])
    small, large = learnt(1.0), learnt(1024.0)
    np.testing.assert_allclose(small.params.critic.head.bias, large.params.critic.head.bias, atol=1e-6)


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "steps"),
    [(probes.boundary_optimum, 6_400), (probes.moving_optimum, 14_400)],
    ids=["boundary", "moving"],
)
def test_it_finds_the_best_action_on_the_boundary_and_learns_to_propose_feasible_ones(make, steps):
    probe = make()
    learner = Aram(**{**SMALL, "batch_size": 64}, penalty=1.0, tau=0.02, target_entropy=-2.5)
    learnt = probes.learn(probe, learner, steps)
    # On the moving set, a fixed action that is feasible everywhere loses at least 0.169; two seeds lose 0.06 and 0.08.
    assert learnt.regret(probe) < 0.14
    seen = jnp.asarray(probe.observations)
    drawn = learner.samples(learnt.state, learnt.spec, seen, jnp.array([0.9, 0.1]), jax.random.key(0), 500)
    valid = np.mean(probe.task.constraint.contains(np.asarray(seen)[:, None], np.asarray(drawn)))
    assert valid > 0.7
