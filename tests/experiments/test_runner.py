"""Running cells: processes, failures that stop nobody, stopping and going on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from inbounds.errors import ConfigurationError
from inbounds.experiments import runner, worker
from inbounds.experiments.experiment import Cell, pairs
from inbounds.experiments.runner import Job, Planned, Speeds, State, plan, run_locally
from inbounds.storage.files import LOCK, is_locked
from inbounds.training import api, interrupts

TINY = pairs({"hidden": (8,), "batch_size": 8, "proposals": 5})
QUICK = pairs({"evaluate_every": 100, "episodes": 2, "environments": 2, "capacity": 500, "warm_up": 20})
GOOD = Cell("reacher", "aram", "default", 200, seeds=2, settings=TINY, training=QUICK, final_episodes=2)
BAD = Cell("reacher", "aram", "default", 200, seeds=2, variant="bad", settings=pairs({"penalty": -1.0}))


class Finished(NamedTuple):
    folder: Path
    steps_at_stop: int


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A cell that was stopped at its first report, trained to its end, and evaluated elsewhere without its checkpoints.

    Another request to stop comes with its last report: too late to stop the training, in time to leave the judging.
    """
    folder = tmp_path_factory.mktemp("suite") / GOOD.name

    def is_at_last_report() -> bool:
        return f'"step": {GOOD.steps},' in (folder / "metrics.jsonl").read_text()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "TIMED_ACTIONS", 5)
        patch.setattr(worker, "SWEEP_EPISODES", 1)
        worker.prepare(folder, GOOD)
        assert worker.run_cell(folder, GOOD, should_stop=lambda: True) == worker.STOPPED
        (stopped,) = plan([GOOD], folder.parent, Speeds([], ""))
        assert stopped.state is State.BEGUN
        assert worker.run_cell(folder, GOOD, is_at_last_report) == worker.LEFT
        assert worker.run_cell(folder, GOOD, train_only=True) == worker.LEFT
        (trained,) = plan([GOOD], folder.parent, Speeds([], ""))
        assert trained.state is State.TRAINED and not (folder / worker.FINAL).exists()
        shutil.rmtree(folder / "checkpoints")
        elsewhere = tmp_path_factory.mktemp("elsewhere") / GOOD.name
        shutil.copytree(folder, elsewhere)
        assert worker.run_cell(elsewhere, GOOD) == 0
    return Finished(elsewhere, GOOD.steps - stopped.steps_left)


@pytest.mark.slow
def test_a_finished_cell_has_final_numbers_of_every_seed_on_fresh_episodes(finished: Finished) -> None:
    final = json.loads((finished.folder / "final.json").read_text())
    assert len(final["final"]["return"]) == 2 and final["final"]["episodes"] == 2
    assert final["final"]["worst_violation"] == 0 and max(final["episode"]["share"]) <= 1 + 1e-6
    assert final["inference"]["with_step"] > final["inference"]["mean"] > 0
    assert [point[0] for point in final["front"]["points"]] == [0.8, 0.85, 0.9, 0.95, 1.0]
    (done,) = plan([GOOD], finished.folder.parent, Speeds([], ""))
    assert done.state is State.FINISHED


@pytest.mark.slow
def test_a_stopped_cell_goes_on_from_its_checkpoint(finished: Finished) -> None:
    assert finished.steps_at_stop == 100
    rows = (finished.folder / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [100, 100, 200, 200]


def test_a_cell_that_was_begun_is_resumed_and_a_new_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming also begins again what died before its first checkpoint."""
    asked: list[bool] = []
    monkeypatch.setattr(api, "train", lambda *given, resume, **settings: asked.append(resume))
    worker.prepare(tmp_path / "cell", GOOD)
    worker.train_cell(tmp_path / "cell", GOOD, None)
    (tmp_path / "cell" / "config.json").write_text("{}")
    worker.train_cell(tmp_path / "cell", GOOD, None)
    assert asked == [False, True]


def test_a_folder_keeps_its_experiment(tmp_path: Path) -> None:
    worker.prepare(tmp_path / "cell", GOOD)
    worker.prepare(tmp_path / "cell", GOOD)
    with pytest.raises(ConfigurationError, match="variant"):
        worker.prepare(tmp_path / "cell", BAD)


@pytest.mark.slow
def test_a_suite_that_only_trains_leaves_its_cells_to_be_evaluated(tmp_path: Path) -> None:
    states = run_locally(plan([GOOD], tmp_path, Speeds([], "")), 1, lambda line: None, {}, train_only=True)
    (left,) = plan([GOOD], tmp_path, Speeds([], ""))
    assert states == {GOOD.name: State.TRAINED} and left.state is State.TRAINED and left.steps_left == 0
    assert not (left.folder / worker.FINAL).exists()


def test_a_failing_cell_says_why_and_does_not_stop_the_others(tmp_path: Path) -> None:
    told: list[str] = []
    cells = plan([BAD], tmp_path, Speeds([], ""))
    states = run_locally(cells, 1, told.append, {})
    assert states == {BAD.name: State.FAILED}
    assert any("must be a number of at least 0" in line for line in told)
    (again,) = plan([BAD], tmp_path, Speeds([], ""))
    assert again.state is State.FAILED and "must be a number of at least 0" in again.note


def test_two_processes_never_work_on_one_cell(tmp_path: Path) -> None:
    import fcntl

    worker.prepare(tmp_path / "cell", BAD)
    with open(tmp_path / "cell" / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_locked(tmp_path / "cell")
        assert worker.main([str(tmp_path / "cell")]) == 4
    assert not is_locked(tmp_path / "cell")
    assert not (tmp_path / "cell" / worker.FAILURE).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_reaches_the_workers(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two signals at once are one request, as `timeout` makes it: the workers still save."""
    program = f"""
import pathlib, sys, time
try:
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    sys.exit({worker.STOPPED})
"""

    def ask_when_it_began() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        os.kill(os.getpid(), number)

    def pretend(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
        threading.Thread(target=ask_when_it_began, daemon=True).start()
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        return Job(planned, process, time.monotonic())

    monkeypatch.setattr(runner, "start", pretend)
    monkeypatch.setattr(interrupts, "ONE_REQUEST_SECONDS", 60.0)
    before = signal.getsignal(number)
    states = run_locally(plan([GOOD, BAD], tmp_path, Speeds([], "")), 1, lambda line: None, {})
    assert states == {GOOD.name: State.BEGUN} and signal.getsignal(number) is before


@pytest.mark.slow
def test_a_worker_that_is_asked_to_stop_saves_and_its_cell_goes_on(tmp_path: Path) -> None:
    cell = Cell(
        "reacher", "aram", "default", 200_000, seeds=1, settings=TINY, training=QUICK[2:], final_episodes=2
    )
    folder = tmp_path / cell.name
    worker.prepare(folder, cell)
    process = subprocess.Popen([sys.executable, "-m", "inbounds.experiments.worker", str(folder)])
    while not (folder / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 3
    (stopped,) = plan([cell], tmp_path, Speeds([], ""))
    assert stopped.state is State.BEGUN and 0 < stopped.steps_left < 200_000
