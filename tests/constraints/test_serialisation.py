from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    RateLimit,
    Simplex,
    SumBand,
    constraint_from_json,
    constraint_to_json,
    obs,
)
from inbounds.errors import ConstraintError, EmptySetError
from tests.constraints.strategies import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_a_constraint_that_went_through_a_file_gives_the_same_answers(name: str) -> None:
    family = FAMILIES[name]
    text = json.dumps(family.constraint.to_json(), allow_nan=False)
    copy = Constraint.from_json(json.loads(text))
    assert repr(copy) == repr(family.constraint)
    rng = np.random.default_rng(0)
    state = np.abs(rng.normal(size=family.state_size)) * 0.5 + 0.3
    actions = rng.normal(size=(50, family.dimension)) * family.action_scale
    np.testing.assert_array_equal(copy.project(state, actions), family.constraint.project(state, actions))
    np.testing.assert_array_equal(copy.violation(state, actions), family.constraint.violation(state, actions))


@pytest.mark.parametrize(
    "constraint",
    [
        Simplex(),
        Simplex(total=3.0, tolerance=0.01),
        SumBand(total=1.0, tolerance=0.5, low=[-np.inf, 0.0]),
        RateLimit(0.1),
        Box([-1.0, -np.inf], np.inf),
        Ball(radius_squared=0.1),
        Box(obs[0:2] * 2.0 - 1.0, 5.0),
    ],
)
def test_defaults_infinities_and_references_survive(constraint: Constraint) -> None:
    copy = constraint_from_json(json.loads(json.dumps(constraint_to_json(constraint), allow_nan=False)))
    assert repr(copy) == repr(constraint)
    assert copy.size() == constraint.size()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "an object with a 'kind'"),
        ([], "an object with a 'kind'"),
        ({"low": 0}, "an object with a 'kind'"),
        ({"kind": "os.system"}, "no constraint is called 'os.system'"),
        ({"kind": "Constraint"}, "no constraint is called 'Constraint'"),
        ({"kind": "Ball"}, "Ball takes radius= or radius_squared="),
        ({"kind": "Box"}, "Box cannot be built"),
        ({"kind": "Ball", "radius_squared": 1.0, "volume": 2}, "Ball cannot be built"),
        ({"kind": "Ball", "radius_squared": "large"}, "radius_squared is 'large'"),
        (
            {"kind": "Ball", "radius_squared": {"eval": "1"}},
            "neither a constraint, a reference, an expression nor a number",
        ),
        ({"kind": "Ball", "radius_squared": {"number": "nan"}}, "neither a constraint"),
        ({"kind": "Ball", "radius_squared": {"number": [1]}}, "neither a constraint"),
        ({"kind": "Box", "low": [[0.0]], "high": 1.0}, r"low has shape \(1, 1\)"),
        ({"kind": "Box", "low": object(), "high": 1.0}, "is not JSON"),
        ({"kind": "Intersection", "constraints": [1, 2]}, "1 is not a constraint"),
        ({"kind": "Oracle", "function": "os:system"}, "allow_code=True"),
    ],
)
def test_a_file_that_no_constraint_wrote_is_refused(data: Any, expected: str) -> None:
    with pytest.raises(ConstraintError, match=expected):
        constraint_from_json(data)


def test_a_file_that_declares_an_empty_set_is_refused() -> None:
    with pytest.raises(EmptySetError):
        constraint_from_json({"kind": "Box", "low": 1.0, "high": 0.0})


def test_an_intersection_of_a_file_that_holds_a_union_is_the_set_that_the_operators_make() -> None:
    union, box = Ball(radius_squared=0.1) | Box([0.5, 0.5], [1.0, 1.0]), Box([-1.0, 0.0], [1.0, 0.7])
    members = [{"constraint": part.to_json()} for part in (box, union, Ball(radius_squared=2.0))]
    read = constraint_from_json({"kind": "Intersection", "constraints": members})
    assert repr(read) == repr(box & union & Ball(radius_squared=2.0))
    assert repr(constraint_from_json(read.to_json())) == repr(read)


def test_a_file_that_nests_without_end_is_refused() -> None:
    data: dict[str, Any] = Ball(radius_squared=1.0).to_json()
    for _ in range(50):
        data = {"kind": "Intersection", "constraints": [{"constraint": data}]}
    with pytest.raises(ConstraintError, match="deep"):
        constraint_from_json(data)


def test_a_kind_of_ones_own_is_not_written() -> None:
    class Disc(Ball):
        pass

    with pytest.raises(ConstraintError, match="Declare it as an Oracle"):
        Disc(radius_squared=1.0).to_json()


def test_a_subclass_with_the_name_of_a_kind_is_not_written_as_that_kind() -> None:
    class Ball(ib.Ball):
        """Half as long as it is told."""

        def __init__(self, radius_squared: float) -> None:
            super().__init__(radius_squared=radius_squared / 4)
            self.given = radius_squared

        def parameters(self) -> dict[str, Any]:
            return {"radius_squared": self.given}

    with pytest.raises(ConstraintError, match=r"test_serialisation\.Ball is not a kind .*Oracle"):
        Ball(1.0).to_json()
