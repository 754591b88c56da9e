"""The box of actions: its map to [-1, 1], in which networks and critics work, and the levels of integer actions."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Constraint
from inbounds.constraints.arrays import clip, convert, namespace_of
from inbounds.constraints.situation import Situation
from inbounds.errors import ConfigurationError

FloatArray = NDArray[np.float32]
ArrayT = TypeVar("ArrayT")
"""An array of any library; the result is of the same one."""


@dataclasses.dataclass(frozen=True, eq=False)
class ActionBox:
    """Bounds of the action in the environment's units, both float32 of shape (d,)."""

    low: FloatArray
    high: FloatArray

    @property
    def size(self) -> int:
        """Return the dimension of the action."""
        return int(self.low.shape[-1])

    @functools.cached_property
    def middle(self) -> FloatArray:
        """Return the centre."""
        return np.float32(0.5) * (self.high + self.low)

    @functools.cached_property
    def half(self) -> FloatArray:
        """Return half the widths."""
        return np.float32(0.5) * (self.high - self.low)

    @functools.cached_property
    def divisor(self) -> FloatArray:
        """Return half the widths, and 1 for an entry of width 0, which is its middle on [-1, 1]."""
        return np.where(self.half > 0, self.half, np.float32(1.0))

    def rescale(self, squashed: ArrayT) -> ArrayT:
        """Map [-1, 1] to the box in float32; rounding does not leave the box."""
        xp = namespace_of(squashed)
        inside = clip(
            xp, self.rescale_unbounded(squashed), like(squashed, self.low), like(squashed, self.high)
        )
        action: ArrayT = convert(inside, xp, xp.float32)
        return action

    def rescale_unbounded(self, squashed: ArrayT) -> ArrayT:
        """Map [-1, 1] to the box without clipping, for numbers that may lie outside."""
        action: ArrayT = like(squashed, self.middle) + like(squashed, self.half) * squashed
        return action

    def normalise(self, action: ArrayT) -> ArrayT:
        """Map the box to [-1, 1], the range in which critics see actions."""
        squashed: ArrayT = (action - like(action, self.middle)) / like(action, self.divisor)
        return squashed

    def lies_within(self, constraint: Constraint) -> bool:
        """Tell whether a constraint is a constant box that accepts all of this one."""
        if not isinstance(constraint, Box) or not constraint.is_constant():
            return False
        at, corners = Situation(np, np.float64, None, None), np.stack([self.low, self.high])
        return bool(constraint.accepts(at, corners.astype(np.float64)).all())


def like(array: Any, constant: FloatArray) -> Any:
    """Return a constant in the array library and number type of an array."""
    return convert(constant, namespace_of(array), array.dtype)


def level_count(box: ActionBox) -> int:
    """Return how many levels each entry has; ranges that are not whole or differ are refused."""
    widths = np.asarray(box.high - box.low)
    if np.any(box.low != np.round(box.low)) or np.any(widths != np.round(widths)) or np.ptp(widths) != 0:
        raise ConfigurationError(
            f"a discrete learner needs the same whole number of levels for every entry, but the box goes from "
            f"{box.low.tolist()} to {box.high.tolist()}. Give whole bounds, equally far apart."
        )
    return int(widths.flat[0]) + 1


def to_levels(box: ActionBox, action: ArrayT) -> ArrayT:
    """Return the level of each entry of an action in the environment's units."""
    xp = namespace_of(action)
    level: ArrayT = xp.astype(xp.round(action - xp.asarray(box.low)), xp.int32)
    return level


def from_levels(box: ActionBox, level: ArrayT) -> ArrayT:
    """Return the action in the environment's units."""
    xp = namespace_of(level)
    action: ArrayT = xp.asarray(box.low) + xp.astype(level, xp.float32)
    return action
