"""Defects that are put into the library on purpose: the attack finds each of them, and says how to see it again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.attack import examination, ledger
from benchmarks.attack.__main__ import attack, generator
from benchmarks.attack.anchored_sets import Style
from benchmarks.attack.building import build
from benchmarks.attack.examination import Asked, claims_empty, examined
from benchmarks.attack.ledger import (
    EXCEPTION,
    NOT_A_NUMBER,
    OUTSIDE,
    REFUSED,
    SLOW,
    WRONG,
    Ledger,
    explained,
)
from benchmarks.attack.libraries import OTHERS
from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading
from benchmarks.attack.set_doors import drawn_questions
from benchmarks.attack.set_questions import (
    examine_contains,
    examine_interior_point,
    examine_project,
    examine_sample,
)
from benchmarks.attack.sets import States, draw
from benchmarks.attack.witness import Journal, Witness, judge_received
from inbounds.errors import ConstraintError, EmptySetError, InfeasibleActionError, InvalidInputError

BALL = Leaf("Ball", {"radius_squared": 1.0})
ACTIONS = np.array([[0.1, 0.2, 0.0], [3.0, 4.0, 5.0], [0.5, 0.5, 0.5]])


class Planted:
    """A constraint one of whose methods was replaced; the replacement gets the answer and the action."""

    def __init__(self, real: Any, method: str, change: Callable[[Any, Any], Any]) -> None:
        self.real, self.method, self.change = real, method, change

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.real, name)
        if name != self.method:
            return function

        def changed(*arguments: Any, **named: Any) -> Any:
            action = arguments[1] if len(arguments) > 1 else None
            return self.change(function(*arguments, **named), action)

        return changed


def asked(constraint: Any, plain: Plain = BALL, **changes: Any) -> Asked:
    question = Asked(plain, constraint, States(None, None), ACTIONS, np.zeros(3), True)
    return dataclasses.replace(question, **changes)


def kinds_found(question: Asked, examine: Any) -> list[str]:
    found = Ledger(0, watches=False)
    return [problem.kind for problem in examine(found, question)]


def planted(method: str, change: Callable[[Any, Any], Any]) -> Planted:
    return Planted(build(BALL), method, change)


def raising(error: Exception) -> Callable[[Any, Any], Any]:
    def change(answer: Any, action: Any) -> Any:
        raise error

    return change


def burning(answer: Any, action: Any) -> Any:
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass
    return answer


def scribbling(answer: Any, action: Any) -> Any:
    action[0, 0] = 7.0
    return answer


DEFECTS = {
    "a projection a millionth outside": ("project", lambda p, a: p * (1.0 + 1e-6), examine_project, OUTSIDE),
    "a projection of NaN": ("project", lambda p, a: p * np.nan, examine_project, NOT_A_NUMBER),
    "a projection that moves what is accepted": ("project", lambda p, a: 0.9 * p, examine_project, WRONG),
    "a projection to another type": ("project", lambda p, a: p.astype(np.float32), examine_project, WRONG),
    "a projection that writes into its input": ("project", scribbling, examine_project, WRONG),
    "a foreign error": ("project", raising(ValueError("shapes differ")), examine_project, EXCEPTION),
    "an error without a remedy": ("project", raising(EmptySetError("empty")), examine_project, EXCEPTION),
    "an empty set that is not": (
        "project",
        raising(EmptySetError("no action satisfies it. Widen it.")),
        examine_project,
        REFUSED,
    ),
    "contains that accepts everything": ("contains", lambda c, a: c | True, examine_contains, OUTSIDE),
    "contains that refuses everything": ("contains", lambda c, a: c & False, examine_contains, WRONG),
    "a violation of NaN": ("violation", lambda v, a: v * np.nan, examine_contains, NOT_A_NUMBER),
    "a violation of minus infinity": ("violation", lambda v, a: v * 0.0 - np.inf, examine_contains, OUTSIDE),
    "a violation that is off": ("violation", lambda v, a: v * (1.0 + 1e-9), examine_contains, WRONG),
    "a word for what is infeasible": ("explain", lambda t, a: "feasible: by far.", examine_contains, OUTSIDE),
    "an interior point outside": ("interior_point", lambda p, a: p + 2.0, examine_interior_point, OUTSIDE),
    "a sample outside": ("sample", lambda p, a: p + 2.0, examine_sample, OUTSIDE),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    method, change, examine, kind = DEFECTS[name]
    box = Leaf("Box", {"low": -1.0, "high": 1.0})
    plain = Joined("&", (BALL, box)) if examine is examine_sample else BALL
    question = asked(Planted(build(plain), method, change), plain, variant="rng 0")
    if examine is not examine_sample:
        question = dataclasses.replace(question, variant="")
    assert kind in kinds_found(question, examine)
    assert kinds_found(dataclasses.replace(question, constraint=build(plain)), examine) == []


def test_a_call_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(ledger, "SECONDS_PER_CASE", 0.0)
    assert kinds_found(asked(planted("project", burning)), examine_project) == [SLOW]


def test_an_environment_that_is_given_anything_betrays_its_guard() -> None:
    box = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float64)
    env = Witness(np.zeros((4, 1)), box)
    env.reset(seed=0)
    for action in (np.array([0.1, 0.1]), np.array([2.0, 0.0]), np.array([np.nan, 0.0])):
        env.step(action)
    found = Ledger(0, watches=False)

    class Nowhere:
        observation_size = 0

    judge_received(Journal(found, "none"), Nowhere(), BALL, env.record, np.zeros(2), None, replaces=True)  # type: ignore[arg-type]
    assert sorted(finding.kind for finding in found.findings) == [OUTSIDE, NOT_A_NUMBER]


def test_an_environment_notes_the_action_before_it_writes_into_it() -> None:
    env = Witness(np.zeros((4, 1)), gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float64), "writes")
    env.reset(seed=0)
    action = np.array([0.1, 0.2])
    env.step(action)
    assert action[0] == 1000.0
    assert env.record.steps[0][3].tolist() == [0.1, 0.2]


def test_a_finding_is_made_small_and_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def outwards(points: Any, action: Any) -> Any:
        return points * (1.0 + 1e-6)

    monkeypatch.setattr(examination, "build", lambda plain: Planted(build(plain), "project", outwards))
    whole = Joined(
        "&",
        (
            Leaf("Box", {"low": np.full(3, -2.0), "high": 2.0}),
            BALL,
            Leaf("SumBand", {"total": 0.0, "tolerance": 9.0}),
        ),
    )
    found, shown = Ledger(7, watches=False), []
    found.on_finding = shown.append
    with found.at("project", 5):
        examined(found, asked(examination.build(whole), whole), examine_project)
    text = str(shown[0])
    assert "constraint      = ib.Ball(radius_squared=1.0)" in text
    assert len(shown[0].question.action) == 1
    assert "--doors project --seed 7 --round 5" in text
    assert found.summary()["project"][OUTSIDE] == 1


def test_the_same_round_asks_the_same_questions_whatever_came_before() -> None:
    first = generator(3, "project", 8).random(4)
    generator(3, "contains", 8).random(4)
    assert np.array_equal(first, generator(3, "project", 8).random(4))
    runs = [attack(["contains"], 3, only_round=1) for _ in range(2)]
    assert runs[0].cases == runs[1].cases and runs[0].cases["contains"] > 0
    assert runs[0].counts == runs[1].counts


def test_an_error_of_the_library_that_says_what_to_do_is_none() -> None:
    assert explained(InvalidInputError("the action is too long. Pass a shorter one.")) is None
    assert explained(KeyError("low")) is not None


def test_a_filter_that_passes_on_that_a_set_is_not_convex_does_not_claim_that_it_is_empty() -> None:
    error = InfeasibleActionError("no feasible action was found. Widen the constraint.")
    assert claims_empty(error)
    error.__cause__ = EmptySetError("no action satisfies the rows. Widen one of them.")
    assert claims_empty(error)
    error.__cause__ = ConstraintError("the matrix has a negative eigenvalue. Use one without.")
    assert not claims_empty(error)


def test_a_set_whose_bound_overflows_when_it_is_read_is_rightly_taken_for_empty() -> None:
    plain = Leaf("Ball", {"radius_squared": Reading("observation", 0, scale=3.0)})
    states = States(np.array([[1.7e308]]), None)
    asked = Asked(plain, build(plain), states, np.array([[1e20, 0.0]]), np.zeros(2), True)
    assert examine_contains(Ledger(0, watches=False), asked) == []


def test_no_float32_action_is_asked_that_a_compiler_takes_for_zero() -> None:
    wide = next(library for library in OTHERS if library.name == "jax.jit in float64")
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drawn = draw(rng, Style(largest_dimension=9, exponents=(2.0, 60.0, 300.0)))
        sizes = np.abs(drawn_questions(rng, drawn, None, 200, np.float32, wide).actions)
        assert not np.any((sizes > 0) & (sizes < np.finfo(np.float32).tiny))
