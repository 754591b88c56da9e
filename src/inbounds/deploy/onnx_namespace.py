"""The functions of the array API that constraints use, each of which writes nodes into an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from inbounds.deploy.onnx_arrays import Operand, SymbolicArray
from inbounds.deploy.onnx_graph import Compute, Graph, Symbol

SWEEPS = 10
"""How often Jacobi's method turns every pair of axes; the error squares with each of the last sweeps."""


class Eigenpairs(NamedTuple):
    """Eigenvalues, in no particular order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


def solution(xp: Any, matrix: Any, right: Any) -> Any:
    """Solve a symmetric positive definite system by the inverse and one step of refinement."""
    inverse = _inverse(xp, matrix)
    found = xp.matmul(inverse, right)
    return found + xp.matmul(inverse, right - xp.matmul(matrix, found))


def _inverse(xp: Any, matrix: Any) -> Any:
    """Eliminate without exchanging rows, which a positive definite matrix with a diagonal of ones never needs."""
    size = matrix.shape[-1]
    identity = xp.eye(size, dtype=matrix.dtype)
    diagonal = xp.sum(matrix * identity, axis=-1)
    scale = 1.0 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[..., None] * scale[..., None, :]
    both = xp.concat([scaled, xp.broadcast_to(identity, matrix.shape)], axis=-1)
    for index in range(size):
        row = both[..., index : index + 1, :]
        row = row / row[..., index : index + 1]
        is_row = xp.asarray(np.arange(size)[:, None] == index)
        both = xp.where(is_row, row, both - both[..., index : index + 1] * row)
    return both[..., size:] * scale[..., None] * scale[..., None, :]


def eigenpairs(xp: Any, matrix: Any) -> Eigenpairs:
    """Turn pairs of axes until the matrix is diagonal; in each round all entries are in one pair (Jacobi).

    A round turns every axis i towards its partner by J_ij = c_i on the diagonal and s_i at the partner, so that
    one product serves all pairs.
    """
    size = matrix.shape[-1]
    identity = xp.eye(size, dtype=matrix.dtype)
    if size == 1:
        return Eigenpairs(matrix[..., 0], xp.ones_like(matrix))
    before: Eigenpairs | None = xp.graph.recall(("eigenpairs", matrix.name))
    if before is not None:
        return before
    partners = _tournament(size)
    rounds = len(partners)
    # Partner matrices and, at [i, partner of i], +1 where i is the smaller of the two and -1 where the larger.
    exchange = np.zeros((rounds, size, size))
    signs = np.zeros((rounds, size))
    for turn, partner in enumerate(partners):
        for index, other in enumerate(partner):
            if other != index:
                exchange[turn, index, other] = 1.0
                signs[turn, index] = 1.0 if index < other else -1.0
    exchanges, all_signs = xp.asarray(exchange), xp.asarray(signs)

    def one_round(index: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        current, vectors = state
        turn = xp.remainder(index, rounds)
        swap, sign = xp.take(exchanges, turn, axis=0), xp.take(all_signs, turn, axis=0)
        own = xp.sum(current * identity, axis=-1)
        across = xp.sum(current * swap, axis=-1)
        other = xp.sum(swap * own[..., None, :], axis=-1)
        # tan of the angle, the smaller root of t^2 + 2 theta t = 1; 0 where there is nothing to turn.
        is_turned = (xp.abs(across) > 0) & (sign != 0)
        theta = sign * (other - own) / (2.0 * xp.where(is_turned, across, 1.0))
        size_of_theta = xp.abs(theta)
        tangent = 1.0 / (size_of_theta + xp.sqrt(size_of_theta * size_of_theta + 1.0))
        tangent = xp.where(is_turned, xp.where(theta < 0, -tangent, tangent), 0.0)
        cosine = 1.0 / xp.sqrt(tangent * tangent + 1.0)
        sine = sign * tangent * cosine
        rotation = identity * cosine[..., None] + swap * sine[..., None]
        turned = xp.matmul(xp.matmul(xp.matrix_transpose(rotation), current), rotation)
        return turned, xp.matmul(vectors, rotation)

    start = (matrix, xp.broadcast_to(identity, matrix.shape))
    diagonal, vectors = xp.fori_loop(0, SWEEPS * rounds, one_round, start)
    found = Eigenpairs(xp.sum(diagonal * identity, axis=-1), vectors)
    xp.graph.remember(("eigenpairs", matrix.name), found, vectors.depth)
    return found


def _tournament(size: int) -> list[list[int]]:
    """Return rounds in which everybody meets everybody once; who rests is its own partner."""
    even = size + size % 2
    circle = list(range(even))
    rounds = []
    for _ in range(even - 1):
        partner = list(range(size))
        for left, right in zip(circle[: even // 2], reversed(circle[even // 2 :]), strict=True):
            if left < size and right < size:
                partner[left], partner[right] = right, left
        rounds.append(partner)
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


class Namespace:
    """The functions of the array API for one graph, and loops and branches under the names of jax.lax."""

    __name__ = "inbounds.deploy.onnx_namespace"
    float32, float64, int64 = np.float32, np.float64, np.int64

    def __init__(self, graph: Graph) -> None:
        """Serve the arrays of a graph."""
        self.graph = graph
        self.bool = np.bool_
        self.linalg = SimpleNamespace(
            solve=lambda matrix, right: solution(self, matrix, right),
            eigh=lambda matrix: eigenpairs(self, matrix),
        )

    # Making and shaping ------------------------------------------------------------------------------------

    def asarray(self, value: Operand, dtype: Any = None, **_: Any) -> Any:
        """Return a constant, or an array with another type."""
        if isinstance(value, Symbol):
            return value if dtype is None else self.astype(value, dtype)
        return self.graph.constant(value, dtype)

    def astype(self, array: Any, dtype: Any) -> Any:
        """Convert to another type."""
        if array.dtype == dtype:
            return array
        kind = self.graph.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.add("Cast", [array], lambda x: x.astype(dtype), to=kind)

    def isdtype(self, dtype: Any, kind: Any) -> Any:
        """Tell whether a type is of a kind."""
        return np.isdtype(np.dtype(dtype), kind)

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Return zeros."""
        return self.graph.constant(np.zeros(shape, dtype))

    def eye(self, size: int, dtype: Any = np.float64) -> Any:
        """Return the identity."""
        return self.graph.constant(np.eye(size, dtype=dtype))

    def full_like(self, array: Any, value: float, dtype: Any = None) -> Any:
        """Return an array of the same shape with one value everywhere."""
        return self.graph.symbolic_constant(
            np.full(array.shape, value, array.dtype if dtype is None else dtype)
        )

    def zeros_like(self, array: Any, dtype: Any = None) -> Any:
        """Return zeros of the same shape."""
        return self.full_like(array, 0, dtype)

    def ones_like(self, array: Any, dtype: Any = None) -> Any:
        """Return ones of the same shape."""
        return self.full_like(array, 1, dtype)

    def reshape(self, array: Any, shape: Sequence[int]) -> Any:
        """Give an array another shape with the same entries."""
        sides = tuple(int(side) for side in np.zeros(array.shape, np.bool_).reshape(shape).shape)
        if sides == array.shape:
            return array
        target = self.graph.constant(np.array(sides, np.int64))
        return self.graph.add("Reshape", [array, target], lambda x, _: x.reshape(sides))

    def broadcast_to(self, array: Any, shape: Sequence[int]) -> Any:
        """Repeat an array along axes of length one."""
        sides = tuple(int(side) for side in shape)
        if sides == array.shape:
            return array
        target = self.graph.constant(np.array(sides, np.int64))
        return self.graph.add("Expand", [array, target], lambda x, _: np.broadcast_to(x, sides))

    def concat(self, arrays: Sequence[Any], axis: int = 0) -> Any:
        """Join arrays along an axis."""
        place = axis % arrays[0].ndim
        return self.graph.add("Concat", list(arrays), lambda *x: np.concatenate(x, axis=place), axis=place)

    def take(self, array: Any, indices: Any, axis: int) -> Any:
        """Take entries of one axis, by constant or computed indices."""
        place = axis % array.ndim
        return self.graph.add("Gather", [array, indices], lambda x, i: np.take(x, i, axis=place), axis=place)

    def matrix_transpose(self, array: Any) -> Any:
        """Swap the last two axes."""
        order = [*range(array.ndim - 2), array.ndim - 1, array.ndim - 2]
        return self.graph.add("Transpose", [array], lambda x: np.transpose(x, order), perm=tuple(order))

    # Entry by entry ----------------------------------------------------------------------------------------

    def _one(self, operator: str, compute: Compute, array: Any) -> Any:
        return self.graph.add(operator, [array], compute)

    def abs(self, array: Any) -> Any:
        """Return absolute values."""
        return self._one("Abs", np.abs, array)

    def sqrt(self, array: Any) -> Any:
        """Return square roots."""
        return self._one("Sqrt", np.sqrt, array)

    def exp(self, array: Any) -> Any:
        """Return exponentials."""
        return self._one("Exp", np.exp, array)

    def log(self, array: Any) -> Any:
        """Return natural logarithms."""
        return self._one("Log", np.log, array)

    def sin(self, array: Any) -> Any:
        """Return sines."""
        return self._one("Sin", np.sin, array)

    def cos(self, array: Any) -> Any:
        """Return cosines."""
        return self._one("Cos", np.cos, array)

    def pow(self, base: Any, exponent: Operand) -> Any:
        """Return powers."""
        return self.graph.add("Pow", self._pair(base, exponent), np.power)

    def tanh(self, array: Any) -> Any:
        """Return hyperbolic tangents."""
        return self._one("Tanh", np.tanh, array)

    def atanh(self, array: Any) -> Any:
        """Return inverse hyperbolic tangents; onnxruntime has them for float32 alone."""
        return self._one("Atanh", np.arctanh, array)

    def maximum(self, left: Operand, right: Operand) -> Any:
        """Return the larger entries."""
        return self.graph.add("Max", self._pair(left, right), np.maximum)

    def minimum(self, left: Operand, right: Operand) -> Any:
        """Return the smaller entries."""
        return self.graph.add("Min", self._pair(left, right), np.minimum)

    def remainder(self, left: Operand, right: Operand) -> Any:
        """Return what divisions of nonnegative integers leave."""
        return self.graph.add("Mod", self._pair(left, right), np.remainder)

    def clip(self, array: Any, low: Operand, high: Operand) -> Any:
        """Keep entries between two bounds."""
        return self.minimum(self.maximum(array, low), high)

    def copysign(self, size: Any, sign: Any) -> Any:
        """Give numbers the sign of others; a negative zero counts as positive."""
        length = self.abs(size)
        return self.where(sign < 0, -length, length)

    def isfinite(self, array: Any) -> Any:
        """Tell which entries are finite numbers."""
        return self.abs(array) < float("inf")

    def where(self, condition: Any, left: Operand, right: Operand) -> Any:
        """Choose between two arrays, entry by entry."""
        return self.graph.add("Where", [condition, *self._pair(left, right)], np.where)

    def _pair(self, left: Operand, right: Operand) -> tuple[Any, Any]:
        """Return two operands as symbols; numbers take the type of the other one."""
        if not isinstance(left, Symbol):
            dtype = right.dtype if isinstance(right, Symbol) and np.ndim(left) == 0 else None
            left = self.graph.constant(left, dtype)
        if not isinstance(right, Symbol):
            right = self.graph.constant(right, left.dtype if np.ndim(right) == 0 else None)
        return left, right

    # Along axes --------------------------------------------------------------------------------------------

    def _reduced(self, operator: str, compute: Compute, array: Any, axis: int | None, keepdims: bool) -> Any:
        if array.ndim == 0:
            return array
        axes = tuple(range(array.ndim)) if axis is None else (axis % array.ndim,)
        listed = self.graph.constant(np.array(axes, np.int64))
        return self.graph.add(
            operator,
            [array, listed],
            lambda x, _: compute(x, axis=axes, keepdims=keepdims),
            keepdims=int(keepdims),
        )

    def sum(self, array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return sums."""
        return self._reduced("ReduceSum", np.sum, array, axis, keepdims)

    def mean(self, array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return means."""
        return self._reduced("ReduceMean", np.mean, array, axis, keepdims)

    def max(self, array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return the largest entries."""
        return self._reduced("ReduceMax", np.max, array, axis, keepdims)

    def min(self, array: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        """Return the smallest entries."""
        return self._reduced("ReduceMin", np.min, array, axis, keepdims)

    def all(self, array: Any, axis: int | None = None) -> Any:
        """Tell whether all entries are true."""
        return self.astype(self.min(self.astype(array, np.int32), axis), np.bool_)

    def any(self, array: Any, axis: int | None = None) -> Any:
        """Tell whether some entry is true."""
        return self.astype(self.max(self.astype(array, np.int32), axis), np.bool_)

    def argmax(self, array: Any, axis: int) -> Any:
        """Return where the largest entry is, the first one of several."""
        place = axis % array.ndim
        return self.graph.add(
            "ArgMax", [array], lambda x: np.asarray(np.argmax(x, axis=place)), axis=place, keepdims=0
        )

    def matmul(self, left: Any, right: Any) -> Any:
        """Return matrix products."""
        return self.graph.add("MatMul", [left, right], np.matmul)

    # Loops and branches ------------------------------------------------------------------------------------

    def fori_loop(self, first: int, last: int, step: Callable[[Any, Any], Any], start: Any) -> Any:
        """Apply a step for every index from `first` to before `last`, as jax.lax.fori_loop does."""
        leaves = flattened(start)

        def flat_step(index: Symbol, state: list[Symbol]) -> tuple[list[Symbol], Symbol | None]:
            following = step(index + first if first else index, rebuilt(start, state))  # type: ignore[operator]
            return self._shaped(following, leaves), None

        return rebuilt(start, self.graph.loop(last - first, flat_step, leaves))

    def settling_loop(
        self, count: int, step: Callable[[Any], Any], start: Any, is_settled: Callable[[Any, Any], Any]
    ) -> Any:
        """Apply a step until it is settled, but at most so many times."""
        leaves = flattened(start)

        def flat_step(_: Symbol, state: list[Symbol]) -> tuple[list[Symbol], Symbol | None]:
            before = rebuilt(start, state)
            after = self._shaped(step(before), leaves)
            return after, ~is_settled(before, rebuilt(start, after))

        return rebuilt(start, self.graph.loop(count, flat_step, leaves))

    def _shaped(self, state: Any, like: list[Any]) -> list[Any]:
        """Return the arrays of a state with the shapes and types that they had before."""
        return [
            self.broadcast_to(self.astype(new, old.dtype), old.shape)
            for new, old in zip(flattened(state), like, strict=True)
        ]

    def cond(self, condition: Any, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
        """Compute one of two results, as jax.lax.cond does; both have the same structure."""
        structure: list[Any] = []

        def flat(function: Callable[[], Any]) -> list[Symbol]:
            result = function()
            structure.append(result)
            return flattened(result)

        leaves = self.graph.branch(condition, lambda: flat(if_true), lambda: flat(if_false))
        return rebuilt(structure[0], leaves)


def flattened(tree: Any) -> list[Any]:
    """Return the arrays of nested tuples."""
    return [leaf for part in tree for leaf in flattened(part)] if isinstance(tree, tuple) else [tree]


def rebuilt(tree: Any, leaves: list[Any]) -> Any:
    """Return nested tuples like `tree` with other arrays."""
    left = iter(leaves)

    def one(part: Any) -> Any:
        if not isinstance(part, tuple):
            return next(left)
        parts = [one(inner) for inner in part]
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)

    return one(tree)


def new_namespace() -> Namespace:
    """Return the functions for a new, empty graph."""
    graph = Graph(SymbolicArray)
    functions = Namespace(graph)
    graph.namespace = functions
    return functions
