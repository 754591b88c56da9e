"""Training speed on the CPU beside stable-baselines3 and SBX, like with like; the peers come from `make peers`.

`.peers/bin/python -m benchmarks.bench_training` has all contestants; without the peers only ours is timed. SAC with a
batch of 256 and two hidden layers of 256 on HalfCheetah, one gradient step per environment step, K of them at a time;
then ARAM's update with 4 preferences and 5 critics beside the same in torch as one would first write it.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import inbounds as ib
from benchmarks.provenance import save_result
from inbounds.learners.learner import Spec
from inbounds.learners.registry import make_learner
from inbounds.replay import Transition
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training
from inbounds.training.record import RunFolder

WARM_UP = 512
MEGAFLOPS_OF_A_SAC_UPDATE = 581.6
"""Actor and twin critics, forward and backward, at a batch of 256 with 17 observations and 6 actions."""
PEERS = all(importlib.util.find_spec(name) is not None for name in ("torch", "stable_baselines3", "sbx"))

Window = Callable[[int], None]
"""Takes that many environment steps, or updates, and waits until they are done."""


def ours(updates: int) -> Window:
    """Return windows of our SAC: `updates` environments, each stepped once between as many gradient steps."""
    task = ib.make("halfcheetah")
    config = TrainingConfig(
        steps=10**9, environments=updates, warm_up=WARM_UP, capacity=100_000, evaluate_every=0
    )
    folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
    training = Training(task, make_learner("sac"), config, folder)
    training.start()

    def window(steps: int) -> None:
        training.state, _, _ = training.collector.run(training.state, steps // updates)
        jax.block_until_ready(training.state)

    window(WARM_UP + 4 * updates)
    return window


def peer(kind: str, updates: int) -> Window:
    """Return windows of stable-baselines3's or SBX's SAC with the same sizes."""
    if kind == "sbx":
        from sbx import SAC
    else:
        from stable_baselines3 import SAC
    model = SAC(
        "MlpPolicy",
        "HalfCheetah-v4",
        buffer_size=100_000,
        batch_size=256,
        learning_starts=WARM_UP,
        train_freq=updates,
        gradient_steps=updates,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
    )
    model.learn(WARM_UP + 4 * updates)

    def window(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return window


def our_aram_update() -> Window:
    """Return windows of ARAM's update with the supremum over 4 preferences and 5 critics."""
    task = ib.make("halfcheetah")
    learner = ib.Aram(preference_samples=4, q_snapshots=4)
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    state = learner.init(jax.random.key(0), spec)
    rng = np.random.default_rng(0)
    batch = Transition(
        *(jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((256, 17), (256, 6), (256, 2))),
        jnp.ones(256),
        jnp.asarray(rng.standard_normal((256, 17)), jnp.float32),
    )

    @jax.jit
    def update(state: Any, key: Any) -> Any:
        return learner.update(state, spec, batch, learner.noise(key, spec))[0]

    def window(count: int) -> None:
        nonlocal state
        for index in range(count):
            state = update(state, jax.random.key(index))
        jax.block_until_ready(state)

    window(2)
    return window


def torch_aram_update() -> Window:
    """Return windows of the same update in torch, as one would first write it."""
    import torch

    from benchmarks.torch_aram import StraightforwardAram

    aram = StraightforwardAram(17, 6, preferences=4, snapshots=4)
    batch = {
        "observation": torch.randn(256, 17),
        "action": torch.rand(256, 6) * 2 - 1,
        "reward": torch.randn(256, 2),
        "next": torch.randn(256, 17),
    }

    def window(count: int) -> None:
        for _ in range(count):
            aram.update(batch)

    window(2)
    return window


def matmul_gigaflops() -> float:
    """Return the best of many products of the size that updates are made of, on all cores."""
    left, right = jnp.ones((256, 256)), jnp.ones((256, 256))
    product = jax.jit(lambda a, b: jax.lax.fori_loop(0, 200, lambda _, x: x @ b * 1e-2, a))
    jax.block_until_ready(product(left, right))
    rates = []
    for _ in range(10):
        began = time.perf_counter()
        jax.block_until_ready(product(left, right))
        rates.append(200 * 2 * 256**3 / (time.perf_counter() - began) / 1e9)
    return max(rates)


def interleaved(contestants: dict[str, Window], size: int, rounds: int) -> dict[str, list[float]]:
    """Return steps per second of every contestant in every round; all of them take turns."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, window in contestants.items():
            began = time.perf_counter()
            window(size)
            found[name].append(size / (time.perf_counter() - began))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_600, help="environment steps of a window")
    options = parser.parse_args()
    if not PEERS:
        print(
            "stable-baselines3, SBX and torch are not installed here: `make peers`, then .peers/bin/python."
        )
    limit = matmul_gigaflops()
    print(f"matmul limit {limit:.0f} GFLOP/s")
    rows = []
    for updates in (1, 16):
        contestants = {"inbounds": ours(updates)}
        if PEERS:
            contestants |= {"stable-baselines3": peer("sb3", updates), "SBX": peer("sbx", updates)}
        rates = interleaved(contestants, options.steps, options.rounds)
        rows += [
            row("SAC on HalfCheetah, steps/s", updates, name, rate, rates["inbounds"], limit)
            for name, rate in rates.items()
        ]
    contestants = {"inbounds": our_aram_update()}
    if PEERS:
        contestants["torch, straightforward"] = torch_aram_update()
    rates = interleaved(contestants, 60, options.rounds)
    rows += [
        row("ARAM, 4 preferences x 5 critics, updates/s", 1, name, rate, rates["inbounds"], None)
        for name, rate in rates.items()
    ]
    print(
        f"{'what':44}{'K':>4}  {'who':24}{'median':>8}{'least':>8}{'most':>8}{'ours/it':>9}{'of limit':>10}"
    )
    for one in rows:
        share = "" if one["share_of_limit"] is None else f"{one['share_of_limit']:.0%}"
        print(
            f"{one['what']:44}{one['updates']:4}  {one['who']:24}{one['median']:8.1f}{one['least']:8.1f}"
            f"{one['most']:8.1f}{one['ours_over_it']:9.2f}{share:>10}"
        )
    save_result("training", {"rounds": options.rounds, "matmul_gigaflops": round(limit, 1), "rows": rows})


def row(
    what: str, updates: int, who: str, rates: list[float], own: list[float], limit: float | None
) -> dict[str, Any]:
    """Return the median and spread of a contestant, and how many times faster ours is."""
    median = statistics.median(rates)
    return {
        "what": what,
        "updates": updates,
        "who": who,
        "median": round(median, 1),
        "least": round(min(rates), 1),
        "most": round(max(rates), 1),
        "ours_over_it": round(statistics.median(own) / median, 3),
        "share_of_limit": None
        if limit is None
        else round(median * MEGAFLOPS_OF_A_SAC_UPDATE / 1e3 / limit, 3),
    }


if __name__ == "__main__":
    main()
