"""Doors that act step by step: the filter, the guard, the wrappers, the space and the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from benchmarks.attack.actions import draw_actions
from benchmarks.attack.anchored_sets import Style
from benchmarks.attack.examination import ROOM, ROOM_IN_SINGLE, readings_are_finite
from benchmarks.attack.ledger import WRONG, Ledger
from benchmarks.attack.plain_sets import Joined, Plain, Reading, leaves, reads_previous_action
from benchmarks.attack.sets import Drawn, States
from benchmarks.attack.witness import (
    NOTHING,
    EnvironmentFailed,
    Journal,
    Pace,
    Vector,
    Witness,
    action_box,
    drawn_set,
    judge_received,
    observations_of,
    publications,
    with_box,
)

STEPS = 180
ROWS = 6
"""Of a batch of torch actions."""
EPISODE = 15
STYLE = Style(largest_dimension=33, exponents=(2.0, 6.0, 100.0), most_members=3)


def guard(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `ib.Guard` in front of polite and rude environments, with float and integer action spaces."""
    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    dtypes = [np.float32, np.float64, np.float16, np.int8, np.uint8]
    dtype = dtypes[int(rng.choice(5, p=[0.4, 0.4, 0.08, 0.06, 0.06]))]
    manners = str(rng.choice(["polite", "writes", "raises"], p=[0.5, 0.3, 0.2]))
    observations, previous = observations_of(rng, drawn, STEPS + 8)
    box = action_box(rng, drawn, dtype)
    env, on_violation = Witness(observations, box, manners), str(rng.choice(["refuse", "correct"]))
    first = first_action(drawn, previous, box)
    journal = Journal(ledger, f"{on_violation}, {np.dtype(dtype).name} space, {manners} environment")
    made = ledger.call(
        lambda: ib.Guard(env, constraint, on_violation=on_violation, first_previous_action=first.copy()),
        cases=0,
    )
    journal.judge_error(made, drawn.plain, NOTHING, None)
    if made.error is not None:
        return

    def check(asked: NDArray[Any], before: int) -> None:
        """A guard that refuses executes what it was asked for, or nothing."""
        if len(env.record.steps) == before or on_violation != "refuse":
            return
        executed = env.record.steps[-1][3].astype(np.float64)
        with np.errstate(all="ignore"):
            wanted = asked.astype(np.float64)
            rounded = wanted.astype(dtype).astype(np.float64) if np.dtype(dtype).kind == "f" else wanted
        if not np.array_equal(executed, rounded):
            detail = f"{asked.tolist()[:6]} was asked and {executed[:6].tolist()} executed"
            journal.note(WRONG, drawn.plain, NOTHING, asked, detail)

    walk(rng, journal, drawn, drawn.plain, made.value, env, first, check)
    judge_received(journal, drawn, drawn.plain, env.record, first, None, replaces=True)


