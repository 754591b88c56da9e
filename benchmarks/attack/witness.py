"""An environment that notes what it really receives, and a journal that judges it.

The environment copies every action at the moment it arrives, together with the observation that it returned last, the
action that it really executed before and the set that it published: the checker needs nothing else, and believes nobody
else.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.attack.anchored_sets import Style, joined
from benchmarks.attack.building import build
from benchmarks.attack.checker import judge
from benchmarks.attack.effort import draw_mostly_quick
from benchmarks.attack.examination import claims_empty, constraint_of, shortened
from benchmarks.attack.ledger import (
    EXCEPTION,
    NOT_A_NUMBER,
    OUTSIDE,
    REFUSED,
    SLOW,
    Answer,
    Ledger,
    Question,
    explained,
)
from benchmarks.attack.plain_sets import Leaf, Plain, reads_previous_action
from benchmarks.attack.sets import Drawn, States

Vector = NDArray[np.float64]
MOST_SECONDS_OF_ROUND = 2.0
NOTHING = States(None, None)


class EnvironmentFailed(RuntimeError):  # noqa: N818
    """What a rude environment raises after it has moved."""


class Pace:
    """Ends a round whose set is slow, so that others get their turn; a round that is asked again takes its time."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin to count."""
        self._end = np.inf if ledger.is_repeating else time.perf_counter() + MOST_SECONDS_OF_ROUND

    def is_over(self) -> bool:
        """Tell whether the time is spent."""
        return time.perf_counter() > self._end


class Left(NamedTuple):
    """An action that left a door, and where."""

    plain: Plain
    observation: Vector | None
    previous_action: Vector | None
    asked: Any
    action: Vector
    detail: str


class Journal:
    """Collects what leaves a door and judges it at the end, all actions of one set together."""

    def __init__(self, ledger: Ledger, way: str) -> None:
        """Begin with nothing."""
        self.ledger, self.way = ledger, way
        self._entries: list[Left] = []

    def add(self, plain: Plain, here: States, asked: Any, action: Any, what: str) -> None:
        """Note an action in one state, (1, m) and (1, d)."""
        observation, previous = (None if source is None else np.array(source[0]) for source in here)
        exact = np.array(action, np.float64)
        self._entries.append(Left(plain, observation, previous, asked, exact, what))

    def judge(self) -> None:
        """Judge all that was noted."""
        groups: dict[int, list[Left]] = {}
        for entry in self._entries:
            groups.setdefault(id(entry.plain), []).append(entry)
        for entries in groups.values():
            states = States(
                None if entries[0].observation is None else np.stack([e.observation for e in entries]),
                None
                if entries[0].previous_action is None
                else np.stack([e.previous_action for e in entries]),
            )
            verdict = judge(entries[0].plain, np.stack([e.action for e in entries]), *states)
            for row in np.flatnonzero(verdict.outside):
                entry, excess = entries[row], verdict.excess[row]
                is_number = bool(np.isfinite(entry.action).all())
                kind = OUTSIDE if is_number else NOT_A_NUMBER
                detail = f"{entry.action[:6].tolist()} {entry.detail}, {excess:.3g} outside the set"
                self.note(kind, entry.plain, states.take([row]), entry.asked, detail)
        self._entries.clear()

    def note(self, kind: str, plain: Plain, here: States, asked: Any, detail: str) -> None:
        """Keep a finding of one step."""
        observation, previous = (None if source is None else source[0] for source in here)
        if self.ledger.found(kind, Question(plain, observation, asked, previous, self.way), detail):
            self.ledger.settle()

    def judge_error(
        self, answer: Answer, plain: Plain, here: States, asked: Any, *, is_answerable: Any = lambda: False
    ) -> None:
        """Judge the time and the error of a call: the library's own, with a remedy, and only where nothing is known."""
        if self.ledger.is_slow(answer):
            self.note(SLOW, plain, here, asked, f"{answer.seconds:.1f} s")
        if answer.error is None or isinstance(answer.error, EnvironmentFailed):
            return
        wrong = explained(answer.error)
        if wrong is not None:
            self.note(EXCEPTION, plain, here, asked, wrong)
        elif claims_empty(answer.error) and is_answerable():
            self.note(REFUSED, plain, here, asked, shortened(answer.error))
        else:
            self.ledger.refused()


class Published(NamedTuple):
    """A set that an environment publishes for the next action."""

    plain: Plain
    constraint: Any


@dataclasses.dataclass
class Record:
    """What environments received, shared by all that one door made."""

    steps: list[tuple[Vector, Vector | None, Published | None, NDArray[Any]]] = dataclasses.field(
        default_factory=list
    )
    """Observation, action really executed before in this episode, set published last, and action as it arrived."""


