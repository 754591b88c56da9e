"""Random actions for a set: near its anchor, on its boundary, far away, and of magnitudes that overflow or vanish."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attack.checker import judge
from benchmarks.attack.sets import Drawn, States, extreme

Vector = NDArray[np.float64]

LARGEST = {np.dtype(name): float(np.finfo(name).max) for name in ("f2", "f4", "f8")}
HALVINGS = 24
LAYOUTS = ("plain", "plain", "strided", "reversed", "fortran", "read-only", "swapped")
"""How an array may lie in memory; swapped are bytes in the other order."""


def draw_actions(
    rng: np.random.Generator, drawn: Drawn, states: States, count: int, dtype: Any = np.float64
) -> Vector:
    """Draw actions of all sizes, finite in the type that they will be asked in; returned as float64."""
    dimension, size = drawn.dimension, drawn.size
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        spread = size * 10.0 ** rng.uniform(-3.0, 2.0, (count, 1))
        actions = drawn.anchor + spread * rng.standard_normal((count, dimension))
        way = rng.random(count)
        far = way < 0.12
        actions[far] = drawn.anchor + size * 10.0 ** rng.uniform(2.0, 12.0, (int(far.sum()), 1)) * (
            rng.standard_normal((int(far.sum()), dimension))
        )
        for row in np.flatnonzero((way >= 0.12) & (way < 0.2))[:400]:
            actions[row] = extreme(rng, dimension, size)
        for row in np.flatnonzero((way >= 0.2) & (way < 0.24))[:200]:
            chosen = rng.random(dimension) < 0.5
            actions[row, chosen] = extreme(rng, int(chosen.sum()), size)
        axis = np.flatnonzero((way >= 0.24) & (way < 0.28))
        actions[axis] = drawn.anchor
        actions[axis, rng.integers(dimension, size=len(axis))] += (
            size * 10.0 ** rng.uniform(-9.0, 9.0, len(axis)) * rng.choice([-1.0, 1.0], len(axis))
        )
        edge = np.flatnonzero((way >= 0.28) & (way < 0.4))[:2000]
        if edge.size:
            actions[edge] = on_boundary(rng, drawn, states.take(edge), actions[edge])
    return representable(actions, dtype)


def representable(actions: Vector, dtype: Any) -> Vector:
    """Return the nearest finite numbers of a type."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        # The largest int64 is no float64: stay below it.
        low, high = max(float(limits.min), -(2.0**53)), min(float(limits.max), 2.0**53)
        return np.round(np.clip(np.nan_to_num(actions), low, high))
    limit = LARGEST[kind]
    with np.errstate(over="ignore"):
        return np.clip(np.nan_to_num(actions), -limit, limit).astype(kind).astype(np.float64)


def on_boundary(rng: np.random.Generator, drawn: Drawn, states: States, outer: Vector) -> Vector:
    """Move along the way from the anchor to each action to where the checker says that the set ends, or just beyond."""
    low, high = np.zeros(len(outer)), np.ones(len(outer))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        is_inside = judge(drawn.plain, along(drawn, outer, middle), *states).excess <= 0
        low, high = np.where(is_inside, middle, low), np.where(is_inside, high, middle)
    nudge = 1.0 + rng.choice([0.0, 1e-16, 1e-12, -1e-9, 1e-9, -1e-7, 1e-7, 1e-6, 1e-5], len(outer))
    return along(drawn, outer, high * nudge)


def along(drawn: Drawn, outer: Vector, share: Vector) -> Vector:
    """Return points on the ways from the anchor to some actions."""
    return drawn.anchor + share[:, None] * (outer - drawn.anchor)


def laid_out(array: Vector, dtype: Any, layout: str) -> NDArray[Any]:
    """Return the numbers of an array in a type and in a layout."""
    typed = array.astype(dtype)
    if layout == "strided":
        wide = np.zeros((*typed.shape[:-1], 2 * typed.shape[-1]), typed.dtype)
        wide[..., ::2] = typed
        return wide[..., ::2]
    if layout == "reversed":
        return np.ascontiguousarray(typed[..., ::-1])[..., ::-1]
    if layout == "fortran":
        return np.asfortranarray(typed)
    if layout == "swapped":
        return typed.astype(typed.dtype.newbyteorder())
    if layout == "read-only":
        typed.flags.writeable = False
    return typed
