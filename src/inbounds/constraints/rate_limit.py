"""Rate limits: how much an action may differ from the one before."""

from __future__ import annotations

import numpy as np

from inbounds.constraints.arrays import Array, all_true, clip
from inbounds.constraints.box import Bounds, box_centre, box_excess, box_reach, corner, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.parameters import entry, length, parameter, show
from inbounds.constraints.references import Reference, previous_action
from inbounds.constraints.situation import RELATIVE_MARGIN, Parameter, Situation
from inbounds.errors import ConstraintError


class RateLimit(Constraint):
    """Actions with `|a_i - previous_i| <= delta_i`, where `previous` is what was executed last.

    The previous action is passed along with each question (`previous=previous_action`) or is a part of the
    observation (`previous=obs[...]`).
    """

    def __init__(self, delta: Parameter, previous: Parameter = previous_action) -> None:
        """Store the largest change, a positive number or vector, and where the previous action is read."""
        self.delta = parameter("RateLimit", "delta", delta, 1)
        self.previous = parameter("RateLimit", "previous", previous, 1)
        self._size = length("RateLimit", delta=self.delta, previous=self.previous)
        if not isinstance(self.delta, Reference) and np.any(self.delta <= 0):
            raise ConstraintError(
                f"RateLimit: delta={show(self.delta)} must be positive, otherwise no action may ever change. "
                f"Give every entry a positive delta."
            )

    def bounds(self, at: Situation) -> Bounds:
        """Return previous - delta and previous + delta."""
        previous, delta = at.value(self.previous), at.value(self.delta)
        return Bounds(previous - delta, previous + delta)

    def inner_bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the bounds less their margin, which is relative to |previous| + delta."""
        low, high = self.bounds(at)
        share = RELATIVE_MARGIN * (at.margins if margins is None else margins)
        margin = share * (at.magnitude(self.previous) + at.magnitude(self.delta))
        return Bounds(low + margin, high - margin)

    def excess(self, at: Situation, action: Array) -> Array:
        """Return how far each entry fell and rose beyond the limit."""
        return box_excess(at.xp, self.bounds(at), action)

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the excess over the bounds that keep the margin."""
        return box_excess(at.xp, self.inner_bounds(at), action)

    def accepts(self, at: Situation, action: Array) -> Array:
        """Compare every entry with both bounds."""
        low, high = self.inner_bounds(at)
        return all_true(at.xp, (action >= low) & (action <= high))

    def nearest(self, at: Situation, action: Array) -> Array:
        """Clip every entry."""
        return clip(at.xp, action, *self.inner_bounds(at, at.slack))

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the previous action."""
        return box_centre(at.xp, spread(at.xp, self.inner_bounds(at), dimension))

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the smallest ratio of room to speed over the entries."""
        return box_reach(at.xp, self.inner_bounds(at), point, direction)

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return the corner that lies farthest."""
        return corner(at.xp, direction, self.inner_bounds(at, at.slack))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the limits on falling and then those on rising."""
        pairs = [(entry(self.previous, i), entry(self.delta, i)) for i in range(dimension)]
        return [f"a[{i}] >= {previous} - {delta}" for i, (previous, delta) in enumerate(pairs)] + [
            f"a[{i}] <= {previous} + {delta}" for i, (previous, delta) in enumerate(pairs)
        ]

    def formula(self) -> str:
        """Write the limit on the change."""
        return f"|a_i - {show(self.previous)}| <= {show(self.delta)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the limit and where the previous action is read."""
        return {"delta": self.delta, "previous": self.previous}

    def size(self) -> int | None:
        """Return the length of delta or of what is read, where they are vectors."""
        return self._size
