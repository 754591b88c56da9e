"""Questions that once had a wrong answer; every run asks them again, before any random one.

A finding that is mended belongs here, as small as it was printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import inbounds as ib
from benchmarks.attack.building import build
from benchmarks.attack.examination import Asked, Examine, examined
from benchmarks.attack.ledger import Ledger
from benchmarks.attack.libraries import JIT, NUMPY, OTHERS, Library
from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading
from benchmarks.attack.set_questions import (
    examine_contains,
    examine_interior_point,
    examine_maximiser,
    examine_project,
    examine_sample,
)
from benchmarks.attack.sets import Drawn, States
from benchmarks.attack.witness import NOTHING, Journal, Witness, judge_received, with_box

PREVIOUS = Reading("previous_action", None)


def read(start: int, stop: int | None = None, scale: float = 1.0) -> Reading:
    """Read one entry of the observation, or several."""
    return Reading("observation", start if stop is None else (start, stop), scale)


def box(low: Any, high: Any) -> Leaf:
    """Limit every entry."""
    return Leaf("Box", {"low": low, "high": high})


def both(*parts: Plain) -> Plain:
    """Join sets."""
    return Joined("&", parts)


SKEWED = Leaf("Ellipsoid", {"matrix": np.array([[4.0, -3.0], [-3.0, 4.0]]), "bound": 1.0})
SLAB = Leaf("Polytope", {"A": np.array([[1.0, -1.0], [-1.0, 1.0]]), "b": np.array([2.1e-8, -1.1e-8])})
WIDER = Leaf("Polytope", {"A": np.array([[1.0, -1.0], [-1.0, 1.0]]), "b": np.array([1.0, -0.999])})
RATE = Leaf("RateLimit", {"delta": 0.1, "previous": PREVIOUS})
POWER = Leaf("PowerBudget", {"weights": read(0, 3), "bound": 1.0})
NORM = Leaf("WeightedL1", {"weights": read(0, 3), "bound": 1.0})
ROWS = Leaf("Polytope", {"A": np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]]), "b": np.array([0.5, 0.4])})
ROUND = Leaf("Ellipsoid", {"matrix": np.eye(3), "bound": 1.0})
COMPILED = "the largest of joined rows, which XLA computed at other places of a large batch"
DIFFERENCES = Leaf(
    "Polytope",
    {
        "A": Reading("observation", (0, 6), 1.0, 185177.1767768349, shape=(3, 2)),
        "b": Reading("observation", (6, 9), 0.001),
    },
)
OPEN = Leaf("PowerBudget", {"weights": read(9, 11, -1.0), "bound": read(11)})
OPEN_STATE = [
    *(-185177.79340101144, -185174.27551712157, -185178.71122083778, -185178.3640680871, -185176.56015265838),
    *(-185180.07803654825, -4626750.357022261, 15503119.896716118, 9497110.93359848, 0.026923394146742562),
    *(-0.006830130370566452, 861.2694950951752),
]
WIDE = Leaf(
    "Polytope",
    {"A": Reading("observation", (0, 6), 1.0, shape=(3, 2)), "b": Reading("observation", (6, 9))},
)
WIDE_STATES = [
    [1e200, 1.0, 0.0, -1e190, 1e-200, 1e-200, -1e199, -1e189, 1e-200],
    [6e-230, 0.0, 0.0, -3e239, -3e-177, 0.0, -6e-231, -3e238, 3e-177],
]
WIDE_JIT = next(library for library in OTHERS if library.name == "jax.jit in float64")
STATES = np.array(
    [[1.0, 2.0, 0.5], [0.5, 1.0, 1.5], [2.0, 0.1, 1.0], [1.0, 1.0, 1.0], [3.0, 1.0, 2.0], [0.3, 2.0, 1.0]]
)


class Known(NamedTuple):
    """A question about a set, in a few states."""

    why: str
    plain: Plain
    examine: Examine
    action: Any
    observation: Any = None
    previous_action: Any = None
    dtype: Any = np.float64
    library: Library = NUMPY
    anchor: Any = 0.0
    """An action of the set, well inside."""


OVERFLOW = "a sum that overflows is not a small one"
THIN = "a thin set in float32"
DRAWN = "draws from sets of limits, and from sets without an action"
JOINED = "joined sets whose members read other parts of the observation, in batches"
GROWING = (
    "rows whose margins grow with the action, a budget that leaves a direction free, and actions far away"
)
SQUARES = "rows whose squares overflow or vanish"
BEYOND = "sets that end beyond the numbers of a type"

QUESTIONS = (
    Known(OVERFLOW, both(SKEWED, box(-1.0, 1.0)), examine_contains, [[1e308, 1e308]]),
    Known(OVERFLOW, SKEWED, examine_contains, [[1e150, 1e160], [1e308, -1e308]]),
    Known(OVERFLOW, SKEWED, examine_project, [[1e150, 1e160], [1e308, 1e308]]),
    Known(
        OVERFLOW,
        Leaf("PowerBudget", {"weights": read(0, 2, 10.0), "bound": 1.0}),
        examine_contains,
        [[0.5, 0.5], [0.5, -0.5]],
        [[1e308, -1e308], [1e308, 1e308]],
    ),
    Known(THIN, both(SLAB, box(0.6, 0.9)), examine_project, [[0.7, 0.8], [60000.0, 3.0]], dtype=np.float32),
    Known(THIN, WIDER, examine_project, [[60000.0, 60000.3], [-60000.0, 2.0]], dtype=np.float32),
    Known(DRAWN, both(RATE, box(-1.0, 1.0)), examine_sample, [[0.0]], previous_action=[[5.0]]),
    Known(DRAWN, both(RATE, box(-1.0, 1.0)), examine_sample, [[0.0]], previous_action=[[5.0]], library=JIT),
    Known(
        DRAWN,
        both(Leaf("Ball", {"radius_squared": read(0)}), box(-1.0, 1.0)),
        examine_sample,
        [[0.0, 0.0]] * 2,
        [[-1.0], [0.5]],
        library=JIT,
    ),
    Known(
        DRAWN,
        Joined("|", (both(box(-0.5, 0.5), Leaf("Ball", {"radius_squared": read(0)})), box(0.75, 0.875))),
        examine_sample,
        [[0.0, 0.0]] * 32,
        [[-1.0]] * 32,
        library=JIT,
    ),
    Known(
        COMPILED,
        both(
            Leaf("WeightedL1", {"weights": np.arange(1.0, 13.0), "bound": 1.0}),
            box(np.full(12, -0.5), np.full(12, 0.5)),
        ),
        examine_contains,
        np.repeat((np.arange(4096) * 37 % 101 / 1000.0)[:, None], 12, axis=1),
        dtype=np.float32,
        library=JIT,
    ),
    Known(
        GROWING,
        both(DIFFERENCES, OPEN, box(np.full(2, -np.inf), np.array([1492.0151548923718, np.inf]))),
        examine_project,
        [[-2.0, 1e20], [-2.0, 1e6], [-2.0, 0.0]],
        [OPEN_STATE] * 3,
    ),
    *(
        Known(SQUARES, both(WIDE, box(-1.0, 1.0)), examine, [[1.0, 1.0]] * 2, WIDE_STATES, anchor=[-0.5, 0.5])
        for examine in (examine_project, examine_interior_point)
    ),
    Known(
        OVERFLOW,
        both(
            Leaf("Polytope", {"A": Reading("observation", (0, 4), 1.0, shape=(1, 4)), "b": read(4, 5)}),
            Leaf("SumBand", {"total": -7.0, "tolerance": 6.6, "low": -6.0, "high": 2.0}),
            Leaf("SumBand", {"total": -6.4, "tolerance": read(5)}),
        ),
        examine_interior_point,
        [[-0.6, -2.7, -2.5, 0.5]] * 2,
        [[0.6, 1e154, 1e308, -1e300, 3.4e38, 1e300], [0.0, 0.0, 1.7e308, 0.0, 0.0, 1e300]],
        anchor=-0.5,
    ),
    *(
        Known(
            BEYOND,
            box(read(0, 2), read(2, 4)),
            examine_maximiser,
            [[-9e-06, 2e-06]],
            [[-2e181, -1.0, 1.0, 1e200]],
            dtype=np.float32,
            library=library,
        )
        for library in (NUMPY, WIDE_JIT)
    ),
    *(
        Known(JOINED, both(first, second), examine, STATES - 3.0, STATES)
        for first, second in (
            (NORM, Leaf("Ball", {"radius_squared": 0.5})),
            (POWER, ROWS),
            (ROUND, POWER),
            (both(NORM, box(-1.0, 1.0)), ROUND),
        )
        for examine in (examine_project, examine_interior_point)
    ),
    *(
        Known(
            JOINED,
            both(NORM, Leaf("Ball", {"radius_squared": 0.5})),
            examine,
            STATES[1:] - 3.0,
            STATES[1:],
            library=JIT,
        )
        for examine in (examine_project, examine_interior_point)
    ),
)


def questions(rng: np.random.Generator, ledger: Ledger) -> None:
    """Ask the questions about sets, in batches and one by one."""
    for known in QUESTIONS:
        action = np.asarray(known.action, np.float64)
        states = States(
            *(
                None if part is None else np.asarray(part, np.float64)
                for part in (known.observation, known.previous_action)
            )
        )
        asked = Asked(
            known.plain,
            build(known.plain),
            states,
            action,
            np.zeros(action.shape[-1]) + np.asarray(known.anchor),
            True,
            known.dtype,
            known.library,
            variant="rng 0" if known.examine is examine_sample else "",
        )
        examined(ledger, asked, known.examine)
        if known.library is NUMPY:
            # As many states as twice the dimension once passed for one of the axes: ask about one fewer, too.
            examined(ledger, asked.take(slice(1, None)), known.examine)
            for row in range(len(asked)):
                examined(ledger, asked.take([row]), known.examine)
    for walk in WALKS:
        walk(ledger)


# Environments --------------------------------------------------------------------------------------------------------


def drawn_like(plain: Plain, dimension: int) -> Drawn:
    """Describe a set that reads no observation."""
    return Drawn(plain, dimension, np.zeros(dimension), 1.0, False, [], 0, np.inf)


def stepped(
    ledger: Ledger,
    way: str,
    plain: Plain,
    action_space: gymnasium.spaces.Box,
    wrap: Callable[[Any, Any], Any],
    actions: Any,
    manners: str = "polite",
    *,
    is_cut: bool = True,
) -> None:
    """Take steps, and judge what the environment received; `is_cut` says that the space's box is part of the set."""
    env = Witness(np.zeros((len(actions) + 2, 1)), action_space, manners)
    journal = Journal(ledger, way)
    made = ledger.call(lambda: wrap(env, build(plain)), cases=0)
    journal.judge_error(made, plain, NOTHING, None)
    if made.error is not None:
        return
    made.value.reset(seed=0)
    for action in actions:
        answer = ledger.call(lambda action=action: made.value.step(action))
        journal.judge_error(answer, plain, NOTHING, action)
    dimension = action_space.shape[0]
    whole = with_box(plain, action_space)
    limits = whole.parts[-1] if is_cut and isinstance(whole, Joined) else None
    drawn = drawn_like(plain, dimension)
    judge_received(journal, drawn, plain, env.record, np.zeros(dimension), limits, replaces=True)


