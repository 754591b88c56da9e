"""Acting in one state: the first feasible draw, whatever the blocks in which draws are checked, and clear refusals."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints import Constraint
from inbounds.deploy.policy import load
from inbounds.errors import InvalidInputError
from inbounds.policies.heads import SquashedGaussian
from tests.deploy.run_folders import random_run

D, SIZE = 3, 7
BOX = ib.Box(-np.ones(D), np.ones(D))


def test_blocks_of_proposals_end_with_one_projection(tmp_path: Path) -> None:
    narrow = ib.Ball(radius_squared=1e-6) & BOX
    run = random_run(tmp_path / "run", narrow, D, SIZE, head=SquashedGaussian(proposals=45))
    policy = load(run)
    drawn: list[int] = []
    noise = policy.noise
    policy.noise = lambda count: drawn.append(count) or noise(count)  # type: ignore[method-assign, func-returns-value]
    policy.block = 20
    action = policy.act(np.zeros(SIZE))
    assert drawn == [1, 20, 20, 4] and policy.projections == 1
    assert narrow.violation(None, action.astype(np.float64)) <= 0


def test_seeded_draws_repeat(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", BOX, D, SIZE)
    first, second = load(run), load(run)
    for observation in np.random.default_rng(0).standard_normal((3, SIZE)):
        np.testing.assert_array_equal(first.act(observation), second.act(observation))


def test_a_student_target_draws_heavier_tails_than_a_normal_one(tmp_path: Path) -> None:
    box = BOX
    student = SquashedGaussian(proposals=5, student_df=2.5)
    policy = load(random_run(tmp_path / "run", box, D, SIZE, head=student))
    assert np.abs(policy.noise(4000)).max() > 7.0


@pytest.mark.parametrize(
    ("observation", "previous"),
    [
        (np.zeros(SIZE + 1), None),
        (np.full(SIZE, np.nan), None),
        (np.full(SIZE, np.inf), None),
        ("a", None),
        (None, None),
        ([[0.0], [0.0, 1.0]], None),
        ({"power": 1.0}, None),
        (np.zeros(SIZE), np.zeros(D + 1)),
        (np.zeros(SIZE), np.full(D, np.nan)),
        (np.zeros(SIZE), "a"),
        (np.zeros(SIZE, complex), None),
        (np.ma.array(np.zeros(SIZE), mask=[1] * SIZE), None),
        (np.zeros(SIZE), np.zeros(D, complex)),
        (np.zeros(SIZE), np.ma.array(np.zeros(D), mask=[1] * D)),
    ],
)
def test_what_is_not_one_finite_state_is_refused(observation: Any, previous: Any, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", ib.RateLimit(0.1) & BOX, D, SIZE)
    with pytest.raises(InvalidInputError, match=r"expect.*Pass|real numbers.*Pass|Fill them in"):
        load(run).act(observation, previous_action=previous)


@pytest.mark.parametrize(
    "noise", ["a", 0.0, np.zeros(D), np.zeros((0, D)), np.zeros((2, D + 1)), [[0.0], [0.0, 1.0]]]
)
def test_noise_that_is_no_row_for_each_proposal_is_refused(noise: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"noise of shape \(N, 3\) is expected.*Pass one row"):
        load(random_run(tmp_path / "run", BOX, D, SIZE)).decide(np.zeros(SIZE), noise)


def test_a_rate_limit_is_kept_from_action_to_action(tmp_path: Path) -> None:
    limited = ib.RateLimit(0.1) & BOX
    policy = load(random_run(tmp_path / "run", limited, D, SIZE))
    actions = [np.zeros(D, np.float32)]
    for observation in np.random.default_rng(0).standard_normal((30, SIZE)):
        actions.append(policy.act(observation, previous_action=actions[-1]))
    steps = [np.abs(after.astype(np.float64) - before).max() for before, after in itertools.pairwise(actions)]
    assert 0.05 < max(steps) <= 0.1


@pytest.mark.parametrize(
    "limited",
    [
        ib.WeightedL1(weights=ib.obs[2:5], bound=1.2) & BOX,
        ib.PowerBudget(weights=ib.obs[2:5] * 2.0, bound=0.8) & BOX,
        ib.Ball(radius_squared=1.2) & BOX,
        ib.SumBand(total=ib.obs[0] * 0.2, tolerance=0.5) & BOX,
    ],
    ids=lambda limited: type(limited.members()[0]).__name__,
)
def test_the_action_is_that_of_judging_the_draws_one_by_one(limited: Constraint, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", limited, D, SIZE, head=SquashedGaussian(proposals=300))
    policies = [load(run) for _ in range(3)]
    for policy, size in zip(policies, (1, 7, 100), strict=True):
        policy.block = size
    one_by_one, *others = policies
    for observation in np.random.default_rng(0).standard_normal((50, SIZE)):
        wanted = one_by_one.act(observation)
        assert limited.violation(observation, wanted.astype(np.float64)) <= 0
        for policy in others:
            np.testing.assert_allclose(policy.act(observation), wanted, rtol=1e-6, atol=1e-7)
    # Many are accepted, and not all of them at once.
    assert one_by_one.projections < 40 and one_by_one.proposals_checked > 100
    # The share that is reported does not depend on how many are checked at once.
    counted = {(policy.proposals_checked, policy.proposals_accepted) for policy in policies}
    assert counted == {(one_by_one.proposals_checked, 50 - one_by_one.projections)}


def test_an_action_may_be_written_into(tmp_path: Path) -> None:
    narrow = ib.Ball(radius_squared=0.05) & BOX
    run = random_run(tmp_path / "run", narrow, D, SIZE, head=SquashedGaussian(proposals=300))
    used, untouched = load(run), load(run)
    for observation in np.random.default_rng(0).standard_normal((20, SIZE)):
        action = used.act(observation)
        np.testing.assert_array_equal(action, untouched.act(observation))
        action[:] = np.nan


@pytest.mark.parametrize("name", ["weights", "rate", "union"])
def test_a_policy_that_was_sent_to_another_process_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    limits = {
        "weights": ib.WeightedL1(ib.obs[0:D], 1.0) & BOX,
        "rate": ib.RateLimit(0.5, previous=ib.obs[0:D]) & BOX,
        "union": ib.Ball(radius=0.5) | ib.Box(np.full(D, 0.4), np.ones(D)),
    }
    policy = load(random_run(tmp_path / "run", limits[name], D, SIZE))
    states = np.random.default_rng(0).standard_normal((20, SIZE)) * 0.2
    for state in states:
        policy.act(state)
    sent = pickle.loads(pickle.dumps(policy))
    assert sent.rng is not policy.rng and sent.proposals_checked == policy.proposals_checked > 0
    for state in states:
        np.testing.assert_array_equal(sent.act(state), policy.act(state))
    for state in states:
        np.testing.assert_array_equal(copy.deepcopy(sent).act(state), sent.act(state))


@pytest.mark.parametrize("entry", [1e39, 1e155])
def test_an_observation_that_float32_cannot_hold_is_named(entry: float, tmp_path: Path) -> None:
    policy = load(random_run(tmp_path / "run", BOX, D, SIZE))
    huge = np.array([entry, *np.zeros(SIZE - 1)])
    with (
        np.errstate(over="ignore"),
        pytest.raises(InvalidInputError, match="7 finite entries that float32 can hold"),
    ):
        policy.act(huge)
    assert np.isfinite(policy.act(huge / entry * 1e38)).all()
