"""Random actions through the safety filter, one at a time: is each one feasible, and how long does the slowest take?

    python -m benchmarks.bench_filtered_actions --actions 10000000 --workers 2

All families of constraints; states and actions are random, from far inside to a hundred times outside, and leave
alternately as float32 and float64. What left is judged once more, in float64, apart from the filter.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import time
from typing import Any

import numpy as np

import inbounds as ib
from benchmarks.provenance import save_result
from benchmarks.sets import SETS, UNIT, Set, bounded

FULL = 10_000_000
CHUNK = 20_000
PERCENTILES = (50.0, 99.0, 99.9, 99.99)
SLOW = {"oracle": 1000, "ball, budget and box": 50, "polytope of the state and box": 20}
"""Sets that are asked so many times less often: they sample, or iterate anew for every state."""


def is_in_disc(observation: Any, action: Any) -> Any:
    """Allow a disc with a bite taken out of it."""
    return (np.sum(action**2, axis=-1) <= 0.5) & (np.sum((action - 0.5) ** 2, axis=-1) >= 0.1)


ALL: dict[str, Set] = {
    **SETS,
    "polytope of the state and box": Set(
        ib.Polytope(ib.obs[0:24].reshape(4, 6), ib.obs[24:28]) & ib.Box(-UNIT, UNIT),
        6,
        bounded(28, 0.1, 2.0),
        1.0,
    ),
    "rate limit on the previous action": Set(
        ib.RateLimit(0.2, previous=ib.previous_action) & ib.Box(-UNIT, UNIT), 6, None, 1.0
    ),
    "union": Set(
        ib.Box(-UNIT, -0.5 * UNIT) | (ib.Ball(radius_squared=0.2) & ib.Box(-UNIT, UNIT)), 6, None, 1.0
    ),
    "oracle": Set(
        ib.Oracle(is_in_disc, within=ib.Box(-np.ones(2), np.ones(2)), is_batched=True), 2, None, 1.0
    ),
}


def proposals(chosen: Set, rng: np.random.Generator, count: int) -> Any:
    """Draw actions around zero for a set whose interior point depends on the previous action."""
    try:
        return chosen.actions(rng, count)
    except ib.errors.InvalidInputError:
        return 10.0 ** rng.uniform(-2.0, 2.0, (count, 1)) * rng.standard_normal((count, chosen.dimension))


def filter_chunk(name: str, seed: int, count: int) -> dict[str, Any]:
    """Filter random actions one at a time and return the times, the violations and what was done."""
    chosen, rng = ALL[name], np.random.default_rng([seed, sum(map(ord, name))])
    states, actions = chosen.observations(rng, count), proposals(chosen, rng, count)
    singles = actions.astype(np.float32)
    start = np.zeros(chosen.dimension)
    safety = ib.SafetyFilter(chosen.constraint, previous_action=start)
    left, seconds = np.empty_like(actions), np.empty(count)
    for index in range(count):
        state = None if states is None else states[index]
        proposed = singles[index] if index % 2 else actions[index]
        began = time.perf_counter()
        action = safety.correct(state, proposed)
        seconds[index] = time.perf_counter() - began
        left[index] = action
    before = np.concatenate([start[None], left[:-1]])
    excess = np.asarray(chosen.constraint.violation(states, left, previous_action=before))
    return {"seconds": seconds, "excess": excess, "metrics": safety.metrics()}


def measure(name: str, count: int, executor: Any, seed: int) -> dict[str, Any]:
    """Filter `count` actions of one family and summarise them."""
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    parts = list(executor(filter_chunk, [name] * len(sizes), [seed + k for k in range(len(sizes))], sizes))
    seconds = np.concatenate([part["seconds"] for part in parts])
    excess = np.concatenate([part["excess"] for part in parts])
    total = {key: sum(part["metrics"][key] for part in parts) for key in parts[0]["metrics"]}
    return {
        "set": name,
        "actions": len(seconds),
        "violations": int(np.sum(~(excess <= 0.0))),
        "worst_excess": float(excess.max()),
        "passed": int(total["passed"]),
        **{kind: int(total[f"interventions_{kind}"]) for kind in ("ray", "projection", "interior_point")},
        **{f"p{p:g}_us": round(float(np.percentile(seconds, p)) * 1e6, 1) for p in PERCENTILES},
        "max_us": round(float(seconds.max()) * 1e6, 1),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actions", type=int, default=100_000, help="in all, over all families")
    parser.add_argument(
        "--workers", type=int, default=1, help="processes; more than the cores spoil the times"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    quick = [name for name in ALL if name not in SLOW]
    share = -(-options.actions // len(quick))  # the quick families alone make up the number asked for
    rows = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        executor = pool.map if options.workers > 1 else map
        print(
            f"{'set':36}{'actions':>11}{'violations':>11}{'passed':>10}{'p50 us':>9}{'p99.99 us':>11}{'max us':>10}"
        )
        for name in ALL:
            row = measure(name, max(share // SLOW.get(name, 1), 100), executor, options.seed)
            rows.append(row)
            print(
                f"{name:36}{row['actions']:11,}{row['violations']:11,}{row['passed']:10,}{row['p50_us']:9.0f}"
                f"{row['p99.99_us']:11.0f}{row['max_us']:10.0f}",
                flush=True,
            )
    times = {row["set"]: row.pop("seconds") for row in rows}
    every = np.concatenate([times[name] for name in quick])
    count, violations = sum(row["actions"] for row in rows), sum(row["violations"] for row in rows)
    overall = {f"p{p:g}_us": round(float(np.percentile(every, p)) * 1e6, 1) for p in PERCENTILES}
    print(
        f"{count:,} actions, {violations:,} violations at zero tolerance, 99.99 % within {overall['p99.99_us']:.0f} us"
    )
    result = {"actions": count, "violations": violations, "workers": options.workers, "seed": options.seed}
    name = "filtered_actions" if options.actions >= FULL else "filtered_actions_small"
    save_result(name, {**result, "of_the_quick_families": overall, "rows": rows})
    if violations:
        raise SystemExit(f"{violations} infeasible actions left the filter")


if __name__ == "__main__":
    main()
