"""Where the time of training on a GPU goes: steps per second, the host's share, how busy the device is, and with what.

    python -m benchmarks.profile_gpu halfcheetah bss5z --losses plain supremum --out FOLDER
    python -m benchmarks.profile_gpu halfcheetah --variants default flat-optimiser highest bfloat16

For each task five seeds of ARAM with sixteen environments each train for a few hundred turns. The floor is what a chain
of the smallest possible kernels costs each; a program whose kernels take little longer is bound by their launches.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.provenance import provenance
from inbounds.learners.aram import Aram
from inbounds.tasks.registry import make
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training, resolved
from inbounds.training.record import RunFolder

ROUNDS = 5
PRECISIONS = ("highest", "tensorfloat32", "bfloat16")
VARIANTS = ("default", "flat-optimiser", *PRECISIONS)
"""As trained; Adam over one flat vector instead of one array per layer; other precisions of matrix products."""
POLICY_LOSSES = {"plain": {}, "supremum": {"preference_samples": 4, "q_snapshots": 4}}


def kernel_floor(length: int = 200, repeats: int = 20) -> float:
    """Return the microseconds of one kernel in a chain of kernels that do next to nothing and may not be fused."""

    @jax.jit
    def chain(value: jax.Array) -> jax.Array:
        for _ in range(length):
            value = jax.lax.optimization_barrier(jnp.sin(value) + 1.0)
        return value

    value = jax.block_until_ready(chain(jnp.ones(8)))
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        value = jax.block_until_ready(chain(value))
        seconds.append(time.perf_counter() - began)
    return 1e6 * min(seconds) / length


class FlatAram(Aram):
    """ARAM whose optimiser sees one vector of all parameters."""

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over one flat vector."""
        return optax.flatten(super().optimiser())


class HostClock:
    """Adds up the time that stepping environments takes on the host."""

    def __init__(self, collector: Any) -> None:
        """Stand between the collector and its environments, where there are any."""
        self.seconds = 0.0
        if hasattr(collector, "_step"):
            step = collector._step

            def timed(*arguments: Any) -> Any:
                began = time.perf_counter()
                found = step(*arguments)
                self.seconds += time.perf_counter() - began
                return found

            collector._step = timed


def kernels_of(folder: Path) -> dict[str, Any]:
    """Return how many kernels a trace holds, how long they ran, and the names that took most."""
    spent: collections.Counter[str] = collections.Counter()
    count: collections.Counter[str] = collections.Counter()
    for file in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    spent[event.name] += event.duration_ns / 1e3
                    count[event.name] += 1
    largest = [
        {"name": name[:60], "share": round(time_ / max(sum(spent.values()), 1e-9), 3), "calls": count[name]}
        for name, time_ in spent.most_common(12)
    ]
    return {"kernels": sum(count.values()), "busy": sum(spent.values()), "largest": largest}


def measure(task_name: str, loss: str, variant: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train for a while and return where the time went."""
    task = make(task_name).normalised(rewards=False)
    kind = FlatAram if variant == "flat-optimiser" else Aram
    learner = kind(hidden=tuple(arguments.hidden), **POLICY_LOSSES[loss])
    jax.config.update("jax_default_matmul_precision", variant if variant in PRECISIONS else None)
    environments, seeds = arguments.environments, arguments.seeds
    config = TrainingConfig(
        steps=10**9,
        seeds=seeds,
        environments=environments,
        warm_up=64 * environments,
        capacity=arguments.capacity,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(Path(temporary) / "run")
        training = Training(task, learner, config, folder)
        folder.create(resolved(task, learner, "aram", config, environments), {})
        training.start()
        state, collector = training.state, training.collector
        began = time.perf_counter()
        state, *_ = collector.run(state, 100)
        state, *_ = collector.run(state, arguments.turns)
        jax.block_until_ready(state.counters)
        compiled = time.perf_counter() - began
        clock, seconds, host = HostClock(collector), [], []
        for _ in range(ROUNDS):
            clock.seconds, began = 0.0, time.perf_counter()
            state, *_ = collector.run(state, arguments.turns)
            jax.block_until_ready(state.counters)
            seconds.append(time.perf_counter() - began)
            host.append(clock.seconds)
        trace = Path(temporary) / "trace"
        jax.profiler.start_trace(str(trace))
        began = time.perf_counter()
        state, *_ = collector.run(state, arguments.turns)
        jax.block_until_ready(state.counters)
        traced = time.perf_counter() - began
        jax.profiler.stop_trace()
        seen = kernels_of(trace)
        if collector.turn != 100 + (ROUNDS + 2) * arguments.turns:
            raise RuntimeError(f"{task_name} stopped after {collector.turn} turns: the policy has diverged.")
    turn = statistics.median(seconds) / arguments.turns
    updates = environments * arguments.turns
    return {
        "task": task_name,
        "policy_loss": loss,
        "variant": variant,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "seeds": seeds,
        "environments": environments,
        "turns": arguments.turns,
        "seconds_to_compile": round(compiled, 1),
        "steps_per_second_and_seed": round(environments / turn),
        "spread": [round(environments * arguments.turns / value) for value in (max(seconds), min(seconds))],
        "microseconds_per_turn": round(1e6 * turn, 1),
        "host_steps_microseconds_per_turn": round(1e6 * statistics.median(host) / arguments.turns, 1),
        "device_busy_share": round(seen["busy"] / (1e6 * traced), 3),
        "device_busy_microseconds_per_update": round(seen["busy"] / updates, 1),
        "kernels_per_update": round(seen["kernels"] / updates, 1),
        "microseconds_per_kernel": round(seen["busy"] / max(seen["kernels"], 1), 2),
        "largest_kernels": seen["largest"],
    }


def main() -> None:
    """Measure every task with every policy loss asked for; the file is written anew after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--losses", nargs="+", default=["plain"], choices=sorted(POLICY_LOSSES))
    parser.add_argument("--variants", nargs="+", default=["default"], choices=VARIANTS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--environments", type=int, default=16)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--hidden", nargs="+", type=int, default=[256, 256])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {
        "provenance": provenance(),
        "floor_microseconds_per_kernel": round(kernel_floor(), 2),
        "rows": [],
    }
    for task in arguments.tasks:
        for loss, variant in itertools.product(arguments.losses, arguments.variants):
            found["rows"].append(measure(task, loss, variant, arguments))
            row = found["rows"][-1]
            print({name: value for name, value in row.items() if name != "largest_kernels"}, flush=True)
            (arguments.out / "gpu_profile.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
