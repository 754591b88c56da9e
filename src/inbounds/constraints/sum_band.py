"""Sum bands: entries that share a total, up to a tolerance, each within its own limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, clip, least, stack_rows, total, without_gradient
from inbounds.constraints.box import Bounds, Box, box_centre, corner, cut_far_sides, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.linear_rows import LinearRows
from inbounds.constraints.situation import Parameter, Situation, parameter, relative_margin, show
from inbounds.constraints.threshold import (
    Ramps,
    convex_reach,
    corrected,
    crossing,
    greedy_fill,
    may_move,
    sign_changes,
)
from inbounds.errors import EmptySetError

EVERYWHERE = Situation(np, np.float64, None, None)
"""The situation in which what is the same in every state is computed."""

THIN = 0.01
"""The share of a band from which on its margin, times the dimension, is cut off before draws."""


class Band(NamedTuple):
    """The least and the largest allowed sum, and what the rounding of each is relative to."""

    lower: Array
    upper: Array
    lower_scale: Array
    upper_scale: Array


class SumBand(Constraint):
    """Actions with `|sum_i a_i - total| <= tolerance` and, where given, `low_i <= a_i <= high_i`.

    The margin of the two sums is relative to the total or to sum_i |a_i|, whichever is larger; the limits of
    single entries are compared exactly, as in a `Box`.
    """

    def __init__(
        self,
        total: Parameter,
        tolerance: Parameter,
        low: Parameter | None = None,
        high: Parameter | None = None,
    ) -> None:
        """Store total and tolerance (numbers or entries of obs) and the limits of entries (as of a Box)."""
        kind = type(self).__name__
        self.total = parameter(kind, "total", total, 0)
        self.tolerance = parameter(kind, "tolerance", tolerance, 0)
        if not isinstance(self.tolerance, Expression) and self.tolerance < 0:
            raise EmptySetError(
                f"{kind}: tolerance={float(self.tolerance):g} is negative, so that no action is allowed. "
                f"Give it a positive value."
            )
        self.low = None if low is None else parameter(kind, "low", low, 1, is_finite=False)
        self.high = None if high is None else parameter(kind, "high", high, 1, is_finite=False)
        self.limits: Box | None = None
        if low is not None or high is not None:
            self.limits = Box(-np.inf if low is None else self.low, np.inf if high is None else self.high)
        self._size = None if self.limits is None else self.limits.size()
        self._reads_state = isinstance(self.total, Expression) or isinstance(self.tolerance, Expression)
        self._bands: dict[int, Band] = {}
        is_positive = isinstance(self.low, np.ndarray) and np.all(self.low >= 0)
        is_negative = isinstance(self.high, np.ndarray) and np.all(self.high <= 0)
        self._has_one_sign = bool(is_positive or is_negative)
        if self.is_constant() and self._size is not None:
            self.interior_point()

    def band(self, at: Situation, dimension: int) -> Band:
        """Return the allowed sums; those that are the same in every state are computed once."""
        if self._reads_state:
            return self.allowed_sums(at, dimension)
        band = self._bands.get(dimension)
        if band is None:
            band = self._bands[dimension] = self.allowed_sums(EVERYWHERE, dimension)
        return band if at.xp is np else Band(*(at.value(part, axes=0) for part in band))

    def allowed_sums(self, at: Situation, dimension: int) -> Band:
        """Return the total less and plus the tolerance."""
        middle, tolerance = at.value(self.total, axes=0), at.value(self.tolerance, axes=0)
        lower, upper = middle - tolerance, middle + tolerance
        if not self._reads_state:
            return Band(lower, upper, at.xp.abs(lower), at.xp.abs(upper))
        scale = at.magnitude(self.total, axes=0) + at.magnitude(self.tolerance, axes=0)
        return Band(lower, upper, scale, scale)

    def size_of(self, at: Situation, action: Array, sums: Array) -> Array:
        """Return sum_i |a_i| of actions within their limits; where these leave one sign, it is |sum_i a_i|."""
        return at.xp.abs(sums) if self._has_one_sign else total(at.xp, at.xp.abs(action))

    def narrowed(self, at: Situation, dimension: int, size: Array, margins: float) -> tuple[Array, Array]:
        """Return the allowed sums less their margins, for actions of this size."""
        band, share = self.band(at, dimension), margins * relative_margin(dimension)
        lower = band.lower + share * at.xp.maximum(band.lower_scale, size)
        return lower, band.upper - share * at.xp.maximum(band.upper_scale, size)

    def drawn_sums(self, at: Situation, dimension: int) -> tuple[Array, Array]:
        """Return sums around all that are accepted, to draw from: those of the band, and of a thin one less its margin.

        In d dimensions the volume of a thin set is the d-th power of its width: with the margin, next to none of what
        is drawn would be accepted.
        """
        lower, upper, *_ = self.band(at, dimension)
        least_sum, largest_sum = self.narrowed(at, dimension, 0.0, at.margins)
        margin = (least_sum - lower) + (upper - largest_sum)
        is_thin = dimension * margin > THIN * (upper - lower)
        return at.xp.where(is_thin, least_sum, lower), at.xp.where(is_thin, largest_sum, upper)

    def rows(self, at: Situation, dimension: int) -> LinearRows:
        """Return both ends of the band as linear rows, for projections on several kinds of rows at once."""
        xp, band = at.xp, self.band(at, dimension)
        matrix = at.value(np.array([[1.0], [-1.0]]) * np.ones(dimension), axes=2)
        bound = stack_rows(xp, [band.upper[..., None], -band.lower[..., None]])
        scale = stack_rows(xp, [band.upper_scale[..., None], band.lower_scale[..., None]])
        return LinearRows(matrix, bound, xp.abs(matrix), scale, relative_margin(dimension))

    def excess(self, at: Situation, action: Array) -> Array:
        """Return how far the sum is above and below the band, then the rows of the limits."""
        band, sums = self.band(at, action.shape[-1]), total(at.xp, action)
        rows = [(sums - band.upper)[..., None], (band.lower - sums)[..., None]]
        return stack_rows(at.xp, rows if self.limits is None else [*rows, self.limits.excess(at, action)])

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the excess with the margin added to both sums."""
        sums = total(at.xp, action)
        lower, upper = self.narrowed(at, action.shape[-1], self.size_of(at, action, sums), at.margins)
        rows = [(sums - upper)[..., None], (lower - sums)[..., None]]
        limits = self.limits
        return stack_rows(at.xp, rows if limits is None else [*rows, limits.tightened_excess(at, action)])

    def accepts(self, at: Situation, action: Array) -> Array:
        """Compare the sum with both ends of the band, and every entry with its limits."""
        sums = total(at.xp, action)
        lower, upper = self.narrowed(at, action.shape[-1], self.size_of(at, action, sums), at.margins)
        is_in_band = (lower <= sums) & (sums <= upper)
        return is_in_band if self.limits is None else is_in_band & self.limits.accepts(at, action)

    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the projection on the band and its own limits."""
        limits = unbounded(at) if self.limits is None else self.limits.inner_bounds(at, at.slack)
        return self._shifted(at, action, limits)

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Return the projection on the band, its own limits and a box together."""
        return self._shifted(at, action, self._with_limits(at, bounds, at.slack))

    def _shifted(self, at: Situation, action: Array, limits: Bounds) -> Array:
        """Shift all entries by the same amount and clip them, x_i = clip(a_i - t, low_i, high_i)."""
        xp, dimension = at.xp, action.shape[-1]
        band = self.band(at, dimension)
        if self._has_one_sign:
            # The size of the result is that of its sum, which is what the margins are relative to anyway.
            size = 0.0 * band.lower
        else:
            # The margin depends on how large the entries of the result are, so the band itself is tried first.
            size = total(xp, xp.abs(shift_to_band(xp, action, limits, band.lower, band.upper)))
        return shift_to_band(xp, action, limits, *self.goal(at, dimension, size))

    def goal(self, at: Situation, dimension: int, size: Array) -> tuple[Array, Array]:
        """Return the least and the largest sum that projections of about this size aim at."""
        lower, upper = self.narrowed(at, dimension, size, at.slack)
        middle = 0.5 * (lower + upper)
        return at.xp.minimum(lower, middle), at.xp.maximum(upper, middle)

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return the farthest point of the band and its own limits."""
        return self.farthest_in_box(at, direction, unbounded(at))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Go to the farthest corner of the box, and give back where it costs least what the sum has too much."""
        limits = spread(at.xp, self._with_limits(at, bounds, at.slack), direction.shape[-1])
        band = self.band(at, direction.shape[-1])
        first = farthest_in_band(at.xp, direction, limits, band.lower, band.upper)
        size = total(at.xp, at.xp.abs(at.xp.where(at.xp.isfinite(first), first, 0.0)))
        goal = self.goal(at, direction.shape[-1], size)
        return farthest_in_band(at.xp, direction, limits, *goal)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return a point of the middle of the band."""
        return self.interior_in_box(at, dimension, unbounded(at))

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Return the point of the box's diagonal whose sum is in the middle of what band and box allow.

        Where the margin, which grows with the entries, leaves nothing of the band there, it is the point next to zero.
        """
        xp = at.xp
        band = self.band(at, dimension)
        box = spread(xp, self._with_limits(at, bounds, at.margins), dimension)
        box = cut_far_sides(xp, box, xp.maximum(band.lower_scale, band.upper_scale))
        centre = box_centre(xp, box)
        distance = (xp.abs(0.5 * (band.lower + band.upper) - total(xp, centre)) + 1.0)[..., None]
        low, high = xp.maximum(box.low, centre - distance), xp.minimum(box.high, centre + distance)
        least_sum, largest_sum = total(xp, low), total(xp, high)
        lower, upper = xp.maximum(band.lower, least_sum), xp.minimum(band.upper, largest_sum)
        width = largest_sum - least_sum
        has_width = width > 0
        share = xp.where(
            has_width, (0.5 * (lower + upper) - least_sum) / xp.where(has_width, width, 1.0), 0.5
        )
        diagonal = clip(xp, low + clip(xp, share, 0.0, 1.0)[..., None] * (high - low), low, high)
        if self._has_one_sign:
            return diagonal
        middle = 0.5 * (lower + upper)
        smallest = shift_to_band(xp, xp.zeros_like(diagonal), box, middle, middle)
        return xp.where(self.accepts(at, diagonal)[..., None], diagonal, smallest)

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Clip to the limits of entries."""
        return action if self.limits is None else self.limits.within_exact_bounds(at, action)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return where the ray leaves the band or meets a limit."""
        xp, dimension = at.xp, point.shape[-1]
        band = self.band(at, dimension)
        share = at.margins * relative_margin(dimension)
        ends = ((1.0, band.upper, band.upper_scale), (-1.0, -band.lower, band.lower_scale))
        if xp is np and self._has_one_sign and self.limits is not None:
            # Up to the limits sum_i |a_i| is |sum_i a_i|: each end is two linear rows, one for either margin.
            sums, speed = total(np, point), total(np, direction)
            size, length = np.where(sums < 0, -share, share), self.limits.reach(at, point, direction)
            for sign, bound, scale in ends:
                for factor, margin in ((sign, share * scale), (sign + size, 0.0)):
                    room, pace = bound - margin - factor * sums, factor * speed
                    own = np.maximum(room, 0.0) / np.where(pace > 0, pace, 1.0)
                    length = np.where(pace > 0, np.minimum(length, own), length)
            return length
        kinks, is_moving = sign_changes(xp, point, direction)
        still = xp.where(is_moving, 0.0, point)
        lengths = []
        for sign, bound, scale in ends:
            constant = total(xp, sign * still + share * xp.abs(still)) + share * scale
            speed, cost = sign * direction, share * xp.abs(direction)
            lengths.append(convex_reach(xp, constant, kinks, speed - cost, speed + cost, bound)[..., None])
        if self.limits is not None:
            lengths.append(self.limits.reach(at, point, direction)[..., None])
        return least(xp, stack_rows(xp, lengths))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the upper and lower end of the band, then the limits."""
        centre, tolerance = show(self.total), show(self.tolerance)
        names = [f"sum_i a_i <= {centre} + {tolerance}", f"sum_i a_i >= {centre} - {tolerance}"]
        return names if self.limits is None else names + self.limits.row_names(at, dimension)

    def formula(self) -> str:
        """Write the band and the limits."""
        text = f"|sum_i a_i - {show(self.total)}| <= {show(self.tolerance)}"
        return text if self.limits is None else f"{text}, {self.limits.formula()}"

    def parameters(self) -> dict[str, Parameter]:
        """Return total, tolerance and limits."""
        return {"total": self.total, "tolerance": self.tolerance, "low": self.low, "high": self.high}

    def size(self) -> int | None:
        """Return the number of limits where they are vectors."""
        return self._size

    def _with_limits(self, at: Situation, bounds: Bounds, margins: float) -> Bounds:
        if self.limits is None:
            return bounds
        low, high = self.limits.inner_bounds(at, margins)
        return Bounds(at.xp.maximum(bounds.low, low), at.xp.minimum(bounds.high, high))


def shift_to_band(xp: Any, action: Array, bounds: Bounds, lower: Array, upper: Array) -> Array:
    """Return the nearest x in a box with lower <= sum_i x_i <= upper, by shifting all entries together."""
    clipped = clip(xp, action, *bounds)
    sums = total(xp, clipped)
    target = clip(xp, sums, lower, upper)
    # No entry moves by more than the whole gap, so that missing limits can be replaced by these.
    reach = 2.0 * xp.abs(without_gradient(sums - target))[..., None]
    end, begin = xp.maximum(bounds.low, clipped - reach), xp.minimum(bounds.high, clipped + reach)
    shift = crossing(xp, Ramps(action, xp.ones_like(action), begin, end), target)[..., None]
    shift = xp.where(reach > 0, shift, 0.0)
    shifted = clip(xp, action - shift, end, begin)
    if shifted.dtype == xp.float64:
        return shifted
    miss = total(xp, shifted) - target
    is_free = may_move(xp, action - shift, xp.abs(action) + xp.abs(shift), Bounds(end, begin), miss)
    return corrected(xp, shifted, xp.ones_like(shifted), is_free, miss, Bounds(end, begin))


def farthest_in_band(xp: Any, direction: Array, bounds: Bounds, lower: Array, upper: Array) -> Array:
    """Return the point of a box with lower <= sum_i x_i <= upper that is farthest along a direction."""
    low, high = bounds
    # Where all the other entries have a limit, the band limits an entry as well.
    least_sum, largest_sum = total(xp, low)[..., None], total(xp, high)[..., None]
    has_least, has_largest = xp.isfinite(least_sum), xp.isfinite(largest_sum)
    others_low = xp.where(has_least, least_sum - xp.where(has_least, low, 0.0), -float("inf"))
    others_high = xp.where(has_largest, largest_sum - xp.where(has_largest, high, 0.0), float("inf"))
    box = Bounds(
        xp.maximum(low, lower[..., None] - others_high), xp.minimum(high, upper[..., None] - others_low)
    )
    best = corner(xp, direction, box)
    has_end = xp.isfinite(best)
    start = xp.where(has_end, best, 0.0)
    sums = total(xp, start)
    surplus, shortage = xp.maximum(sums - upper, 0.0), xp.maximum(lower - sums, 0.0)
    ones = xp.ones_like(start)
    falls = greedy_fill(xp, start - box.low, ones, -direction, surplus)
    rises = greedy_fill(xp, box.high - start, ones, direction, shortage)
    return xp.where(has_end, clip(xp, start - falls + rises, *box), best)


RELATIVE_TOLERANCE = 1e-5


class Simplex(SumBand):
    """Actions with `sum_i a_i = total`, `a_i >= 0` and, where given, `a_i <= high_i`.

    An equality holds in floating point only up to a tolerance: `|sum_i a_i - total| <= tolerance`, by default
    1e-5 of the total, or four margins of the sum where that is more: from 21 entries on, 4.8e-7 of the total for
    each, and at least 4e-6 of the terms of a total that is read as a difference, such as `obs[0] - 100`.
    """

    def __init__(
        self, total: Parameter = 1.0, high: Parameter | None = None, tolerance: Parameter | None = None
    ) -> None:
        """Store total (a positive number or an entry of obs), caps, and the tolerance of the equality."""
        self._states_tolerance = tolerance is not None
        amount: Any = parameter("Simplex", "total", total, 0)
        if not isinstance(amount, Expression) and amount <= 0:
            raise EmptySetError(
                f"Simplex: total={float(amount):g}, but nonnegative shares add up to more. Make it positive."
            )
        super().__init__(amount, amount * RELATIVE_TOLERANCE if tolerance is None else tolerance, 0.0, high)

    def allowed_sums(self, at: Situation, dimension: int) -> Band:
        """Return the allowed sums; unless it was given, the tolerance leaves room for the margins of `contains`."""
        band = super().allowed_sums(at, dimension)
        if self._states_tolerance:
            return band
        amount = at.value(self.total, axes=0)
        tolerance = 4.0 * relative_margin(dimension) * band.upper_scale
        lower, upper = (
            at.xp.minimum(band.lower, amount - tolerance),
            at.xp.maximum(band.upper, amount + tolerance),
        )
        return band._replace(lower=lower, upper=upper)

    def goal(self, at: Situation, dimension: int, size: Array) -> tuple[Array, Array]:
        """Let projections meet the equality itself; its tolerance is left to rounding."""
        amount = at.value(self.total, axes=0)
        return amount, amount

    def formula(self) -> str:
        """Write the equality and the caps."""
        caps = "" if self.high is None else f" <= {show(self.high)}"
        return f"sum_i a_i = {show(self.total)}, 0 <= a_i{caps}"

    def parameters(self) -> dict[str, Parameter]:
        """Return total, caps and the tolerance where it was given."""
        tolerance = self.tolerance if self._states_tolerance else None
        return {"total": self.total, "high": self.high, "tolerance": tolerance}
