"""In which order packets leave, and what the packets that arrived before at a link add up to.

Sending: when the senders may send, and which flow sends at each opportunity: slots and weighted round robin.

One chain of slots serves the whole network; the gap between two slots is 1 / (Poisson(500) + 1) seconds,
whatever the action. In an interval flow k may send N_k = ceil(r_k) packets. Its n-th packet (from 0) carries
the tag n / r_k, and each slot sends the packet with the smallest tag, of equal ones that of the first flow.
So all packets leave in one burst of about sum(N) / 500 seconds, interleaved in proportion to the rates. One
slot stays empty: the first one after flow 0 has sent its last packet and every flow its first (the published
simulator does so). Tags that agree within float32 resolution may change places.

Arriving: what earlier arrivals at the same link add up to, without sorting: all pairs are compared.

Arrivals carry an integer `order` that is unique and grows with link, then time; `first` is the smallest
order of their link. Arrival i is earlier than j at the same link where first_j <= order_i < order_j. Only the
first `total` arrivals of a list are there; the places behind belong to no link, no group and no event, because
the loop below may look at a few of them.

Comparing all pairs is one large operation, which suits a GPU, where the number of operations counts; on a CPU
a loop over blocks of arrivals keeps its sums in vector registers and stops at `total`, several times faster
than a sort.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, lgamma, log
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

# Sending --------------------------------------------------------------------------------------------------------------

_COLUMNS = 512
_FRACTION_BITS = 23


class GapTable(NamedTuple):
    """A Poisson distribution as an alias table: one random word picks a column, then it or its alias."""

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


# Arriving -------------------------------------------------------------------------------------------------------------

_BLOCK = 8

Row = tuple[jax.Array, ...]


def _in_blocks(total: jax.Array, columns: Row, initial: Row, add: Callable[[Row, Row], Row]) -> Row:
    """Fold the rows of `columns` into `initial` one after the other, as far as `total` goes."""

    def is_unfinished(carry: tuple[jax.Array, Row]) -> jax.Array:
        return carry[0] < total

    def block(carry: tuple[jax.Array, Row]) -> tuple[jax.Array, Row]:
        at, sums = carry
        rows = [jax.lax.dynamic_slice_in_dim(column, at, _BLOCK) for column in columns]
        for i in range(_BLOCK):
            sums = add(sums, tuple(row[i] for row in rows))
        return at + _BLOCK, sums

    return jax.lax.while_loop(is_unfinished, block, (jnp.zeros((), jnp.int32), initial))[1]


def _earlier_pairs(order: jax.Array, first: jax.Array, total: jax.Array) -> jax.Array:
    is_there = jnp.arange(order.shape[0]) < total
    return (order[:, None] < order) & (order[:, None] >= first) & is_there[:, None]


class Earlier(NamedTuple):
    """Per arrival: how many came before it at its link, and what service they need together."""

    arrivals: jax.Array
    work: jax.Array


def earlier_arrivals(order: jax.Array, first: jax.Array, service: jax.Array, total: jax.Array) -> Earlier:
    """Count the earlier arrivals of each arrival and add up their services."""

    def by_loop(order: jax.Array, first: jax.Array, service: jax.Array, total: jax.Array) -> Earlier:
        def add(sums: Row, row: Row) -> Row:
            is_earlier = (row[0] < order) & (row[0] >= first)
            return sums[0] + is_earlier, sums[1] + jnp.where(is_earlier, row[1], 0.0)

        return Earlier(*_in_blocks(total, (order, service), (jnp.zeros_like(order), 0.0 * service), add))

    def at_once(order: jax.Array, first: jax.Array, service: jax.Array, total: jax.Array) -> Earlier:
        is_earlier = _earlier_pairs(order, first, total)
        work = jnp.sum(jnp.where(is_earlier, service[:, None], 0.0), axis=0)
        return Earlier(jnp.sum(is_earlier, axis=0, dtype=jnp.int32), work)

    return Earlier(*jax.lax.platform_dependent(order, first, service, total, cpu=by_loop, default=at_once))


def largest_earlier(
    order: jax.Array, first: jax.Array, value: jax.Array, total: jax.Array, least: jax.Array
) -> jax.Array:
    """Return, per arrival, the largest value among the earlier arrivals, but at least `least`."""

    def by_loop(
        order: jax.Array, first: jax.Array, value: jax.Array, total: jax.Array, least: jax.Array
    ) -> jax.Array:
        def add(sums: Row, row: Row) -> Row:
            is_larger = (row[0] < order) & (row[0] >= first) & (row[1] > sums[0])
            return (jnp.where(is_larger, row[1], sums[0]),)

        return _in_blocks(total, (order, value), (least,), add)[0]

    def at_once(
        order: jax.Array, first: jax.Array, value: jax.Array, total: jax.Array, least: jax.Array
    ) -> jax.Array:
        candidates = jnp.where(_earlier_pairs(order, first, total), value[:, None], -jnp.inf)
        return jnp.maximum(least, jnp.max(candidates, axis=0))

    largest: jax.Array = jax.lax.platform_dependent(
        order, first, value, total, least, cpu=by_loop, default=at_once
    )
    return largest


def started_before(starting: jax.Array, target: jax.Array, time: jax.Array) -> jax.Array:
    """Return, per arrival, how many of the times (lanes, links) of its link have come by its own time."""

    def by_loop(starting: jax.Array, target: jax.Array, time: jax.Array) -> jax.Array:
        def add(link: jax.Array, count: jax.Array) -> jax.Array:
            is_here = target == link
            moments = jax.lax.dynamic_index_in_dim(starting, link, axis=1, keepdims=False)
            for lane in range(starting.shape[0]):
                count = count + (is_here & (moments[lane] <= time))
            return count

        counted: jax.Array = jax.lax.fori_loop(0, starting.shape[1], add, jnp.zeros(target.shape, jnp.int32))
        return counted

    def at_once(starting: jax.Array, target: jax.Array, time: jax.Array) -> jax.Array:
        own = starting[:, jnp.minimum(target, starting.shape[1] - 1)]
        return jnp.sum(own <= time, axis=0, dtype=jnp.int32)

    count: jax.Array = jax.lax.platform_dependent(starting, target, time, cpu=by_loop, default=at_once)
    return count


class Movement(NamedTuple):
    """Every packet of a window: where it goes, or what its acknowledgement tells."""

    link: jax.Array
    """The link it has reached, or a number beyond all links."""
    served: jax.Array
    """When that link will have served it."""
    group: jax.Array
    """The group that its acknowledgement counts in, or -1."""
    round_trip: jax.Array
    event: jax.Array
    """When its acknowledgement makes the first hop after the interval, or infinity."""


class Summary(NamedTuple):
    """A window in numbers: per link the first two, per group the others."""

    arrived: jax.Array
    served: jax.Array
    """The latest end of a service, or -infinity."""
    returned: jax.Array
    round_trip: jax.Array
    """Sum of the round-trip times."""
    event: jax.Array
    """The first event of all, repeated."""


def summarise(movement: Movement, total: jax.Array, groups: int) -> Summary:
    """Add up a window by link and by group, both numbered 0 .. groups - 1."""
    number = jnp.arange(groups)

    def by_loop(movement: Movement, total: jax.Array) -> Summary:
        def add(sums: Row, row: Row) -> Row:
            link, served, group, round_trip, event = row
            is_link, is_group = number == link, number == group
            return (
                sums[0] + is_link,
                jnp.where(is_link & (served > sums[1]), served, sums[1]),
                sums[2] + is_group,
                sums[3] + jnp.where(is_group, round_trip, 0.0),
                jnp.minimum(sums[4], event),
            )

        zeros = jnp.zeros(groups)
        nothing = Summary(zeros.astype(jnp.int32), zeros - jnp.inf, zeros, zeros, zeros + jnp.inf)
        return Summary(*_in_blocks(total, tuple(movement), tuple(nothing), add))

    def at_once(movement: Movement, total: jax.Array) -> Summary:
        is_there = (jnp.arange(movement.link.shape[0]) < total)[:, None]
        is_link = (movement.link[:, None] == number) & is_there
        is_group = (movement.group[:, None] == number) & is_there
        return Summary(
            arrived=jnp.sum(is_link, axis=0, dtype=jnp.int32),
            served=jnp.max(jnp.where(is_link, movement.served[:, None], -jnp.inf), axis=0),
            returned=jnp.sum(is_group, axis=0, dtype=jnp.float32),
            round_trip=jnp.sum(jnp.where(is_group, movement.round_trip[:, None], 0.0), axis=0),
            event=jnp.min(jnp.where(is_there & (number >= 0), movement.event[:, None], jnp.inf), axis=0),
        )

    return Summary(*jax.lax.platform_dependent(movement, total, cpu=by_loop, default=at_once))
