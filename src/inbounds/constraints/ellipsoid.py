"""Balls and ellipsoids: a limit on a quadratic form of the action, as for dissipated power or energy."""

from __future__ import annotations

from typing import Any, NamedTuple, Never

import numpy as np

from inbounds.constraints.arrays import (
    LARGE,
    Array,
    clip,
    dot,
    largest,
    or_infinite,
    repeated,
    total,
    without_gradient,
)
from inbounds.constraints.box import Bounds, corner
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.level_set import LevelSet, underflow
from inbounds.constraints.linear_rows import rounding_of_sum, times
from inbounds.constraints.situation import Parameter, Situation, parameter, relative_margin, show
from inbounds.constraints.threshold import Ramps, crossing, squared_rates
from inbounds.errors import ConstraintError, EmptySetError


class Ball(LevelSet):
    """Actions with `sum_i a_i^2 <= radius_squared`, that is, with a Euclidean norm of at most `radius`."""

    def __init__(
        self, *unnamed: Never, radius: float | None = None, radius_squared: Parameter = None
    ) -> None:
        """Store the squared radius; give one of the two, by its name.

        Args:
            unnamed: nothing; a number without a name is refused, since it may be the radius or its square.
            radius: the largest Euclidean norm of an action, a number of 0 or more.
            radius_squared: the largest sum of squares, a number of 0 or more or an expression of the observation.
        """
        if unnamed:
            given = ", ".join(map(repr, unnamed))
            raise ConstraintError(
                f"Ball({given}) does not say whether that is the radius or its square. Write Ball(radius=...) or "
                f"Ball(radius_squared=...): Ball(radius=0.5) is Ball(radius_squared=0.25)."
            )
        if (radius is None) == (radius_squared is None):
            raise ConstraintError(
                f"Ball takes radius= or radius_squared=, and was given {'neither' if radius is None else 'both'}. "
                f"Pass one of them: Ball(radius=0.5) is Ball(radius_squared=0.25)."
            )
        super().__init__("radius_squared", radius_squared if radius is None else squared(radius))

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
        return scaled_to_sphere(at.xp, action, clipped, bounds, self.target(at, clipped))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Scale the direction up instead, and clip it, until the sphere is met."""
        xp = at.xp
        # No entry of the result is larger than the radius, so that this box takes nothing away.
        radius = xp.sqrt(xp.maximum(self.inner_bound(at, direction.shape[-1], 0.0), 0.0))[..., None]
        limits = Bounds(xp.maximum(bounds.low, -radius), xp.minimum(bounds.high, radius))
        end = corner(xp, direction, limits)
        return scaled_to_sphere(xp, direction, end, limits, self.target(at, end))

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


def scaled_to_sphere(xp: Any, action: Array, clipped: Array, bounds: Bounds, target: Array) -> Array:
    """Return clip(s a) in a box for the s at which its squares add up to a target, or `clipped` if it has less.

    `clipped` is clip(s a) for the largest s that is asked for: 1 for a projection, infinity for a corner.
    """
    longest = largest(xp, xp.abs(action))[..., None]
    heading = action / xp.where(longest > 0, longest, 1.0)
    smallest = clip(xp, 0.0 * action, *bounds)
    begin, end = -smallest * smallest, -clipped * clipped
    # The squares grow from those of the smallest point: with a minus sign, they are ramps that fall.
    ramps = Ramps(0.0 * begin, squared_rates(xp, heading), begin, end)
    squared_length = xp.maximum(crossing(xp, ramps, -target), 0.0)[..., None]
    is_outside = (dot(xp, clipped, clipped) > target)[..., None]
    has_length = is_outside & (squared_length > 0)
    length = xp.where(has_length, xp.sqrt(xp.where(has_length, squared_length, 1.0)), 0.0)
    return xp.where(is_outside, clip(xp, length * heading, *bounds), clipped)


NEWTON_STEPS = 40
"""Steps for the length of the multiplier; each one at least halves its error, and the last ones square it."""


def squared(radius: Parameter) -> float:
    """Return the square of a radius that is a number; a negative one leaves no action."""
    given = parameter("Ball", "radius", radius, 0)
    if isinstance(given, Expression):
        # The square of a negative radius would allow actions where there are none.
        raise ConstraintError(
            f"Ball: radius={given} is observed, but a radius is a number. Pass its square, as in "
            f"radius_squared=obs[0] ** 2, if it is never negative."
        )
    length = float(given)
    if length < 0:
        raise EmptySetError(
            f"Ball: radius={length:g} is negative, so that no action is allowed. Give it a value of 0 or more."
        )
    return length * length


class Axes(NamedTuple):
    """Directions (columns) in which a quadratic form is a sum of squares, and its curvature along them."""

    directions: Array
    curvatures: Array


class Ellipsoid(Constraint):
    """Actions with `a^T Q a <= bound`, for a symmetric matrix Q without negative eigenvalues.

    Along eigenvectors of eigenvalue zero the action is free. The projection is exact up to rounding: in the
    axes of Q it is x_i = z_i / (1 + t q_i), where t >= 0 solves a scalar equation.
    """

    def __init__(self, matrix: Parameter, bound: Parameter) -> None:
        """Store Q (a matrix, or obs[...].reshape(d, d)) and the bound (a number or an entry of obs)."""
        self.matrix = parameter("Ellipsoid", "matrix", matrix, 2)
        self.bound = parameter("Ellipsoid", "bound", bound, 0)
        shape = self.matrix.shape
        if shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise ConstraintError(
                f"Ellipsoid: matrix has shape {shape}, but a square one is expected. "
                f"Reshape what is read, as in obs[0:9].reshape(3, 3)."
            )
        self._size = int(shape[0])
        if not isinstance(self.bound, Expression) and self.bound < 0:
            raise EmptySetError(
                f"Ellipsoid: bound={float(self.bound):g} is negative, so that no action is allowed. "
                f"Give it a value of 0 or more."
            )
        self._axes = None if isinstance(self.matrix, Expression) else _constant_axes(self.matrix)

    def level(self, at: Situation, action: Array) -> Array:
        """Return a^T Q a."""
        return dot(at.xp, action, times(at.xp, at.value(self.matrix, axes=2), action))

    def inner_bound(self, at: Situation, action: Array, margins: float) -> Array:
        """Return the bound less a number of margins, for actions of the size of this one."""
        xp, dimension = at.xp, action.shape[-1]
        size = xp.abs(action)
        terms = dot(xp, size, times(xp, at.magnitude(self.matrix, axes=2), size))
        is_read = isinstance(self.matrix, Expression)
        rounding = rounding_of_sum(at, 2 * dimension, is_read=is_read) * terms
        share = relative_margin(dimension) * at.magnitude(self.bound, axes=0)
        if at.is_single_precision:
            # Squares too small for float32 vanish; next to a bound of 0 even they would be too much.
            is_moved = xp.any(size > 0, axis=-1)
            rounding = rounding + xp.where(is_moved, dimension**2 * float(np.finfo(np.float32).tiny), 0.0)
        return at.value(self.bound, axes=0) - margins * xp.maximum(share, rounding)

    def excess(self, at: Situation, action: Array) -> Array:
        """Return a^T Q a - bound as the only row."""
        return or_infinite(at.xp, (self.level(at, action) - at.value(self.bound, axes=0))[..., None])

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return a^T Q a minus the bound that keeps the margin."""
        return (self.level(at, action) - self.inner_bound(at, action, at.margins))[..., None]

    def nearest(self, at: Situation, action: Array) -> Array:
        """Solve sum_i q_i z_i^2 / (1 + t q_i)^2 = bound for the multiplier t, in the axes of Q."""
        xp = at.xp
        directions, curvatures = self.axes(at)
        frozen = without_gradient(action)
        first = without_gradient(self.inner_bound(at, action, at.slack))
        along = _to_axes(xp, directions, frozen)
        multiplier = _multiplier(xp, curvatures, along, first)
        found = _from_axes(xp, directions, along / (1.0 + multiplier[..., None] * curvatures))
        # The margin depends on how large the result is.
        target = without_gradient(self.inner_bound(at, found, at.slack))
        multiplier = _multiplier(xp, curvatures, along, target)
        # One last step of Newton's method, in which action, bound and matrix are alive, has the derivative
        # of the projection.
        return self._differentiable(at, action, multiplier, Axes(directions, curvatures), target)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return zero, the lowest point."""
        leading = at.value(self.bound, axes=0).shape
        return at.xp.zeros((*leading, dimension), dtype=at.dtype)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Solve the quadratic equation for the crossing of the surface."""
        xp = at.xp
        matrix = at.value(self.matrix, axes=2)
        turned = times(xp, matrix, direction)
        speed, slope = dot(xp, direction, turned), dot(xp, point, turned)
        if isinstance(self.matrix, Expression):
            # A matrix that is read need not be symmetric, and a^T Q a is that of its symmetric part.
            slope = 0.5 * (slope + dot(xp, direction, times(xp, matrix, point)))
        room = xp.maximum(self.inner_bound(at, point, at.margins) - self.level(at, point), 0.0)
        is_curved = speed > 0
        square = slope * slope + speed * room
        root = xp.sqrt(xp.maximum(square, 0.0))
        # Of the two forms of the solution, the one that does not subtract nearly equal numbers.
        outward = room / xp.where(slope + root > 0, slope + root, 1.0)
        length = xp.where(slope > 0, outward, (root - slope) / xp.where(is_curved, speed, 1.0))
        # A matrix that is read may also have a ray along which the level rises without curvature, or at first only.
        is_ending = is_curved | ((slope > 0) & (square >= 0))
        return xp.where(is_ending, length, float("inf"))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Write the limit on the quadratic form."""
        return f"a^T Q a <= {show(self.bound)}, Q = {show(self.matrix)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the matrix and the bound."""
        return {"matrix": self.matrix, "bound": self.bound}

    def size(self) -> int | None:
        """Return the number of rows of the matrix."""
        return self._size

    def axes(self, at: Situation) -> Axes:
        """Return the axes of Q; those of a matrix that is read are found when it is, and checked if known."""
        if self._axes is not None:
            return Axes(at.value(self._axes.directions, axes=2), at.value(self._axes.curvatures))
        xp = at.xp
        matrix = without_gradient(at.value(self.matrix, axes=2))
        if xp is np:
            return _axes_on_host(matrix, str(self.matrix))
        curvatures, directions = xp.linalg.eigh(0.5 * (matrix + xp.matrix_transpose(matrix)))
        return Axes(directions, xp.maximum(curvatures, 0.0))

    def _differentiable(
        self, at: Situation, action: Array, multiplier: Array, axes: Axes, target: Array
    ) -> Array:
        xp = at.xp
        directions, curvatures = axes
        shrinking = 1.0 + multiplier[..., None] * curvatures
        along = _to_axes(xp, directions, action)
        if isinstance(self.matrix, Expression):
            matrix = at.value(self.matrix, axes=2)
            change = matrix - without_gradient(matrix)
            moved = multiplier[..., None] * times(
                xp,
                0.5 * (change + xp.matrix_transpose(change)),
                _from_axes(xp, directions, without_gradient(along) / shrinking),
            )
            along = along - _to_axes(xp, directions, moved)
        inside = along / shrinking
        level = self.level(at, _from_axes(xp, directions, inside))
        frozen = without_gradient(inside)
        speed = -curvatures * frozen / shrinking
        slope = 2.0 * total(xp, curvatures * frozen * speed)
        is_moved = (multiplier > 0) & (slope < 0)
        bound = at.value(self.bound, axes=0)
        goal = target + (bound - without_gradient(bound))
        step = xp.where(is_moved, (goal - level) / xp.where(is_moved, slope, 1.0), 0.0)
        return _from_axes(xp, directions, inside + step[..., None] * speed)


