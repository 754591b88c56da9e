"""Whole files and folders, one writer for each folder: every file of the package is written here, or grows in `logs`.

What a reader finds under a name is always a whole file. New content goes into a hidden file beside it, is synced and
then renamed over it; the folder is synced last. A process that is killed on the way leaves the hidden file at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import json
import os
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inbounds.errors import FolderBusyError, StorageError, remedy_of

Piece = bytes | bytearray | memoryview
"""A part of a file."""

PART = ".part"
"""How the hidden names end."""
WRITTEN_AT_ONCE = 2**26
"""Bytes that the system is given in one call."""
GATHERED = 2**20
"""Bytes of small pieces that are gathered for one call."""
UNCHANGED = "What was there before is unchanged."


def write_pieces(path: str | Path, pieces: Iterable[Piece]) -> None:
    """Write a file from its parts; until it is complete, what was there before stays."""
    with replacing(path) as part:
        fill(part, pieces)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file."""
    write_pieces(path, [content])


def write_text(path: str | Path, text: str) -> None:
    """Write a file of text, as `encoded` gives it."""
    write_pieces(path, [encoded(text)])


def encoded(text: str) -> bytes:
    r"""Return text in UTF-8; what UTF-8 does not have, such as a byte of a path in no encoding, is spelt `\udcff`."""
    return text.encode(errors="backslashreplace")


def write_json(path: str | Path, value: Any) -> None:
    """Write plain data, dataclasses, paths and arrays as JSON."""
    write_text(path, json.dumps(value, indent=1, default=plain) + "\n")


def plain(value: Any) -> Any:
    """Return what JSON does not know as what it knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a hidden file to write; after the block it takes the place of `path`, synced.

    An error inside the block removes it. Where `path` is a link, the file that it names is replaced. Something other
    than a file, such as /dev/stdout, is written directly.
    """
    with told(path):
        target = Path(os.path.realpath(path))
        make_folder(target.parent)
        mode = _mode_of(target)
    if mode is not None and not stat.S_ISREG(mode):
        with told(path):
            yield target
        return
    part = beside(target)
    try:
        with told(path):
            yield part
            sync(part, mode)
            os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    with told(path, "It is complete, but may not survive a power cut."):
        sync_folder(target.parent)


def write_folder(path: str | Path, files: Mapping[str, Iterable[Piece]]) -> None:
    """Write a folder of files whole or not at all; one that is there, or that a link names, is replaced at once."""
    target = Path(os.path.realpath(path))
    if target == Path(os.path.realpath(os.curdir)):
        raise StorageError(
            f"{path} is the working directory, which cannot be replaced under a program. Name a folder in it."
        )
    part = beside(target)
    try:
        with told(path):
            make_folder(target.parent)
            os.mkdir(part)
            for name, pieces in files.items():
                fill(part / name, pieces)
                sync(part / name)
            sync_folder(part)
            _put_in_place(part, target)
        with told(path, "It is complete, but may not survive a power cut."):
            sync_folder(target.parent)
    finally:
        remove_tree(part)  # the new folder where something failed, or else the one that it replaced


def make_folder(path: Path) -> None:
    """Make a folder and those above it, each synced into the one that holds it."""
    if path.is_dir():
        return
    with told(path):
        make_folder(path.parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not path.is_dir():
                raise
        sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder; it loses its name first, so that nobody meets it half-empty."""
    hidden = beside(path)
    with told(path, deed="removed"):
        os.rename(path, hidden)
        sync_folder(path.parent)
    remove_tree(hidden)


def remove_file(path: Path) -> None:
    """Remove a file if it is there."""
    with told(path, deed="removed"), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_parts(folder: Path, names: Iterable[str] | None = None) -> None:
    """Remove what killed processes left unfinished of these files, or of all; nobody may be writing them now."""
    for part in folder.glob(f".*{PART}") if folder.is_dir() else ():
        owner = part.name[1:].rsplit(".", 2)[0]
        if names is None or owner in names:
            remove_tree(part)


def remove_tree(path: Path) -> None:
    """Remove what has a hidden name, as far as possible: what stays is in nobody's way."""
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_dir():
            os.unlink(path)
            return
        for inside in path.iterdir():
            remove_tree(inside)
        os.rmdir(path)


# Single steps --------------------------------------------------------------------------------------------------------


def beside(target: Path) -> Path:
    """Return a hidden name in the same folder that nobody else uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART}")


def fill(path: Path, pieces: Iterable[Piece]) -> None:
    """Write a file where nobody looks yet; its mode is what the user's umask leaves."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        gathered = bytearray()
        for piece in pieces:
            if len(gathered) + len(piece) > GATHERED:
                write_all(descriptor, gathered)
                gathered = bytearray()
            if len(piece) > GATHERED:
                write_all(descriptor, piece)
            else:
                gathered += piece
        write_all(descriptor, gathered)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, piece: Piece) -> None:
    """Write all of a piece, however much the system takes at a time."""
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left[:WRITTEN_AT_ONCE]) :]


