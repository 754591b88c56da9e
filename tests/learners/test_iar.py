"""IAR-A2C: the corrected score, and learning from a membership test alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.learners.iar import METRICS, Iar, valid_score
from inbounds.learners.learner import Spec
from inbounds.replay import Transition
from tests.learners.discrete_probe import BEST, ring_optimum
from tests.learners.probes import boundary_optimum, first_state, learn

# A policy over five actions that can be enumerated: ten draws have exactly its frequencies.
LOGITS = jnp.log(jnp.asarray([0.1, 0.2, 0.3, 0.1, 0.3]))
IS_VALID = jnp.asarray([True, False, True, False, True])
DRAWS = np.repeat(np.arange(5), [1, 2, 3, 1, 3])


def exact_log_density(logits, action):
    """Return log pi'(a) of the policy restricted to valid actions."""
    return jax.nn.log_softmax(jnp.where(IS_VALID, logits, -jnp.inf))[action]


@pytest.mark.parametrize("action", [0, 2, 4])
def test_the_score_has_the_gradient_of_the_restricted_policy(action):
    def score(logits):
        log_pi = jax.nn.log_softmax(logits)
        return valid_score(log_pi[action], log_pi[DRAWS], IS_VALID[DRAWS])

    expected = jax.grad(exact_log_density)(LOGITS, action)
    np.testing.assert_allclose(jax.grad(score)(LOGITS), expected, atol=1e-6)


def test_the_published_factor_is_right_only_where_everything_is_valid():
    def published(logits, is_valid):
        log_pi = jax.nn.log_softmax(logits)
        count = jnp.sum(is_valid[DRAWS])
        return log_pi[0] - len(DRAWS) / count**2 * jnp.sum(jnp.where(is_valid[DRAWS], log_pi[DRAWS], 0.0))

    expected = jax.grad(exact_log_density)(LOGITS, 0)
    assert np.max(np.abs(jax.grad(published)(LOGITS, IS_VALID) - expected)) > 0.05
    plain = jax.grad(lambda logits: jax.nn.log_softmax(logits)[0])(LOGITS)
    np.testing.assert_allclose(jax.grad(published)(LOGITS, jnp.ones(5, bool)), plain, atol=1e-6)


def test_without_a_valid_draw_the_score_is_the_plain_one():
    score = valid_score(jnp.asarray(-1.5), jnp.asarray([-2.0, -3.0]), jnp.asarray([False, False]))
    assert float(score) == -1.5


@pytest.mark.learning
@pytest.mark.slow
def test_valid_actions_become_the_best_ones():
    probe = ring_optimum()
    learner = Iar(
        hidden=(32,), layers=2, posterior_layers=2, learning_rate=3e-3, proposals=16, correction_draws=8
    )
    learnt = learn(probe, learner, steps=19_200, environments=32)
    drawn = np.asarray(
        learner.samples(
            learnt.state, learnt.spec, jnp.asarray(probe.observations), jnp.ones(2), jax.random.key(3), 500
        )
    )
    is_valid = np.asarray(probe.task.constraint.contains(None, drawn))
    is_best = np.all(drawn == BEST[:, None], axis=-1)
    assert is_valid.any(axis=1).all()
    assert np.all((is_valid & is_best).sum(axis=1) > 0.9 * is_valid.sum(axis=1))
    assert float(learnt.metrics["value"]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.sweep
def test_every_executed_action_is_valid_and_lookups_are_counted():
    probe = ring_optimum()
    task = probe.task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    learner = Iar(hidden=(8,), layers=1, posterior_layers=1, proposals=4)
    init = jax.jit(jax.vmap(lambda key: learner.init(key, spec)))
    states = init(jax.random.split(jax.random.key(0), 2))
    observation = jnp.ones((2, 64, 1))
    draw = learner.act(
        states,
        spec,
        observation,
        jnp.zeros((2, 64, 0)),
        jax.random.split(jax.random.key(1), 2),
        is_random=False,
    )
    assert np.all(task.constraint.contains(None, np.asarray(draw.action)))
    is_valid = np.asarray(task.constraint.contains(None, np.asarray(draw.proposals)))
    np.testing.assert_array_equal(draw.is_projected, ~is_valid.any(axis=-1))
    assert 0.3 < np.mean(np.asarray(draw.is_projected)) < 0.95  # a tenth of uniform proposals is valid


@pytest.mark.sweep
def test_networks_see_observations_relative_to_what_was_measured():
    task = ring_optimum().task
    learner = Iar(hidden=(8,), layers=1, posterior_layers=1, rollout=16, correction_draws=4)
    parts = (1, task.action_low, task.action_high, task.constraint)
    measured = Spec.of(*parts, np.full(1, 50.0, np.float32), np.full(1, 20.0, np.float32))
    relative = jnp.linspace(-2.0, 2.0, 16)[:, None]
    found = []
    for spec, seen in ((Spec.of(*parts), relative), (measured, 50.0 + 20.0 * relative)):
        state = first_state(learner, spec)
        drawn = learner.samples(state, spec, seen, jnp.ones(2), jax.random.key(1), 8)
        batch = Transition(seen, drawn[:, 0], jnp.ones((16, 2)) * relative, jnp.ones(16), seen)
        rollout = jax.tree.map(lambda leaf: leaf[None], batch)
        update = jax.jit(lambda now, rows, spec=spec: learner.update(now, spec, rows, jax.random.key(2))[1])
        metrics = update(state, rollout)
        centre = learner.mode(state, spec, seen, jnp.ones(2))
        found.append([np.asarray(drawn), np.asarray(centre), *(float(metrics[name]) for name in METRICS)])
    for plain, scaled in zip(*found, strict=True):
        np.testing.assert_allclose(scaled, plain, rtol=1e-3, atol=1e-4)


def test_continuous_actions_are_refused():
    task = boundary_optimum().task
    low = np.full(2, -0.5, np.float32)
    spec = Spec.of(task.observation_size, low, -low, task.constraint)
    with pytest.raises(ConfigurationError, match="whole"):
        Iar().init(jax.random.key(0), spec)