def _multiplier(xp: Any, curvatures: Array, along: Array, target: Array) -> Array:
    """Return t >= 0 with sum_i q_i z_i^2 / (1 + t q_i)^2 = target, or 0 where the sum is below it already.

    The inverse root of the sum is concave and nearly linear in t, so that Newton's method rises from t = 0
    to the solution without ever passing it.
    """
    weights = curvatures * along * along
    goal = xp.where(target > 0, target, 1.0)

    def improved(multiplier: Array) -> Array:
        shrinking = 1.0 + multiplier[..., None] * curvatures
        squares = weights / (shrinking * shrinking)
        level = total(xp, squares)
        fall = total(xp, squares * curvatures / shrinking)
        is_above = (level > goal) & (fall > 0)
        level = xp.where(is_above, level, goal)
        step = (xp.sqrt(level / goal) - 1.0) * level / xp.where(is_above, fall, 1.0)
        return multiplier + xp.where(is_above, step, 0.0)

    found = xp.zeros_like(total(xp, weights) + target)
    # What overflowed rises no more, and is not waited for.
    found = repeated(NEWTON_STEPS, improved, found, lambda before, after: ~xp.any(after > before))
    # A bound of zero leaves nothing but the free axes.
    stiffest = largest(xp, curvatures)
    return xp.where(target > 0, found, 1e15 / xp.where(stiffest > 0, stiffest, 1.0))


