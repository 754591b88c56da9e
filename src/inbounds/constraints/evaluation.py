"""What an expression is in a state, and how far rounding may have moved it there.

The same expression is computed in float32 by a compiled learner and in float64 by the guard, maybe from an observation
that was rounded in between. Interval arithmetic encloses all that these can give, and the margin of `contains` is made
relative to the width. Where a value is not finite, or not known to be defined, no action is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from inbounds.constraints.arrays import (
    Array,
    all_finite,
    all_true,
    is_everywhere,
    is_traced,
    known_now,
)
from inbounds.constraints.expressions import Constant, Expression, Operation
from inbounds.constraints.operations import (
    HALF_UNIT,
    OPERATIONS,
    Interval,
    Rounding,
    each_end,
    enclose_power,
    joined,
    power,
)
from inbounds.errors import EmptySetError, InvalidInputError

if TYPE_CHECKING:
    from inbounds.constraints.situation import Situation

READING = 3.0
"""Half units by which a reading may be off: the rounding of the entry, of its scale and of its offset."""


SMALLEST = float(np.finfo(np.float32).tiny)
"""Numbers below this may vanish in float32."""


class Evaluation:
    """Computes one expression in one situation."""

    def __init__(self, root: Expression, at: Situation) -> None:
        """Store the expression and the states in which it is computed."""
        self.root, self.at, self.xp = root, at, at.xp
        self.rounding = Rounding(at.xp, SMALLEST if at.is_single_precision else 0.0)
        self.is_sound: list[Array] = []
        """For compiled functions, in which states each part is finite."""

    def value(self) -> Array:
        """Return the value; where a part of it is not finite, an error, or NaN in a compiled function."""
        with np.errstate(all="ignore"):
            return self._or_nan(self._checked(self.root, self._value(self.root), self._refuse_value))

    def magnitude(self) -> Array:
        """Return what rounding is relative to: |value|, or what makes the rounding of a reading as large as this one's.

        The margins of all sets allow for the rounding of readings, which is `READING` half units of their size.
        """
        xp = self.xp
        with np.errstate(all="ignore"):
            value = self.at.value(self.root, axes=len(self.root.own_shape))
            low, high = self._checked_interval(self.root, self._interval(self.root))
            width = xp.maximum(high - value, value - low) / (READING * HALF_UNIT)
            return self._or_nan(xp.maximum(xp.abs(value), width))

    # Values -------------------------------------------------------------------------------------------------

    def _value(self, node: Expression) -> Array:
        if isinstance(node, Constant):
            return self.at.value(node.array, axes=0)
        if not isinstance(node, Operation):
            return self._read(node)
        hides = OPERATIONS[node.name].hides or self.xp is not np
        parts = []
        for operand in used_operands(node):
            part = self._value(operand)
            if hides and not isinstance(operand, Constant):
                part = self._checked(operand, part, self._refuse_value)
            parts.append(part)
        return self._computed(node, compute_of(node), parts)

    def _computed(self, node: Operation, compute: Callable[..., Array], parts: list[Array]) -> Array:
        operands = used_operands(node)
        try:
            return compute(self.xp, *aligned(parts, operands, is_stack=node.name == "stack"))
        except (ValueError, RuntimeError, TypeError) as error:
            raise self._misfit(node, parts) from error

    def _read(self, node: Any) -> Array:
        return node.read(self.at.source_of(node))

    # Intervals ----------------------------------------------------------------------------------------------

    def _interval(self, node: Expression) -> Interval:
        xp = self.xp
        if isinstance(node, Constant):
            return Interval(*(self.at.value(end, axes=0) for end in node.ends))
        if not isinstance(node, Operation):
            return self._read_interval(node)
        hides = OPERATIONS[node.name].hides or xp is not np
        operands = used_operands(node)
        parts = []
        for operand in operands:
            part = self._interval(operand)
            if hides and isinstance(operand, Operation):
                part = self._checked_interval(operand, part)
            parts.append(part)
        is_stack = node.name == "stack"
        ends = [aligned([part[end] for part in parts], operands, is_stack=is_stack) for end in (0, 1)]
        return enclose_of(node)(self.rounding, *map(Interval, *ends))

    def _read_interval(self, node: Any) -> Interval:
        value = self._read(node)
        is_shifted = node.offset != 0.0
        size = self.at.magnitude(node, axes=len(node.own_shape)) if is_shifted else self.xp.abs(value)
        error = READING * HALF_UNIT * size
        return Interval(value - error, value + error)

    # Values that are not finite -----------------------------------------------------------------------------

    def _checked_interval(self, node: Expression, part: Interval) -> Interval:
        for end in part:
            self._checked(node, end, self._refuse_interval)
        return part

    def _checked(
        self, node: Expression, value: Array, refuse: Callable[[Expression, Array], Exception]
    ) -> Array:
        """Refuse a value that is known and not finite; note where one is not that is known later."""
        if isinstance(value, np.ndarray | np.generic):
            if not all_finite(np.asarray(value)):
                raise refuse(node, value)
        elif is_traced(value):
            is_finite = self.xp.isfinite(value)
            for _ in node.own_shape:
                is_finite = all_true(self.xp, is_finite)
            self.is_sound.append(is_finite)
        else:
            with known_now(value):
                is_finite = is_everywhere(self.xp.isfinite(value))
            if not is_finite:
                raise refuse(node, value)
        return value

    def _or_nan(self, value: Array) -> Array:
        if not self.is_sound:
            return value
        is_sound = self.is_sound[0]
        for other in self.is_sound[1:]:
            is_sound = is_sound & other
        own = len(self.root.own_shape)
        return self.xp.where(is_sound[(..., *(None,) * own)], value, float("nan"))

    def _refuse_value(self, node: Expression, value: Array) -> Exception:
        return EmptySetError(
            f"no action is allowed in this state: {named(node, self.root)} is {shown(value)}, which is not finite. "
            f"Check the observation, or keep its parts in their range, as in ib.maximum(x, 0.01) or ib.clip."
        )

    def _refuse_interval(self, node: Expression, value: Array) -> Exception:
        return EmptySetError(
            f"no action is accepted in this state: next to it {named(node, self.root)} is not defined, nearer than "
            f"float32 numbers can tell. Keep its parts in their range, as in ib.sqrt(ib.maximum(x, 0)), or end "
            f"the episode before."
        )

    def _misfit(self, node: Operation, parts: list[Array]) -> Exception:
        shapes = [
            tuple(part.shape[part.ndim - len(operand.own_shape) :])
            for part, operand in zip(parts, used_operands(node), strict=True)
        ]
        return InvalidInputError(
            f"{named(node, self.root)} puts arrays of shapes {', '.join(map(str, shapes))} together. Check which "
            f"entries it reads, and how long the observation and the previous action are."
        )


def used_operands(node: Operation) -> tuple[Expression, ...]:
    """Return the operands that are computed: all but an exponent."""
    return node.operands[:1] if node.name == "power" else node.operands


def compute_of(node: Operation) -> Callable[..., Array]:
    """Return the function of a node's operands; exponents and axes are a part of it."""
    if node.name == "power":
        exponent = exponent_of(node)
        return lambda xp, base: power(xp, base, exponent)
    if node.name == "stack":
        return lambda xp, *operands: joined(xp, *operands, axis=-len(node.own_shape))
    return OPERATIONS[node.name].compute


