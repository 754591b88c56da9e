"""How a door on sets is examined: a batch of questions is asked and judged, and what is found is made small."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from benchmarks.attack import ledger as kinds_of_findings
from benchmarks.attack.actions import representable
from benchmarks.attack.building import build
from benchmarks.attack.checker import Verdict, exact_excess, judge
from benchmarks.attack.ledger import Answer, Ledger, Question, explained
from benchmarks.attack.libraries import NUMPY, Library
from benchmarks.attack.plain_sets import Plain, Reading, has_union, is_bounded, leaves
from benchmarks.attack.sets import Drawn, States
from benchmarks.attack.shrinking import Small, shrink

OUTSIDE, NOT_A_NUMBER, EXCEPTION = (
    kinds_of_findings.OUTSIDE,
    kinds_of_findings.NOT_A_NUMBER,
    kinds_of_findings.EXCEPTION,
)
SLOW, REFUSED, WRONG = kinds_of_findings.SLOW, kinds_of_findings.REFUSED, kinds_of_findings.WRONG

ROOM, ROOM_IN_SINGLE = 1e-4, 1e-3
"""How far inside an anchor must be, relative to the terms of every row, for a library without an answer to be wrong."""
MOST_ALONE = 30
"""Questions of a refused batch that are asked one by one."""
COMPILATION = 90.0
"""Seconds for the first call of a compiled function."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """A batch of questions about one set."""

    plain: Plain
    constraint: Any
    states: States
    actions: NDArray[np.float64]
    """(n, d), as float64 numbers that the type below holds."""
    anchor: NDArray[np.float64]
    is_moderate: bool
    dtype: Any = np.float64
    library: Library = NUMPY
    layout: str = "plain"
    variant: str = ""
    """What else a door has to know."""

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: Any) -> Asked:
        """Return some of the questions."""
        return dataclasses.replace(self, states=self.states.take(rows), actions=self.actions[rows])

    @property
    def way(self) -> str:
        """Say how this is asked."""
        parts = [
            self.library.name,
            np.dtype(self.dtype).name,
            self.layout,
            f"batch of {len(self)}",
            self.variant,
        ]
        return ", ".join(part for part in parts if part and part != "plain")

    def rooms(self) -> NDArray[np.float64]:
        """Return how far inside the anchor is in every state, as a number of the type of the answer."""
        kind = np.float32 if self.library.is_single or self.dtype == np.float32 else np.float64
        with np.errstate(over="ignore"):
            point = self.anchor.astype(kind).astype(np.float64)
        return judge(self.plain, np.broadcast_to(point, (len(self), len(point))), *self.states).room

    def have_answer(self) -> NDArray[np.bool_]:
        """Tell in which states an action is known, so clearly that the library must find one."""
        if not self.is_moderate:
            return np.zeros(len(self), bool)
        is_single = self.library.is_single or self.dtype == np.float32
        is_read = readings_are_finite(self.plain, self.states, len(self), is_single=self.library.is_single)
        return is_read & (self.rooms() >= (ROOM_IN_SINGLE if is_single else ROOM))


LARGEST_FACTOR = 1e298
"""In float64; a moderate set has actions of up to a billion."""


def readings_are_finite(plain: Plain, states: States, count: int, *, is_single: bool) -> NDArray[np.bool_]:
    """Tell in which states no argument overflows when it is read, nor its product with an action of moderate size.

    Where one does, no action is feasible by contract.
    """
    kind, largest = (np.float32, np.inf) if is_single else (np.float64, LARGEST_FACTOR)
    finite = np.ones(count, bool)
    with np.errstate(over="ignore"):
        for leaf in leaves(plain):
            for value in leaf.arguments.values():
                if isinstance(value, Reading):
                    source = states.observation if value.source == "observation" else states.previous_action
                    read = value.taken(source).astype(kind) * kind(value.scale) + kind(value.offset)
                    rows = read.reshape(count, -1)
                    finite &= (np.isfinite(rows) & (np.abs(rows) <= largest)).all(axis=-1)
    return finite


class Problem(NamedTuple):
    """A finding about one question of a batch; `row` is None where it takes the whole batch."""

    row: int | None
    kind: str
    detail: str


Examine = Callable[[Ledger, Asked], list[Problem]]
"""Asks a batch and returns what is wrong."""


def constraint_of(ledger: Ledger, rng: np.random.Generator, drawn: Drawn) -> Any:
    """Declare a set as a user would, sometimes by way of JSON; None where the library refuses it."""
    is_written = rng.random() < 0.2

    def declared() -> Any:
        built = build(drawn.plain)
        if not is_written:
            return built
        return ib.Constraint.from_json(json.loads(json.dumps(built.to_json())), allow_code=True)

    answer = ledger.call(declared, cases=0, limit=kinds_of_findings.MOST_SECONDS)
    states = drawn.states(rng, 1)
    asked = Asked(drawn.plain, None, states, drawn.anchor[None], drawn.anchor, drawn.is_moderate)
    if ledger.is_slow(answer):
        report(ledger, asked, Problem(0, SLOW, f"{answer.seconds:.1f} s to declare the set"))
    if answer.error is None:
        return answer.value
    wrong = explained(answer.error)
    if wrong is not None:
        report(ledger, asked, Problem(0, EXCEPTION, f"declaring the set: {wrong}"))
    elif bool(asked.have_answer()[0]) and not has_union(drawn.plain):
        report(ledger, asked, Problem(0, REFUSED, f"declaring the set: {shortened(answer.error)}"))
    else:
        ledger.refused()
    return None


def judged_points(
    ledger: Ledger, asked: Asked, points: Any, what: str, *, needs_end: bool = False
) -> list[Problem]:
    """Judge actions that came back, one for each question: they are inside, and numbers.

    With `needs_end` there need not be an answer for a set without an end in some direction.
    """
    answer = np.asarray(points)
    if answer.shape != asked.actions.shape:
        return [Problem(None, WRONG, f"{what} has shape {answer.shape} for actions of {asked.actions.shape}")]
    exact = answer.astype(np.float64)
    verdict = judge(asked.plain, exact, *asked.states)
    problems = outside(ledger, asked, exact, verdict, what)
    missing = np.flatnonzero(~np.isfinite(exact).all(axis=-1))
    if missing.size:
        # A compiled function may say by NaN that it found nothing; one that can raise may not.
        is_wrong = np.ones(len(missing), bool)
        if asked.library.is_compiled:
            is_wrong = asked.take(missing).have_answer() & (is_bounded(asked.plain) or not needs_end)
        wrong = missing[is_wrong]
        problems += [Problem(int(row), NOT_A_NUMBER, f"{what} is {exact[row][:6]}") for row in wrong]
    return problems


def outside(
    ledger: Ledger, asked: Asked, points: NDArray[np.float64], verdict: Verdict, what: str
) -> list[Problem]:
    """Return the finite points that are outside, and count those that only exact arithmetic finds outside."""
    is_finite = np.isfinite(points).all(axis=-1)
    problems = [
        Problem(
            int(row),
            OUTSIDE,
            f"{what} {points[row][:6].tolist()} exceeds the set by {verdict.excess[row]:.3g}, and float64 resolves "
            f"{verdict.resolution[row]:.2g}",
        )
        for row in np.flatnonzero(verdict.outside & is_finite)
    ]
    close = np.flatnonzero(~verdict.outside & ~verdict.inside & is_finite)
    for row in close[:10]:
        if exact_excess(asked.plain, points[row], *alone(asked.states, row)) > 0:
            ledger.close[ledger.door] += max(1, len(close) // len(close[:10]))
    return problems


def answered(ledger: Ledger, asked: Asked, answer: Answer, examine: Examine) -> list[Problem] | None:
    """Judge an error or the time of a call; None where there is an answer to be judged."""
    problems = []
    if ledger.is_slow(answer):
        problems.append(Problem(None, SLOW, f"{answer.seconds:.1f} s"))
    if answer.error is None:
        return problems or None
    wrong = explained(answer.error)
    if wrong is not None:
        return [*problems, Problem(None if len(asked) > 1 else 0, EXCEPTION, wrong)]
    if len(asked) == 1:
        if bool(asked.have_answer()[0]) and claims_empty(answer.error):
            return [*problems, Problem(0, REFUSED, shortened(answer.error))]
        ledger.refused()
        return problems
    # One state without an action refuses the whole batch; the others are then asked without it.
    for row in range(min(len(asked), MOST_ALONE if claims_empty(answer.error) else 3)):
        found = examine(ledger, asked.take([row]))
        problems += [problem._replace(row=row) for problem in found]
        if found:
            break
    return problems


def claims_empty(error: Exception) -> bool:
    """Tell whether an error says that there is no action or that the input is wrong, and not that it is unbounded.

    A filter also passes on that a set has no projection, such as an ellipsoid that is not convex in a wild state. An
    oracle says how many samples it tried, and that its set may be small.
    """
    if " samples satisfies " in str(error):
        return False
    cause = error.__cause__
    if isinstance(cause, ib.errors.ConstraintError) and not isinstance(cause, ib.errors.EmptySetError):
        return False
    return isinstance(
        error, ib.errors.EmptySetError | ib.errors.InvalidInputError | ib.errors.InfeasibleActionError
    )


def shortened(error: Exception) -> str:
    """Return an error's kind and the beginning of its message."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def alone(states: States, row: int) -> States:
    """Return one state, without an axis of the batch."""
    return States(*(None if source is None else source[row] for source in states))


