"""Products of simplices: every group of entries adds up to its own total, and groups do not know of one another."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from inbounds.constraints import Ball, Box, Constraint, Polytope, Simplex, Simplices, check_constraint, obs
from inbounds.errors import ConstraintError, EmptySetError
from tests.constraints import exact_projection as exact
from tests.constraints.strategies import ENTRIES, vectors
from tests.slices import quick_slice

GROUPS = [[0, 3, 4], [1, 2]]
SETS: dict[str, Constraint] = {
    "plain": Simplices(GROUPS),
    "in order, capped": Simplices([[0, 1, 2], [3, 4]], total=[1.0, 0.5], high=[0.4, 0.5, 0.6, 0.3, 0.3]),
    "of the state": Simplices(GROUPS, total=obs[0:2]),
    "of expressions, in a box": Simplices(GROUPS, total=[obs[0] ** 2 + 0.5, 1.0])
    & Box(0.0, 0.9 * np.ones(5)),
}
STATES = vectors(2, st.floats(0.125, 1.0)).map(lambda state: state.astype(np.float32).astype(np.float64))


@given(vectors(20, ENTRIES), STATES)
def test_projections_are_feasible_and_stay_where_they_are(entries: Any, state: Any) -> None:
    actions = entries.reshape(4, 5)
    for constraint in SETS.values():
        for kind in (np.float64, np.float32):
            projected = constraint.project(state, actions.astype(kind))
            assert projected.dtype == kind
            assert np.all(constraint.violation(state, projected.astype(np.float64)) <= 0)
            assert np.all(constraint.contains(state, projected))
            assert constraint.project(state, projected).tobytes() == projected.tobytes()


@given(vectors(5, ENTRIES), STATES)
def test_every_group_is_projected_on_its_own_simplex(action: Any, state: Any) -> None:
    projected = SETS["of the state"].project(state, action)
    for group, amount in zip(GROUPS, state, strict=True):
        expected = exact.onto_sum_band(float(amount), 0.0, 0.0, np.inf, len(group))(action[group])
        np.testing.assert_allclose(projected[group], expected, atol=3e-5 * (1.0 + np.abs(action).max()))


def test_actions_are_judged_by_the_sums_of_their_groups() -> None:
    constraint = Simplices(GROUPS, total=[2.0, 3.0], tolerance=0.01)
    action = np.array([1.0, 1.5, 1.5, 0.5, 0.5])
    raised = np.array([1.0, 1.5, 1.6, 0.5, 0.5])
    assert constraint.contains(None, action)
    assert constraint.violation(None, raised) == pytest.approx(0.09)
    assert constraint.violation(None, action - [0.2, 0.0, 0.0, 0.0, -0.2]) == pytest.approx(-0.01)
    assert constraint.violation(None, action - [1.25, 0.0, 0.0, -1.25, 0.0]) == pytest.approx(0.25)
    assert "a[1] + a[2] <= 3 + 0.01" in constraint.explain(None, raised)


@pytest.mark.parametrize("name", quick_slice(SETS, ["plain"]))
def test_compiled_answers_are_those_of_numpy(name: str) -> None:
    constraint = SETS[name]
    rng = np.random.default_rng(2)
    states = rng.uniform(0.2, 0.9, (100, 2)).astype(np.float32)
    actions = (rng.standard_normal((100, 5)) * 10.0 ** rng.uniform(-3, 2, (100, 1))).astype(np.float32)
    exactly = states.astype(np.float64)
    projected = np.asarray(jax.jit(constraint.project)(states, actions), np.float64)
    assert np.all(constraint.violation(exactly, projected) <= 0)
    reference = constraint.project(exactly, actions.astype(np.float64))
    size = 1.0 + np.abs(actions).max(axis=-1, keepdims=True)
    assert np.all(np.abs(projected - reference) < 1e-4 * size)
    drawn = jax.jit(lambda key: constraint.sample(key, states))(jax.random.key(0))
    assert np.all(constraint.violation(exactly, np.asarray(drawn, np.float64)) <= 0)


def test_draws_are_uniform_in_every_group_and_independent() -> None:
    constraint = Simplices(GROUPS, total=[1.0, 2.0])
    drawn = constraint.sample(np.random.default_rng(3), n=20_000)
    # A share of a uniform point of a simplex with k entries has the distribution 1 - (1 - x)^(k - 1).
    for entry, amount, others in ((0, 1.0, 2), (4, 1.0, 2), (1, 2.0, 1)):
        ranks = np.sort(1.0 - (1.0 - np.clip(drawn[:, entry] / amount, 0.0, 1.0)) ** others)
        assert np.max(np.abs(ranks - np.linspace(0, 1, 20_000))) < 1.95 / np.sqrt(20_000)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.03


def test_many_groups_are_drawn_from_without_rejecting_them_together() -> None:
    groups = np.arange(60).reshape(20, 3).tolist()
    constraint = Simplices(groups, total=1.0, high=0.5)
    drawn = constraint.sample(np.random.default_rng(4), n=200)
    assert np.all(constraint.contains(None, drawn))
    alone = Simplex(1.0, high=0.5 * np.ones(3)).sample(np.random.default_rng(5), n=4_000)
    assert np.std(drawn) == pytest.approx(np.std(alone), rel=0.03)


@pytest.mark.sweep
def test_groups_join_other_sets() -> None:
    rng = np.random.default_rng(6)
    for other in (Polytope([[1.0, 1.0, 0.0, 0.0, 0.0]], [0.6]), Ball(radius=1.1), Box(0.0, 0.6 * np.ones(5))):
        constraint = SETS["plain"] & other
        actions = rng.standard_normal((20, 5))
        projected = constraint.project(None, actions)
        assert np.all(constraint.contains(None, projected))
        drawn = constraint.sample(rng, n=2_000)
        assert np.all(constraint.contains(None, drawn))
        away = np.linalg.norm(drawn[:, None] - actions, axis=-1).min(axis=0)
        assert np.all(np.linalg.norm(projected - actions, axis=-1) <= away + 1e-4)


def test_the_linear_maximiser_puts_each_total_on_the_best_entry() -> None:
    point = Simplices(GROUPS, total=[1.0, 2.0]).linear_maximiser(None, np.array([0.1, 5.0, 4.0, 0.3, -1.0]))
    np.testing.assert_allclose(point, [0.0, 2.0, 0.0, 1.0, 0.0], atol=1e-4)


def test_distances_end_where_the_first_group_does() -> None:
    constraint = Simplices(GROUPS, total=[1.0, 2.0])
    point, heading = constraint.interior_point(), np.array([1.0, 1.0, -1.0, -1.0, 0.0])
    assert constraint.distance(None, point, heading) == pytest.approx(1.0 / 3.0, rel=1e-4)


def test_totals_are_told_apart_however_they_are_written() -> None:
    state = np.array([1.0, 2.0, 3.0, 4.0])
    for total, expected in (
        (obs[1:3], (2.0, 3.0)),
        (obs[[3, 0]], (4.0, 1.0)),
        (2.0 * obs[0:4:2] + 1.0, (3.0, 7.0)),
        ([1.0, 2.0] * obs[0:2] + obs[3], (5.0, 8.0)),
        ([obs[0] ** 2, 0.5], (1.0, 0.5)),
        (obs[-2:], (3.0, 4.0)),
        (obs[2], (3.0, 3.0)),
    ):
        point = Simplices(GROUPS, total=total).interior_point(state)
        assert (point[GROUPS[0]].sum(), point[GROUPS[1]].sum()) == pytest.approx(expected, rel=1e-4), str(
            total
        )


def test_products_survive_json_and_print_as_formulas() -> None:
    for constraint in SETS.values():
        again = Constraint.from_json(json.loads(json.dumps(constraint.to_json())))
        state, action = np.array([0.4, 0.3]), np.array([0.1, 0.2, 0.05, 2.0, -1.0])
        np.testing.assert_array_equal(again.project(state, action), constraint.project(state, action))
    assert SETS["of the state"].formula() == "sum of a[0, 3, 4] = obs[0], sum of a[1, 2] = obs[1], 0 <= a_i"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"groups": []},
        {"groups": [[]]},
        {"groups": 3},
        {"groups": "01"},
        {"groups": [0, 1]},
        {"groups": [[0, 1], [1, 2]]},
        {"groups": [[0], [2]]},
        {"groups": [[-1, 0]]},
        {"groups": [[0.0, 1.0]]},
        {"groups": [[True, False]]},
        {"groups": [["a"]]},
        {"groups": [[0, None]]},
        {"groups": {"number": "inf"}},
        {"groups": [[0], [1]], "total": [1.0, 2.0, 3.0]},
        {"groups": [[0], [1]], "total": "one"},
        {"groups": [[0], [1]], "total": [1.0, -2.0]},
        {"groups": [[0], [1]], "high": [1.0]},
        {"groups": [[0], [1]], "high": 0.25},
        {"groups": [[0], [1]], "tolerance": -1.0},
        {"groups": [[i] for i in range(2000)]},
    ],
    ids=lambda arguments: str(arguments)[:60],
)
def test_a_damaged_file_is_refused(arguments: Any) -> None:
    with pytest.raises(ConstraintError, match=r"\.$"):
        Constraint.from_json({"kind": "Simplices", **arguments})


def test_an_observed_total_that_is_negative_leaves_no_action() -> None:
    with pytest.raises(EmptySetError):
        SETS["of the state"].project([0.5, -1.0], np.ones(5))
    compiled = jax.jit(SETS["of the state"].project)(np.float32([0.5, -1.0]), np.ones(5, np.float32))
    assert np.isnan(compiled).all()


@pytest.mark.sweep
def test_check_constraint_finds_no_fault() -> None:
    for name in ("plain", "in order, capped", "of the state"):
        constraint = SETS[name]
        report = check_constraint(constraint, np.array([[0.4, 0.3], [0.9, 0.5]]))
        assert report.is_sound, str(report)
