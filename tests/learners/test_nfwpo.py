"""NFWPO: Frank-Wolfe steps inside the set, and what they cost."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, SumBand
from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Spec
from inbounds.learners.nfwpo import Nfwpo
from inbounds.policies.networks import q_values
from tests.learners.probes import first_state, learn, moving_optimum

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}


@pytest.mark.learning
@pytest.mark.slow
def test_a_moving_set_is_followed_and_the_actor_itself_stays_inside():
    probe = moving_optimum()
    learnt = learn(probe, Nfwpo(**SMALL), steps=3_200)
    # Frank-Wolfe steps of a fixed rate keep moving: 0.01 to 0.09 over eight runs; standing still loses 0.5.
    assert learnt.regret(probe) < 0.1
    outside = np.linalg.norm(learnt.raw_actions(probe) - learnt.actions(probe), axis=-1)
    assert outside.max() < 0.05
    updates = int(learnt.state.updates)
    assert int(learnt.metrics["linear_program_calls"]) == updates * 64 // 2
    assert 0 < int(learnt.metrics["projection_calls"]) <= updates * 64 // 2


def spec_of(probe):
    task = probe.task
    return Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)


@pytest.mark.sweep
def test_the_target_is_a_step_from_the_projection_towards_the_farthest_action():
    probe = moving_optimum()
    spec, learner = spec_of(probe), Nfwpo(hidden=(16,), rate=0.25)
    state = first_state(learner, spec)
    observation = jnp.asarray(probe.observations)
    squashed = jnp.asarray([[0.9, 0.8], [0.1, 0.0], [-0.9, 0.9], [0.2, 0.1]])
    step = learner.frank_wolfe(state.critic, spec, observation, squashed)
    start = np.asarray(spec.constraint.project(observation, squashed))
    gradient = np.stack(
        [
            jax.grad(lambda a, row=row: q_values(state.critic, row[None], a[None])[0, 0, 0])(
                jnp.asarray(action)
            )
            for row, action in zip(observation, start, strict=True)
        ]
    )
    corner = start + (np.asarray(step.target) - start) / 0.25
    for row, weights in enumerate(probe.observations):
        # The corners of sum_i |w_i a_i| <= 1/2, cut off by the box: spend all on the entry that earns more.
        first = int(np.argmax(np.abs(gradient[row]) / weights))
        expected = np.zeros(2)
        expected[first] = np.sign(gradient[row, first]) * min(1.0, 0.5 / weights[first])
        other = 1 - first
        expected[other] = (
            np.sign(gradient[row, other]) * (0.5 - weights[first] * abs(expected[first])) / weights[other]
        )
        np.testing.assert_allclose(corner[row], expected, atol=1e-4)
    np.testing.assert_array_equal(step.is_projected, [True, False, True, False])


def test_the_farthest_action_is_sought_in_the_units_of_the_set():
    """sum_i a_i <= 0 in a box whose entries have half widths 1 and 10, which a critic sees as [-1, 1] each.

    A critic that values 3 x_1 + 4 x_2 is worth 3 a_1 + 0.4 a_2: the first entry goes to its end, the second pays.
    """
    low, high = np.array([-1.0, -10.0], np.float32), np.array([1.0, 10.0], np.float32)
    spec = Spec.of(1, low, high, SumBand(total=-5.0, tolerance=5.0) & Box(low, high))
    learner = Nfwpo(hidden=(), rate=1.0, critics=1)
    state = first_state(learner, spec)
    (last,) = state.critic
    critic = (last._replace(weight=jnp.asarray([[[0.0], [3.0], [4.0]]])),)
    wolfe = jax.jit(lambda now: learner.frank_wolfe(now, spec, jnp.zeros((1, 1)), jnp.zeros((1, 2))).target)
    target = wolfe(critic)
    np.testing.assert_allclose(np.asarray(target) * high, [[1.0, -1.0]], atol=1e-4)


def test_targets_are_feasible_so_the_actor_is_pulled_inside():
    probe = moving_optimum()
    spec, learner = spec_of(probe), Nfwpo(hidden=(16,), rate=0.5)
    state = first_state(learner, spec)
    observation = jnp.asarray(np.repeat(probe.observations, 16, axis=0))
    squashed = jnp.asarray(np.random.default_rng(1).uniform(-1.0, 1.0, (64, 2)), jnp.float32)
    wolfe = jax.jit(lambda critic: learner.frank_wolfe(critic, spec, observation, squashed).target)
    target = np.asarray(wolfe(state.critic))
    assert np.max(np.asarray(spec.constraint.violation(observation, target))) < 1e-5


@pytest.mark.sweep
def test_no_gradient_reaches_the_actor_through_its_target():
    probe = moving_optimum()
    spec, learner = spec_of(probe), Nfwpo(hidden=(16,))
    state = first_state(learner, spec)
    observation = jnp.asarray(probe.observations)
    target = learner.frank_wolfe(
        state.critic, spec, observation, learner.squashed(state.actor, observation)
    ).target
    regression = jax.grad(
        lambda actor: jnp.mean(jnp.sum((learner.squashed(actor, observation) - target) ** 2, axis=-1))
    )(state.actor)
    taken = jax.grad(lambda actor: learner.actor_step(actor, state, spec, observation).loss)(state.actor)
    for one, other in zip(jax.tree.leaves(regression), jax.tree.leaves(taken), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_step_longer_than_the_way_is_refused():
    with pytest.raises(ConfigurationError, match=r"\(0, 1\]"):
        Nfwpo(rate=1.5)
