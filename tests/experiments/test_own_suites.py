"""Suites that users write: their tasks and learners run beside ours, by one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inbounds.cli.main import main
from inbounds.errors import ConfigurationError, InvalidInputError
from inbounds.experiments import Cell, Suite
from inbounds.experiments.suites import OWN_SUITE, PAPER_TASKS, imported_suite
from inbounds.learners.registry import LEARNERS
from inbounds.training.record import as_recorded, described_task, own_reward_scale
from tests.experiments.synthetic_runs import write_run

FILE = """
import gymnasium
import inbounds as ib
from inbounds.experiments import Cell, Suite, pairs

QUICK = pairs({"warm_up": 40, "environments": 2, "episodes": 2, "evaluate_every": 60})
SMALL = pairs({"hidden": (8, 8), "batch_size": 16})


def swing():
    return ib.Task(lambda: gymnasium.make("Pendulum-v1"), ib.Ball(radius=1.0), name="swing")


def careful(**settings):
    return ib.Sac(**{"gamma": 0.9, **settings})


def cells():
    for learner in ("careful", "sac"):
        yield Cell("swing", learner, "default", 120, seeds=1, settings=SMALL, training=QUICK, final_episodes=2)


suite = Suite("mine", "Does care help?", cells, tasks={"swing": swing}, learners={"careful": careful})
taken = Suite("other", "Is a name of ours kept?", cells, tasks={"reacher": swing})
hidden = Suite("../other", "Is a path a name?", cells)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(OWN_SUITE, "")  # put back afterwards, like the registry
    monkeypatch.setattr(LEARNERS, "_entries", dict(LEARNERS._entries))
    imported_suite.cache_clear()
    path = tmp_path / "my_suite.py"
    path.write_text(FILE)
    return path


def edit(file: Path, old: str, new: str) -> None:
    """Change the suite as an editor does between two commands."""
    file.write_text(FILE.replace(old, new))
    imported_suite.cache_clear()
    del LEARNERS._entries["careful"]


@pytest.mark.slow
def test_a_suite_of_own_tasks_and_learners_is_run_and_collected_by_one_command(
    file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    assert main(["benchmark", f"{file}:suite", "--out", str(out), "--jobs", "1"]) == 0
    results = {path.stem: json.loads(path.read_text()) for path in (out / "results" / "mine").glob("*.json")}
    assert set(results) == {"swing-careful-default", "swing-sac-default"}
    own = results["swing-careful-default"]
    assert own["worst_violation"] <= 0 and own["provenance"][0]["learner_settings"]["gamma"] == 0.9
    assert own["command"].startswith(f"inbounds benchmark {file}:suite --tasks swing --learners careful")
    assert main(["report", str(out / "results" / "mine"), "--out", str(tmp_path / "page.html")]) == 0
    assert "swing" in (tmp_path / "page.html").read_text()


def test_the_plan_of_an_own_suite_can_be_narrowed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(file.parent / "runs")
    assert main(["benchmark", f"{file}:suite", "--learners", "careful", "--plan", "--out", out]) == 0
    told = capsys.readouterr().out
    assert "Does care help?" in told and "swing-careful-default" in told and "swing-sac" not in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("radius=1.0", "radius=0.75"), "another constraint than swing has now"),
        (('name="swing")', 'name="swing", horizon=20)'), "horizon 200, the task has 20"),
    ],
)
def test_what_was_run_before_a_task_of_the_suite_was_edited_is_not_shown_with_the_rest(
    change: tuple[str, str], told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = file.parent / "runs"
    command = ["benchmark", f"{file}:suite", "--out", str(out), "--learners", "sac"]
    suite = imported_suite(f"{file}:suite")
    (cell,) = (cell for cell in suite.cells() if cell.learner == "sac")
    folder = write_run(out / "mine" / cell.name, task="swing", learner="sac", seeds=1, cell=cell)
    config, task = json.loads((folder / "config.json").read_text()), suite.task("swing")
    described = {**described_task(task), "own_reward_scale": own_reward_scale(task)}
    config |= as_recorded({**described, "constraint": task.constraint.to_json()})
    (folder / "config.json").write_text(json.dumps(config))
    assert main([*command, "--plan"]) == 0 and main([*command, "--collect"]) == 0
    assert "left out" not in capsys.readouterr().out
    edit(file, *change)
    assert main([*command, "--plan"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--collect"]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert f"left out: {folder}" in words and told in words and "remove the folder" in words
    edit(file, "    return ib.Task", "    raise OSError\n    return ib.Task")
    assert main([*command, "--collect"]) == 0  # where a task cannot be made, nothing is compared


@pytest.mark.parametrize("place", ["nowhere", "runs/mine", "runs/mine/swing-sac-default"])
def test_a_folder_to_merge_that_holds_nothing_of_the_suite_is_refused(
    place: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = (cell for cell in imported_suite(f"{file}:suite").cells() if cell.learner == "sac")
    write_run(file.parent / "runs" / "mine" / cell.name, seeds=1, cell=cell)
    command = ["benchmark", f"{file}:suite", "--collect", "--out", str(file.parent / "here"), "--merge"]
    assert main([*command, str(file.parent / place)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{file.parent / place}" in told and "Name the OUT folder" in told
    assert not (file.parent / "here" / "results").exists()


def test_names_of_ours_keep_their_meaning_and_a_name_is_never_a_path(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="'reacher', which is one of ours"):
        imported_suite(f"{file}:taken")
    with pytest.raises(InvalidInputError, match="small letters"):
        imported_suite(f"{file}:hidden")
    with pytest.raises(InvalidInputError, match="not a suite"):
        imported_suite(f"{file}:swing")


def test_a_cell_of_an_own_suite_finds_its_task_and_ours(file: Path) -> None:
    suite = imported_suite(f"{file}:suite")
    assert isinstance(suite, Suite) and isinstance(suite.cells()[0], Cell)
    assert suite.task("swing").name == "swing" and suite.task("bss3z").name == "bss3z"


@pytest.mark.parametrize(
    "path",
    ["benchmarks/strangers.py:suite", "benchmarks/lab/parts.py:suite", "benchmarks/lab/readings.py:suite"],
)
def test_the_suites_of_the_repository_are_made_of_cells_with_known_learners_and_settings(
    path: str, file: Path
) -> None:
    root = Path(__file__).resolve().parents[2]
    suite = imported_suite(f"{root}/{path}")
    cells = suite.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        cell.make_learner()
        assert cell.task in suite.tasks or cell.task in PAPER_TASKS


@pytest.mark.slow
def test_a_suite_keeps_its_runs_together_though_its_task_changes_the_working_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    leaving = f"    import os\n    os.chdir({str(tmp_path / 'elsewhere')!r})\n    return ib.Task("
    file.write_text(FILE.replace("    return ib.Task(", leaving))
    given = ["benchmark", f"{file.name}:suite", "--learners", "careful", "--out", "runs", "--jobs", "1"]
    assert main(given) == 0
    assert (tmp_path / "runs" / "results" / "mine" / "swing-careful-default.json").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())
