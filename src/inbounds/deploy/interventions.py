"""What a safety filter did and why: a bounded log of interventions, and counters for a metrics exporter."""

from __future__ import annotations

import bisect
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.constraints.situation import Situation
from inbounds.errors import ConfigurationError

Kind = Literal["ray", "projection", "interior_point", "hold", "refused"]
"""What was done instead of passing an action on."""
Cause = Literal[
    "infeasible action", "invalid action", "invalid observation", "stale observation", "empty set"
]
"""What made it necessary."""

KINDS: tuple[Kind, ...] = ("ray", "projection", "interior_point", "hold", "refused")
CAUSES: tuple[Cause, ...] = (
    "infeasible action",
    "invalid action",
    "invalid observation",
    "stale observation",
    "empty set",
)
BUCKETS = (10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3)
"""Upper ends of the histogram of seconds per call."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """One call in which the filter did not pass the action on as it came."""

    call: int
    """Which call of the filter it was, counted from 1."""
    time: float
    """When, in seconds since 1970."""
    kind: Kind
    cause: Cause
    observation: NDArray[np.float64] | None
    """What the constraint was evaluated at: the last good observation where the given one was not."""
    previous_action: NDArray[np.float64] | None
    proposed: NDArray[np.floating] | None
    executed: NDArray[np.floating] | None
    """What was returned; None where the call was refused."""
    excess: float
    """The violation of the proposed action, in the units of the row that it breaks most; NaN if unknown."""
    constraint: Constraint = field(repr=False)

    @property
    def reason(self) -> str:
        """Say in words what was wrong; composed when it is read, so that acting does not wait for it."""
        if self.cause != "infeasible action" or self.proposed is None:
            return self.cause
        return self.constraint.explain(
            self.observation, self.proposed.astype(np.float64), previous_action=self.previous_action
        )

    @property
    def moved(self) -> float:
        """Return the Euclidean distance between the proposed and the executed action; NaN without both."""
        if self.proposed is None or self.executed is None:
            return math.nan
        return float(np.linalg.norm(self.executed.astype(np.float64) - self.proposed.astype(np.float64)))

    def as_json(self) -> dict[str, Any]:
        """Return plain data, for a log file or a bus."""
        arrays = {
            name: None if array is None else array.tolist()
            for name, array in (
                ("observation", self.observation),
                ("proposed", self.proposed),
                ("executed", self.executed),
            )
        }
        numbers = {
            name: value if math.isfinite(value) else None
            for name, value in (("excess", self.excess), ("moved", self.moved))
        }
        facts = {"call": self.call, "time": self.time, "kind": self.kind, "cause": self.cause}
        return {**facts, "reason": self.reason, **numbers, **arrays}


class Locked:
    """Something with a lock, of which a copy, here or in another process, gets a new one; a fork is a copy."""

    def __init__(self) -> None:
        """Make the lock; who holds it may take it again."""
        self._lock = threading.RLock()
        _locked.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take it over."""
        self.__dict__.update(state)
        Locked.__init__(self)


_locked: weakref.WeakSet[Locked] = weakref.WeakSet()


def _with_new_locks() -> None:
    """Give a forked process locks of its own: a thread that held one is not there to let it go."""
    for held in list(_locked):
        held._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_with_new_locks)


class InterventionLog(Locked):
    """Keeps the last interventions and counts everything; one thread may write while others read.

    Readers hold the lock only while they copy, so a scrape delays an action by microseconds.
    """

    def __init__(self, size: int) -> None:
        """Keep the last `size` interventions; older ones stay in the counters alone."""
        if not isinstance(size, int | np.integer) or size < 1:
            raise ConfigurationError(f"log_size={size}, but at least one intervention must fit. Use 1000.")
        super().__init__()
        self._ring: deque[Intervention] = deque(maxlen=size)
        self._kinds: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._causes: dict[str, int] = dict.fromkeys(CAUSES, 0)
        self._times = [0] * (len(BUCKETS) + 1)
        self._calls = self._passed = self._proposals = self._rejected = 0
        self._worst_excess = -math.inf
        self._seconds = self._slowest = 0.0

    @property
    def calls(self) -> int:
        """How many calls were counted."""
        return self._calls

    def count(self, proposals: int, rejected: int, worst_excess: float, seconds: float) -> None:
        """Count one finished call; `worst_excess` is the largest violation among its proposals.

        It passed an action on if not all of its proposals were rejected.
        """
        with self._lock:
            self._calls += 1
            self._passed += proposals > rejected
            self._proposals += proposals
            self._rejected += rejected
            self._worst_excess = max(self._worst_excess, worst_excess)
            self._seconds += seconds
            self._slowest = max(self._slowest, seconds)
            self._times[bisect.bisect_left(BUCKETS, seconds)] += 1

    def add(self, intervention: Intervention) -> None:
        """Keep and count an intervention."""
        with self._lock:
            self._ring.append(intervention)
            self._kinds[intervention.kind] += 1
            self._causes[intervention.cause] += 1

    def entries(self) -> list[Intervention]:
        """Return the interventions that are kept, oldest first."""
        with self._lock:
            return list(self._ring)

    def metrics(self) -> dict[str, float]:
        """Return all counters at one moment."""
        with self._lock:
            counted = {
                "calls": self._calls,
                "passed": self._passed,
                "proposals": self._proposals,
                "rejected_proposals": self._rejected,
                "interventions": sum(self._kinds.values()),
                **{f"interventions_{kind}": count for kind, count in self._kinds.items()},
                **{f"causes_{cause.replace(' ', '_')}": count for cause, count in self._causes.items()},
            }
            times = {"seconds": self._seconds, "slowest_seconds": self._slowest}
            return {**counted, **times, "worst_excess": self._worst_excess}

    def prometheus(self, prefix: str, labels: Mapping[str, str]) -> str:
        """Return the counters in the text format that Prometheus scrapes."""
        with self._lock:
            kinds, causes, times = dict(self._kinds), dict(self._causes), list(self._times)
            plain = (
                ("calls", "counter", "Calls of the filter.", self._calls),
                ("passed", "counter", "Actions that left as the policy gave them.", self._passed),
                ("proposals", "counter", "Actions that were checked.", self._proposals),
                ("rejected_proposals", "counter", "Actions that were turned down.", self._rejected),
                ("slowest_seconds", "gauge", "The longest call so far.", self._slowest),
                ("worst_excess", "gauge", "The largest violation of a proposal.", self._worst_excess),
            )
            calls, seconds = self._calls, self._seconds
        lines: list[str] = []
        for name, kind, words, value in plain:
            full = f"{prefix}_{name}_total" if kind == "counter" else f"{prefix}_{name}"
            lines += [f"# HELP {full} {words}", f"# TYPE {full} {kind}"]
            lines.append(f"{full}{_labels(labels)} {_number(value)}")
        for name, label, counts in (("interventions", "kind", kinds), ("causes", "cause", causes)):
            full = f"{prefix}_{name}_total"
            lines += [f"# HELP {full} Interventions by {label}.", f"# TYPE {full} counter"]
            lines += [f"{full}{_labels({**labels, label: key})} {count}" for key, count in counts.items()]
        full, reached = f"{prefix}_seconds", 0
        lines += [f"# HELP {full} Time of one call.", f"# TYPE {full} histogram"]
        for end, count in zip((*BUCKETS, math.inf), times, strict=True):
            reached += count
            lines.append(f"{full}_bucket{_labels({**labels, 'le': _number(end)})} {reached}")
        lines += [f"{full}_sum{_labels(labels)} {_number(seconds)}", f"{full}_count{_labels(labels)} {calls}"]
        return "\n".join(lines) + "\n"


