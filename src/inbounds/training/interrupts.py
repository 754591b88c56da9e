"""Ctrl-C while training: noted, and acted upon where everything is whole."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[list[int]]:
    """Collect Ctrl-C within a block instead of breaking off inside it; the second one breaks off after all.

    A turn gives its arrays away before it has new ones, so that there would be nothing to save in the middle of it.
    Somebody else's handler, such as the command line's, stays in place; only the main thread can have one.
    """
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield asked
        return
    try:
        signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
