"""The command line as a user meets it: what it understands, refuses, shows and writes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from inbounds.cli.display import LiveDisplay, PlainDisplay, Standing, compare, duration, sparkline
from inbounds.cli.main import COMMANDS, main
from inbounds.cli.options import parse
from inbounds.cli.terminal import Terminal, command
from inbounds.cli.train import Stopper, size
from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.evaluation.baselines import ReferenceReturn
from inbounds.storage.files import locked
from inbounds.training import interrupts
from inbounds.training.summary import RunSummary

TINY = (
    *("--steps", "200", "--warm-up", "50", "--evaluate-every", "100", "--episodes", "2", "--capacity", "500"),
    *("--envs", "2", "--aram.hidden", "8", "--aram.batch-size", "8", "--aram.proposals", "5"),
    *("--plain", "--no-references"),
)


class Demo(NamedTuple):
    folder: Path
    told: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    # A name that is no markup, needs quotes in a shell, and would turn a terminal red.
    folder, told = tmp_path_factory.mktemp("runs") / "[/]my demo\x1b[31m", io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main(["train", "reacher", *TINY, "--out", str(folder)]) == 0
    return Demo(folder, told.getvalue())


@pytest.fixture
def demo(trained: Demo) -> Path:
    return trained.folder


def metrics(**values: Any) -> dict[str, Any]:
    row = {
        "kind": "metrics",
        "step": 100,
        "seed": 0,
        "steps_per_second": 50.0,
        "acceptance": 0.5,
        "projections": 3,
    }
    return {**row, "lowest_reward": 0.1, **values}


def evaluation(**values: Any) -> dict[str, Any]:
    row = {"kind": "evaluation", "step": 100, "seed": 0, "return": -3.5, "valid_action_rate": 0.75}
    return {**row, "worst_violation": 0.0, "training_projections": 3, "evaluation_seconds": 1.0, **values}


# What is understood and refused


def test_help_names_every_command_and_the_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert "inbounds train reacher" in told and "evaluate" in told


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"inbounds {name}" in capsys.readouterr().out


def test_every_field_of_the_training_and_of_the_learner_is_an_option() -> None:
    request = parse(
        ["reacher", "--steps", "7000", "--envs", "3", "--aram.penalty", "0.4", "--aram.hidden", "8", "9"]
    )
    assert (request.training.steps, request.training.environments) == (7000, 3)
    assert (request.learner.penalty, request.learner.hidden) == (0.4, (8, 9))


def test_single_options_win_over_the_preset_and_the_preset_over_the_defaults() -> None:
    request = parse(["reacher", "--preset", "paper", "--aram.q-snapshots", "2"])
    assert request.learner.preset == "paper"
    assert (request.learner.q_snapshots, request.learner.alpha) == (2, 0.2)


def test_the_options_are_those_of_the_learner_asked_for() -> None:
    request = parse(["reacher", "--learner", "sosac", "--sosac.preference", "0.5", "0.5"])
    assert request.learner_name == "sosac" and request.learner.preference == (0.5, 0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ([], ConfigurationError, "which task"),
        (["reacher", "--preset", "papr"], UnknownNameError, "Did you mean 'paper'"),
        (["reacher", "--learner", "armm"], UnknownNameError, "Did you mean 'aram'"),
        (["reacher", "--device", "tpu"], UnknownNameError, "cpu, gpu"),
        (["reacher", "--steps", "10", "--warm-up", "10"], ConfigurationError, "nothing would be learnt"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(
    arguments: list[str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        parse(arguments)


@pytest.mark.parametrize("given", [["--out", ""], ["--out="]])
def test_an_empty_name_is_not_the_folder_where_the_command_runs(given: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="names no folder"):
        parse(["reacher", *given])


@pytest.mark.parametrize(
    "word",
    ["plain", "two words", "it's 5 % \\ $HOME `x`", "a\nb", "t\tab'\n%s\\n\"$(x)", "\udcff\x1b[31m", "-n\nx"],
)
def test_a_printed_command_is_one_line_that_a_shell_reads_back(word: str) -> None:
    text = command("train", "--out", word)
    assert text.isprintable()
    printed = subprocess.run(
        ["sh", "-c", f"inbounds() {{ printf '%s\\0' \"$@\"; }}; {text}"], capture_output=True, check=True
    )
    assert printed.stdout.split(b"\0")[:-1] == [b"train", b"--out", os.fsencode(word)]


def test_a_run_that_is_refused_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["train", "halfcheetah", "--learner", "appropt", "--steps", "500", "--out", str(folder)]) == 2
    assert "Use OptLayer" in capsys.readouterr().err
    assert not folder.exists()


def test_a_misspelt_option_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "reacher", "--stepz", "5"]) == 2
    assert "--steps" in capsys.readouterr().err


def test_a_device_is_chosen_through_the_environment_before_jax_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import os

    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--first")
    parse(["reacher", "--device", "gpu", "--deterministic"])
    assert os.environ["JAX_PLATFORMS"] == "cuda"
    assert os.environ["XLA_FLAGS"] == "--first --xla_gpu_deterministic_ops=true"


# What a run leaves


def test_training_writes_a_run_with_tables_picture_and_events(demo: Path) -> None:
    present = {path.name for path in demo.iterdir()}
    assert {"config.json", "provenance.json", "metrics.jsonl", "evaluations.jsonl", "checkpoints"} <= present
    assert {
        "metrics.csv",
        "evaluations.csv",
        "learning_curve.png",
        "tensorboard",
        "policy.safetensors",
    } <= present
    header, *lines = (demo / "evaluations.csv").read_text().splitlines()
    assert header.startswith("step,seed,return") and len(lines) == 2
    assert json.loads((demo / "provenance.json").read_text())["compilation_seconds"] > 0


def test_training_shows_its_settings_first_and_the_policy_last(trained: Demo) -> None:
    told = trained.told
    places = [told.index(words) for words in ("a_i^2 <= 0.05", "penalty", "step 100 of 200", "next:")]
    assert places == sorted(places)
    assert "the replay in a checkpoint holds up to" in told and "worst violation" in told
    assert r"[/]my demo\x1b[31m" in told and "\x1b" not in told
    assert r"[/]my demo\033[31m')" in told  # in the commands that can be copied
    assert "s before the first step)" in trained.told  # what a method trains beforehand, and compiling


def test_a_folder_that_holds_a_run_is_not_overwritten(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "reacher", *TINY, "--out", str(demo)]) == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--resume"], ["reacher", *TINY, "--out"]], ids=["resume", "new"])
def test_a_folder_that_another_process_is_writing_is_left_alone(
    options: list[str], demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    if options == ["--resume"]:
        for name in ("config.json", "provenance.json", "metrics.jsonl", "evaluations.jsonl"):
            shutil.copy(demo / name, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with ThreadPoolExecutor(1) as other, contextlib.ExitStack() as held:
        other.submit(held.enter_context, locked(folder)).result()
        assert main(["train", *options, str(folder)]) == 2
        other.submit(held.close).result()
    assert "another process is writing" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"} == before


@pytest.mark.sweep
def test_a_run_is_resumed_with_its_own_settings_and_more_steps(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["train", "reacher", *TINY, "--out", str(folder)]) == 0
    assert main(["train", "--resume", str(folder), "--steps", "300", "--plain", "--no-references"]) == 0
    steps = [json.loads(line)["step"] for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert steps == [100, 200, 300]
    assert json.loads((folder / "config.json").read_text())["training"]["steps"] == 300


def test_where_no_checkpoint_can_be_read_nobody_says_that_one_is_kept(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(demo, tmp_path / "run")
    for state in (tmp_path / "run").rglob("state.safetensors"):
        state.write_bytes(b"")
    assert main(["train", "--resume", str(tmp_path / "run"), "--steps", "300", "--plain"]) == 2
    told = capsys.readouterr()
    assert "none of the 1 checkpoint(s)" in told.err and "is kept" not in told.out


def test_a_run_is_not_resumed_on_another_task(demo: Path) -> None:
    with pytest.raises(ConfigurationError, match="run of reacher"):
        parse(["hopper", "--resume", str(demo)])


@pytest.mark.sweep
def test_a_missing_package_costs_one_line_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main(["train", "reacher", *TINY, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "matplotlib is not installed" in told and "tensorboardX is not installed" in told


def test_evaluating_a_run_prints_its_protocol_and_writes_its_numbers(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--episodes", "2", "--sweep-episodes", "1", "--actions", "5"]
    assert main(["evaluate", str(demo), *arguments]) == 0
    told = capsys.readouterr().out
    assert "suggested preference to deploy" in told and "with the environment's step" in told
    written = json.loads((demo / "evaluation.json").read_text())
    assert len(written["final"]["return"]) == 1 and [point[0] for point in written["front"]["points"]] == [
        0.8,
        0.85,
        0.9,
        0.95,
        1.0,
    ]


@pytest.mark.parametrize("command", ["evaluate", "audit"])
def test_a_folder_that_is_no_run_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["reacher"] if command == "audit" else []
    assert main([command, str(tmp_path), *task]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_a_policy_of_ours_is_audited_on_the_task_that_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    published = Path(__file__).resolve().parent.parent / "policies" / "reacher"
    assert main(["audit", str(published), "--steps", "3"]) == 0
    assert "sum_i a_i^2 <= 0.05" in capsys.readouterr().out
    assert main(["audit", "nowhere.py:act"]) == 2
    assert "which task? Name it behind the policy" in capsys.readouterr().err


def test_a_reference_policy_is_filmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = tmp_path / "film.gif"
    assert main(["render", "bss3z", "--policy", "never-moving", "--steps", "3", "--out", str(film)]) == 0
    assert film.stat().st_size > 0 and "3 steps" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_not_taken_for_a_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(tmp_path / "runs" / "demoo")]) == 2
    assert "is not a folder. Give that of a run" in capsys.readouterr().err


def test_a_policy_that_does_not_exist_is_named_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "bss3z", "--policy", "best"]) == 2
    assert "never-moving" in capsys.readouterr().err


# What is seen meanwhile


@pytest.mark.parametrize(("spread", "told"), [(1.0, "by 10, 10 standard errors."), (0.0, "by 10.")])
def test_a_gain_is_told_in_standard_errors_where_there_are_any(
    spread: float, told: str, tmp_path: Path
) -> None:
    rows = ({"return": 12.0, "return_std": spread},)
    summary = RunSummary(
        path=tmp_path, task="t", learner="aram", step=1, evaluations=rows, worst_violation=0.0
    )
    uniform = ReferenceReturn("uniform", np.array([2.0 - spread, 2.0 + spread]), 0.0)
    assert compare(summary, [uniform]) == f"The policy beats uniformly random feasible actions {told}"


def test_a_report_is_complete_when_every_seed_has_sent_its_row() -> None:
    standing = Standing(steps=1000, seeds=2)
    assert standing.take(metrics(seed=0)) is None
    assert standing.take(metrics(seed=1, acceptance=0.7)) == "metrics"
    assert standing.acceptance == pytest.approx(0.6)


def test_time_left_counts_training_and_evaluation_and_waits_for_a_second_report() -> None:
    standing = Standing(steps=300, seeds=1)
    standing.take(metrics(step=100))
    assert standing.seconds_left() is None
    standing.take(metrics(step=200, steps_per_second=50.0))
    standing.take(evaluation(step=200, evaluation_seconds=4.0))
    assert standing.seconds_left() == pytest.approx(100 / 50 + 4.0 * 100 / 200)


def test_the_live_display_shows_return_validity_projections_and_violation() -> None:
    console = Terminal(file=io.StringIO(), force_terminal=True, width=100)
    with LiveDisplay("title", 200, 1, console) as display:
        display(metrics())
        display(metrics(step=200))
        display(evaluation(step=200))
        console.print(display.live.renderable)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "-3.5" in shown and "0.750" in shown and "200 of 200" in shown and "acceptance" in shown


def test_the_plain_display_prints_a_line_per_evaluation() -> None:
    console = Terminal(file=io.StringIO(), width=200)
    display = PlainDisplay(200, 1, console)
    display(metrics())
    display(evaluation())
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert told.count("\n") == 1 and "return -3.5" in told and "valid action rate 0.750" in told


def test_the_first_interrupt_asks_to_stop_and_the_second_one_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "ONE_REQUEST_SECONDS", 0.0)
    stopper = Stopper(Terminal(file=io.StringIO()), steps=200)
    with stopper.requests.catching(signal.SIGINT):
        assert stopper({"step": 50}) is False
        signal.raise_signal(signal.SIGINT)
        assert stopper({"step": 100}) is True and stopper.has_stopped
        assert (
            stopper({"step": 200}) is False and not stopper.has_stopped
        )  # the run is over: nothing to resume
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("values", "line"),
    [([], ""), ([1.0], "▁"), ([0.0, 1.0], "▁█"), ([0.0, float("nan"), 1.0], "▁ █"), ([2.0, 2.0], "▁▁")],
)
def test_a_sparkline_runs_from_the_lowest_bar_to_the_highest(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def test_a_long_curve_is_averaged_into_the_width() -> None:
    assert sparkline([float(value) for value in range(1000)], width=8) == "▁▂▃▄▅▆▇█"


def test_sizes_and_times_are_told_as_a_person_would() -> None:
    assert (size(999), size(5.2e6), size(3e9)) == ("999 B", "5.2 MB", "3 GB")
    assert (duration(60), duration(600), duration(7200)) == ("60 s", "10 min", "2.0 h")


def test_the_demo_of_the_makefile_is_a_command_that_can_be_read() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    command = next(line for line in makefile.splitlines() if line.startswith("DEMO ?= inbounds train "))
    request = parse(command.removeprefix("DEMO ?= inbounds train ").split())
    assert request.learner.hidden == (128, 128) and request.training.steps == 50_000
