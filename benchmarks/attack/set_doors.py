"""The doors of a constraint itself, attacked in numpy, in JAX and in the other libraries."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from benchmarks.attack.actions import LAYOUTS, draw_actions
from benchmarks.attack.anchored_sets import Style
from benchmarks.attack.effort import QUICK, cost, draw_mostly_quick
from benchmarks.attack.examination import Asked, Examine, constraint_of, examined
from benchmarks.attack.ledger import Ledger
from benchmarks.attack.libraries import NUMPY, OTHERS, Library
from benchmarks.attack.plain_sets import Plain
from benchmarks.attack.set_questions import (
    examine_contains,
    examine_distance,
    examine_interior_point,
    examine_maximiser,
    examine_nonsense,
    examine_project,
    examine_sample,
)
from benchmarks.attack.sets import Drawn, States, draw

DTYPES = (np.float64, np.float32, np.float16, np.int64, np.int16)
DTYPE_CHANCES = (0.5, 0.36, 0.06, 0.05, 0.03)

NOT_FLUSHED = 1e4
"""A reading times the smallest scale, 1e-3, of so many times the smallest normal number is normal."""


def batch_size(plain: Plain, dimension: int, microseconds: float, most: int = 60_000) -> int:
    """Return how many questions take about this long."""
    return int(np.clip(microseconds / cost(plain, dimension), 6, most))


def attack_set(rng: np.random.Generator, ledger: Ledger, examine: Examine, microseconds: float) -> None:
    """Draw a set, and ask about it in numpy: large batches where actions are known, the other states one by one."""
    is_boxed = examine is examine_sample and rng.random() < 0.85
    style = Style(oracles=0.01, is_boxed=is_boxed)
    drawn = draw_mostly_quick(rng, style, 0.7)
    constraint = constraint_of(ledger, rng, drawn)
    if constraint is None:
        return
    dtype = DTYPES[int(rng.choice(len(DTYPES), p=DTYPE_CHANCES))]
    is_wild = rng.random() < 0.2
    count = 12 if is_wild else batch_size(drawn.plain, drawn.dimension, microseconds)
    is_one_state = rng.random() < (0.7 if examine is examine_sample else 0.2)
    if examine is examine_sample and is_one_state and not is_wild:
        count = (
            int(10_000 / drawn.dimension) // (10 if cost(drawn.plain, drawn.dimension) > QUICK else 1) + 10
        )
    asked = drawn_questions(rng, drawn, constraint, count, dtype, NUMPY, wildness=0.7 if is_wild else 0.0)
    if is_one_state:
        asked = dataclasses.replace(asked, states=asked.states.take(np.zeros(len(asked), int)))
    if examine is examine_sample:
        first = "one state " if is_one_state else ""
        asked = dataclasses.replace(asked, variant=f"{first}rng {rng.integers(1000)}")
    elif examine in (examine_project, examine_contains):
        asked = dataclasses.replace(
            asked,
            layout=str(rng.choice(LAYOUTS)),
            variant="one state" if is_one_state else str(rng.choice(["", "two axes"], p=[0.7, 0.3])),
        )
    is_sure = np.zeros(len(asked), bool) if is_wild else asked.rooms() > 1e-5
    rest = np.flatnonzero(~is_sure)[:12]
    if is_sure.any():
        examined(ledger, asked.take(is_sure), examine)
    for row in rest:
        single = asked.take([row])
        if not examine_is_on_batches(examine):
            single = dataclasses.replace(single, variant="one action")
        examined(ledger, single, examine)


def examine_is_on_batches(examine: Examine) -> bool:
    """Tell whether the variant of a question is more than a shape."""
    return examine not in (examine_project, examine_contains)


def drawn_questions(
    rng: np.random.Generator,
    drawn: Drawn,
    constraint: Any,
    count: int,
    dtype: Any,
    library: Library,
    wildness: float = 0.0,
) -> Asked:
    """Draw states and actions for a set."""
    states = drawn.states(rng, count, wildness)
    actions = draw_actions(rng, drawn, states, count, dtype)
    if library.name.startswith("jax"):
        working = np.float32 if library.is_single else np.float64
        states = States(*(None if part is None else without_tiny(part, working) for part in states))
        # An action in float32 is read as one before it is computed with in float64.
        actions = without_tiny(actions, np.float32 if dtype == np.float32 else working)
    return Asked(
        drawn.plain, constraint, states, actions, drawn.anchor, drawn.is_moderate, dtype, library=library
    )


def without_tiny(values: Any, dtype: Any) -> Any:
    """Return numbers as JAX sees them: XLA computes on a CPU with subnormal numbers taken for zero, in and out."""
    return np.where(np.abs(values) < NOT_FLUSHED * float(np.finfo(dtype).tiny), 0.0, values)


def attack_nonsense(rng: np.random.Generator, ledger: Ledger, library: Library = NUMPY) -> None:
    """Ask about NaN and infinities: nothing may accept them or turn them into a number."""
    drawn = draw(rng, Style(largest_dimension=9, exponents=(2.0, 2.0, 2.0), is_single=library.is_single))
    constraint = constraint_of(ledger, rng, drawn)
    if constraint is None:
        return
    dtype = np.float32 if library.is_single else np.float64
    asked = drawn_questions(rng, drawn, constraint, 4, dtype, library)
    for value in (np.nan, np.inf, -np.inf):
        for name in ("action", "observation", "previous_action"):
            examined(ledger, dataclasses.replace(asked, variant=f"{name} {value}"), examine_nonsense)


def project(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `project` in numpy."""
    attack_set(rng, ledger, examine_project, 250_000.0)


