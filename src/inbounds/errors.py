"""Every error of the library, and its warnings: what was met, what was expected and what to change."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
import sys
import warnings
from collections.abc import Iterable

LIBRARY = __name__.partition(".")[0]


class InboundsError(Exception):
    """Root of the library's own errors, so that a caller can catch them all at once."""


class ConstraintError(InboundsError, ValueError):
    """A constraint that is badly declared, or asked something it cannot answer."""


class EmptySetError(ConstraintError):
    """No action satisfies the constraint; the message names the rows that conflict."""


class InvalidInputError(InboundsError, ValueError):
    """An observation or an action with a wrong shape, a wrong type or a value that is not a number."""


class InfeasibleActionError(InboundsError, ValueError):
    """An action outside its constraint arrived at the environment's door; the environment did not move."""


class ConfigurationError(InboundsError, ValueError):
    """Settings that cannot work together, refused before anything starts."""


class CheckpointError(InboundsError):
    """A checkpoint that is truncated, foreign, older, or could not be written."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that is not what was written; an older one may still be whole."""


class StorageError(InboundsError):
    """A file could not be written: no space, no permission; what was there before is unchanged."""


class FolderBusyError(InboundsError):
    """Another process is writing to the folder of a run."""


class DivergenceError(InboundsError):
    """Training met a value that is not a number; the last good checkpoint still stands."""


class SimulationError(InboundsError):
    """An environment's own simulation failed (a bound was passed, a value is not a number); it did not move."""


class MissingDependencyError(InboundsError, ImportError):
    """An optional package is needed; the message holds the command that installs it."""


class UnknownNameError(InboundsError, KeyError):
    """A name that is not in a table; the message suggests the nearest one."""

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str) -> None:
        """Compose the message from what was asked for and what exists."""
        names = sorted(known)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        suggestion = f" Did you mean '{nearest[0]}'?" if nearest else ""
        super().__init__(f"no {kind} is called '{name}'.{suggestion} Known: {', '.join(names)}. {remedy}")

    def __str__(self) -> str:
        """Return the plain message, without the quotes that KeyError puts around it."""
        return str(self.args[0])


def told_by_python(message: str) -> None:
    """Warn as Python does, at the line that called the library."""
    frame, level = sys._getframe(), 1  # by hand: skip_file_prefixes came with Python 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == LIBRARY:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


FREE = "Free some disk space."
ANOTHER = "Choose another place."
REMEDIES = {
    errno.ENOSPC: FREE,
    errno.EDQUOT: FREE,
    errno.EACCES: "Make it accessible for you, or choose another place.",
    errno.EPERM: "Make it accessible for you, or choose another place.",
    errno.EROFS: "Choose a place that can be written.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "A file stands where a folder is needed: choose another place.",
    errno.EISDIR: "A folder stands where a file is needed: choose another place.",
    errno.EEXIST: "A file stands where a folder is needed: choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EINVAL: "Choose another name or place.",
    errno.EFBIG: "Raise the largest size of a file that this process may write (`ulimit -f`), or choose another place "
    "if its file system takes no file this large.",
    errno.EMFILE: "Close other programs, or raise the limit of open files (`ulimit -n`).",
    errno.ENFILE: "Close other programs, or raise the limit of open files (`ulimit -n`).",
    errno.ENOMEM: "Free some memory.",
    errno.EIO: "The device failed: check the disk, or choose another place.",
    errno.EADDRINUSE: "Choose another port.",
}

REFUSALS = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The user can undo these; a file that is refused with one of them may be whole."""


def is_refusal(error: BaseException | None) -> bool:
    """Tell whether the system refused a file for now, and said nothing about its content."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in REFUSALS)


def remedy_of(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    return REMEDIES.get(error.errno or 0, ANOTHER)


def explained(error: OSError) -> str:
    """Return what was refused, for which file, and what to do about it."""
    what = error.strerror or str(error) or type(error).__name__
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{what[:1].lower()}{what[1:]}. {remedy_of(error)}"


def quoted(word: str) -> str:
    """Return a word of a printed command as a POSIX shell reads it; bytes that cannot be shown come from printf."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = {ord("%"): "%%", ord("\\"): "\\\\", ord("'"): "\\047"}
    spelt = (
        escaped.get(byte, chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in os.fsencode(word)
    )
    return f"\"$(printf -- '{''.join(spelt)}')\""
