"""ARAM for whole numbers: the gradient of its scores, and learning from rejected proposals."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.learners.aram_variants import DiscreteAram, log_density, negative_entropy, score_loss
from inbounds.learners.learner import Spec
from inbounds.policies.networks import InputLayer
from inbounds.replay import Transition
from inbounds.tasks.allocation import allocation_task, best_reward
from tests.learners.discrete_probe import BEST, ring_optimum
from tests.learners.probes import Probe, first_state, learn

LOGITS = jnp.asarray([[0.3, -0.2, 0.5], [0.1, 0.7, -0.4]])
ACTIONS = jnp.asarray(list(itertools.product(range(3), repeat=2)))


def test_entropy_and_density_are_those_of_independent_entries():
    densities = jax.vmap(log_density, (None, 0))(LOGITS, ACTIONS)
    assert float(jnp.sum(jnp.exp(densities))) == pytest.approx(1.0, rel=1e-5)
    assert float(negative_entropy(LOGITS)) == pytest.approx(
        float(jnp.sum(jnp.exp(densities) * densities)), rel=1e-5
    )


def test_the_scores_have_the_gradient_of_the_expected_worth():
    """Averaged over all pairs of draws, weighted by their probability, the gradient is exact."""
    worth = jax.random.normal(jax.random.key(0), (9,))

    def expected(logits):
        return -jnp.sum(jnp.exp(jax.vmap(log_density, (None, 0))(logits, ACTIONS)) * worth)

    pairs = jnp.asarray(list(itertools.product(range(9), repeat=2)))
    weights = jnp.exp(jax.vmap(log_density, (None, 0))(LOGITS, ACTIONS))

    def averaged(logits):
        def one(pair):
            return score_loss(worth[pair], jax.vmap(log_density, (None, 0))(logits, ACTIONS[pair]))

        return jnp.sum(jnp.prod(weights[pairs], axis=1) * jax.vmap(one)(pairs))

    np.testing.assert_allclose(jax.grad(averaged)(LOGITS), jax.grad(expected)(LOGITS), atol=1e-6)


@pytest.mark.learning
@pytest.mark.slow
def test_rejected_proposals_teach_to_be_valid_and_rewards_to_be_best():
    probe = ring_optimum()
    learner = DiscreteAram(
        hidden=(32, 32), learning_rate=3e-3, tau=0.02, batch_size=64, proposals=16, gamma=0.9, penalty=1.0
    )
    learnt = learn(probe, learner, steps=4_800)
    np.testing.assert_array_equal(learnt.raw_actions(probe), BEST)
    drawn = learner.samples(
        learnt.state,
        learnt.spec,
        jnp.asarray(probe.observations),
        jnp.asarray([0.9, 0.1]),
        jax.random.key(3),
        200,
    )
    assert np.mean(np.asarray(probe.task.constraint.contains(None, np.asarray(drawn)))) > 0.8


@pytest.mark.learning
@pytest.mark.slow
def test_an_allocation_is_learnt_although_fewer_than_one_in_a_hundred_actions_is_allowed():
    task = allocation_task()
    observations = (np.random.default_rng(0).integers(0, 7, (300, 5)) / 6).astype(np.float32)
    probe = Probe(task, observations, None, lambda gamma: np.zeros(300))
    learner = DiscreteAram(hidden=(64, 64), learning_rate=2e-3, tau=0.02, batch_size=128, proposals=50)
    learnt = learn(probe, learner, steps=6_400, warm_up=640)
    rewards = -np.sum(np.abs(learnt.actions(probe) - 6 * observations), axis=-1)
    best = np.mean(best_reward(task.constraint, observations))
    uniform = -np.abs(task.constraint.allowed[:, None] - 6 * observations).sum(axis=-1).mean()
    assert np.mean(rewards) > 0.5 * (best + uniform)
    drawn = learner.samples(
        learnt.state, learnt.spec, jnp.asarray(observations), jnp.asarray([0.9, 0.1]), jax.random.key(3), 20
    )
    assert np.mean(np.asarray(task.constraint.contains(None, np.asarray(drawn)))) > 0.8


@pytest.mark.sweep
def test_networks_see_observations_relative_to_what_was_measured():
    task, learner = ring_optimum().task, DiscreteAram(hidden=(8,), batch_size=16)
    parts = (1, task.action_low, task.action_high, task.constraint)
    measured = Spec.of(*parts, np.full(1, 50.0, np.float32), np.full(1, 20.0, np.float32))
    relative, preference = jnp.linspace(-2.0, 2.0, 16)[:, None], jnp.asarray([0.9, 0.1])
    found = []
    for spec, seen in ((Spec.of(*parts), relative), (measured, 50.0 + 20.0 * relative)):
        state = first_state(learner, spec)
        drawn = learner.samples(state, spec, seen, preference, jax.random.key(1), 8)
        batch = Transition(seen, drawn[:, 0], jnp.ones((16, 2)) * relative, jnp.ones(16), seen)
        update = jax.jit(lambda now, rows, noise, spec=spec: learner.update(now, spec, rows, noise)[1])
        metrics = update(state, batch, learner.noise(jax.random.key(2), spec))
        found.append([np.asarray(drawn), *(float(value) for value in metrics.values())])
    for plain, scaled in zip(*found, strict=True):
        np.testing.assert_allclose(scaled, plain, rtol=1e-3, atol=1e-4)
    assert isinstance(learner.export(state)["actor"][0], InputLayer)


def test_a_single_draw_is_refused():
    with pytest.raises(ConfigurationError, match="2 or more"):
        DiscreteAram(policy_draws=1)
