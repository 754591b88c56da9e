"""ARAM: what it remembers, how its supremum is taken, and that it solves problems with known answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from inbounds.errors import UnknownNameError
from inbounds.learners import q_pensieve
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Outcome, Spec
from inbounds.learners.registry import make_learner, name_of
from inbounds.policies.acceptance import accept_first
from inbounds.policies.gaussian import squash
from inbounds.policies.networks import InputScale, q_values
from inbounds.replay import Transition
from tests.learners import probes

SMALL = {"hidden": (32, 32), "batch_size": 64, "proposals": 16}
SPEC = Spec.of(3, -np.ones(2, np.float32), np.ones(2, np.float32), probes.boundary_optimum().task.constraint)


def random_batch(rows=64, seed=0):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return Transition(
        normal(rows, 3),
        jnp.tanh(normal(rows, 2)),
        normal(rows, 2),
        jnp.asarray(rng.random(rows) < 0.9, jnp.float32),
        normal(rows, 3),
    )


def one_update(learner, state):
    return jax.jit(lambda now, key: learner.update(now, SPEC, random_batch(), learner.noise(key, SPEC)))(
        state, jax.random.key(1)
    )


def one_draw(proposals):
    rows = jnp.asarray([proposals], jnp.float32)
    return accept_first(SPEC.constraint, jnp.full((1, 3), 7.0), rows)


OUTCOME = Outcome(jnp.array([2.5]), jnp.array([1.0]), jnp.full((1, 3), 8.0))


def self_loops_of(learner, outcome):
    draw = one_draw([(0.9, 0.9), (0.8, 0.1), (0.1, 0.1), (0.9, 0.0)])
    memory = learner.remember(SPEC, jnp.full((1, 3), 7.0), draw, outcome)["augmented"]
    np.testing.assert_array_equal(memory.mask, [True, True, False, False])
    loops = jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(memory.mask)], memory.transition)
    np.testing.assert_array_equal(loops.action, np.float32([(0.9, 0.9), (0.8, 0.1)]))
    np.testing.assert_array_equal(loops.observation, 7.0)
    return loops


def test_in_the_paper_every_rejected_proposal_becomes_a_self_loop_that_pays_the_penalty():
    loops = self_loops_of(Aram(preset="paper", penalty=0.3), OUTCOME._replace(not_done=jnp.zeros(1)))
    np.testing.assert_array_equal(loops.reward, np.float32([[0.0, -0.3]] * 2))
    np.testing.assert_array_equal(loops.next_observation, 7.0)
    np.testing.assert_array_equal(loops.not_done, 1.0)


@pytest.mark.parametrize("not_done", [0.0, 1.0])
def test_by_default_a_rejected_proposal_leads_to_where_the_executed_action_led(not_done):
    loops = self_loops_of(Aram(**SMALL), OUTCOME._replace(not_done=jnp.full(1, not_done)))
    np.testing.assert_array_equal(loops.reward, np.float32([[2.5, -1.0]] * 2))
    np.testing.assert_array_equal(loops.next_observation, 8.0)
    np.testing.assert_array_equal(loops.not_done, not_done)


@pytest.mark.parametrize("preference", [None, (0.75, 0.25)], ids=["all preferences", "one preference"])
def test_critics_of_followed_self_loops_learn_the_return_and_the_present_penalty_of_the_proposal(preference):
    learner = Aram(preference=preference, gamma=0.8, alpha=0.1, **SMALL)
    state = probes.first_state(learner, SPEC)._replace(penalty=jnp.asarray(7.0))
    batch, noise = random_batch(), learner.noise(jax.random.key(9), SPEC)
    is_rejected = np.arange(64) < 5
    reward = np.stack([np.linspace(-1.0, 1.0, 64), -1.0 * is_rejected], axis=-1)
    batch = batch._replace(reward=jnp.asarray(reward, jnp.float32))
    loss = jax.jit(lambda now, rows: learner.loss(now.params, now, SPEC, rows, noise)[1]["critic_loss"])

    weights = np.broadcast_to(learner.preferences(noise.preference), (64, 2))
    policy = learner.policy(state.params.actor, SPEC, batch.next_observation, jnp.asarray(weights))
    after = squash(policy, noise.next_action)
    following = np.asarray(
        q_values(state.target_critic, learner.with_preference(batch.next_observation, weights), after.value)
    )
    smaller = np.argmin(np.sum(following * weights[:, None], axis=-1), axis=1)
    value = following[np.arange(64), smaller, 0] - 0.1 * np.asarray(after.log_density)
    target = np.stack([reward[:, 0] + 0.8 * np.asarray(batch.not_done) * value, -7.0 * is_rejected], axis=-1)
    q = q_values(state.params.critic, learner.with_preference(batch.observation, weights), batch.action)
    errors = np.sum(weights[:, None] * (np.asarray(q) - target[:, None]) ** 2, axis=(1, 2))
    assert float(loss(state, batch)) == pytest.approx(errors.mean(), rel=1e-4)


def test_a_feasible_action_is_remembered_with_its_reward_and_no_penalty():
    real = (
        Aram(**SMALL)
        .remember(SPEC, jnp.full((1, 3), 7.0), one_draw([(0.1, 0.1)]), OUTCOME)["real"]
        .transition
    )
    np.testing.assert_array_equal(real.reward, [[2.5, 0.0]])
    np.testing.assert_array_equal(real.next_observation, 8.0)


def test_after_a_fallback_the_projected_action_is_the_real_one():
    draw = one_draw([(0.9, 0.0), (0.0, 0.8)])
    memory = Aram(**SMALL).remember(SPEC, jnp.full((1, 3), 7.0), draw, OUTCOME)
    np.testing.assert_allclose(memory["real"].transition.action, [[0.0, 0.5]], atol=1e-5)
    np.testing.assert_array_equal(memory["real"].transition.reward, [[2.5, 0.0]])
    assert memory["augmented"].mask.all()


def test_a_single_buffer_holds_both_kinds_of_transition():
    draw = one_draw([(0.9, 0.9), (0.1, 0.1)])
    learner = Aram(dual_replay=False, **SMALL)
    memory = learner.remember(SPEC, jnp.full((1, 3), 7.0), draw, OUTCOME)
    assert learner.buffers == ("real",) and list(memory) == ["real"]
    np.testing.assert_array_equal(memory["real"].mask, [True, True, False])


def gradient_of(learner, state, batch):
    noise = learner.noise(jax.random.key(9), SPEC)
    gradient = jax.grad(learner.loss, has_aux=True)(state.params, state, SPEC, batch, noise)[0]
    return gradient, noise, learner.preferences(noise.preference)[0]


def with_random_snapshots(learner, state):
    rng = np.random.default_rng(5)
    stored = state.snapshots.critics
    critics = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0.0, 0.3, leaf.shape), jnp.float32), stored)
    return state._replace(snapshots=q_pensieve.Snapshots(critics, jnp.asarray(learner.q_snapshots)))


@pytest.mark.sweep
def test_searching_first_gives_the_actor_gradient_of_the_full_supremum():
    learner = Aram(preference_samples=4, q_snapshots=3, alpha=0.2, **SMALL)
    state = with_random_snapshots(learner, probes.first_state(learner, SPEC))
    batch = random_batch()
    fast, noise, preference = gradient_of(learner, state, batch)

    def naive(actor):
        drawn = squash(learner.policy(actor, SPEC, batch.observation, preference), noise.action)
        candidates = [preference, *learner.preferences(noise.candidates)[:, 0]]
        found = []
        for option in candidates:
            rows = learner.with_preference(batch.observation, option)
            for critic in range(4):
                network = jax.tree.map(
                    lambda now, then, which=critic: now if which == 0 else then[which - 1],
                    state.params.critic,
                    state.snapshots.critics,
                )
                values = q_values(network, rows, drawn.value)
                found.append(jnp.min(values @ preference, axis=-1))
        return jnp.mean(0.2 * drawn.log_density - jnp.max(jnp.stack(found), axis=0))

    slow = jax.grad(naive)(state.params.actor)
    for quick, full in zip(jax.tree.leaves(fast.actor), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(quick, full, rtol=1e-4, atol=1e-6)


@pytest.mark.sweep
def test_snapshots_that_were_not_taken_do_not_count():
    learner = Aram(q_snapshots=3, alpha=0.2, **SMALL)
    plain = Aram(alpha=0.2, **SMALL)
    state = probes.first_state(learner, SPEC)
    filled = with_random_snapshots(learner, state)
    early = filled._replace(snapshots=filled.snapshots._replace(taken=jnp.asarray(0)))
    fast, _, _ = gradient_of(learner, early, random_batch())
    expected, _, _ = gradient_of(plain, probes.first_state(plain, SPEC), random_batch())
    np.testing.assert_allclose(fast.actor[0].weight, expected.actor[0].weight, rtol=1e-5, atol=1e-7)


@pytest.mark.sweep
def test_snapshots_that_were_not_taken_leave_gradients_finite_where_observations_are_scaled():
    scale = InputScale(np.zeros(3, np.float32), np.full(3, 10.0, np.float32))
    spec = SPEC._replace(inputs=scale)
    learner = Aram(q_snapshots=2, **SMALL)
    noise = learner.noise(jax.random.key(1), spec)
    update = jax.jit(lambda state: learner.update(state, spec, random_batch(), noise)[0])
    after = update(probes.first_state(learner, spec))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(after.params))


def test_a_snapshot_is_taken_before_the_step_after_its_time_and_the_oldest_is_dropped(monkeypatch):
    monkeypatch.setattr(q_pensieve, "SNAPSHOT_START", 3)
    monkeypatch.setattr(q_pensieve, "SNAPSHOT_INTERVAL", 2)
    learner = Aram(q_snapshots=2, **SMALL)
    state = probes.first_state(learner, SPEC)
    update = jax.jit(
        lambda state, key: learner.update(state, SPEC, random_batch(), learner.noise(key, SPEC))[0]
    )
    draw = one_draw([(0.1, 0.1)])
    critics, stored, first = {}, {}, np.asarray(state.params.critic[0].weight)
    for turn in range(1, 10):
        state = update(state, jax.random.key(turn))
        critics[turn] = np.asarray(state.params.critic[0].weight)
        state = learner.adapt(state, SPEC, draw, OUTCOME, jnp.asarray(turn), is_random=False)
        stored[turn] = np.asarray(state.snapshots.critics[0].weight)
    np.testing.assert_array_equal(stored[4], np.stack([first, first]))
    np.testing.assert_array_equal(stored[5][0], critics[5])
    np.testing.assert_array_equal(stored[6][0], critics[5])
    np.testing.assert_array_equal(stored[9], np.stack([critics[9], critics[7]]))
    assert state.snapshots.taken == 3


def test_several_updates_between_two_steps_take_one_snapshot_that_counts_once(monkeypatch):
    monkeypatch.setattr(q_pensieve, "SNAPSHOT_START", 0)
    monkeypatch.setattr(q_pensieve, "SNAPSHOT_INTERVAL", 2)
    learner = Aram(q_snapshots=2, **SMALL)
    state = with_random_snapshots(learner, probes.first_state(learner, SPEC))
    before = state.snapshots._replace(taken=jnp.asarray(0))
    after = q_pensieve.take_snapshot(before, state.params.critic, jnp.asarray(16))
    critic, stored, last = (part[0].weight for part in (state.params.critic, after.critics, before.critics))
    np.testing.assert_array_equal(stored, np.stack([critic, last[0]]))
    assert after.taken == 1


@pytest.mark.parametrize(
    "learner", [Aram(**SMALL), Aram(preference=(0.9, 0.1), **SMALL)], ids=["aram", "sosac"]
)
def test_one_update_moves_actor_critics_target_and_alpha(learner):
    state = probes.first_state(learner, SPEC)
    after, metrics = one_update(learner, state)
    for before, now in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        assert not np.array_equal(before, now)
    assert not np.array_equal(state.target_critic[0].weight, after.target_critic[0].weight)
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_fixed_alpha_does_not_move():
    learner = Aram(alpha=0.2, **SMALL)
    state = probes.first_state(learner, SPEC)
    after, metrics = one_update(learner, state)
    assert float(after.params.log_alpha) == float(state.params.log_alpha)
    assert float(metrics["alpha"]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("settings", "is_recorded"),
    [
        ({}, True),
        ({"eta_decay": 0.9}, True),
        ({"dual_replay": False}, False),
        ({"self_loops": "none"}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("preset", ["default", "normalised"])
def test_metrics_record_eta_wherever_self_loops_have_a_buffer_of_their_own(preset, settings, is_recorded):
    learner = Aram(preset, **{**SMALL, **settings})

    def metrics_of(key):
        return learner.update(
            learner.init(key, SPEC), SPEC, random_batch(), learner.noise(jax.random.key(1), SPEC)
        )[1]

    assert ("eta" in jax.eval_shape(metrics_of, jax.random.key(0))) == is_recorded


def test_eta_follows_the_paper_schedule():
    paper = Aram(preset="paper", hidden=(8,))
    state = probes.first_state(paper, SPEC)
    eta = []
    for step in (0, 9_999, 10_000, 380_000):
        state = paper.adapt(state, SPEC, one_draw([(0.1, 0.1)]), OUTCOME, jnp.asarray(step), is_random=False)
        eta.append(float(paper.batch_fractions(state, SPEC, jnp.asarray(step))[0]))
    np.testing.assert_allclose(eta, [0.2, 0.2, 0.18, 0.2 * 0.9**38], rtol=1e-5)
    assert int(np.floor(256 * eta[-1])) == 0  # from here on the paper's table no longer sees a self-loop


@pytest.mark.parametrize(
    ("horizon", "expected"), [(1, 0.9), (50, 0.9), (100, 0.95), (500, 0.99), (1_000, 0.99)]
)
def test_the_discount_follows_from_the_horizon_unless_the_learner_says_otherwise(horizon, expected):
    spec = SPEC._replace(horizon=horizon)
    assert Aram().gamma_of(spec) == pytest.approx(expected)
    assert Aram(gamma=0.5).gamma_of(spec) == 0.5
    assert Aram(preset="paper").gamma_of(spec) == 0.99


def test_eta_and_the_penalty_are_logged():
    learner = Aram(**SMALL)
    state = probes.first_state(learner, SPEC)._replace(eta=jnp.asarray(0.31), penalty=jnp.asarray(4.5))
    _, metrics = one_update(learner, state)
    assert float(metrics["eta"]) == pytest.approx(0.31) and float(metrics["penalty"]) == pytest.approx(4.5)


@pytest.mark.parametrize("least", [0.0, 0.8])
def test_preferences_are_drawn_evenly_from_the_least_weight_of_the_return_to_one(least):
    drawn = np.asarray(Aram(min_return_weight=least).new_context(jax.random.key(0), (4_000,)))
    assert scipy.stats.kstest(drawn[:, 0], scipy.stats.uniform(least, 1 - least).cdf).pvalue > 1e-3
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, rtol=1e-6)


def test_learners_are_known_by_name_and_sosac_is_aram_with_a_fixed_preference():
    assert name_of(make_learner("sosac")) == "sosac"
    assert name_of(make_learner("aram", preset="paper")) == "aram"
    with pytest.raises(UnknownNameError, match="aram"):
        make_learner("arma")


QUICK = {**SMALL, "target_acceptance": None, "learning_rate": 3e-3, "tau": 0.02}


def raw_validity(learnt, probe):
    """Return the feasible fraction of raw policy samples at the probe's observations, as an evaluation counts it."""
    seen = jnp.asarray(probe.observations)
    drawn = learnt.learner.samples(
        learnt.state, learnt.spec, seen, jnp.array([0.9, 0.1]), jax.random.key(0), 500
    )
    return float(np.mean(probe.task.constraint.contains(np.asarray(seen)[:, None], np.asarray(drawn))))


