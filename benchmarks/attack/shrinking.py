"""From a question that shows a defect to a smaller one that still does: fewer members, entries and digits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading, changed

MOST_SECONDS = 6.0
MOST_ATTEMPTS = 250


class Small(NamedTuple):
    """A question about a few actions, each in its state; vectors of the batch one after the other."""

    plain: Plain
    observation: NDArray[np.float64] | None
    action: NDArray[np.float64] | None
    previous_action: NDArray[np.float64] | None
    dimension: int
    anchor: NDArray[np.float64]
    count: int


def shrink(question: Small, fails: Callable[[Small], bool]) -> Small:
    """Try simpler questions, again and again, and keep those that still fail."""
    began, attempts, is_moving = time.perf_counter(), 0, True
    while is_moving:
        is_moving = False
        for simpler in _simpler(question):
            attempts += 1
            if attempts > MOST_ATTEMPTS or time.perf_counter() - began > MOST_SECONDS:
                return question
            try:
                is_failing = fails(simpler)
            except Exception:
                is_failing = False
            if is_failing:
                question, is_moving = simpler, True
                break
    return question


def _simpler(question: Small) -> Iterator[Small]:
    for plain in _with_fewer_members(question.plain):
        yield question._replace(plain=plain)
    if question.count == 1:
        fixed = changed(question.plain, lambda leaf: _fixed(leaf, question))
        if repr(fixed) != repr(question.plain):
            yield question._replace(plain=fixed, observation=_if_read(fixed, question.observation))
    if question.dimension > 1 and not _reads_observation(question.plain):
        for entry in range(min(question.dimension, 12)):
            yield _without_entry(question, entry)
    for digits in (0, 1, 2, 4):
        for name in ("action", "observation", "previous_action"):
            value = getattr(question, name)
            if value is not None:
                rounded = _rounded(value, digits)
                if not np.array_equal(rounded, value):
                    yield question._replace(**{name: rounded})
        rounded_plain = changed(question.plain, lambda leaf, digits=digits: _rounded_leaf(leaf, digits))
        if repr(rounded_plain) != repr(question.plain):
            yield question._replace(plain=rounded_plain)


def _with_fewer_members(plain: Plain) -> Iterator[Plain]:
    if isinstance(plain, Leaf):
        for name in ("low", "high"):
            if plain.kind == "SumBand" and plain.arguments.get(name) is not None:
                yield Leaf(plain.kind, {**plain.arguments, name: None})
        return
    for index, part in enumerate(plain.parts):
        rest = plain.parts[:index] + plain.parts[index + 1 :]
        yield rest[0] if len(rest) == 1 else Joined(plain.sign, rest)
        for smaller in _with_fewer_members(part):
            yield Joined(plain.sign, (*plain.parts[:index], smaller, *plain.parts[index + 1 :]))


def _fixed(leaf: Leaf, question: Small) -> Leaf:
    """Return a set with the numbers that it read in this state as constants."""

    def value(given: Any) -> Any:
        if not isinstance(given, Reading) or given.source != "observation" or question.observation is None:
            return given
        return (given.taken(question.observation[None]) * given.scale + given.offset)[0]

    return Leaf(leaf.kind, {name: value(given) for name, given in leaf.arguments.items()})


def _reads_observation(plain: Plain) -> bool:
    parts = plain.parts if isinstance(plain, Joined) else ()
    if isinstance(plain, Leaf):
        return any(isinstance(v, Reading) and v.source == "observation" for v in plain.arguments.values())
    return any(_reads_observation(part) for part in parts)


def _if_read(plain: Plain, observation: Any) -> Any:
    return observation if _reads_observation(plain) else None


def _without_entry(question: Small, entry: int) -> Small:
    dimension = question.dimension

    def less(name: str, value: Any) -> Any:
        if name == "dimension":
            return dimension - 1
        if value is None or isinstance(value, Reading | str):
            return value
        array = np.asarray(value, np.float64)
        if name == "matrix":
            return np.delete(np.delete(array, entry, 0), entry, 1)
        if name == "A":
            return np.delete(array, entry, 1)
        return np.delete(array, entry) if array.shape == (dimension,) and name != "b" else value

    plain = changed(
        question.plain,
        lambda leaf: Leaf(leaf.kind, {name: less(name, value) for name, value in leaf.arguments.items()}),
    )
    action, previous = (
        None if value is None else np.delete(value.reshape(-1, dimension), entry, axis=1).ravel()
        for value in (question.action, question.previous_action)
    )
    anchor = np.delete(question.anchor, entry)
    return Small(plain, question.observation, action, previous, dimension - 1, anchor, question.count)


def _rounded_leaf(leaf: Leaf, digits: int) -> Leaf:
    def value(given: Any) -> Any:
        if given is None or isinstance(given, Reading | str | int):
            return given
        return _rounded(np.asarray(given, np.float64), digits)

    return Leaf(leaf.kind, {name: value(given) for name, given in leaf.arguments.items()})


def _rounded(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    """Round to some significant digits; to none means the next power of ten, and tiny entries beside others to zero."""
    array = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(array), initial=0.0)
        kept = np.where(np.abs(array) < 1e-3 * largest, 0.0, array) if digits == 0 else array
        power = np.floor(np.log10(np.where(kept == 0, 1.0, np.abs(kept))))
        unit = 10.0 ** (power - max(digits - 1, 0))
        rounded = np.round(kept / unit) * unit
        text = [float(f"{value:.{max(digits, 1) - 1}e}") for value in np.ravel(rounded)]
        rounded = np.reshape(text, array.shape)
    return np.where(np.isfinite(rounded), rounded, array)
