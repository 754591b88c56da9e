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
    assert f"](../examples/{name}.py)" in (ROOT / "docs" / "your_own_problem.md").read_text()


@pytest.mark.parametrize(
    ("page", "examples"),
    [("your_own_problem", WORKED), ("extend", ("add_a_learner",))],
    ids=lambda one: str(one),
)
def test_the_code_of_an_example_that_a_page_shows_is_that_of_its_file(
    page: str, examples: tuple[str]
) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    shown = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    sources = [(ROOT / "examples" / f"{name}.py").read_text() for name in examples]
    assert len(shown) == len(sources)
    assert [code in source for code, source in zip(shown, sources, strict=True)] == [True] * len(sources)


PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_plain_markdown_that_a_repository_host_shows_too(path: Path) -> None:
    text = path.read_text()
    directives = set(re.findall(r"^(?:```|:::)\{([\w-]+)\}", text, re.MULTILINE)) | set(
        re.findall(r"\{(\w+)\}`", text)
    )
    assert directives <= ({"eval-rst"} if path.stem == "api" else set())  # its text lies in the docstrings
    # A wider line is cut at the edge of the page.
    blocks = re.findall(r"^```(?:py|python|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 96] == []
    assert not re.search(r"!\[\]\(", text)  # every picture is described


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


def test_every_figure_has_a_twin_for_dark_pages() -> None:
    figures = {path.stem for path in (ROOT / "docs" / "images").glob("*.png")}
    light = {name for name in figures if not name.endswith("-dark")}
    assert light and figures == light | {f"{name}-dark" for name in light}
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"docs/images/([\w-]+)\.png\">", readme) == ["return-dark", "return"]


def test_there_are_three_tutorials_and_the_start_page_leads_to_every_page() -> None:
    assert len(TUTORIALS) == 3
    text = (ROOT / "docs" / "index.md").read_text()
    listed = re.findall(r"^- \[[^]]+\]\(([\w/]+)\.md\): ", text, re.MULTILINE)
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
