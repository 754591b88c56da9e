"""Runs the open cells of a plan in processes of this machine; each failure is reported, none stops the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from inbounds.benchmark.plan import Planned, State
from inbounds.benchmark.worker import BUSY, FAILURE, LEFT, LOG, STOPPED, TRAIN_ONLY, prepare
from inbounds.training.interrupts import Requests

Report = Callable[[str], None]
STATUS = {0: State.FINISHED, STOPPED: State.BEGUN, BUSY: State.BEGUN, LEFT: State.TRAINED}


class Job(NamedTuple):
    """A cell in progress."""

    planned: Planned
    process: subprocess.Popen[bytes]
    began: float


def run_locally(
    cells: Sequence[Planned],
    jobs: int,
    report: Report,
    environment: dict[str, str],
    train_only: bool = False,
) -> dict[str, State]:
    """Run cells side by side and return what became of each; Ctrl-C lets every one save before it ends.

    A polite request to end (SIGTERM, as `timeout` and batch systems send it) counts as one: workers are sessions of
    their own and would go on without us.
    """
    waiting, ended = list(cells), dict[str, State]()
    running: list[Job] = []
    with Requests().heard(signal.SIGINT, signal.SIGTERM) as asked:
        told = 0
        while running or (waiting and not asked):
            while waiting and len(running) < jobs and not asked:
                running.append(start(waiting.pop(0), environment, train_only))
                report(f"started   {running[-1].planned.cell.name}")
            time.sleep(0.2)
            if asked.count > told:
                told = asked.count
                report("stopping: every cell saves at its next report; Ctrl-C once more ends them at once")
                for job in running:
                    job.process.send_signal(signal.SIGINT if told == 1 else signal.SIGKILL)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                state = STATUS.get(job.process.returncode, State.FAILED)
                ended[job.planned.cell.name] = state
                report(verdict(job, state))
    return ended


def start(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
    """Start the worker of one cell, with its output in the cell's own log."""
    prepare(planned.folder, planned.cell)
    (planned.folder / FAILURE).unlink(missing_ok=True)
    options = [TRAIN_ONLY] if train_only else []
    with open(planned.folder / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "inbounds.benchmark.worker", str(planned.folder), *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # the terminal's Ctrl-C goes to us alone; we tell the workers
        )
    return Job(planned, process, time.monotonic())


def verdict(job: Job, state: State) -> str:
    """Return one line about how a cell ended."""
    took = f"{time.monotonic() - job.began:.0f} s"
    if state is State.FAILED:
        return f"FAILED    {job.planned.cell.name} after {took}: {last_words(job.planned.folder)}"
    return f"{state.value:10}{job.planned.cell.name} after {took}"


def last_words(folder: Path) -> str:
    """Return why a cell failed: its own account, or the end of its log where it had no time for one."""
    if (folder / FAILURE).exists():
        return str(json.loads((folder / FAILURE).read_text())["error"].splitlines()[0])
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines() if (folder / LOG).exists() else []
    failure = {
        "error": f"the process was killed; its log ends with: {lines[-1] if lines else 'nothing'}",
        "trace": "",
    }
    (folder / FAILURE).write_text(json.dumps(failure, indent=1) + "\n")
    return failure["error"]
