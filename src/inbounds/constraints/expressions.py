"""Formulas of numbers that are read from the state: data, not code, so that a constraint fits into a file."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from inbounds.constraints.operations import HALF_UNIT, OPERATIONS, Unevaluated
from inbounds.errors import ConstraintError
from inbounds.limits import DEEPEST_EXPRESSION, MOST_NUMBERS, MOST_OPERATIONS

Shape = tuple[int | None, ...]
"""The number of entries along each axis; None where only the state tells it."""

SHOWN = 8
"""Constants with more entries than this are shown by their range."""

LARGEST_EXPONENT = 64


class Expression(Unevaluated):
    """A number, a vector or a matrix that is computed from the observation and the previous action.

    `+ - * /`, `**` with a constant exponent, `abs` and `@` make new expressions out of expressions, numbers and lists
    of numbers. Shapes broadcast as in numpy; the axes of a batch of states come before them.
    """

    operations = 0
    """How many operations the expression is made of."""
    depth = 0
    """How deep they are nested."""

    # An abstract base class would make isinstance, which every question asks of every parameter, slower.

    @functools.cached_property
    def own_shape(self) -> Shape:
        """The shape in a single state."""
        raise NotImplementedError

    def references(self) -> Iterator[Any]:
        """Yield every `Reference` that is read."""
        raise NotImplementedError

    def replaced(self, change: Callable[[Any], Any]) -> Expression:
        """Return the same expression of changed references."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return plain data, from which the expression can be built again."""
        raise NotImplementedError

    def size(self) -> int | None:
        """Return how many entries the last axis has, where that is known without a state."""
        return self.own_shape[-1] if self.own_shape else None

    def __add__(self, other: Any) -> Any:
        return operation("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return operation("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return operation("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return operation("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return operation("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return operation("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return operation("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return operation("divide", other, self)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self)

    def __neg__(self) -> Any:
        return operation("negate", self)

    def __abs__(self) -> Any:
        return operation("abs", self)

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, Expression):
            raise ConstraintError(
                f"({self}) ** ({exponent}): an exponent is a number. Write ib.exp(exponent * ib.log(base)) instead."
            )
        number = constant(exponent).array
        if number.ndim or number == 0 or abs(number) > LARGEST_EXPONENT:
            raise ConstraintError(
                f"({self}) ** {exponent!r}: an exponent is a number other than 0, up to {LARGEST_EXPONENT} in size. "
                f"Write another one, or use ib.exp."
            )
        if number < 0:
            return 1.0 / self ** -float(number)
        return self if number == 1 else operation("power", self, float(number))

    def __rpow__(self, base: Any) -> Any:
        raise ConstraintError(
            f"{base!r} ** ({self}): an exponent is a number. Write ib.exp(number * expression), with the logarithm "
            f"of the base as the number."
        )


@dataclasses.dataclass(frozen=True)
class Constant(Expression):
    """Numbers inside an expression, as nested tuples."""

    numbers: Any

    @functools.cached_property
    def array(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The numbers as a float64 array that cannot be written to."""
        array = np.array(self.numbers, dtype=np.float64)
        array.flags.writeable = False
        return array

    def __getstate__(self) -> dict[str, Any]:
        """Return the numbers alone: numpy forgets that an array which it copies cannot be written."""
        return {"numbers": self.numbers}

    @functools.cached_property
    def own_shape(self) -> Shape:
        """The shape of the numbers."""
        shape: Shape = self.array.shape
        return shape

    @functools.cached_property
    def ends(self) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
        """The numbers less and plus what rounding them to float32 may change."""
        error = HALF_UNIT * np.abs(self.array)
        return self.array - error, self.array + error

    def references(self) -> Iterator[Any]:
        """Yield nothing."""
        yield from ()

    def replaced(self, change: Callable[[Any], Any]) -> Expression:
        """Return the same numbers."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return {"numbers": self.array.tolist()}

    def __str__(self) -> str:
        if self.array.size > SHOWN:
            return f"[{self.array.min():g}..{self.array.max():g}]"
        return _listed(self.array.tolist())


@dataclasses.dataclass(frozen=True)
class Operation(Expression):
    """One operation of the table `OPERATIONS`, applied to other expressions."""

    name: str
    operands: tuple[Expression, ...]

    def __post_init__(self) -> None:
        """Check that the operands fit the operation and one another."""
        rule = OPERATIONS.get(self.name)
        if rule is None:
            raise ConstraintError(
                f"no operation of expressions is called {self.name!r}. Known: {', '.join(OPERATIONS)}. Use one of them."
            )
        count = len(self.operands)
        if count != rule.arity and (rule.arity is not None or count == 0):
            raise ConstraintError(
                f"'{self.name}' takes {rule.arity or 'one or more'} operand(s), not {count}. Correct them."
            )
        object.__setattr__(self, "operations", 1 + sum(operand.operations for operand in self.operands))
        object.__setattr__(self, "depth", 1 + max(operand.depth for operand in self.operands))
        if self.operations > MOST_OPERATIONS or self.depth > DEEPEST_EXPRESSION:
            raise ConstraintError(
                f"the expression is made of more than {MOST_OPERATIONS:,} operations, or nested more than "
                f"{DEEPEST_EXPRESSION} deep. Use ib.sum, ib.dot or `@` in place of many single terms."
            )
        if self.name == "power":
            _require_exponent(self.operands[1])
        object.__setattr__(self, "own_shape", self._common_shape())

    def _common_shape(self) -> Shape:
        shapes = [operand.own_shape for operand in self.operands]
        common = broadcast(shapes, f"'{self.name}' of {', '.join(map(_shortened, self.operands))}")
        if self.name == "sum":
            if not common:
                raise ConstraintError(
                    f"the sum of {_shortened(self.operands[0])} is that number itself. Sum a vector, or omit it."
                )
            return common[:-1]
        if self.name == "stack":
            common = (len(self.operands), *common)
            if len(common) > 2 or (len(common) == 2 and None in common):
                raise ConstraintError(
                    f"a stack of shape {common} is not a vector or a matrix of known size. Stack numbers, or vectors "
                    f"of known length such as obs[2:5]."
                )
        return common

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape in a single state, where it is known without one."""
        return None if None in self.own_shape else self.own_shape  # type: ignore[return-value]

    def references(self) -> Iterator[Any]:
        """Yield every reference, from left to right."""
        for operand in self.operands:
            yield from operand.references()

    def replaced(self, change: Callable[[Any], Any]) -> Expression:
        """Return the same operations on changed references; without a change, the same object."""
        operands = tuple(operand.replaced(change) for operand in self.operands)
        return self if operands == self.operands else Operation(self.name, operands)

    def to_json(self) -> dict[str, Any]:
        """Return the operation by its name, and its operands."""
        parts = [
            operand.to_json()
            if isinstance(operand, Constant | Operation)
            else {"reference": operand.to_json()}
            for operand in self.operands
        ]
        return {"operation": self.name, "operands": parts}

    def __str__(self) -> str:
        return OPERATIONS[self.name].text(*((str(operand), _binding(operand)) for operand in self.operands))


def operation(name: str, *operands: Any) -> Any:
    """Return an operation on expressions, numbers and nested lists of both."""
    made = Operation(name, tuple(expression(operand) for operand in operands))
    if not all(isinstance(operand, Constant) for operand in made.operands):
        return made
    values = [operand.array for operand in made.operands]  # type: ignore[attr-defined]
    if name == "stack":
        return constant(np.stack(np.broadcast_arrays(*values)))
    with np.errstate(all="ignore"):
        return constant(OPERATIONS[name].compute(np, *values))


def expression(value: Any) -> Expression:
    """Return an expression as it is, numbers as a constant, and a list with expressions in it as a stack."""
    if isinstance(value, Expression):
        return value
    return operation("stack", *value) if holds_expression(value) else constant(value)


def holds_expression(value: Any) -> bool:
    """Tell whether a nested list has an expression among its entries."""
    if isinstance(value, np.ndarray):
        return value.dtype == object and holds_expression(value.tolist())
    if isinstance(value, list | tuple):
        return any(isinstance(entry, Expression) or holds_expression(entry) for entry in value)
    return False


def constant(value: Any) -> Constant:
    """Return finite numbers as a constant."""
    is_number = isinstance(value, int | float | np.number | np.ndarray | list | tuple)
    try:
        array = np.array(value, dtype=np.float64) if is_number and not isinstance(value, bool) else None
    except (OverflowError, TypeError, ValueError):  # an integer may be too large for a float
        array = None
    if array is None or not array.size or array.ndim > 2 or not np.isfinite(array).all():
        raise ConstraintError(
            f"{_shortened(value)!s} cannot be a part of an expression. Use ib.obs[...], ib.previous_action, finite "
            f"numbers, and vectors and matrices of them."
        )
    if array.size > MOST_NUMBERS:
        raise ConstraintError(
            f"an expression holds {array.size:,} numbers, but at most {MOST_NUMBERS:,} are possible. Use fewer."
        )
    return Constant(_as_tuple(array.tolist()))


def product(left: Any, right: Any) -> Any:
    """Return the dot product of two vectors, or a matrix times a vector."""
    first, second = expression(left), expression(right)
    if not first.own_shape or len(second.own_shape) != 1:
        raise ConstraintError(
            f"the product of shapes {first.own_shape} and {second.own_shape} is neither that of two vectors nor that "
            f"of a matrix and a vector. Use * for numbers, and put the vector on the right."
        )
    return operation("sum", operation("multiply", first, second))


def broadcast(shapes: list[Shape], what: str) -> Shape:
    """Return the shape that arrays of these shapes have together, in which a single entry is repeated."""
    sides: list[int | None] = []
    for column in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        several = {side for side in column if side not in (1, None)}
        if len(several) > 1:
            raise ConstraintError(
                f"{what}: the shapes {', '.join(map(str, shapes))} do not fit together. Give all of them the same "
                f"number of entries, or a single one."
            )
        sides.append(several.pop() if several else None if None in column else 1)
    return tuple(reversed(sides))


def expression_from_json(
    data: Any, reference_from_json: Callable[[Any], Expression], depth: int = 0
) -> Expression:
    """Rebuild an expression from plain data, refusing what `to_json` never writes."""
    if depth > DEEPEST_EXPRESSION:
        raise ConstraintError(
            f"an expression is nested more than {DEEPEST_EXPRESSION} deep. Write it with fewer operations."
        )
    if isinstance(data, dict):
        if set(data) == {"reference"} and isinstance(data["reference"], dict):
            return reference_from_json(data["reference"])
        if set(data) == {"numbers"}:
            _require_numbers(data["numbers"])
            return constant(data["numbers"])
        if set(data) == {"operation", "operands"} and isinstance(data["operands"], list):
            name = data["operation"]
            operands = [expression_from_json(one, reference_from_json, depth + 1) for one in data["operands"]]
            return Operation(name if isinstance(name, str) else repr(name), tuple(operands))
    raise ConstraintError(
        f"{_shortened(repr(data))} is neither an operation with operands, numbers nor a reference. Write the file with "
        f"constraint.to_json()."
    )


def _require_numbers(data: Any, axes: int = 2) -> None:
    """Refuse what numpy would take for a number, and JSON does not: words, true and false."""
    if isinstance(data, list) and axes > 0:
        for entry in data:
            _require_numbers(entry, axes - 1)
    elif not isinstance(data, int | float) or isinstance(data, bool):
        raise ConstraintError(
            f"{_shortened(repr(data))} is not a number. Give numbers, or lists of numbers, as 'numbers'."
        )


def _require_exponent(operand: Expression) -> None:
    exponent = operand.array if isinstance(operand, Constant) else np.zeros(1)
    if exponent.ndim or not 0 < exponent <= LARGEST_EXPONENT:
        raise ConstraintError(
            f"the exponent {_shortened(operand)} is not a positive number up to {LARGEST_EXPONENT}. Correct it."
        )


def _binding(operand: Expression) -> int:
    """Return how strongly the parts of a text hold together: 4 for what needs no parentheses anywhere."""
    if isinstance(operand, Operation):
        return OPERATIONS[operand.name].binding
    if isinstance(operand, Constant):
        return 1 if not operand.array.ndim and operand.array < 0 else 4
    return 1 if str(operand).startswith(("-", "+")) else 2 if "*" in str(operand).partition("[")[0] else 4


def _listed(numbers: Any) -> str:
    return f"[{', '.join(map(_listed, numbers))}]" if isinstance(numbers, list) else f"{numbers:g}"


def _as_tuple(numbers: Any) -> Any:
    return tuple(map(_as_tuple, numbers)) if isinstance(numbers, list) else numbers


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
