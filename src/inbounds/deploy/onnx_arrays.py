"""Arrays that write a graph: what is computed with them becomes ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from inbounds.deploy.onnx_graph import Compute, Symbol
from inbounds.errors import InvalidInputError

Operand = Any
"""A symbolic array, a numpy array or a number."""


class SymbolicArray(Symbol):
    """An array of the graph that computes like any other array."""

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return self.graph.namespace

    @property
    def device(self) -> str:
        """Return where the array is: in the graph."""
        return "graph"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._values(), dtype=dtype)

    def __bool__(self) -> bool:
        return bool(self._values())

    def __float__(self) -> float:
        return float(self._values())

    def __len__(self) -> int:
        return self.shape[0]

    def _values(self) -> Any:
        if self.value is None:
            raise InvalidInputError(
                "a graph is being written, in which this array has no values yet, but the constraint looks at "
                "them. Decide with `where` instead, or under `is_traced`."
            )
        return self.value

    def _two(self, operator: str, compute: Compute, other: Operand, *, is_swapped: bool = False) -> Any:
        pair = (self, self._like(other))
        return self.graph.add(operator, pair[::-1] if is_swapped else pair, compute)

    def _like(self, other: Operand) -> Symbol:
        """Return a number or a numpy array as a constant; a number takes this array's type."""
        if isinstance(other, Symbol):
            return other
        is_number = isinstance(other, bool | int | float)
        return self.graph.constant(other, self.dtype if is_number else None)

    def __add__(self, other: Operand) -> Any:
        return self._two("Add", np.add, other)

    def __radd__(self, other: Operand) -> Any:
        return self._two("Add", np.add, other, is_swapped=True)

    def __sub__(self, other: Operand) -> Any:
        return self._two("Sub", np.subtract, other)

    def __rsub__(self, other: Operand) -> Any:
        return self._two("Sub", np.subtract, other, is_swapped=True)

    def __mul__(self, other: Operand) -> Any:
        return self._two("Mul", np.multiply, other)

    def __rmul__(self, other: Operand) -> Any:
        return self._two("Mul", np.multiply, other, is_swapped=True)

    def __truediv__(self, other: Operand) -> Any:
        return self._two("Div", np.divide, other)

    def __rtruediv__(self, other: Operand) -> Any:
        return self._two("Div", np.divide, other, is_swapped=True)

    def __pow__(self, exponent: int) -> Any:
        product: Any = self
        for _ in range(int(exponent) - 1):
            product = product * self
        return product

    def __rpow__(self, base: float) -> Any:
        exponent = self.graph.add(
            "Cast", [self], lambda x: x.astype(np.float64), to=self.graph.onnx.TensorProto.DOUBLE
        )
        return self.graph.add("Pow", [self.graph.constant(base, np.float64), exponent], np.power)

    def __neg__(self) -> Any:
        return self.graph.add("Neg", [self], np.negative)

    def __lt__(self, other: Operand) -> Any:
        return self._two("Less", np.less, other)

    def __le__(self, other: Operand) -> Any:
        return self._two("LessOrEqual", np.less_equal, other)

    def __gt__(self, other: Operand) -> Any:
        return self._two("Greater", np.greater, other)

    def __ge__(self, other: Operand) -> Any:
        return self._two("GreaterOrEqual", np.greater_equal, other)

    def __eq__(self, other: Operand) -> Any:
        return self._two("Equal", np.equal, other)

    def __ne__(self, other: Operand) -> Any:
        return ~self._two("Equal", np.equal, other)

    __hash__ = None  # type: ignore[assignment]  # == compares entries, so that an array has no hash

    def __and__(self, other: Operand) -> Any:
        return self._two("And", np.logical_and, other)

    def __or__(self, other: Operand) -> Any:
        return self._two("Or", np.logical_or, other)

    def __invert__(self) -> Any:
        return self.graph.add("Not", [self], np.logical_not)

    def __getitem__(self, key: Any) -> Any:
        """Take entries by integers, slices, None and Ellipsis; all of them are known, so shapes are."""
        keys = key if isinstance(key, tuple) else (key,)
        taken = sum(part is not None and part is not Ellipsis for part in keys)
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)
        place = keys.index(Ellipsis)
        keys = (*keys[:place], *(slice(None),) * (self.ndim - taken), *keys[place + 1 :])
        chosen, shape, axis = self, [], 0
        for part in keys:
            if part is None:
                shape.append(1)
                continue
            size = self.shape[axis]
            span = slice(part % size, part % size + 1) if isinstance(part, int | np.integer) else part
            start, stop, step = span.indices(size)
            if (start, stop, step) != (0, size, 1):
                chosen = chosen.taken_along(axis, start, stop, step)
            if isinstance(part, slice):
                shape.append(len(range(start, stop, step)))
            axis += 1
        return self.graph.namespace.reshape(chosen, tuple(shape))

    def taken_along(self, axis: int, start: int, stop: int, step: int) -> Any:
        """Take the entries of one axis from `start` to before `stop`."""
        constant = self.graph.constant
        # -1 as an end would mean the last entry; what ends before the first one is far below.
        ends = [np.array([end], np.int64) for end in (start, stop if stop >= 0 else -(2**31), axis, step)]
        index = (*(slice(None),) * axis, slice(start, stop if stop >= 0 else None, step))
        return self.graph.add("Slice", [self, *map(constant, ends)], lambda x, *_: x[index])