def examined(ledger: Ledger, asked: Asked, examine: Examine) -> None:
    """Ask a batch, and keep what is found with the smallest question that shows it."""
    problems = examine(ledger, asked)
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.kind, problem)
    for kind, problem in first.items():
        count = sum(1 for one in problems if one.kind == kind)
        report(ledger, asked, problem, count, examine)


def report(
    ledger: Ledger, asked: Asked, problem: Problem, count: int = 1, examine: Examine | None = None
) -> None:
    """Keep a finding; the first of its kind is shrunk and shown."""
    whole = asked.take(slice(0, 4)) if problem.row is None else asked.take([problem.row])
    observation, previous = whole.states
    if not ledger.found(
        problem.kind,
        Question(asked.plain, observation, whole.actions, previous, asked.way),
        problem.detail,
        count,
    ):
        return
    if examine is not None and problem.kind != SLOW:
        _shrunk(ledger, asked, problem, examine)
    ledger.settle()


def _shrunk(ledger: Ledger, asked: Asked, problem: Problem, examine: Examine) -> None:
    """Put a smaller question in the place of the last finding, where one shows the same."""
    unseen = Ledger(ledger.seed, watches=False)
    rows: Any = [problem.row] if problem.row is not None else None
    if rows is None:
        # What takes a batch may take a small one.
        for size in (1, 2, 3, 5):
            part = asked.take(slice(0, size))
            if any(found.kind == problem.kind for found in examine(unseen, part)):
                rows = list(range(size))
                break
        else:
            return
    start = asked.take(rows)

    def again(small: Small) -> list[Problem]:
        count = len(rows)
        states = States(
            *(None if s is None else s.reshape(count, -1) for s in (small.observation, small.previous_action))
        )
        part = dataclasses.replace(
            start,
            plain=small.plain,
            constraint=build(small.plain),
            states=states,
            actions=representable(np.reshape(small.action, (count, -1)), start.dtype),
            anchor=small.anchor,
            layout="plain",
        )
        return [found for found in examine(unseen, part) if found.kind == problem.kind]

    small = Small(asked.plain, *_flat(start), len(asked.anchor), asked.anchor, len(rows))
    with np.errstate(all="ignore"):
        try:
            if not again(small):
                return
        except Exception:
            return
        small = shrink(small, lambda one: bool(again(one)))
        detail = again(small)[0].detail
    observation, action, previous = (
        None if part is None else (part if len(rows) == 1 else part.reshape(len(rows), -1))
        for part in (small.observation, small.action, small.previous_action)
    )
    way = dataclasses.replace(start, layout="plain").way
    ledger.replace_last(Question(small.plain, observation, action, previous, way), detail)


def _flat(asked: Asked) -> tuple[Any, Any, Any]:
    observation, previous = asked.states
    return tuple(None if part is None else np.ravel(part) for part in (observation, asked.actions, previous))  # type: ignore[return-value]
