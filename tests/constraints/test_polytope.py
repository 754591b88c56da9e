"""Polytopes: the same projection on the host and on the device, strict everywhere, checked by another solver."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from inbounds.constraints import Box, Constraint, Polytope, RateLimit, SumBand, host_solvers, obs
from inbounds.constraints.arrays import refuse_miscompiling_jax
from inbounds.constraints.box import Bounds
from inbounds.constraints.polytope import MOST_CENTRES, barrier
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError, MissingDependencyError
from tests.constraints.polytopes import (
    NSFNET,
    POLYTOPES,
    Rows,
    actions_around,
    answers_of_another_solver,
    constraint_of,
    exact,
)

every_polytope = pytest.mark.parametrize("name", POLYTOPES)


def tightened(rows: Rows) -> Rows:
    """Return the rows as `contains` sees them on the host."""
    return rows._replace(bound=rows.bound - 1e-6 * np.abs(rows.bound))


@every_polytope
def test_projections_on_the_host_are_those_of_another_solver(name: str) -> None:
    rows, constraint = POLYTOPES[name], constraint_of(name)
    actions, _ = answers_of_another_solver(name)
    expected = np.array([exact(tightened(rows), action) for action in actions])
    projected = constraint.project(None, actions)
    # A hundredth of the margin is kept on top of it, and where rows meet at small angles that is a little more.
    np.testing.assert_allclose(projected, expected, rtol=0, atol=1e-7 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("name", ["nsfnet", "nsfnet, 20 flows", "random, few rows", "thin slab", "one entry"])
def test_the_margin_costs_at_most_two_millionths_of_the_size_of_the_action(name: str) -> None:
    actions, expected = answers_of_another_solver(name)
    for dtype in (np.float64, np.float32):
        error = np.linalg.norm(constraint_of(name).project(None, actions.astype(dtype)) - expected, axis=-1)
        assert np.all(error <= 2e-6 * (1 + np.linalg.norm(actions, axis=-1)))


@every_polytope
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_projections_on_the_host_are_strictly_feasible_and_final(name: str, dtype: Any) -> None:
    constraint = constraint_of(name)
    projected = constraint.project(None, actions_around(POLYTOPES[name], 300, seed=1).astype(dtype))
    assert projected.dtype == dtype
    assert np.all(constraint.violation(None, projected) <= 0)
    assert np.all(constraint.contains(None, projected))
    assert constraint.project(None, projected).tobytes() == projected.tobytes()


@every_polytope
def test_without_daqp_the_same_points_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = constraint_of(name)
    actions, _ = answers_of_another_solver(name)
    expected = constraint.project(None, actions)
    monkeypatch.setattr(host_solvers, "is_available", lambda: False)
    projected = constraint.project(None, actions)
    assert np.all(constraint.violation(None, projected) <= 0)
    np.testing.assert_allclose(projected, expected, rtol=0, atol=1e-6 * (1 + np.abs(expected).max()))


ENTRIES = st.floats(-3.0, 3.0, allow_subnormal=False).map(lambda value: round(value, 3))
SLACKS = st.floats(0.0, 2.0).map(lambda value: round(value, 3))


@settings(max_examples=30)
@given(data=st.data())
def test_random_rows_and_actions_give_the_nearest_point_of_the_tightened_set(data: st.DataObject) -> None:
    dimension, count = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 8))
    matrix = data.draw(st.lists(ENTRIES, min_size=count * dimension, max_size=count * dimension))
    slack = np.array(data.draw(st.lists(SLACKS, min_size=count, max_size=count)))
    rows = Rows(np.reshape(matrix, (count, dimension)), slack, -np.ones(dimension), np.ones(dimension))
    constraint = Polytope(rows.matrix, slack) & Box(rows.low, rows.high)
    action = np.array(
        data.draw(st.lists(st.floats(-5.0, 5.0, width=32), min_size=dimension, max_size=dimension))
    )
    projected = constraint.project(None, action)
    assert constraint.violation(None, projected) <= 0
    distance = np.linalg.norm(exact(tightened(rows), action) - action)
    assert np.linalg.norm(projected - action) <= distance + 1e-6 * (1 + np.linalg.norm(action))


def test_the_array_api_is_enough() -> None:
    constraint = constraint_of("nsfnet")
    actions = actions_around(NSFNET, 4)
    projected = np.asarray(constraint.project(None, array_api_strict.asarray(actions)))
    np.testing.assert_allclose(projected, constraint.project(None, actions), atol=1e-5)


def test_rows_read_from_the_observation_hold_state_by_state() -> None:
    rng = np.random.default_rng(0)
    constraint = Polytope(obs[0:12].reshape(3, 4), obs[12:15]) & Box(-np.ones(4), np.ones(4))
    states = np.concatenate([rng.normal(size=(40, 12)), rng.uniform(0.05, 1.0, size=(40, 3))], axis=-1)
    actions = rng.normal(scale=2.0, size=(40, 4))
    projected = constraint.project(states, actions)
    assert np.all(constraint.violation(states, projected) <= 0)
    for state, action, point in zip(states, actions, projected, strict=True):
        rows = Rows(state[:12].reshape(3, 4), state[12:], -np.ones(4), np.ones(4))
        np.testing.assert_allclose(point, exact(tightened(rows), action), atol=2e-6)
    moved = np.asarray(
        jax.jit(jax.vmap(constraint.project))(states.astype(np.float32), actions.astype(np.float32))
    )
    np.testing.assert_allclose(moved, projected, atol=1e-4)
    # The guard asks in float64, from the observation before it was rounded.
    assert np.all(constraint.violation(states, moved.astype(np.float64)) <= 0)


def test_one_observation_serves_a_batch_of_actions_and_the_other_way_round() -> None:
    constraint = Polytope(obs[0:2].reshape(1, 2), obs[2]) & Box(-np.ones(2), np.ones(2))
    state = np.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.1]])
    action = np.array([[0.9, 0.9], [0.1, 0.0], [-1.0, 3.0]])
    assert constraint.project(state[0], action).shape == (3, 2)
    assert constraint.project(state, action[0]).shape == (2, 2)
    assert constraint.project(state[:, None], action).shape == (2, 3, 2)
    np.testing.assert_allclose(
        constraint.project(state[:, None], action)[1, 2], constraint.project(state[1], action[2]), atol=1e-12
    )


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    constraint = constraint_of("nsfnet")
    actions = actions_around(NSFNET, 20)
    forward = constraint.project(None, actions)
    backward = constraint.project(None, actions[::-1])[::-1]
    assert forward.tobytes() == np.ascontiguousarray(backward).tobytes()


def test_threads_do_not_disturb_one_another() -> None:
    constraint = constraint_of("nsfnet")
    actions = actions_around(NSFNET, 100)
    expected = constraint.project(None, actions)
    found: list[Any] = [None] * 4

    def work(index: int) -> None:
        found[index] = constraint.project(None, actions)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(answer, expected) for answer in found)


@every_polytope
def test_the_interior_point_is_as_deep_as_a_linear_program_finds(name: str) -> None:
    rows = POLYTOPES[name]
    dimension = rows.matrix.shape[1]
    identity = np.eye(dimension)
    stacked = np.concatenate(
        [rows.matrix, identity[np.isfinite(rows.high)], -identity[np.isfinite(rows.low)]]
    )
    bound = np.concatenate([rows.bound, rows.high[np.isfinite(rows.high)], -rows.low[np.isfinite(rows.low)]])
    lengths = np.linalg.norm(stacked, axis=1)
    kept = lengths > 0
    program = linprog(
        -np.eye(dimension + 1)[-1],
        A_ub=np.concatenate([stacked, lengths[:, None]], axis=1)[kept],
        b_ub=bound[kept],
        bounds=[(None, None)] * dimension + [(0, 10.0)],
    )
    point = constraint_of(name).interior_point()
    depth = np.min((bound[kept] - stacked[kept] @ point) / lengths[kept])
    assert np.all(constraint_of(name).contains(None, point))
    assert depth >= (0.99 if np.all(np.isfinite(rows.low)) else 0.3) * program.x[-1]


def test_distances_end_at_the_first_row() -> None:
    constraint = Polytope([[1.0, 0.0], [1.0, 1.0]], [2.0, 3.0])
    assert constraint.distance(None, [0.0, 0.0], [1.0, 0.0]) == pytest.approx(2.0, rel=1e-5)
    assert constraint.distance(None, [0.0, 0.0], [1.0, 1.0]) == pytest.approx(1.5, rel=1e-5)
    assert constraint.distance(None, [0.0, 0.0], [-1.0, 0.0]) == np.inf
    assert constraint.distance(None, [5.0, 0.0], [1.0, 0.0]) == 0.0


@pytest.mark.sweep
def test_the_farthest_point_is_a_solution_of_the_linear_program() -> None:
    constraint = constraint_of("nsfnet")
    gradients = np.random.default_rng(0).normal(size=(6, 9))
    sides = list(zip(NSFNET.low, NSFNET.high, strict=True))
    best = [-linprog(-g, A_ub=NSFNET.matrix, b_ub=NSFNET.bound, bounds=sides).fun for g in gradients]
    found = constraint.linear_maximiser(None, gradients)
    assert np.all(constraint.violation(None, found) <= 0)
    np.testing.assert_allclose(np.sum(found * gradients, axis=-1), best, rtol=1e-4)
    on_device = jax.jit(lambda gradient: constraint.linear_maximiser(None, gradient))(
        gradients.astype(np.float32)
    )
    assert np.all(constraint.violation(None, np.asarray(on_device, dtype=np.float64)) <= 0)
    np.testing.assert_allclose(np.sum(np.asarray(on_device) * gradients, axis=-1), best, rtol=1e-3)


def test_an_unbounded_direction_has_no_farthest_point() -> None:
    with pytest.raises(ConstraintError, match="& Box"):
        Polytope([[1.0, 0.0]], [1.0]).linear_maximiser(None, [0.0, 1.0])


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [0.0, -1.0, 5.0]), ["row 0", "row 1"]),
        (
            lambda: Polytope([[1.0, 1.0]], [-3.0]) & Box(-np.ones(2), np.ones(2)),
            ["row 0", "a[0] >= -1", "a[1] >= -1"],
        ),
        (lambda: Polytope([[0.0, 0.0]], [-1.0]), ["row 0"]),
    ],
)
def test_a_constant_empty_set_is_refused_with_the_rows_that_conflict(
    build: Callable[[], Constraint], named: list[str]
) -> None:
    with pytest.raises(EmptySetError, match="Widen") as caught:
        build()
    assert all(name in str(caught.value) for name in named)
    assert "row 2" not in str(caught.value)


def test_a_set_that_only_the_margin_empties_is_refused_with_its_width() -> None:
    with pytest.raises(EmptySetError, match=r"only 1e-08 wide"):
        Polytope([[1.0, 0.0], [-1.0, 0.0]], [1.0, -1.0 + 1e-8])


def test_rows_that_conflict_in_one_state_are_refused_when_it_happens() -> None:
    constraint = Polytope(obs[0:2].reshape(1, 2), obs[2]) & Box(-np.ones(2), np.ones(2))
    np.testing.assert_allclose(constraint.project([1.0, 1.0, 0.5], [0.0, 0.0]), 0.0)
    with pytest.raises(EmptySetError, match=r"row 0 of A a <= obs\[2\]"):
        constraint.project([1.0, 1.0, -3.0], [0.0, 0.0])
    on_device = jax.jit(constraint.project)(jnp.array([1.0, 1.0, -3.0]), jnp.zeros(2))
    assert np.all(np.isnan(on_device))


def test_a_box_whose_sides_cross_in_one_state_is_refused_in_words() -> None:
    constraint = Polytope([[1.0, 1.0]], [9.0]) & Box(obs[0], np.ones(2))
    states, actions = np.array([[0.0], [2.0], [-1.0]]), np.full((3, 2), 1.5)
    for rows in (1, slice(None), [1, 0]):
        with pytest.raises(EmptySetError, match=r"a\[.\] >= 2; a\[.\] <= 1"):
            constraint.project(states[rows], actions[rows])
    both = constraint | Box(4.0 * np.ones(2), 5.0 * np.ones(2))
    np.testing.assert_allclose(both.project(states, actions), [[1.0] * 2, [4.0] * 2, [1.0] * 2], atol=1e-5)


def test_bounds_of_zero_leave_exactly_the_point() -> None:
    constraint = Polytope([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]], np.zeros(5))
    np.testing.assert_array_equal(constraint.project(None, [1.0, 2.0]), np.zeros(2))
    np.testing.assert_array_equal(
        jax.jit(lambda a: constraint.project(None, a))(jnp.array([1.0, 2.0])), np.zeros(2)
    )
    assert constraint.contains(None, [0.0, 0.0])
    for library in (np, jnp):
        assert not constraint.contains(None, library.asarray([1e-30, 0.0], dtype=library.float32))


def test_a_point_on_the_boundary_is_not_yet_accepted_and_moves_by_the_margin() -> None:
    constraint = Polytope([[1.0, 1.0]], [1.0])
    on_boundary = np.array([0.5, 0.5])
    assert constraint.violation(None, on_boundary) == 0
    assert not constraint.contains(None, on_boundary)
    assert 0 < np.linalg.norm(constraint.project(None, on_boundary) - on_boundary) < 2e-6


def test_bands_and_polytopes_are_projected_on_together() -> None:
    rows = Rows(
        np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, -1.0, 0.0]]),
        np.array([1.1, -0.9, 0.2]),
        np.zeros(3),
        np.ones(3),
    )
    constraint = (
        SumBand(total=1.0, tolerance=0.1)
        & Polytope(rows.matrix[2:], rows.bound[2:])
        & Box(rows.low, rows.high)
    )
    for action in np.random.default_rng(0).normal(size=(20, 3)):
        np.testing.assert_allclose(constraint.project(None, action), exact(rows, action), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"A": [1.0, 2.0], "b": [1.0]}, "a matrix is expected"),
        ({"A": [[1.0, 2.0]], "b": [1.0, 2.0]}, "A has 1 rows but b has 2"),
        ({"A": [[1.0, np.nan]], "b": [1.0]}, "not a finite number"),
        ({"A": obs[0:4], "b": [1.0]}, "reshape"),
        ({"A": obs[0:4].reshape(2, 2), "b": obs[4:7]}, "A has 2 rows but b has 3"),
    ],
)
def test_rows_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        Polytope(**arguments)


def test_an_action_of_another_dimension_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="speaks of 9"):
        constraint_of("nsfnet").contains(None, np.zeros(8))


def test_rows_are_explained_in_words() -> None:
    polytope = Polytope([[1.0, 0.0, -2.0], [0.5, 1.0, 0.0]], [1.0, 2.0])
    assert polytope.explain(None, [5.0, 0.0, 0.0]) == (
        "infeasible: row 0: a[0] - 2 a[2] <= 1 is exceeded by 4 (2 rows are broken in all)."
    )
    assert "row 1: 0.5 a[0] + a[1] <= 2" in polytope.explain(None, [0.0, 1.9, 0.0])


def test_one_number_bounds_every_row() -> None:
    assert Polytope(np.eye(3), 2.0).violation(None, [3.0, 1.0, 1.0]) == 1.0


@pytest.mark.parametrize(
    "constraint", [Polytope([[1.0, 2.0]], [1.0]), Polytope(obs[0:4].reshape(2, 2), obs[4:6] * 2.0 + 3.0)]
)
def test_polytopes_survive_json_copies_and_pickles(constraint: Constraint) -> None:
    state, action = np.linspace(0.1, 0.6, 6), np.array([4.0, 5.0])
    expected = constraint.project(state, action)
    written = json.loads(json.dumps(constraint.to_json()))
    for again in (
        Constraint.from_json(written),
        copy.deepcopy(constraint),
        pickle.loads(pickle.dumps(constraint)),
    ):
        assert again.project(state, action).tobytes() == expected.tobytes()


def test_the_box_that_is_passed_along_counts() -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0])
    at = polytope.situation(None, np.zeros(2)).at
    bounds = Bounds(np.array([0.4, -1.0]), np.array([0.4, 1.0]))
    np.testing.assert_allclose(
        polytope.nearest_in_box(at, np.array([3.0, 3.0]), bounds), [0.4, 0.6], atol=1e-5
    )


def test_a_box_that_moves_leaves_no_memory_behind() -> None:
    polytope = Polytope([[1.0, 1.0], [-1.0, 2.0]], [1.0, 1.0])
    moving = polytope & RateLimit(0.1) & Box(-1.0, 1.0)
    for previous in np.random.default_rng(0).uniform(-0.4, 0.4, (100, 2)):
        centre = moving.interior_point(previous_action=previous)
        assert moving.contains(None, centre, previous_action=previous)
    kept = [value for value in vars(polytope).values() if isinstance(value, dict)]
    assert sum(len(value) for value in kept) <= 20


def test_a_set_that_was_empty_once_does_not_spoil_the_next_one() -> None:
    """A problem that the solver refuses must not stay behind in its memory, nor leave its last answer."""
    moving = Polytope([[1.0, 1.0, 1.0], [-1.0, 2.0, 0.5]], [1.0, 1.0]) & RateLimit(0.1) & Box(-1.0, 1.0)
    action, far, near = np.full(3, 2.0), np.full(3, 5.0), np.zeros(3)
    before = moving.project(None, action, previous_action=near)
    for previous in (far, np.stack([far, near]), np.stack([near, far])):
        with pytest.raises(EmptySetError, match="no action satisfies"):
            moving.project(None, action, previous_action=previous)
        np.testing.assert_array_equal(moving.project(None, action, previous_action=near), before)
    at = moving.situation(None, action, np.stack([near, far, near])).at
    points = moving.nearest(at, action)
    np.testing.assert_array_equal(points[[0, 2]], [before, before])


def test_a_box_that_moves_with_the_state_does_not_fill_the_memory_with_centres() -> None:
    polytope = Polytope([[1.0, 1.0]], [1.0])
    moving = polytope & Box(-1.0, obs[0:2])
    for width in np.linspace(0.5, 1.0, 3 * MOST_CENTRES):
        moving.interior_point(np.full(2, width), dimension=2)
    assert 0 < len(polytope._centres) <= MOST_CENTRES


def test_a_barrier_is_the_half_space_that_its_definition_states() -> None:
    # A cart at position p = obs[0] with velocity v = obs[1] and force a must stay left of 1: h = 1 - p - v^2 / 2.
    position, speed = obs[0], obs[1]
    constraint = barrier(1.0 - position - 0.5 * speed**2, -speed, [-speed, 0.0], gamma=2.0)
    rng = np.random.default_rng(0)
    for p, v in rng.uniform(-1.0, 0.9, (50, 2)):
        actions = rng.uniform(-5.0, 5.0, (20, 2))
        missing = v - 2.0 * (1.0 - p - 0.5 * v * v) + v * actions[:, 0]
        np.testing.assert_allclose(constraint.violation([p, v], actions), missing, atol=1e-12)
    state = np.array([0.9, 0.8])
    assert constraint.violation(state, constraint.project(state, np.array([3.0, 1.0]))) <= 0
    assert Constraint.from_json(constraint.to_json()).formula() == constraint.formula()


@pytest.mark.sweep
def test_a_barrier_keeps_a_simulated_cart_away_from_the_wall() -> None:
    constraint = barrier(1.0 - obs[0] - 0.5 * obs[1] ** 2, -obs[1], [-obs[1]]) & Box([-2.0], [2.0])
    position, speed = 0.0, 0.0
    for _ in range(4_000):
        (force,) = constraint.project([position, speed], np.array([2.0]))
        position, speed = position + 1e-3 * speed, speed + 1e-3 * float(force)
        assert position < 1.0
    assert position > 0.7


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"gamma": 0.0}, "Use 1.0"),
        ({"Lg_h": 1.0}, "one number or expression per entry"),
        ({"Lg_h": obs[2:]}, "one number or expression per entry"),
        ({"h": [1.0, 2.0]}, "Change its shape"),
        ({"Lf_h": "none"}, "Pass numbers"),
    ],
    ids=str,
)
def test_a_barrier_that_is_no_half_space_is_refused(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConstraintError, match=remedy):
        barrier(**{"h": obs[0], "Lf_h": 0.0, "Lg_h": [1.0, obs[1]], **arguments})


def test_compiled_rows_of_a_large_batch_belong_to_their_own_actions() -> None:
    actions = np.random.default_rng(0).uniform(0.0, 50.0, (8192, 9)).astype(np.float32)
    rows = Polytope(np.random.default_rng(1).integers(0, 2, (8, 9)).astype(float), np.full(8, 50.0))
    compiled = jax.jit(lambda batch: rows.violation(None, batch))(actions)
    np.testing.assert_allclose(compiled, rows.violation(None, actions.astype(np.float64)), atol=1e-3)


def test_a_release_of_jax_that_compiles_wrong_sums_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxlib.version.__version__", "0.10.2")
    refuse_miscompiling_jax.cache_clear()
    with pytest.raises(MissingDependencyError, match="Install another version"):
        Polytope([[1.0]], [1.0]).contains(None, jnp.zeros(1))
    monkeypatch.undo()
    refuse_miscompiling_jax.cache_clear()
    assert Polytope([[1.0]], [1.0]).contains(None, jnp.zeros(1))


def test_a_batch_without_any_state_has_no_interior_point() -> None:
    rows = Polytope(obs[0:4].reshape(2, 2), obs[4:6])
    for constraint in (rows, rows & Box(-1.0, 1.0), rows & SumBand(0.0, 1.0)):
        assert constraint.interior_point(np.zeros((0, 6))).shape == (0, 2)
        assert constraint.project(np.zeros((0, 6)), np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e8, 1e12])
def test_the_margin_of_constant_rows_is_the_same_without_a_product_of_matrix_and_action(size: float) -> None:
    rng = np.random.default_rng(4)
    constraint = Polytope(rng.normal(size=(30, 6)), rng.uniform(0.0, 1.0, size=30) * (rng.random(30) < 0.9))
    actions = size * rng.normal(size=(7, 6))
    at = constraint.situation(None, actions).at
    rows = constraint.rows(at)
    assert rows.totals is not None
    quick, full = (one.margin(at, actions, 2.0) for one in (rows, rows._replace(totals=None)))
    assert quick.shape == full.shape
    np.testing.assert_allclose(quick, full, rtol=1e-12)
