"""Balls: a limit on the sum of squares of the action, as for dissipated power."""

from __future__ import annotations

from inbounds.constraints.arrays import LARGE, Array, clip, dot, largest, without_gradient
from inbounds.constraints.box import Bounds, corner
from inbounds.constraints.level_set import LevelSet, underflow
from inbounds.constraints.parameters import show
from inbounds.constraints.situation import Parameter, Situation
from inbounds.constraints.threshold import TINY, Ramps, crossing


class Ball(LevelSet):
    """Actions with `sum_i a_i^2 <= radius_squared`."""

    def __init__(self, radius_squared: Parameter) -> None:
        """Store the squared radius, a number or a reference to an entry of the observation."""
        super().__init__("radius_squared", radius_squared)

    def level(self, at: Situation, action: Array) -> Array:
        """Return the squared norm."""
        return dot(at.xp, action, action)

    def uncertainty(self, at: Situation, action: Array) -> Array | None:
        """Count the squares that may have underflowed."""
        return underflow(at, action != 0) if at.is_single_precision else None

    def nearest(self, at: Situation, action: Array) -> Array:
        """Scale the action back to the sphere."""
        xp = at.xp
        level, target = self.level(at, action), self.target(at, action)
        is_outside = level > target
        has_room = target > 0
        ratio = xp.where(is_outside & has_room, target, 1.0) / xp.where(is_outside & (level > 0), level, 1.0)
        scale = xp.where(is_outside & ~has_room, 0.0, xp.sqrt(ratio))
        if at.size <= LARGE:
            return action * scale[..., None]
        # An action whose squares overflow is scaled by its longest entry first.
        frozen, radius = without_gradient(action), xp.sqrt(xp.maximum(without_gradient(target), 0.0))
        longest = largest(xp, xp.abs(frozen))[..., None]
        heading = frozen / xp.where(longest > 0, longest, 1.0)
        length = xp.sqrt(xp.maximum(dot(xp, heading, heading), 1.0))
        is_huge = ~xp.isfinite(level)[..., None]
        return xp.where(is_huge, (radius / length)[..., None] * heading, action * scale[..., None])

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Scale back and clip, x_i = clip(s a_i, low_i, high_i): the level is piecewise linear in s^2."""
        clipped = clip(at.xp, action, *bounds)
        return self._scaled(at, action, clipped, bounds)

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Scale the direction up instead, and clip it, until the sphere is met."""
        xp = at.xp
        # No entry of the result is larger than the radius, so that this box takes nothing away.
        radius = xp.sqrt(xp.maximum(self.inner_bound(at, direction.shape[-1], 0.0), 0.0))[..., None]
        limits = Bounds(xp.maximum(bounds.low, -radius), xp.minimum(bounds.high, radius))
        return self._scaled(at, direction, corner(xp, direction, limits), limits)

    def _scaled(self, at: Situation, action: Array, clipped: Array, bounds: Bounds) -> Array:
        """Return clip(s a) for the s that meets the sphere, or `clipped` where that is inside."""
        xp = at.xp
        longest = largest(xp, xp.abs(action))[..., None]
        heading = action / xp.where(longest > 0, longest, 1.0)
        smallest = clip(xp, 0.0 * action, *bounds)
        begin, end = -smallest * smallest, -clipped * clipped
        target = self.target(at, clipped)
        # The squares grow from those of the smallest point: with a minus sign, they are ramps that fall.
        ramps = Ramps(0.0 * begin, xp.maximum(heading * heading, TINY), begin, end)
        squared_length = xp.maximum(crossing(xp, ramps, -target), 0.0)[..., None]
        is_outside = (self.level(at, clipped) > target)[..., None]
        has_length = is_outside & (squared_length > 0)
        length = xp.where(has_length, xp.sqrt(xp.where(has_length, squared_length, 1.0)), 0.0)
        return xp.where(is_outside, clip(xp, length * heading, *bounds), clipped)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Solve the quadratic equation for the crossing of the sphere."""
        xp = at.xp
        speed, along = dot(xp, direction, direction), dot(xp, point, direction)
        room = self.inner_bound(at, point.shape[-1]) - dot(xp, point, point)
        room = xp.maximum(room, 0.0)
        is_moving = speed > 0
        speed = xp.where(is_moving, speed, 1.0)
        root = xp.sqrt(along * along + speed * room)
        # Of the two forms of the solution, the one that does not subtract nearly equal numbers.
        outward = room / xp.where(along + root > 0, along + root, 1.0)
        length = xp.where(along > 0, outward, (root - along) / speed)
        return xp.where(is_moving, length, float("inf"))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Write the limit on the squares."""
        return f"sum_i a_i^2 <= {show(self.bound)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the squared radius."""
        return {"radius_squared": self.bound}
