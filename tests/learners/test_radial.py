"""DAlpha, DRad and SRad: valid by construction, with one centre per state and no projection."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.layers import Dalpha, Drad, Srad
from inbounds.learners.learner import Spec
from inbounds.policies.gaussian import Gaussian
from tests.learners.probes import boundary_optimum, first_state, learn, moving_optimum
from tests.slices import quick_slice

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}
LEARNERS = [
    pytest.param(Dalpha(**SMALL), id="dalpha"),
    pytest.param(Drad(**SMALL), id="drad"),
    pytest.param(Srad(init_alpha=0.1, target_entropy=-2.0, **SMALL), id="srad"),
]


@pytest.mark.learning
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.slow
def test_a_moving_set_is_followed_without_any_projection(learner):
    probe = moving_optimum()
    learnt = learn(probe, learner, steps=3_200)
    assert learnt.regret(probe) < 0.05
    assert int(learnt.counters.projections) == 0
    assert int(learnt.metrics["centre_calls"]) == int(learnt.counters.proposed) == 3_200
    assert np.all(probe.task.constraint.contains(probe.observations, learnt.raw_actions(probe)))


@pytest.mark.parametrize("learner", quick_slice(LEARNERS, LEARNERS[:1]))
def test_target_actions_are_inside_the_set(learner):
    task = boundary_optimum().task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    state = first_state(learner, spec)
    observation, noise = jnp.ones((64, 1)), learner.noise(jax.random.key(1), spec)
    if isinstance(learner, Srad):
        proposal = learner.proposal(state.trained.actor, observation)
        target = learner.sample(spec, observation, proposal, noise[1]).value
    else:
        target = learner.target_action(state, spec, observation, noise).value
    assert np.all(task.constraint.contains(observation, target))


@pytest.mark.slow
def test_the_density_that_srad_learns_from_is_that_of_its_actions():
    """The action is a function of standard normal noise: its density is that of the noise over |det| of the slope."""
    probe = moving_optimum()
    task, learner = probe.task, Srad()
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    observation = jnp.asarray(probe.observations)[0]
    proposal = Gaussian(jnp.asarray([0.2, -0.1]), jnp.asarray([-2.0, -1.5]))

    def law(noise):
        return learner.sample(spec, observation, proposal, noise)

    noise = jax.random.normal(jax.random.key(2), (16, 2))
    slopes = jax.vmap(jax.jacfwd(lambda one: law(one).value))(noise)
    log_slope = np.linalg.slogdet(np.asarray(slopes, np.float64)).logabsdet
    expected = np.sum(-0.5 * np.asarray(noise) ** 2 - 0.5 * np.log(2 * np.pi), axis=1) - log_slope
    np.testing.assert_allclose(jax.vmap(law)(noise).log_density, expected, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("learner", quick_slice(LEARNERS, LEARNERS[-1:]))
def test_the_valid_action_rate_is_that_of_the_network_before_the_layer(learner):
    task = boundary_optimum().task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    state = first_state(learner, spec)
    centre = jax.tree.map(lambda leaf: leaf, state)
    actor = centre.trained.actor if isinstance(learner, Srad) else centre.actor
    far = (*actor[:-1], actor[-1]._replace(bias=actor[-1].bias.at[0].set(3.0)))
    state = (
        state._replace(trained=state.trained._replace(actor=far))
        if isinstance(learner, Srad)
        else state._replace(actor=far)
    )
    drawn = learner.samples(state, spec, jnp.zeros((1, 1)), jnp.ones(2), jax.random.key(1), 20)
    assert not np.any(task.constraint.contains(jnp.zeros((1, 20, 1)), drawn))
    executed = learner.mode(state, spec, jnp.zeros((1, 1)), jnp.ones(2))
    assert np.all(task.constraint.contains(jnp.zeros((1, 1)), executed))
