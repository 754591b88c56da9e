"""What was asked, what was found, and how to see it again: counts per door, a reproduction per kind of finding."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attack.plain_sets import Plain, code, kinds, number
from inbounds.errors import InboundsError

OUTSIDE = "outside"
"""An action was returned, accepted or executed that is outside its set, by more than float64 can fail to see."""
NOT_A_NUMBER = "silent NaN"
"""NaN was returned where the set holds an action, or by a function that can raise instead."""
EXCEPTION = "unexplained exception"
"""An error that is not the library's own, or that does not say what to do."""
SLOW = "slow"
"""A call took longer than a few seconds."""
REFUSED = "refused"
"""The library said that there is no action, or refused the question, where the anchor is well inside the set."""
WRONG = "wrong answer"
"""Any other answer that contradicts the documentation: a moved action, a changed input, another number or shape."""
KINDS = (OUTSIDE, NOT_A_NUMBER, EXCEPTION, SLOW, REFUSED, WRONG)

MOST_SECONDS = 5.0
SECONDS_PER_CASE = 0.2
"""Of a batch of many; sets whose members take turns need up to a tenth of a second for an action."""
MOST_SHOWN = 8
"""Findings of one kind that are shown for one door; the others are only counted."""
HANG = 120.0
"""Seconds of the processor after which a call that does not return ends the run, with its round on the screen."""


class Question(NamedTuple):
    """One question to one door, as it is printed."""

    plain: Plain
    observation: Any
    action: Any
    previous_action: Any
    way: str
    """How it was asked: library, type, layout."""


class Finding(NamedTuple):
    """Something that must not be."""

    door: str
    kind: str
    question: Question
    detail: str
    seed: int
    round: int

    @property
    def signature(self) -> tuple[str, ...]:
        """What findings of the same cause have in common, as far as one can tell from outside."""
        way = re.sub(r", batch of \d+|, rng \d+", "", self.question.way)
        cause = re.sub(r"[-+0-9.e]+", "#", self.detail)[:60] if self.kind in (EXCEPTION, WRONG) else ""
        return self.door, self.kind, kinds(self.question.plain), way, cause

    def __str__(self) -> str:
        asked = self.question
        lines = [f"{self.kind.upper()} at {self.door} ({asked.way}): {self.detail}"]
        lines.append(f"  constraint      = {code(asked.plain)}")
        for name in ("observation", "action", "previous_action"):
            value = getattr(asked, name)
            if value is not None:
                lines.append(f"  {name:15} = {number(np.asarray(value, np.float64))}")
        again = f"python -m benchmarks.attack --doors {self.door} --seed {self.seed} --round {self.round}"
        return "\n".join([*lines, f"  again: {again}"])


class Answer(NamedTuple):
    """What came back from a call: a value, or an error."""

    value: Any
    error: Exception | None
    seconds: float


