"""Run folders and results with known numbers, written without training anything."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbounds.experiments.experiment import Cell
from inbounds.experiments.results import FRESH_EPISODES, Result

ORIGIN: dict[str, Any] = {
    "inbounds": "0.1.0",
    "commit": "0123456789abcdef",
    "is_dirty": False,
    "python": "3.11.7",
    "packages": {"jax": "0.10.2", "mujoco": "3.17.0"},
    "platform": "Linux x86_64",
    "processor": "a processor",
    "device": "cpu: cpu",
    "started": "2026-11-15T10:00:00+00:00",
}


def final_numbers(seeds: tuple[int, ...]) -> dict[str, Any]:
    return {
        "seeds": list(seeds),
        "episodes": 100,
        "preference": [0.9, 0.1],
        "return": [10.0 + seed for seed in seeds],
        "return_std": [1.0 for _ in seeds],
        "length": [50.0 for _ in seeds],
        "valid_action_rate": [0.5 + 0.1 * seed for seed in seeds],
        "deterministic_valid_rate": [0.75 for _ in seeds],
        "worst_violation": 0.0,
        "solver_calls": {
            "acting": [7 + seed for seed in seeds],
            "updates": {},
            "evaluation": [3 for _ in seeds],
            "rounding": 0,
        },
    }


def write_run(
    folder: Path,
    *,
    task: str = "reacher",
    learner: str = "aram",
    seed: int = 0,
    seeds: int = 2,
    steps: int = 300,
    mujoco: str = "3.17.0",
    is_final: bool = True,
    cell: Cell | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run of three evaluations whose return at step s is s / 100 + seed; `changes` are of its configuration."""
    folder.mkdir(parents=True)
    numbers = tuple(range(seed, seed + seeds))
    training = {"steps": steps, "seed": seed, "seeds": seeds, "environments": 1, "updates_per_step": 1.0}
    training |= {"warm_up": 10, "episodes": 5, "preference": [0.9, 0.1]}
    config = {"task": task, "learner": {"name": learner, "preset": "default"}, "training": training}
    config["constraint"] = {"kind": "Ball", "radius_squared": 0.05}
    config |= {"horizon": 50, "reward_divisor": 1.0 + 0.001 * seed}
    config["own_reward_scale"] = {"reward_divisor": "measured", "reward_shift": "measured"}
    changes = {} if changes is None else changes
    config |= {**changes, "training": {**training, **changes.get("training", {})}}
    (folder / "config.json").write_text(json.dumps(config))
    origin = {**ORIGIN, "packages": {"jax": "0.10.2", "mujoco": mujoco}}
    (folder / "provenance.json").write_text(json.dumps(origin))
    evaluations, metrics = [], []
    for step in (steps // 3, 2 * steps // 3, steps):
        for number in numbers:
            evaluations.append(
                {
                    "step": step,
                    "seed": number,
                    "return": step / 100 + number,
                    "return_std": 1.0,
                    "length": 50.0,
                    "valid_action_rate": 0.5,
                    "deterministic_valid_rate": 0.75,
                    "evaluation_projections": 2,
                    "worst_violation": 0.0,
                    "training_projections": step // 10,
                    "seconds": step / 50,
                    "evaluation_seconds": 0.5,
                }
            )
            metrics.append(
                {
                    "step": step,
                    "seed": number,
                    "seconds": step / 50,
                    "steps_per_second": 50.0,
                    "acceptance": 0.5,
                    "projections": step // 10,
                    "layer_calls": 2 * step,
                    "alpha": 0.1,
                }
            )
    for name, rows in (("evaluations", evaluations), ("metrics", metrics)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if cell is not None:
        (folder / "cell.json").write_text(json.dumps(cell.as_json()))
    if is_final:
        (folder / "final.json").write_text(json.dumps({"final": final_numbers(numbers)}))
    return folder


def make_result(**changes: Any) -> Result:
    """Return a complete result with round numbers."""
    seeds: tuple[int, ...] = tuple(changes.get("seeds", (0, 1, 2, 3, 4)))
    steps = [100, 200, 300]
    rising = [[step / 100 + seed for step in steps] for seed in seeds]
    rates = [[0.1, 0.2, 0.3] for _ in seeds]
    base = Result(
        suite="paper",
        name="reacher-aram-default",
        task="reacher",
        learner="aram",
        preset="default",
        variant="",
        seeds=seeds,
        expected_seeds=len(seeds),
        steps=300,
        expected_steps=300,
        curve={
            "step": steps,
            "return": rising,
            "valid_action_rate": rates,
            "deterministic_valid_rate": rates,
            "training_projections": [[1.0, 2.0, 3.0] for _ in seeds],
            "seconds": [1.0, 2.0, 3.0],
        },
        training={"step": steps, "acceptance": rates},
        diagnostics=None,
        final={"source": FRESH_EPISODES, **final_numbers(seeds)},
        best=None,
        worst_violation=0.0,
        environment_steps=300 * len(seeds),
        front=None,
        inference=None,
        episode=None,
        formula=None,
        provenance=(
            {
                **ORIGIN,
                "seeds": list(seeds),
                "environments": 1,
                "updates_per_step": 1.0,
                "median_steps_per_second": 50.0,
                "learner_settings": {"name": "aram"},
            },
        ),
        command="inbounds train reacher",
    )
    return dataclasses.replace(base, **changes)