@pytest.mark.learning
@pytest.mark.parametrize(
    "make",
    [probes.boundary_optimum, pytest.param(probes.moving_optimum, marks=pytest.mark.slow)],
    ids=["boundary", "moving"],
)
def test_it_finds_the_best_action_on_the_boundary_and_learns_to_propose_feasible_ones(make):
    probe = make()
    learnt = probes.learn(probe, Aram(**QUICK, target_entropy=-2.5), steps=6_400)
    assert learnt.regret(probe) < 0.1  # standing still at the origin loses 0.5 or more
    assert raw_validity(learnt, probe) > 0.7


@pytest.mark.learning
@pytest.mark.slow
def test_without_self_loops_it_keeps_proposing_what_is_rejected():
    probe = probes.boundary_optimum()
    learnt = probes.learn(probe, Aram(**QUICK, target_entropy=-2.5, self_loops="none"), steps=6_400)
    assert raw_validity(learnt, probe) < 0.5


@pytest.mark.learning
@pytest.mark.slow
def test_values_reach_back_over_a_step_and_stop_at_termination():
    probe = probes.delayed_reward()
    learner = Aram(**{**QUICK, "alpha": 1e-3, "gamma": 0.5, "tau": 0.05})
    learnt = probes.learn(probe, learner, steps=3_200)
    rows = learner.with_preference(jnp.asarray(probe.observations), jnp.array([0.9, 0.1]))
    values = q_values(learnt.state.params.critic, rows, jnp.zeros((2, 2)))[..., 0].mean(axis=1)
    np.testing.assert_allclose(values, probe.value(0.5), atol=0.12)
