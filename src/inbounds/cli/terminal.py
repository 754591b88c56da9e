"""The console that every command prints to: text that may come from files is shown, and never obeyed."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from inbounds.cli.output import leave_output, shown


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
