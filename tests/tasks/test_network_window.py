"""One window against the same window worked through packet by packet, with and without full queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.tasks.network_layout import LAYOUTS, PROPAGATION, NetworkLayout
from inbounds.tasks.network_window import (
    ACCESS,
    ARRIVALS,
    LINKS,
    QUEUE_SLOTS,
    RINGS,
    WINDOW,
    Queues,
    Tally,
    advance_window,
    as_words,
    departure_times,
    empty_queues,
    empty_tally,
)
from tests.slices import quick_slice


class Packet(NamedTuple):
    departure: float
    flow: int


def contents(queues: Queues) -> list[list[Packet]]:
    """Return the packets of every ring in the order of their departure."""
    times = np.asarray(departure_times(queues.packets), float).reshape(RINGS, QUEUE_SLOTS)
    flows = np.asarray(queues.packets[:, 1] & 31).reshape(RINGS, QUEUE_SLOTS)
    rings = []
    for ring in range(RINGS):
        slots = (int(queues.head[ring]) + np.arange(int(queues.length[ring]))) % QUEUE_SLOTS
        rings.append([Packet(times[ring, slot], int(flows[ring, slot])) for slot in slots])
    return rings


class ByHand(NamedTuple):
    rings: list[list[Packet]]
    busy_until: np.ndarray
    drops: np.ndarray


def packet_by_packet(layout: NetworkLayout, queues: Queues, end: float, services: np.ndarray) -> ByHand:
    """Serve one window in the order of arrival, counting for each packet who is in the queue."""
    rings = contents(queues)
    arrivals: list[list[tuple[float, float, int]]] = [[] for _ in range(LINKS)]
    entry = 0
    for ring in range(RINGS):
        while rings[ring] and rings[ring][0].departure < end:
            time, flow = rings[ring].pop(0)
            trunks = layout.trunks_of(flow)
            further = trunks if ring == ACCESS else trunks[trunks.index(ring) + 1 :]
            if further:
                arrivals[further[0]].append((time, float(services[entry]), flow))
            entry += 1
    busy_until = np.asarray(queues.busy_until, float).copy()
    drops = np.zeros(layout.paths)
    for link in range(LINKS):
        for time, service, flow in sorted(arrivals[link]):
            is_waiting = [packet.departure - PROPAGATION > time for packet in rings[link]]
            in_queue = sum(is_waiting) + (busy_until[link] > time)
            if in_queue >= layout.queue_limit:
                drops[flow % layout.paths] += 1
                continue
            start = max(busy_until[link], time)
            busy_until[link] = start + service
            rings[link].append(Packet(start + PROPAGATION, flow))
    return ByHand(rings, busy_until, drops)


@cache
def compiled_window(
    name: str, limit: int, is_exact: bool
) -> tuple[NetworkLayout, Callable[..., tuple[Queues, Tally]]]:
    layout = dataclasses.replace(LAYOUTS[name], queue_limit=limit)
    return layout, jax.jit(partial(advance_window, layout, is_exact=is_exact))


def burst(layout: NetworkLayout) -> Queues:
    """Return an empty network into which every flow, but mostly three that share trunks, is about to send."""
    rng = np.random.default_rng(0)
    weights = np.where(np.isin(np.arange(layout.flows), [0, 1, 3]), 12.0, 1.0)
    times = PROPAGATION + np.cumsum(rng.uniform(0.0018, 0.0022, layout.most_packets)).astype(np.float32)
    flows = rng.choice(layout.flows, layout.most_packets, p=weights / weights.sum()).astype(np.uint32)
    places = ACCESS * QUEUE_SLOTS + np.arange(layout.most_packets)
    queues = empty_queues()
    return queues._replace(
        packets=queues.packets.at[places].set(as_words(jnp.asarray(times), jnp.asarray(flows))),
        length=queues.length.at[ACCESS].set(layout.most_packets),
    )


def services_of(window: int) -> jax.Array:
    return jax.random.exponential(jax.random.key(window), (ARRIVALS,)) / 50


@pytest.mark.parametrize(("limit", "is_exact"), [(500, False), (60, True)])
@pytest.mark.parametrize("name", quick_slice(LAYOUTS, ["nsfnet"]))
def test_a_window_does_what_working_through_its_packets_does(name: str, limit: int, is_exact: bool) -> None:
    layout, advance = compiled_window(name, limit, is_exact)
    queues, tally = burst(layout), empty_tally()
    dropped = np.zeros(layout.paths)
    for window in range(1, 21):
        end = jnp.float32(window * WINDOW)
        expected = packet_by_packet(layout, queues, float(end), np.asarray(services_of(window)))
        queues, tally = advance(queues, tally, end, services_of(window), jnp.float32(1.0))
        dropped += expected.drops
        for ours, theirs in zip(contents(queues), expected.rings, strict=True):
            assert [packet.flow for packet in ours] == [packet.flow for packet in theirs]
            np.testing.assert_allclose(
                [packet.departure for packet in ours], [packet.departure for packet in theirs], atol=5e-6
            )
        np.testing.assert_allclose(queues.busy_until[:LINKS], expected.busy_until[:LINKS], atol=5e-6)
    assert tally.drops[: layout.paths].tolist() == dropped.tolist()
    assert int(tally.overflow) == 0
    assert (dropped.sum() > 10) == is_exact, "the case does not exercise what it should"


@pytest.mark.parametrize("name", LAYOUTS)
def test_both_forms_of_a_window_agree_to_the_last_bit_while_no_queue_is_full(name: str) -> None:
    (layout, quick), (_, exact) = compiled_window(name, 500, False), compiled_window(name, 500, True)
    one = other = (burst(layout), empty_tally())
    for window in range(1, 8):
        inputs = jnp.float32(window * WINDOW), services_of(window), jnp.float32(1.0)
        one, other = quick(*one, *inputs), exact(*other, *inputs)
    assert not bool(one[1].may_drop)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))


def test_the_quick_form_says_when_a_queue_comes_near_its_limit() -> None:
    layout, quick = compiled_window("nsfnet", 60, False)
    queues, tally = burst(layout), empty_tally()
    is_told = []
    for window in range(1, 10):
        queues, tally = quick(
            queues, tally, jnp.float32(window * WINDOW), services_of(window), jnp.float32(1.0)
        )
        is_told.append(bool(tally.may_drop))
    assert is_told == sorted(is_told)
    assert not is_told[2]
    assert is_told[-1]


def test_more_packets_than_a_window_can_list_are_told() -> None:
    _, quick = compiled_window("nsfnet", 500, False)
    queues = empty_queues()
    packets = queues.packets.at[:, 0].set(jax.lax.bitcast_convert_type(jnp.float32(0.01), jnp.uint32))
    queues = queues._replace(packets=packets, length=jnp.full(RINGS, 30, jnp.int32))
    _, tally = quick(queues, empty_tally(), jnp.float32(WINDOW), services_of(0), jnp.float32(1.0))
    assert int(tally.overflow) > 0
