"""Tries every fault at every write, prints what was lost, and stores the counts: `python -m benchmarks.faults`.

Faults are tried in this process where possible: the disk stops at the chosen call and stays as it is then, as after a
kill. Some processes are really killed. A run is survived if it finishes with the same bits as one that nothing
happened to.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

from benchmarks.faults import damage, processes
from benchmarks.faults.commands import (
    Command,
    chosen_calls,
    other_commands,
    strikes,
    training_commands,
    try_command,
)
from benchmarks.faults.disk import Fault
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.runs import QuickRuns, content_of
from benchmarks.provenance import save_result

FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
MEMORY = Path("/dev/shm")
"""Where folders lie by default: waiting for a disk would take most of the time and change nothing."""


def try_all(
    ledger: Ledger, base: Path, calls: int | None = None, killed: int = 40, damages: int = 6, seed: int = 0
) -> None:
    """Try every fault at the calls of every command, damage every file, and kill processes.

    Args:
        ledger: counts what was tried.
        base: an empty folder.
        calls: at how many calls of a command each fault strikes at most; at all of them by default.
        killed: how many processes are really killed.
        damages: how often each file suffers each damage that has a random place.
        seed: of what is random.
    """
    runs = QuickRuns()
    began = time.monotonic()
    commands = training_commands(runs, base)
    commands += other_commands(runs, base)
    ledger.note(f"compiled in {time.monotonic() - began:.0f} s")
    try_calls(ledger, commands, base / "trial", calls, seed)
    for name in damage.damaged_files(base / "half"):
        for number, kind in enumerate(damage.WHOLE + damage.RANDOM):
            for repeat in range(damages if kind in damage.RANDOM else 1):
                damage.try_damage(runs, base, name, kind, seed + 1000 * number + repeat, ledger)
    ledger.note("damaged files are tried")
    processes.try_races(base, 4, 25, ledger)
    processes.try_second_writer(runs, content_of(base / "whole"), base, ledger)
    try_kills(ledger, runs, base, killed, seed)


def try_calls(ledger: Ledger, commands: list[Command], base: Path, calls: int | None, seed: int) -> None:
    """Let single calls of every command go wrong."""
    base.mkdir()
    for number, (command, fault) in enumerate((one, fault) for one in commands for fault in FAULTS):
        for at in chosen_calls(strikes(command, fault, base), calls, seed + number):
            try_command(command, fault, at, base, ledger)
        ledger.note(f"{command.name}, {fault.value}")


def try_kills(ledger: Ledger, runs: QuickRuns, base: Path, count: int, seed: int) -> None:
    """Kill processes: half of them inside a call, half of them at a random moment."""
    chance, whole = random.Random(seed), content_of(base / "whole")
    for number in range(count):
        if number % 2:
            processes.try_kill_anytime(runs, whole, base, seed + number, ledger)
        else:
            fault = Fault.TORN if number % 4 else Fault.KILL
            at, is_begun = chance.randrange(1, 40 if fault is Fault.TORN else 150), number % 8 >= 4
            processes.try_kill_inside(runs, whole, base, fault, at, is_begun, ledger)
    ledger.note("processes were killed")


def main() -> None:
    """Try everything and store the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--calls", type=int, help="of a command, at which a fault strikes at most (default: all)"
    )
    parser.add_argument("--killed", type=int, default=40, help="processes that are really killed")
    parser.add_argument(
        "--folder", type=Path, default=MEMORY if MEMORY.is_dir() else None, help="where to write"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is random")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ledger, began = Ledger(verbose=True), time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        # Every process that is killed compiles the same programs first.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(folder) / "compiled"))
        try_all(ledger, Path(folder), options.calls, options.killed, seed=options.seed)
    found = ledger.as_json()
    save_result("faults", {"seconds": round(time.monotonic() - began), **found})
    print(f"{found['tried']:,} faults, {found['survived']:,} survived; {found['endings']}")
    sys.exit(1 if ledger.failures else 0)


if __name__ == "__main__":
    main()
