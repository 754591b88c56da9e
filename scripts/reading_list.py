"""Counts what a reader opens: the files of one ARAM step, the settings of `ib.Aram`, and the modules of the package.

The measure of one step is learner, losses, policy, replay and collector: the modules that hold the code from a proposal
to a gradient step on a host task, whole files, without constraint and environment. `--check` fails above a limit.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "inbounds"
STEP = (
    "learners/aram.py",
    "learners/q_pensieve.py",
    "learners/step.py",
    "learners/losses.py",
    "policies/networks.py",
    "policies/gaussian.py",
    "policies/acceptance.py",
    "replay.py",
    "training/host_collector.py",
    "training/program.py",
)
LIMITS = {"files": 10, "lines": 1_500, "settings": 24, "modules": 170}


def counted() -> dict[str, int]:
    """Return what is limited."""
    from inbounds.learners.aram import Aram

    lines = {name: len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in STEP}
    for name, count in lines.items():
        print(f"{count:5d}  {name}")
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        "settings": len(dataclasses.fields(Aram)),
        "modules": len(list(PACKAGE.rglob("*.py"))),
    }


def main() -> int:
    """Print the counts beside their limits."""
    found = counted()
    above = [name for name, count in found.items() if count > LIMITS[name]]
    for name, count in found.items():
        print(f"{count:5d}  {name} (at most {LIMITS[name]})")
    return int(bool(above) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
