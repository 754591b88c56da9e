"""The fault suite: it notices a storage that breaks its promises, and ours keeps them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.__main__ import FAULTS, MEMORY, try_all, try_calls
from benchmarks.faults.commands import Command
from benchmarks.faults.ledger import BrokenPromiseError, Ledger
from inbounds.storage import files


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder in memory, where nobody waits for a disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def two_files() -> Command:
    """Write a file and a folder over older ones."""

    def write(folder: Path, content: bytes) -> None:
        files.write_bytes(folder / "file", content)
        files.write_folder(folder / "inner", {"one": [content], "two": [content, content]})

    def contents(folder: Path) -> tuple[bytes, bytes, bytes]:
        one, two = ((folder / "inner" / name).read_bytes() for name in ("one", "two"))
        return (folder / "file").read_bytes(), one, two

    def require_intact(folder: Path, saved: int) -> None:
        file, one, two = contents(folder)
        if file not in (b"old", b"new") or one not in (b"old", b"new") or two != one * 2:
            raise BrokenPromiseError(f"{file!r}, {one!r}, {two!r}")

    def require_result(folder: Path) -> None:
        if contents(folder) != (b"new", b"new", b"newnew"):
            raise BrokenPromiseError(f"{contents(folder)!r}")

    def again(folder: Path) -> None:
        write(folder, b"new")
        require_result(folder)

    return Command(
        "two files",
        lambda folder: write(folder, b"old"),
        lambda folder: write(folder, b"new"),
        require_intact,
        require_result,
        again,
    )


def tried(base: Path) -> Ledger:
    ledger = Ledger()
    try_calls(ledger, [two_files()], base / "trial", stride=1, seed=0)
    return ledger


def test_whole_files_and_folders_survive_every_fault_at_every_call(base: Path) -> None:
    ledger = tried(base)
    assert ledger.failures == [] and ledger.total > 80 and len(ledger.tried) == len(FAULTS)


@contextlib.contextmanager
def in_place(path: Path) -> Iterator[Path]:
    """Write as `open(path, "w")` does."""
    with files.told(path):
        files.make_folder(path.parent)
        yield path


def emptied_first(part: Path, target: Path) -> None:
    files.remove_tree(target)
    files.os.rename(part, target)


def untold(path: Path, *words: str, **others: str) -> Any:
    return contextlib.nullcontext()


@pytest.mark.parametrize(
    ("broken", "by", "fault"),
    [
        ("replacing", in_place, "kill -9 inside a write"),
        ("sync", lambda path, mode=None: None, "power cut, unsynced data zero"),
        ("sync_folder", lambda path: None, "power cut, unsynced names lost"),
        ("_put_in_place", emptied_first, "kill -9 before the call"),
        ("told", untold, "disk full (ENOSPC)"),
    ],
    ids=["in place", "file not synced", "folder not synced", "removed before", "error not told"],
)
def test_the_suite_notices_a_storage_that_breaks_a_promise(
    broken: str, by: Callable[..., Any], fault: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, broken, by)
    assert any(fault in failure for failure in tried(base).failures)


@pytest.mark.slow
def test_runs_exports_and_results_survive_kills_power_cuts_full_disks_damage_and_second_writers(
    base: Path,
) -> None:
    ledger = Ledger()
    try_all(ledger, base, stride=40, killed=2, damages=1)
    assert ledger.failures == [] and ledger.total > 300
