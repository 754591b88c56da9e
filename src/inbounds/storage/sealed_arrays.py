"""Files of arrays that know when they are damaged, or lie beside a description that is not theirs.

A safetensors file holds no code. Its metadata carries two checksums here: of the arrays, and of the plain data
that gives them their meaning (a run's configuration, a checkpoint's notes).
"""

from __future__ import annotations

import hashlib
import json
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from inbounds.errors import CheckpointError, remedy_of
from inbounds.reading import read_object
from inbounds.storage.files import Piece, write_pieces

Arrays = Mapping[str, NDArray[Any]]

SEAL = "inbounds-1"
POLICY_FILES = {"last": "policy.safetensors", "best": "best.safetensors"}
"""In a run folder: the last policy, and that of each seed's best evaluation."""
KINDS = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL"},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
"""What safetensors calls the kinds of numbers."""
DAMAGE = (
    *(SafetensorError, KeyError, TypeError, ValueError, AttributeError),
    *(OverflowError, MemoryError, RecursionError),
)
"""What reading a file that is not what it should be may raise."""


def write_sealed(path: Path, arrays: Arrays, meaning: Any) -> None:
    """Write arrays with the checksums of themselves and of the plain data that they belong to."""
    write_pieces(path, sealed_pieces(arrays, meaning))


def sealed_pieces(arrays: Arrays, meaning: Any) -> Iterator[Piece]:
    """Return the parts of the same file; arrays are not copied, and may be larger than what memory is left."""
    # One entry alone: the order of several would differ from run to run, and with it the bytes of the file.
    return array_pieces(arrays, {"seal": " ".join(_seal(arrays, meaning))})


def array_pieces(arrays: Arrays, metadata: Mapping[str, str] | None = None) -> Iterator[Piece]:
    """Return the parts of a safetensors file: length of the header, header, and the arrays, widest numbers first."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": KINDS[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of the widest number
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        yield _content(arrays[name])


def read_sealed(path: Path, meaning: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, or refuse it whole.

    A file without any metadata was written before there were seals, and is read as it is; damage cannot turn a
    sealed file into such a one.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            raise CheckpointError(
                f"{path} is not a regular file. Remove it and restore the file of that name."
            )
        with open(path, "rb"):
            pass  # safe_open takes every refusal of the system for a missing file
        with safe_open(path, framework="numpy") as opened:
            found = opened.metadata()
            arrays = {name: np.asarray(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror or error}). {remedy_of(error)}"
        ) from error
    except DAMAGE as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). It is truncated or damaged; restore it or train again."
        ) from error
    if not found:
        return arrays
    seal, wanted = tuple(found.get("seal", "").split()), _seal(arrays, meaning)
    if seal != wanted:
        is_foreign = seal[:2] == wanted[:2]
        why = "belongs to another run or task than the description beside it" if is_foreign else "is damaged"
        raise CheckpointError(f"{path} {why}: its checksums differ. Restore the whole folder or train again.")
    return arrays


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or refuse the file."""
    return read_object(path, "Restore it or train again.", error=CheckpointError)


def meaning_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's configuration says about acting; how long it trains may change when it is resumed."""
    training = config.get("training")
    seeds = (
        {name: training.get(name) for name in ("seed", "seeds")} if isinstance(training, Mapping) else None
    )
    names = ("task", "observation_size", "action_low", "action_high", "constraint", "learner", "head")
    return {**{name: config.get(name) for name in names}, "training": seeds}


def checksum(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def checksum_of_json(data: Any) -> str:
    """Return the SHA-256 of plain data, whatever its order and layout."""
    return checksum(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def _seal(arrays: Arrays, meaning: Any) -> tuple[str, str, str]:
    content = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content.update(f"{name} {array.dtype.str} {np.shape(arrays[name])} ".encode())
        content.update(_content(array))
    described = json.dumps(meaning, sort_keys=True, separators=(",", ":"), default=_plain).encode()
    return SEAL, content.hexdigest(), hashlib.sha256(described).hexdigest()


def _content(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
