"""Paths through the ring of real transitions: what happened after a step, folded into one transition."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

from inbounds.replay.ring import Layout, Places, Replay, Transition, rows_at


def draw_returns(
    replay: Replay, layout: Layout, places: Places, environments: int, steps: int, gamma: float
) -> Transition:
    """Return the transitions at some places, each followed for up to `steps` steps of its environment.

    The first ring holds all environments turn by turn, so that the next step of an environment stands `environments`
    rows further on. Rows of other rings stay as they are: a rejected proposal has no future of its own.

    On the way neither the policy's entropy nor the penalties of proposals that were rejected there are counted, so that
    the constraint's values come out a little too good where many are rejected.
    """
    capacity = replay.rows.shape[1]
    newer = jnp.where(places.ring == 0, (replay.position[0] - 1 - places.row) % capacity, 0)
    path = [
        layout.unpack(rows_at(replay, Places(places.ring, (places.row + ahead * environments) % capacity)))
        for ahead in range(steps)
    ]
    return folded(path, gamma, newer // environments)


def folded(path: list[Transition], gamma: float, known: jax.Array) -> Transition:
    """Return (s_0, a_0, sum_k gamma^k r_k, gamma^m d_m, s_m+1) with the last step m that belongs to the path.

    A row continues the path where it is among the `known` ones that were written since, the episode goes on, and it
    begins in the very state to which the row before led, which it does not after a reset. `gamma` times the discount of
    the result is what the value of its last state counts.
    """
    whole = path[0]
    goes_on = jnp.ones(whole.discount.shape, bool)
    for ahead, (before, now) in enumerate(itertools.pairwise(path), 1):
        leads_here = jnp.all(now.observation == before.next_observation, axis=-1)
        goes_on = goes_on & (known >= ahead) & leads_here & (before.discount > 0)
        seen = goes_on[..., None]
        whole = whole._replace(
            reward=whole.reward + jnp.where(seen, gamma**ahead * now.reward, 0.0),
            discount=jnp.where(goes_on, gamma**ahead * now.discount, whole.discount),
            next_observation=jnp.where(seen, now.next_observation, whole.next_observation),
        )
    return whole
