"""The examples are what the texts say they are: short, and shown as they run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import inbounds as ib
from inbounds.learners import registry
from inbounds.training.api import default_folder

ROOT = Path(__file__).resolve().parent.parent
WORKED = ("portfolio", "robot_power_budget", "motor_drive", "reservoir")


def test_the_readme_shows_the_whole_example_of_ones_own_problem_in_under_thirty_lines() -> None:
    (shown,) = re.findall(r"^```py\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    source = (ROOT / "examples" / "your_own_problem.py").read_text()
    assert source.split("\n\n", 1)[1] == shown
    assert len(shown.splitlines()) < 30


def test_the_readmes_example_trains_into_a_new_folder_each_time_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "out=" not in (ROOT / "examples" / "your_own_problem.py").read_text()
    monkeypatch.chdir(tmp_path)
    folders = []
    for _ in range(3):  # within one second
        folders.append(default_folder("Heating", "aram"))
        folders[-1].mkdir(parents=True)
    assert len(set(folders)) == 3


@pytest.mark.parametrize("name", WORKED)
def test_a_worked_example_is_short_and_explained(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 65
    assert f"examples/{name}.py" in (ROOT / "docs" / "your_own_problem.md").read_text()


def test_every_request_has_its_answer() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "answers.md").read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 33)]


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def run_blocks(path: Path) -> None:
    """Run the Python of a text, block after block, as a reader would."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(path), "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*TUTORIALS, ROOT / "docs" / "quickstart.md"], ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_a_tutorial_runs_as_it_stands(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policies").symlink_to(ROOT / "policies")
    monkeypatch.chdir(tmp_path)
    run_blocks(path)


def test_there_are_three_tutorials_and_the_start_page_leads_to_every_page() -> None:
    assert len(TUTORIALS) == 3
    listed = (ROOT / "docs" / "index.md").read_text().split("\n")
    pages = [page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")]
    assert [str(page) for page in pages if str(page) not in listed and page.parts[0] != "_build"] == ["index"]


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^.. auto(?:class|function):: inbounds\.(\w+)", text, re.MULTILINE))
    modules_and_values = {"constraints", "errors", "tasks", "obs", "previous_action"}
    assert listed | modules_and_values == {name for name in dir(ib) if not name.startswith("__")}
    assert all(f"`ib.{name}`" in text or f"inbounds.{name}" in text for name in modules_and_values)


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
