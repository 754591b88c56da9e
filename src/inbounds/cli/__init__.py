"""The command line: one module per command, imported when its command is called."""

from __future__ import annotations

from inbounds.cli.main import main

__all__ = ["main"]
