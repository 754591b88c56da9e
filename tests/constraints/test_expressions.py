"""Expressions of the observation: the same numbers in every library, safe files, and no violation through rounding."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import array_api_strict
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings

import inbounds as ib
from inbounds.constraints.evaluation import READING
from inbounds.constraints.expressions import Expression
from inbounds.constraints.operations import HALF_UNIT
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import read_situation
from inbounds.deploy.onnx_namespace import new_namespace
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from inbounds.policies.layers import entries_read
from inbounds.tasks.action_guard import ActionGuard
from inbounds.tasks.named_parts import references_of, resolved
from tests.slices import quick_slice

obs, previous = ib.obs, ib.previous_action
SIZE = 12
OBSERVATION = np.random.default_rng(0).normal(size=SIZE)
BEFORE = np.array([0.5, -0.25, 1.5])

Formula = Callable[[Any, Any], Any]
"""The same expression as a function of an observation and a previous action of numpy."""

EXAMPLES: list[tuple[Any, Formula, str]] = [
    (obs[0] + obs[1], lambda o, p: o[0] + o[1], "obs[0] + obs[1]"),
    (obs[0] - (obs[1] - obs[2]), lambda o, p: o[0] - (o[1] - o[2]), "obs[0] - (obs[1] - obs[2])"),
    ([4, 6, 4] * obs[[5, 7, 10]], lambda o, p: o[[5, 7, 10]] * [4, 6, 4], "[4, 6, 4]*obs[[5, 7, 10]]"),
    (np.array([4.0, 6.0]) * obs[5:9:2], lambda o, p: o[5:9:2] * [4, 6], "[4, 6]*obs[5:9:2]"),
    (obs[0:3] * obs[3], lambda o, p: o[0:3] * o[3], "obs[0:3]*obs[3]"),
    (1.0 / (1.0 + obs[2] ** 2), lambda o, p: 1 / (1 + o[2] ** 2), "1/(1 + obs[2]**2)"),
    (-(obs[0:2] - [1, 2]), lambda o, p: -(o[0:2] - [1, 2]), "-(obs[0:2] - [1, 2])"),
    (obs[3] ** 3, lambda o, p: o[3] ** 3, "obs[3]**3"),
    ((1.0 + obs[3] ** 2) ** -2, lambda o, p: (1 + o[3] ** 2) ** -2.0, "1/(1 + obs[3]**2)**2"),
    (abs(obs[0:2]) ** 1.5, lambda o, p: np.abs(o[0:2]) ** 1.5, "abs(obs[0:2])**1.5"),
    (ib.abs(obs[0]), lambda o, p: np.abs(o[0]), "abs(obs[0])"),
    (ib.sqrt(obs[0:4] ** 2), lambda o, p: np.sqrt(o[0:4] ** 2), "sqrt(obs[0:4]**2)"),
    (ib.exp(obs[0:3]), lambda o, p: np.exp(o[0:3]), "exp(obs[0:3])"),
    (ib.log(1.0 + obs[0] ** 2), lambda o, p: np.log(1 + o[0] ** 2), "log(1 + obs[0]**2)"),
    (ib.sin(3 * obs[0:3]), lambda o, p: np.sin(3 * o[0:3]), "sin(3*obs[0:3])"),
    (ib.cos(obs[0]), lambda o, p: np.cos(o[0]), "cos(obs[0])"),
    (ib.tanh(obs[0:3]), lambda o, p: np.tanh(o[0:3]), "tanh(obs[0:3])"),
    (ib.minimum(obs[0:3], 0.1), lambda o, p: np.minimum(o[0:3], 0.1), "minimum(obs[0:3], 0.1)"),
    (ib.maximum(0.1, obs[0:3]), lambda o, p: np.maximum(o[0:3], 0.1), "maximum(0.1, obs[0:3])"),
    (ib.clip(obs[0:3], -0.1, 0.2), lambda o, p: np.clip(o[0:3], -0.1, 0.2), "clip(obs[0:3], -0.1, 0.2)"),
    (ib.sum(obs[0:5]), lambda o, p: np.sum(o[0:5]), "sum(obs[0:5])"),
    (ib.dot([1, 2, 3], obs[0:3]), lambda o, p: o[0:3] @ [1, 2, 3], "sum([1, 2, 3]*obs[0:3])"),
    (obs[0:3] @ obs[3:6], lambda o, p: o[0:3] @ o[3:6], "sum(obs[0:3]*obs[3:6])"),
    (
        obs[0:6].reshape(2, 3) @ obs[6:9],
        lambda o, p: o[0:6].reshape(2, 3) @ o[6:9],
        "sum(obs[0:6]*obs[6:9])",
    ),
    (ib.stack([1, obs[0], 2 * obs[1]]), lambda o, p: [1, o[0], 2 * o[1]], "[1, obs[0], 2*obs[1]]"),
    (
        ib.stack([[1, obs[0]], obs[1:3], [0, 2]]),
        lambda o, p: [[1, o[0]], o[1:3], [0, 2]],
        "[[1, obs[0]], obs[1:3], [0, 2]]",
    ),
    (previous * obs[0:3], lambda o, p: p * o[0:3], "previous_action*obs[0:3]"),
    (ib.sum(previous) / 2, lambda o, p: np.sum(p) / 2, "sum(previous_action)/2"),
]
NAMES = [text for _, _, text in EXAMPLES]


def value_in(xp: Any, expression: Expression, observation: Any, before: Any = BEFORE) -> tuple[Any, Any]:
    """Return value and magnitude as numpy arrays, computed in another library."""
    seen = xp.asarray(observation)
    at, axes = read_situation(seen, seen, xp.asarray(before)), len(expression.own_shape)
    return np.asarray(at.value(expression, axes)), np.asarray(at.magnitude(expression, axes))


@pytest.mark.parametrize(("expression", "formula", "text"), EXAMPLES, ids=NAMES)
def test_an_expression_is_what_numpy_computes(expression: Expression, formula: Formula, text: str) -> None:
    expected = np.asarray(formula(OBSERVATION, BEFORE), np.float64)
    for xp in (np, array_api_strict):
        value, magnitude = value_in(xp, expression, OBSERVATION)
        np.testing.assert_allclose(value, expected, rtol=1e-14, atol=1e-15)
        assert np.all(magnitude >= np.abs(value)) and np.all(np.isfinite(magnitude))
    value, _ = value_in(jnp, expression, OBSERVATION)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    if importlib.util.find_spec("torch"):
        import torch

        np.testing.assert_allclose(
            value_in(torch, expression, OBSERVATION)[0], expected, rtol=1e-13, atol=1e-15
        )


@pytest.mark.parametrize(("expression", "formula", "text"), EXAMPLES, ids=NAMES)
def test_a_batch_of_states_gives_a_batch_of_values(
    expression: Expression, formula: Formula, text: str
) -> None:
    states = np.random.default_rng(1).normal(size=(4, 3, SIZE))
    expected = [[formula(state, BEFORE) for state in row] for row in states]
    np.testing.assert_allclose(value_in(np, expression, states)[0], expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("expression", "formula", "text"), EXAMPLES, ids=NAMES)
def test_the_graph_of_an_expression_is_what_numpy_computes(
    expression: Expression, formula: Formula, text: str
) -> None:
    xp = new_namespace()
    seen, before = (
        xp.graph.input(name, array.shape, np.float64)
        for name, array in (("observation", OBSERVATION), ("previous_action", BEFORE))
    )
    at, axes = read_situation(seen, seen, before), len(expression.own_shape)
    outputs = {"value": at.value(expression, axes), "magnitude": at.magnitude(expression, axes)}
    model = xp.graph.model(outputs, {}, "")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {"observation": OBSERVATION, "previous_action": BEFORE}
    used = {one.name for one in session.get_inputs()}
    value, magnitude = session.run(None, {name: array for name, array in inputs.items() if name in used})
    expected = value_in(np, expression, OBSERVATION)
    np.testing.assert_allclose(value, expected[0], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(magnitude, expected[1], rtol=1e-6)


@pytest.mark.parametrize(("expression", "formula", "text"), EXAMPLES, ids=NAMES)
def test_an_expression_is_shown_as_a_formula_and_survives_a_file(
    expression: Expression, formula: Formula, text: str
) -> None:
    assert str(expression) == text
    if not expression.own_shape:
        constraint: ib.Constraint = ib.Ball(radius_squared=expression)
    elif len(expression.own_shape) == 1:
        constraint = ib.Box(expression, 100.0)
    else:
        constraint = ib.Polytope(expression, 100.0)
    copy = ib.Constraint.from_json(json.loads(json.dumps(constraint.to_json(), allow_nan=False)))
    assert copy.parameters() == constraint.parameters() or repr(copy) == repr(constraint)
    action = np.zeros(copy.size() or 3)
    before = np.resize(BEFORE, len(action))
    expected = constraint.violation(OBSERVATION, action, previous_action=before)
    assert copy.violation(OBSERVATION, action, previous_action=before) == expected


class Tree(NamedTuple):
    """An expression, and the same in numpy; `parts` are all values on the way."""

    expression: Any
    evaluate: Callable[[Any], tuple[Any, list[Any]]]


def leaf(entry: int, scale: float, shift: float) -> Tree:
    def evaluate(o: Any) -> tuple[Any, list[Any]]:
        value = o[entry] * scale + shift
        return value, [value]

    return Tree(obs[entry] * scale + shift, evaluate)


def joined(make: Callable[..., Any], compute: Callable[..., Any], *trees: Tree) -> Tree:
    def evaluate(o: Any) -> tuple[Any, list[Any]]:
        found = [tree.evaluate(o) for tree in trees]
        value = compute(*(one for one, _ in found))
        return value, [value, *(part for _, parts in found for part in parts)]

    return Tree(make(*(tree.expression for tree in trees)), evaluate)


TWO: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, y: x + y, np.add),
    (lambda x, y: x - y, np.subtract),
    (lambda x, y: x * y, np.multiply),
    (lambda x, y: x / y, np.divide),
    (ib.minimum, np.minimum),
    (ib.maximum, np.maximum),
    (lambda x, y: ib.clip(x, -1.0, y), lambda x, y: np.minimum(np.maximum(x, -1.0), y)),
    (lambda x, y: ib.stack([x, 2.0]) @ [3.0, 0.5] + y, lambda x, y: 3.0 * x + 1.0 + y),
]
ONE: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (ib.abs, np.abs),
    (ib.sqrt, np.sqrt),
    (ib.exp, np.exp),
    (ib.log, np.log),
    (ib.sin, np.sin),
    (ib.cos, np.cos),
    (ib.tanh, np.tanh),
    (lambda x: x**2, lambda x: x**2),
    (lambda x: x**5, lambda x: x**5),
    (lambda x: x**1.5, lambda x: x**1.5),
    (lambda x: -x, np.negative),
]
SCALES = st.sampled_from([1.0, -1.0, 0.1, 7.0])
LEAVES = st.builds(leaf, st.integers(0, SIZE - 1), SCALES, st.sampled_from([0.0, 0.0, 1.0, -0.3]))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda pair, x: joined(*pair, x), st.sampled_from(ONE), inner),
        st.builds(lambda pair, x, y: joined(*pair, x, y), st.sampled_from(TWO), inner, inner),
    ),
    max_leaves=8,
)
STATES = st.lists(
    st.one_of(st.floats(-5, 5, width=32, allow_subnormal=False), st.sampled_from([0.0, 1.0, 1e-6, 300.0])),
    min_size=SIZE,
    max_size=SIZE,
).map(np.array)


@given(TREES, STATES)
@settings(max_examples=300)
def test_a_tree_of_operations_is_what_numpy_computes_or_is_refused(tree: Tree, state: Any) -> None:
    with np.errstate(all="ignore"):
        expected, parts = tree.evaluate(state)
    if np.all(np.isfinite(parts)):
        at = read_situation(state, state, None)
        np.testing.assert_allclose(at.value(tree.expression, 0), expected, rtol=1e-12, atol=1e-12)
    else:
        with pytest.raises(EmptySetError, match="not finite"):
            read_situation(state, state, None).value(tree.expression, 0)


@given(TREES, STATES)
@settings(max_examples=150)
def test_float32_is_off_by_no_more_than_the_margin_allows_for(tree: Tree, state: Any) -> None:
    try:
        exact = read_situation(state, state, None).value(tree.expression, 0)
        value, magnitude = value_in(jnp, tree.expression, state)
    except EmptySetError:  # what has no value in one of the two allows no action there
        return
    assert abs(float(value) - float(exact)) <= READING * HALF_UNIT * float(magnitude)
    rounded = state.astype(np.float32).astype(np.float64)
    nearby = read_situation(rounded, rounded, None).value(tree.expression, 0)
    assert abs(float(value) - float(nearby)) <= READING * HALF_UNIT * float(magnitude)


@given(TREES, st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_entries_that_were_rounded_to_float32_are_within_the_margin_in_float64(tree: Tree, seed: int) -> None:
    state = np.random.default_rng(seed).normal(size=SIZE) * 3.0
    rounded = state.astype(np.float32).astype(np.float64)
    try:
        at = read_situation(rounded, rounded, None)
        value, magnitude = at.value(tree.expression, 0), at.magnitude(tree.expression, 0)
    except EmptySetError:
        return
    exact = read_situation(state, state, None).value(tree.expression, 0)
    assert abs(value - exact) <= READING * HALF_UNIT * magnitude


UNIT = ib.Box(-1.0, 1.0)
speed = ib.sqrt(obs[0] ** 2 + obs[1] ** 2)
SETS: dict[str, ib.Constraint] = {
    "PowerBudget": ib.PowerBudget([4, 6, 4, 6] * obs[[5, 7, 10, 11]], 0.8) & UNIT,
    "WeightedL1": ib.WeightedL1(obs[0:4] * obs[4:8] - obs[8], ib.exp(-speed)) & UNIT,
    "Ball": ib.Ball(radius_squared=0.1 + ib.tanh(speed) ** 2) & UNIT,
    "Box": ib.Box(-abs(obs[0:4]) - 0.01, 0.01 + ib.sin(obs[4]) ** 2),
    "SumBand": ib.SumBand(ib.cos(obs[0]) - ib.cos(obs[1]), 0.1 + 0.1 * ib.abs(obs[2])) & UNIT,
    "Simplex": ib.Simplex(1.0 + obs[0] ** 2),
    "Polytope": ib.Polytope([[1, obs[0], 0, 0], [0, 1, obs[1] - obs[2], 1]], [0.3, ib.exp(obs[2])]) & UNIT,
    "Ellipsoid": ib.Ellipsoid([[1 + obs[0] ** 2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 3]], 0.3),
    "RateLimit": ib.RateLimit(0.1 / (1.0 + speed), previous * ib.cos(obs[3])) & ib.Box(-3.0, 3.0),
}


@pytest.mark.parametrize("name", quick_slice(SETS, ["PowerBudget", "Box"]))
def test_no_projection_on_a_set_of_expressions_violates_it(name: str) -> None:
    constraint, rng = SETS[name], np.random.default_rng(2)
    count = 100 if name in ("Polytope", "Ellipsoid") else 2000
    states = rng.normal(size=(count, SIZE)) * 10.0 ** rng.uniform(-3, 1, (count, 1))
    actions, before = rng.normal(size=(count, 4)) * 2.0, rng.uniform(-1, 1, (count, 4))
    compiled = jax.jit(lambda o, a, p: constraint.project(o, a, previous_action=p))
    answers = {
        "float64": constraint.project(states, actions, previous_action=before),
        "float32": constraint.project(states, actions.astype(np.float32), previous_action=before),
        "compiled": np.asarray(compiled(states, actions, before)),
    }
    for kind, answer in answers.items():
        exact = answer.astype(np.float64)
        # In float32 a set that is thinner than its rounding is answered by NaN.
        is_answer = np.isfinite(exact).all(axis=-1)
        assert is_answer.mean() > (0.97 if kind == "compiled" else 0.999), kind
        violation = constraint.violation(
            states[is_answer], exact[is_answer], previous_action=before[is_answer]
        )
        assert np.max(violation) <= 0, kind
        assert constraint.contains(
            states[is_answer], exact[is_answer], previous_action=before[is_answer]
        ).all()


@pytest.mark.parametrize("name", SETS)
def test_what_float32_accepts_is_feasible_in_float64(name: str) -> None:
    constraint, rng = SETS[name], np.random.default_rng(3)
    count = 200 if name == "Polytope" else 2000
    states = rng.normal(size=(count, SIZE))
    before = rng.uniform(-1, 1, (count, 4))
    inside = constraint.interior_point(states, dimension=4, previous_action=before)
    heading = rng.normal(size=(count, 4))
    length = constraint.distance(states, inside, heading, previous_action=before)
    length = np.minimum(length, 1e3)[:, None] * (1.0 + rng.normal(size=(count, 1)) * 3e-6)
    actions = (inside + length * heading).astype(np.float32)
    ask = jax.jit(lambda o, a, p: constraint.contains(o, a, previous_action=p))
    accepted = np.asarray(ask(states.astype(np.float32), actions, before.astype(np.float32)))
    assert (accepted.any() and not accepted.all()) or name == "Simplex"
    violation = constraint.violation(states, actions.astype(np.float64), previous_action=before)
    assert np.all(violation[accepted] <= 0)


def test_the_power_budget_of_joints_with_different_speed_scales_is_one_line() -> None:
    budget = ib.PowerBudget([4, 6, 4, 6] * ib.obs[[5, 7, 10, 11]], 5.0)
    listed = ib.PowerBudget([4 * obs[5], 6 * obs[7], 4 * obs[10], 6 * obs[11]], 5.0)
    assert repr(budget) == repr(listed) and budget.size() == 4
    action = 3.0 * np.sign(OBSERVATION[[5, 7, 10, 11]])
    expected = np.sum(np.maximum(OBSERVATION[[5, 7, 10, 11]] * [4, 6, 4, 6] * action, 0)) - 5.0
    np.testing.assert_allclose(budget.violation(OBSERVATION, action), expected)


def test_entries_with_one_factor_are_read_at_once() -> None:
    assert ib.stack([2 * obs[3], 2 * obs[5]]) == Reference("observation", (3, 5), 2.0)
    weights = ib.WeightedL1([obs[0], obs[4]], 1.0).parameters()["weights"]
    assert weights == obs[[0, 4]]


def test_functions_of_numbers_alone_are_numbers() -> None:
    ball = ib.Ball(radius_squared=ib.maximum(2.0, 3.0))
    assert ball.is_constant() and float(ball.parameters()["radius_squared"]) == 3.0


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: obs[0:2] + obs[0:3], "do not fit together"),
        (lambda: obs[0] + "x", "cannot be a part of an expression"),
        (lambda: obs[0] * [1.0, np.nan], "cannot be a part of an expression"),
        (lambda: ib.sin(None), "cannot be a part of an expression"),
        (lambda: ib.sin(True), "cannot be a part of an expression"),
        (lambda: obs[0] ** obs[1], "an exponent is a number"),
        (lambda: 2.0 ** obs[1], "an exponent is a number"),
        (lambda: obs[0] ** 0, "other than 0"),
        (lambda: obs[0] ** 65, "up to 64"),
        (lambda: obs[0] / 0, "divided by zero"),
        (lambda: ib.sum(obs[0]), "is that number itself"),
        (lambda: obs[0] @ obs[0:2], "neither that of two vectors"),
        (lambda: ib.stack([previous, obs[0:3]]), None),
        (lambda: ib.stack([previous, previous]), "not a vector or a matrix of known size"),
        (lambda: ib.stack([ib.stack([obs[0:2], obs[0:2]])] * 2), "not a vector or a matrix"),
        (lambda: ib.Ball(radius_squared=obs[0:3] * obs[3:6]), "ib.sum or ib.dot"),
        (lambda: ib.Box([-np.inf, obs[0]], 1.0), "finite"),
        (lambda: ib.Polytope([obs[0], obs[1] * obs[2]], 1.0), "reads no matrix"),
        (lambda: 1 if obs[0] + obs[1] else 0, "cannot decide an `if`"),
        (lambda: obs[0] > 1.0, r"compared with 1.0.*ib\.maximum"),
        (lambda: max(obs[0], 1.0), r"ib\.maximum"),
        (lambda: builtins.sum(obs[0:3]), r"ib\.sum"),
        (lambda: ib.previous_action[0], "where the observation is read"),
        (lambda: np.sin(obs[0]), r"ib\.sin"),
        (lambda: np.abs(obs[0:2]), r"ib\.abs"),
        (lambda: np.dot([1.0, 2.0], obs[0:2]), r"ib\.dot"),
        (lambda: np.linalg.norm(obs[0:2]), r"ib\.sqrt, ib\.sum"),
        (lambda: np.float64(1.0) < obs[0], r"np\.less"),
        (lambda: list(obs), r"ib\.obs\[0:3\]"),
        (lambda: 3 in obs, r"ib\.obs\[0:3\]"),
        (lambda: ib.stack(obs), r"ib\.obs\[0:3\]"),
        (lambda: ib.Box(-1.0, obs), r"high is ib\.obs,"),
    ],
)
def test_what_makes_no_expression_is_refused_with_a_remedy(
    build: Callable[[], Any], expected: str | None
) -> None:
    if expected is None:
        build()
        return
    with pytest.raises(ConstraintError, match=expected):
        build()


def test_an_expression_of_more_operations_than_a_file_may_hold_is_refused_at_once() -> None:
    x = obs[0] * obs[1]
    with pytest.raises(ConstraintError, match="1,000 operations"):
        for _ in range(40):
            x = x * x
    y = obs[0] * obs[1]
    with pytest.raises(ConstraintError, match="100 deep"):
        for _ in range(101):
            y = ib.sin(y)


def test_arrays_that_do_not_fit_in_a_state_are_refused_with_the_expression() -> None:
    limit = ib.RateLimit(1.0, previous * obs[0:3])
    with pytest.raises(InvalidInputError, match=r"previous_action\*obs\[0:3\]"):
        ib.Ball(radius_squared=ib.sum(previous * obs[0:3])).contains(
            OBSERVATION, np.zeros(4), previous_action=np.zeros(4)
        )
    assert limit.size() == 3


UNDEFINED = [
    (ib.log(obs[0]), "log(obs[0])"),
    (1.0 / obs[1], "1/obs[1]"),
    (ib.sqrt(obs[0]), "sqrt(obs[0])"),
    (ib.exp(1000.0 * obs[2]), "exp(1000*obs[2])"),
    (ib.minimum(1.0 / obs[1], 5.0), "1/obs[1], a part of"),
    (ib.tanh(1.0 / obs[1]) + 2.0, "1/obs[1], a part of"),
    (ib.maximum(ib.log(obs[0]), 1.0), "log(obs[0]), a part of"),
]
STATE = np.array([-1.0, 0.0, 5.0])


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        pytest.param(expression, text, id=str(expression), marks=() if index in (0, 5) else pytest.mark.sweep)
        for index, (expression, text) in enumerate(UNDEFINED)
    ],
)
def test_where_a_value_is_not_finite_no_action_is_allowed(expression: Any, text: str) -> None:
    ball, action = ib.Ball(radius_squared=expression), np.zeros(2)
    for ask in (ball.contains, ball.violation, ball.project):
        with pytest.raises(EmptySetError, match=re.escape(text)):
            ask(STATE, action)
    with pytest.raises(EmptySetError, match=re.escape(text)):
        ball.contains(jnp.asarray(STATE), jnp.asarray(action))
    assert not jax.jit(ball.contains)(STATE, action)
    assert np.isposinf(jax.jit(ball.violation)(STATE, action))
    assert np.isnan(jax.jit(ball.project)(STATE, action)).all()
    both = np.stack([STATE, [4.0, 1.0, -0.001]])
    assert np.asarray(jax.jit(ball.contains)(both, action)).tolist() == [False, True]


def test_next_to_the_end_of_where_it_is_defined_an_expression_accepts_nothing() -> None:
    ball = ib.Ball(radius_squared=1.0 + ib.sqrt(1.0 - obs[0] ** 2))
    assert ball.violation([1.0], [0.5]) <= 0
    with pytest.raises(EmptySetError, match="is not defined"):
        ball.contains([1.0], [0.5])
    assert not jax.jit(ball.contains)(np.ones(1), np.array([0.5]))
    floored = ib.Ball(radius_squared=1.0 + ib.sqrt(ib.maximum(1.0 - obs[0] ** 2, 0.0)))
    assert floored.contains([1.0], [0.5]) and jax.jit(floored.contains)(np.ones(1), np.array([0.5]))


def test_a_speed_of_zero_has_a_root_in_every_library() -> None:
    ball = ib.Ball(radius_squared=0.1 + speed)
    assert ball.contains(np.zeros(2), [0.3]) and jax.jit(ball.contains)(np.zeros(2), np.array([0.3]))


def test_products_that_vanish_in_float32_do_not_open_a_bound_of_zero() -> None:
    budget = ib.PowerBudget(obs[0:1] * obs[1], 0.0)
    state, action = np.array([1e-25, 1e-25]), np.array([0.5])
    assert budget.violation(state, action) > 0
    assert not jax.jit(budget.contains)(state, action)


# Files ------------------------------------------------------------------------------------------------------

GOOD = ib.PowerBudget(
    ib.stack([ib.clip(obs[0], -1, 1) ** 2, 1.5]) * obs[1:3], ib.exp(previous @ [1, 2])
).to_json()
JUNK = [
    None,
    True,
    -1,
    0,
    1e400,
    "x",
    "add",
    [],
    {},
    [[]],
    [1, [2]],
    "__import__('os')",
    {"operation": "add"},
]
JUNK += [{"numbers": 2}, {"numbers": "3"}, {"numbers": True}, {"numbers": [[[1]]]}, {"reference": {}}]


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [path, *(place for key in keys for place in places(data[key], (*path, key)))]


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_file_is_refused_cleanly_or_read_as_another_set(data: st.DataObject) -> None:
    copy = json.loads(json.dumps(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([place for place in places(copy) if place]))
        target = copy
        for key in path:
            target = target[key]
        if data.draw(st.booleans()) and isinstance(target, dict):
            del target[last]
        else:
            target[last] = deepcopy(data.draw(st.sampled_from(JUNK)))
    try:
        constraint = ib.Constraint.from_json(copy)
    except ConstraintError:
        return
    json.dumps(constraint.to_json())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"operation": "eval", "operands": [{"numbers": 1}]},
            r"no operation .* 'eval'. Known: add, subtract",
        ),
        ({"operation": ["add"], "operands": []}, "no operation"),
        ({"operation": "add", "operands": [{"numbers": 1}]}, r"takes 2 operand\(s\), not 1"),
        ({"operation": "stack", "operands": []}, "takes one or more"),
        ({"operation": "add", "operands": {"numbers": 1}}, "neither an operation"),
        ({"operation": "add", "operands": [1, 2]}, "neither an operation"),
        ({"operation": "sin", "operands": [{"numbers": "1"}]}, "is not a number"),
        ({"operation": "sin", "operands": [{"numbers": float("nan")}]}, "finite"),
        ({"operation": "power", "operands": [{"numbers": 2}, {"numbers": 1e9}]}, "exponent"),
        ({"operation": "power", "operands": [{"numbers": 2}, {"reference": obs[0].to_json()}]}, "exponent"),
        ({"reference": {"source": "disk", "indices": 0}}, "reads from"),
        ([], "neither an operation"),
    ],
)
def test_a_file_with_what_no_expression_writes_is_refused(data: Any, expected: str) -> None:
    with pytest.raises(ConstraintError, match=expected):
        ib.Constraint.from_json({"kind": "Ball", "radius_squared": {"expression": data}})


def test_a_file_of_deep_or_of_many_operations_is_refused() -> None:
    deep: Any = {"reference": obs[0].to_json()}
    for _ in range(150):
        deep = {"operation": "sin", "operands": [deep]}
    wide = {"operation": "stack", "operands": [{"operation": "sin", "operands": [{"numbers": 1}]}] * 1001}
    for data in (deep, wide):
        with pytest.raises(ConstraintError, match="deep"):
            ib.Constraint.from_json({"kind": "Ball", "radius_squared": {"expression": data}})


# Where expressions are asked --------------------------------------------------------------------------------


def test_the_filter_refuses_where_an_expression_has_no_value() -> None:
    safety = ib.SafetyFilter(ib.Ball(radius_squared=ib.log(obs[0])) & ib.Box(-np.ones(2), np.ones(2)))
    assert np.all(safety.correct([np.e**2], [0.1, 0.1]) == [0.1, 0.1])
    with pytest.raises(EmptySetError, match=re.escape("log(obs[0])")):
        safety.correct([-1.0], [0.0, 0.0])


def test_the_guard_refuses_where_an_expression_has_no_value_and_shows_the_state() -> None:
    guard = ActionGuard(ib.Ball(radius_squared=ib.log(obs[0])), 2, task_name="heating")
    states = np.array([[3.0], [-1.0]])
    assert guard.admit(states[:1], np.zeros((1, 2))).shape == (1, 2)
    with pytest.raises(
        EmptySetError, match=re.escape("heating: no action is allowed at the observation [-1]")
    ):
        guard.admit(states, np.zeros((2, 2)))


def test_names_and_the_previous_action_are_found_inside_expressions() -> None:
    limit = ib.WeightedL1([1, 2] * ib.obs["speed"], ib.exp(ib.obs["fuse", 0])) & ib.RateLimit(
        0.1, previous * ib.obs["speed"]
    )
    read = {str(reference) for _, _, reference in references_of(limit)}
    assert read == {"obs['speed']", "obs['fuse'][0]", "previous_action"}
    found = resolved(limit, {"fuse": (0, 1), "speed": (1, 2), "previous_action": (3, 2)}, 3)
    assert "[1, 2]*obs[1:3]" in repr(found) and "obs[3:5]*obs[1:3]" in repr(found)
    assert entries_read(found, 5).tolist() == [0, 1, 2, 3, 4]


def test_functions_of_numbers_are_numbers_wherever_a_set_takes_a_list() -> None:
    assert ib.stack([ib.sqrt(4.0), 1.0]).array.tolist() == [2.0, 1.0]
    rows = ib.Polytope([[1.0, ib.exp(0.0)]], [ib.sqrt(4.0)])
    assert rows.to_json() == ib.Polytope([[1.0, 1.0]], [2.0]).to_json()
    assert (
        ib.Box([ib.sin(0.0), -1.0], [ib.cos(0.0), 1.0]).to_json() == ib.Box([0.0, -1.0], [1.0, 1.0]).to_json()
    )
