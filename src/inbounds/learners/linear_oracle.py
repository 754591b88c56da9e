"""The action of a set that lies farthest along a direction: the oracle of Frank-Wolfe methods, batched.

argmax <x, G> over x in C(s). Where C(s) is one set and a box, the maximiser is a closed form: a greedy
filling for weighted norms, budgets and bands, and a scaled direction for a ball. For other sets it is the
projection of a point far along G, which for a polytope is a solution of the linear program.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from inbounds.constraints.ball import Ball
from inbounds.constraints.box import Bounds
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.intersection import BoxLike
from inbounds.constraints.power_budget import PowerBudget
from inbounds.constraints.situation import Situation
from inbounds.constraints.sum_band import SumBand
from inbounds.constraints.weighted_l1 import WeightedL1

FAR = 1e3
"""How many box widths away a point is far: the value of what is found misses the maximum by 1 / FAR of a width."""


def linear_maximiser(constraint: Constraint, observation: jax.Array, gradient: jax.Array) -> jax.Array:
    """Return the feasible action with the largest inner product with each gradient.

    Args:
        constraint: C(s); it must be bounded, as a set with a box always is.
        observation: (..., observation size).
        gradient: (..., action size); an entry of 0 leaves that entry of the action free.
    """
    at, direction, _ = constraint.situation(observation, gradient)
    bounds, others = _split(constraint, at, gradient.shape[-1])
    if not others:
        return jnp.where(direction > 0, bounds.high, bounds.low)
    if len(others) == 1:
        only = others[0]
        if isinstance(only, WeightedL1 | PowerBudget):
            return _filled_budget(at, only, bounds, direction)
        if isinstance(only, SumBand):
            return _filled_band(at, only, bounds, direction)
    far = _far(bounds, direction, from_zero=len(others) == 1 and isinstance(others[0], Ball))
    found: jax.Array = constraint.project(observation, far)
    return found


def _split(constraint: Constraint, at: Situation, dimension: int) -> tuple[Bounds, list[Constraint]]:
    """Return the box that all boxes of a set make together, and the other sets."""
    low, high = jnp.full(dimension, -jnp.inf), jnp.full(dimension, jnp.inf)
    others: list[Constraint] = []
    for member in constraint.members():
        if isinstance(member, BoxLike):
            own = member.inner_bounds(at)
            low, high = jnp.maximum(low, own.low), jnp.minimum(high, own.high)
        else:
            others.append(member)
    return Bounds(low, high), others


def _far(bounds: Bounds, direction: jax.Array, from_zero: bool) -> jax.Array:
    """Return a point far along the direction; for a ball, from its centre, only the direction matters."""
    largest = jnp.max(jnp.abs(direction), axis=-1, keepdims=True)
    heading = direction / jnp.where(largest > 0, largest, 1.0)
    width = jnp.max(bounds.high - bounds.low, axis=-1, keepdims=True)
    start = jnp.zeros_like(direction) if from_zero else 0.5 * (bounds.low + bounds.high)
    return start + FAR * jnp.where(jnp.isfinite(width), width, 1.0) * heading


def _filled_budget(at: Situation, budget: Any, bounds: Bounds, direction: jax.Array) -> jax.Array:
    """Spend a budget sum_i c_i |x_i| <= bound on the entries that earn most for it, |G_i| / c_i.

    Entries that cost nothing go to the end of their range: those of weight zero, and in a power budget those
    that brake. The box must hold 0, where nothing is spent.
    """
    weights = at.value(budget.weights)
    cost = jnp.abs(weights)
    if isinstance(budget, PowerBudget):
        cost = jnp.where(weights * direction > 0, cost, 0.0)
    cost = jnp.broadcast_to(cost, direction.shape)
    room = jnp.where(direction > 0, bounds.high, -bounds.low)
    room = jnp.where(direction == 0, 0.0, room)
    is_free = cost == 0
    worth = jnp.where(is_free, jnp.inf, jnp.abs(direction) / jnp.where(is_free, 1.0, cost))
    order = jnp.argsort(-worth, axis=-1)
    spent = jnp.take_along_axis(cost * room, order, axis=-1)
    before = jnp.cumsum(spent, axis=-1) - spent
    rest = jnp.maximum(at.value(budget.bound, axes=0)[..., None] - before, 0.0)
    affordable = rest / jnp.take_along_axis(jnp.where(is_free, 1.0, cost), order, axis=-1)
    affordable = jnp.where(jnp.take_along_axis(is_free, order, axis=-1), jnp.inf, affordable)
    filled = jnp.minimum(jnp.take_along_axis(room, order, axis=-1), affordable)
    return jnp.sign(direction) * _unsorted(filled, order)


def _filled_band(at: Situation, band: SumBand, bounds: Bounds, direction: jax.Array) -> jax.Array:
    """Raise the entries from their lower ends, the most valued first, while their sum may grow.

    Entries that are worth something may fill the band up to its upper end; entries that cost something are
    raised only as far as its lower end demands.
    """
    low, high = bounds
    low = low if band.low is None else jnp.maximum(low, at.value(band.low))
    high = high if band.high is None else jnp.minimum(high, at.value(band.high))
    low, high = jnp.broadcast_to(low, direction.shape), jnp.broadcast_to(high, direction.shape)
    total, tolerance = at.value(band.total, axes=0), at.value(band.tolerance, axes=0)
    order = jnp.argsort(-direction, axis=-1)
    width = jnp.take_along_axis(high - low, order, axis=-1)
    before = jnp.cumsum(width, axis=-1) - width
    is_worth = jnp.take_along_axis(direction, order, axis=-1) > 0
    end = jnp.where(is_worth, (total + tolerance)[..., None], (total - tolerance)[..., None])
    end = end - jnp.sum(low, axis=-1, keepdims=True)
    return low + _unsorted(jnp.clip(end - before, 0.0, width), order)


def _unsorted(values: jax.Array, order: jax.Array) -> jax.Array:
    """Bring values back to the places from which `order` took them."""
    return jnp.take_along_axis(values, jnp.argsort(order, axis=-1), axis=-1)
