"""Shells: a least and a largest Euclidean norm of the action. They are not convex, but their projection is exact."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import (
    Array,
    clip,
    convert,
    dot,
    is_traced,
    largest,
    stack_rows,
    total,
    without_gradient,
)
from inbounds.constraints.box import Bounds, corner, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.ellipsoid import scaled_to_sphere
from inbounds.constraints.emptiness import representable
from inbounds.constraints.expressions import Expression
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.situation import (
    RELATIVE_MARGIN,
    Parameter,
    Situation,
    parameter,
    relative_margin,
    show,
)
from inbounds.errors import ConstraintError, EmptySetError

SMALL_SHARE = 1e-9
"""Entries that are this much smaller than the longest one are left out where an action is scaled up."""

SLACKS = (8.0, 4.0, 2.5)
"""How many margins a projection keeps where rounding defeats the usual ones; the last that succeeds counts."""


class Radii(NamedTuple):
    """The least and the largest norm."""

    lower: Array
    upper: Array


class Shell(Constraint):
    """Actions with `lower <= |a| <= upper`, where |a| = sqrt(sum_i a_i^2) is the Euclidean norm.

    The set is not convex. The nearest action lies on the ray through zero, and for zero itself on the first axis.
    A shell can be intersected with boxes and rate limits; the projection is exact there as well if the box is
    symmetric around zero, or if each of its corners lies outside the inner sphere. In other boxes it is feasible,
    but where the action points to a corner inside the inner sphere it need not be the nearest.
    """

    def __init__(self, lower: Parameter, upper: Parameter) -> None:
        """Store both norms: numbers of 0 or more, or expressions of the observation.

        Args:
            lower: the least Euclidean norm of an action.
            upper: the largest one.
        """
        self.lower = parameter("Shell", "lower", lower, 0)
        self.upper = parameter("Shell", "upper", upper, 0)
        if not isinstance(self.lower, Expression) and self.lower < 0:
            raise ConstraintError(
                f"Shell: lower={float(self.lower):g} is negative, so that it excludes nothing. "
                f"Use Ball(radius=upper) instead."
            )
        if not self.is_constant():
            return
        gap, margin = float(self.upper - self.lower), RELATIVE_MARGIN * float(self.upper + self.lower)
        if self.upper < 0 or (self.lower > 0 and gap <= 2.0 * margin):
            raise EmptySetError(
                f"Shell: no action satisfies {self.formula()}: the shell is {gap:.3g} thick, and `contains` keeps a "
                f"margin of {RELATIVE_MARGIN:g} of either norm. Swap lower and upper, or set them farther apart."
            )

    def radii(self, at: Situation, dimension: int, margins: float) -> Radii:
        """Return both norms with a number of margins kept."""
        share = margins * relative_margin(dimension)
        lower, upper = at.value(self.lower, axes=0), at.value(self.upper, axes=0)
        return Radii(
            lower + share * at.magnitude(self.lower, axes=0), upper - share * at.magnitude(self.upper, axes=0)
        )

    def goal(self, at: Situation, dimension: int) -> Radii:
        """Return the norms that projections aim at."""
        lower, upper = self.radii(at, dimension, at.slack)
        middle = 0.5 * (lower + upper)
        return Radii(at.xp.minimum(lower, middle), at.xp.maximum(upper, middle))

    def excess(self, at: Situation, action: Array) -> Array:
        """Return how far the norm is above the largest and below the least one."""
        norm = _norm(at.xp, action)
        above, below = norm - at.value(self.upper, axes=0), at.value(self.lower, axes=0) - norm
        return stack_rows(at.xp, [above[..., None], below[..., None]])

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the excess over norms that keep the margin."""
        norm, (lower, upper) = _norm(at.xp, action), self.radii(at, action.shape[-1], at.margins)
        above = norm + _hidden(at, action.shape[-1]) - upper
        return stack_rows(at.xp, [above[..., None], (lower - norm)[..., None]])

    def accepts(self, at: Situation, action: Array) -> Array:
        """Compare the norm with both."""
        norm, (lower, upper) = _norm(at.xp, action), self.radii(at, action.shape[-1], at.margins)
        return (norm + _hidden(at, action.shape[-1]) <= upper) & (norm >= lower)

    def nearest(self, at: Situation, action: Array) -> Array:
        """Scale the action to the nearer sphere."""
        xp, dimension = at.xp, action.shape[-1]
        # Scaled by its longest entry, an action has squares that neither overflow nor vanish.
        longest = without_gradient(largest(xp, xp.abs(action)))[..., None]
        has_length = longest > 0
        first_axis = at.value(np.eye(dimension)[0])
        heading = xp.where(has_length, action / xp.where(has_length, longest, 1.0), first_axis)
        length = _norm(xp, heading)
        radius = clip(xp, longest[..., 0] * length, *self.goal(at, dimension))
        return heading * (radius / length)[..., None]

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Return the projection on the outer ball and a box; where that is in the hole, a point of the inner sphere.

        On the inner sphere the distance falls as sum_i a_i x_i rises. Its largest value in the box is at
        x = clip(s a) with s >= 1, unless even s = infinity, a corner of the box, is in the hole.
        """
        xp, dimension = at.xp, action.shape[-1]
        lower, upper = self.goal(at, dimension)
        box = _cut(xp, spread(xp, bounds, dimension), upper)
        inside = scaled_to_sphere(xp, action, clip(xp, action, *box), box, upper * upper)
        longest = largest(xp, xp.abs(without_gradient(action)))[..., None]
        heading = xp.where(xp.abs(action) > SMALL_SHARE * longest, action, 0.0)
        end = corner(xp, heading, box)
        on_sphere = scaled_to_sphere(xp, heading, end, box, lower * lower)
        # From such a corner, entries that may still grow do so together, whatever their sign is.
        last = _farthest_corner(xp, box)
        start = xp.where(end == last, end, clip(xp, xp.zeros_like(end), *box))
        grown = _at_norm(xp, start, last, lower)
        outside = xp.where((_norm(xp, end) < lower)[..., None], grown, on_sphere)
        return clip(xp, xp.where((_norm(xp, inside) < lower)[..., None], outside, inside), *box)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the point of the diagonal halfway between both spheres."""
        return self.interior_in_box(at, dimension, unbounded(at))

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Return a point between the smallest and the largest one of the box, in the middle of what both sets allow."""
        xp = at.xp
        lower, upper = self.radii(at, dimension, at.margins)
        box = _cut(xp, spread(xp, bounds, dimension), upper)
        first, last = clip(xp, xp.zeros_like(box.low), *box), _farthest_corner(xp, box)
        least, most = xp.maximum(lower, _norm(xp, first)), xp.minimum(upper, _norm(xp, last))
        return clip(xp, _at_norm(xp, first, last, 0.5 * (least + most)), *box)

    def pulled_inside(self, at: Situation, point: Array, dtype: Any) -> Array:
        """Project again with more of a margin, and take the interior point where that is not enough."""
        return pulled_into(self, at, point, dtype)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return where the ray first meets one of the spheres; behind the hole, the ray may enter the set again."""
        xp = at.xp
        lower, upper = self.radii(at, point.shape[-1], at.margins)
        speed, along, square = dot(xp, direction, direction), dot(xp, point, direction), dot(xp, point, point)
        is_moving = speed > 0
        speed = xp.where(is_moving, speed, 1.0)
        room = xp.maximum(upper * xp.maximum(upper, 0.0) - square, 0.0)
        root = xp.sqrt(along * along + speed * room)
        # Of the two forms of each solution, the one that does not subtract nearly equal numbers.
        ahead = xp.where(along + root > 0, along + root, 1.0)
        outward = xp.where(along > 0, room / ahead, (root - along) / speed)
        depth = xp.maximum(square - lower * xp.maximum(lower, 0.0), 0.0)
        crossed = along * along - speed * depth
        does_meet = (along < 0) & (crossed >= 0) & (lower > 0)
        nearer = xp.where(does_meet, xp.sqrt(xp.maximum(crossed, 0.0)) - along, 1.0)
        inward = xp.where(does_meet, depth / nearer, float("inf"))
        return xp.where(is_moving, xp.minimum(outward, inward), float("inf"))

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return the point of the outer sphere along a direction."""
        return self.farthest_in_box(at, direction, unbounded(at))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Scale the direction up and clip it; a point in the hole, for a direction of few entries, is moved out."""
        xp, dimension = at.xp, direction.shape[-1]
        lower, upper = self.goal(at, dimension)
        box = _cut(xp, spread(xp, bounds, dimension), upper)
        point = scaled_to_sphere(xp, direction, corner(xp, direction, box), box, upper * upper)
        is_in_hole = (_norm(xp, point) < lower)[..., None]
        return xp.where(is_in_hole, self.nearest_in_box(at, point, bounds), point)

    def is_exact_in(self, low: Array, high: Array) -> bool:
        """Tell whether projections are exact together with a constant box, because its corners are outside the hole."""
        if np.all(low == -high):
            return True
        if np.size(low) == 1 or not self.is_constant():
            return False
        nearest_corner = np.minimum(np.abs(low), np.abs(high))
        return bool(np.linalg.norm(np.minimum(nearest_corner, self.upper)) > (1.0 + 1e-5) * self.lower)

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the outer and the inner sphere."""
        return [f"|a| <= {show(self.upper)}", f"|a| >= {show(self.lower)}"]

    def formula(self) -> str:
        """Write both limits on the norm."""
        return f"{show(self.lower)} <= |a| <= {show(self.upper)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return both norms."""
        return {"lower": self.lower, "upper": self.upper}


