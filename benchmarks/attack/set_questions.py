"""The questions of a constraint itself: project, contains, violation, explain, sample, interior points, distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from benchmarks.attack.actions import laid_out
from benchmarks.attack.checker import judge
from benchmarks.attack.effort import cost
from benchmarks.attack.examination import (
    COMPILATION,
    OUTSIDE,
    WRONG,
    Asked,
    Examine,
    Problem,
    alone,
    answered,
    judged_points,
    outside,
    readings_are_finite,
)
from benchmarks.attack.ledger import EXCEPTION, NOT_A_NUMBER, Ledger, explained
from benchmarks.attack.libraries import NUMPY
from benchmarks.attack.plain_sets import Leaf, Plain, Reading, has_union, leaves

DEEP = 1e-3
"""Relative room with which `contains` must accept an action."""


# What is asked, and what may come back -------------------------------------------------------------------------------


def examine_project(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Ask for projections: they are inside, of the right type, and leave alone what is accepted."""
    given, states, ask = _given(asked), asked.states, asked.library.ask(_project(asked))
    before = [None if part is None else np.array(part) for part in (given, *states)]
    answer = ledger.call(
        lambda: ask(*_arranged(asked, states.observation, given, states.previous_action)),
        cases=len(asked),
        limit=COMPILATION if asked.library.is_compiled else None,
    )
    problems = answered(ledger, asked, answer, examine_project)
    if problems is not None:
        return problems
    points = np.asarray(answer.value).reshape(asked.actions.shape)
    problems = judged_points(ledger, asked, points, "the projection")
    for name, old, now in zip(
        ("action", "observation", "previous action"), before, (given, *states), strict=True
    ):
        if old is not None and not np.array_equal(old, now):
            problems.append(Problem(None, WRONG, f"the {name} was written into"))
    if asked.library is NUMPY:
        kept = given.dtype if given.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        if np.asarray(answer.value).dtype != kept:
            problems.append(
                Problem(None, WRONG, f"{given.dtype} came back as {np.asarray(answer.value).dtype}")
            )
        problems += _moved(ledger, asked, points)
        problems += _farther(asked, points)
    return problems


def _moved(ledger: Ledger, asked: Asked, points: NDArray[Any]) -> list[Problem]:
    """Find actions that `contains` accepts and `project` changes all the same."""
    answer = ledger.call(
        lambda: asked.constraint.contains(
            asked.states.observation, _given(asked), previous_action=asked.states.previous_action
        ),
        cases=0,
    )
    if answer.error is not None:
        return []
    accepted = np.broadcast_to(np.asarray(answer.value), (len(asked),))
    changed = accepted & np.any(points.astype(np.float64) != asked.actions, axis=-1)
    return [
        Problem(int(row), WRONG, f"accepted by contains, but projected to {points[row][:6].tolist()}")
        for row in np.flatnonzero(changed)
    ]


def _farther(asked: Asked, points: NDArray[Any]) -> list[Problem]:
    """Find projections by closed forms that are farther away than the anchor, which is well inside."""
    if cost(asked.plain, asked.actions.shape[-1]) > 60.0 or asked.actions.shape[-1] > 12:
        return []
    with np.errstate(all="ignore"):
        away = np.linalg.norm(points.astype(np.float64) - asked.actions, axis=-1)
        known = np.linalg.norm(asked.anchor - asked.actions, axis=-1)
        is_far = asked.have_answer() & (asked.rooms() > 0.01) & _have_comparable_weights(asked)
        is_far &= (away > 1.001 * known + 1e-8) & (known < 1e150)
    return [
        Problem(
            int(row), WRONG, f"the projection is {away[row]:.4g} away, a known action only {known[row]:.4g}"
        )
        for row in np.flatnonzero(is_far)
    ]


