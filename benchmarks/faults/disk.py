"""A disk on which one system call goes wrong: it refuses, its process is killed inside it, or the power fails.

`inbounds.storage` changes the disk through the functions of `os` alone. Here a stand-in for `os` counts those calls and
lets the one that was chosen go wrong; a test repeats a command with the fault at every call in turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from inbounds.storage import files, logs


class Fault(Enum):
    """What goes wrong; the values are how tables call it."""

    NONE = "nothing"
    KILL = "kill -9 before the call"
    TORN = "kill -9 inside a write"
    POWER = "power cut, unsynced names lost"
    POWER_ZEROS = "power cut, unsynced data zero"
    FULL = "disk full (ENOSPC)"
    DENIED = "permission denied (EACCES)"
    BROKEN = "input/output error (EIO)"


NUMBERS = {Fault.FULL: errno.ENOSPC, Fault.DENIED: errno.EACCES, Fault.BROKEN: errno.EIO}
DEADLY = (Fault.KILL, Fault.TORN, Fault.POWER, Fault.POWER_ZEROS)
POWER_CUTS = (Fault.POWER, Fault.POWER_ZEROS)

NAMING = ("create", "mkdir", "replace", "rename", "exchange", "unlink", "rmdir")
CHANGING = (*NAMING, "write", "ftruncate")
STRIKES = {
    Fault.NONE: (),
    Fault.KILL: CHANGING,
    Fault.TORN: ("write",),
    Fault.POWER: (*CHANGING, "fsync"),
    Fault.POWER_ZEROS: (*CHANGING, "fsync"),
    Fault.FULL: ("create", "mkdir", "write", "fsync"),
    Fault.DENIED: ("open", *NAMING),
    Fault.BROKEN: (*CHANGING, "fsync"),
}
"""Which calls can go wrong that way; a call that creates a file is called `create`, others that open one `open`."""


class Killed(BaseException):
    """The process is gone. Nothing that is executed after this reaches the disk, whatever cleans up on the way."""


class FaultyDisk:
    """Stands for `os` in `inbounds.storage` while it is installed."""

    def __init__(
        self, fault: Fault = Fault.NONE, at: int = 0, watched: Path | None = None, really: bool = False
    ) -> None:
        """Let one call go wrong; with none chosen, only count them.

        Args:
            fault: what goes wrong.
            at: at which of the calls that can go wrong that way.
            watched: the folder that survives a power cut as far as it was synced.
            really: kill this process instead of pretending.
        """
        self.fault, self.at, self.really = fault, at, really
        self.calls, self.is_dead, self.is_hit = 0, False, False
        self.durable = Durable(watched) if watched is not None and fault in POWER_CUTS else None

    @contextlib.contextmanager
    def installed(self) -> Iterator[FaultyDisk]:
        """Be what `inbounds.storage` writes to, within a block."""
        exchange = files.exchange

        def exchanged(one: Path, other: Path) -> None:
            self._call("exchange", exchange, one, other)

        modules: tuple[Any, ...] = (files, logs)
        for module in modules:
            module.os = self
        files.exchange = exchanged
        try:
            yield self
        finally:
            files.exchange = exchange
            for module in modules:
                module.os = os

    def __getattr__(self, name: str) -> Any:
        """Pass on what changes nothing, and count what does."""
        usual = getattr(os, name)
        if name not in FOLLOWED:
            return usual
        return lambda *arguments, **options: self._call(name, usual, *arguments, **options)

    def _call(self, name: str, usual: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if name == "close":
            usual(*arguments)  # descriptors are ours, and not the dead process's
            if self.is_dead:
                raise Killed
            return None
        if self.is_dead:
            raise Killed
        deed = "create" if name == "open" and arguments[1] & os.O_CREAT else name
        if deed in STRIKES[self.fault]:
            self.calls += 1
            if self.calls == self.at:
                self.is_hit = True
                self._go_wrong(name, usual, arguments)
            elif self.is_hit and refuses_again(self.fault, deed):
                raise error_of(self.fault)
        done = usual(*arguments, **options)
        if self.durable is not None:
            self.durable.note(name, arguments, done)
        return done

    def _go_wrong(self, name: str, usual: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if name == "write" and self.fault in (Fault.TORN, Fault.FULL):
            descriptor, content = arguments
            usual(descriptor, content[: len(content) // 2])
        if self.fault in DEADLY:
            if self.really:
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_dead = True
            raise Killed
        if self.fault in NUMBERS:
            raise error_of(self.fault)


FOLLOWED = (
    *("open", "write", "fsync", "fchmod", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir"),
    "close",
)


def error_of(fault: Fault) -> OSError:
    """Return what the system says."""
    return OSError(NUMBERS[fault], os.strerror(NUMBERS[fault]))


def refuses_again(fault: Fault, deed: str) -> bool:
    """Tell whether a later call is refused as well: a full disk stays full, a forbidden folder stays forbidden."""
    if fault is Fault.FULL:
        return deed in ("create", "mkdir", "write")
    return fault is Fault.DENIED and deed in NAMING


# What a power cut leaves --------------------------------------------------------------------------------------------


class Node:
    """A file or a folder, as it is and as it was when it was synced last."""

    def __init__(self, content: bytes | None) -> None:
        """Make a file with this synced content, or a folder if there is none."""
        self.content = content
        self.entries: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        self.size = len(content or b"")


class Durable:
    """Follows which names and contents of a folder were synced; everything else may be lost.

    Names are lost that no sync of their folder followed. Contents are lost that no sync of their file followed; where
    the name is there all the same, the file has the right length and zeros in the place of what was lost, as file
    systems leave it.
    """

    def __init__(self, root: Path) -> None:
        """Take what is there now for synced."""
        self.root = root.resolve()
        self.top = self._read(self.root) if root.exists() else Node(None)
        self.open_files: dict[int, Node | None] = {}

    def note(self, name: str, arguments: tuple[Any, ...], done: Any) -> None:
        """Follow one call that has succeeded."""
        if name == "open":
            self.open_files[done] = self._opened(Path(arguments[0]), arguments[1])
        elif name in ("write", "ftruncate"):
            node = self.open_files.get(arguments[0])
            if node is not None:
                node.size = os.fstat(arguments[0]).st_size
        elif name == "fsync":
            self._sync(arguments[0])
        elif name in ("replace", "rename"):
            self._move(Path(arguments[0]), Path(arguments[1]))
        elif name == "exchange":
            one, other = (self._entry(Path(path)) for path in arguments)
            if one is not None and other is not None:
                one[0][one[1]], other[0][other[1]] = other[0][other[1]], one[0][one[1]]
        elif name == "mkdir":
            entry = self._entry(Path(arguments[0]))
            if entry is not None:
                entry[0][entry[1]] = Node(None)
        elif name in ("unlink", "rmdir"):
            entry = self._entry(Path(arguments[0]))
            if entry is not None:
                entry[0].pop(entry[1], None)

    def write_to(self, folder: Path, fault: Fault) -> None:
        """Write what a power cut leaves: the synced names alone, or all names with the synced contents."""
        self._write(self.top, folder, fault)

    def _write(self, node: Node, path: Path, fault: Fault) -> None:
        if node.content is not None:
            zeros = b"\0" * (node.size - len(node.content))
            path.write_bytes(
                (node.content + zeros)[: node.size] if fault is Fault.POWER_ZEROS else node.content
            )
            return
        path.mkdir(exist_ok=True)
        for name, inside in (node.synced if fault is Fault.POWER else node.entries).items():
            self._write(inside, path / name, fault)

    def _read(self, path: Path) -> Node:
        if not path.is_dir():
            return Node(path.read_bytes())
        node = Node(None)
        node.entries = {inside.name: self._read(inside) for inside in path.iterdir()}
        node.synced = dict(node.entries)
        return node

    def _entry(self, path: Path) -> tuple[dict[str, Node], str] | None:
        """Return the entries of the folder that a path lies in, and its name there; None outside of what we follow."""
        path = Path(os.path.abspath(path))
        if self.root not in path.parents:
            return None
        entries = self.top.entries
        for part in path.parent.relative_to(self.root).parts:
            entries = entries[part].entries
        return entries, path.name

    def _opened(self, path: Path, flags: int) -> Node | None:
        if os.path.abspath(path) == str(self.root):
            return self.top
        entry = self._entry(path)
        if entry is None:
            return None
        entries, name = entry
        if flags & os.O_CREAT and name not in entries:
            entries[name] = Node(b"")
        if flags & os.O_TRUNC:
            entries[name].size = 0
        return entries[name]

    def _sync(self, descriptor: int) -> None:
        node = self.open_files.get(descriptor)
        if node is None:
            return
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            node.synced = dict(node.entries)
            return
        node.content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        node.size = len(node.content)

    def _move(self, source: Path, target: Path) -> None:
        one, other = self._entry(source), self._entry(target)
        if one is not None and other is not None:
            other[0][other[1]] = one[0].pop(one[1])
