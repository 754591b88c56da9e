"""Unions: allowed by one member is allowed, and the nearest point is the nearest of the members' nearest."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Constraint, Polytope, SumBand, Union, WeightedL1, obs
from inbounds.errors import ConstraintError, EmptySetError

DISC = Ball(radius_squared=0.25)
TILE = Box([1.0, -1.0], [2.0, 1.0])
SLOPE = Polytope([[1.0, 1.0]], [-2.0])
BOX = Box([-3.0, -3.0], [3.0, 3.0])
MODES = (DISC | TILE | SLOPE) & BOX


def test_an_action_of_any_member_is_allowed() -> None:
    actions = np.array([[0.0, 0.0], [1.5, 0.0], [-2.0, -1.5], [0.8, 0.0]])
    np.testing.assert_array_equal(MODES.contains(None, actions), [True, True, True, False])


def test_the_violation_is_that_of_the_member_that_is_broken_least() -> None:
    assert (DISC | TILE).violation(None, [0.9, 0.0]) == pytest.approx(0.1)
    assert (DISC | TILE).violation(None, [0.52, 0.0]) == pytest.approx(0.52**2 - 0.25)


def test_no_allowed_point_is_nearer_than_the_projection() -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-4.0, 4.0, size=(400, 2))
    projected = MODES.project(None, actions)
    assert np.all(MODES.contains(None, projected)) and np.all(MODES.violation(None, projected) <= 0)
    assert MODES.project(None, projected).tobytes() == projected.tobytes()
    rivals = rng.uniform(-3.0, 3.0, size=(60_000, 2))
    rivals = rivals[MODES.contains(None, rivals)]
    for action, point in zip(actions[:60], projected[:60], strict=True):
        nearest = np.min(np.linalg.norm(rivals - action, axis=-1))
        assert np.linalg.norm(point - action) <= nearest + 1e-5
    assert MODES.projection_is_exact


@pytest.mark.sweep
def test_compiled_projections_choose_the_same_member() -> None:
    actions = np.random.default_rng(1).uniform(-4.0, 4.0, size=(60, 2)).astype(np.float32)
    projected = np.asarray(jax.jit(lambda action: MODES.project(None, action))(actions))
    np.testing.assert_allclose(projected, MODES.project(None, actions), atol=1e-4)
    assert np.all(MODES.violation(None, projected.astype(np.float64)) <= 0)


def test_a_box_cuts_every_member() -> None:
    for joint in (BOX & (DISC | TILE), (DISC | TILE) & BOX):
        assert isinstance(joint, Union)
        assert all(member.size() == 2 for member in joint.constraints)
    only_disc = (DISC | Box([5.0, 5.0], [6.0, 6.0])) & BOX
    assert not isinstance(only_disc, Union)
    with pytest.raises(EmptySetError):
        (Box([5.0, 5.0], [6.0, 6.0]) | Box([-6.0, -6.0], [-5.0, -5.0])) & BOX


def test_a_member_that_is_empty_in_one_state_leaves_the_others() -> None:
    constraint = (SumBand(total=obs[0], tolerance=0.1) & Box([0.0, 0.0], [1.0, 1.0])) | TILE
    states = np.array([[0.5], [9.0], [1.2]])
    projected = constraint.project(states, np.array([[0.2, 0.2], [0.2, 0.2], [0.3, 0.5]]))
    np.testing.assert_allclose(projected, [[0.2, 0.2], [1.0, 0.2], [0.45, 0.65]], atol=1e-4)
    assert np.all(constraint.violation(states, projected) <= 0)


def test_a_union_without_any_action_is_refused_when_it_happens() -> None:
    constraint = (SumBand(total=obs[0], tolerance=0.1) & BOX) | (
        SumBand(total=obs[0] + 1.0, tolerance=0.1) & BOX
    )
    with pytest.raises(EmptySetError, match="every member is empty"):
        constraint.project([90.0], [0.0, 0.0])


def test_the_interior_point_lies_in_a_member_that_has_one() -> None:
    assert MODES.contains(None, MODES.interior_point())
    constraint = (SumBand(total=obs[0], tolerance=0.1) & Box([0.0, 0.0], [1.0, 1.0])) | TILE
    assert constraint.contains([9.0], constraint.interior_point([9.0]))


def test_distances_end_where_the_member_does() -> None:
    assert MODES.distance(None, [0.0, 0.0], [1.0, 0.0]) == pytest.approx(0.5, rel=1e-5)
    assert MODES.distance(None, [1.2, 0.0], [1.0, 0.0]) == pytest.approx(0.8, rel=1e-5)
    assert MODES.distance(None, [0.8, 0.0], [1.0, 0.0]) == 0.0


def test_draws_fall_in_each_member_in_proportion_to_its_area() -> None:
    constraint = (DISC | TILE) & BOX
    drawn = constraint.sample(np.random.default_rng(2), n=4_000)
    assert np.all(constraint.contains(None, drawn))
    share = np.mean(drawn[:, 0] > 0.75)
    expected = 2.0 / (2.0 + 0.25 * np.pi)
    assert abs(share - expected) < 4.0 * np.sqrt(expected * (1 - expected) / 4_000)


def test_members_too_small_for_rejection_are_still_drawn_from() -> None:
    constraint = Box([-3.0, -3.0], [-3.0 + 1e-4, -3.0 + 1e-4]) | Box([2.9999, 2.9999], [3.0, 3.0])
    drawn = constraint.sample(np.random.default_rng(3), n=200)
    assert np.all(constraint.contains(None, drawn))
    assert 0.3 < np.mean(drawn[:, 0] > 0) < 0.7


def test_unions_flatten_and_survive_json() -> None:
    constraint = DISC | (TILE | WeightedL1(weights=obs[0:2], bound=1.0))
    assert isinstance(constraint, Union) and len(constraint.constraints) == 3
    again = Constraint.from_json(json.loads(json.dumps(constraint.to_json())))
    action = np.array([0.7, 0.3])
    np.testing.assert_array_equal(again.project([1.0, 2.0], action), constraint.project([1.0, 2.0], action))
    assert not constraint.is_constant()
    assert "or" in constraint.explain([1.0, 2.0], action)


def test_members_of_different_dimensions_are_refused() -> None:
    with pytest.raises(ConstraintError, match="cannot be joined"):
        TILE | Box([0.0], [1.0])
    with pytest.raises(ConstraintError, match="no constraints"):
        Union(())


@pytest.mark.parametrize("given", [(TILE, 3), (Box,), Box, TILE, 3, "ab"], ids=str)
def test_what_is_no_list_of_constraints_is_refused(given: Any) -> None:
    with pytest.raises(
        ConstraintError, match=r"is not a (list of constraints|constraint)\. Join sets .* with \|"
    ):
        Union(given)
