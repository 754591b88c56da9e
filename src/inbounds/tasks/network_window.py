"""What happens on all links within one window of 0.05 s: who leaves, who arrives, who waits, who is dropped.

Each link owns a ring of packets that already know when they reach their next link, in the order of these times. A
window takes from every ring the packets whose time has come, lists them in one table of fixed size, finds for each
the moment its service begins (see `network_simulator` for the mathematics), and appends it to the ring of the link
that it has reached. Packets without a further trunk are counted as acknowledged instead.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.tasks.network_layout import PROPAGATION, QUEUE_LIMIT, RETURN_HOP, TRUNKS, NetworkLayout
from inbounds.tasks.network_order import (
    Returns,
    add_returns,
    count_groups,
    earlier_arrivals,
    largest_earlier,
    per_link,
    started_before,
)

WINDOW = PROPAGATION
LINKS = len(TRUNKS)
ACCESS = LINKS
"""The row of the access links among the rings, after the trunks."""
EXIT = LINKS
"""The destination of a packet that has crossed its last trunk."""
RINGS = LINKS + 1
QUEUE_SLOTS = 576
LEAVING = 40
ARRIVALS = 160

FLOW_BITS = 5
TICKS_PER_SECOND = float(2**20)
# The order of an arrival: 4 bits of link, 19 bits of time within the window, 8 bits of position in the table.
_LINK_SHIFT, _ENTRY_BITS = 27, 8
_MOMENTS = 2.0 ** (_LINK_SHIFT - _ENTRY_BITS)


class Queues(NamedTuple):
    """One ring per trunk and one for all access links, with times in seconds since the interval began."""

    departure: jax.Array
    """(rings, slots): when the packet reaches its next link, its service having begun 0.05 s before."""
    packet: jax.Array
    """(rings, slots): time waited so far in ticks of 2**-20 s, and the flow in the lowest five bits."""
    head: jax.Array
    """(rings,): the slot of the packet that departs first."""
    length: jax.Array
    """(rings,): how many packets the ring holds."""
    busy_until: jax.Array
    """(rings,): when the link has served all that it holds."""


class Tally(NamedTuple):
    """What an interval counts."""

    returns: Returns
    """Acknowledgements that return before the nominal end of this interval, and later ones."""
    drops: jax.Array
    """(paths,): dropped packets by path index, whoever sent them, as the published simulator charges them."""
    arrivals: jax.Array
    """(trunks,): packets that arrived."""
    overflow: jax.Array
    """How often a buffer was passed."""
    may_drop: jax.Array
    """Whether a queue came so near to its limit that the quick form of a window is not exact."""


def empty_queues() -> Queues:
    """Return a network without packets."""
    return Queues(
        departure=jnp.full((RINGS, QUEUE_SLOTS), -jnp.inf, jnp.float32),
        packet=jnp.zeros((RINGS, QUEUE_SLOTS), jnp.uint32),
        head=jnp.zeros(RINGS, jnp.int32),
        length=jnp.zeros(RINGS, jnp.int32),
        busy_until=jnp.zeros(RINGS, jnp.float32),
    )


def empty_tally(layout: NetworkLayout) -> Tally:
    """Return the counts at the beginning of an interval."""
    return Tally(
        returns=Returns(
            count=jnp.zeros(2 * layout.senders),
            round_trip=jnp.zeros(2 * layout.senders),
            first_time=jnp.full(layout.senders, jnp.inf),
            first_round_trip=jnp.zeros(layout.senders),
            next_event=jnp.full(layout.senders, jnp.inf),
        ),
        drops=jnp.zeros(layout.paths),
        arrivals=jnp.zeros(LINKS),
        overflow=jnp.zeros((), jnp.int32),
        may_drop=jnp.zeros((), bool),
    )


class _Movers(NamedTuple):
    """The packets that leave a ring within the window, ring after ring."""

    total: jax.Array
    entry: jax.Array
    time: jax.Array
    packet: jax.Array
    flow: jax.Array
    target: jax.Array


def advance_window(
    layout: NetworkLayout,
    queues: Queues,
    tally: Tally,
    end: jax.Array,
    services: jax.Array,
    nominal_end: jax.Array,
    *,
    is_exact: bool,
) -> tuple[Queues, Tally]:
    """Advance all links to `end`; the quick form (`is_exact` false) is right unless it raises `may_drop`."""
    queues, movers, has_overflow = _take_leaving(layout, queues, end)
    is_moving = movers.target < EXIT
    moment = jnp.clip((movers.time - (end - WINDOW)) * (_MOMENTS / WINDOW), 0.0, _MOMENTS - 1.0)
    first = movers.target << _LINK_SHIFT
    order = first | (moment.astype(jnp.int32) << _ENTRY_BITS) | movers.entry
    earlier = earlier_arrivals(order, first, jnp.where(is_moving, services, 0.0), movers.total)
    rank, drops = earlier.count, tally.drops
    if is_exact:
        is_admitted, rank = _admit(queues, movers, order, first, earlier.count)
        path = jnp.where(is_moving & ~is_admitted, movers.flow % layout.paths, -1)
        drops = drops + count_groups(path, movers.total, layout.paths)
        is_moving = is_moving & is_admitted
        earlier = earlier_arrivals(order, first, jnp.where(is_moving, services, 0.0), movers.total)
    # Lindley's recursion, solved: see `network_simulator`.
    slack = jnp.maximum(movers.time - earlier.work, look_up(queues.busy_until, movers.target))
    start = earlier.work + largest_earlier(order, first, slack, movers.total, slack)
    arrived = per_link(jnp.where(is_moving, movers.target, RINGS), start + services, movers.total, RINGS)
    following = _append(queues, movers, is_moving, rank, start)._replace(
        length=queues.length + arrived.count, busy_until=jnp.maximum(queues.busy_until, arrived.latest)
    )
    has_overflow = has_overflow | jnp.any(following.length > QUEUE_SLOTS)
    return following, Tally(
        returns=_acknowledge(layout, movers, tally.returns, nominal_end),
        drops=drops,
        arrivals=tally.arrivals + arrived.count[:LINKS],
        overflow=tally.overflow + has_overflow,
        may_drop=tally.may_drop | (jnp.any(following.length[:LINKS] >= QUEUE_LIMIT) & (not is_exact)),
    )


def look_up(table: jax.Array, index: jax.Array) -> jax.Array:
    """Return table[index] for a table of a few entries, as selections: much faster than a gather on a CPU."""
    start = jnp.broadcast_to(table[0], index.shape)
    return reduce(lambda found, i: jnp.where(index == i, table[i], found), range(1, len(table)), start)


def _wrap(position: jax.Array) -> jax.Array:
    return position - jnp.where(position >= QUEUE_SLOTS, QUEUE_SLOTS, 0)


def _nearest(queues: Queues) -> jax.Array:
    """Return (lanes, rings) the departure times of the packets at the head of each ring, then infinity."""
    lane = jnp.arange(LEAVING)[:, None]
    place = jnp.arange(RINGS) * QUEUE_SLOTS + _wrap(queues.head + lane)
    return jnp.where(lane < queues.length, queues.departure.reshape(-1)[place], jnp.inf)


def _take_leaving(layout: NetworkLayout, queues: Queues, end: jax.Array) -> tuple[Queues, _Movers, jax.Array]:
    """Take the packets that depart before `end` out of the rings; the last value tells of a passed buffer."""
    leaving = jnp.sum(_nearest(queues) < end, axis=0, dtype=jnp.int32)
    entry = jnp.arange(ARRIVALS)
    ring = jnp.zeros(ARRIVALS, jnp.int32)
    position = queues.head[0] + entry
    before = jnp.zeros((), jnp.int32)
    for other in range(1, RINGS):
        before = before + leaving[other - 1]
        is_of_other = entry >= before
        ring = jnp.where(is_of_other, other, ring)
        position = jnp.where(is_of_other, queues.head[other] + entry - before, position)
    total = before + leaving[-1]
    is_there = entry < total
    place = ring * QUEUE_SLOTS + jnp.where(is_there, _wrap(position), 0)
    packet = queues.packet.reshape(-1)[place]
    flow = (packet & (2**FLOW_BITS - 1)).astype(jnp.int32)
    target = jnp.asarray(_next_links(layout))[ring * layout.flows + flow]
    movers = _Movers(
        total=jnp.minimum(total, ARRIVALS),
        entry=entry,
        time=queues.departure.reshape(-1)[place],
        packet=packet,
        flow=flow,
        target=jnp.where(is_there, target, EXIT),
    )
    has_overflow = (total > ARRIVALS) | jnp.any(leaving >= LEAVING)
    remaining = queues._replace(head=_wrap(queues.head + leaving), length=queues.length - leaving)
    return remaining, movers, has_overflow


def _admit(
    queues: Queues, movers: _Movers, order: jax.Array, first: jax.Array, rank: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return whether each arrival finds room, and how many arrivals before it at its link did.

    By the time of arrival n (from 0) the packets held before the window leave room for c_n more, growing with n.
    The number admitted so far obeys a_{n+1} = min(a_n + 1, c_n), so a_n = min(n, min_{m < n} (c_m + n - 1 - m)).
    """
    begun = started_before(_nearest(queues) - PROPAGATION, movers.target, movers.time)
    room = (QUEUE_LIMIT - 1) - look_up(queues.length, movers.target) + begun
    ahead = rank.astype(jnp.float32)
    nothing = jnp.full_like(ahead, -jnp.inf)
    missing = largest_earlier(order, first, ahead - room, movers.total, nothing)
    admitted = jnp.minimum(ahead, ahead - 1.0 - missing).astype(jnp.int32)
    return admitted < room, admitted


