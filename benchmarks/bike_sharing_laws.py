"""What one epoch of bike sharing does to an allocation, exactly: expectations and transitions."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.tasks.bike_sharing import LEAST_DEMAND, MOST_DEMAND, BikeSharingSystem, park, trips_served

FREQUENCIES = 256
"""Length of the transforms; no zone ever holds more than 40 + 4 * 24 bikes."""


class Allocations(NamedTuple):
    """All ways to share the fleet, and how to find one of them by its entries."""

    points: np.ndarray
    index: np.ndarray

    def find(self, points: np.ndarray) -> np.ndarray:
        """Return the row of each point."""
        base = 41 ** np.arange(self.points.shape[1] - 1)
        return self.index[points[:, :-1] @ base]


def allocations_of(system: BikeSharingSystem) -> Allocations:
    others = np.indices((system.capacity + 1,) * (system.zones - 1)).reshape(system.zones - 1, -1).T
    last = system.bikes - others.sum(axis=1)
    fits = (last >= 0) & (last <= system.capacity)
    points = np.concatenate([others[fits], last[fits, None]], axis=1).astype(np.int32)
    index = np.full(41 ** (system.zones - 1), -1, np.int32)
    index[points[:, :-1] @ 41 ** np.arange(system.zones - 1)] = np.arange(len(points))
    return Allocations(points, index)


def rows_of_demand(zones: int) -> np.ndarray:
    """Return every demand that one zone can meet, for each zone at once: (outcome, zone, destination)."""
    values = range(LEAST_DEMAND, MOST_DEMAND + 1)
    outcomes = np.array(list(itertools.product(values, repeat=zones - 1)), np.int32)
    demand = np.zeros((len(outcomes), zones, zones), np.int32)
    for zone in range(zones):
        demand[:, zone, np.arange(zones) != zone] = outcomes
    return demand


served = jax.jit(trips_served)


def where_bikes_go(bikes: int | np.ndarray, demand: np.ndarray) -> np.ndarray:
    """Return (outcome, zone, destination): where so many bikes of a zone end, those that stay included."""
    zones = demand.shape[1]
    present = np.broadcast_to(np.asarray(bikes, np.int32), demand.shape[:2])
    went = np.array(served(present, demand))
    went[:, range(zones), range(zones)] = present - went.sum(axis=2)
    return went


class EpochLaws(NamedTuple):
    """The exact law of what one zone sends to each zone (itself included), as transforms."""

    sent: np.ndarray
    """(origin, bikes, destination, frequency)"""
    lost: np.ndarray
    """(origin, bikes)"""


def epoch_laws(system: BikeSharingSystem) -> EpochLaws:
    demand = rows_of_demand(system.zones)
    zones, most = system.zones, system.capacity
    sent = np.zeros((zones, most + 1, zones, FREQUENCIES // 2 + 1), complex)
    lost = np.zeros((zones, most + 1))
    for bikes in range(most + 1):
        went = where_bikes_go(bikes, demand)
        for zone, destination in itertools.product(range(zones), repeat=2):
            law = np.bincount(went[:, zone, destination], minlength=FREQUENCIES) / len(demand)
            sent[zone, bikes, destination] = np.fft.rfft(law)
            lost[zone, bikes] = np.mean(np.maximum(demand[:, zone].sum(axis=1) - bikes, 0))
    return EpochLaws(sent, lost)


def expected_epoch(laws: EpochLaws, points: np.ndarray, potential: np.ndarray, capacity: int) -> np.ndarray:
    """Return E[-lost - overflow + sum_i potential_i(bikes that end in i before parking)] by allocation.

    Zones send independently of one another, so the law of each sum is a product of transforms.
    """
    overflow = np.maximum(np.arange(FREQUENCIES) - capacity, 0)
    weights = np.fft.rfft(potential - overflow) / FREQUENCIES
    weights[:, 1:-1] *= 2  # the frequencies that the transform of real numbers leaves out
    total = np.zeros(len(points))
    for part in np.array_split(np.arange(len(points)), max(1, len(points) // 4000)):
        chosen = points[part]
        for zone in range(points.shape[1]):
            total[part] -= laws.lost[zone, chosen[:, zone]]
            law = np.ones((len(part), FREQUENCIES // 2 + 1), complex)
            for origin in range(points.shape[1]):
                law *= laws.sent[origin, chosen[:, origin], zone]
            total[part] += (law * weights[zone].conj()).real.sum(axis=1)
    return total


class Model(NamedTuple):
    """The decision process without moving costs: rewards and transitions of each allocation."""

    reward: np.ndarray
    transition: np.ndarray


def exact_model(system: BikeSharingSystem, states: Allocations) -> Model:
    """Count all 400^3 outcomes of an epoch with three zones, for every allocation.

    What the zones send adds up, so counts are convolved; transforms do it, rounded back to whole counts.
    """
    demand = rows_of_demand(system.zones)
    size = 128
    transforms = np.zeros((system.zones, system.capacity + 1, size, size // 2 + 1), complex)
    lost = np.zeros((system.zones, system.capacity + 1))
    for bikes in range(system.capacity + 1):
        went = where_bikes_go(bikes, demand)
        for zone in range(system.zones):
            counts = np.zeros((size, size))
            np.add.at(counts, (went[:, zone, 0], went[:, zone, 1]), 1)
            transforms[zone, bikes] = np.fft.rfft2(counts)
            lost[zone, bikes] = np.mean(np.maximum(demand[:, zone].sum(axis=1) - bikes, 0))
    first, second = np.indices((size, size)).reshape(2, -1)
    arrived = np.stack([first, second, system.bikes - first - second], axis=1)
    possible = arrived[:, 2] >= 0
    parking = park(jnp.asarray(arrived[possible]), system.capacity, system.nearest_zones())
    target, overflow = states.find(np.asarray(parking.allocation)), np.asarray(parking.overflow)
    count = len(states.points)
    reward, transition = np.zeros(count), np.zeros((count, count))
    for k, point in enumerate(states.points):
        product = np.prod([transforms[zone, bikes] for zone, bikes in enumerate(point)], axis=0)
        found = np.fft.irfft2(product, s=(size, size)).ravel()
        counts = np.rint(found)
        assert np.abs(found - counts).max() < 1e-2 and counts.min() >= 0 and not counts[~possible].any()
        share = counts[possible] / len(demand) ** system.zones
        assert abs(share.sum() - 1) < 1e-12
        transition[k] = np.bincount(target, weights=share, minlength=count)
        reward[k] = -sum(lost[zone, bikes] for zone, bikes in enumerate(point)) - share @ overflow
    return Model(reward, transition)
