"""Limits on weighted sums: of absolute values (`WeightedL1`), and of the positive part of power (`PowerBudget`)."""

from __future__ import annotations

from inbounds.constraints.arrays import Array, clip, dot, total
from inbounds.constraints.box import Bounds, corner
from inbounds.constraints.farthest import fill_towards_corner
from inbounds.constraints.level_set import LevelSet, underflow
from inbounds.constraints.parameters import length, parameter, show
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Parameter, Situation, relative_margin
from inbounds.constraints.threshold import convex_reach, soft_threshold


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
        is_moving = direction != 0
        kinks = xp.where(is_moving, -point / xp.where(is_moving, direction, 1.0), 0.0)
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
    """Tell whether weights are what an offset leaves of an observation, so that its rounding may matter."""
    return isinstance(weights, Reference) and weights.offset != 0.0


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
        is_moving = direction != 0
        kinks = xp.where(is_moving, -point / xp.where(is_moving, direction, 1.0), 0.0)
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
