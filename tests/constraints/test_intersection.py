from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import inbounds as ib
from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Intersection,
    Oracle,
    Polytope,
    PowerBudget,
    RateLimit,
    SumBand,
    WeightedL1,
    intersect,
    obs,
)
from inbounds.constraints.situation import read_situation
from inbounds.errors import ConstraintError, EmptySetError
from tests.constraints import exact_projection as exact
from tests.slices import quick_slice

ONES = np.ones(4)
ROWS = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0], [-1.0, 0.0, 2.0, 0.0]])
LIMITS = np.array([0.6, 0.8, 0.5])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0])


def by_quadratic_programs(*rows: Callable[[Any], Any]) -> exact.Projection:
    """Project on rows g(x) >= 0 in the unit box by a solver for smooth problems."""

    def project(action: Any) -> Any:
        return optimize.minimize(
            lambda x: 0.5 * np.sum((x - action) ** 2),
            np.zeros(4),
            jac=lambda x: x - action,
            bounds=[(-1.0, 1.0)] * 4,
            constraints=[{"type": "ineq", "fun": row} for row in rows],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        ).x

    return project


SIGNS = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T

CASES: dict[str, tuple[Constraint, exact.Projection]] = {
    "two boxes and a ball": (
        Box(-ONES, 0.5 * ONES) & Ball(radius_squared=0.6) & Box(-0.4, 1.0),
        exact.onto_ball(0.6, -0.4, 0.5, 4),
    ),
    "polytope, band and box": (
        Polytope(ROWS, LIMITS) & SumBand(total=0.3, tolerance=0.1, low=-0.75) & Box(-ONES, ONES),
        exact.onto_rows_in_box([*ROWS, ONES, -ONES], [*LIMITS, 0.4, -0.2], -0.75, 1.0),
    ),
    "two polytopes": (
        Polytope(ROWS, LIMITS) & Polytope([[-1.0, -1.0, -1.0, -1.0]], [1.5]) & Box(-1.0, 1.0),
        exact.onto_rows_in_box([*ROWS, -ONES], [*LIMITS, 1.5], -1.0, 1.0),
    ),
    "ball and weighted l1": (
        Ball(radius_squared=0.5) & WeightedL1(weights=WEIGHTS, bound=1.2) & Box(-ONES, ONES),
        by_quadratic_programs(lambda x: 0.5 - x @ x, lambda x: 1.2 - (SIGNS * WEIGHTS) @ x),
    ),
    "ball and polytope": (
        Ball(radius_squared=0.5) & Polytope(ROWS, LIMITS) & Box(-ONES, ONES),
        by_quadratic_programs(lambda x: 0.5 - x @ x, lambda x: LIMITS - ROWS @ x),
    ),
    "ball, band and budget": (
        PowerBudget(weights=WEIGHTS, bound=0.4)
        & Ball(radius_squared=0.8)
        & SumBand(total=-0.5, tolerance=0.2)
        & Box(-ONES, ONES),
        by_quadratic_programs(
            lambda x: 0.8 - x @ x,
            lambda x: 0.4 - (0.5 * (SIGNS + 1.0) * WEIGHTS) @ x,
            lambda x: np.array([-0.3 - np.sum(x), np.sum(x) + 0.7]),
        ),
    ),
}


@functools.cache
def actions() -> Any:
    return np.random.default_rng(0).normal(size=(12, 4)) * np.array([[0.3], [1.0], [4.0]] * 4)


@pytest.mark.parametrize("name", CASES)
def test_projections_are_feasible_and_the_nearest_points_that_another_solver_finds(name: str) -> None:
    constraint, solve = CASES[name]
    for dtype in (np.float64, np.float32):
        given = actions().astype(dtype)
        projected = constraint.project(None, given)
        assert np.all(constraint.violation(None, projected) <= 0)
        assert np.all(constraint.contains(None, projected))
        np.testing.assert_array_equal(constraint.project(None, projected), projected)
    for action, point in zip(actions(), constraint.project(None, actions()), strict=True):
        np.testing.assert_allclose(point, solve(action), rtol=0, atol=5e-6 * (1 + np.linalg.norm(action)))


@pytest.mark.parametrize(
    "name",
    quick_slice(
        ["polytope, band and box", "ball and weighted l1", "ball and polytope", "ball, band and budget"],
        ["ball and weighted l1"],
    ),
)
def test_compiled_projections_are_feasible_and_near(name: str) -> None:
    constraint, _ = CASES[name]
    projected = np.asarray(jax.jit(lambda a: constraint.project(None, a))(jnp.asarray(actions())))
    assert np.all(constraint.violation(None, projected) <= 0)
    np.testing.assert_allclose(projected, constraint.project(None, actions()), rtol=0, atol=3e-4)


