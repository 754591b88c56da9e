"""Advantages and discounted sums of rollouts, against loops over single episodes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.on_policy import Rewarded, advantages, discounted_from_starts

GAMMA = 0.9


def random_rollout(seed=0, time=12, environments=3):
    rng = np.random.default_rng(seed)
    is_last = rng.random((time, environments)) < 0.3
    not_done = np.where(is_last & (rng.random((time, environments)) < 0.5), 0.0, 1.0)
    reward, value, next_value = rng.standard_normal((3, time, environments))
    return Rewarded(*(jnp.asarray(part) for part in (reward, not_done, is_last, value, next_value)))


def by_definition(rollout, trace):
    """Sum the discounted surprises of each step until its episode or the rollout ends."""
    reward, not_done, is_last, value, next_value = (np.asarray(part, np.float64) for part in rollout)
    surprise = reward + GAMMA * not_done * next_value - value
    result = np.zeros_like(surprise)
    for start, column in np.ndindex(*surprise.shape):
        factor = 1.0
        for step in range(start, len(surprise)):
            result[start, column] += factor * surprise[step, column]
            if is_last[step, column]:
                break
            factor *= GAMMA * trace
    return result


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_an_advantage_sums_the_surprises_of_its_own_episode(trace):
    rollout = random_rollout()
    np.testing.assert_allclose(
        advantages(rollout, GAMMA, trace), by_definition(rollout, trace), rtol=1e-4, atol=1e-5
    )


def test_with_a_trace_of_one_the_advantage_is_the_return_less_the_value():
    rollout = random_rollout()._replace(is_last=jnp.zeros((12, 3), bool), not_done=jnp.ones((12, 3)))
    # Only then do successive values belong together.
    rollout = rollout._replace(next_value=jnp.concatenate([rollout.value[1:], rollout.next_value[-1:]]))
    powers = GAMMA ** np.arange(12)[:, None]
    expected = np.sum(powers * np.asarray(rollout.reward), axis=0) + GAMMA**12 * np.asarray(
        rollout.next_value[-1]
    )
    np.testing.assert_allclose(advantages(rollout, GAMMA, 1.0)[0] + rollout.value[0], expected, rtol=1e-4)


def test_the_discounted_sum_is_taken_from_where_episodes_start():
    """Three steps that pay 1 and terminate, again and again, while the values know nothing."""
    is_last = jnp.asarray(np.arange(9) % 3 == 2)[:, None]
    zeros = jnp.zeros((9, 1))
    rollout = Rewarded(jnp.ones((9, 1)), 1.0 - is_last.astype(float), is_last, zeros, zeros)
    found = discounted_from_starts(rollout, GAMMA, jnp.asarray(-1.0))
    assert float(found) == pytest.approx(1 + GAMMA + GAMMA**2, rel=1e-5)


def test_without_a_start_the_former_estimate_stands():
    ones = jnp.ones((4, 2))
    rollout = Rewarded(ones, ones, jnp.zeros((4, 2), bool), ones, ones)
    assert float(discounted_from_starts(rollout, GAMMA, jnp.asarray(-1.0))) == -1.0
