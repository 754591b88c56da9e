"""Requests to end, such as Ctrl-C: counted, and acted upon where everything is whole."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

ONE_REQUEST_SECONDS = 0.2
"""Signals closer together than this are one request: `timeout` sends its own to a program and to its group."""


class Requests:
    """How many requests to stop arrived; the first one is noted, and `answer` says what later ones mean."""

    def __init__(self, answer: Callable[[int], None] = lambda count: None) -> None:
        """Start unasked; `answer` is called with the count at every request and may raise."""
        self.count, self._answer, self._last = 0, answer, -float("inf")

    def __bool__(self) -> bool:
        """Return whether a request arrived."""
        return self.count > 0

    @contextlib.contextmanager
    def catching(self, *numbers: signal.Signals) -> Iterator[Requests]:
        """Count these signals within a block; outside the main thread, which alone can, they stay what they were."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last < ONE_REQUEST_SECONDS:
            return
        self._last, self.count = now, self.count + 1
        self._answer(self.count)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Requests]:
    """Note Ctrl-C, and SIGTERM, within a block instead of breaking off inside it; the second one breaks off after all.

    A turn gives its arrays away before it has new ones, so that there would be nothing to save in the middle of it.
    Somebody else's handler, such as the command line's, stays in place.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    free = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    with Requests(break_off_at_second).catching(*free) as requests:
        yield requests


def break_off_at_second(count: int) -> None:
    """Raise what Ctrl-C usually raises, unless it is the first time."""
    if count > 1:
        raise KeyboardInterrupt
