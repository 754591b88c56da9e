"""Requests to end, such as Ctrl-C: counted, and acted upon where everything is whole."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ONE_REQUEST_SECONDS = 0.2
"""Signals closer together than this are one request: `timeout` sends its own to a program and to its group."""


class Requests:
    """How often somebody asked to end; the first time is noted, and what later ones mean is told by `answer`."""

    def __init__(self, answer: Callable[[int], None] = lambda count: None) -> None:
        """Start unasked; `answer` is called with the count at every request and may raise."""
        self.count, self._answer, self._last = 0, answer, -float("inf")

    def __bool__(self) -> bool:
        """Return whether anybody asked."""
        return self.count > 0

    @contextlib.contextmanager
    def heard(self, *numbers: signal.Signals) -> Iterator[Requests]:
        """Count these signals within a block; outside the main thread, which alone can, they stay what they were."""
        before: dict[signal.Signals, Any] = {}
        try:
            for number in numbers:
                before[number] = signal.signal(number, self._note)
        except ValueError:
            yield self
            return
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last < ONE_REQUEST_SECONDS:
            return
        self._last, self.count = now, self.count + 1
        self._answer(self.count)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Requests]:
    """Note Ctrl-C within a block instead of breaking off inside it; the second one breaks off after all.

    A turn gives its arrays away before it has new ones, so that there would be nothing to save in the middle of it.
    Somebody else's handler, such as the command line's, stays in place.
    """
    requests = Requests(break_off_at_second)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield requests
        return
    with requests.heard(signal.SIGINT):
        yield requests


def break_off_at_second(count: int) -> None:
    """Raise what Ctrl-C usually raises, unless it is the first time."""
    if count > 1:
        raise KeyboardInterrupt
