"""OptLayer: the Jacobian of the projection, where it vanishes, and what the layer costs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Polytope, PowerBudget, SumBand, WeightedL1, obs
from inbounds.learners.layers import OptLayer
from inbounds.learners.learner import Spec
from tests.learners.probes import first_state, learn, moving_optimum

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}
LOW, HIGH = np.full(3, -1.0), np.full(3, 1.0)
BOX = Box(LOW, HIGH)
ROWS = np.array([[1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.5, 1.0]])
SETS = {
    "ball": Ball(radius_squared=0.6) & BOX,
    "ball that meets the box": Ball(radius_squared=1.5) & BOX,
    "weighted": WeightedL1(weights=obs[0:3], bound=0.8) & BOX,
    "power": PowerBudget(weights=obs[0:3], bound=0.5) & BOX,
    "band": SumBand(total=0.3, tolerance=0.1) & BOX,
    "polytope": Polytope(ROWS, [0.3, 0.4, 0.5]) & BOX,
}
OBSERVATION = np.array([0.7, 1.4, 1.0])


def layer(constraint, low=LOW, high=HIGH):
    spec = Spec.of(3, low.astype(np.float32), high.astype(np.float32), constraint)
    return lambda action: OptLayer().bounded((), spec, jnp.asarray(OBSERVATION, jnp.float32), action)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_jacobian_is_that_of_finite_differences_and_symmetric(name):
    """In float64, step 1e-5; points whose active set changes within the step have no derivative and are left out."""
    constraint, step = SETS[name], 1e-5
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (24, 3))
    shifts = step * np.eye(3)

    def difference(size):
        ahead = constraint.project(OBSERVATION, points[:, None] + size * shifts)
        behind = constraint.project(OBSERVATION, points[:, None] - size * shifts)
        return np.moveaxis(np.asarray(ahead) - np.asarray(behind), 1, 2) / (2 * size * step)

    expected, wider = difference(1.0), difference(4.0)
    is_smooth = np.max(np.abs(expected - wider), axis=(1, 2)) < 1e-2
    assert is_smooth.sum() > 12
    inside = np.asarray(constraint.contains(np.broadcast_to(OBSERVATION, points.shape), points))
    assert not inside.all()
    jacobian = np.asarray(jax.vmap(jax.jacrev(layer(constraint)))(jnp.asarray(points, jnp.float32)))
    np.testing.assert_allclose(jacobian[is_smooth], expected[is_smooth], atol=0.02)
    np.testing.assert_allclose(jacobian, np.swapaxes(jacobian, 1, 2), atol=0.02)


@pytest.mark.slow
def test_on_a_face_the_normal_part_of_a_gradient_vanishes():
    jacobian = np.asarray(jax.jacrev(layer(SETS["ball"]))(jnp.asarray([0.9, 0.0, 0.0])))
    shrink = np.sqrt(0.6) / 0.9
    np.testing.assert_allclose(jacobian, np.diag([0.0, shrink, shrink]), atol=1e-4)


@pytest.mark.slow
def test_at_a_vertex_the_whole_gradient_vanishes_and_the_penalty_keeps_one():
    constraint = WeightedL1(weights=[1.0, 1.0, 1.0], bound=0.5) & BOX
    action = jnp.asarray([0.95, 0.02, -0.03])  # its projection is the vertex (0.5, 0, 0)
    np.testing.assert_allclose(np.asarray(jax.jacrev(layer(constraint))(action)), 0.0, atol=1e-6)
    spec = Spec.of(3, LOW.astype(np.float32), HIGH.astype(np.float32), constraint)
    pulled = {}
    for penalty in (0.0, 1.0):
        learner = OptLayer(hidden=(8,), penalty=penalty)
        state = first_state(learner, spec)
        last = state.actor[-1]._replace(weight=0 * state.actor[-1].weight, bias=jnp.arctanh(action))
        actor = (*state.actor[:-1], last)
        gradient = jax.grad(
            lambda a, now=state, one=learner: one.actor_step(a, now, spec, jnp.ones((4, 3))).loss
        )(actor)
        pulled[penalty] = float(jnp.max(jnp.abs(gradient[-1].bias)))
    assert pulled[0.0] < 1e-6 < 0.01 < pulled[1.0]


@pytest.mark.learning
@pytest.mark.slow
def test_a_moving_set_is_followed_through_the_layer():
    probe = moving_optimum()
    learnt = learn(probe, OptLayer(penalty=0.1, **SMALL), steps=3_200)
    assert learnt.regret(probe) < 0.05
    assert int(learnt.counters.projections) == 0
    updates = int(learnt.state.updates)
    assert int(learnt.metrics["layer_calls"]) == 3_200 + updates * 64 + updates * 64 // 2


def test_the_target_is_smoothed_behind_the_layer():
    probe = moving_optimum()
    task = probe.task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    learner = OptLayer(hidden=(8,), batch_size=4)
    state = first_state(learner, spec)
    observation, noise = jnp.asarray(probe.observations), jnp.full((4, 2), 0.3)
    target = learner.target_action(state, spec, observation, noise)
    inside = learner.bounded((), spec, observation, learner.squashed(state.target_actor, observation))
    np.testing.assert_allclose(target.value, np.asarray(inside) + 0.3, rtol=1e-5)
    assert target.calls == {"layer": 4}


def test_where_the_actor_waits_long_its_targets_still_move_as_far_as_published():
    """0.001 per update, 50 times; the targets of a delayed actor wait with it."""
    learner = OptLayer(preset="lin")
    assert learner.policy_delay == 50
    assert learner.tau == pytest.approx(1.0 - (1.0 - 0.001) ** 50, rel=1e-3)