def unit(dimension: int, dtype: Any = np.float64) -> gymnasium.spaces.Box:
    """Return the space [-1, 1]^d."""
    return gymnasium.spaces.Box(-1.0, 1.0, (dimension,), dtype)


def leaves_the_space(ledger: Ledger) -> None:
    """A wrapper executes nothing that the action space does not hold."""
    corner = Leaf("Polytope", {"A": np.array([[-1.0, -1.0]]), "b": np.array([-1.8])})
    weights = Leaf("PowerBudget", {"weights": np.full(6, 1.0), "bound": 100.0})
    for name in ("ProjectAction", "AcceptReject", "AugmentedMDP"):
        wrap = getattr(ib, name)
        extra = {"rejections": 0} if name == "AugmentedMDP" else {}
        made = lambda env, c, wrap=wrap, extra=extra: wrap(env, c, **extra)  # noqa: E731
        stepped(ledger, f"{name} at a corner", corner, unit(2), made, [np.array([1.0, 0.5])])
        stepped(ledger, f"{name} beyond the space", weights, unit(6), made, [np.full(6, 5.0)])


def writes_into_its_action(ledger: Ledger) -> None:
    """The previous action is what was executed, whatever an environment does with the array or after the step."""
    steps = [
        np.array([0.05]),
        np.array([0.9]),
        np.array([0.99]),
        np.array([0.15]),
        np.array([0.0]),
        np.array([0.9]),
    ]
    for manners in ("writes", "raises"):
        for on_violation in ("refuse", "correct"):
            wrap = lambda env, c, how=on_violation: ib.Guard(env, c, on_violation=how)  # noqa: E731
            wide = gymnasium.spaces.Box(-2000.0, 2000.0, (1,), np.float64)
            stepped(ledger, f"Guard, {manners}", RATE, wide, wrap, [*steps, np.array([1000.0])], manners)
        wide = gymnasium.spaces.Box(-2000.0, 2000.0, (1,), np.float64)
        stepped(ledger, f"ProjectAction, {manners}", RATE, wide, ib.ProjectAction, steps, manners)


