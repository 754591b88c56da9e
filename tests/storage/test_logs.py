"""Logs: lines are whole, a torn end is dropped, damage in the middle is named."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from inbounds.errors import InvalidInputError, StorageError
from inbounds.storage import logs
from inbounds.storage.logs import append_rows, cut_log, read_rows


def log_of(tmp_path: Path, end: bytes = b"") -> Path:
    path = tmp_path / "metrics.jsonl"
    path.unlink(missing_ok=True)
    append_rows(path, [{"step": 10, "seed": 0}, {"step": 10, "seed": 1}])
    append_rows(path, [{"step": 20, "seed": 0}])
    with open(path, "ab") as handle:
        handle.write(end)
    return path


TORN = [b'{"step": 30, "se', b"\0\0\0\0", b"\xff\xfe", b"["]


@pytest.mark.parametrize("end", TORN)
def test_a_torn_last_line_is_not_there_for_readers(end: bytes, tmp_path: Path) -> None:
    assert [row["step"] for row in read_rows(log_of(tmp_path, end))] == [10, 10, 20]


@pytest.mark.parametrize("end", [*TORN, b"{]\n", b"damaged\nand more\n", b'{"seed": 0}\n', b"[1]\n"])
def test_a_run_that_goes_on_drops_the_damaged_end_of_its_log(end: bytes, tmp_path: Path) -> None:
    path = log_of(tmp_path, end)
    assert cut_log(path, 20) == end.strip(b"\n").count(b"\n") + 1
    cut = path.read_bytes()
    assert cut == log_of(tmp_path).read_bytes()


def test_a_last_line_that_lacks_nothing_but_its_end_is_a_row(tmp_path: Path) -> None:
    path = log_of(tmp_path, b'{"step": 30}')
    assert [row["step"] for row in read_rows(path)][-1] == 30
    assert cut_log(path, 30) == 0
    append_rows(path, [{"step": 40}])
    assert [row["step"] for row in read_rows(path)][-2:] == [30, 40]


def test_a_log_is_cut_after_a_step(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    assert cut_log(path, 10) == 0
    assert [row["seed"] for row in read_rows(path)] == [0, 1]


@pytest.mark.parametrize("line", [b"damaged", b"\xff\xfe", b"[" * 100_000, b"7"])
def test_damage_in_the_middle_is_named_and_not_passed_over(line: bytes, tmp_path: Path) -> None:
    path = log_of(tmp_path, line + b'\n{"step": 30}\n')
    with pytest.raises(InvalidInputError, match=r"line 4 of .*metrics.jsonl is damaged .*Remove the line"):
        list(read_rows(path))
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"line 4 of .*metrics.jsonl is damaged"):
        cut_log(path, 30)
    assert path.read_bytes() == before


def test_a_full_disk_adds_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, written = log_of(tmp_path), os.write
    before = path.read_bytes()

    def half(descriptor: int, content: bytes) -> int:
        monkeypatch.setattr(logs.os, "write", full)
        return written(descriptor, content[: len(content) // 2])

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(logs.os, "write", half)
    with pytest.raises(StorageError, match="Free some disk space"):
        append_rows(path, [{"step": 30, "seed": 0}])
    assert path.read_bytes() == before


def test_no_log_has_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(tmp_path / "none")) == [] and cut_log(tmp_path / "none", 5) == 0
    assert not (tmp_path / "none").exists()
