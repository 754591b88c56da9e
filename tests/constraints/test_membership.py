"""Prepared membership tests: the same answers as `accepts`, for every kind of set and every way to read weights."""

from __future__ import annotations

import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints import Constraint
from inbounds.constraints.situation import Situation
from inbounds.deploy.acting import membership_test
from inbounds.errors import InvalidInputError

D, SIZE = 4, 9
SETS = [
    ib.WeightedL1(weights=ib.obs[2:6], bound=2.0),
    ib.WeightedL1(weights=ib.obs[2:6] * 3.0, bound=5.0),
    ib.WeightedL1(weights=ib.obs[2:6] + 0.5, bound=2.0),
    ib.WeightedL1(weights=ib.obs[-4:], bound=2.0),
    ib.WeightedL1(weights=ib.obs[[5, 2, 8, 0]], bound=2.0),
    ib.WeightedL1(weights=ib.obs[1], bound=1.0),
    ib.WeightedL1(weights=ib.obs[0:8:2], bound=2.0),
    ib.WeightedL1(weights=ib.previous_action, bound=2.0),
    ib.WeightedL1(weights=[1.0, -2.0, 0.0, 3.0], bound=ib.obs[0] + 2.0),
    ib.WeightedL1(weights=[1.0, -2.0, 0.0, 3.0], bound=2.0),
    ib.WeightedL1(weights=2.0, bound=4.0),
    ib.PowerBudget(weights=ib.obs[2:6], bound=1.0),
    ib.PowerBudget(weights=[1.0, -2.0, 0.0, 3.0], bound=1.0),
    ib.PowerBudget(weights=1.0, bound=1.0),
    ib.Ball(radius_squared=1.5),
    ib.Ball(radius_squared=ib.obs[3] + 2.0),
    ib.Box(-0.8, 0.8),
    ib.RateLimit(0.9),
    ib.SumBand(total=0.5, tolerance=1.0),
    ib.Box(-0.5, 0.5) | ib.Ball(radius_squared=0.5),
]


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_a_prepared_test_answers_as_the_set_does(constraint: Constraint) -> None:
    rng = np.random.default_rng(0)
    accepts = membership_test(constraint, SIZE, D)
    answers = []
    for _ in range(20):
        seen, before, actions = rng.normal(size=SIZE), rng.uniform(-1, 1, D), rng.uniform(-1, 1, (50, D))
        wanted = constraint.accepts(Situation(np, np.float64, seen, before), actions)
        np.testing.assert_array_equal(accepts(seen, before, actions), wanted)
        assert bool(accepts(seen, before, actions[0])) == wanted[0]
        answers.append(wanted)
    assert 0.02 < np.mean(answers) < 0.98


@pytest.mark.parametrize("constraint", SETS, ids=repr)
def test_what_is_no_number_is_never_accepted(constraint: Constraint) -> None:
    accepts = membership_test(constraint, SIZE, D)
    actions = np.full((2, D), np.nan)
    actions[1, 1:] = 0.0
    with np.errstate(invalid="ignore"):
        assert not accepts(np.ones(SIZE), np.zeros(D), actions).any()


@pytest.mark.parametrize("kind", [ib.WeightedL1, ib.PowerBudget])
def test_the_margin_is_that_of_contains(kind: type[ib.WeightedL1]) -> None:
    constraint = kind(weights=ib.obs[0:D], bound=1.0)
    accepts = membership_test(constraint, SIZE, D)
    for miss in (-1.1e-6, -0.9e-6, 0.0, 1e-9):
        action = np.array([1.0 + miss, 0.0, 0.0, 0.0])
        assert bool(accepts(np.ones(SIZE), None, action)) == bool(constraint.contains(np.ones(SIZE), action))
        assert bool(accepts(np.ones(SIZE), None, action)) == (miss < -1e-6)


def test_entries_that_an_observation_does_not_have_are_refused_with_a_remedy() -> None:
    accepts = membership_test(ib.WeightedL1(weights=ib.obs[7:11], bound=1.0), SIZE, D)
    with pytest.raises(InvalidInputError, match="has only 9 entries"):
        accepts(np.zeros(SIZE), None, np.zeros(D))


def test_a_set_derived_from_a_known_kind_is_asked_itself() -> None:
    class Nothing(ib.Ball):
        def accepts(self, at: Situation, action: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
            return np.zeros(action.shape[:-1], bool)

    assert not membership_test(Nothing(radius_squared=1.0), SIZE, D)(np.zeros(SIZE), None, np.zeros(D))
