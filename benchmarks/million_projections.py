"""Projects a million random actions onto a set of every family, twice, and counts violations: there must be none.

`python -m benchmarks.million_projections` projects in float64 with numpy and in float32 with compiled JAX; what comes
back is checked in float64 with no tolerance. The result is benchmarks/results/million_projections.json.
"""

from __future__ import annotations

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.provenance import save_result
from benchmarks.sets import SETS, Set

BATCH = 50_000
SLOW = {"ball, budget and box": 20}
"""Sets that are asked so many times less often: their members take turns, a millisecond per action."""


def projected_by_both(chosen: Set, rng: np.random.Generator, count: int) -> dict[str, float]:
    """Project `count` actions with numpy and as many with JAX; count violations, moves, and how far both are apart."""
    compiled = jax.jit(chosen.constraint.project)
    found = {"projections": 0, "moved": 0, "violations": 0, "worst_violation": -np.inf, "farthest_apart": 0.0}
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        observations, actions = chosen.observations(rng, size), chosen.actions(rng, size)
        single = actions.astype(np.float32)
        seen = None if observations is None else jnp.asarray(observations, jnp.float32)
        # What float32 sees of a state is another state: ask both about the same one.
        known = None if seen is None else np.asarray(seen, np.float64)
        exact = chosen.constraint.project(observations, actions)
        fast = np.asarray(compiled(seen, jnp.asarray(single)), np.float64)
        for state, point, original in ((observations, exact, actions), (known, fast, single)):
            violation = chosen.constraint.violation(state, point)
            found["projections"] += size
            found["moved"] += int(np.any(point != original, axis=-1).sum())
            found["violations"] += int((violation > 0).sum() + np.isnan(violation).sum())
            found["worst_violation"] = max(found["worst_violation"], float(violation.max()))
        reference = chosen.constraint.project(known, single.astype(np.float64))
        apart = np.linalg.norm(fast - reference, axis=-1) / (1.0 + np.linalg.norm(single, axis=-1))
        found["farthest_apart"] = max(found["farthest_apart"], float(apart.max()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="actions per family and library")
    parser.add_argument("--families", nargs="*", default=list(SETS), help="which families")
    options = parser.parse_args()
    rows = []
    print(f"{'set':24}{'projections':>14}{'moved':>12}{'violations':>12}{'worst':>12}{'apart':>10}{'s':>7}")
    for name in options.families:
        began = time.perf_counter()
        found = projected_by_both(SETS[name], np.random.default_rng(0), options.count // SLOW.get(name, 1))
        rows.append({"set": name, "formula": SETS[name].constraint.formula(), **found})
        print(
            f"{name:24}{found['projections']:14,}{found['moved']:12,}{found['violations']:12}"
            f"{found['worst_violation']:12.2e}{found['farthest_apart']:10.1e}{time.perf_counter() - began:7.0f}",
            flush=True,
        )
    save_result("million_projections", {"rows": rows})
    if any(row["violations"] for row in rows):
        sys.exit("a projection left its set.")


if __name__ == "__main__":
    main()