def pulled_into(whole: Constraint, at: Situation, point: Array, dtype: Any) -> Array:
    """Return a point of a shell, or of a shell in a box, that is accepted after it is rounded.

    The way towards an interior point, which convex sets take, may lead through the hole. Instead the point is
    projected again with larger margins.
    """
    xp, dimension = at.xp, point.shape[-1]
    centre = whole.interior(at, dimension)
    whole.require_nonempty(at, whole.tightened_excess(at, centre), dimension)
    shape = np.broadcast_shapes(tuple(point.shape), tuple(centre.shape))
    answer = xp.broadcast_to(convert(centre, xp, dtype), shape)
    for slack in SLACKS:
        nearer = convert(whole.nearest(at._replace(slack=slack), point), xp, dtype)
        is_accepted = whole.accepts(at, convert(nearer, xp, at.dtype))
        answer = xp.where(is_accepted[..., None], nearer, answer)
    loose = at._replace(margins=1.0)
    return answer if is_traced(answer) else representable(whole, loose, answer, (point, centre))


def _norm(xp: Any, action: Array) -> Array:
    return xp.sqrt(dot(xp, action, action))


def _hidden(at: Situation, dimension: int) -> float:
    """Return what float32 squares too small to represent may have taken from a norm."""
    return float(np.sqrt(dimension * np.finfo(np.float32).tiny)) if at.is_single_precision else 0.0


def _cut(xp: Any, box: Bounds, radius: Array) -> Bounds:
    """Return a finite box: no entry of an action is larger than its norm."""
    radius = radius[..., None]
    return Bounds(xp.maximum(box.low, -radius), xp.minimum(box.high, radius))


def _farthest_corner(xp: Any, box: Bounds) -> Array:
    return xp.where(xp.abs(box.high) >= xp.abs(box.low), box.high, box.low)


def _at_norm(xp: Any, first: Array, last: Array, norm: Array) -> Array:
    """Return the point between two, of which no entry shrinks on the way, that has a norm; else the nearer of both."""
    way = last - first
    speed, along = dot(xp, way, way), total(xp, first * way)
    missing = xp.maximum(norm * norm - dot(xp, first, first), 0.0)
    ahead = along + xp.sqrt(xp.maximum(along * along + speed * missing, 0.0))
    share = missing / xp.where(ahead > 0, ahead, 1.0)
    return first + xp.minimum(share, 1.0)[..., None] * way
