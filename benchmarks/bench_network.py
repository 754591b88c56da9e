"""Milliseconds per environment-step of the networks on one core, beside the event-driven simulation of the tests.

The event-driven simulation has the same events as the published one (which needs 5 to 14 ms per step) and is
timed in turn with ours within each round. Compilation is not timed.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.provenance import RESULTS, save_result
from inbounds.tasks.network import compiled_network, network_task
from inbounds.tasks.network_layout import LAYOUTS, TRUNK_CAPACITY
from tests.tasks.event_driven_network import EventDrivenNetwork

COUNTS = (1, 8, 64, 256, 1024)
ROUNDS = 5
STEPS = 20
HELD_STEPS = 1000
HELD_COUNT = 64
MODERATE = {"nsfnet": np.array([17, 6, 6, 0, 12, 20, 5, 23, 6.0]), "nsfnet20d": np.full(20, 7.5)}


def saturating_action(name: str) -> NDArray[np.float64]:
    """Return equal rates that fill the fullest trunk exactly: feasible, but rounding up sends more."""
    layout = LAYOUTS[name]
    return np.full(layout.flows, TRUNK_CAPACITY / layout.incidence().sum(axis=1).max())


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def rollout(name: str, action: NDArray[np.float64], steps: int) -> Callable[..., Any]:
    """Compile `steps` steps of a batch in one program, from states to states and rewards."""
    environment = compiled_network(name)
    rates = jnp.asarray(action, jnp.float32)

    def run(states: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        count = states.steps.shape[0]

        def step(carried: Any, part: jax.Array) -> tuple[Any, jax.Array]:
            moved = jax.vmap(environment.step, (0, None, 0))(carried, rates, jax.random.split(part, count))
            return moved.state, moved.reward

        return jax.lax.scan(step, states, jax.random.split(key, steps))

    return jax.jit(run)


def first_states(name: str, count: int) -> Any:
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(jax.vmap(compiled_network(name).reset))(keys)[0]


def batches(name: str) -> list[dict[str, object]]:
    """Time every batch size, and the event-driven simulation in the same rounds."""
    run = rollout(name, MODERATE[name], STEPS)
    states = {count: run(first_states(name, count), jax.random.key(1))[0] for count in COUNTS}
    oracle = EventDrivenNetwork(LAYOUTS[name], seed=0)
    samples: dict[str, list[float]] = {str(count): [] for count in COUNTS} | {"event-driven": []}
    for number in range(ROUNDS):
        key = jax.random.key(number)
        for count in COUNTS:
            taken = seconds(lambda count=count, key=key: run(states[count], key)[1])  # type: ignore[misc]
            samples[str(count)].append(1e3 * taken / (STEPS * count))
        taken = seconds(lambda: [oracle.step(MODERATE[name]) for _ in range(STEPS)])
        samples["event-driven"].append(1e3 * taken / STEPS)
    plain = statistics.median(samples["event-driven"])
    return [
        {
            "task": name,
            "environments": label,
            "ms_per_step": round(statistics.median(times), 4),
            "steps_per_second": round(1e3 / statistics.median(times)),
            "times_faster_than_event_driven": round(plain / statistics.median(times), 1),
        }
        for label, times in samples.items()
    ]


def held(name: str) -> dict[str, object]:
    """Hold a saturating action for a thousand steps: queues fill up, and the rule for full ones sets in."""
    action = saturating_action(name)
    run = rollout(name, action, HELD_STEPS // 10)
    states = first_states(name, HELD_COUNT)
    run(states, jax.random.key(0))
    oracle = EventDrivenNetwork(LAYOUTS[name], seed=0)
    ours, theirs = [], []
    for part in range(10):
        start = time.perf_counter()
        states, rewards = run(states, jax.random.key(part))
        jax.block_until_ready(rewards)
        ours.append(1e3 * (time.perf_counter() - start) / (HELD_STEPS // 10 * HELD_COUNT))
        taken = seconds(lambda: [oracle.step(action) for _ in range(HELD_STEPS // 10)])
        theirs.append(1e3 * taken / (HELD_STEPS // 10))
    assert int(states.overflow.max()) == 0
    return {
        "task": name,
        "environments": HELD_COUNT,
        "steps": HELD_STEPS,
        "ms_per_step": round(statistics.mean(ours), 4),
        "ms_per_step_by_hundreds": [round(value, 4) for value in ours],
        "event_driven_ms_per_step": round(statistics.mean(theirs), 3),
        "longest_queue": int(states.queues.length.max()),
        "dropped_in_last_step": float(states.drops.sum(axis=1).mean()),
        "times_faster_than_event_driven": round(statistics.mean(theirs) / statistics.mean(ours), 1),
    }


def from_python(name: str) -> list[dict[str, object]]:
    """Time the guarded forms that a user's own loop calls, one step per call."""
    task = network_task(name)
    assert task.host is not None
    single, batch = task.make_environment(), task.host(HELD_COUNT, 1)
    action = MODERATE[name].astype(np.float32)
    actions = np.tile(action, (HELD_COUNT, 1))
    single.reset(seed=0)
    batch.reset(range(HELD_COUNT))
    rows = []
    for label, count, step in (
        ("Gymnasium", 1, lambda: single.step(action)),
        ("guarded batch", HELD_COUNT, lambda: batch.step(actions)),
    ):
        step()
        times = [seconds(lambda step=step: [step() for _ in range(STEPS)][-1][1]) for _ in range(ROUNDS)]  # type: ignore[misc]
        taken = 1e3 * statistics.median(times) / (STEPS * count)
        rows.append({"task": name, "form": label, "environments": count, "ms_per_step": round(taken, 4)})
    return rows


def main(out: Path = RESULTS) -> None:
    # JAX starts its threads with its first computation, and they may use what the process may use by then.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[dict[str, object]] = []
    print(f"{'task':11}{'environments':>14}{'ms per step':>13}{'steps/s':>10}{'x event-driven':>16}")
    for name in LAYOUTS:
        for row in batches(name):
            rows.append(row)
            print(
                f"{name:11}{row['environments']:>14}{row['ms_per_step']:>13}{row['steps_per_second']:>10}"
                f"{row['times_faster_than_event_driven']:>16}",
                flush=True,
            )
    print("\na saturating action held for 1,000 steps")
    saturated = [held(name) for name in LAYOUTS]
    for row in saturated:
        print(
            f"{row['task']!s:11}{row['environments']:>14}{row['ms_per_step']:>13}{'':10}"
            f"{row['times_faster_than_event_driven']:>16}  longest queue {row['longest_queue']}, "
            f"{row['dropped_in_last_step']:.1f} dropped per step at the end"
        )
    print("\none step per call from Python, guard included")
    called = [row for name in LAYOUTS for row in from_python(name)]
    for row in called:
        print(f"{row['task']!s:11}{row['form']!s:>14}{row['ms_per_step']:>13}")
    save_result(
        "network",
        {
            "cores_used": 1,
            "rounds": ROUNDS,
            "steps_per_round": STEPS,
            "batches": rows,
            "saturated": saturated,
            "from_python": called,
        },
        folder=out,
    )


if __name__ == "__main__":
    main()
