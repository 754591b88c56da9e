"""An ONNX graph while it is being written: nodes, constants, and the bodies of loops and branches."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inbounds.errors import MissingDependencyError

OPSET = 18
IR_VERSION = 8
"""The oldest format that knows this opset, so that older runtimes can read the file, too."""

Compute = Callable[..., Any]
"""What a node computes, said with numpy: it folds constants and tells shape and type of what is not known yet."""


def onnx_module() -> Any:
    """Return the package onnx, or say how to install it."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingDependencyError(
            'a graph is written with the package onnx, which is not installed: pip install "inbounds[export]".'
        ) from error


Step = Callable[["Symbol", list["Symbol"]], tuple[list["Symbol"], "Symbol | None"]]
"""Takes an index and the arrays of a loop; returns the next ones and, if that is not fixed, whether to go on."""


class Scope:
    """The nodes of the main graph, or of one body of a loop or a branch."""

    def __init__(self, is_loop: bool) -> None:
        """Start empty; what does not change in a loop may be moved out of it, but not out of a branch."""
        self.is_loop = is_loop
        self.nodes: list[Any] = []
        self.known: dict[tuple[Any, ...], Any] = {}
        """What was computed before, so that it is not computed again."""
        self.reads = 0
        """The innermost of the scopes around this one from which it reads."""


class Symbol:
    """One array of the graph: its shape and type, and its values where they are known already.

    `is_symbolic` tells the constraints whether the values may be looked at. Zeros that have the shape of an input
    are known, but count as symbolic: what is computed with them later is not.
    """

    # numpy must hand `array + symbol` over to us instead of making an array of objects.
    __array_ufunc__ = None

    def __init__(
        self, graph: Graph, name: str | None, like: Any, depth: int, *, is_known: bool, is_symbolic: bool
    ) -> None:
        """Keep what is known; `like` has the shape and the type, and the values where `is_known`."""
        self.graph, self._name, self.depth, self.is_symbolic = graph, name, depth, is_symbolic
        self.shape: tuple[int, ...] = tuple(like.shape)
        self.dtype: np.dtype[Any] = like.dtype
        self.ndim = len(self.shape)
        self.value: Any = like if is_known else None
        self.cast_of: tuple[str, int] | None = None
        """The name and the type of what this array was converted from and to, where it was."""

    @property
    def name(self) -> str:
        """Return the name under which nodes read this array; constants get one when they are first read."""
        if self._name is None:
            self._name = self.graph.initializer(self.value)
        return self._name


