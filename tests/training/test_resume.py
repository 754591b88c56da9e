"""Resuming: what is kept, what may change, and what happens to folders that were killed, copied or damaged."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from benchmarks.faults.disk import Fault, FaultyDisk, Killed
from benchmarks.faults.runs import SETTINGS, QuickRuns, content_of
from inbounds.cli.options import parse
from inbounds.errors import CheckpointError, ConfigurationError, FolderBusyError, InvalidInputError
from inbounds.evaluation.protocol import evaluate_run
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.aram import Aram
from inbounds.learners.sac import Sac
from inbounds.storage.files import locked
from inbounds.tasks.task import AssembledTask
from inbounds.training.api import require_same_task, train
from inbounds.training.checkpoint import newest_checkpoint, write_checkpoint
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder
from tests.learners import probes

LEARNER = Sac(hidden=(4,), batch_size=8)


@pytest.fixture(scope="module")
def runs() -> QuickRuns:
    return QuickRuns(LEARNER)


@pytest.fixture(scope="module")
def whole(runs: QuickRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.train(folder)
    return folder


@pytest.fixture
def half(runs: QuickRuns, whole: Path, tmp_path: Path) -> Path:
    """A run that stopped in the middle: at step 20, with checkpoints of steps 10 and 20."""
    runs.train_half(tmp_path / "run")
    return tmp_path / "run"


def damage(checkpoint: Path) -> None:
    path = checkpoint / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-7])


def changed(task: ib.Task, **changes: Any) -> ib.Task:
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    return AssembledTask(**{**fields, **changes})


def nothing(told: str) -> None:
    """Take a warning for granted."""


# Nothing is lost


def test_a_resumed_run_is_the_run_that_never_stopped(runs: QuickRuns, whole: Path, half: Path) -> None:
    runs.train(half, resume=True)
    assert content_of(half) == content_of(whole)


@pytest.mark.slow
def test_a_run_whose_seeds_need_more_than_32_bits_is_trained_evaluated_resumed_and_opened(
    tmp_path: Path,
) -> None:
    task, first = probes.moving_optimum().task, 2**32 - 2
    sizes = {"warm_up": 20, "episodes": 1, "evaluate_every": 20, "environments": 1, "capacity": 100}
    train(task, LEARNER, out=tmp_path / "run", seed=first, seeds=3, steps=30, **sizes)
    train(task, LEARNER, out=tmp_path / "run", resume=True, steps=40)
    seeds = [first, first + 1, first + 2]
    assert TrainedRun.open(tmp_path / "run", task).seeds == tuple(seeds)
    assert sorted({row["seed"] for row in RunFolder(tmp_path / "run").rows(EVALUATIONS)}) == seeds
    final = TrainedRun.open(tmp_path / "run", task).only(first + 2)
    assert evaluate_run(final, 1).seeds == (first + 2,)


@pytest.mark.sweep
def test_running_moments_returns_and_the_tuned_penalty_are_resumed_too(tmp_path: Path) -> None:
    normalised = QuickRuns(Aram(preset="normalised", hidden=(4,), batch_size=8, proposals=4))
    normalised.train(tmp_path / "whole")
    normalised.train_half(tmp_path / "half")
    normalised.train(tmp_path / "half", resume=True)
    assert content_of(tmp_path / "half") == content_of(tmp_path / "whole")


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.TORN, Fault.POWER, Fault.POWER_ZEROS])
def test_a_run_that_dies_while_it_is_resumed_has_all_its_files(
    fault: Fault, runs: QuickRuns, half: Path
) -> None:
    """Resuming first puts the logs, the configuration and the provenance in order, and each of them is at risk."""
    with open(half / METRICS, "ab") as log:
        log.write(b'{"step": 22, "se')
    config, at, is_over = RunFolder(half).config(), 0, False
    while not is_over:
        at += 1
        folder = shutil.copytree(half, half.parent / f"copy-{at}")
        disk = FaultyDisk(fault, at, folder)
        try:
            with disk.installed():
                runs.train(folder, resume=True, evaluate_every=10, steps=20, warn=nothing)
            is_over = True
        except Killed:
            if disk.durable is not None:
                folder = folder.with_name(f"left-{at}")
                disk.durable.write_to(folder, fault)
        found = RunFolder(folder).config()
        found["training"] |= {"evaluate_every": 20, "steps": 40}
        assert found == config, at
        assert RunFolder(folder).provenance()["python"], at
        assert [row["step"] for row in RunFolder(folder).rows(METRICS)] == [10, 20], at
        assert [row["step"] for row in RunFolder(folder).rows(EVALUATIONS)] == [20], at
    assert at > (3 if fault is Fault.TORN else 10)


def test_a_run_that_died_before_its_first_checkpoint_begins_again(
    runs: QuickRuns, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def die(row: dict[str, Any]) -> None:
        raise Killed

    with pytest.raises(Killed):
        runs.train(folder, callbacks=[die])
    assert (folder / METRICS).exists() and not RunFolder(folder).checkpoint_folders()
    with pytest.raises(ConfigurationError, match=f"`inbounds train --resume {folder}`"):
        runs.train(folder)
    with pytest.warns(UserWarning, match="has no checkpoint yet, so the run begins again"):
        runs.train(folder, resume=True)
    assert content_of(folder) == content_of(whole)


def test_a_torn_last_line_of_a_log_is_dropped_with_a_warning(
    runs: QuickRuns, whole: Path, half: Path
) -> None:
    for name in (METRICS, EVALUATIONS):
        with open(half / name, "ab") as log:
            log.write(b'{"step": 30, "seed"')
    told: list[str] = []
    runs.train(half, resume=True, warn=told.append)
    assert [message.split()[0] for message in told] == [METRICS, EVALUATIONS]
    assert content_of(half) == content_of(whole)


@pytest.mark.parametrize("name", [METRICS, EVALUATIONS])
@pytest.mark.parametrize("change", ["another number", "removed", "a row less"])
def test_a_log_that_was_changed_since_the_checkpoint_is_told(
    name: str, change: str, runs: QuickRuns, half: Path
) -> None:
    lines = (half / name).read_text().splitlines(keepends=True)
    if change == "removed":
        (half / name).unlink()
    else:
        changed = (
            [lines[0].replace('"seed": 0', '"seed": 7'), *lines[1:]] if "number" in change else lines[1:]
        )
        (half / name).write_text("".join(changed))
    told: list[str] = []
    runs.train(half, resume=True, warn=told.append)
    assert len(told) == 1 and f"{name} does not hold the rows up to step 20" in told[0]


def test_a_configuration_that_was_changed_behind_the_runs_back_is_refused(
    runs: QuickRuns, half: Path
) -> None:
    text = (half / "config.json").read_text()
    (half / "config.json").write_text(text.replace('"updates_per_step": 1.0', '"updates_per_step": 9.0'))
    with pytest.raises(InvalidInputError, match=r"config\.json is not as it was written.*Restore it"):
        runs.train(half, resume=True)


def test_a_damaged_provenance_is_refused_and_a_lost_one_is_written_anew(
    runs: QuickRuns, whole: Path, half: Path
) -> None:
    path = half / "provenance.json"
    path.write_text(path.read_text().replace('"python": "3', '"python": "2'))
    with pytest.raises(InvalidInputError, match="remove it and resume, and a new one is written"):
        runs.train(half, resume=True)
    path.unlink()
    runs.train(half, resume=True)
    assert RunFolder(half).provenance()["python"].startswith("3")
    assert content_of(half) == content_of(whole)


def test_a_run_whose_configuration_is_lost_is_not_continued_by_another(runs: QuickRuns, half: Path) -> None:
    (half / "config.json").unlink()
    before = (half / METRICS).read_bytes()
    with pytest.raises(ConfigurationError, match=r"but no config\.json\. Restore that file"):
        runs.train(half)
    assert (half / METRICS).read_bytes() == before


# Checkpoints: only our own names, only our own runs, and an older one where the newest is damaged


def test_a_copy_of_a_checkpoint_stays_and_does_not_make_later_ones_vanish(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, {"weights": np.arange(3.0)}, {}, keep=1)
    for name in ("step-before-my-change", "step-000000000010-copy", "step-9"):
        shutil.copytree(tmp_path / "step-000000000010", tmp_path / name)
    write_checkpoint(tmp_path, 20, {"weights": np.arange(3.0)}, {}, keep=1)
    assert newest_checkpoint(tmp_path, pytest.fail).notes["step"] == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["step-000000000010-copy", "step-000000000020", "step-9", "step-before-my-change"]
    )


def test_a_checkpoint_that_was_renamed_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 10, {"weights": np.arange(3.0)}, {}, keep=1)
    shutil.copytree(tmp_path / "step-000000000010", tmp_path / "step-000000000099")
    told: list[str] = []
    assert newest_checkpoint(tmp_path, told.append).path.name == "step-000000000010"
    assert "step-000000000099 is of step 10 and was renamed" in told[0]


def test_a_damaged_newest_checkpoint_is_told_and_the_one_before_it_is_used(
    runs: QuickRuns, whole: Path, half: Path
) -> None:
    damage(half / "checkpoints" / "step-000000000020")
    told: list[str] = []
    runs.train(half, resume=True, warn=told.append)
    assert len(told) == 1 and "step-000000000020 cannot be read" in told[0]
    assert "goes on from step-000000000010 instead" in told[0]
    assert content_of(half) == content_of(whole)
    assert RunFolder(half).provenance()["resumes"][0]["step"] == 10


@pytest.mark.parametrize("name", ["notes.json", "state.safetensors"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_newest_checkpoint_that_may_not_be_opened_is_not_taken_for_a_damaged_one(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on from the one before it would throw away what is whole."""
    for step in (10, 20):
        write_checkpoint(tmp_path, step, {"weights": np.arange(3.0)}, {}, keep=2)
    usual = io.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path).endswith(f"step-000000000020/{name}"):
            raise OSError(number, os.strerror(number), str(path))
        return usual(path, *arguments, **options)

    monkeypatch.setattr(io, "open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CheckpointError, match=rf"20/{name} cannot be read \({os.strerror(number)}\)\. \w+"):
        newest_checkpoint(tmp_path, refuse)


def test_a_later_checkpoint_that_is_damaged_does_not_push_out_what_is_written_before_it(
    tmp_path: Path,
) -> None:
    for step in (10, 30):
        write_checkpoint(tmp_path, step, {"weights": np.arange(3.0)}, {}, keep=1 if step == 10 else 2)
    damage(tmp_path / "step-000000000030")
    write_checkpoint(tmp_path, 20, {"weights": np.arange(3.0)}, {}, keep=1)
    assert newest_checkpoint(tmp_path, nothing).notes["step"] == 20


def test_where_no_checkpoint_can_be_read_the_error_names_a_way_that_works(
    runs: QuickRuns, whole: Path, half: Path
) -> None:
    for checkpoint in RunFolder(half).checkpoint_folders():
        damage(checkpoint)
    with pytest.raises(CheckpointError, match=f"none of the 2 .*or remove {half / 'checkpoints'} and resume"):
        runs.train(half, resume=True)
    shutil.rmtree(half / "checkpoints")
    runs.train(half, resume=True, warn=nothing)
    assert content_of(half) == content_of(whole)


def test_a_checkpoint_of_another_run_is_refused(runs: QuickRuns, half: Path, tmp_path: Path) -> None:
    """Even one of the same task and shapes: going on from it would be neither of the two runs."""
    runs.train(tmp_path / "other", seed=5, callbacks=[lambda row: row["step"] == 20])
    shutil.rmtree(half / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", half / "checkpoints")
    with pytest.raises(CheckpointError, match=r"is of another run .*Put this run's own checkpoint"):
        runs.train(half, resume=True)


def test_a_checkpoint_of_another_task_is_refused_where_neither_run_has_an_identity(
    runs: QuickRuns, half: Path
) -> None:
    config = RunFolder(half).config()
    (half / "config.json").write_text(json.dumps({**config, "id": None, "task": "twin"}))
    for path in (half / "checkpoints").rglob("notes.json"):
        assert json.loads(path.read_text())["task"] == runs.task.name
    with pytest.raises(CheckpointError, match="is of another run"):
        runs.train(half, task=changed(runs.task, name="twin"), resume=True)


# Settings of a resumed run


def test_a_resumed_run_keeps_its_settings(runs: QuickRuns, whole: Path, half: Path) -> None:
    runs.train(half, resume=True, environments=None, warm_up=None, episodes=None)
    one, other = (json.loads((folder / "config.json").read_text()) for folder in (whole, half))
    assert one["training"] == other["training"]
    assert "changed" not in RunFolder(half).provenance()["resumes"][0]


@pytest.mark.parametrize(
    "settings",
    [
        {"updates_per_step": 2.0},
        {"warm_up": 5},
        {"capacity": 50},
        {"seed": 1},
        {"seeds": 2},
        {"environments": 4},
        {"episodes": 3},
        {"preference": (1.0, 0.0)},
        {"scale_rewards": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_would_make_another_run_are_refused_with_the_remedy(
    settings: dict[str, Any], runs: QuickRuns, half: Path
) -> None:
    before = (half / "config.json").read_bytes()
    ((name, _),) = settings.items()
    recorded = SETTINGS.get(name, {"updates_per_step": 1.0, "seed": 0, "seeds": 1}.get(name, ""))
    with pytest.raises(ConfigurationError, match=f"Resume with {name}={recorded}.* or leave it out"):
        runs.train(half, resume=True, **settings)
    assert (half / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward_shift", 7.0),
        ("reward_divisor", 3.0),
        ("horizon", 40),
        ("reference_action", np.float32([0.1, 0.2])),
        ("reference_action", ib.obs[:2]),
        ("observation_parts", (("there", 1), ("here", 1))),
    ],
)
def test_a_task_that_would_make_another_run_is_refused_with_the_remedy(
    name: str, value: Any, runs: QuickRuns, half: Path
) -> None:
    before = content_of(half)
    with pytest.raises(ConfigurationError, match=f"trained with {name} .*Resume with the same, or train in"):
        runs.train(half, task=changed(runs.task, **{name: value}), resume=True)
    assert content_of(half) == before


def test_a_run_with_measured_scales_is_resumed_on_the_task_that_they_were_measured_on(tmp_path: Path) -> None:
    task, learner = probes.moving_optimum().task, Aram(hidden=(4,), batch_size=8, proposals=4)
    given = {"warm_up": 20, "episodes": 1, "environments": 1, "capacity": 100}
    train(task, learner, out=tmp_path / "run", steps=30, **given)
    config = RunFolder(tmp_path / "run").config()
    assert config["reward_divisor"] != task.reward_divisor
    measured = {name: config[name] for name in ("reward_divisor", "reward_shift")}
    with pytest.raises(ConfigurationError, match=r"trained with reward_divisor 1\.0, the task has"):
        train(changed(task, **measured), learner, out=tmp_path / "run", steps=40, resume=True)
    with pytest.raises(ConfigurationError, match=r"trained with reward_divisor 1\.0, the task has measured"):
        train(task.normalised(steps=50), learner, out=tmp_path / "run", steps=40, resume=True)
    train(task, learner, out=tmp_path / "run", steps=40, resume=True)
    again = RunFolder(tmp_path / "run").config()
    assert {name: again[name] for name in measured} == measured


def test_a_run_that_does_not_tell_its_tasks_own_reward_scale_is_resumed_whatever_training_measured(
    tmp_path: Path,
) -> None:
    task, learner = probes.moving_optimum().task, Aram(hidden=(4,), batch_size=8, proposals=4)
    run, given = tmp_path / "run", {"warm_up": 20, "episodes": 1, "environments": 1, "capacity": 100}
    train(task, learner, out=run, steps=30, **given)
    config = RunFolder(run).config()
    del config["own_reward_scale"]
    assert config["reward_divisor"] != task.reward_divisor
    require_same_task(task, config, run)
    with pytest.raises(ConfigurationError, match="trained with horizon"):
        require_same_task(changed(task, horizon=7), config, run)


def test_settings_that_may_change_are_recorded(runs: QuickRuns, half: Path) -> None:
    changes = {"steps": 50, "evaluate_every": 10, "checkpoint_every": 25, "keep": 1}
    runs.train(half, resume=True, **changes)
    training, resumes = RunFolder(half).config()["training"], RunFolder(half).provenance()["resumes"]
    assert {name: training[name] for name in changes} == changes
    assert resumes[0]["step"] == 20 and resumes[0]["changed"] == {
        name: [SETTINGS[name], value] for name, value in changes.items()
    }
    assert [row["step"] for row in RunFolder(half).rows(EVALUATIONS)] == [20, 30, 40, 50]


@pytest.mark.parametrize(("option", "value"), [("learner", "td3"), ("preset", "paper")])
def test_the_command_line_refuses_another_learner_for_a_resumed_run(
    option: str, value: str, whole: Path, runs: QuickRuns
) -> None:
    with pytest.raises(ConfigurationError, match=f"Leave --{option} out"):
        parse(["--resume", str(whole), f"--{option}", value])
    recorded = {"learner": "sac", "preset": "default"}[option]
    assert parse(["--resume", str(whole), f"--{option}", recorded]).learner == LEARNER


# Two processes, and folders that are not runs


def test_a_run_that_somebody_else_is_writing_is_neither_resumed_nor_begun(
    runs: QuickRuns, half: Path, tmp_path: Path
) -> None:
    def refused(folder: Path, **settings: Any) -> None:
        with pytest.raises(FolderBusyError, match="Wait until it has ended"):
            runs.train(folder, **settings)

    (tmp_path / "new").mkdir()
    for folder, settings in ((half, {"resume": True}), (tmp_path / "new", {})):
        held = threading.Event()
        ended = threading.Event()

        def hold(folder: Path = folder, held: Any = held, ended: Any = ended) -> None:
            with locked(folder):
                held.set()
                ended.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        refused(folder, **settings)
        ended.set()
        thread.join()
    assert not (tmp_path / "new" / "config.json").exists()


@pytest.mark.parametrize("content", ["{}", "[]", "7", '{"task": 3}', '{"a":' * 100_000, '{"task": "x"'])
def test_a_folder_whose_configuration_is_not_one_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidInputError, match="Restore it"):
        RunFolder(tmp_path).config()


def test_what_is_not_a_run_is_not_resumed_and_gets_no_files(runs: QuickRuns, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not a run"):
        runs.train(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_unfinished_is_removed_when_the_run_goes_on(
    runs: QuickRuns, half: Path
) -> None:
    (half / ".config.json.0123abcd.part").write_text("{")
    (half / "checkpoints" / ".step-000000000030.0123abcd.part").mkdir()
    (half / ".mine.part").touch()
    runs.train(half, resume=True)
    assert [path.name for path in half.rglob("*.part")] == [".mine.part"]
