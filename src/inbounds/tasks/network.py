"""How fast each flow of a packet network should send, with the load of every trunk kept within its capacity."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Polytope
from inbounds.errors import UnknownNameError
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.network_layout import (
    FIRST_TRUNK_NUMBER,
    LAYOUTS,
    NODE_POSITIONS,
    PROPAGATION,
    TRUNK_CAPACITY,
    TRUNKS,
    NetworkLayout,
)
from inbounds.tasks.network_simulator import FEATURES, INTERVALS_SEEN, NetworkEnvironment, NetworkState
from inbounds.tasks.network_window import QUEUE_SLOTS, RINGS
from inbounds.tasks.task import Task

REWARD_DIVISOR = 10.0


class Snapshot(NamedTuple):
    """What a person wants to see of a network: the topology, and what the last interval did to it."""

    node_positions: tuple[tuple[float, float], ...]
    trunks: tuple[tuple[int, int], ...]
    trunk_numbers: tuple[int, ...]
    capacity: float
    """Packets per second, of every trunk."""
    demanded: NDArray[np.float64]
    """(trunks,): packets per second that the action sends over each trunk, the quantity that is constrained."""
    is_constrained: NDArray[np.bool_]
    """(trunks,): whether the trunk has a row of its own in the constraint."""
    carried: NDArray[np.float64]
    """(trunks,): packets per second that arrived at each trunk in the last interval."""
    queue_lengths: NDArray[np.int64]
    """(trunks,): packets waiting or in service now."""
    throughput: NDArray[np.float64]
    """(senders,): packets per second acknowledged in the last interval, less one packet."""
    round_trip: NDArray[np.float64]
    """(senders,): their mean round-trip time in seconds."""
    drops: int
    steps: int


def snapshot(layout: NetworkLayout, state: NetworkState, action: NDArray[np.floating]) -> Snapshot:
    """Read a snapshot from the state of one network (numpy arrays) and the action that led to it."""
    queues = state.queues
    slots = np.arange(QUEUE_SLOTS)
    words = np.asarray(queues.packets, dtype=np.uint32).reshape(RINGS, QUEUE_SLOTS, 2)
    departure = np.ascontiguousarray(words[..., 0]).view(np.float32)
    head, length = np.asarray(queues.head), np.asarray(queues.length)
    is_held = (slots - head[:, None]) % QUEUE_SLOTS < length[:, None]
    is_waiting = is_held & (departure - np.float32(PROPAGATION) > 0)
    lengths = is_waiting.sum(axis=1) + (np.asarray(queues.busy_until) > 0)
    trunks = range(FIRST_TRUNK_NUMBER, FIRST_TRUNK_NUMBER + len(TRUNKS))
    return Snapshot(
        node_positions=NODE_POSITIONS,
        trunks=TRUNKS,
        trunk_numbers=tuple(trunks),
        capacity=TRUNK_CAPACITY,
        demanded=layout.incidence() @ np.asarray(action, dtype=np.float64),
        is_constrained=np.isin(trunks, layout.constrained_trunks),
        carried=np.asarray(state.arrivals, dtype=np.float64) / float(state.duration),
        queue_lengths=lengths[: len(TRUNKS)].astype(np.int64),
        throughput=np.asarray(state.throughput, dtype=np.float64),
        round_trip=np.asarray(state.round_trip, dtype=np.float64),
        drops=int(np.asarray(state.drops).sum()),
        steps=int(state.steps),
    )


@cache
def compiled_network(name: str) -> NetworkEnvironment:
    """Return the one environment of a layout, so that everything that uses it shares what was compiled."""
    return NetworkEnvironment(LAYOUTS[name])


def network_task(name: str) -> Task:
    """Return `nsfnet` (9 flows) or `nsfnet20d` (20 flows).

    The constraint is A u <= 50 on the rates u in packets per second, one row per distinct set of flows that
    shares a trunk, with A the true incidence of the routes, and the box 0 <= u <= 100 (50 with 20 flows).
    """
    if name not in LAYOUTS:
        raise UnknownNameError("network task", name, LAYOUTS, "Use one of these names.")
    layout = LAYOUTS[name]
    low = np.zeros(layout.flows, np.float32)
    high = np.full(layout.flows, layout.highest_rate, np.float32)
    rows = layout.constraint_rows()
    constraint = Polytope(rows, np.full(len(rows), TRUNK_CAPACITY)) & Box(low, high)

    def draw(state: NetworkState, action: NDArray[np.float64]) -> NDArray[np.uint8]:
        from inbounds.tasks.network_drawing import draw_network

        return draw_network(layout, snapshot(layout, state, action))

    units = ("10 Mbit/s", "10 Mbit/s", "s", "share")
    return task_of_compiled(
        compiled_network(name),
        constraint,
        name=name,
        action_low=low,
        action_high=high,
        draw=draw,
        reward_divisor=REWARD_DIVISOR,
        reward_shift=0.0,
        source=f"NSFnet with {layout.flows} flows (appendix on experimental configurations)",
        environment_id=layout.environment_id,
        ends_only_in_failure=True,
        evaluation_episodes=5,  # of 1,000 steps each: they differ by a thousandth
        observation_names=tuple(
            f"{feature} of sender 1 [{unit}], {ago} interval{'s' if ago > 1 else ''} ago"
            for ago in range(INTERVALS_SEEN, 0, -1)
            for feature, unit in zip(FEATURES, units, strict=True)
        ),
        action_names=layout.flow_names(),
        reference_action=np.asarray(layout.good_rates, np.float32),
    )
