"""Commands and what others left them: foreign folders, damaged files, refusing systems. One sentence, never a trace."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inbounds.cli import catalogue
from inbounds.cli.display import LiveDisplay
from inbounds.cli.main import main
from inbounds.cli.terminal import Terminal, command, require_writable, shown
from inbounds.cli.train import TensorBoardTracker
from inbounds.experiments import runner
from inbounds.experiments.experiment import Cell
from inbounds.experiments.results import save_result
from inbounds.experiments.runner import Job, Planned
from inbounds.experiments.suites import SUITES
from tests.experiments.synthetic_runs import make_result, write_run

Captured = pytest.CaptureFixture[str]
POLICY = Path(__file__).resolve().parent.parent / "policies" / "reacher"
EVIL = "\x1b]0;evil\x07[/]\u202e\nx"
"""Sets the title of a terminal, closes markup that is not open, turns the writing round, begins a line."""
CELL = SUITES["smoke"].cells()[0]


def refused(capsys: Captured, *arguments: str | Path) -> str:
    """Run a command that must be refused, and return the one sentence that it ended with."""
    assert main([str(one) for one in arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("inbounds: ") and told.count("\n") == 1 and told.endswith(".\n"), told
    return told


def harmless(told: str) -> bool:
    return not set(told) & {"\x1b", "\x07", "\u202e"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from the checkout, whose results would be read for their speeds."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", is_final=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A regular file: whatever shall lie below it cannot."""
    path = tmp_path / "file"
    path.write_text("")
    return path


# Names from files are never paths


@pytest.mark.parametrize(
    "changes", [{"task": "../../../evil"}, {"variant": "../evil"}, {"learner": "a/b"}, {"preset": "\x1b[2J"}]
)
def test_a_foreign_cell_cannot_name_a_file_elsewhere(
    changes: dict[str, str], tmp_path: Path, capsys: Captured
) -> None:
    cell = Cell(**{"task": "reacher", "learner": "aram", "preset": "default", "steps": 300, **changes})
    write_run(tmp_path / "theirs" / "smoke" / "one", cell=cell)
    write_run(tmp_path / "theirs" / "smoke" / CELL.name, task=CELL.task, cell=CELL)
    mine = tmp_path / "mine"
    arguments = ["--collect", "--merge", str(tmp_path / "theirs"), "--out", str(mine)]
    assert main(["benchmark", "smoke", *arguments]) == 1
    told = capsys.readouterr().out
    assert "left out:" in told and "small letters and digits" in told and harmless(told)
    assert [path.name for path in mine.rglob("*.json")] == [f"{CELL.name}.json"]
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("field", ["suite", "name"])
def test_a_foreign_result_cannot_name_a_figure_elsewhere(
    field: str, tmp_path: Path, capsys: Captured
) -> None:
    path = save_result(make_result(), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: "../evil"}))
    told = refused(capsys, "report", path, "--figures", tmp_path / "figures")
    assert "'../evil'" in told and not list(tmp_path.rglob("*evil*"))


def test_a_figure_keeps_the_dots_of_its_name(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from inbounds.report.style import save

    assert save(Figure(), tmp_path / "v1.2-return", ("png",)) == [tmp_path / "v1.2-return.png"]


def test_a_result_is_collected_with_a_command_that_can_be_pasted(run: Path) -> None:
    from inbounds.experiments.results import collect_run

    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "task": "x; rm -rf ."}))
    command = collect_run(run).command
    assert command.startswith("ib.train(task, 'aram'") and command.endswith(
        "# the task 'x; rm -rf .' of your own"
    )


# What a terminal is told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ± ▁█ ä", "plain ± ▁█ ä"),
        ("\x1b[2J\r\n\t\x7f", r"\x1b[2J\r\n\t\x7f"),
        ("\u202e\ud800\udcff\x9b", r"\u202e\ud800\udcff\x9b"),
    ],
)
def test_only_visible_characters_are_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_the_terminal_takes_no_text_for_markup_wherever_it_stands(capsys: Captured) -> None:
    from rich.table import Table

    terminal = Terminal(width=200)
    table = Table(EVIL, title=EVIL, caption=EVIL)
    table.add_row(EVIL)
    terminal.print(table)
    terminal.say(EVIL)
    told = capsys.readouterr().out
    assert told.count(shown(EVIL)) == 5 and harmless(told)


def test_the_live_display_shows_a_title_as_it_is(capsys: Captured) -> None:
    with LiveDisplay(EVIL, 200, 1, Terminal(width=100)) as display:
        display.live.console.print(display.live.renderable)
    told = capsys.readouterr().out
    assert shown(EVIL) in told and harmless(told)


