"""How long the imports take, each in a fresh interpreter: ours, and the libraries that ours puts off."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.provenance import save_result

MODULES = ("inbounds", "inbounds.constraints", "numpy", "gymnasium", "jax")
ROUNDS = 7


def seconds_to_run(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    # The interpreter's own start is measured in the same rounds and taken off.
    samples: dict[str, list[float]] = {module: [] for module in MODULES}
    for _ in range(ROUNDS):
        bare = seconds_to_run("pass")
        for module in MODULES:
            samples[module].append(1e3 * (seconds_to_run(f"import {module}") - bare))
    rows = [
        {"module": module, "milliseconds": round(statistics.median(times), 1), "least": round(min(times), 1)}
        for module, times in samples.items()
    ]
    print(f"{'import':24}{'median ms':>12}{'least ms':>12}")
    for row in rows:
        print(f"{row['module']:24}{row['milliseconds']:12}{row['least']:12}")
    save_result("import", {"rounds": ROUNDS, "rows": rows})


if __name__ == "__main__":
    main()
