"""The paper's numbers: complete, and where they should be."""

from __future__ import annotations

from inbounds.experiments.suites import PAPER_TASKS
from inbounds.report.published import (
    INFERENCE_SECONDS,
    RETURN,
    VALID_ACTION_RATE,
    best_published_rate,
)


def test_every_task_has_the_returns_of_aram_and_focops_in_the_environments_units() -> None:
    assert set(RETURN) == {(task, learner) for task in PAPER_TASKS for learner in ("aram", "focops")}
    assert RETURN["halfcheetah", "aram"] == (8380.0, 1110.0, "Table 4", "HalfCheetah")
    assert RETURN["reacher", "aram"].mean == -4.78 and RETURN["bss5z", "focops"].mean == -16100.0


def test_every_task_has_six_valid_action_rates() -> None:
    assert len(VALID_ACTION_RATE) == 48
    assert all(0 <= number.mean <= 1 for number in VALID_ACTION_RATE.values())
    assert VALID_ACTION_RATE["nsfnet", "dpre"].mean == 0.0


def test_the_best_rate_is_not_always_that_of_aram() -> None:
    best = best_published_rate("hoppervel")
    assert best is not None and best.mean == 0.94
    assert best_published_rate("nsfnet20d") is None


def test_inference_times_are_those_of_four_tasks() -> None:
    assert {task for task, _ in INFERENCE_SECONDS} == {"reacher", "halfcheetah", "hopper", "hoppervel"}
    assert INFERENCE_SECONDS["reacher", "aram"].mean == 44.72
