"""FOCOPS: its loss, its multiplier on a problem with a known price, and rollouts that are used once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Polytope, SumBand
from inbounds.learners.focops import Focops, divergence, focops_loss, log_density, next_multiplier
from inbounds.learners.learner import Outcome, Spec
from inbounds.policies.gaussian import Gaussian
from inbounds.replay import Transition
from inbounds.tasks.registry import make
from tests.learners.probes import boundary_optimum, first_state, learn

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "rollout": 320}
BOX = Box(np.full(2, -1.0), np.full(2, 1.0))


def spec_of(constraint):
    return Spec.of(1, np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32), constraint)


@pytest.mark.learning
@pytest.mark.slow
def test_the_best_action_is_found_and_every_action_was_projected():
    probe = boundary_optimum()
    learnt = learn(probe, Focops(**SMALL), steps=12_800)
    assert learnt.regret(probe) < 0.05
    assert int(learnt.counters.projections) == 12_800
    assert float(learnt.metrics["value"]) == pytest.approx(0.7, abs=0.15)
    assert learnt.replay.rows.shape[1] == 320  # a ring holds one rollout, whatever the capacity of the run


def test_the_multiplier_settles_at_the_price_that_makes_both_actions_equal():
    """Two states in turn; in the first, one action pays 0.6 and costs 1, the other nothing: the price is 0.6.

    The policy and the multiplier circle around the saddle point, so that their averages are compared.
    """
    gamma, limit_share, reward = 0.9, 0.3, 0.6
    visits = 1.0 / (1.0 - gamma**2)

    def loss(logits, old, nu):
        new, before = jax.nn.log_softmax(logits), jax.nn.log_softmax(old)
        share = jnp.exp(before)[1]
        advantage = (reward - nu) * (jnp.arange(2.0) - share)
        divergence = jnp.sum(jnp.exp(new) * (new - before))
        return jnp.sum(jnp.exp(before) * focops_loss(divergence, new - before, advantage, 1.5, 0.02))

    @jax.jit
    def iteration(logits, nu):
        share = jax.nn.softmax(logits)[1]
        nu = next_multiplier(nu, visits * (share - limit_share), 0.01, 2.0)
        moved = logits
        for _ in range(5):
            moved = moved - 0.5 * jax.grad(loss)(moved, logits, nu)
        return moved, nu, share

    logits, nu, history = jnp.zeros(2), jnp.zeros(()), []
    for _ in range(1_500):
        logits, nu, share = iteration(logits, nu)
        history.append((float(nu), float(share)))
    mean_price, mean_share = np.mean(history[500:], axis=0)
    assert mean_price == pytest.approx(reward, abs=0.05)
    assert mean_share == pytest.approx(limit_share, abs=0.02)


def rollout_of(costs, actions):
    """Return episodes of one step each, which pay nothing and cost what is given."""
    rows = costs.shape[0]
    rewards = jnp.stack([jnp.zeros(rows), costs, jnp.ones(rows)], axis=-1)
    seen = jnp.zeros((rows, 1, 1))
    return Transition(seen, actions[:, None], rewards[:, None], jnp.zeros((rows, 1)), seen)


def test_an_update_raises_the_multiplier_by_the_cost_and_then_makes_costly_actions_less_likely():
    spec = spec_of(Ball(radius_squared=0.25) & BOX)
    learner = Focops(hidden=(8,), batch_size=64, epochs=1, multiplier_rate=0.5, learning_rate=1e-2)
    state = first_state(learner, spec)
    actions = jax.random.normal(jax.random.key(1), (256, 2))
    batch = rollout_of(1.0 + actions[:, 0], actions)  # what goes along the first entry is costly
    update = jax.jit(lambda now: learner.update(now, spec, batch, jax.random.key(2)))
    moved, metrics = update(state)
    mean_cost = float(jnp.mean(1.0 + actions[1:, 0]))  # an episode's start is known from the second step on
    assert float(moved.multiplier) == pytest.approx(0.5 * mean_cost, rel=1e-4)
    assert float(metrics["cost"]) == pytest.approx(mean_cost, rel=1e-4)

    def mean_at_zero(now):
        return np.asarray(learner.proposal(now.trained, jnp.zeros((1, 1))).mean[0])

    assert mean_at_zero(moved)[0] < mean_at_zero(state)[0] - 1e-3


def test_the_multiplier_stays_within_its_bounds():
    assert float(next_multiplier(jnp.asarray(0.0), jnp.asarray(-5.0), 0.1, 2.0)) == 0.0
    assert float(next_multiplier(jnp.asarray(1.9), jnp.asarray(5.0), 0.1, 2.0)) == 2.0
    assert float(next_multiplier(jnp.asarray(0.5), jnp.asarray(1.0), 0.1, 2.0)) == pytest.approx(0.6)


def test_a_state_that_moved_too_far_no_longer_counts():
    near, far = jnp.asarray(0.01), jnp.asarray(0.03)
    value = focops_loss(near, jnp.asarray(0.1), jnp.asarray(2.0), 1.5, 0.02)
    assert float(value) == pytest.approx(0.01 - np.exp(0.1) * 2.0 / 1.5, rel=1e-5)
    assert float(focops_loss(far, jnp.asarray(0.1), jnp.asarray(2.0), 1.5, 0.02)) == 0.0


def test_divergence_and_density_are_those_of_gaussians():
    rng = np.random.default_rng(0)
    new = Gaussian(jnp.asarray([0.3, -0.2]), jnp.asarray([-0.5, 0.1]))
    old = Gaussian(jnp.asarray([0.0, 0.1]), jnp.asarray([-0.3, -0.2]))
    drawn = np.asarray(new.mean) + np.exp(np.asarray(new.log_std)) * rng.standard_normal((200_000, 2))
    estimate = np.mean(np.asarray(log_density(new, drawn) - log_density(old, drawn)))
    assert float(divergence(new, old)) == pytest.approx(estimate, abs=0.01)
    assert float(divergence(new, new)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("stored", ["raw", pytest.param("projected", marks=pytest.mark.sweep)])
def test_the_cost_is_that_of_the_drawn_action_whatever_is_stored(stored):
    spec = spec_of(Ball(radius_squared=0.25) & BOX)
    learner = Focops(stored=stored, cost="published")
    state = jax.tree.map(lambda leaf: leaf[None], first_state(learner, spec))
    seen, context = jnp.zeros((1, 64, 1)), jnp.zeros((1, 64, 0))
    act = jax.jit(lambda keys: learner.act(state, spec, seen, context, keys, is_random=True))
    draw = act(jax.random.split(jax.random.key(1), 1))
    one = jax.tree.map(lambda leaf: leaf[0], draw)
    outcome = Outcome(jnp.ones(64), jnp.ones(64), jnp.zeros((64, 1)), jnp.arange(64) % 2 == 0)
    stepped = learner.remember(spec, jnp.zeros((64, 1)), one, outcome)["rollout"].transition
    raw = np.asarray(one.proposals[:, 0], np.float64)
    np.testing.assert_allclose(stepped.reward[:, 1], np.sum(raw**2, axis=1) - 0.25, atol=1e-5)
    np.testing.assert_array_equal(stepped.reward[:, 2], np.arange(64) % 2 == 0)
    np.testing.assert_array_equal(stepped.action, raw if stored == "raw" else one.action)
    assert np.abs(raw).max() > 1.0  # what is drawn may lie outside the box, and keeps its density


def test_the_hinge_adds_up_what_breaks_each_row():
    spec = spec_of(Polytope([[1.0, 0.0], [0.0, 1.0]], [0.2, 0.3]) & BOX)
    cost = Focops().cost_of(spec, jnp.zeros((2, 1)), jnp.asarray([[0.5, 0.5], [-0.5, 0.1]]))
    np.testing.assert_allclose(cost, [0.5, 0.0], atol=1e-6)


def published_cost(constraint, actions):
    low = np.full(len(actions[0]), -1.0, np.float32)
    spec = Spec.of(1, low, -low, constraint)
    learner = Focops(preset="paper")
    return np.asarray(learner.cost_of(spec, jnp.zeros((len(actions), 1)), jnp.asarray(actions)))


def test_the_published_cost_of_one_row_is_its_left_hand_side_less_the_bound():
    ball = Ball(radius_squared=0.25) & BOX
    np.testing.assert_allclose(published_cost(ball, [[0.6, 0.8], [0.0, 0.3]]), [0.75, -0.16], atol=1e-6)
    line = Polytope([[1.0, 2.0]], [0.5]) & BOX
    np.testing.assert_allclose(published_cost(line, [[1.5, 0.0], [0.1, -0.3]]), [1.0, -1.0], atol=1e-6)


def test_the_published_cost_of_a_band_adds_up_what_breaks_it_and_pays_nothing_inside():
    band = SumBand(total=90.0, tolerance=5.0, low=np.full(3, 10.0), high=np.full(3, 40.0))
    actions = [[45.0, 45.0, 20.0], [8.0, 30.0, 30.0], [30.0, 30.0, 30.0]]
    expected = [15.0 + 5.0 + 5.0, 17.0 + 2.0, 0.0]  # the box repeats the limits, which are charged once
    box = Box(np.full(3, 10.0), np.full(3, 40.0))
    np.testing.assert_allclose(published_cost(band & box, actions), expected, atol=1e-4)


def test_the_published_cost_of_several_rows_adds_up_what_breaks_each():
    corner = Polytope([[1.0, 0.0], [0.0, 1.0]], [0.2, 0.3])
    actions = [[0.5, 0.5], [0.5, -3.0], [-0.5, 0.1]]
    np.testing.assert_allclose(published_cost(corner & BOX, actions), [0.5, 0.3, 0.0], atol=1e-6)
    both = Ball(radius_squared=0.25) & Polytope([[1.0, 1.0]], [0.2]) & BOX
    np.testing.assert_allclose(published_cost(both, [[0.6, 0.8], [0.1, 0.0]]), [0.75 + 1.2, 0.0], atol=1e-6)


def test_without_another_set_the_box_is_charged():
    np.testing.assert_allclose(published_cost(BOX, [[1.5, -1.25], [0.0, 0.0]]), [0.75, 0.0], atol=1e-6)


@pytest.mark.parametrize("name", ["reacher", "hopper", "nsfnet", "bss3z"])
def test_the_published_cost_is_defined_on_every_task_and_has_a_sign_on_single_rows_only(name):
    task = make(name)
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    seen = np.ones(task.observation_size)
    inside = task.constraint.interior_point(seen)
    cost = Focops(preset="paper").cost_of(spec, jnp.asarray(seen)[None], jnp.asarray(inside)[None])
    assert cost.shape == (1,)
    assert cost[0] < 0 if name in ("reacher", "hopper") else cost[0] == 0


@pytest.mark.parametrize(("divergence_of_state", "log_ratio"), [(1.0, 200.0), (0.0, 200.0), (0.0, 60.0)])
def test_the_gradient_stays_finite_where_the_likelihood_ratio_overflows(divergence_of_state, log_ratio):
    def loss(shift):
        return focops_loss(jnp.float32(divergence_of_state), log_ratio + shift, jnp.float32(3.0), 1.5, 0.02)

    gradient = jax.grad(loss)(jnp.float32(0.0))
    assert np.isfinite(gradient**2)
    assert divergence_of_state <= 0.02 or gradient == 0.0
