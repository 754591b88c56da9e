"""How far entries must move together until their sum meets a target: the engine of the closed forms."""

from __future__ import annotations

from typing import Any, NamedTuple

from inbounds.constraints.arrays import Array, clip, largest, stack_rows, total

MANY_ENTRIES = 32
"""Above this dimension an interval is halved: comparing all moments with all entries grows as its square."""


class Ramps(NamedTuple):
    """Entries c_i(t) = clip(intercept_i - rate_i t, end_i, begin_i) that fall with t, along the last axis.

    `rate >= 0` and `begin >= end`, both equal to the constant value of an entry whose rate is 0; an `end` may
    be minus infinity.
    """

    intercept: Array
    rate: Array
    begin: Array
    end: Array


def crossing(xp: Any, ramps: Ramps, target: Array) -> Array:
    """Return the smallest t >= 0 at which the sum of the ramps is down to the target.

    The sum is linear between at most 2d moments, where entries start and stop to move. The last moment at
    which it is still above the target tells which entries are moving when the target is met, and for those
    the equation is linear. Where the target is out of reach, t is the moment from which nothing moves any
    more.
    """
    intercept, rate, begin, end = ramps
    is_ramp = rate > 0
    speed = xp.where(is_ramp, rate, xp.ones_like(rate))
    starts, stops = (intercept - begin) / speed, (intercept - end) / speed
    moments = stack_rows(xp, [starts, stops])
    moments = xp.where(xp.isfinite(moments) & (moments > 0), moments, xp.zeros_like(moments))
    find_last = _last_above_by_halving if intercept.shape[-1] > MANY_ENTRIES else _last_above
    last = find_last(xp, ramps, moments, target)
    is_moving = is_ramp & (starts <= last) & (last < stops)
    resting = xp.where(starts > last, begin, end)
    rest = total(xp, xp.where(is_moving, intercept, resting))
    slope = total(xp, xp.where(is_moving, rate, xp.zeros_like(rate)))
    has_slope = slope > 0
    moment = (rest - target) / xp.where(has_slope, slope, xp.ones_like(slope))
    return xp.maximum(xp.where(has_slope, moment, last[..., 0]), xp.zeros_like(moment))


def _last_above(xp: Any, ramps: Ramps, moments: Array, target: Array) -> Array:
    """Evaluate the sum at all moments at once; no sorting, no loop."""
    intercept, rate, begin, end = (part[..., None, :] for part in ramps)
    sums = total(xp, clip(xp, intercept - rate * moments[..., None], end, begin))
    return largest(xp, xp.where(sums >= target[..., None], moments, xp.zeros_like(moments)))[..., None]


def _last_above_by_halving(xp: Any, ramps: Ramps, moments: Array, target: Array) -> Array:
    """Halve an interval until no number lies between its ends, and return the last moment before it."""
    low = xp.zeros_like(moments[..., :1])
    high = largest(xp, moments)[..., None]
    for _ in range(100 if moments.dtype == xp.float64 else 50):
        middle = 0.5 * (low + high)
        is_above = (
            total(xp, clip(xp, ramps.intercept - ramps.rate * middle, ramps.end, ramps.begin)) >= target
        )
        low, high = xp.where(is_above[..., None], middle, low), xp.where(is_above[..., None], high, middle)
    return largest(xp, xp.where(moments <= low, moments, xp.zeros_like(moments)))[..., None]


def soft_threshold(
    xp: Any, action: Array, weights: Array, bounds: tuple[Array, Array], constant: Array, target: Array
) -> Array:
    """Return the nearest x in a box with constant + sum_i weights_i |x_i| <= target, for weights >= 0.

    Each entry is shrunk towards zero in proportion to its weight, x_i = clip(soft(a_i, t w_i), low_i,
    high_i), until the sum is down to the target. Entries of weight zero are only clipped. Where the target
    leaves no room at all, the weighted entries become exactly the smallest ones that the box allows.
    """
    heaviest = largest(xp, weights)[..., None]
    unit = xp.where(heaviest > 0, heaviest, xp.ones_like(heaviest))
    share = weights / unit
    size = xp.abs(action)
    zero = xp.zeros_like(action)
    clipped, smallest = clip(xp, action, *bounds), clip(xp, zero, *bounds)
    begin, end = share * xp.abs(clipped), share * xp.abs(smallest)
    budget = (target - constant) / unit[..., 0]
    can_shrink = begin > end
    intercept, rate = xp.where(can_shrink, share * size, begin), xp.where(can_shrink, share * share, zero)
    moment = crossing(xp, Ramps(intercept, rate, begin, end), budget)
    shrunk = xp.maximum(size - moment[..., None] * share, zero)
    moved = clip(xp, xp.where(action < 0, -shrunk, shrunk), *bounds)
    return xp.where((share > 0) & (budget[..., None] <= total(xp, end)[..., None]), smallest, moved)


def convex_reach(xp: Any, constant: Array, kinks: Array, before: Array, after: Array, bound: Array) -> Array:
    """Return the largest t >= 0 with constant + sum_i max(before_i (t-kink_i), after_i (t-kink_i)) <= bound.

    The sum is convex and linear between its kinks; `before <= 0 <= after` are the slopes on their two sides.
    The result is infinite where the sum does not rise, and 0 where the bound is passed from the beginning.
    """
    moments = xp.maximum(kinks, xp.zeros_like(kinks))
    ahead = moments[..., None] - kinks[..., None, :]
    sums = (
        total(xp, xp.maximum(before[..., None, :] * ahead, after[..., None, :] * ahead)) + constant[..., None]
    )
    last = largest(xp, xp.where(sums <= bound[..., None], moments, xp.zeros_like(moments)))[..., None]
    ahead = last - kinks
    room = bound - constant - total(xp, xp.maximum(before * ahead, after * ahead))
    slope = total(xp, xp.where(ahead >= 0, after, before))
    is_rising = slope > 0
    further = xp.maximum(room, xp.zeros_like(room)) / xp.where(is_rising, slope, xp.ones_like(slope))
    return xp.where(is_rising, last[..., 0] + further, xp.full_like(further, float("inf")))
