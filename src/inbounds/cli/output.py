"""Where the answers of commands go: visible characters to the terminal, files to places that can be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import tempfile
from pathlib import Path


def shown(text: str) -> str:
    r"""Return text in which everything that is not a visible character is spelt out: `\x1b`, `\n`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def command(*words: str | Path) -> str:
    """Return a command of ours, quoted so that it can be copied into a shell."""
    return shlex.join(["inbounds", *map(str, words)])


def leave_output() -> None:
    """Send what standard output cannot take to nowhere, so that the interpreter does not complain at its end."""
    with contextlib.suppress(OSError):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the hours are spent that it shall tell of."""
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with tempfile.TemporaryFile(dir=nearest) as handle:
            handle.write(bytes(4096))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