@pytest.mark.parametrize("name", CASES)
def test_interior_points_keep_a_distance_from_every_row(name: str) -> None:
    constraint, _ = CASES[name]
    centre = constraint.interior_point()
    assert constraint.violation(None, centre) < -1e-2
    headings = np.random.default_rng(0).normal(size=(20, 4))
    lengths = constraint.distance(None, centre, headings)
    reached = centre + lengths[:, None] * headings
    assert np.all(np.abs(constraint.violation(None, reached)) < 1e-4)


@pytest.mark.parametrize("name", ["two boxes and a ball", "polytope, band and box", "two polytopes"])
def test_no_projection_lies_farther_than_the_maximiser(name: str) -> None:
    constraint, _ = CASES[name]
    headings = actions() / np.linalg.norm(actions(), axis=-1, keepdims=True)
    farthest = constraint.linear_maximiser(None, headings)
    assert np.all(constraint.violation(None, farthest) <= 0)
    rivals = constraint.project(None, farthest + 100.0 * headings)
    assert np.all(np.sum((farthest - rivals) * headings, axis=-1) >= -1e-4)


def test_rows_of_the_state_are_stacked_for_a_batch_of_states() -> None:
    constraint = (
        Polytope(obs[0:4].reshape(2, 2), obs[4:6]) & SumBand(total=obs[6], tolerance=0.1) & Box(-1.0, 1.0)
    )
    rng = np.random.default_rng(0)
    states = np.concatenate(
        [rng.normal(size=(5, 4)), np.abs(rng.normal(size=(5, 2))) + 0.5, np.zeros((5, 1))], axis=1
    )
    given = rng.normal(size=(5, 2)) * 2.0
    projected = constraint.project(states, given)
    assert np.all(constraint.violation(states, projected) <= 0)
    for state, action, point in zip(states, given, projected, strict=True):
        rows, bounds = [*state[:4].reshape(2, 2), [1.0, 1.0], [-1.0, -1.0]], [*state[4:6], 0.1, 0.1]
        np.testing.assert_allclose(point, exact.onto_rows_in_box(rows, bounds, -1.0, 1.0)(action), atol=5e-6)


def test_intersections_are_flat_and_speak_of_one_dimension() -> None:
    nested = (Ball(radius_squared=1.0) & Box(-1.0, 1.0)) & (RateLimit(0.1) & Box([0.0, 0.0], 1.0))
    assert isinstance(nested, Intersection)
    assert [type(member).__name__ for member in nested.members()] == ["Ball", "Box", "RateLimit", "Box"]
    assert nested.size() == 2
    assert not nested.is_constant()
    assert (
        repr(Ball(radius_squared=1.0) & Box(-1.0, 1.0))
        == "Ball(radius_squared=1.0) & Box(low=-1.0, high=1.0)"
    )
    alone = Ball(radius_squared=1.0)
    assert intersect(alone) is alone


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ConstraintError, match=r"speaks of 2 entries; .* speaks of 3 entries"):
        Box([0.0, 0.0], 1.0) & WeightedL1([1.0, 1.0, 1.0], 1.0)
    with pytest.raises(ConstraintError, match="3 is not a constraint"):
        Ball(radius_squared=1.0) & 3  # type: ignore[operator]


@pytest.mark.parametrize(
    "ask", [bool, lambda one: one and Box(-1.0, 1.0), lambda one: one or Box(-1.0, 1.0), lambda one: not one]
)
def test_and_or_and_not_of_python_are_refused_since_they_would_drop_a_set(ask: Any) -> None:
    with pytest.raises(ConstraintError, match=r"sum_i a_i\^2 <= 1 is a set .* Join sets with & and \|"):
        ask(Ball(radius_squared=1.0))


@pytest.mark.parametrize(
    "given", [(Ball(radius_squared=1.0), 3), (Box,), Box, Ball(radius_squared=1.0), 3], ids=str
)
def test_what_is_no_list_of_constraints_is_refused(given: Any) -> None:
    with pytest.raises(
        ConstraintError, match=r"is not a (list of constraints|constraint)\. Join sets .* with &"
    ):
        Intersection(given)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: Box([0.0, 0.0], 1.0) & Box([2.0, 0.0], 3.0), r"a\[0\] <= 1; a\[0\] >= 2"),
        (lambda: Ball(radius_squared=1.0) & Polytope([[-1.0, 0.0]], [-2.0]), r"sum_i a_i\^2 <= 1; .*row 0"),
        (lambda: Polytope([[1.0, 0.0]], [0.0]) & SumBand(5.0, 0.1, high=[1.0, 1.0]), "sum_i a_i >= 5 - 0.1"),
        (
            lambda: Ball(radius_squared=1.0) & SumBand(9.0, 0.1) & Box([-1.0, -1.0], 1.0),
            r"sum_i a_i >= 9 - 0.1",
        ),
    ],
)
def test_a_constant_empty_intersection_is_refused_when_it_is_built(build: Any, expected: str) -> None:
    with pytest.raises(EmptySetError, match=expected):
        build()


