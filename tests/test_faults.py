"""The fault suite: it notices a storage that breaks its promises, and ours keeps them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import damage
from benchmarks.faults.__main__ import FAULTS, MEMORY, try_all, try_calls
from benchmarks.faults.commands import Command, chosen_calls
from benchmarks.faults.disk import Fault
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
    try_calls(ledger, [two_files()], base / "trial", calls=None, seed=0)
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


@pytest.mark.parametrize(("count", "most"), [(141, 4), (5, 4), (4, 4), (1, 4), (0, 4)])
def test_a_sample_of_calls_has_its_size_and_spreads_over_all_of_them(count: int, most: int) -> None:
    for seed in range(20):
        chosen = chosen_calls(count, most, seed)
        assert len(chosen) == min(count, most) and all(1 <= at <= count for at in chosen)
        assert chosen == sorted(set(chosen))
        assert all(later - earlier < 2 * -(-count // most) for earlier, later in pairwise(chosen))
    assert chosen_calls(count, None, 0) == list(range(1, count + 1))
    assert {at for seed in range(2000) for at in chosen_calls(count, most, seed)} == set(range(1, count + 1))


@pytest.mark.slow
def test_runs_exports_and_results_survive_kills_power_cuts_full_disks_damage_and_second_writers(
    base: Path,
) -> None:
    ledger = Ledger()
    try_all(ledger, base, calls=3, killed=2, damages=1)
    assert ledger.failures == []
    # How many calls a command makes may change; that every fault strikes every command and every file may not.
    places: dict[str, set[str]] = {}
    for fault, where in ledger.tried:
        places.setdefault(fault, set()).add(where)
    commands, files_of_run = places[Fault.KILL.value], places["damaged file: removed"]
    assert len(commands) == 7 and all(places[fault.value] == commands for fault in FAULTS)
    assert {"config.json", "checkpoint, state.safetensors", "metrics.jsonl"} <= files_of_run
    assert all(places[f"damaged file: {kind}"] == files_of_run for kind in damage.NAMES.values())
    assert {"processes race for a folder", "a second process on the folder"} <= set(places)
    assert sum(count for key, count in ledger.tried.items() if "SIGKILL" in key.fault) == 2
