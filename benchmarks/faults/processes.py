"""Processes that are really killed, and processes that want to write the same folder at the same time.

`python -m benchmarks.faults.processes MODE FOLDER ...` is such a process: it compiles a small learner, says that it is
ready, and writes runs until it dies.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.faults.disk import Fault, FaultyDisk
from benchmarks.faults.ledger import BrokenPromiseError, Ledger, require_sentence

ROOT = Path(__file__).resolve().parent.parent.parent
READY, HELD = "ready", "held"
LONGEST = 600
"""Seconds after which a process counts as hung."""
LONGEST_LIFE = 1.5
"""Seconds at most between the first write of a process and its end."""


class Child:
    """A process of this module."""

    def __init__(self, mode: str, folder: Path, *arguments: object) -> None:
        """Start it."""
        environment = {
            **os.environ,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, mode, str(folder), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def await_word(self, word: str) -> None:
        """Wait until it says something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise BrokenPromiseError(f"a process ended with status {self.process.wait()} before it was {word}")

    def let_go(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self) -> int:
        """Wait for its end and return its status."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            return self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise BrokenPromiseError(f"a process hung for {LONGEST} seconds") from None
        finally:
            self.process.stdin.close()
            self.process.stdout.close()

    def kill(self) -> None:
        """Kill it at once."""
        self.process.kill()
        self.ended()


def try_kill_inside(
    runs: Any, whole: dict[str, Any], base: Path, fault: Fault, at: int, is_begun: bool, ledger: Ledger
) -> None:
    """Let a process kill itself inside one call, then finish its run here."""
    from benchmarks.faults.runs import require_clean, require_same

    folder = base / "killed"
    if is_begun:
        shutil.copytree(base / "half", folder)
    where = "a resumed run" if is_begun else "a new run"
    with ledger.trial(f"SIGKILL of a process, {fault.value.partition(' -9 ')[2]}", where, f"call {at}"):
        child = Child("strike", folder, fault.name, at)
        child.await_word(READY)
        status = child.ended()
        if status not in (0, -9):
            raise BrokenPromiseError(f"the process ended with status {status} instead of being killed")
        runs.finish(folder)
        require_same(folder, whole)
        require_clean(folder)
    shutil.rmtree(folder, ignore_errors=True)


def try_kill_anytime(runs: Any, whole: dict[str, Any], base: Path, seed: int, ledger: Ledger) -> None:
    """Kill a process that writes one run after the other at a random moment, then finish what it had begun."""
    from benchmarks.faults.runs import require_clean, require_same

    folder = base / "endless"
    folder.mkdir()
    with ledger.trial("SIGKILL of a process, at a random moment", "runs one after the other", f"seed {seed}"):
        child = Child("endless", folder)
        child.await_word(READY)
        time.sleep(random.Random(seed).uniform(0.0, LONGEST_LIFE))
        child.kill()
        for run in sorted(folder.iterdir()):
            runs.finish(run)
            require_same(run, whole)
            require_clean(run)
    shutil.rmtree(folder, ignore_errors=True)


def try_second_writer(runs: Any, whole: dict[str, Any], base: Path, ledger: Ledger) -> None:
    """Let several want to write the folder of a run that a process is training, and let that one finish."""
    from benchmarks.faults.runs import require_same
    from inbounds.errors import FolderBusyError
    from inbounds.experiments import worker

    folder, fault = base / "shared", "a second process on the folder"
    child = Child("hold", folder)
    child.await_word(HELD)
    for where, settings in (("train", {}), ("train --resume", {"resume": True})):
        with ledger.trial(fault, where, "while the first one trains"):
            try:
                runs.train(folder, **settings)
            except FolderBusyError as error:
                require_sentence(error)
            else:
                raise BrokenPromiseError("two processes wrote the same run")
    with ledger.trial(fault, "a worker of a suite", "while the first one trains"):
        if worker.main([str(folder)]) != worker.BUSY:
            raise BrokenPromiseError("a worker wrote the run of another process")
    with ledger.trial(fault, "the first process", "goes on"):
        child.let_go()
        if child.ended() != 0:
            raise BrokenPromiseError("the first process did not finish its run")
        require_same(folder, whole)
    shutil.rmtree(folder)


COUNTING = """
import sys, time
from pathlib import Path
from inbounds.errors import FolderBusyError
from inbounds.storage.files import write_text
from inbounds.storage.files import locked
folder, left = Path(sys.argv[1]), int(sys.argv[2])
while left:
    try:
        with locked(folder):
            count = folder / "count"
            write_text(count, str(int(count.read_text()) + 1))
            left -= 1
    except FolderBusyError:
        time.sleep(0.001)
"""


def try_races(base: Path, processes: int, times: int, ledger: Ledger) -> None:
    """Let processes count together in one file: whoever is inside with another one loses a count."""
    folder = base / "counted"
    folder.mkdir()
    (folder / "count").write_text("0")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen([sys.executable, "-c", COUNTING, str(folder), str(times)], env=environment)
        for _ in range(processes)
    ]
    status = [process.wait(LONGEST) for process in started]
    found = int((folder / "count").read_text())
    for number in range(processes * times):
        with ledger.trial("processes race for a folder", "a lock taken", f"number {number}"):
            if any(status) or number >= found:
                raise BrokenPromiseError(f"{found} of {processes * times} counts are left, status {status}")
    shutil.rmtree(folder)


def main() -> None:
    """Be one of these processes."""
    mode, folder, *arguments = sys.argv[1:]
    from benchmarks.faults.runs import QuickRuns

    runs = QuickRuns()
    with tempfile.TemporaryDirectory() as warm:
        runs.train(Path(warm) / "run")  # compile, so that only writing is left
    if mode == "hold":

        def hold(row: dict[str, Any]) -> None:
            if row["step"] == 20 and row["kind"] == "metrics":
                print(HELD, flush=True)
                sys.stdin.readline()

        runs.train(Path(folder), callbacks=[hold])
        return
    print(READY, flush=True)
    if mode == "strike":
        with FaultyDisk(Fault[arguments[0]], int(arguments[1]), really=True).installed():
            runs.finish(Path(folder))
    number = 0
    while mode == "endless":
        runs.train(Path(folder) / f"run-{number:04d}")
        number += 1


if __name__ == "__main__":
    main()
