"""When the senders may send, and which flow sends at each opportunity: slots and weighted round robin.

One chain of slots serves the whole network; the gap between two slots is 1 / (Poisson(500) + 1) seconds,
whatever the action. In an interval flow k may send N_k = ceil(r_k) packets. Its n-th packet (from 0) carries
the tag n / r_k, and each slot sends the packet with the smallest tag, of equal ones that of the first flow.
So all packets leave in one burst of about sum(N) / 500 seconds, interleaved in proportion to the rates. One
slot stays empty: the first one after flow 0 has sent its last packet and every flow its first (the published
simulator does so). Tags that agree within float32 resolution may change places.
"""

from __future__ import annotations

from functools import cache
from math import exp, lgamma, log
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

_COLUMNS = 512
_FRACTION_BITS = 23


class GapTable(NamedTuple):
    """A Poisson law as an alias table: one random word picks a column, then it or its alias."""

    entries: NDArray[np.uint32]
    """Threshold (23 bits) and alias (9 bits) of each column."""
    first: int
    """The count that column 0 stands for."""


@cache
def gap_table(rate: int) -> GapTable:
    """Tabulate Poisson(rate) on the 512 counts around its mean; the others' probability is < 1e-14."""
    first = rate - _COLUMNS // 2
    counts = range(first, first + _COLUMNS)
    mass = np.array([exp(count * log(rate) - rate - lgamma(count + 1)) for count in counts])
    share = mass / mass.sum() * _COLUMNS
    alias = np.arange(_COLUMNS)
    threshold = np.ones(_COLUMNS)
    poor = [column for column in range(_COLUMNS) if share[column] < 1.0]
    rich = [column for column in range(_COLUMNS) if share[column] >= 1.0]
    while poor and rich:
        giver, taker = rich.pop(), poor.pop()
        threshold[taker], alias[taker] = share[taker], giver
        share[giver] -= 1.0 - share[taker]
        (poor if share[giver] < 1.0 else rich).append(giver)
    ticks = np.minimum(np.rint(threshold * 2**_FRACTION_BITS), 2**_FRACTION_BITS - 1).astype(np.uint32)
    return GapTable((ticks << np.uint32(9)) | alias.astype(np.uint32), first)


def draw_gaps(key: jax.Array, rate: int, count: int) -> jax.Array:
    """Draw `count` gaps between slots in seconds, 1 / (Poisson(rate) + 1)."""
    table = gap_table(rate)
    words = jax.random.bits(key, (count,), jnp.uint32)
    column = words >> _FRACTION_BITS
    entry = jnp.asarray(table.entries)[column]
    keeps_column = (words & (2**_FRACTION_BITS - 1)) < (entry >> 9)
    drawn = jnp.where(keeps_column, column, entry & (_COLUMNS - 1)).astype(jnp.float32)
    gaps: jax.Array = 1.0 / (drawn + (table.first + 1.0))
    return gaps


class SendingPlan(NamedTuple):
    """The packets of one interval, listed flow after flow; entries from `total` on are empty."""

    flow: jax.Array
    order: jax.Array
    """Which packet of the whole network this is, from 0."""
    slot: jax.Array
    """The slot it leaves in: its order, plus one behind the empty slot."""
    total: jax.Array


def plan_sending(rates: jax.Array, most_packets: int) -> SendingPlan:
    """Return flow, order and slot of up to `most_packets` packets, for positive rates per interval."""
    flows = rates.shape[0]
    packets = jnp.ceil(rates).astype(jnp.int32)
    # Tags are products with this one reciprocal wherever they are compared: equal rates must tie exactly.
    pace = jax.lax.optimization_barrier(1.0 / rates)
    entry = jnp.arange(most_packets)
    flow = jnp.zeros_like(entry)
    number = entry
    begin = jnp.zeros((), jnp.int32)
    begins = []
    for k in range(flows):
        begins.append(begin)
        begin = begin + packets[k]
    tag_pace = jnp.broadcast_to(pace[0], entry.shape)
    for k in range(1, flows):
        is_later = entry >= begins[k]
        flow = jnp.where(is_later, k, flow)
        number = jnp.where(is_later, entry - begins[k], number)
        tag_pace = jnp.where(is_later, pace[k], tag_pace)
    tag = jax.lax.optimization_barrier(number.astype(jnp.float32) * tag_pace)
    order = number
    for k in range(flows):
        # Packets of flow k that go before: the guess may be one off, so its neighbours are compared as well.
        guess = jnp.maximum(jnp.floor(tag * rates[k]) - 1.0, 0.0)
        before = guess
        for step in range(3):
            other = (guess + step) * pace[k]
            before = before + jnp.where(k < flow, other <= tag, other < tag)
        order = order + jnp.where(flow == k, 0, jnp.minimum(before.astype(jnp.int32), packets[k]))
    last_of_first_flow = jnp.max(jnp.where((flow == 0) & (entry < begin), order, 0))
    empty_slot = jnp.maximum(last_of_first_flow + 1, flows)
    return SendingPlan(flow, order, order + (order >= empty_slot), begin)
