"""How far entries must move, together or in turn, until a sum meets a target: the engine of the closed forms."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from inbounds.constraints.arrays import (
    Array,
    clip,
    constant_like,
    is_jax,
    largest,
    least,
    stack_rows,
    total,
    without_gradient,
)
from inbounds.constraints.box import Bounds, corner
from inbounds.constraints.situation import Situation

MANY_ENTRIES = 32
"""Above this dimension an interval is halved: comparing all moments with all entries grows as its square."""

ORDINARY = 1e-15, 1e15
"""Between these the largest weight is left as it is; others are divided by it, since their squares may vanish."""

BEYOND = 1.0 + 1e-6
"""A factor, for a negative moment a divisor, that makes sure in spite of rounding that the last entry has stopped."""

ROUNDING = 2.0**-21
"""How far off, relative to the action, rounding to float32 may leave a shrunk or shifted entry."""

MOST_UNEVEN = 1e10
"""Of the ratio of two rates that are added up and taken away again: a larger one would lose the slower rate."""


class Ramps(NamedTuple):
    """Entries c_i(t) = clip(intercept_i - rate_i t, end_i, begin_i) that fall with t, along the last axis.

    `rate > 0` and `begin >= end`, both finite; an entry that never moves has `begin == end`.
    """

    intercept: Array
    rate: Array
    begin: Array
    end: Array


def squared_rates(xp: Any, factors: Array) -> Array:
    """Return squares as rates of ramps; where they vanish, a tiny number: what never moves has a rate as well."""
    return xp.maximum(factors * factors, 1e-300 if factors.dtype == xp.float64 else 1e-37)


class Bracket(NamedTuple):
    """The moments around a crossing between which no entry starts or stops; infinite where there is none."""

    last: Array
    next: Array


def crossing(xp: Any, ramps: Ramps, target: Array) -> Array:
    """Return the t from which on the sum of the ramps is down to the target.

    The sum is linear between at most 2d moments, where entries start and stop to move. The two moments around
    the crossing tell which entries are moving there, and for those the equation is linear. Where the target
    is out of reach, nothing moves any more at the returned t; where the sum is never above it, t = -infinity.
    """
    if xp is np and ramps.intercept.ndim == 1 and target.ndim == 0:
        moment = _crossing_of_one(ramps, float(target))
        if moment is not None:
            return np.float64(moment)
    # Which entries are moving does not change with small changes, so that only the equation has gradients.
    fixed = Ramps(*(without_gradient(part) for part in ramps))
    starts, stops = (fixed.intercept - fixed.begin) / fixed.rate, (fixed.intercept - fixed.end) / fixed.rate
    find = _bracket_by_halving if fixed.intercept.shape[-1] > MANY_ENTRIES else _bracket
    last, following = find(xp, fixed, stack_rows(xp, [starts, stops]), without_gradient(target))
    # Halfway between both: a compiler may round the same moment differently in two places.
    middle = 0.5 * (last + following)
    is_moving = (starts < middle) & (middle < stops)
    intercept, rate, begin, end = ramps
    rest = total(xp, xp.where(is_moving, intercept, xp.where(starts >= middle, begin, end)))
    slope = total(xp, xp.where(is_moving, rate, 0.0))
    has_slope = slope > 0
    moment = (rest - target) / xp.where(has_slope, slope, 1.0)
    return xp.where(has_slope, moment, xp.maximum(last * BEYOND, last / BEYOND)[..., 0])


def _crossing_of_one(ramps: Ramps, target: float) -> float | None:
    """Follow the sum from moment to moment; for a single action this is faster than arrays of a few numbers.

    It is None where the slowest rate would be lost in a sum with the fastest one.
    """
    size = len(ramps.intercept)
    columns = (part.tolist() if len(part) == size else part.tolist() * size for part in ramps)
    entries = [(a, r, b, e, (a - b) / r, (a - e) / r) for a, r, b, e in zip(*columns, strict=True)]
    rates = [entry[1] for entry in entries if entry[2] > entry[3]]
    if rates and max(rates) > MOST_UNEVEN * min(rates):
        return None
    level, slope, events = 0.0, 0.0, []
    for intercept, rate, begin, end, start, stop in entries:
        level += begin
        if begin > end:
            events.append((start, intercept - begin, rate))
            events.append((stop, end - intercept, -rate))
    events.sort()
    last, following = -math.inf, math.inf
    for moment, change, acceleration in events:
        if level - slope * moment < target:
            following = moment
            break
        last, level, slope = moment, level + change, slope + acceleration
    # Adding and taking away may leave an error as large as what remains: sum once more what is moving now.
    middle = 0.5 * (last + following)
    level = slope = 0.0
    for intercept, rate, begin, end, start, stop in entries:
        if start < middle < stop:
            level += intercept
            slope += rate
        else:
            level += begin if start >= middle else end
    return (level - target) / slope if slope > 0.0 else max(last * BEYOND, last / BEYOND)


def _bracket(xp: Any, ramps: Ramps, moments: Array, target: Array) -> Bracket:
    """Evaluate the sum at all moments at once; nothing is sorted."""
    if is_jax(moments):
        # Compiled, a sum of few long arrays is four times faster than a reduction over a short axis.
        sums = 0.0 * moments
        for i in range(ramps.intercept.shape[-1]):
            intercept, rate, begin, end = (
                part[..., i : i + 1] if part.shape[-1] > 1 else part for part in ramps
            )
            sums = sums + clip(xp, intercept - rate * moments, end, begin)
    else:
        intercept, rate, begin, end = (part[..., None, :] for part in ramps)
        sums = total(xp, clip(xp, intercept - rate * moments[..., None], end, begin))
    is_above = sums >= target[..., None]
    last = largest(xp, xp.where(is_above, moments, -float("inf")))
    following = least(xp, xp.where(is_above, float("inf"), moments))
    return Bracket(last[..., None], following[..., None])


def _bracket_by_halving(xp: Any, ramps: Ramps, moments: Array, target: Array) -> Bracket:
    """Halve an interval until no moment lies between its ends."""
    low, high = least(xp, moments)[..., None], largest(xp, moments)[..., None]
    for turn in range(100 if moments.dtype == xp.float64 else 50):
        # No moment in between: what follows changes nothing. Compiled loops have a fixed length.
        if xp is np and turn % 8 == 7 and not ((moments > low) & (moments <= high)).any():
            break
        middle = 0.5 * (low + high)
        sums = total(xp, clip(xp, ramps.intercept - ramps.rate * middle, ramps.end, ramps.begin))
        is_above = (sums >= target)[..., None]
        low, high = xp.where(is_above, middle, low), xp.where(is_above, high, middle)
    last = largest(xp, xp.where(moments <= low, moments, -float("inf")))
    following = least(xp, xp.where(moments <= low, float("inf"), moments))
    return Bracket(last[..., None], following[..., None])


def soft_threshold(
    xp: Any, action: Array, clipped: Array, weights: Array, bounds: tuple[Array, Array], target: Array
) -> Array:
    """Return the nearest x in a box with sum_i weights_i |x_i| <= target, for weights >= 0.

    Each entry is shrunk towards zero in proportion to its weight, x_i = clip(soft(a_i, t w_i), low_i,
    high_i), until the sum is down to the target; entries of weight zero are only clipped. Where the target
    leaves no room at all, the weighted entries become exactly the smallest ones that the box allows.
    `clipped` is the action clipped to the box.
    """
    size = xp.abs(action)
    smallest = clip(xp, 0.0 * action, *bounds)
    heaviest = largest(xp, without_gradient(weights))
    is_one = xp is np and heaviest.ndim == 0  # comparing it with numbers is quicker than with arrays
    if not (is_one and ORDINARY[0] <= heaviest <= ORDINARY[1]):
        weights, target = _in_ordinary_units(xp, weights, heaviest, target)
    begin, end = weights * xp.abs(clipped), weights * xp.abs(smallest)
    ramps = Ramps(weights * size, squared_rates(xp, weights), begin, end)
    moment = xp.maximum(crossing(xp, ramps, target), 0.0)[..., None]
    shrunk = clip(xp, xp.copysign(xp.maximum(size - moment * weights, 0.0), action), *bounds)
    if shrunk.dtype == xp.float64:
        return shrunk
    reached = xp.abs(shrunk)
    miss = total(xp, weights * reached) - target
    ends = Bounds(xp.abs(smallest), xp.abs(clipped))
    is_free = (moment > 0) & may_move(xp, size - moment * weights, size, ends, miss)
    return corrected(xp, shrunk, xp.copysign(weights, shrunk), is_free, miss, bounds)


def _in_ordinary_units(xp: Any, weights: Array, heaviest: Array, target: Array) -> tuple[Array, Array]:
    """Divide weights and target by the heaviest weight where its square might vanish or overflow."""
    is_ordinary = (heaviest >= ORDINARY[0]) & (heaviest <= ORDINARY[1]) | (heaviest == 0)
    if xp is np and is_ordinary.all():
        return weights, target
    unit = xp.where(is_ordinary, 1.0, heaviest)
    # None exceeds 2; without this limit a compiler makes (w / u)^2 out of w^2 / u^2, which may be 0 / 0.
    relative = xp.minimum(weights / unit[..., None], 2.0)
    return xp.where(is_ordinary[..., None], weights, relative), target / unit


def may_move(xp: Any, unclipped: Array, size: Array, ends: Bounds, miss: Array) -> Array:
    """Tell which entries lie between their ends, or at one of them by rounding alone, and can move against a miss.

    `unclipped` is where the entries would lie without their ends, and `size` that of the numbers it was computed from.
    """
    low, high = ends
    inside = clip(xp, unclipped, low, high)
    slack = ROUNDING * size
    return xp.where(
        miss[..., None] > 0,
        (inside > low) & (unclipped <= high + slack),
        (inside < high) & (unclipped >= low - slack),
    )


def corrected(
    xp: Any, point: Array, gradient: Array, is_free: Array, miss: Array, bounds: tuple[Array, Array]
) -> Array:
    """Move the free entries of a point along a gradient until a sum that is missed by a little is met.

    Subtracting nearly equal float32 numbers leaves an error relative to the action, which may be far away;
    what is left to correct is relative to the point itself.
    """
    direction = xp.where(is_free, gradient, 0.0)
    slope = total(xp, direction * direction)
    step = xp.where(slope > 0, miss / xp.where(slope > 0, slope, 1.0), 0.0)
    return clip(xp, point - step[..., None] * direction, *bounds)


def sign_changes(xp: Any, point: Array, direction: Array) -> tuple[Array, Array]:
    """Return when each entry of a ray passes zero, and which entries do: not those that stand still or nearly so.

    The moment is 0 for the others, whose change of sign is never, or later than float64 can say.
    """
    is_moving = direction != 0
    moments = -point / xp.where(is_moving, direction, 1.0)
    is_moving = is_moving & xp.isfinite(moments)
    return xp.where(is_moving, moments, 0.0), is_moving


def convex_reach(xp: Any, constant: Array, kinks: Array, before: Array, after: Array, bound: Array) -> Array:
    """Return the largest t >= 0 with constant + sum_i max(before_i (t-kink_i), after_i (t-kink_i)) <= bound.

    The sum is convex and linear between its kinks; `before <= 0 <= after` are the slopes on their two sides.
    The result is infinite where the sum does not rise, and 0 where the bound is passed from the beginning. A sum that
    overflows, far out on the ray, is not known to keep the bound.
    """
    moments = xp.maximum(kinks, 0.0)
    if xp is np and moments.shape[-1] > MANY_ENTRIES:
        last = _last_kept_moment(moments, kinks, before, after, bound - constant)
    else:
        ahead = moments[..., None] - kinks[..., None, :]
        sums = total(xp, xp.maximum(before[..., None, :] * ahead, after[..., None, :] * ahead))
        sums = sums + constant[..., None]
        is_kept = (sums <= bound[..., None]) & xp.isfinite(sums)
        last = largest(xp, xp.where(is_kept, moments, 0.0))[..., None]
    ahead = last - kinks
    there = total(xp, xp.maximum(before * ahead, after * ahead))
    room = xp.where(xp.isfinite(there), bound - constant - there, 0.0)
    slope = total(xp, xp.where(ahead >= 0, after, before))
    is_rising = slope > 0
    further = xp.maximum(room, 0.0) / xp.where(is_rising, slope, 1.0)
    return xp.where(is_rising, last[..., 0] + further, float("inf"))


def _last_kept_moment(moments: Array, kinks: Array, before: Array, after: Array, room: Array) -> Array:
    """Return the last moment at which the convex sum is at most the room, by halving: none after it is kept."""
    ordered, size = np.sort(moments, axis=-1), moments.shape[-1]
    low = np.full((*ordered.shape[:-1], 1), -1)
    high = np.full_like(low, size)
    rows = size * np.reshape(np.arange(low.size), low.shape)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        ahead = ordered.take(rows + np.maximum(middle, 0)) - kinks
        sums = total(np, np.maximum(before * ahead, after * ahead))[..., None]
        is_kept = (sums <= room[..., None]) & np.isfinite(sums)
        low, high = np.where(is_kept, middle, low), np.where(is_kept, high, middle)
    return np.where(low >= 0, ordered.take(rows + np.maximum(low, 0)), 0.0)


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
