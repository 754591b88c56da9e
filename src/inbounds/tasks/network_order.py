"""What earlier arrivals at the same link add up to, without sorting: all pairs are compared.

Arrivals carry an integer `order` that is unique and grows with link, then time; `first` is the smallest order of
their link. Arrival i is earlier than j at the same link where first_j <= order_i < order_j. Only the first `total`
arrivals of a list are there.

Comparing all pairs is one large operation, which suits a GPU; on a CPU a loop over blocks of arrivals keeps its
sums in vector registers and stops at `total`, several times faster than a sort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

_BLOCK = 8


class Earlier(NamedTuple):
    """Per arrival: how many came before it at its link, and what service they need together."""

    count: jax.Array
    work: jax.Array


class PerLink(NamedTuple):
    """Per link: how many arrived and the time of the last service, or -infinity."""

    count: jax.Array
    latest: jax.Array


def _in_blocks(
    total: jax.Array,
    columns: tuple[jax.Array, ...],
    initial: tuple[jax.Array, ...],
    add: Callable[[tuple[jax.Array, ...], tuple[jax.Array, ...]], tuple[jax.Array, ...]],
) -> tuple[jax.Array, ...]:
    """Fold the rows of `columns` into `initial` one after the other, as far as `total` goes."""

    def is_unfinished(carry: tuple[jax.Array, tuple[jax.Array, ...]]) -> jax.Array:
        return carry[0] < total

    def block(
        carry: tuple[jax.Array, tuple[jax.Array, ...]],
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        at, sums = carry
        rows = [jax.lax.dynamic_slice_in_dim(column, at, _BLOCK) for column in columns]
        for i in range(_BLOCK):
            sums = add(sums, tuple(row[i] for row in rows))
        return at + _BLOCK, sums

    return jax.lax.while_loop(is_unfinished, block, (jnp.zeros((), jnp.int32), initial))[1]


def earlier_arrivals(order: jax.Array, first: jax.Array, service: jax.Array, total: jax.Array) -> Earlier:
    """Count the earlier arrivals of each arrival and add up their services."""

    def by_loop(order: jax.Array, first: jax.Array, service: jax.Array, total: jax.Array) -> Earlier:
        def add(sums: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
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
        def add(sums: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
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
            for moment in jax.lax.dynamic_index_in_dim(starting, link, axis=1, keepdims=False):
                count = count + (is_here & (moment <= time))
            return count

        return jax.lax.fori_loop(0, starting.shape[1], add, jnp.zeros(target.shape, jnp.int32))

    def at_once(starting: jax.Array, target: jax.Array, time: jax.Array) -> jax.Array:
        own = starting[:, jnp.minimum(target, starting.shape[1] - 1)]
        return jnp.sum(own <= time, axis=0, dtype=jnp.int32)

    count: jax.Array = jax.lax.platform_dependent(starting, target, time, cpu=by_loop, default=at_once)
    return count


def _earlier_pairs(order: jax.Array, first: jax.Array, total: jax.Array) -> jax.Array:
    is_there = jnp.arange(order.shape[0]) < total
    return (order[:, None] < order) & (order[:, None] >= first) & is_there[:, None]


def per_link(target: jax.Array, served: jax.Array, total: jax.Array, links: int) -> PerLink:
    """Count the arrivals of each link and find when its last service ends."""
    link = jnp.arange(links)

    def by_loop(target: jax.Array, served: jax.Array, total: jax.Array) -> PerLink:
        def add(sums: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            is_here = link == row[0]
            return sums[0] + is_here, jnp.maximum(sums[1], jnp.where(is_here, row[1], -jnp.inf))

        nothing = (jnp.zeros(links, jnp.int32), jnp.full(links, -jnp.inf))
        return PerLink(*_in_blocks(total, (target, served), nothing, add))

    def at_once(target: jax.Array, served: jax.Array, total: jax.Array) -> PerLink:
        is_there = jnp.arange(target.shape[0]) < total
        is_here = (target[:, None] == link) & is_there[:, None]
        latest = jnp.max(jnp.where(is_here, served[:, None], -jnp.inf), axis=0)
        return PerLink(jnp.sum(is_here, axis=0, dtype=jnp.int32), latest)

    return PerLink(*jax.lax.platform_dependent(target, served, total, cpu=by_loop, default=at_once))


def count_groups(group: jax.Array, total: jax.Array, groups: int) -> jax.Array:
    """Return how many arrivals each group has."""
    number = jnp.arange(groups)

    def by_loop(group: jax.Array, total: jax.Array) -> jax.Array:
        def add(sums: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            return (sums[0] + (number == row[0]),)

        return _in_blocks(total, (group,), (jnp.zeros(groups),), add)[0]

    def at_once(group: jax.Array, total: jax.Array) -> jax.Array:
        is_there = jnp.arange(group.shape[0]) < total
        return jnp.sum((group[:, None] == number) & is_there[:, None], axis=0, dtype=jnp.float32)

    count: jax.Array = jax.lax.platform_dependent(group, total, cpu=by_loop, default=at_once)
    return count


class Returns(NamedTuple):
    """Acknowledgements per sender: first those of this interval, then the late ones of the next."""

    count: jax.Array
    """(2 senders,)"""
    round_trip: jax.Array
    """(2 senders,): the sums of their round-trip times."""
    first_time: jax.Array
    """(senders,): when the first late one returns."""
    first_round_trip: jax.Array
    """(senders,): the round-trip time of that one."""
    next_event: jax.Array
    """(senders,): when the first late one makes its next hop."""


def add_returns(
    so_far: Returns,
    group: jax.Array,
    round_trip: jax.Array,
    time: jax.Array,
    next_event: jax.Array,
    total: jax.Array,
) -> Returns:
    """Add packets that have left the network, by group (sender, or sender plus senders if late, or -1)."""
    senders = so_far.first_time.shape[0]
    number = jnp.arange(2 * senders)
    late = number[senders:]

    def by_loop(
        so_far: Returns,
        group: jax.Array,
        trip: jax.Array,
        time: jax.Array,
        event: jax.Array,
        total: jax.Array,
    ) -> Returns:
        def add(sums: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            count, trips, first_time, first_trip, next_event = sums
            is_here, is_late = number == row[0], late == row[0]
            is_first = is_late & (row[2] < first_time)
            return (
                count + is_here,
                trips + jnp.where(is_here, row[1], 0.0),
                jnp.where(is_first, row[2], first_time),
                jnp.where(is_first, row[1], first_trip),
                jnp.where(is_late & (row[3] < next_event), row[3], next_event),
            )

        return Returns(*_in_blocks(total, (group, trip, time, event), tuple(so_far), add))

    def at_once(
        so_far: Returns,
        group: jax.Array,
        trip: jax.Array,
        time: jax.Array,
        event: jax.Array,
        total: jax.Array,
    ) -> Returns:
        is_there = (jnp.arange(group.shape[0]) < total)[:, None]
        is_here = (group[:, None] == number) & is_there
        is_late = is_here[:, senders:]
        times = jnp.where(is_late, time[:, None], jnp.inf)
        earliest = jnp.min(times, axis=0)
        its_trip = jnp.max(jnp.where(times == earliest, trip[:, None], 0.0), axis=0)
        is_first = earliest < so_far.first_time
        return Returns(
            count=so_far.count + jnp.sum(is_here, axis=0, dtype=jnp.float32),
            round_trip=so_far.round_trip + jnp.sum(jnp.where(is_here, trip[:, None], 0.0), axis=0),
            first_time=jnp.where(is_first, earliest, so_far.first_time),
            first_round_trip=jnp.where(is_first, its_trip, so_far.first_round_trip),
            next_event=jnp.minimum(
                so_far.next_event, jnp.min(jnp.where(is_late, event[:, None], jnp.inf), axis=0)
            ),
        )

    return Returns(
        *jax.lax.platform_dependent(
            so_far, group, round_trip, time, next_event, total, cpu=by_loop, default=at_once
        )
    )