def wrappers(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack the wrappers for agents of other libraries; the action space's box is part of what must hold."""
    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    dtype = [np.float32, np.float64, np.float16][int(rng.choice(3, p=[0.5, 0.42, 0.08]))]
    manners = str(rng.choice(["polite", "writes", "raises"], p=[0.6, 0.25, 0.15]))
    observations, previous = observations_of(rng, drawn, STEPS + 8)
    box = action_box(rng, drawn, dtype)
    published = publications(rng, drawn, STEPS + 8, is_always=False) if rng.random() < 0.2 else None
    env = Witness(observations, box, manners, published)
    first = first_action(drawn, previous, box)
    name = str(rng.choice(["ProjectAction", "AcceptReject", "AugmentedMDP"]))
    also = "" if published is None else ", sets published at times"
    journal = Journal(ledger, f"{name}, {np.dtype(dtype).name} space, {manners} environment{also}")
    extra: dict[str, Any] = {"rejections": 1} if name == "AugmentedMDP" else {}
    if name == "AcceptReject" and rng.random() < 0.7:
        extra["policy"] = lambda observation: (
            drawn.anchor + drawn.size * 10.0 ** rng.uniform(-3.0, 2.0) * rng.standard_normal(drawn.dimension)
        )
    whole = with_box(drawn.plain, box)
    made = ledger.call(
        lambda: getattr(ib, name)(env, constraint, first_previous_action=first.copy(), **extra), cases=0
    )
    journal.judge_error(made, whole, NOTHING, None)
    if made.error is None:
        walk(rng, journal, drawn, whole, made.value, env, first)
        limits = whole.parts[-1] if isinstance(whole, Joined) else whole
        judge_received(journal, drawn, drawn.plain, env.record, first, limits, replaces=True)


def task(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack the environments that an `ib.Task` makes, with sets that the environment publishes as well."""
    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    dtype = np.float32 if rng.random() < 0.6 else np.float64
    observations, previous = observations_of(rng, drawn, STEPS + 8)
    box = action_box(rng, drawn, dtype)
    publishing = str(rng.choice(["nothing", "always", "at times"], p=[0.5, 0.3, 0.2]))
    published = (
        None
        if publishing == "nothing"
        else publications(rng, drawn, STEPS + 8, is_always=publishing == "always")
    )
    manners = str(rng.choice(["polite", "writes"], p=[0.7, 0.3]))
    shared = Witness(observations, box, manners, published).record
    first = first_action(drawn, previous, box)
    journal = Journal(ledger, f"{np.dtype(dtype).name} space, {manners} environment, publishes {publishing}")
    whole = with_box(drawn.plain, box)
    last: list[Witness] = []

    def make() -> Witness:
        last.append(Witness(observations, box, manners, published, shared))
        return last[-1]

    made = ledger.call(
        lambda: ib.Task(
            make, constraint, horizon=EPISODE, first_previous_action=first.astype(np.float32), name="attacked"
        ).make_environment(on_violation=str(rng.choice(["refuse", "correct"]))),
        cases=0,
    )
    journal.judge_error(made, whole, NOTHING, None)
    if made.error is None:
        walk(rng, journal, drawn, whole, made.value, last[-1], first)
        start = first.astype(np.float32).astype(np.float64)
        limits = whole.parts[-1] if isinstance(whole, Joined) else whole
        judge_received(journal, drawn, drawn.plain, shared, start, limits, replaces=False)


def first_action(drawn: Drawn, previous: Vector | None, box: Any) -> Vector:
    """Return what counts as executed before an episode, inside the action space."""
    start = np.zeros(drawn.dimension) if previous is None else previous[0]
    return np.clip(start, box.low.astype(np.float64), box.high.astype(np.float64))


def walk(
    rng: np.random.Generator,
    journal: Journal,
    drawn: Drawn,
    plain: Plain,
    door: Any,
    env: Witness,
    first: Vector,
    check: Callable[[NDArray[Any], int], None] | None = None,
) -> None:
    """Take steps with actions of all sizes, in the space and beyond it; the environment notes what it receives."""
    ledger, pace = journal.ledger, Pace(journal.ledger)
    states = States(env.observations[:STEPS] if drawn.observation_size else None, None)
    if reads_previous_action(drawn.plain):
        states = states._replace(previous_action=np.broadcast_to(first, (STEPS, drawn.dimension)))
    actions = draw_actions(rng, drawn, states, STEPS, np.float64)
    for index, action in enumerate(actions):
        if pace.is_over():
            break
        if index % EPISODE == 0:
            started = ledger.call(lambda: door.reset(seed=0), cases=0)
            journal.judge_error(started, plain, NOTHING, None)
            if started.error is not None:
                return
        asked: NDArray[Any] = action if rng.random() < 0.7 else action.astype(np.float32)
        if rng.random() < 0.03:
            asked = asked.copy()
            asked[rng.integers(len(asked))] = rng.choice([np.nan, np.inf, -np.inf])
        elif rng.random() < 0.3:
            asked = drawn.anchor.copy()
        if rng.random() < 0.2:
            sampled = ledger.call(lambda: door.action_space.sample(), cases=0)
            asked = sampled.value if sampled.error is None else asked
        kept, before = np.array(asked), len(env.record.steps)
        here = States(
            env.observations[env.index][None] if drawn.observation_size else None,
            None if env.before is None else env.before[None],
        )
        answer = ledger.call(lambda asked=asked: door.step(asked))
        journal.judge_error(answer, plain, here, kept)
        if check is not None:
            check(kept, before)
        if not np.array_equal(np.asarray(asked), kept, equal_nan=True):
            journal.note(WRONG, plain, here, kept, "the caller's action was written into")
        if isinstance(answer.error, EnvironmentFailed) and rng.random() < 0.3:
            break


def space(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `ib.ConstrainedBox`: what it samples it contains, and both are inside."""
    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    dtype = [np.float32, np.float64, np.float16][int(rng.choice(3, p=[0.5, 0.35, 0.15]))]
    box = action_box(rng, drawn, dtype)
    whole, journal = with_box(drawn.plain, box), Journal(ledger, f"{np.dtype(dtype).name} space")
    made = ledger.call(
        lambda: ib.ConstrainedBox(constraint, box.low, box.high, dtype=dtype, seed=int(rng.integers(1000))),
        cases=0,
    )
    journal.judge_error(made, whole, NOTHING, None)
    if made.error is not None:
        return
    pace = Pace(ledger)
    for _ in range(8):
        if pace.is_over():
            break
        here = drawn.states(rng, 1, float(rng.choice([0.0, 0.3])))
        seen = np.zeros(1) if here.observation is None else here.observation[0]
        made.value.move_to(seen, None if here.previous_action is None else here.previous_action[0])
        for _ in range(3):
            answer = ledger.call(lambda: made.value.sample())
            journal.judge_error(answer, whole, here, None)
            if answer.error is not None:
                break
            drawn_action = np.asarray(answer.value)
            journal.add(whole, here, None, drawn_action, "is a sample")
            asked = ledger.call(lambda action=drawn_action: made.value.contains(action), cases=0)
            if asked.error is None and not asked.value:
                journal.note(WRONG, whole, here, drawn_action, "sample gives what contains refuses")
        many = States(*(None if source is None else np.repeat(source, 8, 0) for source in here))
        for action in draw_actions(rng, drawn, many, 8):
            typed = action.astype(dtype)
            asked = ledger.call(lambda action=typed: made.value.contains(action))
            journal.judge_error(asked, whole, here, typed)
            if asked.error is None and bool(asked.value):
                journal.add(whole, here, typed, typed, "is contained")
    journal.judge()


def filtered(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `ib.SafetyFilter`: whatever is proposed and observed, what leaves is inside, or an error says why not."""
    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    plain, reads = drawn.plain, reads_previous_action(drawn.plain)
    correction = str(rng.choice(["quickest", "ray", "projection"]))
    dtype = [None, np.float32, np.float64][int(rng.integers(3))]
    observations, previous = observations_of(rng, drawn, STEPS)
    fallback = str(rng.choice(["refuse", "hold", "interior_point"]))
    proposals: list[Any] = []
    policy = (lambda observation: proposals[-1]) if rng.random() < 0.3 else None
    journal = Journal(
        ledger, f"{correction}, {'as proposed' if dtype is None else np.dtype(dtype).name}, {fallback}"
    )
    made = ledger.call(
        lambda: ib.SafetyFilter(
            constraint,
            policy,
            correction=correction,
            dtype=dtype,
            on_invalid_observation=fallback,
            on_invalid_action=fallback,
            previous_action=None if previous is None else previous[0],
            proposals=2,
        ),
        cases=0,
    )
    journal.judge_error(made, plain, NOTHING, None)
    if made.error is not None:
        return
    before = None if previous is None else previous[0]
    seen: Vector | None = None
    executed: Vector | None = None
    states = States(observations if drawn.observation_size else None, previous)
    actions, pace = draw_actions(rng, drawn, states, STEPS, np.float64), Pace(ledger)
    for index, action in enumerate(actions):
        if pace.is_over():
            break
        asked: NDArray[Any] = action.astype(np.float32) if rng.random() < 0.4 else action
        observation, spoilt = observations[index].copy(), rng.random()
        if spoilt < 0.05:
            asked = asked.copy()
            asked[rng.integers(len(asked))] = rng.choice([np.nan, np.inf])
        elif spoilt < 0.1:
            observation[rng.integers(len(observation))] = np.nan
        is_sound = spoilt >= 0.1 and bool(np.isfinite(asked.astype(dtype or asked.dtype)).all())
        if np.isfinite(observation).all():
            seen = observation.copy()
        if previous is not None and rng.random() < 0.5:
            before = previous[index]
        given = None if before is None else before.copy()
        proposals.append(asked)
        answer = ledger.call(
            lambda o=observation, a=asked, b=given: (
                made.value.correct(o, a, previous_action=b)
                if policy is None
                else made.value.act(o, previous_action=b)
            )
        )
        # What a fallback answers to is the last good observation, and what was executed since where that is observed.
        known = before if before is not None else executed
        is_recalled = seen is not None and known is not None and not np.isfinite(observation).all()
        there = recalled(plain, seen, known) if is_recalled else seen
        here = States(
            None if there is None or not drawn.observation_size else there[None],
            before[None] if reads and before is not None else None,
        )
        if (drawn.observation_size and seen is None) or (reads and before is None):
            continue
        kind = np.float64 if dtype is None and asked.dtype == np.float64 else dtype or np.float32

        def is_answerable(here: States = here, kind: Any = kind, is_sound: bool = is_sound) -> bool:
            enough = ROOM if kind == np.float64 else ROOM_IN_SINGLE
            if not (
                is_sound and drawn.is_moderate and readings_are_finite(plain, here, 1, is_single=False)[0]
            ):
                return False
            return bool(drawn.room(here, 1, kind)[0] > enough)

        journal.judge_error(answer, plain, here, asked, is_answerable=is_answerable)
        if answer.error is not None:
            continue
        left = np.asarray(answer.value)
        journal.add(plain, here, asked, left, "leaves the filter")
        executed = left.astype(np.float64)
        before = executed if reads else before
        if rng.random() < 0.2 and left.flags.writeable:
            left[...] = 1e6  # the caller may write into what it was given
    journal.judge()


def filtered_rows(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `ib.TorchFilter`: every row leaves inside its set, whatever is broken and whenever rows begin again."""
    import torch

    found = drawn_set(rng, ledger, STYLE)
    if found is None:
        return
    drawn, constraint = found
    plain, reads = drawn.plain, reads_previous_action(drawn.plain)
    dtype = torch.float32 if rng.random() < 0.6 else torch.float64
    fallback = str(rng.choice(["refuse", "hold", "interior_point"]))
    observations, previous = observations_of(rng, drawn, STEPS)
    first = None if previous is None else previous[0]
    journal = Journal(ledger, f"{dtype}, {fallback}")
    made = ledger.call(
        lambda: ib.TorchFilter(
            constraint,
            previous_action=None if first is None else first.copy(),
            on_invalid_observation=fallback,
            on_invalid_action=fallback,
        ),
        cases=0,
    )
    journal.judge_error(made, plain, NOTHING, None)
    if made.error is not None:
        return
    states = States(observations if drawn.observation_size else None, previous)
    actions, pace = draw_actions(rng, drawn, states, STEPS, np.float32), Pace(ledger)
    seen: list[Vector | None] = [None] * ROWS
    executed: list[Vector | None] = [None] * ROWS
    for begin in range(0, STEPS - ROWS + 1, ROWS):
        if pace.is_over():
            break
        shown = observations[begin : begin + ROWS].copy()
        asked = actions[begin : begin + ROWS].copy()
        shown[rng.random(ROWS) < 0.05, rng.integers(shown.shape[1])] = np.nan
        asked[rng.random(ROWS) < 0.05, rng.integers(drawn.dimension)] = np.inf
        given = torch.asarray(shown.copy()), torch.asarray(asked.copy()).to(dtype)
        answer = ledger.call(lambda given=given: made.value.correct(*given), cases=ROWS)
        here = States(shown[:1] if drawn.observation_size else None, None if first is None else first[None])
        journal.judge_error(answer, plain, here, asked)
        if answer.error is not None:
            continue
        left = answer.value.double().numpy().copy()
        for row in range(ROWS):
            before, is_sound = executed[row], bool(np.isfinite(shown[row]).all())
            if is_sound:
                seen[row] = shown[row]
            last = seen[row]
            there = last if is_sound or last is None or before is None else recalled(plain, last, before)
            anchor = first if before is None else before
            here = States(
                None if there is None or not drawn.observation_size else there[None],
                None if anchor is None or not reads else anchor[None],
            )
            journal.add(plain, here, asked[row], left[row], "leaves the filter")
            executed[row] = left[row]
        answer.value.fill_(1e6)  # the caller may write into what it was given
        given[0].mul_(100.0)
        if rng.random() < 0.2:
            ended = rng.random(ROWS) < 0.3
            made.value.reset(torch.asarray(ended))
            executed = [None if ended[row] else executed[row] for row in range(ROWS)]
    journal.judge()


def recalled(plain: Plain, seen: Vector, executed: Vector) -> Vector:
    """Return an observation with the action that was executed since in the places where rate limits read it."""
    now = seen.copy()
    for part in leaves(plain):
        previous = part.arguments["previous"] if part.kind == "RateLimit" else None
        if isinstance(previous, Reading) and isinstance(previous.entries, tuple):
            now[slice(*previous.entries)] = (executed - previous.offset) / previous.scale
    return now
