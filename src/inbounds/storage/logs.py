"""Logs: files of JSON, one object per line, that only grow; a line is whole or is not there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inbounds.errors import InvalidInputError
from inbounds.reading import COUNT, Shape, contents, parsed_object
from inbounds.storage.files import plain, sync, sync_folder, told, write_all, write_pieces

STEP = {"step": COUNT}
"""What every row of a run's logs has."""


def append_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add lines to a log; where there is no room for all of them, none is added."""
    content = "".join(json.dumps(row, default=plain) + "\n" for row in rows).encode()
    with told(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            before = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, content)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)


def sync_log(path: Path) -> None:
    """Wait until all lines of a log are on the disk, if there is such a log."""
    if path.exists():
        with told(path):
            sync(path)
            sync_folder(path.parent)


def read_rows(path: Path, shape: Shape = dict) -> Iterator[dict[str, Any]]:
    """Return the objects of a log, one per line, and name a damaged line. A missing log has none.

    A last line without its end is still being written, or its writer was killed: it is left out.
    """
    lines = _lines(path)
    for number, line in enumerate(lines, start=1):
        try:
            yield parsed_object(
                line, f"line {number} of {path}", "Remove the line, or resume the run.", shape
            )
        except InvalidInputError:
            if number == len(lines) and not line.endswith(b"\n"):
                return
            raise


def cut_log(path: Path, last: int) -> int:
    """Keep the rows up to a step, for a run that goes on there; return how many damaged lines were dropped, too.

    A damaged line is only dropped where no row behind it is kept: in the middle of a log, a row would be missing.
    """
    lines = _lines(path)
    kept: list[bytes] = []
    damaged: list[int] = []
    for number, line in enumerate(lines, start=1):
        try:
            is_kept = parsed_object(line, f"line {number} of {path}", "Remove it.", STEP)["step"] <= last
        except InvalidInputError:
            damaged.append(number)
            continue
        if is_kept and damaged:
            raise InvalidInputError(
                f"line {damaged[0]} of {path} is damaged, and rows behind it belong to the run. Remove the line and "
                f"resume again."
            )
        if is_kept:
            kept.append(line.removesuffix(b"\n") + b"\n")
    if kept != lines:
        write_pieces(path, kept)
    return len(damaged)


def log_checksum(path: Path) -> str:
    """Return the SHA-256 of a log; one that is not there is empty."""
    return hashlib.sha256(b"".join(_lines(path))).hexdigest()


def _lines(path: Path) -> list[bytes]:
    try:
        content = contents(path, InvalidInputError, most=None)
    except FileNotFoundError:
        return []
    *whole, rest = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
