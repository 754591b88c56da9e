"""What earlier arrivals at the same link add up to, without sorting: all pairs are compared.

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
from typing import NamedTuple

import jax
import jax.numpy as jnp

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
