"""What was tried and how it ended; a fault is survived if nothing is lost and every error says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from inbounds.errors import InboundsError


class BrokenPromiseError(Exception):
    """A promise that was not kept; the message says which."""


class Key(NamedTuple):
    """A row of the table."""

    fault: str
    where: str


class Ledger:
    """Counts faults and keeps what went wrong."""

    def __init__(self, verbose: bool = False) -> None:
        """Start empty."""
        self.tried: Counter[Key] = Counter()
        self.endings: Counter[str] = Counter()
        self.failed: Counter[Key] = Counter()
        self.failures: list[str] = []
        self.verbose = verbose

    @contextmanager
    def trial(self, fault: str, where: str, detail: str) -> Iterator[None]:
        """Count one fault; whatever the block raises is a promise that was not kept."""
        self.tried[Key(fault, where)] += 1
        try:
            yield
        except Exception as error:  # the suite goes on and reports all of them
            told = f"{where}, {fault}, {detail}: {type(error).__name__}: {error}"
            self.failed[Key(fault, where)] += 1
            self.failures.append(told)
            if self.verbose:
                print("FAILED", told, flush=True)

    def note(self, what: str) -> None:
        """Say how far it is."""
        if self.verbose:
            print(f"{self.total:6,} faults, {len(self.failures)} failures: {what}", flush=True)

    def ended(self, how: str) -> None:
        """Count how a command ended under a fault."""
        self.endings[how] += 1

    @property
    def total(self) -> int:
        """Return how many faults were tried."""
        return self.tried.total()

    def as_json(self) -> dict[str, Any]:
        """Return plain data: one row per kind of fault and place."""
        rows = [
            {"fault": key.fault, "where": key.where, "tried": count, "survived": count - self.failed[key]}
            for key, count in self.tried.items()
        ]
        return {
            "tried": self.total,
            "survived": self.total - len(self.failures),
            "endings": dict(sorted(self.endings.items())),
            "rows": rows,
            "failures": self.failures,
        }


REMEDIES = (
    *("Free some disk space", "Make it writable", "Choose another", "choose another", "Restore", "resume"),
    *(
        "Remove",
        "remove",
        "Wait until",
        "Give the folder",
        "Put this run's own",
        "train again",
        "Train again",
    ),
)


def require_sentence(error: BaseException, cause: str = "") -> None:
    """Refuse an error that a user cannot act upon: not one of ours, without its cause, or without a remedy."""
    if not isinstance(error, InboundsError):
        raise BrokenPromiseError(
            f"raised {type(error).__name__} ({error}) instead of an error of the library"
        )
    if cause not in str(error) or not any(remedy in str(error) for remedy in REMEDIES):
        raise BrokenPromiseError(f"the error does not name its cause ('{cause}') and a remedy: {error}")