class Ledger:
    """Counts cases and keeps findings."""

    def __init__(self, seed: int, *, watches: bool = True) -> None:
        """Begin with nothing found; `watches` ends the process where a call does not return."""
        self.seed = seed
        self.is_repeating = False
        """One round is asked again, as a finding says."""
        self.door, self.round = "", 0
        self.cases: collections.Counter[str] = collections.Counter()
        self.rounds: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        """Own errors with a remedy, where no action was known to exist."""
        self.close: collections.Counter[str] = collections.Counter()
        """Answers outside in exact arithmetic, by less than float64 can see in the formula."""
        self.seconds: collections.Counter[str] = collections.Counter()
        self.slowest: dict[str, float] = {}
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.findings: list[Finding] = []
        self._seen: collections.Counter[tuple[str, ...]] = collections.Counter()
        self._settled: set[tuple[str, ...]] = set()
        self._since: float | None = None
        self._limit = MOST_SECONDS
        if watches:
            threading.Thread(target=self._watch, daemon=True).start()
        self.on_finding: Callable[[Finding], None] = lambda finding: None

    @contextlib.contextmanager
    def at(self, door: str, index: int) -> Iterator[None]:
        """Count what happens inside for one round of a door."""
        self.door, self.round = door, index
        began = time.process_time()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield
        finally:
            self.rounds[door] += 1
            self.seconds[door] += time.process_time() - began

    def call(self, function: Callable[[], Any], cases: int = 1, limit: float | None = None) -> Answer:
        """Call the library; an answer that does not come within `HANG` seconds ends the process."""
        self.cases[self.door] += cases
        began = self._since = time.process_time()
        try:
            value, error = function(), None
        except Exception as caught:
            value, error = None, caught
        finally:
            self._since = None
        seconds = time.process_time() - began
        self.slowest[self.door] = max(self.slowest.get(self.door, 0.0), seconds)
        self._limit = MOST_SECONDS + SECONDS_PER_CASE * cases if limit is None else limit
        return Answer(value, error, seconds)

    def _watch(self) -> None:
        """End a run that hangs, with the round and the place on the screen."""
        while True:
            time.sleep(1.0)
            since = self._since
            if since is not None and time.process_time() - since > HANG:
                again = f"--doors {self.door} --seed {self.seed} --round {self.round}"
                print(
                    f"HANG: no answer in {HANG:.0f} s of the processor. again: {again}",
                    file=sys.stderr,
                    flush=True,
                )
                faulthandler.dump_traceback(sys.stderr)
                os._exit(3)

    def is_slow(self, answer: Answer) -> bool:
        """Tell whether the last call took too long."""
        return answer.seconds > self._limit

    def refused(self) -> None:
        """Count an error that says what to do, where nothing else was to be expected."""
        self.refusals[self.door] += 1

    def found(self, kind: str, question: Question, detail: str, count: int = 1) -> bool:
        """Keep a finding; tell whether it is the first of its signature, which is worth shrinking."""
        finding = Finding(self.door, kind, question, detail, self.seed, self.round)
        self.counts[self.door, kind] += count
        self._seen[finding.signature] += count
        if self._seen[finding.signature] > count:
            return False
        self.findings.append(finding)
        return True

    def replace_last(self, question: Question, detail: str) -> None:
        """Put a smaller reproduction in the place of the last finding, and show it."""
        self.findings[-1] = self.findings[-1]._replace(question=question, detail=detail)

    def settle(self) -> None:
        """Show the last finding, or forget it where enough of its kind are shown; it stays counted."""
        last = self.findings[-1]
        shown = sum(one[:2] == last.signature[:2] for one in self._settled)
        if last.signature in self._settled or shown >= MOST_SHOWN:
            self.findings.pop()
            return
        self._settled.add(last.signature)
        self.on_finding(last)

    def summary(self) -> dict[str, Any]:
        """Return the counts of every door."""
        return {
            door: {
                "cases": self.cases[door],
                "rounds": self.rounds[door],
                **{kind: self.counts[door, kind] for kind in KINDS},
                "within rounding": self.close[door],
                "refusals": self.refusals[door],
                "slowest call (s)": round(self.slowest.get(door, 0.0), 3),
                "seconds": round(self.seconds[door], 1),
            }
            for door in self.rounds
        }


def explained(error: Exception) -> str | None:
    """Return what is wrong with an error: None for one of the library's own that says what to do."""
    if not isinstance(error, InboundsError):
        frames = traceback.extract_tb(error.__traceback__)
        inner = [frame for frame in frames if "inbounds" in frame.filename] or list(frames)
        where = f" in {inner[-1].filename.rsplit('/', 1)[-1]}, {inner[-1].name}" if inner else ""
        return f"{type(error).__name__}{where}: {str(error)[:160]}"
    text = str(error).strip()
    sentences = re.split(r"(?<=[.;:?!]) ", text)
    if len(sentences) < 2 or not text.endswith((".", ")", "]", '"', "'")):
        return f"{type(error).__name__} without a remedy: {text[:160]}"
    return None
