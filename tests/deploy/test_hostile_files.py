"""Folders that were damaged, mixed up or forged are refused by an error of ours, and nothing of them is executed.

A mutation of a file may also be without effect, such as a changed blank in JSON; it must then be without any.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

import inbounds as ib
from inbounds.errors import CheckpointError, InboundsError
from inbounds.policies.heads import SquashedGaussian
from inbounds.storage.sealed_arrays import meaning_of_run, write_sealed
from inbounds.training.checkpoint import fill, read_checkpoint, write_checkpoint
from inbounds.training.record import RunFolder

Bytes = dict[str, bytes]
"""The files of a folder by their names."""
Rng = np.random.Generator


class Kind(NamedTuple):
    """A kind of folder: its files, those of another task, and what opening it comes to."""

    files: Bytes
    other: Bytes
    opened: Callable[[Path], Any]
    """Returns something that can be compared with ==."""


def run_folder(path: Path, task: str, seed: int, size: int = 3) -> Path:
    rng = np.random.default_rng(seed)
    widths = (size + 2, 8, 2 * 2)
    arrays = {}
    for index, (left, right) in enumerate(itertools.pairwise(widths)):
        arrays[f"actor/{index}/weight"] = rng.normal(size=(1, left, right)).astype(np.float32)
        arrays[f"actor/{index}/bias"] = rng.normal(size=(1, right)).astype(np.float32)
    constraint = ib.Ball(radius_squared=0.05 + 0.01 * seed) & ib.Box(-np.ones(2), np.ones(2))
    config = {
        "task": task,
        "observation_size": size,
        "action_low": [-1.0, -1.0],
        "action_high": [1.0, 1.0],
        "constraint": constraint.to_json(),
        "learner": {"name": "aram", "hidden": [8]},
        "head": SquashedGaussian(
            proposals=5, preference_size=2, min_return_weight=0.1, student_df=30.0, reference=ib.obs[1:3]
        ).to_json(),
        "training": {
            **{
                "seed": 0,
                "seeds": 1,
                "steps": 100,
                "environments": 1,
                "updates_per_step": 1.0,
                "episodes": 1,
            },
            "preference": [0.9, 0.1],
        },
    }
    folder = RunFolder(path)
    folder.create(config, {})
    folder.write_policy(arrays)
    return path


def read_files(folder: Path) -> Bytes:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def acted(folder: Path) -> Any:
    policy = ib.load(folder)
    seen = np.array([0.1, -0.2, 0.3])
    return [policy.act(seen).tolist(), policy.act(seen, deterministic=True).tolist()]


def checkpoint_folder(path: Path, value: float) -> Path:
    tree = {"weights": np.full((2, 3), value, np.float32), "count": np.asarray(7)}
    return write_checkpoint(path, 10, tree, {"seed": 3, "task": f"task {value}"}, keep=1)


def restored(folder: Path) -> Any:
    _, arrays, notes = read_checkpoint(folder)
    tree = fill({"weights": np.zeros((2, 3), np.float32), "count": np.asarray(0)}, arrays)
    return [tree["weights"].tolist(), int(tree["count"]), notes]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    base = tmp_path_factory.mktemp("intact")
    runs = [run_folder(base / name, name, seed) for seed, name in enumerate(("first", "second"))]
    checkpoints = [checkpoint_folder(base / f"checkpoint-{value}", value) for value in (1.0, 2.0)]
    used = ("config.json", "policy.safetensors")
    run_files = [{name: read_files(folder)[name] for name in used} for folder in runs]
    kinds = {
        "run": Kind(*run_files, acted),
        "checkpoint": Kind(*map(read_files, checkpoints), restored),
    }
    from inbounds.deploy.export import export

    exported = [export(folder, base / f"exported-{folder.name}").path for folder in runs]
    # The numpy runtime is what reads the folder here; the graph is compared by its checksum alone. The model card is
    # for people, and nothing reads it.
    exported_files = [read_files(folder) for folder in exported]
    for files in exported_files:
        assert files.pop("README.md")
    return {**kinds, "exported": Kind(*exported_files, acted)}


KINDS = ("run", "checkpoint", "exported")


def write(folder: Path, files: Bytes) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def outcome(kind: Kind, folder: Path) -> Any:
    """Return what opening came to, or the error of ours that refused it; any other error fails the test."""
    try:
        return kind.opened(folder)
    except InboundsError as error:
        assert len(str(error)) > 20 and str(error).rstrip().endswith((".", ")"))
        return None


# What is not random


@pytest.mark.parametrize("name", KINDS)
def test_an_intact_folder_opens(name: str, kinds: dict[str, Kind], tmp_path: Path) -> None:
    assert outcome(kinds[name], write(tmp_path, kinds[name].files)) is not None


@pytest.mark.parametrize("name", KINDS)
def test_files_of_two_tasks_are_not_mixed(name: str, kinds: dict[str, Kind], tmp_path: Path) -> None:
    kind = kinds[name]
    for swapped in kind.files:
        mixed = {**kind.files, swapped: kind.other[swapped]}
        assert outcome(kind, write(tmp_path, mixed)) is None, swapped


@pytest.mark.parametrize("name", KINDS)
def test_a_single_flipped_bit_of_the_numbers_is_noticed(
    name: str, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    kind = kinds[name]
    file = next(file for file in kind.files if file.endswith(".safetensors"))
    content = bytearray(kind.files[file])
    content[-3] ^= 1  # within the mantissa of the last number
    with pytest.raises(CheckpointError):
        kind.opened(write(tmp_path, {**kind.files, file: bytes(content)}))


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_empty_or_foreign_file_is_refused(
    name: str, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    kind = kinds[name]
    for file in kind.files:
        if file == "policy.onnx":
            continue
        for content in (None, b"", b"\x80\x04.", b"{}", b"[]", b"PK\x03\x04", b"\x93NUMPY", b"null"):
            write(tmp_path, kind.files)
            (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
            assert outcome(kind, tmp_path) is None, (file, content)
        write(tmp_path, kind.files)
        (tmp_path / file).unlink()
        (tmp_path / file).mkdir()
        assert outcome(kind, tmp_path) is None
        (tmp_path / file).rmdir()


@pytest.mark.parametrize("name", KINDS)
def test_a_pickled_payload_is_never_executed(name: str, kinds: dict[str, Kind], tmp_path: Path) -> None:
    touched, folder = tmp_path / "executed", tmp_path / "folder"
    folder.mkdir()

    class Payload:
        def __reduce__(self) -> Any:
            return (Path.touch, (touched,))

    poison = pickle.dumps(Payload())
    for file, content in kinds[name].files.items():
        for hostile in (
            poison,
            content[:40] + poison + content[40:],
            json.dumps({"data": base64.b64encode(poison).decode()}).encode(),
        ):
            outcome(kinds[name], write(folder, {**kinds[name].files, file: hostile}))
    assert not touched.exists()


@pytest.mark.parametrize("name", KINDS)
def test_headers_that_lie_about_shapes_are_refused_without_allocating(
    name: str, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    kind = kinds[name]
    file = next(file for file in kind.files if file.endswith(".safetensors"))
    content = kind.files[file]
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    entry = max((key for key in header if key != "__metadata__"), key=lambda key: header[key]["shape"])
    lies: list[dict[str, Any]] = [
        {"shape": [2**62]},
        {"shape": [2**40, 2**40]},
        {"shape": [0]},
        {"shape": [-1]},
        {"shape": []},
        {"dtype": "F64"},
        {"dtype": "BF16"},
        {"dtype": "F8_E4M3"},
        {"dtype": "pickle"},
        {"data_offsets": [0, 2**62]},
        {"data_offsets": [8, 4]},
    ]
    for lie in lies:
        changed = json.dumps({**header, entry: {**header[entry], **lie}}).encode()
        forged = struct.pack("<Q", len(changed)) + changed + content[8 + length :]
        assert outcome(kind, write(tmp_path, {**kind.files, file: forged})) is None, lie
    for size in (0, 1, 2**31, 2**62, 2**64 - 1):
        forged = struct.pack("<Q", size) + content[8:]
        assert outcome(kind, write(tmp_path, {**kind.files, file: forged})) is None, size


# What is forged with right checksums: it may be a policy, but only a feasible one


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 10**30, 1e308, float("inf"), float("nan"), "", "x" * 5000, [], {}, [[]]),
    *([1.0] * 3, [[1.0], [2.0, 3.0]], {"kind": "Box"}, {"number": "inf"}, {"reference": {}}, [None] * 4),
    {"kind": "Oracle", "function": "os:getcwd", "dimension": 2},
    {"constraint": {"kind": "Oracle", "function": "builtins:exec"}},
    {"reference": {"source": "observation", "indices": 10**9, "scale": 1.0, "offset": 0.0, "shape": None}},
    {"reference": {"source": "observation", "indices": None, "scale": 1.0, "offset": 0.0, "shape": [10**9]}},
)


def places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the ways to all values inside plain data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [way, *(found for key, value in inside for found in places(value, (*way, key)))]


def replaced(data: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[way[0]] = replaced(copy[way[0]], way[1:], value)
    return copy


def forge_run(folder: Path, config: Any, arrays: dict[str, Any]) -> None:
    """Write a run as its author would, so that checksums are right."""
    (folder / "config.json").write_text(json.dumps(config))
    meaning = meaning_of_run(config) if isinstance(config, dict) else None
    write_sealed(folder / "policy.safetensors", arrays, json.loads(json.dumps(meaning)))


def is_harmless(folder: Path) -> bool:
    """Open a forged run: an error of ours, or actions that its own constraint allows."""
    try:
        policy = ib.load(folder)
        seen = np.zeros(policy.observation_size)
        action = policy.act(seen)
    except InboundsError:
        return True
    return bool(policy.constraint.violation(seen, action.astype(np.float64)) <= 0.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow, which ends in a refusal
def test_forged_configurations_are_refused_or_give_feasible_actions(
    kinds: dict[str, Kind], tmp_path: Path
) -> None:
    write(tmp_path, kinds["run"].files)
    config = json.loads(kinds["run"].files["config.json"])
    arrays = load_file(tmp_path / "policy.safetensors")
    for way in places(config):
        for value in HOSTILE:
            forge_run(tmp_path, replaced(config, way, value), arrays)
            assert is_harmless(tmp_path), (way, value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow, which ends in a refusal
def test_forged_arrays_are_refused_or_give_feasible_actions(kinds: dict[str, Kind], tmp_path: Path) -> None:
    write(tmp_path, kinds["run"].files)
    config = json.loads(kinds["run"].files["config.json"])
    arrays = load_file(tmp_path / "policy.safetensors")
    for name, array in arrays.items():
        for forged in (
            *(np.full_like(array, value) for value in (np.nan, np.inf, 3e38, 0.0)),
            *(array.astype(dtype) for dtype in (np.float64, np.float16, np.int32, np.bool_)),
            *(array[0], array[..., :-1].copy(), np.zeros((0, *array.shape[1:]), np.float32), array[None]),
        ):
            forge_run(tmp_path, config, {**arrays, name: forged})
            assert is_harmless(tmp_path), (name, forged.dtype, forged.shape)
        forge_run(tmp_path, config, {key: value for key, value in arrays.items() if key != name})
        assert outcome(kinds["run"], tmp_path) is None


def test_a_description_nested_too_deep_is_refused(kinds: dict[str, Kind], tmp_path: Path) -> None:
    for name, file in (("run", "config.json"), ("checkpoint", "notes.json"), ("exported", "policy.json")):
        for deep in (b"[" * 200_000, b'{"a":' * 100_000):
            assert outcome(kinds[name], write(tmp_path, {**kinds[name].files, file: deep})) is None
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


# What is random


def truncate(content: bytes, rng: Rng) -> bytes:
    return content[: rng.integers(0, len(content))]


def flip_bits(content: bytes, rng: Rng) -> bytes:
    changed = bytearray(content)
    for place in rng.integers(0, len(content), size=rng.integers(1, 5)):
        changed[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(changed)


def overwrite(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(content)))
    noise = rng.bytes(int(rng.integers(1, 40)))
    return content[:start] + noise + content[start + len(noise) :]


def insert(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(content)))
    return content[:start] + rng.bytes(int(rng.integers(1, 20))) + content[start:]


def remove(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(content)))
    return content[:start] + content[start + int(rng.integers(1, 20)) :]


def repeat(content: bytes, rng: Rng) -> bytes:
    start, stop = sorted(int(place) for place in rng.integers(0, len(content), size=2))
    return content[:stop] + content[start:stop] + content[stop:]


def digits(content: bytes, rng: Rng) -> bytes:
    """Change a digit, the smallest change that stays JSON and changes a bound."""
    found = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    changed = bytearray(content)
    changed[found[int(rng.integers(len(found)))]] = 48 + int(rng.integers(0, 10))
    return bytes(changed)


MUTATIONS = (truncate, flip_bits, overwrite, insert, remove, repeat, digits)


def fuzz(kind: Kind, folder: Path, count: int, seed: int) -> int:
    """Open mutated folders; return how many of them were refused, which nearly all must be."""
    rng = np.random.default_rng(seed)
    intact = outcome(kind, write(folder, kind.files))
    refused = 0
    files = [name for name in kind.files if name != "policy.onnx"]
    for turn in range(count):
        file = files[turn % len(files)]
        mutate = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
        changed = mutate(kind.files[file], rng)
        (folder / file).write_bytes(changed)
        came = outcome(kind, folder)
        assert came in (None, intact), (
            f"{mutate.__name__} of {file} in turn {turn} of seed {seed} had an effect"
        )
        refused += came is None
        (folder / file).write_bytes(kind.files[file])
    return refused


@pytest.mark.parametrize("name", KINDS)
def test_random_damage_is_refused_or_without_effect(
    name: str, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    count = 700
    assert fuzz(kinds[name], tmp_path, count, seed=0) > 0.8 * count


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_ten_thousand_mutations_are_refused_or_without_effect(
    name: str, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    count = 10_000
    assert fuzz(kinds[name], tmp_path, count, seed=1) > 0.8 * count
