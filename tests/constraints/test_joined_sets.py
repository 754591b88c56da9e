"""Pairs and triples of all kinds: every question about them has one answer, for one state and for many."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Polytope,
    PowerBudget,
    WeightedL1,
    linear_rows,
    obs,
)
from inbounds.errors import EmptySetError
from tests.constraints.joined_sets import AROUND, DIMENSION, INSIDE, Joined, one_each
from tests.slices import quick_slice

PAIRS = one_each(2, [("constant", "constant"), ("observed", "observed")])
PARTLY_OBSERVED_PAIRS = one_each(
    2,
    [
        ("first observed", "constant"),
        ("constant", "first observed"),
        ("last observed", "first observed"),
        ("constant", "last observed"),
        ("constant", "observed"),
    ],
)
TRIPLES = one_each(
    3,
    [
        ("observed", "observed", "observed"),
        ("constant", "first observed", "constant"),
        ("first observed", "last observed", "constant"),
        ("constant", "constant", "observed"),
        ("last observed", "constant", "first observed"),
        ("constant", "constant", "constant"),
        ("constant", "observed", "constant"),
    ],
)
MATRIX = [*PAIRS, *PARTLY_OBSERVED_PAIRS, *TRIPLES]


def quick_and_slow(cases: list[Joined], every_so_many: int) -> Any:
    """Run a few of the cases with the normal tests, and all of them with the slow ones."""
    marked = [
        pytest.param(case, marks=() if index % every_so_many == 0 else pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
    return pytest.mark.parametrize("joined", marked, ids=[str(case) for case in cases])


def require_feasible(joined: Joined, states: Any, actions: Any) -> None:
    """Compare with the definition of the set, and ask the set itself."""
    assert np.max(joined.violation(states, actions)) <= 0.0
    assert np.all(joined.constraint.contains(states, np.asarray(actions, dtype=np.float64)))


def questions(joined: Joined, count: int) -> tuple[Any, Any]:
    """Draw states, and actions inside and around the set."""
    rng = np.random.default_rng(1)
    scales = rng.choice([0.2, 1.0, 3.0], (count, 1))
    return joined.states(count, rng), INSIDE + rng.normal(size=(count, DIMENSION)) * scales


@quick_and_slow(MATRIX, 23)
def test_all_answers_about_a_batch_of_states_are_feasible_and_agree(joined: Joined) -> None:
    constraint = joined.constraint
    states, actions = questions(joined, 3)
    violation, truth = constraint.violation(states, actions), joined.violation(states, actions)
    np.testing.assert_allclose(violation, truth, rtol=1e-9, atol=1e-9)
    assert np.all(truth[constraint.contains(states, actions)] <= 0.0)
    centres = constraint.interior_point(states, dimension=DIMENSION)
    nearest = constraint.project(states, actions)
    drawn = joined.bounded.sample(np.random.default_rng(2), states, 3, DIMENSION)
    assert centres.shape == nearest.shape == drawn.shape[1:] == (3, DIMENSION)
    for answers in (centres, nearest, drawn):
        require_feasible(joined, states, answers)
    distance, others = (np.linalg.norm(points - actions, axis=-1) for points in (nearest, drawn))
    assert np.all(distance <= others * (1.0 + 1e-5) + 1e-5)


@quick_and_slow(MATRIX[::11], 8)
def test_a_state_alone_has_the_answers_that_it_has_among_others(joined: Joined) -> None:
    constraint = joined.constraint
    states, actions = questions(joined, 2 * DIMENSION)
    centres = constraint.interior_point(states, dimension=DIMENSION)
    nearest = constraint.project(states, actions)
    np.testing.assert_allclose(
        constraint.interior_point(states[1], dimension=DIMENSION), centres[1], atol=1e-6
    )
    np.testing.assert_allclose(constraint.project(states[1], actions[1]), nearest[1], atol=1e-5)
    drawn = joined.bounded.sample(np.random.default_rng(2), states[1], dimension=DIMENSION)
    assert drawn.shape == (DIMENSION,)
    require_feasible(joined, states[1], drawn)


@quick_and_slow(PARTLY_OBSERVED_PAIRS, 20)
def test_every_pair_can_be_compiled_for_a_batch_of_states(joined: Joined) -> None:
    states, actions = questions(joined, 3)
    traced = jax.eval_shape(joined.constraint.project, states, actions)
    assert traced.shape == (3, DIMENSION)


NAMED: dict[str, Constraint] = {
    "weighted l1 and ball": WeightedL1(obs[0:3], 1.0) & Ball(radius_squared=0.5),
    "power budget and polytope": PowerBudget(obs[0:3], 1.0) & Polytope([[1.0, 1.0, 0.5]], [0.4]) & AROUND,
    "ellipsoid and power budget": Ellipsoid(np.diag([1.0, 2.0, 3.0]), 0.5) & PowerBudget(obs[0:3], 1.0),
}
"""Sets whose weights alone are read from the state."""


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("count", [2, 2 * DIMENSION], ids=["two states", "two states for each entry"])
def test_every_state_has_a_centre_of_its_own_where_only_weights_are_observed(name: str, count: int) -> None:
    constraint = NAMED[name]
    states = np.random.default_rng(0).uniform(0.5, 3.0, (count, DIMENSION)) * [1.0, -1.0, 4.0]
    together = constraint.interior_point(states)
    assert together.shape == (count, DIMENSION)
    assert np.all(constraint.contains(states, together))
    np.testing.assert_allclose(together[-1], constraint.interior_point(states[-1]), atol=1e-6)
    assert constraint.project(states, 5.0 * together + 9.0).shape == (count, DIMENSION)


@pytest.mark.parametrize("name", quick_slice(NAMED, ["weighted l1 and ball"]))
@pytest.mark.sweep
def test_compiled_projections_of_a_batch_are_those_of_the_host(name: str) -> None:
    constraint, rng = NAMED[name], np.random.default_rng(0)
    states = rng.uniform(0.5, 3.0, (5, DIMENSION)).astype(np.float32)
    actions = rng.normal(scale=2.0, size=states.shape).astype(np.float32)

    nearest = np.asarray(jax.jit(constraint.project)(states, actions), dtype=np.float64)
    assert np.all(constraint.violation(states, nearest) <= 0.0)
    np.testing.assert_allclose(nearest, constraint.project(states, actions.astype(np.float64)), atol=1e-3)


def test_rows_that_exclude_one_another_are_solved_for_once_and_not_in_every_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Polytope(np.array([[1.0, 1.0], [-1.0, -1.0]]), obs[0:2])
    constraint = PowerBudget(np.ones(2), 1.0) & rows & Box(-np.ones(2), np.ones(2))
    solved: list[int] = []
    solve = linear_rows.nearest_point

    def counted(*problem: Any) -> Any:
        solved.append(1)
        return solve(*problem)

    monkeypatch.setattr(linear_rows, "nearest_point", counted)
    with pytest.raises(EmptySetError, match=r"no action satisfies .* Widen"):
        constraint.project(np.array([[0.6, -0.4], [9.1, -8.9]]), np.zeros((2, 2)))
    assert 1 <= len(solved) < 10


@pytest.mark.parametrize("action", [[-2.0, 0.0], [-2.0, 1e6], [-2.0, 1e20]])
def test_rows_whose_margins_grow_with_the_action_are_not_taken_for_rows_that_exclude_one_another(
    action: list[float],
) -> None:
    # The coefficients are differences of large numbers, so that their rounding, and with it the margin, is large.
    large = 185177.0
    rows = Polytope((obs[0:6] + large).reshape(3, 2), obs[6:9])
    coefficients = np.array([-0.62, 2.9, -1.53, -1.19, 0.62, -2.9])
    state = np.concatenate([coefficients - large, [-4626.75, 15503.12, 9497.11]])
    box = Box([-np.inf, -np.inf], [1492.0, np.inf])
    joined = (rows & PowerBudget([-0.027, 0.007], 861.0) & box).project(state, np.array(action))
    # The budget limits nothing here, so that the rows alone have the same nearest action: a corner, if it is far.
    alone = (rows & box).project(state, np.minimum(action, 1e6))
    np.testing.assert_allclose(joined, alone, atol=5.0)