class LimitUse(NamedTuple):
    """How the proposals of a safety filter stood to one limit."""

    name: str
    """The limit in words."""
    member: int
    """Which of the constraint's members it belongs to."""
    broken: int
    """How many proposals were beyond it."""
    near: int
    """How many kept it, but came within a hundredth of the widest room that was seen."""
    least_room: float
    """The least room that a proposal left, in units of the limit; negative beyond it."""
    widest_room: float


NEAR = 0.01
"""The fraction of the widest room that counts as near a limit."""
BLOCK = 256
"""How many proposals are collected before they are counted together, which costs less than one at a time."""


class LimitCounts(Locked):
    """Counts how often proposals break each limit of a set or come near it; one thread writes, others may read."""

    def __init__(self) -> None:
        """Count nothing yet: how many limits there are is told by the first proposal."""
        super().__init__()
        self._waiting: deque[NDArray[np.float64]] = deque()
        self._broken = self._near = np.zeros(0, dtype=np.int64)
        self._least = self._widest = np.zeros(0)

    def add(self, rows: NDArray[np.float64]) -> None:
        """Count a proposal by the excess over each limit; for a set without a fixed size, only those of the first."""
        self._waiting.append(rows)
        if len(self._waiting) >= BLOCK:
            with self._lock:
                self._count()

    def uses(self, constraint: Constraint, at: Situation, dimension: int) -> list[LimitUse]:
        """Return the counts of every limit, with names; empty before the first proposal."""
        names = [
            (name, index)
            for index, member in enumerate(constraint.members())
            for name in member.row_names(at, dimension)
        ]
        with self._lock:
            self._count()
            columns = (self._broken, self._near, self._least, self._widest)
            counted = [column.tolist() for column in columns]
        return [
            LimitUse(name, member, *numbers)
            for (name, member), *numbers in zip(names, *counted, strict=False)
        ]

    def _count(self) -> None:
        """Count what waits; the caller holds the lock, and the writer may go on appending."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not waiting:
            return
        if not len(self._broken):
            limits = len(waiting[0])
            self._broken, self._near = np.zeros((2, limits), dtype=np.int64)
            self._least, self._widest = np.full(limits, np.inf), np.full(limits, -np.inf)
        waiting = [rows for rows in waiting if len(rows) == len(self._broken)]
        if not waiting:
            return
        rooms = -np.array(waiting)
        rooms = np.where(np.isnan(rooms), -np.inf, rooms)
        self._least = np.minimum(self._least, rooms.min(axis=0))
        self._widest = np.maximum(self._widest, rooms.max(axis=0))
        is_broken = rooms < 0
        # Of a limit that never leaves any room, such as a fixed entry, every proposal that keeps it is near.
        is_near = ~is_broken & (rooms <= NEAR * self._widest) & np.isfinite(rooms)
        self._broken = self._broken + is_broken.sum(axis=0)
        self._near = self._near + is_near.sum(axis=0)


def told(constraint: Constraint, uses: Sequence[LimitUse]) -> str:
    """Say how many proposals were beyond each member of a set; nothing where none was counted."""
    counts = [
        f"{sum(use.broken for use in uses if use.member == index)} x {member.formula()}"
        for index, member in enumerate(constraint.members())
    ]
    return f"; proposals beyond: {', '.join(counts)}" if uses else ""


def idle_members(constraint: Constraint, uses: Sequence[LimitUse]) -> list[Constraint]:
    """Return the members of a set none of whose limits was ever broken or nearly so; unlimited ones do not count."""
    members = constraint.members()
    is_limited = {use.member for use in uses if use.widest_room < np.inf}
    is_binding = {use.member for use in uses if use.broken or use.near}
    return [members[index] for index in sorted(is_limited - is_binding)]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
