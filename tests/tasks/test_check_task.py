"""`check_task` names the usual mistakes before training does, and says what to do."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.learners.sac import Sac
from tests.tasks.own_environments import Line, Plant

GOOD = ib.WeightedL1(weights=[1.0], bound=ib.obs[1])


def line(flaw: str = "", constraint: Any = GOOD, **options: Any) -> ib.Task:
    return ib.Task(functools.partial(Line, flaw), constraint, **{"horizon": 20, "name": "line", **options})


def found(report: Any) -> str:
    return "\n".join(f"{level}: {what} -> {remedy}" for level, what, remedy in report.findings)


def test_a_sound_task_is_ready_and_nothing_is_reported() -> None:
    report = ib.check_task(line("", ib.RateLimit(0.5)), steps=100)
    assert report.is_ready and not report.findings, found(report)
    assert report.steps == 100 and 0.2 < report.feasible_fraction < 0.6
    assert "ready to train" in str(report) and "nothing else to report" in str(report)


@pytest.mark.parametrize(
    ("flaw", "constraint", "level", "what", "remedy"),
    [
        ("empties", GOOD, "problem", "no action is feasible in a state", "Loosen the constraint"),
        ("nan", GOOD, "problem", "entry 0 of the observation is not a finite number", "Correct this first"),
        ("unseeded", GOOD, "warning", "two resets with the same seed", "super"),
        ("random step", GOOD, "warning", "same seed and the same actions", "np_random"),
        ("old step", GOOD, "problem", "step returned a tuple of 4", "Correct this first"),
        ("reward in a list", GOOD, "problem", r"the reward \[1\..*\] is not a number", "Correct this first"),
        ("flat", GOOD, "warning", "every step paid 2", "depends on the action"),
        ("large", GOOD, "warning", "entry 2 of the observation .* reaches 1e[+]06", "normalised"),
        ("", GOOD, "warning", "never binds", "units of its bound"),
        ("", ib.WeightedL1([1.0], 1e-5), "warning", "feasible with probability", "narrow the box"),
        ("", ib.WeightedL1([1.0], 1e-3), "warning", "% of the range of entry 0", "other units"),
        ("", ib.WeightedL1([1.0], ib.obs[2]), "warning", r"reads obs\[2\] \(observation\[2\]\), which never changes",
         "Check the indices"),
        ("", ib.PowerBudget(ib.obs[1:2], 0.5), "note", "never change sign", "velocities"),
        ("", None, "note", "no limit beside the box", "Pass a constraint"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_what_to_do(
    flaw: str, constraint: Any, level: str, what: str, remedy: str
) -> None:
    report = ib.check_task(line(flaw, constraint), steps=100)
    matching = [one for one in report.findings if re.search(what, one.what)]
    assert matching, found(report)
    assert matching[0].level == level and remedy in matching[0].remedy
    assert report.is_ready == (level != "problem")
    assert matching[0].what in str(report) and matching[0].remedy in str(report)


def test_a_race_to_the_goal_is_neither_lifted_nor_called_flat() -> None:
    report = ib.check_task(line("race"), steps=100)
    assert "reward_shift" not in found(report) and "whatever was done" not in found(report), found(report)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"steps": "many"}, {"steps": 2.5}, {"seed": -1}, {"seed": None}]
)
def test_a_check_takes_whole_numbers(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"not an integer of [01] or more\. Pass one"):
        ib.check_task(line(), **wrong)


def test_problems_come_before_warnings() -> None:
    levels = [finding.level for finding in ib.check_task(line("empties"), steps=100).findings]
    assert levels == sorted(levels, key=("problem", "warning", "note").index)


def test_a_wrapper_that_changes_units_is_mentioned() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.RescaleAction(Plant(), np.float64(-1.0), np.float64(1.0))

    report = ib.check_task(ib.Task(make, ib.Ball(radius_squared=1.0), horizon=6), steps=40)
    assert "RescaleAction" in found(report) and "box [-1, 1]" in found(report)


def test_scales_that_were_measured_are_not_asked_for_again() -> None:
    task = line("large").normalised(steps=50)
    assert "networks learn badly" not in found(ib.check_task(task, steps=50))


def test_the_built_in_tasks_can_be_checked_too() -> None:
    assert ib.check_task(ib.make("reacher"), steps=60).is_ready


class HostOnly(ib.Ball):
    """A set as one writes it for the host alone: its level is a number of numpy."""

    def level(self, at: Any, action: Any) -> Any:
        return np.sum(np.square(np.asarray(action)), axis=-1)


def plant(constraint: Any) -> ib.Task:
    return ib.Task(Plant, constraint, horizon=6, name="plant")


def test_a_set_that_cannot_be_compiled_is_a_problem_before_training() -> None:
    report = ib.check_task(plant(HostOnly(radius_squared=1.0)), steps=20)
    problems = [one for one in report.findings if one.level == "problem"]
    (compiled,) = [one for one in problems if "compiled function" in one.what]
    assert not report.is_ready, found(report)
    assert (
        "the constraint fails there with Tracer" in compiled.what and "ib.check_constraint" in compiled.remedy
    )


@pytest.mark.sweep
def test_a_set_that_float32_cannot_meet_is_a_problem_before_training() -> None:
    thin = ib.Polytope([[1.0, -1.0], [-1.0, 1.0]], [2.1e-8, -1.1e-8]) & ib.Box([0.6, 0.6], [0.9, 0.9])
    report = ib.check_task(plant(thin), steps=20)
    assert not report.is_ready
    assert "float32 numbers of training have no action" in found(report) and "widen it" in found(report)


@pytest.mark.sweep
def test_joined_sets_that_read_only_weights_are_ready_to_train_and_train(tmp_path: Path) -> None:
    task = plant(ib.WeightedL1(ib.obs["load"], 1.0) & ib.Ball(radius_squared=0.5))
    assert ib.check_task(task, steps=20).is_ready
    settings = {"warm_up": 40, "environments": 3, "seeds": 1, "episodes": 2, "evaluate_every": 0}
    ib.train(task, Sac(hidden=(16,), batch_size=16), steps=60, out=tmp_path / "run", **settings)
    rows = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert rows and all(row["worst_violation"] <= 0 for row in rows)


def test_only_a_task_can_be_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"ib\.Task\(environment, constraint\)"):
        ib.check_task("Pendulum-v1")  # type: ignore[arg-type]


def near_zero(observation: Any, action: Any) -> bool:
    return bool(np.abs(action).max() <= 0.5)


@pytest.mark.parametrize(
    ("flaw", "constraint", "options", "learner", "reason"),
    [
        ("", ib.RateLimit(0.5), {}, "aram", "If the return alone counts"),
        ("", None, {}, "sac", "the box is the only limit"),
        ("", ib.WeightedL1([1.0], 1e-5), {}, "spre", "never accepted"),
        ("negative", ib.RateLimit(0.5), {}, "aram", "If the return alone counts"),
        ("", ib.Box(-1.0, -0.5) | ib.Box(0.5, 1.0), {}, "aram", "not convex"),
        pytest.param("", ib.Oracle(near_zero), {}, "aram", "With proposals=100", marks=pytest.mark.sweep),
    ],
    ids=["convex", "box", "thin", "negative", "union", "oracle"],
)
def test_the_report_ends_with_the_learner_to_try_first(
    flaw: str, constraint: Any, options: Any, learner: str, reason: str
) -> None:
    report = ib.check_task(line(flaw, constraint, **options), steps=60)
    assert report.recommendation.learner == learner and reason in report.recommendation.reason
    assert report.is_ready and f"begin with '{learner}'" in str(report).splitlines()[-1]


def test_a_task_that_is_not_ready_gets_no_learner() -> None:
    assert "begin with" not in str(ib.check_task(line("nan"), steps=20))
