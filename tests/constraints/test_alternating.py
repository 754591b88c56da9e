"""Members that take turns: they stop when settled, and soon where they have no action in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inbounds as ib
from inbounds.constraints import alternating, linear_rows
from inbounds.constraints.alternating import are_apart, central_point, nearest_by_turns
from inbounds.constraints.box import Bounds
from inbounds.constraints.situation import read_situation

AT = read_situation(np.zeros(1), None, None)
THIN = ib.SumBand(total=0.95, tolerance=1e-6, low=0.1, high=0.2) & ib.Box(np.full(6, -1.0), 1.0)
BUDGET = ib.WeightedL1(np.ones(6), bound=ib.obs[0])


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the projections on the budget, in place."""
    count, real = [0], ib.WeightedL1.nearest_in_box

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        count[0] += 1
        return real(self, *arguments, **named)

    monkeypatch.setattr(ib.WeightedL1, "nearest_in_box", counted)
    return count


@pytest.mark.parametrize("bound, far", [(0.3, 1.0), (0.3, 1e10), (0.9, 1.0), (0.9, 1e10), (0.94, 1.0)])
def test_members_without_a_common_action_are_refused_after_few_rounds(
    bound: float, far: float, rounds: list[int]
) -> None:
    with pytest.raises(ib.errors.EmptySetError, match="no action"):
        (THIN & BUDGET).project(np.array([bound]), np.linspace(-far, far, 6))
    assert rounds[0] < 300  # two questions, which are given up after 400 rounds each


def test_a_batch_with_empty_states_is_projected_as_exactly_as_without_them() -> None:
    rng = np.random.default_rng(0)
    centres = [np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.5, 0.0])]
    gaps = np.array([[0.0], [0.0], [4.0], [0.0]])  # in the third state the second ball is moved away

    def ball(centre: Any, move: Any = 0.0) -> Any:
        def project(action: Any) -> Any:
            away = action - (centre + move)
            length = np.linalg.norm(away, axis=-1, keepdims=True)
            return centre + move + away / np.maximum(length, 1.0)

        return project

    actions = 3.0 * rng.normal(size=(4, 3))
    box = Bounds(np.full(3, -1.0), np.full(3, 2.5))
    turns = nearest_by_turns(AT, [ball(centres[0]), ball(centres[1], gaps)], actions, box)
    for row in (0, 1, 3):
        alone = nearest_by_turns(AT, [ball(centres[0]), ball(centres[1])], actions[row], box)
        np.testing.assert_allclose(turns[row], alone, atol=1e-11)


@given(seed=st.integers(0, 2**32 - 1), log_thickness=st.floats(-5.0, 0.0), dimension=st.integers(1, 12))
def test_members_with_a_common_action_are_never_called_apart(
    seed: int, log_thickness: float, dimension: int
) -> None:
    rng = np.random.default_rng(seed)
    common = rng.normal(size=dimension)
    slope = rng.normal(size=dimension)
    thickness = 10.0**log_thickness
    level = float(slope @ common)
    band = ib.Polytope(np.stack([slope, -slope]), [level + thickness, thickness - level])
    weights = np.abs(rng.normal(size=dimension)) + 0.1
    total = ib.WeightedL1(weights, float(weights @ np.abs(common)) + thickness)
    ball = ib.Ball(radius_squared=float(common @ common) + thickness)
    size = float(np.abs(common).max()) + 1.0
    box = Bounds(np.full(dimension, -size), np.full(dimension, size))
    projections = [lambda action, member=member: member.nearest(AT, action) for member in (band, total, ball)]
    for _ in range(20):
        # Wherever the members' points are.
        points = [project(size * rng.normal(size=dimension)) for project in projections]
        assert not are_apart(AT, projections, points, box)


def test_members_that_are_apart_by_less_than_rounding_and_margins_are_not_called_apart() -> None:
    def below(action: Any) -> Any:
        return np.minimum(action, 1.0)

    def above(gap: float) -> Any:
        return lambda action: np.maximum(action, 1.0 + gap)

    def told(gap: float) -> bool:
        projections, box = [below, above(gap)], Bounds(np.array([-2.0]), np.array([2.0]))
        return bool(are_apart(AT, projections, [np.array([1.0]), np.array([1.0 + gap])], box))

    assert not told(alternating.APART)
    assert told(10 * alternating.APART)
    assert not bool(
        are_apart(
            AT,
            [below, above(1.0)],
            [np.ones(1), 2 * np.ones(1)],
            Bounds(np.array([-np.inf]), np.array([2.0])),
        )
    )


def test_an_interior_point_is_found_where_the_set_is_far_from_those_of_its_members() -> None:
    corner = ib.Box([8.5, 9.0], [12.4, 12.8])  # balls and budgets have their own interior points at zero
    constraint = (
        ib.PowerBudget([0.0, -1.6], 14.5) & ib.Ellipsoid([[0.09, 0.04], [0.04, 0.095]], 85.0) & corner
    )
    point = constraint.interior_point()
    assert constraint.contains(None, point)
    assert np.all(point > [8.9, 9.4])  # a tenth of the box away from its sides


