"""Acceptance-rejection and the augmented MDP on TD3."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.learners.aram_variants import ArTd3
from inbounds.learners.learner import Outcome, Spec
from tests.learners.probes import boundary_optimum, learn

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}


def drawn(learner: ArTd3) -> tuple:
    task = boundary_optimum().task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    init = jax.jit(jax.vmap(lambda key: learner.init(key, spec)))
    state = init(jax.random.split(jax.random.key(0), 1))
    observation = jnp.zeros((1, 6, task.observation_size))
    context = jnp.zeros((1, 6, 0))
    act = jax.jit(lambda keys: learner.act(state, spec, observation, context, keys, True))
    draw = act(jax.random.split(jax.random.key(1), 1))
    one = jax.tree.map(lambda leaf: leaf[0], draw)
    outcome = Outcome(jnp.arange(6.0), jnp.zeros(6), observation[0] + 1.0)
    return spec, one, learner.remember(spec, observation[0], one, outcome)


def test_a_rejected_proposal_is_a_self_loop_with_its_price() -> None:
    learner = ArTd3(proposals=7, penalty=0.5, preference=(0.75, 0.25))
    _, draw, memories = drawn(learner)
    loops = memories["augmented"]
    assert int(loops.mask.sum()) == int(draw.is_rejected.sum()) > 0
    np.testing.assert_allclose(loops.transition.reward, -0.125)
    np.testing.assert_array_equal(loops.transition.observation, loops.transition.next_observation)
    np.testing.assert_array_equal(loops.transition.not_done, 1.0)
    np.testing.assert_allclose(memories["real"].transition.reward[:, 0], 0.75 * np.arange(6.0))


def test_the_executed_action_is_the_first_feasible_proposal() -> None:
    spec, draw, memories = drawn(ArTd3(proposals=50))
    feasible = np.asarray(spec.constraint.contains(None, draw.proposals))
    first = feasible.argmax(axis=-1)
    np.testing.assert_array_equal(draw.action, np.asarray(draw.proposals)[np.arange(6), first])
    np.testing.assert_array_equal(memories["real"].transition.action, draw.action)


@pytest.mark.learning
@pytest.mark.slow
def test_it_finds_the_best_action_of_the_set_and_stays_inside() -> None:
    probe = boundary_optimum()
    learnt = learn(probe, ArTd3(proposals=20, penalty=2.0, preference=(0.5, 0.5), **SMALL), steps=1_600)
    assert learnt.regret(probe) < 0.1
    assert int(learnt.counters.projections) < 160


@pytest.mark.parametrize("settings", [{"proposals": 0}, {"penalty": 0.0}, {"eta": 1.0}])
def test_settings_that_cannot_work_are_refused(settings: dict) -> None:
    with pytest.raises(ConfigurationError, match=r"must be|excluded"):
        ArTd3(**settings)
