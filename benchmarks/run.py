"""Runs the benchmarks one after the other, each in a process of its own, and says what failed.

`make bench` runs them all, `make bench BENCH="projections guard"` those named. A benchmark is a module
`benchmarks/bench_NAME.py` that prints its table and stores it with `benchmarks.provenance.save_result`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    """Run the benchmarks asked for in order; exit with an error if any of them failed."""
    known = [path.stem.removeprefix("bench_") for path in sorted(FOLDER.glob("bench_*.py"))]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=known, help=f"which ones (default: {' '.join(known)})")
    names = parser.parse_args().names
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; choose from {', '.join(known)}.")
    failed = []
    for name in names:
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        finished = subprocess.run([sys.executable, "-m", f"benchmarks.bench_{name}"], cwd=FOLDER.parent)
        print(f"== {name} took {time.perf_counter() - start:.0f} s", flush=True)
        if finished.returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