def overflows_at_the_guard(ledger: Ledger) -> None:
    """A guard does not take what it cannot judge for feasible."""
    huge = gymnasium.spaces.Box(-1.7e308, 1.7e308, (2,), np.float64)
    actions = [np.array([1e308, 1e308]), np.array([1e150, 1e160])]
    for plain in (SKEWED, both(SKEWED, box(-1.0, 1.0))):
        for on_violation in ("refuse", "correct"):
            wrap = lambda env, c, how=on_violation: ib.Guard(env, c, on_violation=how)  # noqa: E731
            stepped(ledger, f"Guard, {on_violation}", plain, huge, wrap, actions, is_cut=False)


def wraps_integers(ledger: Ledger) -> None:
    """An integer space executes what was asked, or refuses it: 300 does not become 44."""
    small = box(-100.0, 100.0)
    space = gymnasium.spaces.Box(-128, 127, (1,), np.int8)
    env = Witness(np.zeros((8, 1)), space)
    journal = Journal(ledger, "Guard, int8 space")
    made = ledger.call(lambda: ib.Guard(env, build(small)), cases=0)
    journal.judge_error(made, small, NOTHING, None)
    if made.error is not None:
        return
    made.value.reset(seed=0)
    for asked in (np.array([300]), np.array([-200.0]), np.array([np.nan]), np.array([0.7]), np.array([5])):
        before = len(env.record.steps)
        answer = ledger.call(lambda asked=asked: made.value.step(asked))
        journal.judge_error(answer, small, NOTHING, asked)
        if len(env.record.steps) > before and not np.array_equal(env.record.steps[-1][3], asked):
            detail = f"{asked.tolist()} was asked and {env.record.steps[-1][3].tolist()} executed"
            journal.note("wrong answer", small, NOTHING, asked, detail)


def overflows_at_the_filter(ledger: Ledger) -> None:
    """Nothing that overflows leaves the filter."""
    for correction in ("quickest", "ray", "projection"):
        journal = Journal(ledger, f"filter, {correction}")
        made = ib.SafetyFilter(build(SKEWED), correction=correction)
        for action in (np.array([1e150, 1e160]), np.array([1e308, -1e308]), np.array([3.0, 1.0])):
            answer = ledger.call(lambda made=made, action=action: made.correct(None, action))
            journal.judge_error(answer, SKEWED, NOTHING, action, is_answerable=lambda: True)
            if answer.error is None:
                journal.add(SKEWED, NOTHING, action, answer.value, "leaves the filter")
        journal.judge()


WALKS = (
    leaves_the_space,
    writes_into_its_action,
    overflows_at_the_guard,
    wraps_integers,
    overflows_at_the_filter,
)