def test_a_folder_may_be_called_whatever_a_file_system_allows(run: Path, capsys: Captured) -> None:
    page = run / "[/]x \x1b[31m" / "page.html"
    assert main(["report", str(run), "--out", str(page)]) == 0
    told = capsys.readouterr().out
    assert r"[/]x \x1b[31m" in told and harmless(told) and page.exists()


def test_a_path_in_no_encoding_can_be_told(run: Path, capsys: Captured) -> None:
    page = run / os.fsdecode(b"\xff.html")
    assert main(["report", str(run), "--out", str(page)]) == 0
    assert r"\udcff.html" in capsys.readouterr().out


def test_a_run_whose_folder_or_task_is_in_no_encoding_gets_its_page(tmp_path: Path, capsys: Captured) -> None:
    run = write_run(tmp_path / os.fsdecode(b"caf\xe9"), is_final=False)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "task": "walk\ud800"}))
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_bytes().decode()
    assert r"caf\udce9" in capsys.readouterr().out and r"walk\ud800" in page


def test_an_error_shows_names_from_files_as_they_are(run: Path, capsys: Captured) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "task": EVIL}))
    told = refused(capsys, "evaluate", run)
    assert shown(EVIL) in told and harmless(told)


def test_a_plan_shows_why_a_cell_failed_as_it_is(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "smoke" / CELL.name
    folder.mkdir(parents=True)
    (folder / "failure.json").write_text(json.dumps({"error": EVIL}))
    assert main(["benchmark", "smoke", "--plan", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert r"\x1b]0;evil\x07[/]" in told.replace("\n", "") and harmless(told)


def test_commands_to_copy_are_quoted() -> None:
    assert command("report", Path("my runs/[x]")) == "inbounds report 'my runs/[x]'"


def test_a_reader_that_has_gone_does_not_end_the_work() -> None:
    class Gone:
        encoding, isatty = "utf-8", lambda self: False

        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def flush(self) -> None:
            pass

    terminal = Terminal(file=Gone())
    terminal.say("one")
    terminal.say("two")


# What the system refuses


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "x"),
            "x: no space left on device. Free some disk space",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "Make it accessible for you"),
        (OSError(errno.EROFS, "Read-only file system", "x"), "Choose a place that can be written"),
        (OSError("something else"), "something else. Choose another place"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_whatever_the_system_refuses_ends_in_a_sentence_with_its_remedy(
    error: BaseException, words: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(catalogue, "run", fail)
    assert words in refused(capsys, "list")


def test_a_full_disk_behind_standard_output_ends_in_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "inbounds", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "Free some disk space" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "reacher", "--steps", "500", "--out"),
        ("report", POLICY, "--out"),
        ("render", "bss3z", "--policy", "uniform", "--out"),
        ("audit", POLICY, "reacher", "--steps", "5", "--out"),
        ("export", POLICY, "--out"),
        ("benchmark", "references", "--tasks", "reacher", "--steps", "0", "--results"),
    ],
    ids=lambda arguments: " ".join(str(one) for one in arguments[:1]),
)
def test_a_place_that_cannot_be_written_is_named_with_the_remedy(
    arguments: tuple[str | Path, ...],
    file: Path,
    run: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending = {"report": "page.html", "render": "film.gif"}.get(str(arguments[0]), "folder")
    given = [run if one is POLICY and arguments[0] == "report" else one for one in arguments]
    told = refused(capsys, *given, file / "below" / ending)
    assert str(file) in told and "choose another" in told.lower()


def test_a_film_and_a_certificate_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(IsADirectoryError):
        require_writable(tmp_path)
    require_writable(tmp_path / "new" / "folder" / "file")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="file"):
        require_writable(tmp_path / "file")


