"""A million projections on shells, products of simplices and barriers, judged by their definitions in extended floats.

`python -m benchmarks.attack.groups_and_shells` draws random sets, states and actions, projects in float64 and float32
with numpy and in float32 with compiled JAX, and counts projections that lie outside. The judge shares no code with the
library: sums and norms are taken in extended floats (64-bit mantissa), without any tolerance but the stated one of an
equality. Where the nearest point has a formula, it also records how much farther away a projection is; `farther` is 0
elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from benchmarks.provenance import save_result

Vectors = NDArray[np.float64]
BATCH = 20_000
WIDE = np.longdouble


class Case(NamedTuple):
    """A set, states to go with it, and its definition: what is missed, and how far away the nearest point is."""

    constraint: ib.Constraint
    dimension: int
    states: Vectors
    missed: Callable[[Any, Any], Any]
    """From states and actions, the largest excess of the definition; positive outside."""
    distance: Callable[[Any, Any], Any] | None = None


def shell(rng: np.random.Generator, dimension: int) -> Case:
    """Return a shell whose norms are read from the state, some of them a thousandth apart."""
    lower = rng.uniform(0.0, 2.0, BATCH)
    states = np.stack([lower, 10.0 ** rng.uniform(-3.0, 0.5, BATCH)], axis=-1)

    def missed(states: Any, actions: Any) -> Any:
        norm = np.sqrt(np.sum(actions.astype(WIDE) ** 2, axis=-1))
        return np.maximum(norm - (states[:, 0] + states[:, 1]), states[:, 0] - norm)

    def distance(states: Any, actions: Any) -> Any:
        norm = np.sqrt(np.sum(actions.astype(WIDE) ** 2, axis=-1))
        return np.abs(norm - np.clip(norm, states[:, 0], states[:, 0] + states[:, 1]))

    return Case(ib.Shell(ib.obs[0], ib.obs[0] + ib.obs[1]), dimension, states, missed, distance)


def shell_in_box(rng: np.random.Generator, dimension: int) -> Case:
    """Return a shell cut by a box that need not be symmetric; its farthest corner is outside the inner sphere."""
    low, high = -rng.uniform(0.2, 1.5, dimension), rng.uniform(0.2, 1.5, dimension)
    corner = float(np.linalg.norm(np.maximum(-low, high)))
    alone = shell(rng, dimension)
    states = np.stack([rng.uniform(0.0, 0.95, BATCH) * corner, alone.states[:, 1] + 1e-3], axis=-1)

    def missed(states: Any, actions: Any) -> Any:
        sides = np.max(np.maximum(low - actions, actions - high), axis=-1)
        return np.maximum(alone.missed(states, actions), sides)

    return Case(alone.constraint & ib.Box(low, high), dimension, states, missed)


def simplices(rng: np.random.Generator, dimension: int) -> Case:
    """Return groups of random entries whose totals are read from the state."""
    order, count = rng.permutation(dimension), int(rng.integers(1, dimension + 1))
    cuts = np.sort(rng.choice(np.arange(1, dimension), count - 1, replace=False)) if count > 1 else []
    groups = [part.tolist() for part in np.split(order, cuts)]
    states = 10.0 ** rng.uniform(-2.0, 2.0, (BATCH, count))

    def missed(states: Any, actions: Any) -> Any:
        wide = actions.astype(WIDE)
        off = [
            np.abs(wide[:, group].sum(axis=-1) - states[:, i]) - WIDE(1e-5) * states[:, i]
            for i, group in enumerate(groups)
        ]
        return np.maximum(np.max(np.stack(off), axis=0), np.max(-wide, axis=-1))

    def distance(states: Any, actions: Any) -> Any:
        squares = 0.0
        for i, group in enumerate(groups):
            part = actions[:, group].astype(WIDE)
            # Held, Wolfe and Crowder: the threshold of the sorted entries.
            falling = -np.sort(-part, axis=-1)
            excess = (np.cumsum(falling, axis=-1) - states[:, i, None]) / np.arange(1, len(group) + 1)
            last = np.sum(falling > excess, axis=-1) - 1
            threshold = np.take_along_axis(excess, last[:, None], axis=-1)
            squares = squares + np.sum((part - np.maximum(part - threshold, 0)) ** 2, axis=-1)
        return np.sqrt(squares)

    return Case(ib.Simplices(groups, ib.obs[0:count]), dimension, states, missed, distance)


def barrier(rng: np.random.Generator, dimension: int) -> Case:
    """Return a half-space that moves with the state, and a box in which every state leaves an action."""
    unit = np.ones(dimension)
    states = rng.uniform(-2.0, 2.0, (BATCH, dimension + 2))
    strength = 2.0 * np.abs(states[:, 2:]).sum(axis=-1)  # the most that the box allows the action to add
    states[:, 1] = rng.uniform(2.1, 3.0, BATCH) - rng.uniform(0.0, 0.95, BATCH) * strength
    h, drift, control = 0.5 * ib.obs[0] ** 2, ib.obs[1] - 2.0, ib.obs[2 : dimension + 2]

    def missed(states: Any, actions: Any) -> Any:
        wide, seen = actions.astype(WIDE), states.astype(WIDE)
        gained = np.sum(seen[:, 2:] * wide, axis=-1) + seen[:, 1] - 2 + seen[:, 0] ** 2
        return np.maximum(-gained, np.max(np.abs(wide) - 2, axis=-1))

    joined = ib.barrier(h, drift, control, gamma=2.0) & ib.Box(-2.0 * unit, 2.0 * unit)
    return Case(joined, dimension, states, missed)


MAKERS: dict[str, Callable[[np.random.Generator, int], Case]] = {
    "Shell": shell,
    "Shell and Box": shell_in_box,
    "Simplices": simplices,
    "barrier and Box": barrier,
}
SLOW = {"barrier and Box": 20}
"""Sets whose projection is a quadratic program, asked so many times less often."""


def examined(name: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Project random actions on random sets of one kind and judge what comes back."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {"set": name, "projections": 0, "moved": 0, "outside": 0, "farther": 0.0}
    compiled: dict[int, tuple[Case, Any]] = {}
    while found["projections"] < count:
        kind = int(rng.integers(0, 3))
        case = MAKERS[name](rng, int(rng.integers(1 if "Shell" in name else 2, 9)))
        if kind == 2:
            # One compiled function serves all states of a set.
            case, project = compiled.setdefault(0, (case, jax.jit(case.constraint.project)))
        else:
            project = case.constraint.project
        size = min(BATCH, count - found["projections"])
        dtype = np.float64 if kind == 0 else np.float32
        states = case.states[rng.integers(0, BATCH, size)]
        actions = rng.standard_normal((size, case.dimension)) * 10.0 ** rng.uniform(-3.0, 2.0, (size, 1))
        actions[rng.random(actions.shape) < 0.05] = 0.0
        states, actions = (states.astype(np.float32) if kind == 2 else states), actions.astype(dtype)
        points = np.asarray(project(states, actions))
        seen = states.astype(np.float64)
        found["projections"] += size
        found["moved"] += int(np.any(points != actions, axis=-1).sum())
        found["outside"] += int(np.sum(~(case.missed(seen, points.astype(np.float64)) <= 0)))
        if case.distance is not None:
            away = np.linalg.norm((points - actions).astype(np.float64), axis=-1)
            farther = (away - case.distance(seen, actions.astype(np.float64))) / (
                1.0 + np.linalg.norm(actions, axis=-1) + np.max(np.abs(seen), axis=-1)
            )
            found["farther"] = max(found["farther"], float(np.max(farther)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="projections per kind of set")
    options = parser.parse_args()
    rows = []
    for name in MAKERS:
        began = time.perf_counter()
        found = examined(name, options.count // SLOW.get(name, 1))
        rows.append(found)
        print(f"{found} in {time.perf_counter() - began:.0f} s", flush=True)
    save_result("groups_and_shells", {"rows": rows})
    if any(row["outside"] for row in rows):
        sys.exit("a projection left its set.")


if __name__ == "__main__":
    main()
