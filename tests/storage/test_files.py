"""Whole files and folders: what was there stays until the new content is complete, whatever goes wrong on the way."""

from __future__ import annotations

import ast
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import inbounds
from inbounds.errors import StorageError
from inbounds.storage import files
from inbounds.storage.files import (
    make_folder,
    remove_folder,
    remove_parts,
    replacing,
    write_bytes,
    write_folder,
    write_json,
    write_text,
)

PACKAGE = Path(inbounds.__file__).parent


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let one kind of system call fail."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, name, refuse)


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free some disk space"),
        (errno.EACCES, "Make it accessible"),
        (errno.EFBIG, "Raise the largest size .*ulimit -f"),
    ],
)
def test_a_file_that_cannot_be_written_stays_what_it_was_and_the_error_says_what_to_do(
    call: str, number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "config.json", "before")
    failing(monkeypatch, call, number)
    with pytest.raises(StorageError, match=f"config.json could not be written .*unchanged. {remedy}"):
        write_text(tmp_path / "config.json", "after")
    assert (tmp_path / "config.json").read_text() == "before" and names_in(tmp_path) == ["config.json"]


def test_a_file_is_synced_before_it_gets_its_name_and_the_folder_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def noted_replace(source: Path, target: Path) -> None:
        order.append("name")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", noted_sync)
    monkeypatch.setattr(files.os, "replace", noted_replace)
    write_bytes(tmp_path / "policy.safetensors", b"numbers")
    assert order == ["file", "name", "folder"]


def test_new_files_have_the_mode_that_the_users_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "policy.safetensors", b"numbers")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "policy.safetensors").stat().st_mode) == 0o640


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    write_text(tmp_path / "config.json", "before")
    (tmp_path / "config.json").chmod(0o600)
    write_text(tmp_path / "config.json", "after")
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600


def test_a_file_that_is_protected_against_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "config.json", "before")
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)  # as for any user but root
    with pytest.raises(StorageError, match="Make it accessible"):
        write_text(tmp_path / "config.json", "after")
    assert (tmp_path / "config.json").read_text() == "before"


def test_a_link_keeps_its_place_and_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_text(tmp_path / "elsewhere" / "page.html", "before")
    (tmp_path / "page.html").symlink_to(tmp_path / "elsewhere" / "page.html")
    write_text(tmp_path / "page.html", "after")
    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "elsewhere" / "page.html").read_text() == "after"


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "page")
    assert os.read(reader, 100) == b"page" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)


def test_pieces_of_all_sizes_arrive_in_order_and_small_ones_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GATHERED", 10)
    calls: list[int] = []
    usual = os.write
    monkeypatch.setattr(files.os, "write", lambda to, what: (calls.append(len(what)), usual(to, what))[1])
    pieces = [b"a" * size for size in (3, 4, 0, 3, 1, 25, 11, 9, 2)]
    pieces = [bytes([65 + place]) * len(piece) for place, piece in enumerate(pieces)]
    files.write_pieces(tmp_path / "file", pieces)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)
    assert calls == [10, 1, 25, 11, 9, 2]


def test_an_error_while_somebody_else_writes_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "film.gif") as part:
        part.write_bytes(b"half")
        raise KeyboardInterrupt
    assert names_in(tmp_path) == []


def test_folders_are_made_on_the_way_and_a_file_in_their_place_is_told(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "b" / "c.json", {"path": tmp_path})
    assert (tmp_path / "a" / "b" / "c.json").exists()
    with pytest.raises(StorageError, match="hoose another place"):
        make_folder(tmp_path / "a" / "b" / "c.json" / "d")
    with pytest.raises(StorageError, match="directory"):
        write_text(tmp_path / "a", "a file")


def old_and_new(tmp_path: Path) -> Callable[[], None]:
    target = tmp_path / "exported"
    write_folder(target, {"policy.json": [b"before"], "policy.onnx": [b"old ", b"graph"]})
    return lambda: write_folder(target, {"policy.json": [b"after"]})


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    old_and_new(tmp_path)()
    assert names_in(tmp_path) == ["exported"] and names_in(tmp_path / "exported") == ["policy.json"]
    assert (tmp_path / "exported" / "policy.json").read_bytes() == b"after"


def test_a_folder_is_replaced_where_the_system_cannot_exchange_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = old_and_new(tmp_path)

    def refuse(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(files, "exchange", refuse)
    write()
    assert names_in(tmp_path) == ["exported"] and names_in(tmp_path / "exported") == ["policy.json"]


@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync"])
def test_a_folder_that_cannot_be_written_stays_what_it_was(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = old_and_new(tmp_path)
    failing(monkeypatch, call, errno.ENOSPC)
    with pytest.raises(StorageError, match="Free some disk space"):
        write()
    assert names_in(tmp_path) == ["exported"]
    assert (tmp_path / "exported" / "policy.onnx").read_bytes() == b"old graph"


def test_a_folder_loses_its_name_before_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "step", {"a": [b"1"], "b": [b"2"]})
    failing(monkeypatch, "unlink", errno.EACCES)
    remove_folder(tmp_path / "step")
    (left,) = names_in(tmp_path)
    assert left.startswith(".step.") and left.endswith(".part")
    monkeypatch.undo()
    remove_parts(tmp_path)
    assert names_in(tmp_path) == []


def test_only_unfinished_files_of_the_names_told_are_removed(tmp_path: Path) -> None:
    for name in (".config.json.0123abcd.part", ".evaluation.json.0123abcd.part", "config.json", ".part"):
        (tmp_path / name).touch()
    remove_parts(tmp_path, ["config.json"])
    assert names_in(tmp_path) == [".evaluation.json.0123abcd.part", ".part", "config.json"]


WRITERS = {
    "write_text",
    "write_bytes",
    "savez",
    "savez_compressed",
    "save_file",
    "mkdir",
    "makedirs",
    "touch",
}
ELSEWHERE = {
    ("experiments/runner.py", "open"): "the output of a worker, written by the process itself",
    ("cli/terminal.py", "open"): "the null device",
}


def writing_calls(path: Path) -> set[str]:
    """Return the names of calls that write a file by other means than `storage`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function, is_method = node.func, isinstance(node.func, ast.Attribute)
        name = function.attr if is_method else getattr(function, "id", "")
        if is_method and name in WRITERS:
            found.add(name)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [
            one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        is_file = name in ("open", "fdopen") and any(
            set(mode) & set("wax+") and set(mode) <= set("rwabtx+") for mode in modes
        )
        is_system = is_method and name == "open" and "O_WRONLY" in ast.unparse(node)
        is_dumped = name == "dump" and ast.unparse(function) in ("json.dump", "pickle.dump", "np.save")
        if is_file or is_system or is_dumped:
            found.add(name)
    return found


def test_every_file_of_the_package_is_written_by_the_storage() -> None:
    others = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "storage"]
    called = {(str(path.relative_to(PACKAGE)), call) for path in others for call in writing_calls(path)}
    assert called - ELSEWHERE.keys() == set()
    assert ELSEWHERE.keys() - called == set()  # an exception that nobody needs is taken away


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    files.write_folder(tmp_path / "first", {"content": [b"old"]})
    (tmp_path / "current").symlink_to(tmp_path / "first")
    files.write_folder(tmp_path / "current", {"content": [b"new"]})
    assert (tmp_path / "current").is_symlink() and (tmp_path / "first" / "content").read_bytes() == b"new"


@pytest.mark.parametrize("name", [".", "../here"])
def test_the_working_directory_is_not_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(StorageError, match=r"is the working directory.*Name a folder in it"):
        files.write_folder(name, {"content": [b"new"]})
