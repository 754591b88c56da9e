"""The Q replay buffer of Q-Pensieve (Hung et al., ICLR 2023): frozen critics, and the supremum over them.

ARAM's policy loss with |W| preferences and a buffer of critics replaces min_j lambda^T Q_j(s, a; lambda) by

    sup over lambda' in W and Q' in the buffer of  min_j lambda^T Q'_j(s, a; lambda'),

where W holds lambda itself and |W| - 1 further draws, and the buffer holds the current critic and its snapshots. The
critics are evaluated at lambda', and their objectives are weighted by lambda.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from inbounds.policies.networks import Network, after_first_layer, first_layer, q_values

SNAPSHOT_START = 20_000
"""Updates before the first interval; the first snapshot is taken one interval later."""
SNAPSHOT_INTERVAL = 1_000
"""Updates between two snapshots."""


class Snapshots(NamedTuple):
    """The Q replay buffer."""

    critics: Network
    """Frozen twin critics, newest first: (snapshots, twins, ...)."""
    taken: jax.Array
    """Snapshots taken so far; the oldest ones are dropped."""


def empty_snapshots(critic: Network, count: int) -> Snapshots:
    """Return a buffer for `count` snapshots.

    It holds copies of the critic instead of zeros: entries that were not taken are masked but still differentiated, and
    an input scale of zero would divide by zero.
    """
    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), critic)
    return Snapshots(copies, jnp.zeros((), jnp.int32))


def take_snapshot(snapshots: Snapshots, critic: Network, updates: jax.Array) -> Snapshots:
    """Store the critic as the newest snapshot if one is due after so many updates.

    Call it once per environment step, not per update: with several seeds side by side nothing can be skipped, so the
    test costs as much as the copy. A call takes one snapshot at most; missed ones follow at the next calls.
    """
    is_due = (updates - SNAPSHOT_START) // SNAPSHOT_INTERVAL > snapshots.taken
    critics = jax.tree.map(
        lambda then, now: jnp.where(is_due, jnp.concatenate([now[None], then[:-1]]), then),
        snapshots.critics,
        critic,
    )
    return Snapshots(critics, snapshots.taken + is_due)


def supremum_value(
    critic: Network,
    snapshots: Snapshots,
    observation: jax.Array,
    action: jax.Array,
    candidates: jax.Array,
    weights: jax.Array,
) -> jax.Array:
    """Return the supremum of the module's docstring for every sample.

    A forward pass without gradient finds the best candidate of each critic; only that one is differentiated, which
    gives the gradient of the full supremum for a fraction of the work.

    Args:
        critic: the current twin critics; no gradient reaches them.
        snapshots: the Q replay buffer; snapshots that were not taken yet do not count.
        observation: (batch, observation size), without a preference.
        action: (batch, action size) in [-1, 1], drawn by reparameterisation.
        candidates: (|W|, 2), the preferences W with lambda first.
        weights: (batch, 2), lambda for every sample.
    """
    ensemble = jax.tree.map(lambda now, then: jnp.concatenate([now[None], then]), critic, snapshots.critics)
    is_filled = jnp.arange(ensemble[0].weight.shape[0]) <= snapshots.taken
    best = best_preference(ensemble, observation, jax.lax.stop_gradient(action), candidates, weights)
    inputs = jax.vmap(lambda chosen: jnp.concatenate([observation, chosen], axis=-1))(best)
    values = jax.vmap(q_values, (0, 0, None))(ensemble, inputs, action)
    return jax.vmap(best_critic, (1, 0, None))(values, weights, is_filled)


def best_preference(
    ensemble: Network, observation: jax.Array, action: jax.Array, candidates: jax.Array, weights: jax.Array
) -> jax.Array:
    """Return (critics, batch, 2): the candidate at which each critic gives each sample the largest value."""
    critics, batch = ensemble[0].weight.shape[0], observation.shape[0]
    if candidates.shape[0] == 1:
        return jnp.broadcast_to(candidates[0], (critics, batch, 2))
    values = jnp.sum(values_at_all(ensemble, observation, action, candidates) * weights, axis=-1)
    return candidates[jnp.argmax(jnp.min(values, axis=1), axis=1)]


def values_at_all(
    ensemble: Network, observation: jax.Array, action: jax.Array, candidates: jax.Array
) -> jax.Array:
    """Return (critics, twins, candidates, batch, objectives): every critic at every candidate preference.

    A preference enters the first layer as a term of its own, so the rest of that layer is computed once for all.
    """
    size = observation.shape[-1]
    blank = jnp.zeros((*observation.shape[:-1], 2))
    inputs = jnp.concatenate([observation, blank, action], axis=-1)

    def of_one(critic: Network) -> jax.Array:
        weight = critic[0].weight[size : size + 2]
        term: jax.Array = candidates[:, None, :1] * weight[0] + candidates[:, None, 1:] * weight[1]
        return after_first_layer(critic, first_layer(critic, inputs) + term)

    return jax.vmap(jax.vmap(of_one))(ensemble)


def best_critic(values: jax.Array, preference: jax.Array, is_filled: jax.Array) -> jax.Array:
    """Return max_c min_j lambda^T Q_{c,j} of values (critics, twins, objectives), over the critics that are filled."""
    smaller = jnp.min(values @ preference, axis=-1)
    return jnp.max(jnp.where(is_filled, smaller, -jnp.inf))
