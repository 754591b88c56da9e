"""Files of a run that were damaged behind its back: resuming is exact, tells about it, or is refused with a remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.faults.ledger import Ledger, require_sentence
from benchmarks.faults.runs import QuickRuns, content_of, require_same
from inbounds.errors import InboundsError
from inbounds.training.record import EVALUATIONS, METRICS

Damage = Callable[[Path, np.random.Generator], None]


def emptied(path: Path, rng: np.random.Generator) -> None:
    """Lose all content."""
    path.write_bytes(b"")


def truncated(path: Path, rng: np.random.Generator) -> None:
    """Lose the end."""
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(len(content)))])


def zeroed(path: Path, rng: np.random.Generator) -> None:
    """Have zeros from some place on, as file systems leave it after a power cut."""
    content = path.read_bytes()
    start = int(rng.integers(len(content)))
    path.write_bytes(content[:start] + b"\0" * (len(content) - start))


def flipped(path: Path, rng: np.random.Generator) -> None:
    """Have one wrong bit."""
    content = bytearray(path.read_bytes())
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(content))


def overwritten(path: Path, rng: np.random.Generator) -> None:
    """Have noise in some place."""
    content = path.read_bytes()
    start = int(rng.integers(len(content)))
    noise = rng.bytes(32)
    path.write_bytes(content[:start] + noise + content[start + len(noise) :])


def removed(path: Path, rng: np.random.Generator) -> None:
    """Be gone."""
    path.unlink()


def a_folder(path: Path, rng: np.random.Generator) -> None:
    """Have a folder in its place."""
    path.unlink()
    path.mkdir()


RANDOM: tuple[Damage, ...] = (truncated, zeroed, flipped, overwritten)
WHOLE: tuple[Damage, ...] = (emptied, removed, a_folder)
NAMES: dict[Damage, str] = {
    emptied: "emptied",
    truncated: "truncated",
    zeroed: "zeros from some place on",
    flipped: "one bit flipped",
    overwritten: "32 bytes overwritten",
    removed: "removed",
    a_folder: "a folder in its place",
}
"""How tables call it."""


def damaged_files(half: Path) -> list[str]:
    """Return the files of a half-finished run that its resume depends on, or writes."""
    names = (str(path.relative_to(half)) for path in sorted(half.rglob("*")) if path.is_file())
    return [name for name in names if name != ".lock"]  # which has no content


def try_damage(runs: QuickRuns, base: Path, name: str, damage: Damage, seed: int, ledger: Ledger) -> None:
    """Damage one file of a half-finished run, resume it, and look at what comes of it."""
    folder, whole = base / "damaged", content_of(base / "whole")
    shutil.copytree(base / "half", folder)
    kind = f"damaged file: {NAMES[damage]}"
    with ledger.trial(kind, where(name), f"{name}, seed {seed}"):
        damage(folder / name, np.random.default_rng(seed))
        try:
            told = runs.finish(folder)
        except InboundsError as error:
            require_sentence(error)
            ledger.ended("refused with cause and remedy")
        else:
            if told and name in (METRICS, EVALUATIONS):
                ledger.ended("went on, and told about the log")
                require_same(folder, {**whole, name: content_of(folder)[name]})
            else:
                require_same(folder, whole)
                ledger.ended("finished bit-identically")
    shutil.rmtree(folder, ignore_errors=True)


def where(name: str) -> str:
    """Return how the table calls a file."""
    return name if "/" not in name else f"checkpoint, {name.rpartition('/')[2]}"
