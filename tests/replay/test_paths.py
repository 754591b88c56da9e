"""Targets over several steps follow one environment's episode and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.replay.paths import draw_returns
from inbounds.replay.ring import Layout, Places, Transition, append, draw_places, empty_replay

LAYOUT = Layout(observation=2, action=1, objectives=2)
GAMMA, ENVIRONMENTS = 0.9, 3


def recorded(turns, capacity, ends=(), terminates=()):
    """Fill a ring with walks of three environments; at (turn, environment) in `ends` an episode ends."""
    replay = empty_replay(2, capacity, LAYOUT.width)
    state = np.arange(ENVIRONMENTS) * 1_000.0
    written = []
    for turn in range(turns):
        following = state + 1.0
        discount = np.array([0.0 if (turn, one) in terminates else 1.0 for one in range(ENVIRONMENTS)])
        rows = Transition(
            jnp.stack([state, -state], -1),
            jnp.zeros((ENVIRONMENTS, 1)),
            jnp.stack([state % 7, -(state % 5)], -1),
            jnp.asarray(discount),
            jnp.stack([following, -following], -1),
        )
        replay = append(replay, 0, LAYOUT.pack(rows))
        written += [(turn, one, state[one], discount[one]) for one in range(ENVIRONMENTS)]
        is_over = [(turn, one) in set(ends) | set(terminates) for one in range(ENVIRONMENTS)]
        state = np.where(is_over, following + 100.0, following)
    return replay, written


def slowly(written, capacity, turn, one, steps, ends, terminates):
    """Walk through what was written, step by step."""
    kept = {(t, e): (s, d) for t, e, s, d in written[-capacity:]}
    reward, discount, last = np.zeros(2), 1.0, None
    for ahead in range(steps):
        if (turn + ahead, one) not in kept:
            break
        state, alive = kept[(turn + ahead, one)]
        reward = reward + GAMMA**ahead * np.array([state % 7, -(state % 5)])
        discount, last = GAMMA**ahead * alive, state + 1.0
        if (turn + ahead, one) in set(ends) | set(terminates):
            break
    return reward, discount, last


@pytest.mark.parametrize("capacity", [30, 32])
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_rewards_are_added_up_to_the_end_of_the_episode_or_of_what_is_known(capacity, steps):
    ends, terminates = [(9, 0), (13, 2)], [(11, 1), (15, 0)]
    replay, written = recorded(17, capacity, ends, terminates)
    index = jnp.arange(capacity)[None]
    found = draw_returns(
        replay, LAYOUT, Places(jnp.zeros((1, capacity), int), index), ENVIRONMENTS, steps, GAMMA
    )
    for number, (turn, one, state, _) in enumerate(written[-capacity:], len(written) - capacity):
        row = number % capacity
        reward, discount, last = slowly(written, capacity, turn, one, steps, ends, terminates)
        assert float(found.observation[0, row, 0]) == state
        np.testing.assert_allclose(found.reward[0, row], reward, rtol=1e-6)
        np.testing.assert_allclose(found.discount[0, row], discount, rtol=1e-6)
        np.testing.assert_array_equal(found.next_observation[0, row], [last, -last])


def test_rows_that_were_never_written_are_no_future():
    """An empty row is all zeros, as a state may be."""
    still = Transition(jnp.zeros((2, 2)), jnp.zeros((2, 1)), jnp.ones((2, 2)), jnp.ones(2), jnp.zeros((2, 2)))
    replay = empty_replay(1, 20, LAYOUT.width)
    for _ in range(4):
        replay = append(replay, 0, LAYOUT.pack(still))
    found = draw_returns(replay, LAYOUT, Places(jnp.zeros((1, 8), int), jnp.arange(8)[None]), 2, 3, GAMMA)
    whole, two, one = 1 + GAMMA + GAMMA**2, 1 + GAMMA, 1.0
    np.testing.assert_allclose(found.reward[0, :, 0], [whole] * 4 + [two] * 2 + [one] * 2, rtol=1e-6)
    np.testing.assert_allclose(found.discount[0], [GAMMA**2] * 4 + [GAMMA] * 2 + [1.0] * 2, rtol=1e-6)


def test_rejected_proposals_have_no_future():
    replay, _ = recorded(10, 30)
    loop = Transition(
        jnp.ones((4, 2)), jnp.zeros((4, 1)), jnp.full((4, 2), -0.2), jnp.ones(4), jnp.ones((4, 2))
    )
    replay = append(replay, 1, LAYOUT.pack(loop))
    places = draw_places(replay, jax.random.key(0), 2, 8, jnp.array([0.5]))
    found = draw_returns(replay, LAYOUT, places, 1, 3, GAMMA)
    is_loop = np.broadcast_to(places.ring, places.row.shape) == 1
    assert is_loop.sum() == 8
    np.testing.assert_allclose(np.asarray(found.reward)[is_loop], -0.2)
    np.testing.assert_array_equal(np.asarray(found.discount)[is_loop], 1.0)