def test_an_interior_point_is_found_where_turns_end_on_one_side() -> None:
    first = [0.002915076584588472, -0.00017214670344051333, 0.0007204795544547388]
    second = [-0.00017214670344051333, 0.0029030921849973117, 0.0004265988952558647]
    third = [0.0007204795544547388, 0.0004265988952558647, 0.0002541873241286274]
    box = ib.Box([21.325063, 1.975674, -np.inf], [21.358694, np.inf, -26.899698])
    constraint = (
        ib.Ellipsoid([first, second, third], 2.68434) & box & ib.Box([10.8, -10.9, -47.2], [25.0, 9.0, -12.7])
    )
    assert constraint.contains(None, constraint.interior_point())


@pytest.mark.parametrize("dimension", [3, 200])
def test_a_centre_takes_as_many_projections_in_200_dimensions_as_in_20(dimension: int) -> None:
    asked: list[int] = []

    def unit_ball(action: Any) -> Any:
        asked.append(int(np.prod(action.shape[:-1])))
        return action / np.maximum(np.linalg.norm(action, axis=-1, keepdims=True), 1.0)

    box = Bounds(np.full(dimension, -0.4), np.full(dimension, 1.0))
    turns = [unit_ball, lambda action: np.clip(action, *box)]
    centre = central_point(AT, turns, [np.zeros(dimension)], box)
    assert max(asked) == min(2 * dimension, 40)
    assert np.linalg.norm(centre) < 0.9
    assert np.all((centre > -0.4) & (centre < 1.0))


TRIANGLE = ib.Polytope(A=[[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]], b=ib.obs[:3])
IN_TRIANGLE = TRIANGLE & ib.PowerBudget(weights=[1.0, 2.0], bound=0.5)
"""A bounded set of which no member says by itself how far it reaches to the left and down."""


@pytest.fixture
def slow_solutions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the programs that only the interior-point method solves, in place."""
    count, real = [0], linear_rows.nearest_point

    def counted(*arguments: Any) -> Any:
        count[0] += 1
        return real(*arguments)

    monkeypatch.setattr(linear_rows, "nearest_point", counted)
    return count


@pytest.mark.parametrize("dtype", ["<f8", pytest.param(">f8", marks=pytest.mark.sweep), "<f4"])
@pytest.mark.parametrize("size", [1e6, pytest.param(1e12, marks=pytest.mark.sweep), 1e20])
@pytest.mark.parametrize(
    "heading, corner",
    [
        ((0.1, 1.0), (0.0, 0.25)),
        ((-1.0, 0.0), (-2.0, -1.0)),
        ((-1.0, -1.0), (-2.0, -1.0)),
        ((1.0, -1.0), (0.5, -1.0)),
    ],
)
def test_a_huge_action_is_projected_on_the_corner_before_it_without_the_slow_solver(
    heading: tuple[float, float],
    corner: tuple[float, float],
    size: float,
    dtype: str,
    slow_solutions: list[int],
) -> None:
    action = (size * np.array([heading])).astype(dtype)
    found = IN_TRIANGLE.project(np.ones((1, 3)), action)
    assert slow_solutions[0] == 0
    assert IN_TRIANGLE.contains(np.ones((1, 3)), found).all()
    np.testing.assert_allclose(found, [corner], atol=1e-5)


def test_the_size_of_rows_is_measured_for_those_actions_alone_that_are_very_far() -> None:
    rows = TRIANGLE.rows(read_situation(np.zeros((2, 2)), np.ones((2, 3)), None))
    everywhere = Bounds(np.full(2, -np.inf), np.full(2, np.inf))
    box = linear_rows.box_around_rows(AT, rows, everywhere, np.array([[100.0, -100.0], [0.0, 1e9]]))
    assert np.isinf(box.low[0]).all() and np.isinf(box.high[0]).all()
    np.testing.assert_allclose(box.low[1], [-2.0, -1.0], atol=1e-3)
    np.testing.assert_allclose(box.high[1], [2.0, 1.0], atol=1e-3)


def test_rows_without_an_end_on_a_side_keep_the_side_of_their_box() -> None:
    slab = ib.Polytope(A=[[0.0, 1.0], [0.0, -1.0]], b=[1.0, 1.0]).rows(AT)
    box = linear_rows.box_around_rows(
        AT, slab, Bounds(np.full(2, -np.inf), np.full(2, np.inf)), np.full(2, 1e20)
    )
    assert box.low[0] == -np.inf and box.high[0] == np.inf
    np.testing.assert_allclose([box.low[1], box.high[1]], [-1.0, 1.0], atol=1e-3)