def _append(
    queues: Queues, movers: _Movers, is_moving: jax.Array, rank: jax.Array, start: jax.Array
) -> Queues:
    """Write the arrivals behind the packets that their links hold, in the order of arrival."""
    position = _wrap(look_up(_wrap(queues.head + queues.length), movers.target) + rank)
    place = jnp.where(is_moving, movers.target * QUEUE_SLOTS + position, RINGS * QUEUE_SLOTS)
    waited = jnp.round(jnp.maximum(start - movers.time, 0.0) * TICKS_PER_SECOND).astype(jnp.uint32)
    packet = movers.packet + (waited << FLOW_BITS)

    def write(ring: jax.Array, values: jax.Array) -> jax.Array:
        return ring.reshape(-1).at[place].set(values, mode="drop", unique_indices=True).reshape(ring.shape)

    return queues._replace(
        departure=write(queues.departure, start + PROPAGATION), packet=write(queues.packet, packet)
    )


def _acknowledge(layout: NetworkLayout, movers: _Movers, so_far: Returns, nominal_end: jax.Array) -> Returns:
    """Count acknowledgements and add up round-trip times, by interval of return and by sender."""
    hops = jnp.asarray([len(route) for route in layout.routes], jnp.float32)[movers.flow]
    turned = movers.time + PROPAGATION
    returned = turned + RETURN_HOP * hops
    # What is on its way back makes one event per link; the first event after the nominal end closes the interval.
    next_event = turned + RETURN_HOP * jnp.ceil(jnp.maximum(nominal_end - turned, 0.0) / RETURN_HOP)
    is_out = (movers.target == EXIT) & (movers.entry < movers.total)
    sender = movers.flow // layout.paths + jnp.where(returned < nominal_end, 0, layout.senders)
    waited = (movers.packet >> FLOW_BITS).astype(jnp.float32) / TICKS_PER_SECOND
    trip = (PROPAGATION + RETURN_HOP) * hops + waited
    return add_returns(so_far, jnp.where(is_out, sender, -1), trip, returned, next_event, movers.total)


def next_departure(queues: Queues) -> jax.Array:
    """Return when the next packet of any ring reaches its next link."""
    place = jnp.arange(RINGS) * QUEUE_SLOTS + queues.head
    return jnp.min(jnp.where(queues.length > 0, queues.departure.reshape(-1)[place], jnp.inf))


def _next_links(layout: NetworkLayout) -> NDArray[np.int32]:
    """Return, for a packet of each flow at the end of each ring's link (flat), the trunk it goes to next."""
    table = np.full((RINGS, layout.flows), EXIT, np.int32)
    for flow in range(layout.flows):
        trunks = layout.trunks_of(flow)
        for here, there in zip((ACCESS, *trunks), (*trunks, EXIT), strict=True):
            table[here, flow] = there
    return table.reshape(-1)
