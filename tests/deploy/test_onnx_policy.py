"""Policies as graphs: whatever the constraint, what leaves the graph is feasible and what numpy would have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Polytope,
    PowerBudget,
    RateLimit,
    Shell,
    Simplex,
    Simplices,
    SumBand,
    WeightedL1,
    host_solvers,
    obs,
)
from inbounds.constraints.functions import log, maximum, sqrt, tanh
from inbounds.deploy.acting import PROJECTED, UNANSWERED
from inbounds.deploy.export import export
from inbounds.deploy.export_check import Comparison, compare, session
from inbounds.deploy.policy import load
from inbounds.policies.heads import SquashedGaussian
from tests.deploy.run_folders import random_run
from tests.slices import quick_slice

D, SIZE = 4, 24
UNIT = Box(-np.ones(D), np.ones(D))
RNG = np.random.default_rng(3)
ROOT = RNG.standard_normal((D, D))
QUADRATIC = ROOT @ ROOT.T + 0.1 * np.eye(D)
ROWS, BOUNDS = RNG.standard_normal((6, D)), RNG.uniform(0.2, 0.6, 6)

FAMILIES: dict[str, Constraint] = {
    "Box": UNIT,
    "Box that is read": Box(obs[0:4] * 0.1 - 1.0, obs[4:8] * 0.1 + 1.0),
    "Ball": Ball(radius_squared=0.2) & UNIT,
    "Ball that is read": Ball(radius_squared=obs[0]) & UNIT,
    "Ball alone": Ball(radius_squared=0.2),
    "Ellipsoid": Ellipsoid(QUADRATIC, 0.2),
    "Ellipsoid that is read": Ellipsoid(obs[0:16].reshape(4, 4), 0.3),
    "WeightedL1": WeightedL1(obs[0:4], 0.4) & UNIT,
    "PowerBudget": PowerBudget(obs[0:4] - 0.3, 0.3) & UNIT,
    "SumBand": SumBand(1.0, 0.1, -1.0, 1.0) & UNIT,
    "SumBand that is read": SumBand(obs[0], 0.05) & UNIT,
    "Simplex": Simplex(1.0, high=0.5) & UNIT,
    "Polytope": Polytope(ROWS, BOUNDS) & UNIT,
    "Polytope alone": Polytope(np.concatenate([ROWS, np.eye(D), -np.eye(D)]), np.full(14, 0.5)),
    "Polytope that is read": Polytope(obs[0:12].reshape(3, 4), 0.3) & UNIT,
    "RateLimit": RateLimit(0.2) & UNIT,
    "RateLimit that is read": RateLimit(obs[0] * 0.0 + 0.3, previous=obs[4:8] * 0.1) & UNIT,
    "RateLimit and Ball": RateLimit(0.2) & Ball(radius_squared=0.4) & UNIT,
    "Polytope and SumBand": Polytope(ROWS, BOUNDS) & SumBand(0.1, 0.05) & UNIT,
    "PowerBudget of expressions": PowerBudget([4, 6, 4, 6] * obs[[5, 7, 10, 12]], 0.5 + obs[0] ** 2) & UNIT,
    "Polytope of expressions": Polytope([[1, obs[0] * obs[1], 0, 0], [0, 1, obs[2], 1]], [0.3, 0.5]) & UNIT,
    "Shell": Shell(0.3, 0.6) & UNIT,
    "Shell that is read": Shell(0.1 + 0.2 * tanh(obs[0]) ** 2, 0.5 + obs[1] ** 2),
    "Simplices": Simplices([[0, 2], [1, 3]], total=[0.5, 0.2 + obs[0] ** 2]),
    "Union": (Ball(radius_squared=0.1) | Box(np.full(D, 0.6), np.ones(D))) & UNIT,
}
SLOW: dict[str, Constraint] = {
    "Ellipsoid and Box": Ellipsoid(QUADRATIC, 0.2) & UNIT,
    "Ball and WeightedL1": Ball(radius_squared=0.3) & WeightedL1(obs[0:4], 0.4) & UNIT,
    "Polytope and Ball": Polytope(ROWS, BOUNDS) & Ball(radius_squared=0.2) & UNIT,
    "Ellipsoid, PowerBudget and SumBand": Ellipsoid(QUADRATIC, 0.4)
    & PowerBudget(obs[0:4], 0.3)
    & SumBand(0.1, 0.1)
    & UNIT,
}
"""Sets without a joint closed form, whose members take turns: a projection takes milliseconds."""


def states(constraint: Constraint, count: int) -> Any:
    observations = np.random.default_rng(1).standard_normal((count, SIZE))
    if constraint is FAMILIES["Ellipsoid that is read"]:
        roots = np.random.default_rng(2).standard_normal((count, D, D))
        observations[:, :16] = (roots @ np.swapaxes(roots, 1, 2)).reshape(count, 16)
    return observations


def compared(folder: Path, constraint: Constraint, count: int, **settings: Any) -> Comparison:
    written = export(random_run(folder / "run", constraint, D, SIZE, **settings))
    assert written.is_feasible_by_construction
    return compare(written.path, observations=states(constraint, count))


def require_agreement(found: Comparison, share_of_projections: float = 0.05) -> None:
    assert found.violations == 0 and found.worst_violation <= 0
    assert found.largest_difference < 1e-5
    assert found.other_choices <= 0.005 * found.states
    assert found.projected >= share_of_projections * found.states, "the projection was hardly tried"


@pytest.mark.parametrize("name", quick_slice(FAMILIES, list(FAMILIES)[::3]))
def test_the_graph_of_every_family_is_feasible_and_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    one = {"head": SquashedGaussian(proposals=1)}
    share = 0.0 if name.startswith("Box that") else 0.05
    require_agreement(compared(tmp_path, FAMILIES[name], 150, **one), share)


def test_sets_whose_members_take_turns_are_written_as_loops_that_stop(tmp_path: Path) -> None:
    one = {"head": SquashedGaussian(proposals=1)}
    require_agreement(compared(tmp_path, SLOW["Ball and WeightedL1"], 20, **one))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, *SLOW])
def test_thousands_of_states_of_every_family_leave_no_violation(name: str, tmp_path: Path) -> None:
    constraint = {**FAMILIES, **SLOW}[name]
    is_iterative = "Polytope" in name or "Ellipsoid" in name
    count = 20 if name in SLOW else 1_000 if is_iterative else 10_000
    require_agreement(compared(tmp_path, constraint, count), 0.0)


def test_the_graph_agrees_where_daqp_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_solvers, "is_available", lambda: False)
    one = {"head": SquashedGaussian(proposals=1)}
    found = compared(tmp_path, FAMILIES["Polytope that is read"], 40, **one)
    require_agreement(found)


def test_the_first_feasible_proposal_is_the_one_taken_and_named(tmp_path: Path) -> None:
    constraint = Ball(radius_squared=2.5) & UNIT
    folder = export(random_run(tmp_path / "run", constraint, D, SIZE), proposals=50).path
    policy, graph, rng = load(folder), session(folder), np.random.default_rng(0)
    named = set()
    for observation in rng.standard_normal((40, SIZE)):
        noise = rng.standard_normal((50, D)).astype(np.float32)
        action, accepted = graph.run(None, {"observation": observation, "noise": noise})
        for row in range(accepted if accepted >= 0 else 50):
            alone = policy.decide(observation, noise[row : row + 1])
            assert alone.accepted == PROJECTED, "a proposal before the accepted one was feasible"
        if accepted >= 0:
            alone = policy.decide(observation, noise[accepted : accepted + 1])
            assert alone.accepted == 0
            np.testing.assert_allclose(alone.action, action, atol=1e-6)
        named.add(int(accepted))
    assert max(named) > 0


def test_noise_of_zeros_gives_the_deterministic_action(tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", WeightedL1(obs[0:4], 2.0), D, SIZE)).path
    policy, graph = load(folder), session(folder)
    seen = set()
    for observation in np.random.default_rng(0).standard_normal((50, SIZE)):
        action, accepted = graph.run(
            None, {"observation": observation, "noise": np.zeros((10, D), np.float32)}
        )
        np.testing.assert_allclose(action, policy.act(observation, deterministic=True), atol=1e-6)
        seen.add(int(accepted))
    assert seen == {0, PROJECTED}


@pytest.mark.parametrize(
    "spoil", [lambda x: np.where(np.arange(SIZE) == 20, np.nan, x), lambda x: x * np.inf]
)
def test_an_observation_that_is_not_finite_never_leads_to_an_action(
    spoil: Callable[[Any], Any], tmp_path: Path
) -> None:
    folder = export(random_run(tmp_path / "run", FAMILIES["Box"], D, SIZE)).path
    noise = np.zeros((10, D), np.float32)
    action, accepted = session(folder).run(None, {"observation": spoil(np.ones(SIZE)), "noise": noise})
    assert np.isnan(action).all() and accepted == UNANSWERED


def test_a_state_without_any_allowed_action_leads_to_none(tmp_path: Path) -> None:
    folder = export(random_run(tmp_path / "run", FAMILIES["Ball that is read"], D, SIZE)).path
    graph, noise = session(folder), np.zeros((10, D), np.float32)
    action, accepted = graph.run(None, {"observation": np.full(SIZE, -1.0), "noise": noise})
    assert np.isnan(action).all() and accepted == UNANSWERED
    action, accepted = graph.run(None, {"observation": np.full(SIZE, 0.1), "noise": noise})
    assert np.isfinite(action).all() and accepted >= PROJECTED


def test_a_state_in_which_an_expression_has_no_value_leads_to_no_action(tmp_path: Path) -> None:
    bound = maximum(log(obs[0]), 0.5) + sqrt(maximum(1.0 - obs[1] ** 2, 0.0))
    folder = export(random_run(tmp_path / "run", Ball(radius_squared=bound) & UNIT, D, SIZE)).path
    graph, noise = session(folder), np.zeros((10, D), np.float32)
    for first, is_defined in ((-1.0, False), (0.0, False), (2.0, True)):
        observation = np.full(SIZE, first)
        action, accepted = graph.run(None, {"observation": observation, "noise": noise})
        assert np.isfinite(action).all() == is_defined and (accepted != UNANSWERED) == is_defined


def test_a_polytope_is_written_as_a_loop_so_that_the_file_stays_small(tmp_path: Path) -> None:
    rows = RNG.standard_normal((40, 12))
    constraint = Polytope(rows, np.ones(40)) & Box(-np.ones(12), np.ones(12))
    written = export(random_run(tmp_path / "run", constraint, 12, SIZE))
    assert written.sizes["policy.onnx"] < 150_000