def _to_axes(xp: Any, directions: Array, action: Array) -> Array:
    return times(xp, xp.matrix_transpose(directions), action)


def _from_axes(xp: Any, directions: Array, along: Array) -> Array:
    return times(xp, directions, along)


def _constant_axes(matrix: Any) -> Axes:
    size = np.max(np.abs(matrix))
    if np.max(np.abs(matrix - matrix.T)) > 1e-9 * size:
        raise ConstraintError(
            "Ellipsoid: the matrix is not symmetric, so that a^T Q a would not show what it says. "
            "Pass 0.5 * (Q + Q.T)."
        )
    curvatures, directions = np.linalg.eigh(0.5 * (matrix + matrix.T))
    _require_convex(curvatures, "the matrix")
    return Axes(directions, np.maximum(curvatures, 0.0))


def _axes_on_host(matrix: Any, name: str) -> Axes:
    """Return the axes of a matrix that was read, or refuse it; entries near 1e308 are accepted."""
    size = np.max(np.abs(matrix), axis=(-2, -1), keepdims=True)
    if not np.isfinite(size).all():
        raise EmptySetError(
            f"no action is known to satisfy a limit on a^T Q a: numbers in Q = {name} overflow. Check the observation, "
            f"and the scale at which the constraint reads it."
        )
    unit = np.where((size > 1e-150) & (size < 1e150) | (size == 0), 1.0, size)
    halves = 0.5 * (matrix / unit)
    curvatures, directions = np.linalg.eigh(halves + np.swapaxes(halves, -1, -2))
    _require_convex(curvatures, name)
    with np.errstate(over="ignore", under="ignore"):
        return Axes(directions, np.maximum(curvatures, 0.0) * unit[..., 0])


def _require_convex(curvatures: Any, name: str) -> None:
    if np.any(curvatures < -1e-9 * np.max(np.abs(curvatures), axis=-1, keepdims=True)):
        raise ConstraintError(
            f"Ellipsoid: {name} has the negative eigenvalue {np.min(curvatures):.3g}, so that the set is not "
            f"convex and its projection not unique. Use a matrix without negative eigenvalues."
        )
