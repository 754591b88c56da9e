"""What happens on all links within one window of 0.05 s: who leaves, who arrives, who waits, who is dropped.

Each link owns a ring of packets that already know when they reach their next link, in the order of these
times. A window takes from every ring the packets whose time has come, lists them in one table of fixed size,
finds for each the moment its service begins (see `network_simulator` for the mathematics), and appends it to
the ring of the link that it has reached. Packets without a further trunk are counted as acknowledged instead.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.tasks.network_layout import PROPAGATION, RETURN_HOP, TRUNKS, NetworkLayout
from inbounds.tasks.network_order import (
    Movement,
    earlier_arrivals,
    largest_earlier,
    started_before,
    summarise,
)

WINDOW = PROPAGATION
LINKS = len(TRUNKS)
ACCESS = LINKS
"""The ring of the access links, after those of the trunks."""
EXIT = LINKS
"""The destination of a packet that has crossed its last trunk."""
RINGS = LINKS + 1
NOWHERE = RINGS
"""The destination of a packet that was dropped or has left."""
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

    packets: jax.Array
    """(rings x slots, 2) words: when the packet reaches its next link, as the bits of a float32 (its service
    began 0.05 s before); and how long it has waited so far in ticks of 2**-20 s, above the five bits of its
    flow. Both in one table, because reading and writing them together halves the cost."""
    head: jax.Array
    """(rings,): the slot of the packet that departs first."""
    length: jax.Array
    """(rings,): how many packets the ring holds."""
    busy_until: jax.Array
    """(rings,): when the link has served all that it holds."""


class Tally(NamedTuple):
    """What an interval counts."""

    returned: jax.Array
    """(rings,): acknowledgements by sender; then those that return after the nominal end, by sender."""
    round_trip: jax.Array
    """(rings,): the sums of their round-trip times in seconds."""
    next_event: jax.Array
    """(rings,): when the first acknowledgement makes a hop after the nominal end, repeated."""
    drops: jax.Array
    """(rings,): dropped packets by path index, whoever sent them, as the published simulator charges them."""
    arrivals: jax.Array
    """(rings,): packets that arrived at each trunk."""
    overflow: jax.Array
    """How often a buffer was passed."""
    may_drop: jax.Array
    """Whether a queue came so near to its limit that the quick form of a window is not exact."""


def empty_queues() -> Queues:
    """Return a network without packets."""
    never = jax.lax.bitcast_convert_type(jnp.full(RINGS * QUEUE_SLOTS, -jnp.inf, jnp.float32), jnp.uint32)
    return Queues(
        packets=jnp.stack([never, jnp.zeros_like(never)], axis=-1),
        head=jnp.zeros(RINGS, jnp.int32),
        length=jnp.zeros(RINGS, jnp.int32),
        busy_until=jnp.zeros(RINGS, jnp.float32),
    )


def empty_tally() -> Tally:
    """Return the counts at the beginning of an interval."""
    zeros = jnp.zeros(RINGS)
    return Tally(
        returned=zeros,
        round_trip=zeros,
        next_event=zeros + jnp.inf,
        drops=zeros,
        arrivals=zeros,
        overflow=jnp.zeros((), jnp.int32),
        may_drop=jnp.zeros((), bool),
    )


def wrap(position: jax.Array) -> jax.Array:
    """Return the slot of a position that may lie beyond the end of a ring."""
    return position - jnp.where(position >= QUEUE_SLOTS, QUEUE_SLOTS, 0)


def departure_times(words: jax.Array) -> jax.Array:
    """Return the times that packets' words (.., 2) hold."""
    times: jax.Array = jax.lax.bitcast_convert_type(words[..., 0], jnp.float32)
    return times


def as_words(times: jax.Array, tags: jax.Array) -> jax.Array:
    """Return the words (.., 2) of packets from their times and their waits and flows."""
    return jnp.stack([jax.lax.bitcast_convert_type(times, jnp.uint32), tags], axis=-1)


class _Movers(NamedTuple):
    """The packets that leave a ring within the window, ring after ring."""

    total: jax.Array
    entry: jax.Array
    time: jax.Array
    tag: jax.Array
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
    rank, drops = earlier.arrivals, tally.drops
    if is_exact:
        is_admitted, rank = _admit(layout.queue_limit, queues, movers, order, first, earlier.arrivals)
        path = jnp.where(is_moving & ~is_admitted, movers.flow % layout.paths, -1)
        drops = drops + jnp.sum(path[:, None] == jnp.arange(RINGS), axis=0)
        is_moving = is_moving & is_admitted
        earlier = earlier_arrivals(order, first, jnp.where(is_moving, services, 0.0), movers.total)
    # Lindley's recursion, solved: see `network_simulator`.
    slack = jnp.maximum(movers.time - earlier.work, look_up(queues.busy_until, movers.target))
    start = earlier.work + largest_earlier(order, first, slack, movers.total, slack)
    movement = _acknowledgements(layout, movers, nominal_end)._replace(
        link=jnp.where(is_moving, movers.target, NOWHERE), served=start + services
    )
    summary = summarise(movement, movers.total, RINGS)
    following = _append(queues, movers, is_moving, rank, start)._replace(
        length=queues.length + summary.arrived, busy_until=jnp.maximum(queues.busy_until, summary.served)
    )
    has_overflow = has_overflow | jnp.any(following.length > QUEUE_SLOTS)
    is_near_limit = jnp.any(following.length[:LINKS] >= layout.queue_limit) & (not is_exact)
    return following, Tally(
        returned=tally.returned + summary.returned,
        round_trip=tally.round_trip + summary.round_trip,
        next_event=jnp.minimum(tally.next_event, summary.event),
        drops=drops,
        arrivals=tally.arrivals + summary.arrived,
        overflow=tally.overflow + has_overflow,
        may_drop=tally.may_drop | is_near_limit,
    )


