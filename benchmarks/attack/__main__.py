"""Attacks the library's doors for some minutes, prints what it finds, and stores the counts.

`python -m benchmarks.attack --minutes 30` attacks all doors. A finding says how to see it again: its door, its seed and
its round.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import sys
import threading
import time
import zlib
from collections.abc import Callable

import numpy as np

from benchmarks.attack import deployed, known, running, set_doors
from benchmarks.attack.ledger import KINDS, Finding, Ledger
from benchmarks.provenance import save_result

Round = Callable[[np.random.Generator, Ledger], None]

DOORS: dict[str, Round] = {
    "known": known.questions,
    "project": set_doors.project,
    "contains": set_doors.contains,
    "sample": set_doors.sample,
    "interior_point": set_doors.interior_point,
    "compiled": set_doors.compiled,
    "filter": running.filtered,
    **({"torch": running.filtered_rows} if importlib.util.find_spec("torch") else {}),
    "guard": running.guard,
    "wrappers": running.wrappers,
    "task": running.task,
    "space": running.space,
    "policy": deployed.policy,
    "onnx": deployed.graph,
}
"""What is attacked; batches of torch where it is installed.

The known questions are asked once; all other doors get the same time of the processor.
"""


def generator(seed: int, door: str, index: int) -> np.random.Generator:
    """Return the numbers of one round, whatever came before it."""
    return np.random.default_rng([seed, zlib.crc32(door.encode()), index])


def attack(
    doors: list[str],
    seed: int,
    *,
    minutes: float | None = None,
    rounds: int | None = None,
    only_round: int | None = None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Ledger:
    """Attack doors for some minutes, or for a number of rounds each; the same rounds ask the same questions."""
    ledger = Ledger(seed)
    ledger.on_finding, ledger.is_repeating = on_finding, only_round is not None
    began = time.perf_counter()
    while True:
        if only_round is not None:
            left = [door for door in doors if not ledger.rounds[door]]
        elif rounds is not None:
            left = [door for door in doors if ledger.rounds[door] < rounds]
        else:
            left = doors if time.perf_counter() - began < 60.0 * (minutes or 1.0) else []
        # The known questions are always the same: once is enough.
        left = [door for door in left if door != "known" or not ledger.rounds[door]]
        if not left:
            return ledger
        door = "known" if "known" in left else min(left, key=lambda name: ledger.seconds[name])
        index = ledger.rounds[door] if only_round is None else only_round
        faulthandler.dump_traceback_later(1200.0, exit=True, file=sys.__stderr__)
        run_round(ledger, door, index)
        faulthandler.cancel_dump_traceback_later()


def run_round(ledger: Ledger, door: str, index: int) -> None:
    """Attack a door once, in a thread of its own: what the library keeps for a thread does not reach the next round."""
    failed: list[BaseException] = []

    def attacked() -> None:
        try:
            with ledger.at(door, index):
                DOORS[door](generator(ledger.seed, door, index), ledger)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=attacked)
    thread.start()
    thread.join()
    if failed:
        raise RuntimeError(
            f"the attack itself failed: --doors {door} --seed {ledger.seed} --round {index}"
        ) from failed[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="how long (default 15)")
    parser.add_argument("--rounds", type=int, help="rounds of each door, instead of minutes")
    parser.add_argument("--doors", default=",".join(DOORS), help=f"which ones, of {','.join(DOORS)}")
    parser.add_argument("--seed", type=int, default=0, help="where all random numbers come from")
    parser.add_argument("--round", type=int, help="ask one round again, as a finding says")
    options = parser.parse_args()
    doors = options.doors.split(",")
    unknown = sorted(set(doors) - set(DOORS))
    if unknown:
        sys.exit(f"no door is called {', '.join(unknown)}; choose from {', '.join(DOORS)}.")
    began = time.perf_counter()
    ledger = attack(
        doors,
        options.seed,
        minutes=options.minutes,
        rounds=options.rounds,
        only_round=options.round,
        on_finding=lambda finding: print(f"{finding}\n", flush=True),
    )
    print(f"{'door':16}{'cases':>12}{'rounds':>8}" + "".join(f"{kind.split()[-1]:>11}" for kind in KINDS))
    for door, counts in ledger.summary().items():
        print(
            f"{door:16}{counts['cases']:12,}{counts['rounds']:8}"
            + "".join(f"{counts[kind]:11}" for kind in KINDS)
        )
    total = sum(ledger.cases.values())
    seconds = time.perf_counter() - began
    print(f"{total:,} cases in {seconds:.0f} s, {len(ledger.findings)} kinds of findings")
    if options.round is None and set(doors) == set(DOORS):
        save_result(
            "attack",
            {
                "seed": options.seed,
                "seconds": round(seconds, 1),
                "cases": total,
                "doors": ledger.summary(),
                "findings": [str(finding).split("\n") for finding in ledger.findings],
            },
        )
    if ledger.findings:
        sys.exit(1)


if __name__ == "__main__":
    main()
