"""Ellipsoids: a limit on a quadratic form of the action, as for energy in coupled coordinates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, dot, largest, or_infinite, repeated, total, without_gradient
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.linear_rows import rounding_of_sum, times
from inbounds.constraints.parameters import parameter, show
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Parameter, Situation, relative_margin
from inbounds.errors import ConstraintError, EmptySetError

NEWTON_STEPS = 40
"""Steps for the length of the multiplier; each one at least halves its error, and the last ones square it."""


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
        if not isinstance(self.bound, Reference) and self.bound < 0:
            raise EmptySetError(
                f"Ellipsoid: bound={float(self.bound):g} is negative, so that no action is allowed. "
                f"Give it a value of 0 or more."
            )
        self._axes = None if isinstance(self.matrix, Reference) else _constant_axes(self.matrix)

    def level(self, at: Situation, action: Array) -> Array:
        """Return a^T Q a."""
        return dot(at.xp, action, times(at.xp, at.value(self.matrix, axes=2), action))

    def inner_bound(self, at: Situation, action: Array, margins: float) -> Array:
        """Return the bound less a number of margins, for actions of the size of this one."""
        xp, dimension = at.xp, action.shape[-1]
        size = xp.abs(action)
        terms = dot(xp, size, times(xp, at.magnitude(self.matrix, axes=2), size))
        is_read = isinstance(self.matrix, Reference)
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
        turned = times(xp, at.value(self.matrix, axes=2), direction)
        speed, slope = dot(xp, direction, turned), dot(xp, point, turned)
        room = xp.maximum(self.inner_bound(at, point, at.margins) - self.level(at, point), 0.0)
        is_moving = speed > 0
        root = xp.sqrt(slope * slope + xp.where(is_moving, speed, 0.0) * room)
        # Of the two forms of the solution, the one that does not subtract nearly equal numbers.
        outward = room / xp.where(slope + root > 0, slope + root, 1.0)
        length = xp.where(slope > 0, outward, (root - slope) / xp.where(is_moving, speed, 1.0))
        return xp.where(is_moving, length, float("inf"))

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
        curvatures, directions = xp.linalg.eigh(0.5 * (matrix + xp.matrix_transpose(matrix)))
        if xp is np:
            _require_convex(curvatures, str(self.matrix))
        return Axes(directions, xp.maximum(curvatures, 0.0))

    def _differentiable(
        self, at: Situation, action: Array, multiplier: Array, axes: Axes, target: Array
    ) -> Array:
        xp = at.xp
        directions, curvatures = axes
        shrinking = 1.0 + multiplier[..., None] * curvatures
        along = _to_axes(xp, directions, action)
        if isinstance(self.matrix, Reference):
            matrix = at.value(self.matrix, axes=2)
            moved = multiplier[..., None] * times(
                xp,
                matrix - without_gradient(matrix),
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


def _require_convex(curvatures: Any, name: str) -> None:
    if np.any(curvatures < -1e-9 * np.max(np.abs(curvatures), axis=-1, keepdims=True)):
        raise ConstraintError(
            f"Ellipsoid: {name} has the negative eigenvalue {np.min(curvatures):.3g}, so that the set is not "
            f"convex and its projection not unique. Use a matrix without negative eigenvalues."
        )
