"""Environment steps per second of training on MJX, by number of environments, with and without the constraint.

    python -m benchmarks.bench_mjx                                 # 16 to 4,096 on a GPU, 16 and 128 on a CPU
    python -m benchmarks.bench_mjx --task ant --environments 1024 --updates 4 --batch-size 16384

Acting, stepping, remembering and updating are one program; the host checks every executed action in float64. ARAM on
the task, ARAM on the same task with the box alone, and SAC with the box alone take turns within each round.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import inbounds as ib
from benchmarks.provenance import RESULTS, save_result
from inbounds.learners.registry import make_learner
from inbounds.tasks.task import Task
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training
from inbounds.training.record import RunFolder

WARM_UP_TURNS = 4
ON_GPU, ON_CPU = (16, 128, 1024, 4096), (16, 128)


class Contestant:
    """One learner on one task, ready to take turns; times its windows and the checks within them."""

    def __init__(self, task: Task, learner: str, environments: int, options: argparse.Namespace) -> None:
        """Compile everything and take the random turns."""
        config = TrainingConfig(
            steps=10**12,
            environments=environments,
            updates_per_step=options.updates / environments,
            warm_up=WARM_UP_TURNS * environments,
            capacity=options.capacity,
            evaluate_every=0,
        )
        settings = {"hidden": tuple(options.hidden), "batch_size": options.batch_size}
        folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        self.training = Training(task, make_learner(learner, **settings), config, folder)
        if self.training.programs.updates != options.updates:
            raise RuntimeError(f"{self.training.programs.updates} updates, {options.updates} were asked for.")
        self.environments, self.rates, self.checking = environments, [], []
        self.check_seconds = 0.0
        collector: Any = self.training.collector
        self._inspect, collector._inspect = collector._inspect, self._timed_inspection
        began = time.perf_counter()
        self.training.start()
        self._take(WARM_UP_TURNS + 2)
        self.seconds_to_compile = time.perf_counter() - began

    def window(self, turns: int) -> None:
        """Take turns and note how fast they were."""
        self.check_seconds, began = 0.0, time.perf_counter()
        self._take(turns)
        seconds = time.perf_counter() - began
        self.rates.append(turns * self.environments / seconds)
        self.checking.append(self.check_seconds / seconds)

    def _take(self, turns: int) -> None:
        collector, before = self.training.collector, self.training.collector.turn
        self.training.state, *_ = collector.run(self.training.state, turns)
        jax.block_until_ready(self.training.state)
        if collector.turn != before + turns:
            raise RuntimeError(f"{self.training.task.name} stopped: the policy has diverged.")

    def _timed_inspection(self, *arguments: Any) -> None:
        began = time.perf_counter()
        self._inspect(*arguments)
        self.check_seconds += time.perf_counter() - began


def contestants(environments: int, options: argparse.Namespace) -> dict[str, Contestant]:
    """Return all contestants for one number of environments."""
    task = ib.make(f"{options.task}-mjx")
    free = dataclasses.replace(task, constraint=ib.Box(task.action_low, task.action_high))
    chosen = {"ARAM": (task, "aram"), "ARAM, box alone": (free, "aram"), "SAC, box alone": (free, "sac")}
    return {name: Contestant(*pair, environments, options) for name, pair in chosen.items()}


def measure(environments: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Let all contestants take turns and return one row for each."""
    entered = contestants(environments, options)
    for _ in range(options.rounds):
        for contestant in entered.values():
            contestant.window(options.turns)
    own = statistics.median(entered["ARAM"].rates)
    return [row(name, contestant, own) for name, contestant in entered.items()]


def row(name: str, contestant: Contestant, own: float) -> dict[str, Any]:
    """Return the speed of a contestant, and what ARAM with the constraint takes longer than it."""
    median = statistics.median(contestant.rates)
    programs = contestant.training.programs
    return {
        "who": name,
        "environments": contestant.environments,
        "steps_per_second": round(median),
        "least": round(min(contestant.rates)),
        "most": round(max(contestant.rates)),
        "updates_per_second": round(median / contestant.environments * programs.updates, 1),
        "aram_takes_longer_by": round(median / own - 1.0, 3),
        "share_of_float64_check": round(statistics.median(contestant.checking), 4),
        "seconds_to_compile": round(contestant.seconds_to_compile, 1),
        "checked_steps": int(contestant.training.collector.turn) * contestant.environments,
    }


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return the settings of the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", default="halfcheetah", help="without the ending -mjx")
    parser.add_argument("--environments", type=int, nargs="+", default=None)
    parser.add_argument("--updates", type=int, default=2, help="gradient steps per step of all environments")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=200, help="steps of all environments in one window")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measure every number of environments, print the table and store it after each."""
    options = parsed(arguments)
    if importlib.util.find_spec("mujoco.mjx") is None:
        print('mujoco-mjx is not installed here: pip install ".[mjx]".')
        return
    counts = options.environments or (ON_CPU if jax.default_backend() == "cpu" else ON_GPU)
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "environments")}
    rows: list[dict[str, Any]] = []
    print(
        f"{'environments':>12}  {'who':16}{'steps/s':>10}{'least':>10}{'most':>10}{'updates/s':>11}"
        f"{'ARAM longer by':>16}{'float64 check':>15}{'compiled in':>13}"
    )
    for count in counts:
        for one in measure(count, options):
            rows.append(one)
            print(
                f"{one['environments']:12}  {one['who']:16}{one['steps_per_second']:10}{one['least']:10}"
                f"{one['most']:10}{one['updates_per_second']:11}{one['aram_takes_longer_by']:16.1%}"
                f"{one['share_of_float64_check']:15.1%}{one['seconds_to_compile']:11.1f} s",
                flush=True,
            )
        path = save_result(
            "mjx", {"unit": "environment steps per second", **settings, "rows": rows}, options.out
        )
    checked = np.sum([one["checked_steps"] for one in rows])
    print(f"no violation in {checked:,} steps, checked in float64; written to {path}")


if __name__ == "__main__":
    main()