class Witness(gymnasium.Env[Any, Any]):
    """An environment that may be as rude as users' environments are.

    Args:
        observations: what it returns, one after the other.
        box: the action space.
        manners: "polite"; "writes" overwrites the action array that it is given; "raises" moves and then fails now and
            then.
        published: the set that goes with each observation, or None where none does.
        record: where to note what arrives.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        observations: Vector,
        box: gymnasium.spaces.Box,
        manners: str = "polite",
        published: list[Published | None] | None = None,
        record: Record | None = None,
    ) -> None:
        """Begin nowhere."""
        self.observations, self.action_space, self.manners = observations, box, manners
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, observations.shape[1:], np.float64)
        self.published = published or [None] * len(observations)
        self.record = Record() if record is None else record
        self.index, self.count = -1, 0
        self.before: Vector | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self.before = None
        return self._next()

    def step(self, action: Any) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        executed = np.array(action)
        here = self.index
        self.record.steps.append((self.observations[here], self.before, self.published[here], executed))
        self.before = executed.astype(np.float64)
        self.count += 1
        if self.manners == "writes" and isinstance(action, np.ndarray) and action.flags.writeable:
            action[...] = 1000.0 if action.dtype.kind == "f" else 100
        if self.manners == "raises" and self.count % 7 == 3:
            raise EnvironmentFailed("the simulation failed after the action was executed.")
        observation, info = self._next()
        return observation, 0.0, False, False, info

    def _next(self) -> tuple[Vector, dict[str, Any]]:
        self.index = (self.index + 1) % len(self.observations)
        published = self.published[self.index]
        return self.observations[self.index].copy(), {} if published is None else {
            "constraint": published.constraint
        }


def action_box(rng: np.random.Generator, drawn: Drawn, dtype: Any) -> gymnasium.spaces.Box:
    """Return an action space: around the set, or such that it cuts the set."""
    width = drawn.size * 10.0 ** rng.uniform(-1.0, 2.0)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        low, high = np.full(drawn.dimension, limits.min), np.full(drawn.dimension, limits.max)
        return gymnasium.spaces.Box(low.astype(kind), high.astype(kind), dtype=kind.type)
    limit = float(np.finfo(kind).max) / 4
    low, high = (np.clip(drawn.anchor + sign * width, -limit, limit).astype(kind) for sign in (-1.0, 1.0))
    return gymnasium.spaces.Box(low, high, dtype=kind.type)


def with_box(plain: Plain, box: gymnasium.spaces.Box) -> Plain:
    """Return the set together with the box of an action space: nothing else may be executed."""
    limits = Leaf("Box", {"low": box.low.astype(np.float64), "high": box.high.astype(np.float64)})
    return joined("&", plain, limits)


def publications(
    rng: np.random.Generator, drawn: Drawn, count: int, *, is_always: bool
) -> list[Published | None]:
    """Draw sets to publish: one with every observation, or with some of them, of one kind with other numbers."""
    level = float(np.abs(drawn.anchor).sum()) + drawn.size
    kind = str(rng.choice(["Ball", "WeightedL1"]))
    sets: list[Published | None] = []
    for _ in range(count):
        share = float(rng.uniform(0.2, 2.0))
        if kind == "Ball":
            leaf = Leaf("Ball", {"radius_squared": float(min((share * level) ** 2, 1e300))})
        else:
            leaf = Leaf("WeightedL1", {"weights": np.ones(drawn.dimension), "bound": share * level})
        is_there = is_always or rng.random() < 0.4
        sets.append(Published(leaf, build(leaf)) if is_there else None)
    return sets


def judge_received(
    journal: Journal,
    drawn: Drawn,
    base: Plain,
    record: Record,
    first: Vector,
    box: Plain | None,
    *,
    replaces: bool,
) -> None:
    """Judge every action that environments received; a published set replaces the declared one, or is added to it."""
    plains: dict[int, Plain] = {}

    def plain_of(published: Published | None) -> Plain:
        if id(published) not in plains:
            parts = [] if published is None else [published.plain]
            parts += [base] if published is None or not replaces else []
            parts += [] if box is None else [box]
            plains[id(published)] = joined("&", *parts)
        return plains[id(published)]

    for observation, before, published, action in record.steps:
        plain = plain_of(published)
        here = States(
            observation[None] if drawn.observation_size else None,
            (first if before is None else before)[None] if reads_previous_action(plain) else None,
        )
        journal.add(plain, here, action, action, "was executed")
    journal.judge()
    record.steps.clear()


def drawn_set(rng: np.random.Generator, ledger: Ledger, style: Style) -> tuple[Drawn, Any] | None:
    """Draw a set that the library accepts, mostly a quick one: a step asks about one action."""
    drawn = draw_mostly_quick(rng, style, 0.85)
    constraint = constraint_of(ledger, rng, drawn)
    return None if constraint is None else (drawn, constraint)


def observations_of(rng: np.random.Generator, drawn: Drawn, count: int) -> tuple[Vector, Vector | None]:
    """Return observations for an environment, at least one entry wide, and previous actions."""
    wildness = float(rng.choice([0.0, 0.1, 0.5], p=[0.6, 0.2, 0.2]))
    states = drawn.states(rng, count, wildness)
    observation = states.observation
    return (rng.standard_normal((count, 1)) if observation is None else observation), states.previous_action
