"""Run folders with networks that nobody trained: all that loading and exporting need, in milliseconds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.policies.heads import Head, SquashedGaussian
from inbounds.storage.sealed_arrays import meaning_of_run, write_sealed

GAUSSIAN = SquashedGaussian(proposals=10)


def random_network(
    rng: np.random.Generator, sizes: tuple[int, ...], name: str = "actor"
) -> dict[str, NDArray[np.float32]]:
    """Return layers with one seed on a leading axis, under the names that training writes."""
    arrays = {}
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((1, inputs, outputs)) * (1.5 / np.sqrt(inputs))
        arrays[f"{name}/{index}/weight"] = weight.astype(np.float32)
        arrays[f"{name}/{index}/bias"] = (0.1 * rng.standard_normal((1, outputs))).astype(np.float32)
    return arrays


def write_run(
    folder: Path,
    constraint: Constraint,
    arrays: dict[str, NDArray[Any]],
    *,
    observation_size: int,
    low: Any,
    high: Any,
    head: Head | dict[str, Any] | None = GAUSSIAN,
    learner: str = "synthetic",
    task: str = "synthetic",
) -> Path:
    """Write a run folder that `load` and `export` accept."""
    config = {
        "task": task,
        "observation_size": observation_size,
        "action_low": np.asarray(low, np.float64).tolist(),
        "action_high": np.asarray(high, np.float64).tolist(),
        "constraint": constraint.to_json(),
        "learner": {"name": learner},
        "head": head.to_json() if isinstance(head, Head) else head,
        "training": {
            **{"seed": 0, "seeds": 1, "steps": 1, "environments": 1, "updates_per_step": 1.0, "episodes": 1},
            "preference": [0.9, 0.1],
        },
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_sealed(folder / "policy.safetensors", arrays, meaning_of_run(config))
    return folder


def random_run(
    folder: Path,
    constraint: Constraint,
    dimension: int,
    observation_size: int,
    seed: int = 0,
    **settings: Any,
) -> Path:
    """Write a run of a Gaussian policy with random weights over the box [-1.5, 1.5]^d."""
    rng = np.random.default_rng(seed)
    arrays = random_network(rng, (observation_size, 16, 2 * dimension))
    limit = np.full(dimension, 1.5)
    return write_run(
        folder, constraint, arrays, observation_size=observation_size, low=-limit, high=limit, **settings
    )
