"""Generated tables: they say what was run, and the committed ones are not stale."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from inbounds.report.tables import (
    ARTEFACTS,
    NOT_KEPT,
    NOT_RUN,
    headline_table,
    number,
    reproduction_table,
    suite_table,
    trivial,
    violations_table,
)
from tests.experiments.synthetic_runs import make_result

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_committed_tables_are_those_of_the_committed_results() -> None:
    script = ROOT / "scripts" / "generate_tables.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stderr


def test_what_was_not_run_says_so() -> None:
    assert headline_table([], {}).count(NOT_RUN) == 8 * 4
    assert NOT_RUN in suite_table([], "paper")
    with_suite = [artefact for artefact in ARTEFACTS if artefact.suite]
    assert reproduction_table([]).count(NOT_RUN) == len(with_suite)


def test_every_table_and_figure_of_the_paper_has_a_row() -> None:
    names = {artefact.name for artefact in ARTEFACTS}
    assert {f"Table {index}" for index in range(1, 9)} | {
        f"Figure {index}" for index in range(1, 15)
    } <= names


def test_a_complete_cell_carries_its_verdict_and_an_incomplete_one_its_seeds() -> None:
    complete = headline_table([make_result()], {})
    assert "12.0 ±\u00a01.6\u00a0▲" in complete and "0.70 ±\u00a00.16" in complete
    partial = headline_table([make_result(expected_seeds=7)], {})
    assert "(5 of 7 seeds, 300 steps)" in partial


def test_a_verdict_counts_the_cells_that_are_complete() -> None:
    told = reproduction_table([make_result()])
    (row,) = [line for line in told.splitlines() if line.startswith("| Table 4 ")]
    assert "1 experiment complete; 1\u00a0▲" in row and "`inbounds benchmark paper`" in row


def test_steps_and_the_worst_violation_are_counted_suite_by_suite() -> None:
    sound, broken = make_result(), dataclasses.replace(make_result(), worst_violation=2.5e-7)
    (row,) = violations_table([sound, sound]).splitlines()[2:]
    assert row == f"| `paper` | 2 | {2 * sound.environment_steps:,} | 0 |"
    assert "2.5e-07" in violations_table([sound, broken])
    assert violations_table([]).count("\n") == 1


def test_preparation_stands_in_the_table_of_a_suite_where_it_is_known() -> None:
    told = make_result(learner="flowpg", name="reacher-flowpg-default")
    origin = told.provenance[0]
    parts = tuple({**origin, "preparation_seconds": spent} for spent in (100.0, 140.0))
    told = dataclasses.replace(told, provenance=parts)
    quick = make_result(provenance=({**origin, "preparation_seconds": 1.26},))
    head, _, *rows = suite_table([told, quick, make_result(task="ant")], "paper").splitlines()
    column = head.split(" | ").index("preparation")
    assert [row.split(" | ")[column] for row in rows] == ["120 s", "1.3 s", "unknown"]
    assert "preparation" not in suite_table([make_result()], "paper")


def test_the_best_policy_stands_beside_the_last_one() -> None:
    last = make_result()
    numbers = {**last.final, "return": [100.0 for _ in last.seeds]}
    kept_best = {"provenance": tuple({**origin, "policy": "best"} for origin in last.provenance)}
    _, _, *rows = suite_table(
        [
            dataclasses.replace(last, best=numbers),
            dataclasses.replace(last, task="ant", **kept_best),
        ],
        "paper",
    ).splitlines()
    both, best_alone = ([word.strip() for word in row.split("|")][3:5] for row in rows)
    assert both[1] == "100" and both[0] not in ("100", NOT_KEPT)
    assert best_alone[0] == NOT_KEPT and best_alone[1] != NOT_KEPT


def test_the_trivial_policy_is_the_best_of_the_references() -> None:
    played = {"uniform": {"mean": -9.0}, "constant": {"mean": -3.5}, "interior": {"mean": -4.0}}
    assert trivial(played) == "-3.5 (constant)" and trivial({}) == NOT_RUN


@pytest.mark.parametrize(
    ("mean", "deviation", "text"),
    [
        (8380.0, 1110.0, "8,380 ± 1,110"),
        (-4.78, 0.33, "-4.78 ± 0.33"),
        (12.0, 1.6, "12.0 ± 1.6"),
        (7.5, None, "7.5"),
    ],
)
def test_numbers_have_the_digits_that_their_deviation_is_worth(
    mean: float, deviation: float | None, text: str
) -> None:
    assert number(mean, deviation) == text