def test_limits_that_a_band_states_already_are_not_repeated_in_the_formula() -> None:
    band = SumBand(total=90.0, tolerance=5.0, low=10.0, high=40.0)
    same, other = Box(10.0 * np.ones(3), 40.0 * np.ones(3)), Box(np.zeros(3), 40.0 * np.ones(3))
    assert (band & same).formula() == band.formula()
    assert (band & other).formula() == f"{band.formula()} and {other.formula()}"


@pytest.mark.parametrize("join", [lambda a, b: a & b, lambda a, b: a | b])
def test_sets_of_different_dimensions_are_refused_though_their_formulas_read_the_same(join: Any) -> None:
    with pytest.raises(ConstraintError, match=r"2 entries.*3 entries"):
        join(Box(np.zeros(2), np.ones(2)), Box(np.zeros(3), np.ones(3)))


def flat_ellipsoid(rng: np.random.Generator, dimension: int) -> Any:
    """Return the matrix of an ellipsoid that is free along one direction, up to rounding."""
    free = rng.standard_normal((dimension, 1))
    free /= np.linalg.norm(free)
    matrix = np.eye(dimension) - free @ free.T
    return 0.5 * (matrix + matrix.T)


def test_an_ellipsoid_that_only_rounding_bounds_is_joined_with_a_budget_of_very_different_weights() -> None:
    rng = np.random.default_rng(2)
    matrix = flat_ellipsoid(rng, 12)
    weights = 10.0 ** rng.uniform(-5.0, 4.0, 12) * rng.choice([-1.0, 1.0], 12)
    joint = Ellipsoid(matrix, 1e-3) & PowerBudget(weights, 0.5)
    assert joint.contains(None, joint.interior_point())


@pytest.mark.parametrize(
    "compile_",
    [
        pytest.param(lambda project: project, id="numpy"),
        pytest.param(jax.jit, id="jit", marks=pytest.mark.sweep),
    ],
)
def test_a_huge_action_is_projected_on_rows_and_an_ellipsoid_that_only_rounding_bounds(
    compile_: Callable[[Any], Any],
) -> None:
    rng = np.random.default_rng(2)
    matrix = flat_ellipsoid(rng, 6)
    rows = rng.standard_normal((6, 6))
    joint = Polytope(rows, rows @ (0.1 * rng.standard_normal(6)) + rng.random(6)) & Ellipsoid(matrix, obs[0])
    huge = np.array([0.0, 0.0, 1e19, 0.0, 0.0, 0.0])
    with jax.enable_x64(True):
        answer = np.asarray(compile_(joint.project)(np.array([3.0]), huge))
    assert joint.contains(np.array([3.0]), answer)


@pytest.mark.parametrize(
    "other", [Box(-1.0, 0.0) | Box(0.5, 1.0), Oracle("tests.constraints.memberships:in_ring", 2)]
)
def test_the_constructor_leaves_sets_that_are_not_convex_to_the_operator(other: Constraint) -> None:
    with pytest.raises(ConstraintError, match=r"not convex.*Join the sets with &"):
        Intersection([Ball(radius_squared=1.0), other])


@pytest.mark.parametrize("count", [4096, 8192])
def test_a_compiled_violation_belongs_to_its_own_action_in_large_batches(count: int) -> None:
    # jaxlib 0.10.2 added up entries of other actions, and is refused.
    joint = WeightedL1(np.arange(1.0, 13.0), 1.0) & Box(np.full(12, -0.5), np.full(12, 0.5))
    actions = np.random.default_rng(0).normal(size=(count, 12)).astype(np.float32)
    expected = joint.violation(None, actions.astype(np.float64))
    np.testing.assert_allclose(
        jax.jit(lambda batch: joint.violation(None, batch))(actions), expected, rtol=1e-4
    )


@pytest.mark.parametrize("count", [None, 3])
def test_a_walk_in_many_dimensions_measures_only_members_that_shorten_its_chord(
    count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, size, measured = np.random.default_rng(0), 48, []
    kinds = (ib.PowerBudget, ib.WeightedL1)
    members = [kinds[k % 2](rng.uniform(0.5, 2.0, size), 0.3 * size) for k in range(20)]
    members += [ib.Ball(radius_squared=0.3 * size), ib.Box(-np.ones(size), np.ones(size))]
    joined = functools.reduce(operator.and_, members)
    at = read_situation(np.zeros(1), None, None)
    point = np.zeros(size) if count is None else rng.uniform(-0.05, 0.05, (count, size))
    way = rng.normal(size=point.shape)
    ends = [member.chord(at, point, way) for member in members]
    for kind in kinds:
        real = kind.reach
        monkeypatch.setattr(kind, "reach", lambda *given, real=real: measured.append(1) or real(*given))
    for found, own in zip(joined.chord(at, point, way), zip(*ends, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.min(own, axis=0))
    assert 0 < len(measured) <= 20  # of two for each of twenty members
