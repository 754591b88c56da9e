"""Which point of a set lies farthest along a direction, as Frank-Wolfe methods ask: greedy filling."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from inbounds.constraints.arrays import Array, clip, constant_like, total
from inbounds.constraints.box import Bounds, corner
from inbounds.constraints.situation import Situation


@runtime_checkable
class FarthestInBox(Protocol):
    """A constraint that has a closed form for the farthest point of itself and any box together."""

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Return a point of the set and the box that is farthest along a direction."""


def greedy_fill(xp: Any, capacity: Array, cost: Array, preference: Array, budget: Array) -> Array:
    """Return how much of each capacity is filled, in the order of preference, until the budget is spent.

    Filling entry i entirely costs cost_i * capacity_i; entries without a cost are filled in any case. The share
    of each entry follows from what all entries before it cost: every pair is compared, nothing is sorted.
    """
    has_cost = cost > 0
    price = xp.where(has_cost, cost * xp.where(has_cost, capacity, 0.0), 0.0)
    rival, own = preference[..., None, :], preference[..., :, None]
    comes_first = constant_like(preference, np.tri(capacity.shape[-1], k=-1, dtype=bool))
    is_before = (rival > own) | ((rival == own) & comes_first)
    spent = total(xp, xp.where(is_before, price[..., None, :], 0.0))
    left = xp.maximum(budget[..., None] - spent, 0.0) / xp.where(has_cost, cost, 1.0)
    return xp.where(has_cost, xp.minimum(left, capacity), capacity)


def fill_towards_corner(
    xp: Any, direction: Array, cost: Array, start: Array, bounds: Bounds, budget: Array
) -> Array:
    """Go from the start to the corner of a box that lies farthest, best gain for its cost first."""
    distance = xp.abs(xp.where(direction == 0, 0.0, corner(xp, direction, bounds) - start))
    gain = xp.abs(direction) / xp.where(cost > 0, cost, 1.0)
    filled = greedy_fill(xp, distance, cost, gain, budget)
    return clip(xp, start + xp.where(direction < 0, -filled, filled), *bounds)
