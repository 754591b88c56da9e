"""Replay buffers keep transitions whole, drop masked ones, and give each buffer its fraction of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from inbounds.replay import Layout, Transition, append, empty_replay, sample_rows

LAYOUT = Layout(observation=3, action=2, objectives=2)


def identified(first, count):
    """Return transitions in which every field spells the same number."""
    number = jnp.arange(first, first + count, dtype=jnp.float32)
    return Transition(
        jnp.tile(number[:, None], (1, 3)),
        jnp.tile(number[:, None], (1, 2)),
        jnp.tile(number[:, None], (1, 2)),
        number,
        jnp.tile(number[:, None], (1, 3)),
    )


def test_a_packed_transition_comes_back_whole():
    transition = identified(5, 4)
    for before, after in zip(transition, LAYOUT.unpack(LAYOUT.pack(transition)), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("batches", [1, 3, 7])
def test_fields_stay_aligned_after_the_ring_wraps_around(batches):
    replay = empty_replay(1, capacity=10, width=LAYOUT.width)
    for batch in range(batches):
        replay = append(replay, 0, LAYOUT.pack(identified(4 * batch, 4)))
    stored = LAYOUT.unpack(replay.rows[0, : int(replay.size[0])])
    number = np.asarray(stored.not_done)
    np.testing.assert_array_equal(stored.observation, np.tile(number[:, None], (1, 3)))
    np.testing.assert_array_equal(stored.next_observation, np.tile(number[:, None], (1, 3)))
    newest = np.arange(max(0, 4 * batches - 10), 4 * batches)
    np.testing.assert_array_equal(np.sort(number), newest)


def test_masked_rows_leave_no_trace():
    replay = empty_replay(2, capacity=10, width=LAYOUT.width)
    mask = jnp.array([True, False, True, False])
    replay = append(replay, 1, LAYOUT.pack(identified(1, 4)), mask)
    np.testing.assert_array_equal(replay.size, [0, 2])
    np.testing.assert_array_equal(replay.rows[1, :3, 0], [1.0, 3.0, 0.0])
    assert not replay.rows[0].any()


def test_more_new_rows_than_places_keep_the_newest():
    replay = append(empty_replay(1, capacity=3, width=LAYOUT.width), 0, LAYOUT.pack(identified(0, 8)))
    assert int(replay.size[0]) == 3
    np.testing.assert_array_equal(np.sort(replay.rows[0, :, 0]), [5.0, 6.0, 7.0])


def filled(real, loops):
    replay = empty_replay(2, capacity=1_000, width=1)
    if real:
        replay = append(replay, 0, jnp.arange(real, dtype=jnp.float32)[:, None])
    if loops:
        replay = append(replay, 1, -1.0 - jnp.arange(loops, dtype=jnp.float32)[:, None])
    return replay


@pytest.mark.parametrize(
    ("loops", "share", "expected"),
    [(500, 0.2, 51), (500, 0.0, 0), (30, 0.2, 30), (0, 0.2, 0), (500, 0.5, 128)],
)
def test_a_batch_holds_the_floor_of_the_wanted_share_but_no_more_than_there_is(loops, share, expected):
    rows = sample_rows(filled(400, loops), jax.random.key(0), 5, 256, jnp.array([share]))
    np.testing.assert_array_equal((np.asarray(rows) < 0).sum(axis=(1, 2)), expected)


def test_rows_are_drawn_uniformly_over_what_is_filled():
    rows = np.asarray(sample_rows(filled(100, 0), jax.random.key(1), 400, 256, jnp.array([0.2]))).ravel()
    counts = np.bincount(rows.astype(int), minlength=100)
    assert counts.size == 100
    assert stats.chisquare(counts).pvalue > 1e-3