class Graph:
    """Collects nodes; every array has a fixed shape."""

    def __init__(self, symbol_type: type[Symbol] = Symbol) -> None:
        """Start with an empty main graph; `symbol_type` is the class of its arrays."""
        self.onnx = onnx_module()
        self.symbol_type = symbol_type
        self.namespace: Any = None
        """The functions that compute with the arrays of this graph."""
        self.scopes = [Scope(is_loop=False)]
        self.inputs: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._initializers: list[Any] = []
        self._count = 0

    def constant(self, value: Any, dtype: Any = None) -> Symbol:
        """Return a constant."""
        array = np.array(value, dtype=dtype)
        return self.symbol_type(self, None, array, 0, is_known=True, is_symbolic=False)

    def symbolic_constant(self, value: Any) -> Symbol:
        """Return a constant that stands for values computed from an input."""
        return self.symbol_type(self, None, np.asarray(value), 0, is_known=True, is_symbolic=True)

    def input(self, name: str, shape: tuple[int, ...], dtype: Any) -> Symbol:
        """Declare an input of the whole graph."""
        symbol = self._unknown(name, np.zeros(shape, dtype), 0)
        self.inputs.append(self._described(symbol))
        return symbol

    def initializer(self, value: Any) -> str:
        """Store a constant once and return its name."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            name = f"c{len(self._constants)}"
            self._constants[key] = name
            stored = np.ascontiguousarray(value).reshape(value.shape)
            self._initializers.append(self.onnx.numpy_helper.from_array(stored, name))
        return self._constants[key]

    def add(self, operator: str, inputs: Sequence[Symbol], compute: Compute, **attributes: Any) -> Symbol:
        """Add a node with one output, unless its inputs are constants or the same was computed before."""
        is_symbolic = any(symbol.is_symbolic for symbol in inputs)
        if all(symbol.value is not None for symbol in inputs):
            with np.errstate(all="ignore"):
                value = np.asarray(compute(*(symbol.value for symbol in inputs)))
            return self.symbol_type(self, None, value, 0, is_known=True, is_symbolic=is_symbolic)
        names = [symbol.name for symbol in inputs]
        key = (operator, *names, *sorted(attributes.items()))
        before: Symbol | None = self.recall(key)
        if before is not None:
            return before
        with np.errstate(all="ignore"):
            like = np.asarray(
                compute(
                    *(np.zeros(s.shape, s.dtype) if s.value is None else s.value for s in inputs),
                )
            )
        depth = self._place(max(symbol.depth for symbol in inputs))
        symbol = self._unknown(self.fresh_name(), like, depth)
        node = self.onnx.helper.make_node(operator, names, [symbol.name], **attributes)
        if operator == "Cast":
            symbol.cast_of = (names[0], attributes["to"])
        self._note_reads(inputs, depth)
        self.scopes[depth].nodes.append(node)
        self.remember(key, symbol, depth)
        return symbol

    def recall(self, key: tuple[Any, ...]) -> Any:
        """Return what was computed under a key in this scope or around it, or None."""
        return next((scope.known[key] for scope in reversed(self.scopes) if key in scope.known), None)

    def remember(self, key: tuple[Any, ...], result: Any, depth: int) -> None:
        """Keep a result for as long as its scope is open."""
        self.scopes[depth].known[key] = result

    def branch(
        self, condition: Symbol, if_true: Callable[[], list[Symbol]], if_false: Callable[[], list[Symbol]]
    ) -> list[Symbol]:
        """Compute one of two lists of arrays; only the nodes of the chosen one run."""
        if condition.value is not None:
            return if_true() if bool(condition.value) else if_false()
        bodies, likes = [], []
        for index, function in enumerate((if_true, if_false)):
            self.scopes.append(Scope(is_loop=False))
            results = function()
            outputs = [self._passed_on(symbol) for symbol in results]
            bodies.append(self._body(f"branch{index}", [], outputs))
            likes.append([np.zeros(symbol.shape, symbol.dtype) for symbol in results])
        depth = len(self.scopes) - 1
        symbols = [self._unknown(self.fresh_name(), like, depth) for like in likes[0]]
        self._note_reads([condition], depth)
        self.scopes[depth].nodes.append(
            self.onnx.helper.make_node(
                "If",
                [condition.name],
                [s.name for s in symbols],
                then_branch=bodies[0],
                else_branch=bodies[1],
            )
        )
        return symbols

    def loop(self, count: int, step: Step, start: list[Symbol]) -> list[Symbol]:
        """Apply a step a fixed number of times, or for as long as it says that it goes on.

        The body is written once. A loop that reads nothing of the loops around it is moved out of them.
        """
        before = [symbol.name for symbol in start]
        self.scopes.append(Scope(is_loop=True))
        depth = len(self.scopes) - 1
        index = self._unknown(self.fresh_name(), np.zeros((), np.int64), depth)
        was_going_on = self._unknown(self.fresh_name(), np.zeros((), np.bool_), depth)
        state = [self._unknown(self.fresh_name(), np.zeros(s.shape, s.dtype), depth) for s in start]
        results, goes_on = step(index, state)
        goes_on = was_going_on if goes_on is None else goes_on
        outputs = [self._passed_on(symbol) for symbol in (goes_on, *results)]
        inputs = [self._described(symbol) for symbol in (index, was_going_on, *state)]
        reads = max(self.scopes[-1].reads, *(symbol.depth for symbol in start))
        body = self._body("body", inputs, outputs)
        depth = self._place(reads)
        symbols = [self._unknown(self.fresh_name(), np.zeros(s.shape, s.dtype), depth) for s in start]
        trips = self.constant(np.array(count, np.int64)).name
        self._note_reads(start, depth)
        self.scopes[depth].nodes.append(
            self.onnx.helper.make_node("Loop", [trips, "", *before], [s.name for s in symbols], body=body)
        )
        return symbols

    def model(self, outputs: dict[str, Symbol], facts: dict[str, str], description: str) -> Any:
        """Return the finished model; `facts` become its metadata."""
        make, main = self.onnx.helper, self.scopes[0]
        values = []
        for name, symbol in outputs.items():
            main.nodes.append(make.make_node("Identity", [symbol.name], [name]))
            values.append(self._described(symbol, name))
        graph = make.make_graph(main.nodes, "policy", self.inputs, values, self._initializers)
        model = make.make_model(
            graph,
            producer_name="inbounds",
            opset_imports=[make.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            doc_string=description,
        )
        make.set_model_props(model, facts)
        self.onnx.checker.check_model(model, full_check=True)
        return model

    def fresh_name(self) -> str:
        """Return a name that nothing else has."""
        self._count += 1
        return f"v{self._count}"

    def _place(self, needed: int) -> int:
        """Return the scope for a node: the innermost, or outside of loops that do not change its inputs."""
        depth = len(self.scopes) - 1
        while depth > needed and self.scopes[depth].is_loop:
            depth -= 1
        return depth

    def _note_reads(self, inputs: Sequence[Symbol], depth: int) -> None:
        for symbol in inputs:
            for scope in self.scopes[symbol.depth + 1 : depth + 1]:
                scope.reads = max(scope.reads, symbol.depth)

    def _unknown(self, name: str, like: Any, depth: int) -> Symbol:
        return self.symbol_type(self, name, like, depth, is_known=False, is_symbolic=True)

    def _passed_on(self, symbol: Symbol) -> Any:
        """Return an output of the current body; it must be made there, even where it comes from outside."""
        name, make = self.fresh_name(), self.onnx.helper.make_node
        self._note_reads([symbol], len(self.scopes) - 1)
        if symbol.cast_of is None:
            node = make("Identity", [symbol.name], [name])
        else:
            # Converting once more costs nothing; onnxruntime warns of bodies that read a conversion from outside.
            node = make("Cast", [symbol.cast_of[0]], [name], to=symbol.cast_of[1])
        self.scopes[-1].nodes.append(node)
        return self._described(symbol, name)

    def _body(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        return self.onnx.helper.make_graph(self.scopes.pop().nodes, name, inputs, outputs)

    def _described(self, symbol: Symbol, name: str | None = None) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(symbol.dtype)
        return self.onnx.helper.make_tensor_value_info(name or symbol.name, kind, list(symbol.shape))
