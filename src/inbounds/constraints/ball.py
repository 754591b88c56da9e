"""Balls: a limit on the sum of squares of the action, as for dissipated power."""

from __future__ import annotations

from inbounds.constraints.arrays import Array, clip, dot, largest
from inbounds.constraints.box import Bounds
from inbounds.constraints.level_set import LevelSet, underflow
from inbounds.constraints.parameters import show
from inbounds.constraints.situation import Parameter, Situation
from inbounds.constraints.threshold import Ramps, crossing


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
        return underflow(at, action != 0)

    def nearest(self, at: Situation, action: Array) -> Array:
        """Scale the action back to the sphere."""
        xp = at.xp
        level, target = self.level(at, action), self.target(at, action)
        is_outside = level > target
        room = xp.where(target > 0, target, xp.zeros_like(target))
        ratio = xp.where(is_outside & (room > 0), room, xp.ones_like(level)) / xp.where(
            is_outside, level, xp.ones_like(level)
        )
        scale = xp.where(is_outside & (room <= 0), xp.zeros_like(ratio), xp.sqrt(ratio))
        return action * scale[..., None]

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Scale back and clip, x_i = clip(s a_i, low_i, high_i): the level is piecewise linear in s^2."""
        xp = at.xp
        zero = xp.zeros_like(action)
        longest = largest(xp, xp.abs(action))[..., None]
        heading = action / xp.where(longest > 0, longest, xp.ones_like(longest))
        clipped, smallest = clip(xp, action, *bounds), clip(xp, zero, *bounds)
        begin, end = -smallest * smallest, -clipped * clipped
        rate = xp.where(begin > end, heading * heading, zero)
        can_grow = rate > 0
        ramps = Ramps(xp.where(can_grow, zero, end), rate, xp.where(can_grow, begin, end), end)
        target = self.target(at, clipped)
        stretch = crossing(xp, ramps, -target)[..., None]
        is_outside = (self.level(at, clipped) > target)[..., None]
        length = xp.sqrt(xp.where(is_outside & (stretch > 0), stretch, xp.ones_like(stretch)))
        scaled = xp.where(stretch > 0, length * heading, zero)
        return xp.where(is_outside, clip(xp, scaled, *bounds), clipped)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Solve the quadratic equation for the crossing of the sphere."""
        xp = at.xp
        speed, along = dot(xp, direction, direction), dot(xp, point, direction)
        room = self.inner_bound(at, point.shape[-1]) - dot(xp, point, point)
        room = xp.maximum(room, xp.zeros_like(room))
        is_moving = speed > 0
        speed = xp.where(is_moving, speed, xp.ones_like(speed))
        root = xp.sqrt(along * along + speed * room)
        # Of the two forms of the solution, the one that does not subtract nearly equal numbers.
        outward = room / xp.where(along + root > 0, along + root, xp.ones_like(root))
        length = xp.where(along > 0, outward, (root - along) / speed)
        return xp.where(is_moving, length, xp.full_like(length, float("inf")))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Write the limit on the squares."""
        return f"sum_i a_i^2 <= {show(self.bound)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the squared radius."""
        return {"radius_squared": self.bound}
