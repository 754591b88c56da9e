"""Overflow and thin sets in deployment: an infeasible number never leaves, whatever proposes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints import Constraint
from inbounds.deploy.acting import PROJECTED, UNANSWERED
from inbounds.deploy.export import export
from inbounds.deploy.export_check import session
from inbounds.deploy.policy import load
from inbounds.errors import EmptySetError, InvalidInputError
from tests.deploy.run_folders import random_run

CROSSED = ib.Ellipsoid([[4.0, -3.0], [-3.0, 4.0]], 1.0)
SQUARE = ib.Box(-np.ones(2), np.ones(2))
ROWS = [[1.0, -1.0], [-1.0, 1.0]]
THIN = ib.Polytope(ROWS, [2.1e-8, -1.1e-8]) & ib.Box([0.6, 0.6], [0.9, 0.9])
"""Without any float32 number: differences of these are multiples of 6e-8."""
SIZE = 5
FEASIBLE = np.array([0.1, 0.1])


def excess(constraint: Constraint, action: Any, observation: Any = None) -> float:
    return float(
        constraint.violation(observation, np.asarray(action, np.float64), previous_action=np.zeros(2))
    )


# The filter


@pytest.mark.parametrize(
    ("constraint", "correction"),
    [
        (CROSSED, "ray"),
        (CROSSED, "projection"),
        (CROSSED & SQUARE, "quickest"),
        (ib.Ball(radius_squared=1.0), "ray"),
        (ib.Polytope(ROWS, 1.0), "projection"),
    ],
    ids=str,
)
def test_the_filter_returns_a_feasible_action_for_any_finite_one(
    constraint: Constraint, correction: Any
) -> None:
    safety = ib.SafetyFilter(constraint, correction=correction)
    for action in ([1e150, 1e160], [1e308, 1e308], [-1e155, 1e155]):
        executed = safety.correct(None, np.array(action))
        assert excess(constraint, executed) <= 0
    assert safety.metrics()["calls"] == safety.metrics()["interventions"] + safety.metrics()["passed"]
    assert all("nan" not in entry.reason for entry in safety.interventions())


@pytest.mark.parametrize("constraint", [ib.PowerBudget, ib.WeightedL1])
def test_the_filter_refuses_every_action_where_weights_overflow(constraint: Any) -> None:
    read = constraint(10.0 * ib.obs[0:2], 1.0) & SQUARE
    safety = ib.SafetyFilter(read)
    np.testing.assert_array_equal(safety.correct([1.0, 1.0], 0.1 * FEASIBLE), 0.1 * FEASIBLE)
    for action in (FEASIBLE, -FEASIBLE, np.zeros(2)):
        with pytest.raises(EmptySetError, match="overflow"):
            safety.correct([1e308, 1e308], action)
    assert safety.interventions()[-1].kind == "refused"


def test_a_held_action_is_not_repeated_where_its_excess_overflows() -> None:
    moving = ib.WeightedL1(10.0 * ib.obs[0:2], 1.0) & ib.RateLimit(0.5) & SQUARE
    safety = ib.SafetyFilter(moving, on_invalid_action="hold", previous_action=np.zeros(2))
    safety.correct([1.0, 1.0], 0.1 * FEASIBLE)
    with pytest.raises(EmptySetError, match="overflow"):
        safety.correct([1e308, 1e308], np.full(2, np.nan))


@pytest.mark.parametrize("correction", ["ray", "projection"])
def test_the_filter_says_that_a_set_lies_between_the_numbers_of_a_type(correction: Any) -> None:
    for action in np.random.default_rng(0).uniform(0.5, 1.0, (20, 2)):
        with pytest.raises(EmptySetError, match="no float32 action"):
            ib.SafetyFilter(THIN, correction=correction).correct(None, action.astype(np.float32))
        executed = ib.SafetyFilter(THIN, correction=correction).correct(None, action)
        assert excess(THIN, executed) <= 0


def test_the_interior_point_that_stands_in_is_checked_as_the_number_that_leaves() -> None:
    safety = ib.SafetyFilter(THIN, on_invalid_action="interior_point", dtype=np.float32)
    with pytest.raises(EmptySetError, match="no float32 action"):
        safety.correct(None, np.full(2, np.nan))


# The policy and its graph


def test_a_policy_says_that_a_set_lies_between_the_numbers_of_its_actions(tmp_path: Path) -> None:
    policy = load(random_run(tmp_path / "run", THIN, 2, SIZE))
    for observation in np.random.default_rng(0).standard_normal((10, SIZE)):
        for deterministic in (False, True):
            with pytest.raises(EmptySetError, match="no float32 action"):
                policy.act(observation, deterministic=deterministic)


def test_a_policy_finds_the_numbers_of_a_thin_set(tmp_path: Path) -> None:
    equal = ib.Polytope(ROWS, [1e-9, 1e-9]) & ib.Box([0.6, 0.6], [0.9, 0.9])
    policy = load(random_run(tmp_path / "run", equal, 2, SIZE))
    for observation in np.random.default_rng(0).standard_normal((20, SIZE)):
        action = policy.act(observation)
        assert action.dtype == np.float32 and excess(equal, action) <= 0


SETS = {
    "power budget": ib.PowerBudget(1e300 * ib.obs[0:2], 1.0) & SQUARE,
    "box": ib.Box(-1.0, 1e300 * ib.obs[0]) & SQUARE,
    "ball": ib.Ball(radius_squared=1e300 * ib.obs[0]) & SQUARE,
}


@pytest.mark.parametrize("name", SETS)
def test_neither_policy_nor_graph_acts_where_a_parameter_overflows(name: str, tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", SETS[name], 2, SIZE)).path
    policy, graph = load(folder), session(folder)
    noise = np.random.default_rng(0).standard_normal((10, 2)).astype(np.float32)
    for sign in (1.0, -1.0):
        seen = np.array([sign * 1e20, sign * 1e20, 0.0, 0.0, 0.0])
        action, accepted = graph.run(None, {"observation": seen, "noise": noise})
        assert np.isnan(action).all() and accepted == UNANSWERED
        with np.errstate(all="ignore"), pytest.raises(EmptySetError, match="overflow"):
            policy.decide(seen, noise)
    seen = np.full(SIZE, 1e-300)
    action, accepted = graph.run(None, {"observation": seen, "noise": noise})
    assert accepted >= PROJECTED and excess(SETS[name], action, seen) <= 0


HUGE = {
    "a rate limit in a union": (ib.RateLimit(0.1) | ib.Box([0.2, 0.2], [0.5, 0.5])) & SQUARE,
    "a reading": ib.Box(-1.0, 1e300 * ib.obs[0:2]) & SQUARE,
    "an expression": ib.Polytope(ROWS * 2, 5e289 * ib.obs[0:4] * ib.obs[4]) & SQUARE,
}


@pytest.mark.parametrize("name", HUGE)
def test_the_graph_acts_on_numbers_whose_sum_overflows_as_on_others(name: str, tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", HUGE[name], 2, SIZE)).path
    policy, graph = load(folder), session(folder)
    seen, before = np.array([1e8, 1e8, 1e8, 1e8, 1e10]), np.array([-1.7e308, -1e308])
    noise = np.random.default_rng(0).standard_normal((10, 2)).astype(np.float32)
    given: dict[str, Any] = {"observation": seen, "noise": noise, "previous_action": before}
    action, accepted = graph.run(None, {entry.name: given[entry.name] for entry in graph.get_inputs()})
    assert accepted == policy.decide(seen, noise, previous_action=before).accepted
    violation = HUGE[name].violation(seen, action.astype(np.float64), previous_action=before)
    assert violation <= 0


def test_the_graph_heeds_rows_of_subnormal_numbers(tmp_path: Path) -> None:
    tiny = ib.Polytope([[1.0, 0.0], [1e-310, 0.0], [0.0, -1e-310]], [-0.1, -5e-311, 5e-311]) & SQUARE
    folder = export(random_run(tmp_path / "run", tiny, 2, SIZE)).path
    graph, noise = session(folder), np.full((10, 2), 5.0, np.float32)
    for seen in np.random.default_rng(0).standard_normal((10, SIZE)):
        action, _ = graph.run(None, {"observation": seen, "noise": noise})
        assert excess(tiny, action) <= 0


def test_the_graph_says_that_a_set_lies_between_the_numbers_of_its_actions(tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", THIN, 2, SIZE)).path
    graph, rng = session(folder), np.random.default_rng(0)
    for observation in rng.standard_normal((10, SIZE)):
        noise = rng.standard_normal((10, 2)).astype(np.float32)
        action, accepted = graph.run(None, {"observation": observation, "noise": noise})
        assert np.isnan(action).all() and accepted == UNANSWERED


def test_noise_that_is_not_finite_never_leads_to_an_action(tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", CROSSED & SQUARE, 2, SIZE)).path
    policy, graph = load(folder), session(folder)
    for wrong in (np.nan, np.inf, -np.inf):
        noise = np.full((10, 2), wrong, np.float32)
        with pytest.raises(InvalidInputError, match="finite"):
            policy.decide(np.zeros(SIZE), noise)
        action, accepted = graph.run(None, {"observation": np.zeros(SIZE), "noise": noise})
        assert accepted == UNANSWERED or excess(CROSSED & SQUARE, action) <= 0
