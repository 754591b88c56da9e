"""The commands as functions, and commands on a user's own task: both do the same, with the same words."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import io
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import inbounds as ib
from inbounds.cli import audit as cli_audit
from inbounds.cli import calls
from inbounds.cli import evaluate as cli_evaluate
from inbounds.cli import render as cli_render
from inbounds.cli.main import main
from inbounds.errors import ConfigurationError, InboundsError, InvalidInputError, UnknownNameError
from inbounds.experiments.results import collect_run
from inbounds.tasks.gymnasium_processes import pickled, unpickled
from inbounds.tasks.named_tasks import OWN_TASK, label, named_task, own_place, own_task, task_of_cell
from inbounds.training.config import TrainingConfig
from inbounds.training.record import RunFolder, require_same_constraint
from inbounds.training.summary import MetricsRow, RunSummary
from tests.deploy.run_folders import random_run

OWN = """
import gymnasium
import numpy as np

import inbounds as ib


class Pump(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0 + float(action[0]), False, False, {}

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


task = ib.Task(Pump, ib.Ball(radius=0.5), horizon=5, name="Pump 2")
other = ib.Task(Pump, ib.Ball(radius=0.5), horizon=5, name="valve")


def make():
    return task


def with_argument(size):
    return task
"""
TINY = {"steps": 40, "warm_up": 20, "evaluate_every": 20, "episodes": 2, "capacity": 50, "environments": 1}
SAC = ib.Sac(hidden=(4,), batch_size=4)
OPTIONS = (
    *("--learner", "sac", "--steps", "40", "--warm-up", "20", "--evaluate-every", "20", "--episodes", "2"),
    *(
        "--capacity",
        "50",
        "--envs",
        "1",
        "--sac.hidden",
        "4",
        "--sac.batch-size",
        "4",
        "--plain",
        "--no-references",
    ),
)


class Trained(NamedTuple):
    run: RunSummary
    task: ib.Task
    told: str
    rows: list[Any]
    logged: list[str]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "pump.py"
    path.write_text(OWN)
    return path


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.levelname} {record.getMessage()}")


@pytest.fixture(scope="module")
def trained(file: Path) -> Trained:
    task, told, rows, log = named_task(f"{file}:task"), io.StringIO(), [], Kept()
    logger = logging.getLogger("inbounds")
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    with contextlib.redirect_stdout(told):
        run = ib.train(task, SAC, out=file.parent / "run", callbacks=[rows.append], **TINY)
    logger.removeHandler(log)
    logger.setLevel(logging.NOTSET)
    return Trained(run, task, told.getvalue(), rows, log.messages)


# From Python


def test_training_shows_a_line_per_evaluation_where_there_is_no_terminal(trained: Trained) -> None:
    lines = trained.told.splitlines()
    assert (
        len(lines) == 2 and lines[0].startswith("step 20 of 40  return ") and "valid action rate" in lines[1]
    )


@pytest.mark.parametrize(
    ("is_terminal", "is_jupyter", "widgets", "is_live"),
    [
        (True, False, None, True),
        (False, False, None, False),
        (False, True, "spec", True),
        (False, True, None, False),
    ],
    ids=["terminal", "pipe", "notebook", "notebook without widgets"],
)
def test_progress_is_live_where_a_panel_can_be_redrawn(
    is_terminal: bool, is_jupyter: bool, widgets: Any, is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "find_spec", lambda name: widgets)
    assert calls.can_redraw(SimpleNamespace(is_terminal=is_terminal, is_jupyter=is_jupyter)) == is_live


def test_progress_can_be_turned_off(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ib.train(trained.task, SAC, out=tmp_path / "run", progress=False, **TINY)
    assert capsys.readouterr().out == ""


@pytest.mark.sweep
def test_a_resumed_run_shows_progress_up_to_its_new_end(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ib.train(trained.task, SAC, out=tmp_path / "run", progress=False, **TINY)
    ib.train(trained.task, SAC, out=tmp_path / "run", resume=True, steps=60)
    assert "step 60 of 60" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [{"steps": "many"}, {"seeds": 0}, {"stepz": 5}], ids=str)
def test_settings_that_cannot_work_are_refused_as_without_progress(trained: Trained, settings: Any) -> None:
    for progress in (True, False):
        with pytest.raises(ConfigurationError, match=next(iter(settings))):
            ib.train(trained.task, SAC, progress=progress, **settings)


def test_the_help_of_train_names_every_setting() -> None:
    fields = {field.name for field in dataclasses.fields(TrainingConfig)} - {"out"}
    told = str(inspect.getdoc(ib.train))
    assert [name for name in fields if f"`{name}`" not in told] == []


def test_callbacks_get_rows_with_the_documented_fields(trained: Trained) -> None:
    kinds = {row["kind"] for row in trained.rows}
    assert kinds == {"metrics", "evaluation"}
    for row in trained.rows:
        fields = (MetricsRow if row["kind"] == "metrics" else ib.EvaluationRow).__annotations__
        assert set(fields) <= set(row)
        if row["kind"] == "evaluation":
            assert set(fields) == set(row)


def test_evaluations_and_checkpoints_are_logged(trained: Trained) -> None:
    assert trained.logged[0].startswith("INFO sac on Pump 2, in ")
    assert any("step 40 of 40: return" in line for line in trained.logged)
    assert any("wrote the checkpoint" in line for line in trained.logged)


@pytest.mark.parametrize("form", [lambda run: run, lambda run: run.path, lambda run: str(run.path)])
def test_a_run_is_loaded_from_its_summary_or_from_its_folder(trained: Trained, form: Any) -> None:
    policy = ib.load(form(trained.run))
    assert trained.task.constraint.violation([0.1, 0.2], policy.act([0.1, 0.2])) <= 0


def test_a_run_is_audited_by_its_summary(trained: Trained) -> None:
    assert ib.audit(trained.run, trained.task, steps=20).is_passed


def test_a_run_on_an_own_task_is_evaluated_with_that_task(trained: Trained) -> None:
    found = ib.evaluate(trained.run, trained.task, episodes=3)
    assert found.returns.shape == (1, 3) and found.worst_violation <= 0
    assert "valid action rate" in str(found) and "3 episodes per seed, 1 seed\n" in str(found)
    with pytest.raises(ConfigurationError, match=r"Pass yours: ib\.evaluate\("):
        ib.evaluate(trained.run)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"horizon": 3}, "horizon"),
        ({"reference_action": np.zeros(1, np.float32)}, "reference_action"),
        ({"observation_parts": (("another", 2),)}, "observation_parts"),
    ],
)
def test_a_run_is_not_evaluated_on_its_task_after_this_was_edited(
    trained: Trained, change: dict[str, Any], name: str
) -> None:
    edited = copy.copy(trained.task)
    for field, value in change.items():
        object.__setattr__(edited, field, value)
    with pytest.raises(ConfigurationError, match=rf"was trained with {name} .*Pass the task as it was"):
        ib.evaluate(trained.run, edited, episodes=3)


@pytest.mark.parametrize(
    "taken",
    [ib.evaluate, ib.render, ib.audit, cli_evaluate.Options, cli_render.Options, cli_audit.Options],
    ids=lambda taken: f"{taken.__module__}.{taken.__name__}",
)
def test_no_public_call_and_no_command_has_a_preference_of_its_own(taken: Any) -> None:
    assert inspect.signature(taken).parameters["preference"].default is None


def test_a_run_is_neither_evaluated_nor_shown_on_another_task(
    trained: Trained, file: Path, tmp_path: Path
) -> None:
    other = named_task(f"{file}:other")
    told = r"is a run of 'Pump 2', but the given one is the task 'valve'\. Name the one it was trained on"
    with pytest.raises(ConfigurationError, match=told):
        ib.evaluate(trained.run, other, episodes=3)
    with pytest.raises(ConfigurationError, match=told):
        ib.render(trained.run, other, out=tmp_path / "run.gif", steps=2)
    run = shutil.copytree(trained.run.path, tmp_path / "run")
    (run / "episode.json").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match=told):
        ib.write_report(run, out=tmp_path / "page.html", task=other)
    assert not (run / "episode.json").exists()


def test_what_is_not_a_run_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInputError, match="Give what train"):
        ib.evaluate(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a report of what"):
        ib.write_report()


def test_a_run_and_a_reference_policy_are_filmed(trained: Trained, tmp_path: Path) -> None:
    film = ib.render(trained.run, trained.task, out=tmp_path / "run.gif", steps=2)
    assert film.stat().st_size > 0
    assert ib.render("uniform", trained.task, out=tmp_path / "uniform.gif", steps=2).stat().st_size > 0
    with pytest.raises(InvalidInputError, match="Give one of these: uniform"):
        ib.render("unifrom", trained.task)


def test_runs_become_a_page(trained: Trained, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a task of your own\. Pass it: ib\.write_report\(run, task=task\)"):
        page = ib.write_report(trained.run, out=tmp_path / "page.html", title="pumps")
    assert "pumps" in page.read_text() and "Pump 2" in page.read_text()
    ib.write_report(trained.run, out=tmp_path / "page.html", task=trained.task)
    assert (trained.run.path / "episode.json").exists()


# On the command line


@pytest.mark.parametrize("name", ["task", "make"])
def test_a_task_is_imported_from_a_file(file: Path, name: str) -> None:
    assert named_task(f"{file}:{name}").name == "Pump 2"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Pump", "not a task. Name an"),
        ("with_argument", "without arguments"),
        ("nothing", "cannot be imported"),
    ],
)
def test_what_is_not_a_task_is_refused(file: Path, name: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        named_task(f"{file}:{name}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("TASK = (", "line 1 of .* is not Python .*Correct it"),
        ("import sys; sys.exit(4)", "ends the program while"),
        (
            "1 / 0",
            r"fails with ZeroDivisionError: .* \(line 1 of .*broken\.py\) while it is imported. Correct",
        ),
        (
            "def TASK():\n    raise RuntimeError('no licence')",
            r"RuntimeError: no licence \(line 2 of .*Correct it there",
        ),
        ("def TASK():\n    return len(3)", r"fails with TypeError: .* \(line 2 of"),
        ("def TASK(size): pass", "cannot be called without arguments"),
        ("import inbounds as ib\ndef TASK(): ib.Ball(radius=-1.0)", "radius"),
    ],
    ids=[
        "no Python",
        "an exit",
        "an error",
        "a function's error",
        "its type error",
        "arguments",
        "an error of ours",
    ],
)
def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(InboundsError, match=told):
        named_task(f"{tmp_path / 'broken.py'}:TASK")


def test_a_name_that_no_path_can_have_is_no_task() -> None:
    with pytest.raises(UnknownNameError, match="no task"):
        named_task("a\0b")


def test_a_file_does_not_replace_the_package_that_has_its_name(file: Path, tmp_path: Path) -> None:
    import scipy

    namesake = tmp_path / "scipy.py"
    namesake.write_text(file.read_text())
    assert named_task(f"{namesake}:task").name == "Pump 2"
    assert sys.modules["scipy"] is scipy


@pytest.fixture
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget afterwards what a test imports, and from where."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("beside"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_imports")
def test_a_function_is_the_same_limit_under_every_path_to_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "beside_package"
    place.mkdir()
    limit = "def allowed(observation, action):\n    return bool(action[0] >= -0.5)\n\n\n"
    own = OWN.replace("class Pump", f"{limit}class Pump").replace(
        "ib.Ball(radius=0.5)", "ib.Oracle(allowed, 2)"
    )
    script = "\n\nif __name__ == '__main__':\n    import sys\n    print(ib.evaluate(sys.argv[1], task, episodes=1))\n"
    (place / "beside_limits.py").write_text(own + script)
    (place / "beside_others.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    run = ib.train(named_task("beside_package/beside_limits.py:task"), SAC, out=tmp_path / "run", **TINY)
    recorded = RunFolder(run.path).config()
    assert recorded["constraint"]["function"] == "beside_limits:allowed"
    again = named_task("beside_package.beside_limits:task")
    require_same_constraint(again, recorded, run.path)
    assert ib.evaluate(run, again, episodes=1).worst_violation <= 0
    ib.train(again, SAC, out=run.path, resume=True, progress=False, steps=50)
    for name in ("beside_limits:other", "no_file:allowed", 3):
        other = {**recorded, "constraint": {**recorded["constraint"], "function": name}}
        with pytest.raises(ConfigurationError, match="under another constraint"):
            require_same_constraint(again, other, run.path)
    untold = {name: value for name, value in recorded.items() if name != "functions"}
    with pytest.raises(ConfigurationError, match="under another constraint"):
        require_same_constraint(again, untold, run.path)
    told = subprocess.run(
        [sys.executable, "beside_package/beside_limits.py", str(run.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0 and "worst violation    0" in told.stdout, told.stderr


LIMIT = "LEAST = -0.5\n\n\ndef allowed(observation, action):\n    return bool(action[0] >= LEAST)\n\n\n"


@pytest.mark.parametrize(
    ("edit", "is_same"),
    [
        (("", ""), True),
        (("class Pump", "# A note.\nclass Pump"), True),
        ((">= LEAST", "<= LEAST"), False),
        (("-0.5", "-0.9"), False),
    ],
    ids=["a copy", "a note elsewhere", "another function", "another number of its module"],
)
def test_a_function_of_the_same_name_in_another_folder_is_another_limit_unless_it_says_the_same(
    edit: tuple[str, str], is_same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OWN.replace("class Pump", f"{LIMIT}class Pump").replace(
        "ib.Ball(radius=0.5)", "ib.Oracle(allowed, 2)"
    )
    for folder, text in (("first_folder", own), ("second_folder", own.replace(*edit))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"limits_of_{tmp_path.name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    name = f"limits_of_{tmp_path.name}"
    run = ib.train(named_task(f"first_folder/{name}.py:task"), SAC, out=tmp_path / "run", **TINY)
    recorded = RunFolder(run.path).config()
    other = named_task(f"second_folder.{name}:task")
    with (
        contextlib.nullcontext()
        if is_same
        else pytest.raises(ConfigurationError, match="a function of it was edited")
    ):
        require_same_constraint(other, recorded, run.path)


@pytest.mark.usefixtures("own_imports")
@pytest.mark.parametrize(
    "given", ["beside_package/beside_module.py:task", "beside_package.beside_module:task"]
)
def test_files_and_modules_find_those_of_the_working_directory(
    given: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "beside_package"
    folder.mkdir()
    shutil.copy(file, folder / "beside_task.py")
    (folder / "beside_module.py").write_text("from beside_package.beside_task import other as task\n")
    monkeypatch.chdir(tmp_path)
    # An installed command does not have the working directory on its path, python -m has it.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    assert named_task(given).name == "valve"


@pytest.mark.usefixtures("own_imports")
def test_a_file_finds_the_modules_beside_it(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "beside_task.py")
    (tmp_path / "beside_later.py").write_text("NAME = 'later'")
    named = tmp_path / "beside_named.py"
    named.write_text(
        "from beside_task import *\ntask = other\ndef late():\n    import beside_later\n    return task\n"
    )
    assert named_task(f"{named}:task").name == "valve" and named_task(f"{named}:late").name == "valve"


@pytest.mark.usefixtures("own_imports")
def test_what_lies_beside_a_file_replaces_no_module_of_others(file: Path, tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("1 / 0")  # of Python, and nothing has imported it before
    (tmp_path / "beside_importing.py").write_text("import colorsys\n" + file.read_text())
    assert named_task(f"{tmp_path / 'beside_importing.py'}:task").name == "Pump 2"
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.usefixtures("own_imports")
def test_a_module_that_a_file_misses_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "beside_missing.py").write_text("import no_such_module_anywhere")
    with pytest.raises(
        InvalidInputError, match=r"No module named 'no_such.*\. Correct the file, or install what"
    ):
        named_task(f"{tmp_path / 'beside_missing.py'}:TASK")
    with pytest.raises(InvalidInputError, match="run where it can be found"):
        named_task(f"{tmp_path / 'beside_nowhere.py'}:TASK")


@pytest.fixture(scope="module")
def by_command(file: Path) -> Path:
    folder = file.parent / "by command"
    assert main(["train", f"{file}:task", *OPTIONS, "--out", str(folder)]) == 0
    return folder


def test_an_own_task_is_trained_resumed_evaluated_and_filmed_by_commands(
    by_command: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{file}:task"
    more = ["--steps", "60", "--plain", "--no-references"]
    assert main(["train", own, "--resume", str(by_command), *more]) == 0
    told = capsys.readouterr().out
    assert f"--task {own}" in told  # the next commands run as they are printed
    assert main(["evaluate", str(by_command), "--task", own, "--episodes", "2", "--no-timing"]) == 0
    film = file.parent / "film.gif"
    assert main(["render", str(by_command), "--task", own, "--out", str(film), "--steps", "2"]) == 0
    assert film.exists()
    assert main(["render", own, "--policy", "interior", "--out", str(film), "--steps", "2"]) == 0


def test_every_command_takes_an_own_task_behind_the_run_folder(
    by_command: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, own, film = str(by_command), f"{file}:task", file.parent / "behind.gif"
    assert main(["evaluate", run, own, "--episodes", "2", "--no-timing"]) == 0
    assert main(["render", run, own, "--out", str(film), "--steps", "2"]) == 0 and film.exists()
    assert main(["report", run, own]) == 0
    assert main(["audit", run, own, "--steps", "5"]) == 0
    assert main(["audit", run, "--task", own, "--steps", "5"]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, own, "--task", f"{file}:other"]) == 2
    assert "several tasks are given" in capsys.readouterr().err
    assert main(["audit", own, run]) == 2
    assert "is a folder and not a task. Name the folder of a run first" in capsys.readouterr().err
    assert main(["audit", run, "--steps", "5"]) == 2
    assert f"inbounds audit '{run}' FILE.py:NAME" in capsys.readouterr().err


def test_the_report_that_training_names_next_shows_the_use_of_an_own_limit(
    by_command: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--steps", "60", "--plain", "--no-references"]
    assert main(["train", "--resume", str(by_command), f"{file}:task", *more]) == 0
    told = capsys.readouterr().out.replace("\n", " ")
    assert f"inbounds report '{by_command}' --task {file}:task" in told and "this command took" in told


def test_a_command_says_what_an_own_run_needs(
    by_command: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(by_command)]) == 2
    assert "--task FILE.py:NAME" in capsys.readouterr().err
    assert main(["train", "--resume", str(by_command)]) == 2
    assert "inbounds train --resume FOLDER FILE.py:NAME" in capsys.readouterr().err
    assert main(["render", str(by_command), "--task", f"{file}:other"]) == 2
    assert "is the task 'valve'. Name the one" in capsys.readouterr().err


FAILING = """
from pump import *


class Failing(Pump):
    def step(self, action):
        seen, *others = super().step(action)
        self.steps = getattr(self, "steps", 0) + 1
        return ({}["sensor"] if self.steps > 30 else seen), *others


class Leaving(Pump):
    def step(self, action):
        raise SystemExit(0)


task = ib.Task(Failing, ib.Ball(radius=0.5), horizon=5, name="Pump 2")
leaving = ib.Task(Leaving, ib.Ball(radius=0.5), horizon=5, name="Pump 2")
"""


@pytest.fixture
def failing(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = file.parent / "failing.py"
    path.write_text(FAILING)
    return path


def test_an_environment_that_fails_ends_a_training_with_one_sentence(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    options = (*OPTIONS, "--checkpoint-every", "20", "--out", str(run))
    assert main(["train", f"{failing}:task", *options]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert f"your code fails with KeyError: 'sensor' (line 9 of {failing}). Correct it there" in told.err
    assert "PYTHONDEVMODE=1" in told.err and "resume with" in told.out
    with pytest.raises(KeyError, match=r"^'sensor'$"):
        ib.train(named_task(f"{failing}:task"), SAC, out=tmp_path / "other", progress=False, **TINY)


@pytest.mark.parametrize("command", ["evaluate", "render"])
def test_an_environment_that_fails_ends_other_commands_with_one_sentence(
    command: str, failing: Path, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(trained.run.path), f"{failing}:leaving"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"your code fails with SystemExit: 0 (line 14 of {failing})" in told


def test_an_error_from_another_process_is_placed_in_the_code_of_the_user(failing: Path) -> None:
    environment = named_task(f"{failing}:leaving").make_environment()
    environment.reset()
    with pytest.raises(SystemExit) as met:
        environment.step(np.zeros(2))
    error = RuntimeError("no sensor").with_traceback(met.value.__traceback__)
    place = f"line 14 of {failing}"
    assert own_place(error) == place and own_place(unpickled(pickled(error))) == place


def test_an_error_of_the_library_or_of_a_package_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[main.__module__], "answer", json.loads)
    with pytest.raises(TypeError, match="JSON object must be"):
        main(["list"])


@pytest.mark.parametrize("is_developing", [True, False])
def test_pythons_development_mode_shows_the_traceback(is_developing: bool, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def answer(given):\n    raise KeyError('sensor')\n")
    program = "import sys, own; from inbounds.cli.main import main; sys.modules[main.__module__].answer = own.answer"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        **({"PYTHONDEVMODE": "1"} if is_developing else {}),
    }
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main([]))"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ("Traceback" in ended.stderr) == is_developing and "KeyError: 'sensor'" in ended.stderr
    assert ended.returncode == (1 if is_developing else 2)


def test_the_provenance_of_a_run_keeps_a_command_that_runs(
    by_command: Path, trained: Trained, file: Path
) -> None:
    recorded = json.loads((by_command / "provenance.json").read_text())["command"]
    assert recorded.startswith("inbounds train ") and f"{file}:task" in recorded
    assert collect_run(by_command).command == recorded
    assert collect_run(trained.run.path).command.startswith(
        "ib.train(task, 'sac', steps=40, seeds=1, seed=0)"
    )


def test_a_worker_imports_the_task_that_its_command_names_and_no_other(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"{file}:task"
    assert label(own, named_task(own)) == "own-pump-2" and label("bss3z", ib.make("bss3z")) == "bss3z"
    monkeypatch.setenv(OWN_TASK, own)
    assert task_of_cell("own-pump-2").name == "Pump 2" and task_of_cell("bss3z").name == "bss3z"
    assert own_task("own-pump-2") == own and own_task("bss3z") is None
    monkeypatch.delenv(OWN_TASK)
    with pytest.raises(ib.errors.UnknownNameError):
        task_of_cell("own-pump-2")


@pytest.mark.usefixtures("own_imports")
def test_paths_are_those_from_where_a_command_began_though_the_task_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    leaving = f"super().reset(seed=seed)\n        import os; os.chdir({str(tmp_path / 'elsewhere')!r})"
    own = OWN.replace("super().reset(seed=seed)", leaving)
    (tmp_path / "leaving_task.py").write_text(
        own + "\n\ndef scaled():\n    return task.normalised(steps=20)\n"
    )

    def run(*arguments: str) -> None:
        monkeypatch.chdir(tmp_path)
        assert main([*arguments]) == 0

    small = ("--steps", "60", "--warm-up", "20", "--envs", "1", "--episodes", "2", "--learner", "sac")
    small += ("--sac.hidden", "8", "--sac.batch-size", "8", "--no-references", "--no-tensorboard", "--plain")
    named = "leaving_task.py:scaled"
    for out in ("runs/one", "runs/two"):
        run("train", named, *small, "--out", out)
    run("evaluate", "runs/one", "runs/two", named, "--episodes", "2", "--actions", "5")
    assert "wrote runs/one/evaluation.json" in capsys.readouterr().out
    assert all((tmp_path / "runs" / out / "evaluation.json").is_file() for out in ("one", "two"))
    run(
        "train",
        named,
        "--resume",
        "runs/one",
        "--steps",
        "80",
        "--no-references",
        "--no-tensorboard",
        "--plain",
    )
    run("render", "runs/one", named, "--out", "one.gif")
    run("report", "runs", named, "--out", "page.html")
    assert (tmp_path / "one.gif").is_file() and (tmp_path / "page.html").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.usefixtures("own_imports")
def test_an_audited_policy_is_found_from_where_the_command_began_though_the_task_leaves_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    leaving = f"import os\n\nos.chdir({str(tmp_path / 'elsewhere')!r})\n"
    (tmp_path / "beside_leaving.py").write_text(leaving + OWN)
    (tmp_path / "beside_policy.py").write_text("def rest(observation):\n    return [0.0, 0.0]\n")
    task = named_task(f"{tmp_path / 'beside_leaving.py'}:task")
    random_run(tmp_path / "runs" / "one", task.constraint, 2, 2, task="Pump 2")
    (tmp_path / "python").symlink_to(sys.executable)
    for policy in ("runs/one", "beside_policy.py:rest", "beside_policy:rest"):
        monkeypatch.chdir(tmp_path)
        options = ["--steps", "5", "--out", "found", "--interpreter", "./python"]
        assert main(["audit", policy, "beside_leaving.py:task", *options]) == 0
        certificate = json.loads((tmp_path / "found" / "certificate.json").read_text())
        assert certificate["passed"] and certificate["policy"] == Path(policy).name
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("named", "found"), [("./python", True), ("python3", False), ("pkg.module:act", False)]
)
def test_only_what_exists_is_made_a_path_from_the_root_on(
    named: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert cli_audit.from_here(named) == (str(tmp_path / "python") if found else named)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "RUN", "TASK", "--actions", "0"], "actions=0 must be at least 1"),
        (["evaluate", "RUN", "TASK", "--episodes", "0"], "episodes=0 must be at least 1"),
        (["evaluate", "RUN", "TASK", "--against-episodes", "1"], "against_episodes=1 must be at least 2"),
        (["render", "RUN", "TASK", "--steps", "-3"], "steps=-3 must be at least 1"),
        (["render", "RUN", "TASK", "--seed", "-1"], "seed=-1 must be at least 0"),
    ],
)
def test_numbers_that_a_command_cannot_play_are_refused_before_it_plays(
    arguments: list[str],
    words: str,
    trained: Trained,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(file.parent)
    given = {"RUN": str(file.parent / "run"), "TASK": f"{file}:task"}
    assert main([given.get(word, word) for word in arguments]) == 2
    assert words in capsys.readouterr().err


def test_settings_that_a_call_cannot_use_are_refused(trained: Trained, file: Path) -> None:
    run, task = file.parent / "run", named_task(f"{file}:task")
    with pytest.raises(InvalidInputError, match="policy='first' must be 'last' or 'best'"):
        ib.evaluate(run, task, policy="first")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"episodes=2\.5 must be at least 1, a whole number"):
        ib.evaluate(run, task, episodes=2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"steps=2\.5 must be at least 1, a whole number"):
        ib.render(run, task, steps=2.5)  # type: ignore[arg-type]
