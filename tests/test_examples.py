"""The examples are what the texts say they are: short, and shown as they run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKED = ("portfolio", "robot_power_budget", "motor_drive", "reservoir")


def test_the_readme_shows_the_whole_example_of_ones_own_problem_in_under_thirty_lines() -> None:
    (shown,) = re.findall(r"^```py\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    source = (ROOT / "examples" / "your_own_problem.py").read_text()
    assert source.split("\n\n", 1)[1] == shown
    assert len(shown.splitlines()) < 30


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_example_is_short_and_explained(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 65
    assert f"examples/{name}.py" in (ROOT / "docs" / "your_own_problem.md").read_text()


def test_every_request_has_its_answer() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "answers.md").read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 21)]
