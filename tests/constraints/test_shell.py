"""Shells: a least and a largest norm. The set is not convex, and every answer about it is exact all the same."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given

from inbounds.constraints import Ball, Box, Constraint, Intersection, Polytope, RateLimit, Shell, obs
from inbounds.errors import ConstraintError, EmptySetError
from tests.constraints.strategies import ENTRIES, vectors
from tests.slices import quick_slice

UNIT = np.ones(3)
ALONE = Shell(0.5, 1.25)
IN_BOX = ALONE & Box(-UNIT, UNIT)
OF_STATE = Shell(obs[0], obs[0] + obs[1])
SKEWED = Shell(1.0, 1.5) & Box([-0.25, -1.0, -2.0], [1.5, 0.5, 0.25])
SETS = {"alone": ALONE, "in a box": IN_BOX, "of the state": OF_STATE & Box(-UNIT, UNIT), "skewed": SKEWED}
STATES = vectors(2, st.floats(0.05, 0.75)).map(lambda state: state.astype(np.float32).astype(np.float64))


def brute_force(lower: float, upper: float, low: Any, high: Any, action: Any, count: int = 200_000) -> float:
    """Return the distance to the nearest of many points of a box that have an allowed norm."""
    rng = np.random.default_rng(0)
    points = rng.uniform(np.maximum(low, -upper), np.minimum(high, upper), (count, len(action)))
    norms = np.linalg.norm(points, axis=-1)
    points = points[(norms >= lower) & (norms <= upper)]
    return float(np.min(np.linalg.norm(points - action, axis=-1)))


@given(vectors(12, ENTRIES), STATES)
def test_projections_are_feasible_and_stay_where_they_are(entries: Any, state: Any) -> None:
    actions = entries.reshape(4, 3)
    for constraint in SETS.values():
        for kind in (np.float64, np.float32):
            projected = constraint.project(state, actions.astype(kind))
            assert projected.dtype == kind
            assert np.all(constraint.violation(state, projected.astype(np.float64)) <= 0)
            assert np.all(constraint.contains(state, projected))
            assert constraint.project(state, projected).tobytes() == projected.tobytes()


@given(vectors(12, ENTRIES), STATES)
def test_norms_are_judged_as_mathematics_does(entries: Any, state: Any) -> None:
    actions = entries.reshape(4, 3)
    norms = np.sqrt(np.sum(np.square(actions.astype(np.longdouble)), axis=-1))
    lower, upper = state[0], state[0] + state[1]
    excess = np.maximum(norms - upper, lower - norms)
    np.testing.assert_allclose(
        OF_STATE.violation(state, actions), excess.astype(float), rtol=1e-12, atol=1e-12
    )
    accepted = OF_STATE.contains(state, actions)
    assert not np.any(accepted & (excess > 0))
    assert np.all(accepted | (excess > -1e-5 * (1.0 + upper)))


@pytest.mark.parametrize(
    "action", [[0.1, -0.05, 0.2], [3.0, -0.4, 0.2], [0.0, 0.3, 0.0], [1e-12, 0.0, -1e-13]]
)
def test_the_projection_scales_an_action_along_its_ray(action: Any) -> None:
    norm = float(np.linalg.norm(action))
    expected = np.asarray(action) * (np.clip(norm, 0.5, 1.25) / norm)
    np.testing.assert_allclose(ALONE.project(None, np.asarray(action)), expected, atol=3e-6)


@pytest.mark.parametrize("name", ["in a box", "skewed"])
def test_no_allowed_point_of_a_box_is_nearer_than_the_projection(name: str) -> None:
    constraint = SETS[name]
    assert constraint.projection_is_exact == (name == "in a box")
    limits = {
        "in a box": (0.5, 1.25, -UNIT, UNIT),
        "skewed": (1.0, 1.5, [-0.25, -1.0, -2.0], [1.5, 0.5, 0.25]),
    }
    rng = np.random.default_rng(1)
    actions = rng.uniform(-2.0, 2.0, (40, 3)) * rng.choice([0.1, 1.0], (40, 1))
    if name == "skewed":  # exact where the action points to a corner outside the inner sphere
        ends = np.where(actions > 0, [1.5, 0.5, 0.25], [-0.25, -1.0, -2.0])
        actions = actions[np.linalg.norm(np.clip(ends, -1.5, 1.5), axis=-1) > 1.01]
        assert len(actions) > 20
    for action, point in zip(actions, constraint.project(None, actions), strict=True):
        rival = brute_force(*limits[name], action)
        assert np.linalg.norm(point - action) <= rival + 1e-5


def test_zero_is_moved_to_the_inner_sphere() -> None:
    state = np.array([0.4, 0.3])
    for name, lower in (("alone", 0.5), ("in a box", 0.5), ("of the state", 0.4), ("skewed", 1.0)):
        point = SETS[name].project(state, np.zeros(3))
        assert SETS[name].violation(state, point) <= 0
        assert np.linalg.norm(point) == pytest.approx(lower, rel=1e-5)


@pytest.mark.parametrize("name", quick_slice(SETS, ["in a box"]))
def test_compiled_answers_are_those_of_numpy(name: str) -> None:
    constraint = SETS[name]
    rng = np.random.default_rng(2)
    states = rng.uniform(0.1, 0.7, (200, 2)).astype(np.float32)
    actions = (rng.standard_normal((200, 3)) * 10.0 ** rng.uniform(-3, 2, (200, 1))).astype(np.float32)
    actions[:5] = [[0, 0, 0], [1e-30, 0, 0], [0, 1e-20, 1], [1e20, -1e20, 0], [0.5, 0, 0]]
    projected = np.asarray(jax.jit(constraint.project)(states, actions), np.float64)
    exact = states.astype(np.float64)
    assert np.all(constraint.violation(exact, projected) <= 0) and np.all(
        constraint.contains(exact, projected)
    )
    reference = constraint.project(exact, actions.astype(np.float64))
    away = np.linalg.norm(actions - reference, axis=-1)
    assert np.all(np.linalg.norm(actions - projected, axis=-1) <= away * (1 + 1e-5) + 1e-5)
    drawn = jax.jit(lambda key: constraint.sample(key, states, dimension=3))(jax.random.key(0))
    assert np.all(constraint.violation(exact, np.asarray(drawn, np.float64)) <= 0)


def test_draws_are_uniform_between_both_spheres() -> None:
    rng = np.random.default_rng(3)
    drawn = ALONE.sample(rng, n=20_000, dimension=3)
    cubes = (np.linalg.norm(drawn, axis=-1) ** 3 - 0.5**3) / (1.25**3 - 0.5**3)
    assert np.max(np.abs(np.sort(cubes) - np.linspace(0, 1, 20_000))) < 1.95 / np.sqrt(20_000)
    assert np.all(np.abs(np.mean(drawn, axis=0)) < 0.03)
    boxed = IN_BOX.sample(rng, n=20_000)
    points = rng.uniform(-1.0, 1.0, (60_000, 3))
    points = points[(np.linalg.norm(points, axis=-1) >= 0.5) & (np.linalg.norm(points, axis=-1) <= 1.25)]
    for power in (2, 4):
        assert np.mean(boxed**power) == pytest.approx(np.mean(points**power), rel=0.02)


def test_distances_end_at_the_sphere_that_the_ray_meets_first() -> None:
    assert ALONE.distance(None, [1.0, 0.0], [1.0, 0.0]) == pytest.approx(0.25, rel=1e-5)
    assert ALONE.distance(None, [1.0, 0.0], [-2.0, 0.0]) == pytest.approx(0.25, rel=1e-5)
    assert ALONE.distance(None, [1.0, 0.0], [0.0, 1.0]) == pytest.approx(0.75, rel=1e-5)
    assert ALONE.distance(None, [0.6, 0.8], [-0.6, 0.0]) == pytest.approx(2.600781, rel=1e-5)
    assert ALONE.distance(None, [0.1, 0.0], [1.0, 0.0]) == 0.0
    rng = np.random.default_rng(4)
    points, headings = IN_BOX.sample(rng, n=2_000), rng.standard_normal((2_000, 3))
    lengths = IN_BOX.distance(None, points, headings)[:, None]
    for share in np.linspace(0.0, 1.0 - 1e-9, 23):
        assert np.all(IN_BOX.violation(None, points + share * lengths * headings) <= 0)
    assert not np.any(IN_BOX.contains(None, points + (1.0 + 1e-4) * lengths * headings + 1e-6 * headings))


def test_the_linear_maximiser_is_the_farthest_point() -> None:
    rng = np.random.default_rng(5)
    directions = rng.standard_normal((50, 3))
    directions[:10, 1:] = 0.0
    drawn = IN_BOX.sample(rng, n=20_000)
    for direction, point in zip(directions, IN_BOX.linear_maximiser(None, directions), strict=True):
        assert IN_BOX.contains(None, point)
        assert point @ direction >= np.max(drawn @ direction) - 1e-4


def test_interior_points_keep_away_from_both_spheres() -> None:
    point = ALONE.interior_point(dimension=3)
    assert np.linalg.norm(point) == pytest.approx(0.875, rel=1e-4)
    states = np.array([[0.2, 0.1], [1.0, 0.5]])
    norms = np.linalg.norm(SETS["of the state"].interior_point(states), axis=-1)
    np.testing.assert_allclose(norms, [0.25, 1.25], rtol=1e-4)


def test_a_moving_box_cuts_the_shell() -> None:
    constraint = Shell(0.5, 1.0) & RateLimit(0.2, previous=obs[0:2])
    previous = np.array([[0.4, 0.0], [0.0, -0.9], [0.6, 0.6]])
    projected = constraint.project(previous, np.zeros((3, 2)))
    assert np.all(constraint.violation(previous, projected) <= 0)
    with pytest.raises(EmptySetError, match=r"\|a\| >= 0.5"):
        constraint.project(np.array([0.0, 0.0]), np.zeros(2))
    compiled = jax.jit(constraint.project)(np.float32([[0.4, 0.0], [0.0, 0.0]]), np.float32([[0, 0], [0, 0]]))
    assert np.isfinite(compiled[0]).all() and np.isnan(compiled[1]).all()


def test_gradients_are_those_of_the_scaling() -> None:
    with jax.enable_x64(True):
        actions = np.array([[0.1, 0.2, -0.1], [2.0, 1.0, -1.0], [0.7, 0.1, 0.0]])
        for action in actions:
            jacobian = jax.jacobian(lambda a: ALONE.project(None, a))(jax.numpy.asarray(action))
            for column in range(3):
                step = 1e-6 * np.eye(3)[column]
                change = (ALONE.project(None, action + step) - ALONE.project(None, action - step)) / 2e-6
                np.testing.assert_allclose(jacobian[:, column], change, atol=1e-5)


def test_a_shell_survives_json_and_prints_as_a_formula() -> None:
    for constraint in SETS.values():
        again = Constraint.from_json(json.loads(json.dumps(constraint.to_json())))
        state, action = np.array([0.4, 0.3]), np.array([0.1, 0.2, 0.05])
        np.testing.assert_array_equal(again.project(state, action), constraint.project(state, action))
    assert OF_STATE.formula() == "obs[0] <= |a| <= obs[0] + obs[1]"
    assert isinstance(IN_BOX, Intersection)
    assert "|a| >= 0.5" in ALONE.explain(None, [0.1, 0.1])


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "Shell"},
        {"kind": "Shell", "lower": 0.5},
        {"kind": "Shell", "lower": "a", "upper": 1.0},
        {"kind": "Shell", "lower": [0.1, 0.2], "upper": 1.0},
        {"kind": "Shell", "lower": {"number": "inf"}, "upper": 1.0},
        {
            "kind": "Shell",
            "lower": 0.5,
            "upper": {"constraint": {"kind": "Shell", "lower": 0.1, "upper": 0.2}},
        },
        {"kind": "Shell", "lower": 0.5, "upper": 1.0, "middle": 0.7},
        {"kind": "Shell", "lower": None, "upper": None},
    ],
    ids=str,
)
def test_a_damaged_file_is_refused(data: Any) -> None:
    with pytest.raises(ConstraintError, match=r"\.$"):
        Constraint.from_json(data)


def test_shells_that_leave_no_action_are_refused() -> None:
    for lower, upper in ((1.0, 0.5), (1.0, 1.0), (1.0, 1.0 + 1e-6), (0.0, -1.0)):
        with pytest.raises(EmptySetError, match="set them farther apart"):
            Shell(lower, upper)
    with pytest.raises(ConstraintError, match=r"Ball\(radius=upper\)"):
        Shell(-0.5, 1.0)
    with pytest.raises(EmptySetError, match=r"\|a\| >= 4"):
        Shell(4.0, 5.0) & Box(-UNIT, UNIT)
    with pytest.raises(EmptySetError):
        OF_STATE.project([0.5, -0.1], [0.1, 0.2, 0.3])


def test_sets_without_a_closed_form_are_refused_with_a_remedy() -> None:
    for other in (Ball(radius=1.0), Shell(0.1, 0.2), Polytope([[1.0, 1.0, 1.0]], [1.0])):
        with pytest.raises(ConstraintError, match="boxes and rate limits alone"):
            ALONE & Box(-UNIT, UNIT) & other


def test_check_constraint_finds_no_fault() -> None:
    from inbounds.constraints import check_constraint

    for constraint in SETS.values():
        report = check_constraint(constraint, np.array([[0.4, 0.3], [0.2, 0.5]]), dimension=3)
        assert report.is_sound, str(report)
