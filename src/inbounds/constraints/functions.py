"""The functions that make expressions: `ib.sin(ib.obs[3])`, `ib.stack([1, ib.obs[0]])`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from inbounds.constraints.expressions import (
    Expression,
    constant,
    expression,
    holds_expression,
    operation,
    product,
)
from inbounds.constraints.references import Reference

Number = Any
"""An expression, a number, or a nested list of both."""


def abs(x: Number) -> Any:
    """Return |x|, entry by entry."""
    return operation("abs", x)


def sqrt(x: Number) -> Any:
    """Return the square root, entry by entry; where x < 0 no action is allowed."""
    return operation("sqrt", x)


def exp(x: Number) -> Any:
    """Return e to the power of x, entry by entry."""
    return operation("exp", x)


def log(x: Number) -> Any:
    """Return the natural logarithm, entry by entry; where x <= 0 no action is allowed."""
    return operation("log", x)


def sin(x: Number) -> Any:
    """Return the sine of x in radians, entry by entry."""
    return operation("sin", x)


def cos(x: Number) -> Any:
    """Return the cosine of x in radians, entry by entry."""
    return operation("cos", x)


def tanh(x: Number) -> Any:
    """Return the hyperbolic tangent, entry by entry."""
    return operation("tanh", x)


def minimum(x: Number, y: Number) -> Any:
    """Return the smaller one, entry by entry."""
    return operation("minimum", x, y)


def maximum(x: Number, y: Number) -> Any:
    """Return the larger one, entry by entry."""
    return operation("maximum", x, y)


def clip(x: Number, low: Number, high: Number) -> Any:
    """Return x, or the bound that it lies beyond; where bounds cross, `high` wins."""
    return operation("clip", x, low, high)


def sum(x: Number) -> Any:
    """Return the sum of the entries of a vector, or of every row of a matrix."""
    return operation("sum", x)


def dot(x: Number, y: Number) -> Any:
    """Return sum_i x_i y_i for two vectors, or a matrix times a vector; the same as `x @ y`."""
    return product(x, y)


def stack(parts: Sequence[Number]) -> Any:
    """Return numbers as a vector, or vectors of one length as the rows of a matrix."""
    if not holds_expression(list(parts)):
        return constant(list(parts))
    entries = [expression(part) for part in parts]
    found = _read_at_once(entries)
    return operation("stack", *entries) if found is None else found


def _read_at_once(entries: list[Expression]) -> Any:
    """Return single entries of one source, each with a factor, as one reading times a vector; or None."""
    plain = [
        entry
        for entry in entries
        if isinstance(entry, Reference) and isinstance(entry.indices, int) and entry.shape is None
    ]
    first = plain[0] if plain else None
    if first is None or len(plain) < len(entries):
        return None
    if any((entry.source, entry.part, entry.offset) != (first.source, first.part, 0.0) for entry in plain):
        return None
    factors = [entry.scale for entry in plain]
    indices = tuple(entry.indices for entry in plain if isinstance(entry.indices, int))
    if len(set(factors)) == 1:
        return dataclasses.replace(first, indices=indices)
    return operation("multiply", factors, dataclasses.replace(first, indices=indices, scale=1.0))
