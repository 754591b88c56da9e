"""FlowPG: the flow's training, what it conditions on, and learning in its cube."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, PowerBudget, WeightedL1, obs
from inbounds.errors import ConfigurationError
from inbounds.learners.flowpg import FlowPg
from inbounds.learners.learner import Spec
from inbounds.policies.layers import entries_read, to_action
from inbounds.replay import Transition
from tests.learners.probes import first_state, learn, moving_optimum

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}
FLOW = {
    "flow_layers": 4,
    "flow_hidden": (32, 32),
    "flow_steps": 3_000,
    "flow_samples": 8_192,
    "flow_batch_size": 128,
    "flow_learning_rate": 3e-3,
    "condition_range": (0.5, 1.5),
}


@pytest.mark.learning
@pytest.mark.slow
def test_a_moving_set_is_followed_in_the_cube_of_a_flow_that_fits_it():
    probe = moving_optimum()
    learnt = learn(probe, FlowPg(**SMALL, **FLOW), steps=3_200)
    assert float(learnt.metrics["flow_accuracy"]) > 0.85
    assert float(learnt.metrics["flow_recall"]) > 0.85
    assert learnt.regret(probe) < 0.1
    # Noise comes before the flow, so that most actions are feasible already.
    assert int(learnt.counters.projections) < 0.4 * 3_200


def spec_of(probe):
    task = probe.task
    return Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)


def test_a_flow_is_not_trained_on_states_that_have_no_action():
    constraint = Box(obs[0:1], 0.5) & Box([-1.0], 1.0)
    spec = Spec.of(1, np.array([-1.0]), np.array([1.0]), constraint)
    draw = jax.jit(lambda key: FlowPg(condition_range=(0.0, 1.0)).feasible_samples(key, spec, 64))
    observation, action = (np.asarray(part, np.float64) for part in draw(jax.random.key(0)))
    assert np.all(constraint.violation(observation, action) <= 0)
    assert len(np.unique(observation)) > 16


@pytest.mark.sweep
def test_the_flow_is_frozen_while_the_actor_learns():
    probe = moving_optimum()
    spec = spec_of(probe)
    learner = FlowPg(hidden=(8,), batch_size=4, **{**FLOW, "flow_steps": 5, "flow_samples": 64})
    state = first_state(learner, spec)
    observation = jnp.asarray(probe.observations)
    batch_noise = learner.noise(jax.random.key(1), spec)
    assert not np.any(np.asarray(batch_noise))  # DDPG smooths nothing
    batch = Transition(observation, jnp.zeros((4, 2)), jnp.ones((4, 1)), jnp.ones(4), observation)
    following, metrics = jax.jit(lambda now: learner.update(now, spec, batch, batch_noise))(state)
    for before, after in zip(jax.tree.leaves(state.layer), jax.tree.leaves(following.layer), strict=True):
        np.testing.assert_array_equal(before, after)
    assert not np.array_equal(state.actor[-1].bias, following.actor[-1].bias)
    assert {"flow_accuracy", "flow_recall"} <= set(metrics)


@pytest.mark.sweep
def test_valid_rates_are_measured_behind_the_flow():
    probe = moving_optimum()
    spec = spec_of(probe)
    learner = FlowPg(hidden=(8,), **{**FLOW, "flow_steps": 5, "flow_samples": 64})
    state = first_state(learner, spec)
    observation = jnp.asarray(probe.observations)
    action = learner.mode(state, spec, observation, jnp.ones(2))
    drawn = learner.samples(state, spec, observation, jnp.ones(2), jax.random.key(1), 3)
    np.testing.assert_array_equal(drawn, np.repeat(np.asarray(action)[:, None], 3, axis=1))


@pytest.mark.sweep
def test_noise_is_added_in_the_cube_before_the_flow_and_what_the_flow_makes_of_it_is_proposed():
    probe = moving_optimum()
    spec = spec_of(probe)
    learner = FlowPg(
        hidden=(8,), exploration=0.5, **{**FLOW, "flow_layers": 2, "flow_steps": 200, "flow_samples": 512}
    )
    init = jax.jit(jax.vmap(lambda key: learner.init(key, spec)))
    states = init(jax.random.split(jax.random.key(0), 1))
    state, keys = jax.tree.map(lambda leaf: leaf[0], states), jax.random.split(jax.random.key(1), 1)
    observation = jnp.asarray(probe.observations)
    draw = learner.act(states, spec, observation[None], jnp.zeros((1, 4, 0)), keys, is_random=False)
    noise = jax.random.normal(keys[0], (4, 2))
    latent = jnp.clip(learner.squashed(state.actor, observation) + 0.5 * noise, -1.0, 1.0)
    made = to_action(state.layer["flow"], latent, learner.condition(spec, observation))
    np.testing.assert_allclose(draw.proposals[0, :, 0], np.clip(made, -1.0, 1.0), atol=1e-5)
    assert np.max(np.abs(np.asarray(made - latent))) > 0.1  # the flow is not the identity


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (Ball(radius_squared=1.0), []),
        (Ball(radius_squared=obs[4]), [4]),
        (WeightedL1(weights=obs[2:5], bound=1.0) & Box(np.full(3, -1.0), np.full(3, 1.0)), [2, 3, 4]),
        (PowerBudget(weights=obs[2:5], bound=obs[0]) & Box(obs[3:6], 1.0), [0, 2, 3, 4, 5]),
    ],
)
def test_the_flow_is_conditioned_on_what_the_constraint_reads(constraint, expected):
    assert entries_read(constraint, 8).tolist() == expected


def test_a_range_without_values_is_refused():
    with pytest.raises(ConfigurationError, match="lower end first"):
        FlowPg(condition_range=(1.0, 1.0))
