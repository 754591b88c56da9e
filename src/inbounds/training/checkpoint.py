"""Checkpoints: one safetensors file and its JSON, written atomically, holding nothing that could be executed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from inbounds.deploy.sealed_arrays import read_json, read_sealed, write_sealed
from inbounds.errors import CheckpointError

FORMAT = 3
ARRAYS, NOTES = "state.safetensors", "notes.json"


def flatten(tree: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of nested dicts, tuples and NamedTuples under names that spell their way there."""
    if isinstance(tree, Mapping):
        items = [(str(name), value) for name, value in tree.items()]
    elif hasattr(tree, "_asdict"):
        items = list(tree._asdict().items())
    elif isinstance(tree, tuple | list):
        items = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {prefix: np.asarray(_plain(tree), order="C")}
    flat: dict[str, NDArray[Any]] = {}
    for name, value in items:
        flat |= flatten(value, f"{prefix}/{name}" if prefix else name)
    return flat


def fill(template: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Return a tree shaped like `template` with the arrays of `flatten`, refusing any that does not fit."""
    if isinstance(template, Mapping):
        return {
            name: fill(value, arrays, f"{prefix}/{name}" if prefix else str(name))
            for name, value in template.items()
        }
    if hasattr(template, "_asdict"):
        parts = {
            name: fill(value, arrays, f"{prefix}/{name}" if prefix else name)
            for name, value in template._asdict().items()
        }
        return type(template)(**parts)
    if isinstance(template, tuple | list):
        return type(template)(
            fill(value, arrays, f"{prefix}/{index}" if prefix else str(index))
            for index, value in enumerate(template)
        )
    if prefix not in arrays:
        raise CheckpointError(
            f"the checkpoint lacks '{prefix}'. It belongs to another learner, task or version."
        )
    found = arrays[prefix]
    is_key = _is_key(template)
    template = _plain(template)
    wanted = (
        (tuple(template.shape), np.dtype(template.dtype))
        if hasattr(template, "shape")
        else ((), np.asarray(template).dtype)
    )
    if (found.shape, found.dtype) != wanted:
        raise CheckpointError(
            f"'{prefix}' is {found.dtype}{list(found.shape)} in the checkpoint, but {wanted[1]}{list(wanted[0])} is "
            f"expected. It belongs to another learner, task or configuration."
        )
    return jax.random.wrap_key_data(jax.numpy.asarray(found)) if is_key else found


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    """Return the raw words of a random key, and anything else as it is."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def nest(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, Any]:
    """Return the arrays below a prefix as nested dicts, for parts whose shape is not known beforehand."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        if not name.startswith(prefix + "/"):
            continue
        *path, leaf = name[len(prefix) + 1 :].split("/")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = array
    return tree


def write_checkpoint(folder: Path, step: int, tree: Any, notes: Mapping[str, Any], keep: int) -> Path:
    """Write a checkpoint under a temporary name, then rename it: a crash leaves the last good one untouched."""
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"step-{step:012d}", folder / f".writing-{step:012d}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        written = json.dumps({"format": FORMAT, "step": step, **notes}, indent=1)
        (temporary / NOTES).write_text(written)
        write_sealed(temporary / ARRAYS, flatten(tree), json.loads(written))
        for name in (ARRAYS, NOTES):
            with open(temporary / name, "rb+") as handle:
                os.fsync(handle.fileno())
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"could not write the checkpoint of step {step} ({error}). The previous one is intact; free some disk "
            f"space and resume."
        ) from error
    for old in sorted(folder.glob("step-*"))[: -max(keep, 1)]:
        shutil.rmtree(old)
    return final


def latest_checkpoint(folder: Path) -> Path:
    """Return the newest complete checkpoint of a run."""
    found = sorted(folder.glob("step-*"))
    if not found:
        raise CheckpointError(f"{folder} holds no checkpoint. Train the run first, or give its folder.")
    return found[-1]


def read_checkpoint(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and notes of a checkpoint; a damaged or foreign file is refused whole."""
    try:
        notes = read_json(path / NOTES)
        arrays = read_sealed(path / ARRAYS, notes)
    except (FileNotFoundError, CheckpointError) as error:
        raise CheckpointError(
            f"{path.name} cannot be read ({error}). It is truncated or not a checkpoint; use an older one."
        ) from error
    if notes.get("format") != FORMAT:
        raise CheckpointError(
            f"{path.name} has another format than {FORMAT}. Resume it with the version that wrote it."
        )
    return arrays, notes


def as_device_tree(tree: Any) -> Any:
    """Move a tree of numpy arrays to the device."""
    return jax.tree.map(jax.numpy.asarray, tree)
