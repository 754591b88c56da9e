"""SAC, its family, and what all learners with a stochastic actor share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Outcome, Spec, project_proposals
from inbounds.learners.sac import Sac, Spre, policy_losses
from inbounds.policies.networks import q_values
from inbounds.replay import Transition
from tests.learners.probes import boundary_optimum, learn, moving_optimum, observed_reward

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02, "init_alpha": 0.1}


def spec_of(probe):
    task = probe.task
    return Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)


@pytest.mark.learning
@pytest.mark.slow
def test_sac_finds_the_best_action_though_a_better_one_is_out_of_bounds():
    probe = boundary_optimum()
    learnt = learn(probe, Sac(**SMALL), steps=1_600)
    assert learnt.regret(probe) < 0.05
    assert 0 < int(learnt.counters.projections) <= 1_600


@pytest.mark.learning
@pytest.mark.slow
def test_spre_follows_a_set_that_the_observation_moves_and_stays_close_to_it():
    probe = moving_optimum()
    learnt = learn(probe, Spre(target_entropy=-2.0, **SMALL), steps=3_200)
    assert learnt.regret(probe) < 0.05
    outside = np.linalg.norm(learnt.raw_actions(probe) - learnt.actions(probe), axis=-1)
    assert outside.max() < 0.1


@pytest.mark.learning
@pytest.mark.slow
def test_a_value_that_depends_on_the_observation_is_learnt():
    probe = observed_reward()
    learnt = learn(probe, Spre(penalty=0.0, **SMALL), steps=1_600)
    observations = jnp.asarray(probe.observations)
    values = q_values(learnt.state.trained.critic, observations, jnp.zeros((2, 2)))[..., 0]
    np.testing.assert_allclose(values, np.broadcast_to(probe.value(0.99)[:, None], values.shape), atol=0.1)


@pytest.mark.parametrize(
    ("learner", "is_raw"), [(Sac(), False), (Spre(), True), (Spre(stored="projected"), False)]
)
def test_what_is_stored_is_a_switch(learner, is_raw):
    spec = spec_of(boundary_optimum())
    observation, raw = jnp.zeros((2, 1)), jnp.asarray([[1.0, 0.0], [0.1, 0.1]])
    draw = project_proposals(spec.constraint, observation, raw[:, None])
    outcome = Outcome(jnp.ones(2), jnp.zeros(2), observation)
    stored = np.asarray(learner.remember(spec, observation, draw, outcome)["real"].transition.action)
    np.testing.assert_array_equal(stored, raw if is_raw else draw.action)


def step_once(learner, spec, seed=0):
    state = learner.init(jax.random.key(seed), spec)
    rows = learner.batch_size
    batch = Transition(
        jnp.zeros((rows, 1)),
        jnp.full((rows, 2), 0.1),
        jnp.full((rows, 1), 0.5),
        jnp.ones(rows),
        jnp.ones((rows, 1)),
    )
    noise = learner.noise(jax.random.key(1), spec)
    gradient, metrics = jax.grad(learner.total_loss, has_aux=True)(state.trained, state, spec, batch, noise)
    return state, batch, noise, gradient, metrics


@pytest.mark.sweep
def test_the_critics_regress_on_the_soft_target_of_the_less_optimistic_twin():
    learner, spec = Sac(hidden=(8,), batch_size=4, gamma=0.9, alpha=0.3), spec_of(boundary_optimum())
    state, batch, noise, _, metrics = step_once(learner, spec)
    proposal = learner.proposal(state.trained.actor, batch.next_observation)
    following = learner.sample(spec, batch.next_observation, proposal, noise[1])
    least = q_values(state.target_critic, batch.next_observation, following.value)[..., 0].min(axis=1)
    target = 0.5 + 0.9 * (least - 0.3 * following.log_density)
    values = q_values(state.trained.critic, batch.observation, batch.action)[..., 0]
    expected = jnp.mean(jnp.sum((values - target[:, None]) ** 2, axis=1))
    assert float(metrics["critic_loss"]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
def test_the_penalty_changes_the_actors_gradient_only():
    spec = spec_of(boundary_optimum())
    settings = {"hidden": (8,), "batch_size": 16}
    *_, plain, _ = step_once(Spre(penalty=0.0, **settings), spec)
    *_, priced, _ = step_once(Spre(penalty=1.0, **settings), spec)
    for one, other in zip(jax.tree.leaves(plain.critic), jax.tree.leaves(priced.critic), strict=True):
        np.testing.assert_array_equal(one, other)
    assert float(plain.log_alpha) == float(priced.log_alpha)
    assert not np.allclose(plain.actor[-1].bias, priced.actor[-1].bias)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log_std", "target", "is_wider"), [(-3.0, -1.0, False), (-0.5, -1.0, True), (-3.0, -2.0, True)]
)
def test_a_tuned_alpha_moves_the_entropy_to_its_target_per_dimension(log_std, target, is_wider):
    """The entropy of N(0, e^-3) is -1.6 per entry, that of N(0, e^-0.5) is 0.9, less what the squashing takes."""
    learner, spec = Sac(hidden=(8,), batch_size=64, target_entropy=target), spec_of(boundary_optimum())
    state = learner.init(jax.random.key(0), spec)
    last = state.trained.actor[-1]
    bias = jnp.asarray([0.0, 0.0, log_std, log_std])
    actor = (*state.trained.actor[:-1], last._replace(weight=0 * last.weight, bias=bias))
    rows = jnp.zeros((64, 1))
    batch = Transition(rows, jnp.zeros((64, 2)), rows, jnp.zeros(64), rows)
    gradient, metrics = jax.grad(learner.total_loss, has_aux=True)(
        state.trained._replace(actor=actor), state, spec, batch, learner.noise(jax.random.key(1), spec)
    )
    assert (float(metrics["entropy"]) > 2 * target) == is_wider
    # A gradient step goes against the sign: less temperature where the policy is wider than wanted.
    assert float(gradient.log_alpha) == pytest.approx(float(metrics["entropy"]) - 2 * target, rel=1e-4)


@pytest.mark.parametrize("target", [0.7, float("nan"), "x", True])
def test_an_target_entropy_that_no_policy_can_have_is_refused(target):
    with pytest.raises(ConfigurationError, match="at most ln 2"):
        Sac(target_entropy=target)


def test_valid_rates_are_measured_on_draws_of_the_policy():
    learner, spec = Sac(hidden=(8,)), spec_of(boundary_optimum())
    state = learner.init(jax.random.key(0), spec)
    drawn = learner.samples(state, spec, jnp.ones((3, 1)), jnp.ones(2), jax.random.key(1), 50)
    assert drawn.shape == (3, 50, 2)
    assert np.unique(np.asarray(drawn), axis=1).shape == (3, 50, 2)


def test_an_alpha_of_zero_is_refused():
    with pytest.raises(ConfigurationError, match="above 0"):
        Sac(alpha=0.0)


def test_the_policy_loss_prefers_entropy_and_the_smaller_value() -> None:
    values = jnp.array([[[0.7], [0.3]]])
    got = policy_losses(values, jnp.array([-2.0]), jnp.array(0.5))
    np.testing.assert_allclose(got, [0.5 * -2.0 - 0.3], rtol=1e-6)