def look_up(table: jax.Array, index: jax.Array) -> jax.Array:
    """Return table[index] for a table of a few entries, as selections: faster than a gather on a CPU."""
    start = jnp.broadcast_to(table[0], index.shape)
    return reduce(lambda found, i: jnp.where(index == i, table[i], found), range(1, len(table)), start)


def _nearest(queues: Queues) -> jax.Array:
    """Return (lanes, rings) the departure times of the packets at the head of each ring, then infinity."""
    lane = jnp.arange(LEAVING)[:, None]
    place = jnp.arange(RINGS) * QUEUE_SLOTS + wrap(queues.head + lane)
    times = jax.lax.bitcast_convert_type(queues.packets[place, 0], jnp.float32)
    return jnp.where(lane < queues.length, times, jnp.inf)


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
    words = queues.packets[ring * QUEUE_SLOTS + jnp.where(is_there, wrap(position), 0)]
    tag = words[:, 1]
    flow = (tag & (2**FLOW_BITS - 1)).astype(jnp.int32)
    target = jnp.asarray(_next_links(layout))[ring * layout.flows + flow]
    movers = _Movers(
        total=jnp.minimum(total, ARRIVALS),
        entry=entry,
        time=departure_times(words),
        tag=tag,
        flow=flow,
        target=jnp.where(is_there, target, EXIT),
    )
    has_overflow = (total > ARRIVALS) | jnp.any(leaving >= LEAVING)
    remaining = queues._replace(head=wrap(queues.head + leaving), length=queues.length - leaving)
    return remaining, movers, has_overflow


def _admit(
    limit: int, queues: Queues, movers: _Movers, order: jax.Array, first: jax.Array, rank: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return whether each arrival finds room, and how many arrivals before it at its link did.

    By the time of arrival n (from 0) the packets held before the window leave room for c_n more, growing with
    n. The number admitted so far obeys a_{n+1} = min(a_n + 1, c_n), so
    a_n = min(n, min_{m < n} (c_m + n - 1 - m)). What arrives within a window does not begin service within it
    where the queue is nearly full (the limit being far above the arrivals of a window), so c_n counts the
    packets held before alone.
    """
    begun = started_before(_nearest(queues) - PROPAGATION, movers.target, movers.time)
    room = (limit - 1) - look_up(queues.length, movers.target) + begun
    ahead = rank.astype(jnp.float32)
    missing = largest_earlier(order, first, ahead - room, movers.total, jnp.full_like(ahead, -jnp.inf))
    admitted = jnp.minimum(ahead, ahead - 1.0 - missing).astype(jnp.int32)
    return admitted < room, admitted


def _append(
    queues: Queues, movers: _Movers, is_moving: jax.Array, rank: jax.Array, start: jax.Array
) -> Queues:
    """Write the arrivals behind the packets that their links hold, in the order of arrival."""
    position = wrap(look_up(wrap(queues.head + queues.length), movers.target) + rank)
    place = jnp.where(is_moving, movers.target * QUEUE_SLOTS + position, RINGS * QUEUE_SLOTS)
    waited = jnp.round(jnp.maximum(start - movers.time, 0.0) * TICKS_PER_SECOND).astype(jnp.uint32)
    words = as_words(start + PROPAGATION, movers.tag + (waited << FLOW_BITS))
    return queues._replace(packets=queues.packets.at[place].set(words, mode="drop", unique_indices=True))


def _acknowledgements(layout: NetworkLayout, movers: _Movers, nominal_end: jax.Array) -> Movement:
    """Return when the packets that leave the network are acknowledged, and after which round-trip time."""
    hops = jnp.asarray([len(route) for route in layout.routes], jnp.float32)[movers.flow]
    turned = movers.time + PROPAGATION
    is_late = turned + RETURN_HOP * hops >= nominal_end
    is_out = (movers.target == EXIT) & (movers.entry < movers.total)
    group = movers.flow // layout.paths + jnp.where(is_late, layout.senders, 0)
    waited = (movers.tag >> FLOW_BITS).astype(jnp.float32) / TICKS_PER_SECOND
    event = turned + RETURN_HOP * jnp.ceil(jnp.maximum(nominal_end - turned, 0.0) / RETURN_HOP)
    return Movement(
        link=movers.target,
        served=movers.time,
        group=jnp.where(is_out, group, -1),
        round_trip=(PROPAGATION + RETURN_HOP) * hops + waited,
        event=jnp.where(is_out & is_late, event, jnp.inf),
    )


def next_departure(queues: Queues) -> jax.Array:
    """Return when the next packet of any ring reaches its next link."""
    words = queues.packets[jnp.arange(RINGS) * QUEUE_SLOTS + queues.head]
    return jnp.min(jnp.where(queues.length > 0, departure_times(words), jnp.inf))


def shift_origin(queues: Queues, seconds: jax.Array) -> Queues:
    """Count all times from `seconds` later on."""
    return queues._replace(
        packets=as_words(departure_times(queues.packets) - seconds, queues.packets[:, 1]),
        busy_until=queues.busy_until - seconds,
    )


def _next_links(layout: NetworkLayout) -> NDArray[np.int32]:
    """Return, for a packet of each flow at the end of each ring's link (flat), the trunk it goes to next."""
    table = np.full((RINGS, layout.flows), EXIT, np.int32)
    for flow in range(layout.flows):
        trunks = layout.trunks_of(flow)
        for here, there in zip((ACCESS, *trunks), (*trunks, EXIT), strict=True):
            table[here, flow] = there
    return table.reshape(-1)
