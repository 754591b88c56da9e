"""Files of arrays that know when they are damaged, or lie beside a description that is not theirs.

A safetensors file holds no code. Its metadata carries two checksums here: of the arrays, and of the plain data
that gives them their meaning (a run's configuration, a checkpoint's notes).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from inbounds.errors import CheckpointError

SEAL = "inbounds-1"
LARGEST_JSON = 64 * 2**20
"""Bytes; a longer description is refused unread."""
DAMAGE = (
    *(OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError),
    *(OverflowError, MemoryError, RecursionError),
)
"""What reading a file that is not what it should be may raise."""


def write_sealed(path: Path, arrays: Mapping[str, NDArray[Any]], meaning: Any) -> None:
    """Write arrays with the checksums of themselves and of the plain data that they belong to."""
    # One entry alone: the order of several would differ from run to run, and with it the bytes of the file.
    save_file(dict(arrays), path, metadata={"seal": " ".join(_seal(arrays, meaning))})


def read_sealed(path: Path, meaning: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, or refuse it whole.

    A file without any metadata was written before there were seals, and is read as it is; damage cannot turn a
    sealed file into such a one.
    """
    try:
        with safe_open(path, framework="numpy") as opened:
            found = opened.metadata()
            arrays = {name: np.asarray(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
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
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes, which no description needs. Restore it."
            )
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:  # a file was given in place of its folder
        raise FileNotFoundError(str(error)) from error
    except DAMAGE as error:
        raise CheckpointError(
            f"{path} is not readable as JSON ({error}). Restore it or train again."
        ) from error
    if not isinstance(read, dict):
        raise CheckpointError(f"{path} holds a {type(read).__name__} instead of an object. Restore it.")
    return read


def meaning_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's configuration says about acting; how long it trains may change when it is resumed."""
    training = config.get("training")
    seeds = (
        {name: training.get(name) for name in ("seed", "seeds")} if isinstance(training, Mapping) else None
    )
    names = ("task", "observation_size", "action_low", "action_high", "constraint", "learner")
    meaning = {**{name: config.get(name) for name in names}, "training": seeds}
    start = config.get("starting_action")
    # One for all states is in the network; runs that say nothing of it are older, and sealed without it.
    return {**meaning, "starting_action": start} if isinstance(start, Mapping) else meaning


def _seal(arrays: Mapping[str, NDArray[Any]], meaning: Any) -> tuple[str, str, str]:
    content = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        content.update(f"{name} {array.dtype.str} {np.shape(arrays[name])} ".encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    described = json.dumps(meaning, sort_keys=True, separators=(",", ":"), default=_plain).encode()
    return SEAL, content.hexdigest(), hashlib.sha256(described).hexdigest()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
