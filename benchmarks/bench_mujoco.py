"""Environment steps per second of the MuJoCo tasks: our batches beside Gymnasium's v4 in a SyncVectorEnv.

Both take the same kind of actions (uniform proposals, projected on the constraint outside the timed section)
and are timed in turn within each round, so that the ratios are those of one run. Our steps include the guard.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.mujoco.ant_v4 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v4 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v4 import HopperEnv
from gymnasium.envs.mujoco.reacher_v4 import ReacherEnv
from numpy.typing import NDArray

from benchmarks.provenance import RESULTS, save_result
from inbounds.tasks import Task, make
from inbounds.tasks.mujoco_batch import mujoco_version

ORIGINALS = {"reacher": ReacherEnv, "halfcheetah": HalfCheetahEnv, "hopper": HopperEnv, "ant": AntEnv}
COUNTS = (1, 8, 64)
ROUNDS = 7
SECONDS = 0.15  # of timed steps for each candidate in each round

Stepper = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Candidate(NamedTuple):
    """One way to step a batch: first observations, and from actions to the next observations."""

    observations: NDArray[np.float64]
    step: Stepper
    close: Callable[[], Any]


def ours(task: Task, count: int, threads: int) -> Candidate:
    assert task.host is not None
    batch: Any = task.host(count, threads)
    return Candidate(batch.reset(range(count)), lambda actions: batch.step(actions).observation, batch.close)


def gymnasiums(task: Task, count: int) -> Candidate:
    def one() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(ORIGINALS[task.name](), task.horizon)

    vector = gymnasium.vector.SyncVectorEnv([one] * count)
    first, _ = vector.reset(seed=0)
    return Candidate(first, lambda actions: vector.step(actions)[0], vector.close)


def steps_per_second(task: Task, candidate: Candidate, rng: np.random.Generator) -> tuple[float, Candidate]:
    """Step for a while and return the rate, and the candidate with the observations it has arrived at."""
    observations, busy, taken = candidate.observations, 0.0, 0
    while busy < SECONDS:
        wild = rng.uniform(-1.0, 1.0, (len(observations), task.action_size))
        actions = np.asarray(task.constraint.project(observations, wild))
        start = time.perf_counter()
        observations = candidate.step(actions)
        busy += time.perf_counter() - start
        taken += len(observations)
    return taken / busy, candidate._replace(observations=observations)


def measure(name: str, count: int, threads: int) -> dict[str, object]:
    task = make(name)
    candidates = {
        "gymnasium": gymnasiums(task, count),
        "ours_1_thread": ours(task, count, 1),
        f"ours_{threads}_threads": ours(task, count, threads),
    }
    rates: dict[str, list[float]] = {label: [] for label in candidates}
    rng = np.random.default_rng(0)
    for round_ in range(ROUNDS + 1):
        for label, candidate in candidates.items():
            rate, candidates[label] = steps_per_second(task, candidate, rng)
            if round_ > 0:  # the first round warms caches and threads up
                rates[label].append(rate)
    for candidate in candidates.values():
        candidate.close()
    row: dict[str, object] = {"task": name, "environments": count}
    for label, found in rates.items():
        row[label] = {
            "median": round(statistics.median(found)),
            "least": round(min(found)),
            "most": round(max(found)),
        }
        if label != "gymnasium":
            ratios = [mine / theirs for mine, theirs in zip(found, rates["gymnasium"], strict=True)]
            row[f"{label}_over_gymnasium"] = {
                "median": round(statistics.median(ratios), 2),
                "least": round(min(ratios), 2),
                "most": round(max(ratios), 2),
            }
    return row


def main(folder: Path = RESULTS) -> None:
    threads = max(2, len(os.sched_getaffinity(0)))
    rows = []
    heads = f"{'task':14}{'envs':>6}{'gymnasium':>12}{'1 thread':>12}{'ratio':>7}"
    print(f"{heads}{f'{threads} threads':>12}{'ratio':>7}")
    # Loading the original models makes MuJoCo write a log file where it stands.
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
        for name in ORIGINALS:
            for count in COUNTS:
                row: Any = measure(name, count, threads)
                rows.append(row)
                several = f"ours_{threads}_threads"
                print(
                    f"{name:14}{count:6}{row['gymnasium']['median']:12}{row['ours_1_thread']['median']:12}"
                    f"{row['ours_1_thread_over_gymnasium']['median']:7}{row[several]['median']:12}"
                    f"{row[f'{several}_over_gymnasium']['median']:7}",
                    flush=True,
                )
    settings = {"rounds": ROUNDS, "seconds": SECONDS, "threads": threads, "mujoco": mujoco_version()}
    path = save_result("mujoco", {"unit": "environment steps per second", **settings, "rows": rows}, folder)
    print(f"written to {path.name}")


if __name__ == "__main__":
    main()
