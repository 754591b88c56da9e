"""The network as a plain event-driven simulation: slow, short and without any of the shortcuts of the library.

Every link has a queue, access links and the way back included; every hop is one event on a heap; an interval
ends with the first event at or after its nominal end. The tests compare the compiled simulator with this one.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from inbounds.tasks.network_layout import FIRST_TRUNK_NUMBER, NetworkLayout

ACCESS_CAPACITY, TRUNK_CAPACITY = 5000.0, 50.0
DELAY, RETURN_DELAY = 0.05, 0.05 / 1000


@dataclass
class Queue:
    """Packets in order, each with the service that it still needs."""

    mean_service: float
    limit: float
    services: deque[float] = field(default_factory=deque)
    clock: float = 0.0

    def wait(self, now: float) -> float:
        """Serve until `now` and return the work that is left."""
        idle = now - self.clock
        self.clock = now
        while self.services and idle > 0:
            if self.services[0] > idle:
                self.services[0] -= idle
                break
            idle -= self.services.popleft()
        return sum(self.services)

    def admit(self, rng: np.random.Generator) -> bool:
        if len(self.services) >= self.limit:
            return False
        self.services.append(rng.exponential(self.mean_service))
        return True


@dataclass
class Packet:
    flow: int
    latency: float = 0.0
    hop: int = 0
    hops_back: int = 0


class Seen(NamedTuple):
    """What one interval showed, per sender."""

    reward: float
    throughput: np.ndarray
    round_trip: np.ndarray
    send_rate: float
    drops: np.ndarray
    sent: np.ndarray
    queue_lengths: np.ndarray


class EventDrivenNetwork:
    """One network; `reset` then `step(rates)`, as in the published simulator."""

    def __init__(self, layout: NetworkLayout, seed: int) -> None:
        self.layout = layout
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        means = [
            1 / (TRUNK_CAPACITY if link >= FIRST_TRUNK_NUMBER else ACCESS_CAPACITY) for link in range(31)
        ]
        self.forward = [Queue(mean, self.layout.queue_limit) for mean in means]
        self.back = [Queue(mean / 1000, math.inf) for mean in means]
        self.clock = 0.0
        self.ties = itertools.count()
        self.events: list[tuple[float, int, Packet | None]] = [(0.0, next(self.ties), None)]
        self.slot_rate = 1000
        self.steps = 0
        for _ in range(2):
            self._run(np.full(self.layout.flows, 1 / 6), 0.05 * self.layout.first_windows)
        self.slot_rate = 500

    def step(self, rates: np.ndarray) -> Seen:
        duration = 0.05 * self.layout.first_windows if self.steps == 0 else 1.0
        self.steps += 1
        return self._run(np.asarray(rates, dtype=float) + self.layout.rate_offset, duration)

    def _run(self, rates: np.ndarray, duration: float) -> Seen:
        start, end = self.clock, self.clock + duration
        self.credit, self.rates = rates.copy(), rates
        self.tags = np.zeros(len(rates))
        self.has_skipped = False
        self.slots = 0
        self.sent = np.zeros(self.layout.flows, dtype=int)
        self.trips: list[list[float]] = [[] for _ in range(self.layout.senders)]
        self.drops = np.zeros(self.layout.paths)
        while self.clock < end:
            self.clock, _, packet = heapq.heappop(self.events)
            if packet is None:
                self._slot()
            elif packet.hop < len(self.layout.routes[packet.flow]):
                self._hop_forward(packet)
            else:
                self._hop_back(packet)
        return self._report(self.clock - start)

    def _slot(self) -> None:
        """One opportunity to send: the flow with credit whose tag is smallest takes it."""
        self.slots += 1
        self._later(1 / (self.rng.poisson(self.slot_rate) + 1), None)
        with_credit = np.flatnonzero(self.credit > 0)
        if not with_credit.size:
            return
        flow = with_credit[np.argmin(self.tags[with_credit])]
        if self.credit[0] < 0 and self.tags[flow] > 0 and not self.has_skipped:
            self.has_skipped = True
            return
        self.credit[flow] -= 1
        self.tags[flow] += 1 / self.rates[flow]
        self.sent[flow] += 1
        self._hop_forward(Packet(int(flow)))

    def _hop_forward(self, packet: Packet) -> None:
        queue = self.forward[self.layout.routes[packet.flow][packet.hop]]
        latency = DELAY + queue.wait(self.clock)
        if not queue.admit(self.rng):
            self.drops[packet.flow % self.layout.paths] += 1
            return
        packet.hop += 1
        packet.latency += latency
        self._later(latency, packet)

    def _hop_back(self, packet: Packet) -> None:
        """The way back crosses the last link twice and the first one never."""
        route = self.layout.routes[packet.flow]
        if packet.hops_back == len(route):
            self.trips[packet.flow // self.layout.paths].append(packet.latency)
            return
        queue = self.back[route[min(len(route) - packet.hops_back, len(route) - 1)]]
        latency = RETURN_DELAY + queue.wait(self.clock)
        queue.admit(self.rng)
        packet.hops_back += 1
        packet.latency += latency
        self._later(latency, packet)

    def _later(self, delay: float, packet: Packet | None) -> None:
        heapq.heappush(self.events, (self.clock + delay, next(self.ties), packet))

    def _report(self, duration: float) -> Seen:
        throughput = np.array([(len(trips) - 1) / duration for trips in self.trips])
        round_trip = np.array([np.mean(trips) if trips else 0.0 for trips in self.trips])
        reward = sum(
            math.log(max(rate, math.exp(-17.5))) - 1.5 * math.log(max(trip, math.exp(-5)))
            for rate, trip in zip(throughput, round_trip, strict=True)
        )
        reward -= 0.5 * sum(math.log(max(count, 1)) for count in self.drops[: self.layout.senders])
        lengths = np.array([len(queue.services) for queue in self.forward[FIRST_TRUNK_NUMBER:]])
        send_rate = 0.0012 * self.slots / duration
        return Seen(reward, throughput, round_trip, send_rate, self.drops, self.sent, lengths)
