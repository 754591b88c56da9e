"""Rings of transitions on the device: packed rows, a masked append, and a draw from several rings in given shares."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Transition(NamedTuple):
    """One step, or any batch of steps: the leading axes are free, the names are not."""

    observation: jax.Array
    action: jax.Array
    """In the units that `env.step` receives."""
    reward: jax.Array
    """One entry per objective."""
    discount: jax.Array
    """0 where the episode terminated, 1 elsewhere: truncation keeps the value of the successor. Less where a transition
    stands for several steps: what the value of its last state counts, one step's discount aside."""
    next_observation: jax.Array


class Layout(NamedTuple):
    """Where the fields of a transition stand in a packed row; one row is one gather instead of five."""

    observation: int
    action: int
    objectives: int

    @property
    def width(self) -> int:
        """Return the number of floats in a row."""
        return 2 * self.observation + self.action + self.objectives + 1

    def pack(self, transition: Transition) -> jax.Array:
        """Write the fields side by side."""
        return jnp.concatenate(
            [
                transition.observation,
                transition.action,
                transition.reward,
                transition.discount[..., None],
                transition.next_observation,
            ],
            axis=-1,
        ).astype(jnp.float32)

    def unpack(self, rows: jax.Array) -> Transition:
        """Read the fields back."""
        ends = [self.observation]
        for width in (self.action, self.objectives, 1):
            ends.append(ends[-1] + width)
        observation, action, reward, discount, following = jnp.split(rows, ends, axis=-1)
        return Transition(observation, action, reward, discount[..., 0], following)


class Replay(NamedTuple):
    """Several rings of equal capacity in one array, so that a mixed batch is one gather."""

    rows: jax.Array
    """(rings, capacity, width)."""
    size: jax.Array
    """(rings,): how many rows are filled."""
    position: jax.Array
    """(rings,): where the next row goes."""


def empty_replay(rings: int, capacity: int, width: int) -> Replay:
    """Return rings without content."""
    return Replay(
        jnp.zeros((rings, capacity, width), jnp.float32),
        jnp.zeros(rings, jnp.int32),
        jnp.zeros(rings, jnp.int32),
    )


def append(replay: Replay, ring: int, rows: jax.Array, mask: jax.Array | None = None) -> Replay:
    """Append rows (count, width), those with a false mask left out, overwriting the oldest.

    Left-out rows are scattered past the end, where `mode="drop"` ignores them: the shapes stay fixed.
    """
    capacity = replay.rows.shape[1]
    kept = jnp.ones(rows.shape[0], bool) if mask is None else mask
    order = jnp.cumsum(kept.astype(jnp.int32))
    added = order[-1]
    # With more new rows than places, only the last `capacity` of them may claim a place, each exactly one.
    is_written = kept & (order > added - capacity)
    place = jnp.where(is_written, (replay.position[ring] + order - 1) % capacity, capacity)
    return Replay(
        replay.rows.at[ring, place].set(rows, mode="drop", unique_indices=False),
        replay.size.at[ring].set(jnp.minimum(replay.size[ring] + added, capacity)),
        replay.position.at[ring].set((replay.position[ring] + added) % capacity),
    )


class Places(NamedTuple):
    """Where drawn rows stand."""

    ring: jax.Array
    """(1, batch_size): which ring, the same for all batches."""
    row: jax.Array
    """(batches, batch_size)."""


def draw_places(replay: Replay, key: jax.Array, batches: int, batch_size: int, shares: jax.Array) -> Places:
    """Draw places of (batches, batch_size) rows uniformly with replacement.

    `shares[k]` is the wanted share of ring k + 1; ring 0 fills the rest. As in the published learner a ring gives
    at most as many rows as it holds: n_k = min(|D_k|, floor(batch_size * share_k)).
    """
    wanted = jnp.floor(batch_size * shares).astype(jnp.int32)
    counts = jnp.minimum(wanted, replay.size[1:])
    ends = jnp.cumsum(counts)
    ring = jnp.searchsorted(ends, jnp.arange(batch_size), side="right")
    ring = jnp.where(ring >= counts.shape[0], 0, ring + 1)
    row = jax.random.randint(key, (batches, batch_size), 0, jnp.maximum(replay.size[ring], 1))
    return Places(ring[None, :], row)


def rows_at(replay: Replay, places: Places) -> jax.Array:
    """Return the rows (batches, batch_size, width) that stand at some places."""
    return replay.rows[places.ring, places.row]


def draw_rows(replay: Replay, key: jax.Array, batches: int, batch_size: int, shares: jax.Array) -> jax.Array:
    """Draw (batches, batch_size, width) rows as `draw_places` says."""
    return rows_at(replay, draw_places(replay, key, batches, batch_size, shares))
