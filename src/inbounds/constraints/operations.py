"""The operations of expressions: how each is computed, how far rounding can move its result, how it is written.

`Unevaluated` refuses what is not among them, and says what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, clip, total
from inbounds.errors import ConstraintError

HALF_UNIT = 2.0**-24
"""The largest relative error of rounding a number to float32."""

BASIC = 4.0
"""Half units for + - * / and the square root: this rounding, that of the other precision, and those of the ends."""
FUNCTION = 20.0
"""Half units for exp, log, sin, cos, tanh and broken powers, which libraries compute to a few units."""


class Interval(NamedTuple):
    """Two numbers with everything between them that rounding may make of a value."""

    low: Array
    high: Array


class Rounding(NamedTuple):
    """The array library, and the size below which its numbers may vanish (0 in float64)."""

    xp: Any
    smallest: float

    def widened(self, low: Array, high: Array, units: float, is_nonnegative: Array | None = None) -> Interval:
        """Return an interval that is wider by half units of float32, but not below zero where that is impossible."""
        xp, share = self.xp, units * HALF_UNIT
        lower, upper = low - share * xp.abs(low), high + share * xp.abs(high)
        if self.smallest:
            lower, upper = lower - self.smallest, upper + self.smallest
            if is_nonnegative is not None:
                lower = xp.where(is_nonnegative, xp.maximum(lower, 0.0), lower)
        return Interval(lower, upper)


Text = tuple[str, int]
"""An operand as it is written, and how strongly its parts hold together."""


class Rule(NamedTuple):
    """What is known of one operation. Operands come with as many axes of their own as one another.

    `hides` says that the result may be finite where an operand is not.
    """

    arity: int | None
    compute: Callable[..., Array]
    enclose: Callable[..., Interval]
    text: Callable[..., str]
    binding: int = 4
    hides: bool = False


def power_product(base: Array, exponent: int) -> Array:
    """Return a power as few products, which all libraries round alike."""
    result = None
    while True:
        if exponent % 2:
            result = base if result is None else result * base
        exponent //= 2
        if not exponent:
            return result
        base = base * base


def power(xp: Any, base: Array, exponent: float) -> Array:
    """Return a power with a positive exponent; a broken one has no value for a negative base."""
    number = float(exponent)
    return power_product(base, int(number)) if number.is_integer() else xp.pow(base, number)


def _enclose_sum(at: Rounding, left: Interval, right: Interval) -> Interval:
    is_nonnegative = (left.low >= 0) & (right.low >= 0)
    return at.widened(left.low + right.low, left.high + right.high, BASIC, is_nonnegative)


def _enclose_difference(at: Rounding, left: Interval, right: Interval) -> Interval:
    return at.widened(left.low - right.high, left.high - right.low, BASIC)


def _enclose_product(at: Rounding, left: Interval, right: Interval) -> Interval:
    return _of_corners(at, left, right, lambda first, second: first * second)


def _enclose_quotient(at: Rounding, left: Interval, right: Interval) -> Interval:
    # Across zero a quotient has no bound at all.
    is_defined = (right.low > 0) | (right.high < 0)
    divisor = Interval(*(at.xp.where(is_defined, end, float("nan")) for end in right))
    return _of_corners(at, left, divisor, lambda first, second: first / second)


def _of_corners(
    at: Rounding, left: Interval, right: Interval, compute: Callable[[Array, Array], Array]
) -> Interval:
    xp = at.xp
    one, two = compute(left.low, right.low), compute(left.low, right.high)
    three, four = compute(left.high, right.low), compute(left.high, right.high)
    low = xp.minimum(xp.minimum(one, two), xp.minimum(three, four))
    high = xp.maximum(xp.maximum(one, two), xp.maximum(three, four))
    is_nonnegative = ((left.low >= 0) & (right.low >= 0)) | ((left.high <= 0) & (right.high <= 0))
    return at.widened(low, high, BASIC, is_nonnegative)


def _enclose_size(at: Rounding, operand: Interval) -> Interval:
    xp = at.xp
    away = xp.maximum(operand.low, -operand.high)
    return Interval(xp.maximum(away, 0.0), xp.maximum(-operand.low, operand.high))


def enclose_power(at: Rounding, base: Interval, exponent: float) -> Interval:
    """Enclose a power with a positive exponent."""
    is_whole = float(exponent).is_integer()
    ends = _enclose_size(at, base) if is_whole and exponent % 2 == 0 else base
    low, high = (power(at.xp, end, exponent) for end in ends)
    return at.widened(low, high, 2.0 * BASIC * exponent if is_whole else FUNCTION, ends.low >= 0)


def _rising(name: str, units: float, *, is_nonnegative: bool = False) -> Callable[..., Interval]:
    """Return the enclosure of a function that rises with its operand."""

    def enclose(at: Rounding, operand: Interval) -> Interval:
        function = getattr(at.xp, name)
        low, high = function(operand.low), function(operand.high)
        return at.widened(low, high, units, low >= 0 if is_nonnegative else None)

    return enclose


def _enclose_wave(name: str) -> Callable[..., Interval]:
    def enclose(at: Rounding, operand: Interval) -> Interval:
        """Use that sine and cosine nowhere change faster than their operand."""
        function, half_width = getattr(at.xp, name), 0.5 * (operand.high - operand.low)
        middle = function(operand.low + half_width)
        # Next to a width that rounds to nothing, the middle is off by the rounding of the operand.
        half_width = half_width + BASIC * HALF_UNIT * (1.0 + at.xp.abs(operand.low))
        return at.widened(middle - half_width, middle + half_width, FUNCTION)

    return enclose


def _enclose_total(at: Rounding, operand: Interval) -> Interval:
    xp, entries = at.xp, operand.low.shape[-1]
    size = total(xp, xp.maximum(xp.abs(operand.low), xp.abs(operand.high)))
    error = (2.0 * entries + BASIC) * HALF_UNIT * size + at.smallest
    low, high = total(xp, operand.low), total(xp, operand.high)
    is_nonnegative = xp.min(operand.low, axis=-1) >= 0
    lower = xp.where(is_nonnegative, xp.maximum(low - error, 0.0), low - error)
    return Interval(lower, high + error)


def each_end(compute: Callable[..., Array]) -> Callable[..., Interval]:
    """Return the enclosure of an exact operation that falls with none of its operands."""

    def enclose(at: Rounding, *operands: Interval) -> Interval:
        lows, highs = zip(*operands, strict=True)
        return Interval(compute(at.xp, *lows), compute(at.xp, *highs))

    return enclose


def joined(xp: Any, *operands: Array, axis: int = 0) -> Array:
    """Join operands along an axis of which each has one entry."""
    shape = np.broadcast_shapes(*(tuple(operand.shape) for operand in operands))
    return xp.concat([xp.broadcast_to(operand, shape) for operand in operands], axis=axis)


def _infix(sign: str, binding: int) -> Callable[..., str]:
    def text(left: Text, right: Text) -> str:
        # On the right, a - (b + c) and a/(b*c) need parentheses, a + b + c does not.
        return f"{_within(left, binding)}{sign}{_within(right, binding + (sign.strip() in '-/'))}"

    return text


def _within(part: Text, binding: int) -> str:
    return part[0] if part[1] >= binding else f"({part[0]})"


def _called(name: str) -> Callable[..., str]:
    return lambda *parts: f"{name}({', '.join(text for text, _ in parts)})"


def _minimum(xp: Any, left: Array, right: Array) -> Array:
    return xp.minimum(left, right)


def _maximum(xp: Any, left: Array, right: Array) -> Array:
    return xp.maximum(left, right)


OPERATIONS = {
    "add": Rule(2, lambda xp, left, right: left + right, _enclose_sum, _infix(" + ", 1), 1),
    "subtract": Rule(2, lambda xp, left, right: left - right, _enclose_difference, _infix(" - ", 1), 1),
    "multiply": Rule(2, lambda xp, left, right: left * right, _enclose_product, _infix("*", 2), 2),
    "divide": Rule(2, lambda xp, left, right: left / right, _enclose_quotient, _infix("/", 2), 2, True),
    "negate": Rule(
        1,
        lambda xp, operand: -operand,
        lambda at, operand: Interval(-operand.high, -operand.low),
        lambda part: f"-{_within(part, 2)}",
        1,
    ),
    "power": Rule(2, power, enclose_power, lambda base, exponent: f"{_within(base, 4)}**{exponent[0]}", 3),
    "abs": Rule(1, lambda xp, operand: xp.abs(operand), _enclose_size, _called("abs")),
    "sqrt": Rule(
        1, lambda xp, operand: xp.sqrt(operand), _rising("sqrt", BASIC, is_nonnegative=True), _called("sqrt")
    ),
    "exp": Rule(
        1,
        lambda xp, operand: xp.exp(operand),
        _rising("exp", FUNCTION, is_nonnegative=True),
        _called("exp"),
        hides=True,
    ),
    "log": Rule(1, lambda xp, operand: xp.log(operand), _rising("log", FUNCTION), _called("log")),
    "sin": Rule(1, lambda xp, operand: xp.sin(operand), _enclose_wave("sin"), _called("sin")),
    "cos": Rule(1, lambda xp, operand: xp.cos(operand), _enclose_wave("cos"), _called("cos")),
    "tanh": Rule(
        1, lambda xp, operand: xp.tanh(operand), _rising("tanh", FUNCTION), _called("tanh"), hides=True
    ),
    "minimum": Rule(2, _minimum, each_end(_minimum), _called("minimum"), hides=True),
    "maximum": Rule(2, _maximum, each_end(_maximum), _called("maximum"), hides=True),
    "clip": Rule(3, clip, each_end(clip), _called("clip"), hides=True),
    "sum": Rule(1, total, _enclose_total, _called("sum")),
    "stack": Rule(None, joined, each_end(joined), lambda *parts: f"[{', '.join(p[0] for p in parts)}]"),
}
"""Every operation by its name in a file."""

REFLECTED = {
    **{"add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__"},
    **{"matmul": "__rmatmul__", "power": "__rpow__"},
}
"""What numpy calls the operators, and the methods that answer `array * expression` and so on."""


class Unevaluated:
    """A base class that refuses what Python and numpy do with numbers and cannot do with a formula."""

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        """Answer `array * expression`, of which numpy would make an array of objects; refuse numpy's functions."""
        name = function.__name__
        if method == "__call__" and len(operands) == 2 and operands[1] is self:
            if name in ("equal", "not_equal"):
                return name == "not_equal"
            if name in REFLECTED:
                return getattr(self, REFLECTED[name])(operands[0])
        raise _of_numpy(name)

    def __array_function__(self, function: Any, kinds: Any, operands: Any, options: Any) -> Any:
        """Refuse numpy's functions of arrays."""
        raise _of_numpy(function.__name__)

    def __getitem__(self, selection: Any) -> Any:
        raise ConstraintError(
            f"({self})[{selection!r}]: entries are named where the observation is read. Write ib.obs[3] instead of "
            f"ib.obs[2:5][1]; of other expressions, compute the entries one by one and join them with ib.stack."
        )

    def __iter__(self) -> Iterator[Any]:
        raise ConstraintError(
            f"({self}) cannot be taken apart in Python: its numbers are known only when an observation is. Write "
            f"ib.sum, ib.minimum and so on instead of Python's functions, and ib.obs[3] for a single entry."
        )

    def _compared(self, other: Any) -> Any:
        raise ConstraintError(
            f"({self}) cannot be compared with {other!r}: its numbers are known only when an observation is. Write "
            f"ib.maximum, ib.minimum or ib.clip; for a set that depends on the outcome, join two sets with |."
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __bool__(self) -> bool:
        raise ConstraintError(
            f"{self} has no value before a state is known, so it cannot decide an `if`. Use ib.minimum, ib.maximum "
            f"or ib.clip, or join constraints with & and |."
        )


def _of_numpy(name: str) -> ConstraintError:
    """Return the error for a function of numpy that was called with an expression."""
    name = {"absolute": "abs"}.get(name, name)
    ours = (
        f"ib.{name}" if name in OPERATIONS or name in ("dot", "clip") else "ib.sqrt, ib.sum, ib.dot and so on"
    )
    return ConstraintError(
        f"np.{name} computes with numbers, and those of an expression are known only when an observation is. Write "
        f"{ours} instead."
    )
