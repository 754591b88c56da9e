"""Replay buffers on the device: packed rows, a masked append, and batches mixed from several buffers."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Transition(NamedTuple):
    """One step, or a batch of steps with any leading axes."""

    observation: jax.Array
    action: jax.Array
    """In the units that `env.step` receives."""
    reward: jax.Array
    """One entry per objective."""
    not_done: jax.Array
    """0 where the episode terminated, 1 elsewhere: truncation keeps the value of the successor."""
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
                transition.not_done[..., None],
                transition.next_observation,
            ],
            axis=-1,
        ).astype(jnp.float32)

    def unpack(self, rows: jax.Array) -> Transition:
        """Read the fields back."""
        ends = [self.observation]
        for width in (self.action, self.objectives, 1):
            ends.append(ends[-1] + width)
        observation, action, reward, not_done, following = jnp.split(rows, ends, axis=-1)
        return Transition(observation, action, reward, not_done[..., 0], following)


class Replay(NamedTuple):
    """Several buffers of equal capacity in one array, so that a mixed batch is one gather."""

    rows: jax.Array
    """(buffers, capacity, width)."""
    size: jax.Array
    """(buffers,): how many rows are filled."""
    position: jax.Array
    """(buffers,): where the next row goes."""


def empty_replay(buffers: int, capacity: int, width: int) -> Replay:
    """Return empty buffers."""
    return Replay(
        jnp.zeros((buffers, capacity, width), jnp.float32),
        jnp.zeros(buffers, jnp.int32),
        jnp.zeros(buffers, jnp.int32),
    )


def append(replay: Replay, buffer: int, rows: jax.Array, mask: jax.Array | None = None) -> Replay:
    """Append rows (count, width) to one buffer, except those with a false mask, and overwrite the oldest.

    Masked rows are scattered past the end, where `mode="drop"` ignores them: the shapes stay fixed.
    """
    capacity = replay.rows.shape[1]
    kept = jnp.ones(rows.shape[0], bool) if mask is None else mask
    order = jnp.cumsum(kept.astype(jnp.int32))
    added = order[-1]
    # With more new rows than places, only the last `capacity` of them are written, each to a place of its own.
    is_written = kept & (order > added - capacity)
    place = jnp.where(is_written, (replay.position[buffer] + order - 1) % capacity, capacity)
    return Replay(
        replay.rows.at[buffer, place].set(rows, mode="drop", unique_indices=False),
        replay.size.at[buffer].set(jnp.minimum(replay.size[buffer] + added, capacity)),
        replay.position.at[buffer].set((replay.position[buffer] + added) % capacity),
    )


def sample_rows(
    replay: Replay, key: jax.Array, batches: int, batch_size: int, fractions: jax.Array
) -> jax.Array:
    """Draw (batches, batch_size, width) rows uniformly with replacement.

    `fractions[k]` of a batch come from buffer k + 1; buffer 0 fills the rest. As in the published code a buffer gives
    at most as many rows as it holds: n_k = min(|D_k|, floor(batch_size * fraction_k)).
    """
    wanted = jnp.floor(batch_size * fractions).astype(jnp.int32)
    counts = jnp.minimum(wanted, replay.size[1:])
    ends = jnp.cumsum(counts)
    buffer = jnp.searchsorted(ends, jnp.arange(batch_size), side="right")
    buffer = jnp.where(buffer >= counts.shape[0], 0, buffer + 1)
    row = jax.random.randint(key, (batches, batch_size), 0, jnp.maximum(replay.size[buffer], 1))
    return replay.rows[buffer[None, :], row]
