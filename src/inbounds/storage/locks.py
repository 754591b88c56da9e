"""One writer per folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from inbounds.errors import FolderBusyError
from inbounds.storage.files import told

LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""What a file system without locks answers."""

_entered: set[tuple[str, int]] = set()
"""Folders and the threads of this process that hold them."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process and thread out of a folder; the thread that holds it may enter again.

    Where the file system has no locks, nobody is kept out.
    """
    mine = (os.path.realpath(folder), threading.get_ident())
    if mine in _entered:
        yield
        return
    with told(folder / LOCK):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try(descriptor):
            raise FolderBusyError(
                f"another process is writing to {folder}. Wait until it has ended, or choose another folder."
            )
        _entered.add(mine)
        try:
            yield
        finally:
            _entered.discard(mine)
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Tell whether somebody is writing to a folder at this moment."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK)  # which a pipe does not wait for
    except FileNotFoundError:
        return False
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
