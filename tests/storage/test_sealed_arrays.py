"""Files of arrays: what is written is what others read, without a copy in memory."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from inbounds.errors import CheckpointError
from inbounds.storage.sealed_arrays import KINDS, array_pieces, read_json, read_sealed, write_sealed

ARRAYS = {
    **{f"of {kind}": np.arange(6).reshape(2, 3).astype(kind) for kind in KINDS},
    "number": np.asarray(3.0),
    "empty": np.zeros((0, 4), np.float32),
    "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    "ünïcode": np.ones(1, np.uint8),
}


def test_every_kind_of_number_and_shape_comes_back(tmp_path: Path) -> None:
    write_sealed(tmp_path / "file", ARRAYS, {"task": "probe"})
    for found in (load_file(tmp_path / "file"), read_sealed(tmp_path / "file", {"task": "probe"})):
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)


def test_large_arrays_are_not_copied() -> None:
    array = np.zeros(1000, np.float32)
    _, content = array_pieces({"weights": array})
    assert np.shares_memory(np.frombuffer(content, np.float32), array)


@pytest.mark.parametrize("levels", [99, 102, 900, 100_000])
def test_a_description_nested_too_deep_is_refused(levels: int, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":' * levels + "1" + "}" * levels)
    if levels < 100:
        assert json.dumps(read_json(path)).count("a") == levels
        return
    with pytest.raises(CheckpointError, match="nested too deeply"):
        read_json(path)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"not a regular file\. Remove it"):
        read_sealed(tmp_path / "file", {})


def test_a_file_that_is_not_there_is_told_apart_from_one_that_may_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its reader, safetensors, it is not: both are missing files to it."""
    with pytest.raises(FileNotFoundError):
        read_sealed(tmp_path / "file", {})
    write_sealed(tmp_path / "file", ARRAYS, {})

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CheckpointError, match=r"cannot be read \(Permission denied\)\. Make it accessible"):
        read_sealed(tmp_path / "file", {})