def contains(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `contains`, `violation` and `explain` in numpy; a projection costs about ten times as much."""
    if rng.random() < 0.05:
        attack_nonsense(rng, ledger)
    attack_set(rng, ledger, examine_contains, 3_000_000.0)


def sample(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `sample` with a numpy generator."""
    attack_set(rng, ledger, examine_sample, 30_000.0)


def interior_point(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `interior_point`, and `linear_maximiser` and `distance` beside it."""
    examine = (examine_interior_point, examine_maximiser, examine_distance)[int(rng.integers(3))]
    attack_set(rng, ledger, examine, 30_000.0)


def compiled(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack the same questions in JAX, at once, compiled and mapped, and in the other libraries."""
    library = OTHERS[int(rng.integers(len(OTHERS)))]
    if rng.random() < 0.05:
        attack_nonsense(rng, ledger, library)
        return
    examine = (
        *(examine_project,) * 4,
        *(examine_contains,) * 3,
        *(examine_sample, examine_sample, examine_interior_point, examine_maximiser),
    )[int(rng.integers(11))]
    is_jax = library.name.startswith("jax")
    if not is_jax and examine is examine_sample:
        examine = examine_project
    exponents = (2.0, 5.0, 37.0) if library.is_single else (2.0, 8.0, 100.0)
    style = Style(
        largest_dimension=33,
        exponents=exponents,
        is_single=library.is_single,
        is_boxed=examine is examine_sample,
    )
    drawn = draw(rng, style)
    while not library.is_compiled and cost(drawn.plain, drawn.dimension) > 100.0:
        drawn = draw(rng, style)  # step by step, sets whose members take turns need seconds
    constraint = constraint_of(ledger, rng, drawn)
    if constraint is None:
        return
    count = batch_size(drawn.plain, drawn.dimension, 100_000.0, most=4096)
    dtype = np.float32 if library.is_single or rng.random() < 0.3 else np.float64
    wildness = 0.3 if library.is_compiled else 0.0
    asked = drawn_questions(rng, drawn, constraint, count, dtype, library, wildness)
    if examine is examine_sample:
        is_one_state = library.name == "jax.jit" and rng.random() < 0.5
        if is_one_state:
            asked = dataclasses.replace(asked, states=asked.states.take(np.zeros(len(asked), int)))
        asked = dataclasses.replace(
            asked, variant=f"{'one state ' if is_one_state else ''}rng {rng.integers(1000)}"
        )
    if not library.is_compiled:
        asked = asked.take(asked.rooms() > 1e-4)
        if not len(asked):
            return
    examined(ledger, asked, examine)
