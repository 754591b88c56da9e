"""Runs the open cells of a plan in processes of this machine; each failure is reported, none stops the others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from inbounds.errors import InboundsError, InvalidInputError, StorageError
from inbounds.experiments.plan import Planned, State, read_failure
from inbounds.experiments.worker import BUSY, FAILURE, LEFT, LOG, STOPPED, TRAIN_ONLY, prepare
from inbounds.storage.files import write_json
from inbounds.system_errors import explained
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
    asked: Requests | None = None,
) -> dict[str, State]:
    """Run cells side by side and return what became of each; Ctrl-C lets every one save before it ends.

    A polite request to end (SIGTERM, as `timeout` and batch systems send it) counts as one: workers are sessions of
    their own and would go on without us. `asked` tells the caller afterwards whether there was one; cells that were
    not started then are not in the answer.
    """
    waiting, ended = list(cells), dict[str, State]()
    running: list[Job] = []
    asked = Requests() if asked is None else asked
    with asked.heard(signal.SIGINT, signal.SIGTERM) as requests, saved_at_end(running):
        told = 0
        while running or (waiting and not requests):
            while waiting and len(running) < jobs and not requests:
                planned = waiting.pop(0)
                try:
                    running.append(start(planned, environment, train_only))
                except (InboundsError, OSError) as error:
                    ended[planned.cell.name] = State.FAILED
                    why = explained(error) if isinstance(error, OSError) else error
                    report(f"FAILED    {planned.cell.name} could not be started: {why}")
                else:
                    report(f"started   {planned.cell.name}")
            time.sleep(0.2)
            if requests.count > told:
                told = requests.count
                how = "saves at its next report; Ctrl-C once more ends them" if told == 1 else "ends"
                report(f"stopping: every cell {how} at once")
                for job in running:
                    job.process.send_signal(signal.SIGINT if told == 1 else signal.SIGKILL)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                state = (
                    State.BEGUN if was_ended(job, told) else STATUS.get(job.process.returncode, State.FAILED)
                )
                ended[job.planned.cell.name] = state
                report(verdict(job, state))
    return ended


@contextlib.contextmanager
def saved_at_end(running: list[Job]) -> Iterator[None]:
    """Ask cells that still run when a block ends by an error to save and end, since nobody watches them any more."""
    try:
        yield
    finally:
        for job in running:
            job.process.send_signal(signal.SIGINT)


def was_ended(job: Job, told: int) -> bool:
    """Tell whether somebody ended a cell at once, before it could save: it has not failed, and goes on next time."""
    asked = (-signal.SIGINT, -signal.SIGTERM, *([-signal.SIGKILL] if told > 1 else []))
    return job.process.returncode in asked


def start(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
    """Start the worker of one cell, with its output in the cell's own log."""
    prepare(planned.folder, planned.cell)
    (planned.folder / FAILURE).unlink(missing_ok=True)
    options = [TRAIN_ONLY] if train_only else []
    with open(planned.folder / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "inbounds.experiments.worker", str(planned.folder), *options],
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
        try:
            return read_failure(folder)
        except InvalidInputError as error:
            return str(error)
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines() if (folder / LOG).exists() else []
    words = f"the process was killed; its log ends with: {lines[-1] if lines else 'nothing'}"
    with contextlib.suppress(StorageError):  # a full disk, say, which the log tells of
        write_json(folder / FAILURE, {"error": words, "trace": ""})
    return words
