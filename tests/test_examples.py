"""The examples are what the texts say they are: short, and shown as they run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from inbounds.learners import registry

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


@pytest.mark.learning
@pytest.mark.slow
def test_the_new_learner_passes_the_test_that_is_shown_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LEARNERS", registry.LEARNERS.copy())
    learner = runpy.run_path(str(ROOT / "examples" / "add_a_learner.py"), run_name="example")["ShapedTd3"]
    (shown,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "extend.md").read_text(), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"ShapedTd3": learner}
    exec(shown, names)
    assert registry.name_of(learner()) == "shaped"
    (test,) = (names[name] for name in names if name.startswith("test_"))
    test()