def sync(path: Path, mode: int | None = None) -> None:
    """Wait until the content of a file is on the disk; give it a mode if one is told."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        if mode is not None:
            os.fchmod(descriptor, stat.S_IMODE(mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk; some network file systems do so by themselves and refuse."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _mode_of(target: Path) -> int | None:
    """Return the mode of a file that will be replaced; one that is protected against writing is left alone."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return mode


def _put_in_place(part: Path, target: Path) -> None:
    """Give a folder its name; an older one gets the hidden name instead, in the same moment where Linux can."""
    if not target.exists():
        os.rename(part, target)
        return
    try:
        exchange(part, target)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        older = beside(target)
        os.rename(target, older)
        os.rename(part, target)
        os.rename(older, part)


def exchange(one: Path, other: Path) -> None:
    """Swap the names of two folders in one step."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, swapping = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    if library.renameat2(here, os.fsencode(one), here, os.fsencode(other), swapping):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


@contextlib.contextmanager
def told(path: str | Path, state: str = UNCHANGED, deed: str = "written") -> Iterator[None]:
    """Turn what the system refuses into an error of ours that says what to do about it."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} could not be {deed} ({error.strerror or error}). {state} {remedy_of(error)}"
        ) from error


LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""What a file system without locks answers."""

_entered: set[tuple[str, int, int]] = set()
"""Folders, and the threads and processes that hold them: a forked process holds nothing of its parent's."""
_descriptors: set[int] = set()
"""The locks that this process has open."""
_between_forks = threading.RLock()
"""Held while a lock is opened or closed, so that no fork falls between that and its entry in the set."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process and thread out of a folder; the thread that holds it may enter again.

    Where the file system has no locks, nobody is kept out.
    """
    mine = (os.path.realpath(folder), threading.get_ident(), os.getpid())
    if mine in _entered:
        yield
        return
    with contextlib.ExitStack() as opened:
        with told(folder / LOCK):
            descriptor = opened.enter_context(_open_here(folder / LOCK, os.O_RDWR | os.O_CREAT))
        if not _try(descriptor):
            raise FolderBusyError(
                f"another process is writing to {folder}. Wait until it has ended, or choose another folder."
            )
        _entered.add(mine)
        try:
            yield
        finally:
            _entered.discard(mine)


def is_locked(folder: Path) -> bool:
    """Tell whether somebody is writing to a folder at this moment."""
    try:
        with _open_here(
            folder / LOCK, os.O_RDONLY | os.O_NONBLOCK
        ) as descriptor:  # which a pipe does not wait for
            return not _try(descriptor)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _open_here(path: Path, flags: int) -> Iterator[int]:
    """Open a lock in this process alone.

    A lock lasts for as long as any process has it open, and a forked one has what its parent had: a helper that
    outlives a killed run would keep the run from going on. Forked processes therefore close what they were handed.
    """
    owner = os.getpid()
    with _between_forks:
        descriptor = os.open(path, flags, 0o666)
        _descriptors.add(descriptor)
    try:
        yield descriptor
    finally:
        if os.getpid() == owner:  # a forked process that leaves this block has closed its copy already
            with _between_forks:
                _descriptors.discard(descriptor)
                os.close(descriptor)


def _close_inherited() -> None:
    """Close, in a forked process, the locks of its parent, which keeps them."""
    for descriptor in _descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()
    _between_forks.release()


os.register_at_fork(
    before=_between_forks.acquire, after_in_parent=_between_forks.release, after_in_child=_close_inherited
)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
