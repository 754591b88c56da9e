"""The checker: sound constraints pass, and each way of being wrong is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Oracle,
    Polytope,
    PowerBudget,
    RateLimit,
    Simplex,
    SumBand,
    WeightedL1,
    check_constraint,
    obs,
)
from inbounds.errors import ConstraintError, InvalidInputError
from tests.constraints.memberships import in_rings
from tests.slices import quick_slice

SQUARE = Box(-np.ones(2), np.ones(2))
SOUND: dict[str, Constraint] = {
    "box": Box([-1.0, 0.0, -3.0], [1.0, 0.5, 5.0]),
    "ball": Ball(radius_squared=0.5) & SQUARE,
    "ellipsoid": Ellipsoid(matrix=[[2.0, 0.5], [0.5, 1.0]], bound=1.0) & SQUARE,
    "weighted l1": WeightedL1(weights=obs[0:2], bound=0.7) & SQUARE,
    "power budget": PowerBudget(weights=[2.0, -1.0], bound=0.5) & SQUARE,
    "sum band": SumBand(total=0.3, tolerance=0.2) & SQUARE,
    "simplex": Simplex(total=1.0, high=0.8) & Box(np.zeros(3), np.ones(3)),
    "polytope": Polytope([[1.0, 2.0], [3.0, -1.0]], [1.0, 1.0]) & SQUARE,
    "unbounded polytope": Polytope([[1.0, 2.0]], [1.0]),
    "union": (Ball(radius_squared=0.2) | Box([1.0, 1.0], [2.0, 2.0])) & Box([-3.0, -3.0], [3.0, 3.0]),
    "oracle": Oracle(in_rings, within=Box([-2.0, -2.0], [2.0, 2.0]), is_batched=True, samples=60),
}


@pytest.mark.parametrize("name", quick_slice(SOUND, SOUND.keys() - {"ellipsoid"}))
def test_the_constraints_of_the_library_are_sound(name: str) -> None:
    report = check_constraint(SOUND[name], np.array([[1.0, 2.0], [-0.5, 0.1]]))
    assert report.is_sound, str(report)
    report.raise_faults()
    assert "no fault found" in str(report)


class Wrong(Ball):
    """A ball of radius 1 that one of its methods describes wrongly."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        super().__init__(radius_squared=1.0)
        self.__dict__.update(methods)

    def parameters(self) -> dict[str, Any]:
        return {}


class Star(Wrong):
    """A set that is not convex but claims to be a convex one."""

    def level(self, at: Any, action: Any) -> Any:
        return np.sum(np.sqrt(np.abs(action)), axis=-1) ** 2

    def nearest(self, at: Any, action: Any) -> Any:
        level = self.level(at, action)
        return action * np.where(level > 0.99, 0.99 / np.maximum(level, 0.5), 1.0)[..., None]

    def reach(self, at: Any, point: Any, direction: Any) -> Any:
        return 0.98 / self.level(at, direction)


TRUE_BALL = Ball(radius_squared=1.0)

WRONG: dict[str, tuple[Constraint, str]] = {
    "accepts too much": (Wrong(accepts=lambda at, a: np.sum(a * a, axis=-1) <= 1.2), "contains accepts"),
    "accepts too little": (Wrong(accepts=lambda at, a: np.sum(a * a, axis=-1) <= 0.5), "contains refuses"),
    "projects to the centre": (Wrong(nearest=lambda at, a: 0.0 * a), "nearer"),
    "clips instead of projecting": (
        Wrong(nearest=lambda at, a: np.clip(a, -0.70710, 0.70710)),
        "nearer",
    ),
    "interior point outside": (Wrong(interior=lambda at, d: np.full(d, 5.0)), "misses by"),
    "reaches too far": (
        Wrong(reach=lambda at, p, v: 1.5 * TRUE_BALL.reach(at, p, v)),
        "distance",
    ),
    "reaches too short": (
        Wrong(reach=lambda at, p, v: 0.5 * TRUE_BALL.reach(at, p, v)),
        "ends before the set does",
    ),
    "wrong shape": (
        Wrong(excess=lambda at, a: np.sum(a * a) - np.ones(1)),
        "shape",
    ),
    "depends on the batch": (
        Wrong(excess=lambda at, a: (np.sum(a * a, axis=-1) - 1.0 - 0.1 * (a.ndim > 1))[..., None]),
        "in a batch",
    ),
    "row without a name": (Wrong(row_names=lambda at, d: []), "names"),
    "not convex": (Star(), "between"),
    "crashes": (Wrong(nearest=lambda at, a: a.no_such_attribute), "AttributeError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    constraint, message = WRONG[name]
    report = check_constraint(constraint, dimension=2)
    assert not report.is_sound
    assert message in str(report), str(report)
    with pytest.raises(ConstraintError, match="does not keep its promises"):
        check_constraint(constraint, dimension=2, raise_on_fault=True)


def test_a_set_that_is_empty_in_some_observation_is_reported_with_it() -> None:
    constraint = SumBand(total=obs[0], tolerance=0.1) & SQUARE
    report = check_constraint(constraint, np.array([[0.0], [5.0], [7.0]]))
    assert not report.is_sound
    assert "in 2 of 3" in str(report) and "no action satisfies" in str(report)


def test_members_that_never_decide_are_noted() -> None:
    report = check_constraint(Ball(radius_squared=50.0) & SQUARE)
    assert report.is_sound
    assert "never by itself: sum_i a_i^2 <= 50" in str(report)


def test_what_cannot_be_written_to_json_is_noted() -> None:
    report = check_constraint(Oracle(lambda o, a: bool(a[0] > 0), within=SQUARE, samples=30))
    assert report.is_sound
    assert "cannot be written to JSON" in str(report)


def test_a_previous_action_can_be_given() -> None:
    constraint = RateLimit(0.2) & Ball(radius_squared=1.0)
    assert check_constraint(constraint, dimension=2, previous_action=[0.5, 0.5]).is_sound
    assert not check_constraint(constraint, dimension=2).is_sound


def test_unusable_questions_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="dimension="):
        check_constraint(Ball(radius_squared=1.0))
    with pytest.raises(InvalidInputError, match=r"\(n, size\)"):
        check_constraint(SQUARE, np.zeros((2, 2, 2)))