def test_a_run_folder_that_cannot_be_written_ends_an_evaluation_with_a_sentence(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are told before, so that they are not lost."""
    from inbounds.cli import evaluate

    shutil.copytree(POLICY, tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").mkdir()
    monkeypatch.setattr(evaluate, "evaluate_one", _evaluate_quickly(evaluate.evaluate_one))
    arguments = ["--episodes", "1", "--no-sweep", "--no-timing"]
    assert main(["evaluate", str(tmp_path / "run"), *arguments]) == 2
    told = capsys.readouterr()
    assert "valid rate" in told.out and told.err.count("\n") == 1
    assert "evaluation.json could not be written (Is a directory)" in told.err
    assert "A folder stands where a file is needed" in told.err


def _evaluate_quickly(evaluate_one: Callable[..., None]) -> Callable[..., None]:
    """Return the same with an evaluation that plays nothing."""
    import numpy as np

    from inbounds.evaluation import protocol
    from inbounds.evaluation.protocol import SolverCalls

    def found(opened: Any, episodes: int, preference: Any) -> protocol.FinalEvaluation:
        assert preference is None  # that of the run
        one = np.zeros(1)
        calls = SolverCalls((), {}, (0,), 0)
        return protocol.FinalEvaluation(
            (0,), 1, (0.9, 0.1), np.zeros((1, 1)), one, one, one, None, 0.0, calls
        )

    def quickly(terminal: Any, opened: Any, options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(protocol, "evaluate_run", found)
            evaluate_one(terminal, opened, options)

    return quickly


@pytest.mark.parametrize("port", ["taken", "70000", "-1"])
def test_a_port_that_cannot_be_had_is_named_with_the_remedy(port: str, run: Path, capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1]) if port == "taken" else port
        told = refused(capsys, "report", run, "--live", "--port", number)
    assert f"port {number}" in told and "Choose another --port; 0 takes any that is free" in told


def test_events_that_cannot_be_written_cost_one_line_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    told: list[str] = []
    tracker = TensorBoardTracker(tmp_path, told.append)
    tracker({"kind": "metrics", "step": 0, "seed": 0, "acceptance": 0.5})
    monkeypatch.setattr(tracker.writer, "write_event", fail)
    for step in range(100):  # more than a queue would take
        tracker({"kind": "metrics", "step": step, "seed": 0, "acceptance": 0.5})
    tracker.close()
    assert len(told) == 1 and told[0].startswith("no more TensorBoard events: no space left on device.")


def test_events_that_cannot_be_begun_cost_one_line_as_well(file: Path) -> None:
    told: list[str] = []
    tracker = TensorBoardTracker(file, told.append)
    for step in range(3):
        tracker({"kind": "metrics", "step": step, "seed": 0, "acceptance": 0.5})
    tracker.close()
    assert (
        len(told) == 1
        and told[0].startswith("no more TensorBoard events: ")
        and "choose another place" in told[0]
    )


def test_events_hold_every_number_of_every_row(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    tracker = TensorBoardTracker(tmp_path, pytest.fail)
    tracker({"kind": "metrics", "step": 7, "seed": 3, "acceptance": 0.5, "training_return": None})
    tracker.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, events = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    (value,) = events[-1].summary.value
    assert (events[-1].step, value.tag, value.simple_value) == (7, "metrics/acceptance/seed 3", 0.5)


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "reacher", "--steps", "500"),
        ("evaluate", POLICY),
        ("benchmark", "smoke", "--plan"),
        ("tune", "reacher"),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_gpu_that_is_not_there_is_refused_with_the_remedy(
    arguments: tuple[str | Path, ...], capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    told = refused(capsys, *arguments, "--device", "gpu")
    assert "not on gpu. Leave --device out" in told and not list(tmp_path.iterdir())


def test_a_backend_that_jax_does_not_find_is_refused_with_the_remedy(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    def fail() -> None:
        raise AssertionError  # what jax 0.10 says where no CUDA plugin is installed

    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    told = refused(capsys, "evaluate", POLICY)
    assert "JAX finds no device for JAX_PLATFORMS=cuda" in told and "pip install" in told


# What files hold


DEEP = '{"a":' * 100_000
DAMAGES: dict[str, tuple[str, bytes | str, str]] = {
    "a config.json of another shape": ("config.json", '{"task": "reacher"}', "'learner' is missing"),
    "a config.json that is a list": ("config.json", "[]", "a list instead of an object"),
    "a config.json nested 100,000 deep": ("config.json", DEEP, "nested too deeply"),
    "a config.json that is not UTF-8": ("config.json", b'{"task": "\xff"}', "utf-8"),
    "a config.json that is a folder": ("config.json", "folder", "not a regular file"),
    "a log that is not UTF-8": ("evaluations.jsonl", b'{"step": "\xff"}\n{}\n', "line 1 of"),
    "a log that lacks fields": ("evaluations.jsonl", '{"step": 100, "seed": 0}\n', "'return' is missing"),
    "a log whose numbers are words": ("metrics.jsonl", '{"step": "a"}\n', "'step' is a text"),
    "a provenance.json of another shape": ("provenance.json", '{"packages": []}', "'inbounds' is missing"),
}


def damage(folder: Path, name: str, content: bytes | str) -> None:
    (folder / name).unlink()
    if content == "folder":
        (folder / name).mkdir()
    elif isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        (folder / name).write_text(content)


@pytest.mark.parametrize("case", DAMAGES)
def test_a_report_names_what_is_damaged_with_the_remedy(case: str, run: Path, capsys: Captured) -> None:
    name, content, words = DAMAGES[case]
    damage(run, name, content)
    told = refused(capsys, "report", run)
    assert str(run / name) in told and words in told


@pytest.mark.parametrize("case", [case for case in DAMAGES if "config" in case])
@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "RUN"),
        ("train", "--resume", "RUN"),
        ("render", "RUN"),
        ("export", "RUN"),
        ("audit", "RUN", "reacher"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_names_a_damaged_configuration_with_the_remedy(
    arguments: tuple[str, ...], case: str, tmp_path: Path, capsys: Captured
) -> None:
    name, content, _ = DAMAGES[case]
    folder = tmp_path / "run"
    shutil.copytree(POLICY, folder)
    damage(folder, name, content)
    told = refused(capsys, *(folder if one == "RUN" else one for one in arguments))
    assert str(folder) in told and "estore" in told


@pytest.mark.parametrize(
    "settings",
    [{"name": "aram", "evil": 1}, {"name": "aram", "hidden": ["x"]}, {"name": "aram", "hidden": -5}],
)
@pytest.mark.parametrize("command_line", [("evaluate", "RUN"), ("train", "--resume", "RUN")])
def test_a_learner_that_cannot_be_built_is_refused(
    command_line: tuple[str, ...], settings: dict[str, Any], tmp_path: Path, capsys: Captured
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(POLICY, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "learner": settings}))
    told = refused(capsys, *(folder if one == "RUN" else one for one in command_line))
    assert "Restore its config.json" in told


def test_a_result_that_is_not_finite_is_refused(run: Path, capsys: Captured) -> None:
    log = (run / "evaluations.jsonl").read_text()
    (run / "evaluations.jsonl").write_text(log.replace('"return": 3.0', '"return": Infinity'))
    assert "instead of a finite number" in refused(capsys, "report", run)


def test_another_programs_references_are_passed_over(run: Path) -> None:
    (run / "references.json").write_text('{"books": []}')
    assert main(["report", str(run)]) == 0


@pytest.mark.parametrize("formats", [("exe",), ("svg", "../x")])
def test_a_format_that_no_figure_has_is_refused(
    formats: tuple[str, ...], run: Path, capsys: Captured
) -> None:
    told = refused(capsys, "report", run, "--figures", run / "figures", "--formats", *formats)
    assert "Choose from pdf, svg, png" in told


def test_a_task_may_have_a_dollar_in_its_name(tmp_path: Path) -> None:
    from inbounds.report.figures import draw_run
    from inbounds.training.record import RunFolder

    assert draw_run(RunFolder(write_run(tmp_path / "run", task=r"price $\evil{ and $ cost")), {}).exists()


# Suites whose cells are damaged, stopped, or not to be run


def smoke_cells(root: Path, count: int) -> list[Cell]:
    cells = SUITES["smoke"].cells()[:count]
    for cell in cells:
        write_run(root / "smoke" / cell.name, task=cell.task, learner=cell.learner, cell=cell)
    return cells


@pytest.mark.parametrize("name", ["evaluations.jsonl", "metrics.jsonl", "final.json", "cell.json"])
def test_a_damaged_cell_is_left_out_and_does_not_stop_the_suite(
    name: str, tmp_path: Path, capsys: Captured
) -> None:
    damaged, whole = smoke_cells(tmp_path, 2)
    (tmp_path / "smoke" / damaged.name / name).write_bytes(b'\xff\n{"step": 1}\n')
    assert main(["benchmark", "smoke", "--collect", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"{damaged.name}/{name} is damaged" in told and "1 finished experiments" in told
    assert (tmp_path / "results" / "smoke" / f"{whole.name}.json").exists()


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "cell.json", "failure.json", "checkpoints/step-before-my-change"]
)
def test_a_damaged_cell_does_not_stop_the_plan(name: str, tmp_path: Path, capsys: Captured) -> None:
    damaged, _ = smoke_cells(tmp_path, 2)
    folder = tmp_path / "smoke" / damaged.name
    (folder / "final.json").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b'\xff\n{"step": 1}\n')
    assert main(["benchmark", "smoke", "--plan", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    state = "failed" if name in ("cell.json", "failure.json") else "to do"
    assert any(damaged.name in line and state in line for line in told.splitlines())
    assert "1 finished" in told


def test_a_damaged_result_does_not_stop_the_plan(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_bytes(b'{\n"format": 1, "\xff')
    (tmp_path / "results" / "folder.json").mkdir()
    assert main(["benchmark", "smoke", "--plan", "--out", str(tmp_path)]) == 0


def test_a_cell_that_cannot_be_started_does_not_stop_the_others(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
        raise OSError(errno.ENOSPC, "No space left on device", str(planned.folder))

    monkeypatch.setattr(runner, "start", fail)
    arguments = ["--tasks", "bss3z", "--out", str(tmp_path)]
    assert main(["benchmark", "smoke", *arguments]) == 1
    told = capsys.readouterr().out
    count = sum(cell.task == "bss3z" for cell in SUITES["smoke"].cells())
    assert told.count("could not be started") == count > 1 and "Free some disk space" in told


def stand_in(program: str, begin: Callable[[], None]) -> Callable[[Planned, dict[str, str], bool], Job]:
    """Return a start of cells that runs a program of a few lines instead, and calls `begin` once it stands."""

    def start(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        threading.Thread(target=begin, daemon=True).start()
        return Job(planned, process, time.monotonic())

    return start


PATIENT = (
    "import sys, time\ntry:\n  print(flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n  sys.exit(3)"
)
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(60)"
SOON = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); time.sleep(60)"


@pytest.mark.parametrize("program", [PATIENT, SOON], ids=["saves", "has not begun to listen"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_suite_that_was_asked_to_stop_says_what_is_open_and_is_not_done(
    program: str, number: signal.Signals, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "start", stand_in(program, lambda: os.kill(os.getpid(), number)))
    assert main(["benchmark", "smoke", "--jobs", "1", "--out", str(tmp_path)]) == 130
    told = capsys.readouterr().out
    assert (
        f"{len(SUITES['smoke'].cells())} experiments are open" in told and "the same command goes on" in told
    )
    assert not list(tmp_path.rglob("failure.json"))


def test_a_cell_that_is_ended_at_once_has_not_failed(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inbounds.training import interrupts

    def twice() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    monkeypatch.setattr(interrupts, "ONE_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(runner, "start", stand_in(DEAF, twice))
    assert main(["benchmark", "smoke", "--jobs", "1", "--out", str(tmp_path)]) == 130
    assert "FAILED" not in capsys.readouterr().out and not list(tmp_path.rglob("failure.json"))


def test_a_cell_at_work_elsewhere_leaves_the_suite_undone(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "import sys; print(flush=True); sys.exit(4)"
    monkeypatch.setattr(runner, "start", stand_in(busy, lambda: None))
    arguments = ["--tasks", "bss3z", "--learners", "aram", "--out", str(tmp_path)]
    assert main(["benchmark", "smoke", *arguments]) == 1
    assert "1 experiments are open (another process works on them" in capsys.readouterr().out


def test_cells_are_asked_to_save_when_their_runner_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inbounds.experiments.runner import Speeds, plan

    class LostError(Exception):
        pass

    jobs: list[Job] = []

    def start(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
        jobs.append(stand_in(PATIENT, lambda: None)(planned, environment, train_only))
        return jobs[-1]

    def report(line: str) -> None:
        raise LostError

    monkeypatch.setattr(runner, "start", start)
    with pytest.raises(LostError):
        runner.run_locally(plan([CELL], tmp_path, Speeds([], "")), 1, report, {})
    assert jobs[0].process.wait(timeout=10) == 3


@pytest.mark.parametrize(
    "arguments", [("benchmark", "smoke", "--jobs", "0"), ("benchmark", "smoke", "--jobs", "-1")]
)
def test_a_suite_without_jobs_is_refused_instead_of_waiting_for_ever(
    arguments: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    assert "would run nothing" in refused(capsys, *arguments, "--out", tmp_path)


@pytest.mark.parametrize("name", ["--jobs", "--trials"])
def test_a_search_without_jobs_or_trials_is_refused_instead_of_going_on_for_ever(
    name: str, tmp_path: Path, capsys: Captured
) -> None:
    assert "would run nothing" in refused(capsys, "tune", "reacher", name, "0", "--out", tmp_path)


# Policies and tasks that are programs


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("def act(observation):\n    raise ValueError('no')", "ValueError (no)"),
        ("import sys\ndef act(observation):\n    sys.exit(0)", "SystemExit (0)"),
        ("import sys\nsys.exit(0)", "ends the program while it is imported"),
        ("act = (", "line 1"),
        ("raise RuntimeError('at import')", "at import"),
    ],
)
def test_an_audited_program_cannot_end_the_audit_with_a_verdict(
    program: str, words: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "policy.py").write_text(program + "\n")
    told = refused(capsys, "audit", f"{tmp_path / 'policy.py'}:act", "reacher", "--steps", "5")
    assert words in told
