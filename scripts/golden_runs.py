"""Short deterministic CPU runs and their fingerprints, to compare two commits on one machine.

    PYTHONPATH=src python scripts/golden_runs.py --out new.json
    PYTHONPATH=/path/of/the/older/checkout/src python scripts/golden_runs.py --out old.json --against new.json

A step that only reorders arithmetic may still move bits, because the compiler fuses it differently; `--eager` runs
every operation by itself and shows whether the arithmetic is the same (slow: choose runs with `--only`).

A fingerprint covers the final networks, their targets, the replay buffers, the logged metrics without timings, and the
evaluations. It depends on the processor and on the versions of the libraries, so no fingerprint is stored.
"""

from __future__ import annotations

import os

os.environ.update(JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"

import argparse
import dataclasses
import hashlib
import importlib
import json
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from safetensors.numpy import load_file

import inbounds as ib
from inbounds.learners.registry import make_learner

FORMER_SETTINGS = {
    "eta": "augmented_share",
    "eta_decay": "share_decay",
    "min_return_weight": "least_return_weight",
    "preference_samples": "policy_preferences",
    "q_snapshots": "snapshots",
    "alpha": "temperature",
    "target_entropy": "entropy_target",
    "critic_warmup": "critic_lead",
}
"""Settings by their names here, and what they were called before."""
FORMER_METRICS = {"temperature": "alpha", "augmented_share": "eta"}
"""Columns of the log that were renamed: before, and now."""
TIMINGS = {"seconds", "steps_per_second", "evaluation_seconds"}
NETWORK = re.compile(
    r"training/learner/(?:trained/|params/)?((?:target_)?(?:actor|critic)/.+|log_std|layer/.+|policy/.+)"
)
TEMPERATURE = re.compile(r"training/learner/(?:trained|params)/log_(?:temperature|alpha)")

SMALL = {"hidden": (32, 32), "batch_size": 32}
ARAM = {**SMALL, "proposals": 10, "critic_warmup": 50, "entropy_ramp": 300}
PAPER = {**ARAM, "preset": "paper", "entropy_ramp": 0}
TRAINING = {
    "steps": 600,
    "warm_up": 200,
    "environments": 1,
    "capacity": 5_000,
    "evaluate_every": 200,
    "episodes": 2,
}
SNAPSHOT_START, SNAPSHOT_INTERVAL = 20, 30
"""So early that the Q replay buffer is full before a golden run ends."""


class Pointer(gymnasium.Env[np.ndarray, np.ndarray]):
    """Move a point to a goal that each episode draws; a task such as a user would write."""

    observation_space = gymnasium.spaces.Box(-3.0, 3.0, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Draw a goal and stand at the origin."""
        super().reset(seed=seed, options=options)
        self.goal, self.position = self.np_random.uniform(-1, 1, 2), np.zeros(2)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> Any:
        """Move by a fifth of the action."""
        self.position = np.clip(self.position + 0.2 * action, -2, 2)
        distance = float(np.linalg.norm(self.position - self.goal))
        return self._observation(), 1.0 - distance, distance < 0.05, False, {}

    def _observation(self) -> np.ndarray:
        return np.concatenate([self.position, self.goal]).astype(np.float32)


def own_task() -> ib.Task:
    """Return a task as a user would write it."""
    return ib.Task(
        Pointer, ib.Ball(radius_squared=0.25), name="pointer", horizon=25, ends_only_in_failure=True
    )


def learner_of(name: str, settings: Mapping[str, Any]) -> Any:
    """Return a learner by the settings' present names, wherever the library still has the former ones."""
    kind = make_learner(name)
    known = {field.name for field in dataclasses.fields(kind)}
    values = {
        FORMER_SETTINGS.get(key, key) if key not in known else key: value for key, value in settings.items()
    }
    return make_learner(name, **{key: value for key, value in values.items() if key in known})


def with_early_snapshots(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose snapshots begin early; they were fields once and are constants of a module now."""
    try:
        module = importlib.import_module("inbounds.learners.q_pensieve")
    except ModuleNotFoundError:
        return {**settings, "snapshot_start": SNAPSHOT_START, "snapshot_interval": SNAPSHOT_INTERVAL}
    module.SNAPSHOT_START, module.SNAPSHOT_INTERVAL = SNAPSHOT_START, SNAPSHOT_INTERVAL
    return settings


def fingerprint(folder: Path) -> dict[str, str]:
    """Return the hashes of what a run ended with."""
    arrays = load_file(max((folder / "checkpoints").glob("step-*")) / "state.safetensors")
    parameters: dict[str, Any] = {}
    for name, array in arrays.items():
        if found := NETWORK.fullmatch(name):
            parameters[found.group(1)] = array
        elif TEMPERATURE.fullmatch(name):
            parameters["log_alpha"] = array
    assert parameters.keys() - {"log_alpha"}, sorted(arrays)
    return {
        "parameters": digest(parameters),
        "replay": digest({"rows": arrays["training/replay/rows"]}),
        "metrics": digest(rows_of(folder / "metrics.jsonl")),
        "evaluations": digest(rows_of(folder / "evaluations.jsonl")),
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a log without timings, under the present names of its columns."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {FORMER_METRICS.get(name, name): value for name, value in row.items() if name not in TIMINGS}
        for row in rows
    ]


def digest(values: Any) -> str:
    """Return a short hash of arrays by name, or of rows."""
    whole = hashlib.sha256()
    if isinstance(values, dict):
        for name in sorted(values):
            whole.update(f"{name} {values[name].dtype} {values[name].shape}".encode())
            whole.update(np.ascontiguousarray(values[name]).tobytes())
    else:
        whole.update(json.dumps(values, sort_keys=True).encode())
    return whole.hexdigest()[:16]


def run(task: Any, learner: Any, folder: Path, **changes: Any) -> dict[str, str]:
    """Train once and return the fingerprint."""
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ib.train(task, learner, out=folder, **{**TRAINING, **changes})
    return fingerprint(folder)


def resumed(folder: Path) -> dict[str, str]:
    """Train half of a run, resume it, and return the fingerprint of the whole."""
    shutil.rmtree(folder, ignore_errors=True)
    learner = learner_of("aram", ARAM)
    ib.train("reacher", learner, out=folder, **{**TRAINING, "steps": 400})
    ib.train("reacher", learner, out=folder, resume=True, **TRAINING)
    return fingerprint(folder)


def golden_runs(others: bool, wanted: str) -> dict[str, dict[str, str]]:
    """Run everything whose name contains `wanted` and return the fingerprints by name."""
    ablations = {
        "one-buffer": {"dual_replay": False},
        "no-self-loops": {"self_loops": "none"},
        "fixed-alpha": {"alpha": 0.2},
        "no-rejection": {"proposals": 1},
    }
    runs: dict[str, Any] = {}
    for task in ("reacher", "bss3z", "nsfnet", "pointer"):
        made = own_task if task == "pointer" else (lambda task=task: task)
        runs[f"default-{task}"] = lambda f, made=made: run(made(), learner_of("aram", ARAM), f)
        runs[f"paper-{task}"] = lambda f, made=made: run(made(), learner_of("aram", PAPER), f)
    runs["resumed-reacher"] = resumed
    runs["supremum-reacher"] = lambda f: run(
        "reacher", learner_of("aram", with_early_snapshots(dict(PAPER))), f, steps=500
    )
    if others:
        runs["two-seeds-reacher"] = lambda f: run(
            "reacher", learner_of("aram", ARAM), f, seeds=2, environments=2
        )
        runs["sosac-reacher"] = lambda f: run("reacher", learner_of("sosac", ARAM), f)
        for name, settings in ablations.items():
            runs[f"{name}-pointer"] = lambda f, own=settings: run(
                own_task(), learner_of("aram", {**ARAM, **own}), f
            )
        flow = {"flow_steps": 50, "flow_samples": 500, "flow_hidden": (16,), "flow_layers": 2}
        quick = {**SMALL, "rollout": 64, "layers": 2, "critic_warmup": 0, **flow}
        for name in (
            *("sac", "spre", "srad", "td3", "dpre", "drad", "dalpha", "nfwpo", "optlayer"),
            *("appropt", "flowpg", "artd3", "focops", "iar", "aram-discrete"),
        ):
            task = "bss3z" if name in ("appropt", "iar", "aram-discrete") else "pointer"
            made = own_task if task == "pointer" else (lambda task=task: task)
            runs[name] = lambda f, name=name, made=made: run(
                made(), learner_of(name, quick), f, steps=300, warm_up=None, evaluate_every=300
            )
    found: dict[str, dict[str, str]] = {}
    for name, one in runs.items():
        if wanted not in name:
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found[name] = one(Path(folder) / "run")
        print(
            f"{name:22s} {' '.join(found[name].values())}  {time.perf_counter() - began:5.1f} s", flush=True
        )
    return found


def main() -> int:
    """Run, print, and compare with another file where one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the fingerprints to this JSON file")
    parser.add_argument("--against", type=Path, help="compare with the fingerprints of another commit")
    parser.add_argument("--others", action="store_true", help="also ablations and the other learners")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument(
        "--eager", action="store_true", help="run operation by operation, without compilation"
    )
    options = parser.parse_args()
    if options.eager:
        jax.config.update("jax_disable_jit", True)
    found = golden_runs(options.others, options.only)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if not options.against:
        return 0
    other = json.loads(options.against.read_text())
    changed = [
        f"{name}: {part}"
        for name in sorted(found.keys() & other.keys())
        for part in found[name]
        if found[name][part] != other[name][part]
    ]
    print(
        "\n".join(["changed:", *changed]) if changed else f"{len(found.keys() & other.keys())} runs unchanged"
    )
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
