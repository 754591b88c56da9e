"""Sets below one level of a function that grows away from zero, and those of weighted sums: WeightedL1, PowerBudget."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, clip, dot, total
from inbounds.constraints.box import Bounds, box_centre, corner, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Parameter, Situation, length, parameter, relative_margin, show
from inbounds.constraints.threshold import convex_reach, fill_towards_corner, sign_changes, soft_threshold
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
        if not isinstance(self.bound, Expression) and self.bound < 0:
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
        if isinstance(self.bound, Expression):
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


class WeightedL1(LevelSet):
    """Actions with `sum_i |w_i a_i| <= bound`; entries of weight zero are free."""

    def __init__(self, weights: Parameter, bound: Parameter) -> None:
        """Store weights (a number, a vector or obs[...]) and bound (a number or an entry of obs)."""
        super().__init__("bound", bound)
        self.weights = parameter("WeightedL1", "weights", weights, 1)
        self._size = length("WeightedL1", weights=self.weights)

    def level(self, at: Situation, action: Array) -> Array:
        """Return the weighted sum of absolute values."""
        return dot(at.xp, at.xp.abs(at.value(self.weights)), at.xp.abs(action))

    def uncertainty(self, at: Situation, action: Array) -> Array | None:
        """Count products that may have underflowed, and weights that are differences of rounded numbers."""
        if not at.is_single_precision and not is_difference(self.weights):
            return None
        is_term = (at.value(self.weights) != 0) & (action != 0)
        return weight_uncertainty(at, self.weights, action, is_term)

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Shrink every entry in proportion to its weight."""
        weights = at.xp.abs(at.value(self.weights))
        clipped = clip(at.xp, action, *bounds)
        return soft_threshold(at.xp, action, clipped, weights, bounds, self.target(at, clipped))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Spend the bound on the entries that gain most for their weight."""
        xp = at.xp
        weights, start = xp.abs(at.value(self.weights)), clip(xp, 0.0 * direction, *bounds)
        budget = self.inner_bound(at, direction.shape[-1], at.slack) - self.tightened_level(at, start)
        return fill_towards_corner(xp, direction, weights, start, bounds, budget)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Follow the ray over the entries' changes of sign."""
        xp = at.xp
        weights = xp.abs(at.value(self.weights))
        kinks, is_moving = sign_changes(xp, point, direction)
        still = total(xp, xp.where(is_moving, 0.0, weights * xp.abs(point)))
        rise = weights * xp.abs(direction)
        return convex_reach(xp, still, kinks, -rise, rise, self.inner_bound(at, point.shape[-1]))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Write the limit on the weighted sum."""
        return f"sum_i |w_i a_i| <= {show(self.bound)}, w = {show(self.weights)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return weights and bound."""
        return {"weights": self.weights, "bound": self.bound}

    def size(self) -> int | None:
        """Return the number of weights where they are a vector."""
        return self._size


def is_difference(weights: Parameter) -> bool:
    """Tell whether weights are computed by more than a factor, so that their rounding may exceed their size."""
    if isinstance(weights, Reference):
        return weights.offset != 0.0
    return isinstance(weights, Expression)


def weight_uncertainty(at: Situation, weights: Parameter, action: Array, is_term: Array) -> Array | None:
    """Return what rounding may hide in sum_i w_i a_i beyond a margin relative to the sum itself."""
    xp = at.xp
    hidden = underflow(at, is_term) if at.is_single_precision else None
    if not is_difference(weights):
        return hidden
    doubt = at.magnitude(weights) - xp.abs(at.value(weights))
    cancelled = at.margins * relative_margin(action.shape[-1]) * dot(xp, doubt, xp.abs(action))
    return cancelled if hidden is None else cancelled + hidden


class PowerBudget(LevelSet):
    """Actions with `sum_i max(w_i a_i, 0) <= bound`; with velocities as weights this is mechanical power."""

    def __init__(self, weights: Parameter, bound: Parameter) -> None:
        """Store weights (a number, a vector or obs[...]) and bound (a number or an entry of obs)."""
        super().__init__("bound", bound)
        self.weights = parameter("PowerBudget", "weights", weights, 1)
        self._size = length("PowerBudget", weights=self.weights)

    def level(self, at: Situation, action: Array) -> Array:
        """Return the sum of the positive products."""
        return total(at.xp, at.xp.maximum(at.value(self.weights) * action, 0.0))

    def uncertainty(self, at: Situation, action: Array) -> Array | None:
        """Count products that may have underflowed, and weights that are differences of rounded numbers."""
        if not at.is_single_precision and not is_difference(self.weights):
            return None
        weights = at.value(self.weights)
        does_draw = ((weights > 0) & (action > 0)) | ((weights < 0) & (action < 0))
        return weight_uncertainty(at, self.weights, action, does_draw)

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Shrink the entries that draw power in proportion to their weight; the others are only clipped."""
        xp = at.xp
        weights = at.value(self.weights)
        clipped = clip(xp, action, *bounds)
        does_draw = (weights * action > 0) & (weights * clipped > 0)
        # An entry that draws nothing by itself still does so where the box forces it to.
        forced = total(xp, xp.where(does_draw, 0.0, xp.maximum(weights * clipped, 0.0)))
        shrinking = xp.where(does_draw, xp.abs(weights), 0.0)
        return soft_threshold(xp, action, clipped, shrinking, bounds, self.target(at, clipped) - forced)

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Let braking entries go as far as the box, and spend the bound where it gains most."""
        xp = at.xp
        weights, start = at.value(self.weights), clip(xp, 0.0 * direction, *bounds)
        is_costly = weights * direction > 0
        # Where the box makes even a braking entry draw power, it draws least at the end of the box.
        best = xp.where(is_costly | (weights == 0), start, corner(xp, direction, bounds))
        budget = self.inner_bound(at, direction.shape[-1], at.slack) - self.tightened_level(at, best)
        cost = xp.where(is_costly, xp.abs(weights), 0.0)
        return fill_towards_corner(xp, direction, cost, start, bounds, budget)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Follow the ray over the moments at which entries begin or cease to draw power."""
        xp = at.xp
        weights = at.value(self.weights)
        kinks, is_moving = sign_changes(xp, point, direction)
        still = total(xp, xp.where(is_moving, 0.0, xp.maximum(weights * point, 0.0)))
        slope = weights * direction
        bound = self.inner_bound(at, point.shape[-1])
        return convex_reach(xp, still, kinks, xp.minimum(slope, 0.0), xp.maximum(slope, 0.0), bound)

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Write the limit on the positive products."""
        return f"sum_i max(w_i a_i, 0) <= {show(self.bound)}, w = {show(self.weights)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return weights and bound."""
        return {"weights": self.weights, "bound": self.bound}

    def size(self) -> int | None:
        """Return the number of weights where they are a vector."""
        return self._size
