"""The first feasible proposal acts; what was rejected is told; projection is the last resort."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import inbounds.constraints as constraints
from inbounds.policies.acceptance import accept_first
from inbounds.policies.box import ActionBox
from inbounds.policies.gaussian import Gaussian, squash

BALL = constraints.Ball(radius_squared=0.25) & constraints.Box(-np.ones(2), np.ones(2))
SOMEWHERE = jnp.zeros((1, 3))
accept = jax.jit(functools.partial(accept_first, BALL))
is_feasible = jax.jit(functools.partial(BALL.contains, None))


def proposals(*rows):
    return jnp.asarray([rows], jnp.float32)


def test_the_first_feasible_proposal_is_the_one_taken():
    draw = accept(SOMEWHERE, proposals((0.9, 0.9), (0.1, 0.2), (0.0, 0.0)))
    np.testing.assert_array_equal(draw.action, np.float32([[0.1, 0.2]]))
    np.testing.assert_array_equal(draw.is_rejected, [[True, False, False]])
    assert not draw.is_projected[0]


def test_infeasible_proposals_after_the_accepted_one_are_not_reported():
    draw = accept(SOMEWHERE, proposals((0.1, 0.2), (0.9, 0.9), (0.8, 0.8)))
    assert not draw.is_rejected.any()


def test_an_action_is_projected_only_when_every_proposal_was_rejected():
    draw = accept(SOMEWHERE, proposals((0.9, 0.0), (0.0, 0.8)))
    assert draw.is_projected[0] and draw.is_rejected.all()
    np.testing.assert_allclose(draw.action, [[0.0, 0.5]], atol=1e-5)
    assert float(BALL.violation(None, np.asarray(draw.action, np.float64))[0]) <= 0


def test_the_projection_is_not_computed_when_it_is_not_needed():
    called = []

    def fallback(observation, last):
        jax.debug.callback(lambda: called.append(1))
        return 0 * last

    act = jax.jit(lambda drawn: accept_first(BALL, jnp.zeros((drawn.shape[0], 3)), drawn, fallback).action)
    act(proposals((0.9, 0.9), (0.1, 0.1))).block_until_ready()
    jax.effects_barrier()
    assert not called
    act(proposals((0.9, 0.9), (0.8, 0.1))).block_until_ready()
    jax.effects_barrier()
    assert called


def test_acceptance_is_the_feasible_fraction_of_all_proposals():
    draw = accept(SOMEWHERE, proposals((0.9, 0.9), (0.1, 0.2), (0.0, 0.0), (0.9, 0.0)))
    assert float(draw.acceptance[0]) == 0.5


@functools.partial(jax.jit, static_argnums=(1, 2))
def accepted_draws(key, count, tries=16):
    """Draw `count` actions by acceptance-rejection from a squashed Gaussian that leaks out of the ball."""
    proposal = Gaussian(jnp.array([0.3, -0.1]), jnp.log(jnp.array([0.5, 0.4])))
    noise = jax.random.normal(key, (count, tries, 2))
    drawn = squash(proposal, noise).value
    return accept_first(BALL, jnp.zeros((count, 3)), drawn), drawn


def test_accepted_actions_follow_the_proposal_restricted_to_the_feasible_set():
    draw, _ = accepted_draws(jax.random.key(0), 4_000)
    kept = np.asarray(draw.action)[~np.asarray(draw.is_projected)]
    _, fresh = accepted_draws(jax.random.key(1), 20_000, 1)
    fresh = np.asarray(fresh)[:, 0]
    truncated = fresh[np.asarray(BALL.contains(None, fresh))]
    for entry in range(2):
        assert stats.ks_2samp(kept[:, entry], truncated[:, entry]).pvalue > 1e-3


def test_the_same_test_rejects_a_sampler_that_projects_instead():
    _, fresh = accepted_draws(jax.random.key(1), 20_000, 1)
    fresh = np.asarray(fresh)[:, 0]
    truncated = fresh[np.asarray(BALL.contains(None, fresh))]
    wrong = np.asarray(BALL.project(None, fresh[:4_000]))
    assert stats.ks_2samp(wrong[:, 0], truncated[:, 0]).pvalue < 1e-6


def test_one_call_for_a_batch_equals_drawing_one_by_one():
    draw, drawn = jax.tree.map(np.asarray, accepted_draws(jax.random.key(2), 200))
    for row in range(200):
        turn = next((i for i in range(16) if is_feasible(drawn[row, i])), None)
        if turn is None:
            assert draw.is_projected[row]
        else:
            np.testing.assert_array_equal(draw.action[row], drawn[row, turn])
            assert int(draw.is_rejected[row].sum()) == turn


def test_a_stretched_proposal_never_leaves_its_box():
    box = ActionBox(np.float32([0.1, -3.0]), np.float32([0.3, 7.0]))
    extremes = box.rescale(jnp.asarray([[-1.0, -1.0], [1.0, 1.0]], jnp.float32))
    np.testing.assert_array_equal(extremes[0], box.low)
    np.testing.assert_array_equal(extremes[1], box.high)
