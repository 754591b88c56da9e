"""Checkpoints: one safetensors file and its JSON, written atomically, holding nothing that could be executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError, DamagedCheckpointError, StorageError, is_refusal
from inbounds.policies.acceptance import Draw
from inbounds.storage.files import remove_folder, write_folder
from inbounds.storage.sealed_arrays import read_json, read_sealed, sealed_pieces
from inbounds.tasks.compiled_gymnasium import is_key
from inbounds.training.compiled_collector import CompiledCollector
from inbounds.training.host_collector import HostCollector, Pending
from inbounds.training.program import Exchange
from inbounds.training.record import CHECKPOINT, checkpoints_in, step_of

FORMAT = 4
ARRAYS, NOTES = "state.safetensors", "notes.json"


def flatten(tree: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of a tree by their paths, such as `learner/params/actor/0/weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(_plain(leaf), order="C") for path, leaf in leaves}


def fill(template: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Return a tree like `template` with the arrays of `flatten` below a prefix; refuse those that do not fit."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _fitting(leaf, arrays, "/".join(filter(None, [prefix, _name(path)]))), template
    )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _fitting(template: Any, arrays: Mapping[str, NDArray[Any]], name: str) -> Any:
    """Return the array of that name if it has the type and shape of the template."""
    if name not in arrays:
        raise CheckpointError(
            f"the checkpoint lacks '{name}'. It belongs to another learner, task or version."
        )
    found, plain = arrays[name], _plain(template)
    wanted = (np.shape(plain), np.dtype(plain.dtype) if hasattr(plain, "dtype") else np.asarray(plain).dtype)
    if (found.shape, found.dtype) != wanted:
        raise CheckpointError(
            f"'{name}' is {found.dtype}{list(found.shape)} in the checkpoint, but {wanted[1]}{list(wanted[0])} is "
            f"expected. It belongs to another learner, task or configuration."
        )
    return jax.random.wrap_key_data(jax.numpy.asarray(found)) if is_key(template) else found


def _plain(leaf: Any) -> Any:
    """Return the raw words of a random key, and anything else as it is."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


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
    """Write a checkpoint whole or not at all, then remove all but the newest `keep` up to it."""
    final = folder / f"step-{step:012d}"
    written = json.dumps({"format": FORMAT, "step": step, **notes}, indent=1)
    try:
        write_folder(
            final, {NOTES: [written.encode()], ARRAYS: sealed_pieces(flatten(tree), json.loads(written))}
        )
    except StorageError as error:
        raise CheckpointError(
            f"the checkpoint of step {step} could not be written: {error} Then resume the run in {folder.parent} "
            f"(`--resume`, or `resume=True`), whose older checkpoints are intact."
        ) from error
    # One of a later step is damaged, or the run would have gone on from it; it will be written again.
    until_now = [path for path in checkpoints_in(folder) if step_of(path) <= step]
    for old in until_now[: -max(keep, 1)]:
        remove_folder(old)
    return final


class Checkpoint(NamedTuple):
    """What a checkpoint holds, and where it lies."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any]


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint:
    """Return the newest checkpoint that can be read, telling about those that cannot."""
    found = checkpoints_in(folder)
    if not found:
        raise CheckpointError(f"{folder} holds no checkpoint. Train the run first, or give its folder.")
    damaged: list[str] = []
    for path in reversed(found):
        try:
            read = read_checkpoint(path)
        except DamagedCheckpointError as error:
            damaged.append(str(error))
            continue
        for told in damaged:
            warn(f"{told} The run goes on from {path.name} instead.")
        return read
    raise CheckpointError(
        f"none of the {len(found)} checkpoint(s) in {folder} can be read: {damaged[0]} Restore one from a copy; or "
        f"remove {folder} and resume, and the run begins again."
    )


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the arrays and notes of a checkpoint; a damaged or foreign file is refused whole."""
    try:
        notes = read_json(path / NOTES)
        arrays = read_sealed(path / ARRAYS, notes)
    except (FileNotFoundError, CheckpointError) as error:
        if is_refusal(error.__cause__):
            raise  # going on from an older one would throw away what may be whole
        raise DamagedCheckpointError(
            f"{path.name} cannot be read ({error}). It is truncated or not a checkpoint."
        ) from error
    if notes.get("format") != FORMAT:
        raise CheckpointError(
            f"{path.name} has another format than {FORMAT}. Resume it with the version that wrote it."
        )
    if CHECKPOINT.fullmatch(path.name) and notes.get("step") != step_of(path):
        raise DamagedCheckpointError(f"{path.name} is of step {notes.get('step')!r} and was renamed.")
    return Checkpoint(path, arrays, notes)


def as_device_tree(tree: Any) -> Any:
    """Move a tree of numpy arrays to the device."""
    return jax.tree.map(jax.numpy.asarray, tree)


def collector_state(collector: HostCollector | CompiledCollector) -> dict[str, Any]:
    """Return everything that a resumed run needs: environments, the open step, contexts and running returns."""
    if isinstance(collector, CompiledCollector):
        return {"world": collector.world}
    environments = collector.environments.save()
    saved: dict[str, Any] = {
        "turn": np.asarray(collector.turn),
        "exchange": collector.exchange._asdict(),
        "context": collector.context,
        "returns": collector.returns,
        "lengths": collector.lengths,
    }
    if collector.pending is not None:
        saved["pending"] = {
            "observation": collector.pending.observation,
            "draw": collector.pending.draw._asdict(),
            "exchange": collector.pending.exchange._asdict(),
        }
    if environments is not None:
        saved["environments"] = environments
        saved["seen"] = collector.seen
    return saved


def restore_collector(
    collector: HostCollector | CompiledCollector, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Go back to what `collector_state` returned; environments that cannot be saved start a new episode."""
    collector.start()
    if isinstance(collector, CompiledCollector):
        collector.world = as_device_tree(fill(collector.world, arrays, "collector/world"))
        return
    saved = nest(arrays, "collector")
    try:
        collector.turn = int(saved["turn"])
        collector.exchange = Exchange(**as_device_tree(saved["exchange"]))
        collector.context = jnp.asarray(saved["context"])
        collector.returns, collector.lengths = np.array(saved["returns"]), np.array(saved["lengths"])
        pending = saved.get("pending")
    except KeyError as error:
        raise CheckpointError(f"the checkpoint lacks {error}. It was written by another version.") from error
    if pending is not None:
        collector.pending = Pending(
            jnp.asarray(pending["observation"]),
            Draw(**as_device_tree(pending["draw"])),
            Exchange(**as_device_tree(pending["exchange"])),
        )
    if "environments" in saved:
        collector.environments.restore(saved["environments"])
        collector.seen = np.array(saved["seen"], np.float64)
    else:
        collector.exact_resume = False
        observation = collector.reset(salt=collector.turn)
        _, _, *previous = (np.asarray(array) for array in collector.exchange)
        is_first = np.ones(observation.shape[:2], bool)
        collector.exchange = collector.to_exchange(observation, is_first, *previous)
        collector.returns[:], collector.lengths[:] = 0.0, 0
