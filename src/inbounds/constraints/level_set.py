"""Sets below one level of a function that grows away from zero: what balls, norms and budgets share."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, clip
from inbounds.constraints.box import Bounds, box_centre, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.parameters import parameter
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Parameter, Situation, relative_margin
from inbounds.errors import EmptySetError

NO_BOUND = parameter("Box", "bound", np.inf, 0, is_finite=False)


class LevelSet(Constraint):
    """Actions with g(s, a) <= bound, where g is a sum of convex terms, one per entry, that are 0 at 0.

    There is one row, and its margin is relative to the bound: for such a g the terms add up to at most the
    bound.
    """

    bound: Any

    def __init__(self, bound_name: str, bound: Parameter) -> None:
        """Store the bound; a negative constant leaves no action and is refused."""
        kind = type(self).__name__
        self.bound = parameter(kind, bound_name, bound, 0)
        self._inner_bounds: dict[tuple[int, float], Any] = {}
        if not isinstance(self.bound, Reference) and self.bound < 0:
            raise EmptySetError(
                f"{kind}: {bound_name}={float(self.bound):g} is negative, so that no action is allowed. "
                f"Give it a value of 0 or more."
            )

    @abc.abstractmethod
    def level(self, at: Situation, action: Array) -> Array:
        """Return g(s, a), without an axis of rows."""

    @abc.abstractmethod
    def uncertainty(self, at: Situation, action: Array) -> Array | None:
        """Return how much larger g could be, because of underflow or of parameters that were rounded."""

    @abc.abstractmethod
    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Return the Euclidean projection on the set and a box together; bounds may be infinite."""

    @abc.abstractmethod
    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Return a point of the set and a box that is farthest along a direction; bounds may be infinite."""

    def inner_bound(self, at: Situation, dimension: int, margins: float | None = None) -> Array:
        """Return the bound, less the margins that `contains` keeps or another number of them."""
        margins = at.margins if margins is None else margins
        share = margins * relative_margin(dimension)
        if isinstance(self.bound, Reference):
            return at.value(self.bound, axes=0) - share * at.magnitude(self.bound, axes=0)
        inner = self._inner_bounds.get((dimension, margins))
        if inner is None:
            inner = self._inner_bounds[dimension, margins] = np.asarray(self.bound - share * abs(self.bound))
        return at.value(inner, axes=0)

    def tightened_level(self, at: Situation, action: Array) -> Array:
        """Return g(s, a) and its uncertainty."""
        level, uncertainty = self.level(at, action), self.uncertainty(at, action)
        return level if uncertainty is None else level + uncertainty

    def target(self, at: Situation, clipped: Array) -> Array:
        """Return the level that a projection aims at, from the action clipped to the box."""
        inner, uncertainty = self.inner_bound(at, clipped.shape[-1], at.slack), self.uncertainty(at, clipped)
        return inner if uncertainty is None else inner - uncertainty

    def excess(self, at: Situation, action: Array) -> Array:
        """Return g(s, a) - bound as the only row."""
        return (self.level(at, action) - at.value(self.bound, axes=0))[..., None]

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return g(s, a) minus the bound that keeps the margin."""
        return (self.tightened_level(at, action) - self.inner_bound(at, action.shape[-1]))[..., None]

    def accepts(self, at: Situation, action: Array) -> Array:
        """Compare the level with the bound that keeps the margin."""
        return self.tightened_level(at, action) <= self.inner_bound(at, action.shape[-1])

    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the projection on the set alone."""
        return self.nearest_in_box(at, action, unbounded(at))

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return a point of the set alone that is farthest along a direction."""
        return self.farthest_in_box(at, direction, unbounded(at))

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return zero, the lowest point."""
        leading = at.value(self.bound, axes=0).shape
        return at.value(np.zeros((*leading, dimension)))

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Go from the lowest point of the box towards its centre until half of the room is used."""
        xp = at.xp
        box = spread(xp, bounds, dimension)
        centre = box_centre(xp, box)
        lowest = clip(xp, xp.zeros_like(centre), *box)
        at_lowest, at_centre = self.tightened_level(at, lowest), self.tightened_level(at, centre)
        rise, room = at_centre - at_lowest, self.inner_bound(at, dimension) - at_lowest
        is_rising = rise > 0
        share = xp.where(is_rising, 0.5 * room / xp.where(is_rising, rise, 1.0), 1.0)
        share = clip(xp, share, 0.0, 1.0)[..., None]
        return clip(xp, lowest + share * (centre - lowest), *box)


def unbounded(at: Situation) -> Bounds:
    """Return the box that allows everything."""
    infinite = at.value(NO_BOUND)
    return Bounds(-infinite, infinite)


def underflow(at: Situation, is_term: Array) -> Array:
    """Return what float32 products too small to represent may have taken from a sum of nonnegative terms.

    It only matters next to a bound of 0, where any nonzero term is too much. In float64, `violation` itself
    is computed with the same products.
    """
    count = at.xp.sum(at.xp.astype(is_term, at.dtype), axis=-1)
    return count * float(np.finfo(np.float32).tiny)