def enclose_of(node: Operation) -> Callable[..., Interval]:
    """Return the same for intervals."""
    if node.name == "power":
        exponent = exponent_of(node)
        return lambda at, base: enclose_power(at, base, exponent)
    return each_end(compute_of(node)) if node.name == "stack" else OPERATIONS[node.name].enclose


def exponent_of(node: Operation) -> float:
    """Return the exponent of a power."""
    exponent = node.operands[1]
    assert isinstance(exponent, Constant)
    return float(exponent.array)


def aligned(parts: list[Array], operands: tuple[Expression, ...], *, is_stack: bool) -> list[Array]:
    """Put axes between those of the batch and those of an operand, so that all have the same number of their own."""
    axes = [len(operand.own_shape) for operand in operands]
    most = max(axes) + is_stack
    if min(axes) == most:
        return parts
    return [
        part if own == most else part[(..., *(None,) * (most - own), *(slice(None),) * own)]
        for part, own in zip(parts, axes, strict=True)
    ]


def named(node: Expression, root: Expression) -> str:
    """Name an expression, and the larger one that it is a part of."""
    inner, outer = (text if len(text) <= 120 else f"{text[:117]}..." for text in (str(node), str(root)))
    return inner if node == root else f"{inner}, a part of {outer},"


def shown(value: Array) -> str:
    """Write the first numbers of an array."""
    return np.array2string(np.asarray(value), precision=4, threshold=8, separator=", ")