def _have_comparable_weights(asked: Asked) -> NDArray[np.bool_]:
    """Tell in which states float64 holds the squares of all ratios of weights.

    The closed form adds these squares up. Where they underflow, a projection is feasible and need not be the nearest.
    """
    comparable = np.ones(len(asked), bool)
    for leaf in leaves(asked.plain):
        weights = leaf.arguments.get("weights")
        if weights is None:
            continue
        if isinstance(weights, Reading):
            is_observed = weights.source == "observation"
            source = asked.states.observation if is_observed else asked.states.previous_action
            weights = weights.taken(source) * weights.scale + weights.offset
        sizes = np.abs(np.reshape(weights, (-1, np.shape(weights)[-1] if np.ndim(weights) else 1)))
        powers = np.log10(np.where(sizes > 0, sizes, np.max(sizes, axis=-1, keepdims=True)))
        comparable &= ~(np.ptp(powers, axis=-1) > 150)
    return comparable


def examine_contains(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Ask contains and violation: what they accept is not outside, and what they refuse is not deep inside."""
    given, states = _given(asked), asked.states
    answers = []
    for method in ("contains", "violation"):
        function = getattr(asked.constraint, method)
        ask = asked.library.ask(lambda o, a, p, function=function: function(o, a, previous_action=p))
        answer = ledger.call(
            lambda ask=ask: ask(*_arranged(asked, states.observation, given, states.previous_action)),
            cases=len(asked),
            limit=COMPILATION if asked.library.is_compiled else None,
        )
        problems = answered(ledger, asked, answer, examine_contains)
        if problems is not None:
            return problems
        answers.append(np.reshape(answer.value, -1))
    accepted, excess = answers[0].astype(bool), answers[1].astype(np.float64)
    if accepted.shape != (len(asked),) or excess.shape != (len(asked),):
        return [Problem(None, WRONG, f"shapes {accepted.shape} and {excess.shape} for {len(asked)} actions")]
    verdict = judge(asked.plain, asked.actions, *states)
    problems = []

    def note(kind: str, where: Any, detail: str) -> None:
        problems.extend(
            Problem(
                int(row),
                kind,
                f"{detail}: exact excess {verdict.excess[row]:.3g} +- {verdict.resolution[row]:.1g}, violation "
                f"{excess[row]:.3g}",
            )
            for row in np.flatnonzero(where)[:50]
        )

    # Where an argument overflows when it is read, no action is feasible, whatever exact numbers say.
    is_read = readings_are_finite(asked.plain, states, len(asked), is_single=asked.library.is_single)
    note(OUTSIDE, accepted & verdict.outside, "contains accepts an action outside")
    note(NOT_A_NUMBER, np.isnan(excess), "violation is NaN")
    if not asked.library.is_single:
        note(OUTSIDE, (excess <= 0) & verdict.outside, "violation finds an action outside feasible")
        is_resolved = is_read & asked.is_moderate & (np.abs(asked.actions).max(axis=-1) < 1e70)
        note(
            WRONG, (excess > 0) & verdict.inside & is_resolved, "violation finds an action inside infeasible"
        )
        off = np.abs(excess - verdict.excess) > 4 * verdict.resolution + 1e-13 * np.abs(verdict.excess)
        is_plain = not any(leaf.kind == "Oracle" for leaf in leaves(asked.plain)) and keeps_members(asked)
        note(WRONG, off & is_resolved & is_plain & np.isfinite(excess), "violation gives another number")
    is_small = np.abs(asked.actions).max(axis=-1) < (1e15 if asked.library.is_single else 1e70)
    deep = ~accepted & (verdict.room > DEEP) & asked.is_moderate & is_small & is_read
    note(WRONG, deep, "contains refuses an action deep inside")
    note(WRONG, accepted & ~(excess <= 0), "contains accepts what violation refuses")
    if asked.library is NUMPY and len(asked):
        problems += _told(ledger, asked, verdict.outside)
    return problems


def keeps_members(asked: Asked) -> bool:
    """Tell whether a union has all of its members: joined with other sets, it goes without those that margins empty."""

    def count(plain: Plain) -> int:
        if isinstance(plain, Leaf):
            return 1
        return (sum if plain.sign == "|" else math.prod)(count(part) for part in plain.parts)

    kept = asked.constraint.constraints if isinstance(asked.constraint, ib.Union) else (asked.constraint,)
    return len(kept) == count(asked.plain)


def _told(ledger: Ledger, asked: Asked, is_outside: NDArray[np.bool_]) -> list[Problem]:
    """Ask explain about one action that is outside: it must not call it feasible."""
    rows = np.flatnonzero(is_outside)[:1]
    for row in rows:
        observation, previous = alone(asked.states, int(row))
        answer = ledger.call(
            lambda o=observation, p=previous, row=row: asked.constraint.explain(
                o, asked.actions[row], previous_action=p
            )
        )
        if answer.error is not None and explained(answer.error) is not None:
            return [Problem(int(row), EXCEPTION, f"explain: {explained(answer.error)}")]
        if answer.error is None and str(answer.value).startswith("feasible"):
            return [Problem(int(row), OUTSIDE, f"explain says: {answer.value[:120]}")]
    return []


def examine_interior_point(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Ask for interior points: they are inside."""
    dimension = asked.actions.shape[-1]

    def point(observation: Any, action: Any, previous: Any) -> Any:
        size = None if asked.constraint.size() is not None else dimension
        return asked.constraint.interior_point(observation, dimension=size, previous_action=previous)

    return _examine_points(ledger, asked, point, examine_interior_point, "the interior point")


def examine_maximiser(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Ask for the action that is farthest along a direction."""

    def point(observation: Any, action: Any, previous: Any) -> Any:
        return asked.constraint.linear_maximiser(observation, action, previous_action=previous)

    return _examine_points(ledger, asked, point, examine_maximiser, "the maximiser")


def examine_sample(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Draw actions, one for each state."""
    dimension, seed = asked.actions.shape[-1], int(asked.variant.rsplit(" ", 1)[-1] or 0)
    is_one_state = asked.variant.startswith("one state")

    def point(observation: Any, action: Any, previous: Any) -> Any:
        rng: Any = np.random.default_rng(seed)
        if asked.library.name.startswith("jax"):
            import jax

            rng = jax.random.key(seed)
        has_states = observation is not None or previous is not None
        # A mapped function draws one action at a time.
        is_counted = (is_one_state or not has_states) and asked.library.name != "jax.vmap"
        count = len(asked) if is_counted else None
        if is_one_state:
            observation, previous = (None if part is None else part[0] for part in (observation, previous))
        size = None if asked.constraint.size() is not None else dimension
        return asked.constraint.sample(rng, observation, count, size, previous_action=previous)

    return _examine_points(ledger, asked, point, examine_sample, "the sample")


def _examine_points(ledger: Ledger, asked: Asked, method: Any, examine: Examine, what: str) -> list[Problem]:
    ask = asked.library.ask(method)
    states = asked.states
    answer = ledger.call(
        lambda: ask(states.observation, _given(asked), states.previous_action),
        cases=len(asked),
        limit=COMPILATION if asked.library.is_compiled else None,
    )
    problems = answered(ledger, asked, answer, examine)
    if problems is not None:
        return problems
    points = np.asarray(answer.value)
    if points.ndim == 1 or len(points) != len(asked):
        # One point for all states: of a set that does not move, or of a batch of one.
        points = np.broadcast_to(points, asked.actions.shape) if points.ndim == 1 else points
    return judged_points(ledger, asked, points, what, needs_end=examine is not examine_interior_point)


def examine_distance(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Go from the anchor as far as `distance` says: all of the way is inside."""
    rooms = asked.rooms()
    with np.errstate(all="ignore"):
        headings = asked.actions - asked.anchor
    chosen = np.flatnonzero((rooms > 1e-6) & np.isfinite(headings).all(axis=-1))
    if not chosen.size:
        return []
    part, headings = asked.take(chosen), headings[chosen]
    start = np.broadcast_to(part.anchor, part.actions.shape)
    answer = ledger.call(
        lambda: part.constraint.distance(
            part.states.observation, start, headings, previous_action=part.states.previous_action
        ),
        cases=len(part),
    )
    problems = answered(ledger, part, answer, examine_distance)
    if problems is None:
        lengths = np.asarray(answer.value, np.float64)
        if np.isnan(lengths).any():
            return [Problem(int(chosen[np.isnan(lengths)][0]), NOT_A_NUMBER, "the distance is NaN")]
        with np.errstate(all="ignore"):
            ends = start + (0.999 * np.where(np.isfinite(lengths), lengths, 0.0))[:, None] * headings
        is_finite = np.isfinite(ends).all(axis=-1)
        ends = np.where(is_finite[:, None], ends, start)
        problems = outside(ledger, part, ends, judge(part.plain, ends, *part.states), "0.999 of the distance")
    return [p if p.row is None else p._replace(row=int(chosen[p.row])) for p in problems]


def _project(asked: Asked) -> Any:
    return lambda o, a, p: asked.constraint.project(o, a, previous_action=p)


def _given(asked: Asked) -> NDArray[Any]:
    return laid_out(asked.actions, asked.dtype, asked.layout)


def _arranged(asked: Asked, observation: Any, action: Any, previous: Any) -> tuple[Any, Any, Any]:
    """Return the question as the variant has it: a batch of two axes, one state for all actions, or one action."""
    given = (observation, action, previous)
    if asked.variant == "two axes" and len(asked) % 2 == 0:
        return tuple(None if part is None else part.reshape(2, -1, part.shape[-1]) for part in given)  # type: ignore[return-value]
    if asked.variant == "one state":
        seen, before = (None if part is None else part[0] for part in (observation, previous))
        return seen, action, before
    if asked.variant == "one action" and len(asked) == 1:
        return tuple(None if part is None else part[0] for part in given)  # type: ignore[return-value]
    return given


def examine_nonsense(ledger: Ledger, asked: Asked) -> list[Problem]:
    """Put a value that is not finite into each question, and look for an answer that hides it."""
    name, value = asked.variant.split(" ")
    parts = {
        "observation": asked.states.observation,
        "action": asked.actions,
        "previous_action": asked.states.previous_action,
    }
    if parts[name] is None:
        return []
    parts[name] = parts[name].copy()
    parts[name][:, -1] = float(value)
    reads = name == "action" or reads_entry(asked.plain, name, parts[name].shape[-1] - 1)
    for method in ("project", "contains", "violation"):
        function = getattr(asked.constraint, method)
        ask = asked.library.ask(lambda o, a, p, function=function: function(o, a, previous_action=p))
        answer = ledger.call(
            lambda ask=ask: ask(
                parts["observation"], parts["action"].astype(asked.dtype), parts["previous_action"]
            ),
            cases=len(asked),
            limit=COMPILATION,
        )
        if answer.error is not None:
            wrong = explained(answer.error)
            if wrong is not None:
                return [Problem(None, EXCEPTION, f"{method} with {value}: {wrong}")]
            continue
        got = np.asarray(answer.value)
        is_hidden = {
            "project": lambda got: np.isfinite(got).all(axis=-1),
            "contains": lambda got: got.astype(bool),
            "violation": lambda got: got <= 0,
        }[method](got)
        if reads and is_hidden.any():
            return [
                Problem(
                    int(np.argmax(is_hidden)), OUTSIDE, f"{method} answers {got[is_hidden][0]} to {value}"
                )
            ]
        if not asked.library.is_compiled:
            return [Problem(None, WRONG, f"{method} does not refuse {value}")]
    return []


def reads_entry(plain: Plain, source: str, entry: int) -> bool:
    """Tell whether a set depends on one entry of the observation or of the previous action."""
    for leaf in leaves(plain):
        for value in leaf.arguments.values():
            if isinstance(value, Reading) and value.source == source:
                places = value.entries
                if places is None or (
                    places == entry if isinstance(places, int) else entry in range(*places)
                ):
                    return not has_union(plain)
    return False
