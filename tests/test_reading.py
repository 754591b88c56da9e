"""Files that anybody may have changed: read as what they should be, or refused in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from inbounds.errors import CheckpointError, InvalidInputError
from inbounds.reading import (
    COUNT,
    DEEPEST,
    FINITE,
    LARGEST,
    NUMBER,
    Each,
    Several,
    Whole,
    mismatch,
    read_object,
    require_name,
)
from inbounds.storage.logs import read_rows

REMEDY = "Restore it."


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file.json"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b'{"a": "\xff"}', "utf-8"),
        (b"\xfe\xff\x00{\x00}", "utf-8"),
        (b"[1]", "a list instead of an object"),
        (b"null", "null instead of an object"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * (DEEPEST + 2) + b"]" * (DEEPEST + 2), "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "digits"),
    ],
)
def test_a_file_that_is_no_object_is_refused_with_its_path_the_reason_and_the_remedy(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InvalidInputError, match=words) as refused:
        read_object(path, REMEDY)
    assert str(refused.value).startswith(f"{path} is damaged") and str(refused.value).endswith(REMEDY)


def test_an_object_is_returned_whole_and_may_be_nested(tmp_path: Path) -> None:
    data: Any = 1
    for _ in range(DEEPEST - 1):
        data = {"a": data}
    assert read_object(written(tmp_path, json.dumps(data).encode()), REMEDY) == data


def test_a_file_without_end_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        read_object(path, REMEDY)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        list(read_rows(path))
    with open(tmp_path / "large", "wb") as handle:
        handle.truncate(LARGEST + 1)
    with pytest.raises(InvalidInputError, match="at most"):
        read_object(tmp_path / "large", REMEDY)


def test_a_missing_file_is_the_callers_business_and_a_missing_log_has_no_rows(tmp_path: Path) -> None:
    file = written(tmp_path, b"{}")
    for path in (tmp_path / "nowhere.json", file / "below.json"):
        with pytest.raises(FileNotFoundError):
            read_object(path, REMEDY)
        assert list(read_rows(path)) == []


def test_a_file_that_the_system_refuses_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = written(tmp_path, b"{}")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(CheckpointError, match=r"cannot be read \(Permission denied\)\. Make it readable"):
        read_object(path, REMEDY, error=CheckpointError)


@pytest.mark.parametrize("line", [b'{"step": 2', b"\xff", b"[]", b'{"step": "two"}', b'{"stop": 2}', b""])
def test_a_damaged_line_of_a_log_is_named_by_its_number(line: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    rows = read_rows(path, {"step": COUNT})
    assert next(rows) == {"step": 1}
    with pytest.raises(InvalidInputError, match=rf"^line 2 of {path} is damaged .*\. Remove the line"):
        next(rows)


@pytest.mark.parametrize(
    ("data", "shape", "wrong"),
    [
        ({"a": 1}, {"a": COUNT}, None),
        ({"a": 1, "other": []}, {"a": COUNT, "b?": str}, None),
        ({}, {"a": COUNT}, "'a' is missing"),
        ({"a": {"b": []}}, {"a": {"b": COUNT}}, "'a.b' is a list instead of a whole number"),
        ({"a": {"b": 1}}, {"a": {"b?": str}}, "'a.b' is 1 instead of a text"),
        ([], {"a": COUNT}, "it is a list instead of an object"),
        (True, COUNT, "it is true instead of a whole number"),
        (1.5, COUNT, "it is 1.5 instead of a whole number"),
        (-1, COUNT, "from 0 to"),
        (10**400, Whole(0), "a number too large"),
        (None, (FINITE, None), None),
        ("x", (FINITE, None), "a text instead of a finite number"),
        (float("nan"), FINITE, "nan instead of a finite number"),
        (1e308, FINITE, "a number too large instead of a finite number"),
        (float("inf"), NUMBER, None),
        ([1, 2.5], [FINITE], None),
        ([1, float("nan")], [FINITE], "'1' is nan instead of a finite number"),
        ([1, True], [FINITE], "'1' is true"),
        ([1.0, None], [(FINITE, None)], None),
        ({"a": [[1.0], ["x"]]}, {"a": [[FINITE]]}, "'a.1.0' is a text"),
        ({"a": (1, 2)}, {"a": Several(FINITE, 2)}, None),
        ({"a": [1]}, {"a": Several(FINITE, 2)}, "'a' has 1 entries instead of 2"),
        ({"a": 1, "b": "x"}, Each(FINITE), "'b' is a text"),
        ([1], Each(FINITE), "a list instead of an object"),
    ],
)
def test_a_shape_names_the_first_part_that_is_wrong(data: Any, shape: Any, wrong: str | None) -> None:
    found = mismatch(data, shape)
    assert found is None if wrong is None else found is not None and wrong in found


@pytest.mark.parametrize("name", ["reacher-aram-default", "penalty-0.05", "a", "7z"])
def test_a_name_of_letters_digits_dots_and_hyphens_is_one(name: str) -> None:
    assert require_name(name, "it", REMEDY) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/etc/x", "a\\b", ".hidden", "a..b", "-a", "a-", "a b", "A", "a\n"),
        *("a\x00b", "ä", "a" * 201, 7, None, ["a"]),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="small letters and digits"):
        require_name(name, "cell.json", REMEDY)
