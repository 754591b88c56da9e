"""Where the answers of commands go: text is shown and never obeyed, files go to places that can be written."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from inbounds.errors import quoted


def shown(text: str) -> str:
    r"""Return text in which everything that is not a visible character is spelt out: `\x1b`, `\n`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def command(*words: str | Path) -> str:
    """Return a command of ours, in one line and quoted so that it can be copied into a shell."""
    return " ".join(["inbounds", *(quoted(str(word)) for word in words)])


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


class Terminal(Console):
    """A console that takes every string for what it is: no markup, no codes of emoji, no control characters.

    Whoever wants a style or a second line prints a `Text`.
    """

    def __init__(self, **settings: Any) -> None:
        """Write to standard output, unless a file is given."""
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return a string as it is shown, wherever it stands: in a line, in a table, in its title."""
        return super().render_str(shown(text), **settings)

    def say(self, text: str | Text) -> None:
        """Print one line, as long as it is."""
        self.print(text, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Go on without output where its reader has gone (`| head`, a `tee` that died): the work is not lost."""
        self.quiet = True
        leave_output()
