"""Arrays that write a graph: what onnxruntime computes is what numpy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

from inbounds.constraints import Ball, Box
from inbounds.deploy.onnx_namespace import new_namespace
from inbounds.errors import InvalidInputError


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    """Write a function of arrays into a graph, and run the graph."""
    xp = new_namespace()
    inputs = [xp.graph.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    model = xp.graph.model({"y": function(xp, *inputs)}, {}, "")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": array for i, array in enumerate(arrays)})[0]


ARRAY = np.random.default_rng(0).standard_normal((4, 3, 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: x[..., None],
        lambda xp, x: x[1],
        lambda xp, x: x[-1, ..., 2],
        lambda xp, x: x[:, 1:, ::2],
        lambda xp, x: x[..., ::-1],
        lambda xp, x: x[None, 2:, 0, -3:-1],
        lambda xp, x: 2.0 - x * x / 3.0 + (-x),
        lambda xp, x: 1.0 / (1.0 + abs(1.0) * xp.abs(x)) ** 3,
        lambda xp, x: xp.where((x > 0) & ~(x >= 1) | (x != x), x, -1.0),
        lambda xp, x: xp.sum(x, axis=-1) + xp.max(x, axis=2) - xp.min(x, axis=-1),
        lambda xp, x: xp.mean(x, axis=0),
        lambda xp, x: xp.all(x > -1.0, axis=-1) | xp.any(x > 2.0, axis=-1),
        lambda xp, x: xp.all(x > -9.0),
        lambda xp, x: xp.argmax(xp.astype(x > 0.5, np.int32), axis=-1),
        lambda xp, x: xp.clip(x, -0.5, 0.5) + xp.maximum(x, 0.0),
        lambda xp, x: xp.copysign(xp.sqrt(xp.abs(x)), x),
        lambda xp, x: xp.isfinite(x / (x - x)),
        lambda xp, x: xp.concat([x, xp.broadcast_to(x[:1], x.shape)], axis=-1),
        lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)),
        lambda xp, x: xp.take(x, xp.asarray(np.array([2, 0])), axis=1),
        lambda xp, x: xp.reshape(x, (2, -1)),
        lambda xp, x: xp.tanh(x) + xp.exp(-x),
        lambda xp, x: xp.sin(x) * xp.cos(x) + xp.log(xp.abs(x)) - xp.pow(xp.abs(x), 1.5),
    ],
)
def test_an_operation_of_the_graph_is_that_of_numpy(function: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        expected = function(np, ARRAY)
    computed = run(function, ARRAY)
    assert computed.shape == expected.shape and computed.dtype == expected.dtype
    np.testing.assert_allclose(computed, expected, rtol=1e-14)


def test_inverse_hyperbolic_tangents_are_those_of_numpy() -> None:
    inside = np.linspace(-0.99, 0.99, 41, dtype=np.float32)
    computed = run(lambda xp, x: xp.atanh(x), inside)
    assert computed.dtype == np.float32
    np.testing.assert_allclose(computed, np.atanh(inside), rtol=1e-6)


def test_constants_are_folded_and_nothing_is_computed_twice() -> None:
    xp = new_namespace()
    x = xp.graph.input("x", (3,), np.float64)
    folded = xp.sum(xp.asarray(np.arange(3.0)) * 2.0)
    assert float(folded) == 6.0 and not xp.graph.scopes[0].nodes
    assert (x * folded).name == (x * folded).name and len(xp.graph.scopes[0].nodes) == 1


def test_a_loop_carries_several_arrays_and_knows_its_index() -> None:
    def powers(xp: Any, x: Any) -> Any:
        start = (x, xp.zeros_like(x))
        return xp.fori_loop(0, 5, lambda index, state: (state[0] * 0.5, state[1] + 2.0**index * x), start)[1]

    np.testing.assert_array_equal(run(powers, np.array([1.0, 3.0])), [31.0, 93.0])


def test_a_loop_ends_when_it_is_settled() -> None:
    def root(xp: Any, x: Any) -> Any:
        start = (xp.ones_like(x), xp.zeros_like(x))
        step = lambda state: (0.5 * (state[0] + x / state[0]), state[1] + 1.0)  # noqa: E731
        return xp.settling_loop(100, step, start, lambda old, new: xp.all(xp.abs(new[0] - old[0]) < 1e-13))[1]

    steps = run(root, np.array([2.0]))
    assert 3 <= steps[0] <= 8


def test_what_a_loop_does_not_change_is_moved_out_of_it_but_not_out_of_a_branch() -> None:
    xp = new_namespace()
    x = xp.graph.input("x", (3,), np.float64)
    xp.fori_loop(0, 9, lambda _, state: state + xp.sqrt(xp.abs(x)), x)
    assert [node.op_type for node in xp.graph.scopes[0].nodes] == ["Abs", "Sqrt", "Loop"]
    xp.cond(xp.all(x > 0), lambda: x, lambda: xp.exp(x))
    assert "Exp" not in [node.op_type for node in xp.graph.scopes[0].nodes]


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_only_the_chosen_branch_gives_the_result(value: float) -> None:
    chosen = run(lambda xp, x: xp.cond(xp.all(x > 0), lambda: 2.0 * x, lambda: -x), np.array([value]))
    assert chosen == (2.0 if value > 0 else 1.0)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_linear_systems_are_solved(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    # Interior-point methods end with matrices of all magnitudes.
    scale = 10.0 ** rng.uniform(-6, 6, size)
    matrix = (root @ root.T + 0.1 * np.eye(size)) * scale[:, None] * scale
    right = rng.standard_normal((size, 1)) * scale[:, None]
    solved = run(lambda xp, a, b: xp.linalg.solve(a, b), matrix, right)
    np.testing.assert_allclose(
        solved * scale[:, None], np.linalg.solve(matrix, right) * scale[:, None], rtol=1e-9
    )


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
def test_eigenvalues_and_eigenvectors_of_symmetric_matrices_are_found(size: int) -> None:
    root = np.random.default_rng(size).standard_normal((size, max(size - 1, 1)))
    matrix = root @ root.T
    found = run(
        lambda xp, a: xp.concat([xp.linalg.eigh(a)[0][None, :], xp.linalg.eigh(a)[1]], axis=0), matrix
    )
    values, vectors = found[0], found[1:]
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=1e-12 * np.abs(matrix).max())
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix, atol=1e-12 * np.abs(matrix).max())
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(size), atol=1e-12)


def test_a_constraint_that_looks_at_values_is_told_that_there_are_none() -> None:
    xp = new_namespace()
    action = xp.graph.input("action", (2,), np.float32)
    with pytest.raises(InvalidInputError, match="no values yet"):
        bool((Ball(radius_squared=1.0) & Box(-1.0, 1.0)).contains(None, action))
