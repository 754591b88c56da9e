"""What an exported folder says about itself: names, shapes and checksums, compared before anything is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from inbounds.errors import CheckpointError
from inbounds.storage.sealed_arrays import checksum, checksum_of_json, read_json

FORMAT, VERSION = "inbounds policy", 3
MANIFEST, ARRAYS, GRAPH = "policy.json", "policy.safetensors", "policy.onnx"

FIELDS: dict[str, type | tuple[type, ...]] = {
    "task": str,
    "learner": dict,
    "seed": int,
    "observation_size": int,
    "action_low": list,
    "action_high": list,
    "constraint": dict,
    "constraint_sha256": str,
    "head": dict,
    "preference": (list, type(None)),
    "arrays": dict,
    "files": dict,
}


def identity(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what every file of a folder repeats in its metadata, so that files of two tasks cannot be mixed.

    It is one entry, since the order of several would change the bytes of a file from export to export.
    """
    names = ("format", "version", "task", "seed", "constraint_sha256")
    return {"inbounds": json.dumps({name: manifest[name] for name in names})}


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the checksum of its own content."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return {**content, "sha256": checksum_of_json(content)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read policy.json and refuse it where it is damaged, foreign, newer, or contradicts the files beside it."""
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise damaged(folder, f"{MANIFEST} does not describe a policy")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{folder} has version {manifest.get('version')!r}, but this library reads {VERSION}. "
            f"Export it again, or use the version that wrote it."
        )
    if manifest != sealed(manifest):
        raise damaged(folder, f"{MANIFEST} does not match its own checksum")
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise damaged(folder, f"'{name}' is missing or of another type in {MANIFEST}")
    if checksum_of_json(manifest["constraint"]) != manifest["constraint_sha256"]:
        raise damaged(folder, "the constraint does not match its checksum")
    for name in manifest["files"]:
        if name not in (ARRAYS, GRAPH):
            raise damaged(folder, f"{MANIFEST} lists the file {name!r}, which is not part of an export")
        # The numpy runtime does without the graph, which may have been left behind.
        if name == ARRAYS or (folder / name).exists():
            require_checksum(folder, manifest, name)
    return manifest


def require_checksum(folder: Path, manifest: Mapping[str, Any], name: str) -> None:
    """Refuse a file that is missing, has another size, or other bytes than when it was exported."""
    path, recorded = folder / name, manifest["files"].get(name)
    if not isinstance(recorded, dict) or not path.is_file():
        raise damaged(folder, f"{name} is missing or not listed in {MANIFEST}")
    size = path.stat().st_size
    if size != recorded.get("bytes"):
        raise damaged(folder, f"{name} has {size} bytes instead of {recorded.get('bytes')}")
    if checksum(path.read_bytes()) != recorded.get("sha256"):
        raise damaged(
            folder, f"{name} does not match its checksum: it was changed or belongs to another export"
        )


def read_arrays(folder: Path, manifest: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of policy.safetensors, which must be those that the manifest lists."""
    with safe_open(folder / ARRAYS, framework="numpy") as opened:
        written = opened.metadata() or {}
        if written != identity(manifest):
            whose = written.get("inbounds", "nothing of ours")
            raise damaged(folder, f"{ARRAYS} belongs to another export ({whose})")
        found = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        shapes = {name: list(part.get_shape()) for name, part in found.items()}
        if shapes != manifest["arrays"]:
            raise damaged(folder, f"{ARRAYS} holds other arrays than {MANIFEST} lists")
        return {name: np.asarray(opened.get_tensor(name)) for name in found}


def damaged(folder: Path, what: str) -> CheckpointError:
    """Return the error of a folder that cannot be trusted."""
    return CheckpointError(f"{folder} cannot be trusted: {what}. Copy it again, or export the run once more.")
