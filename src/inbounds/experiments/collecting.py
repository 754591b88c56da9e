"""From folders to results: run folders, result files and folders of either are read into one list."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inbounds.errors import InvalidInputError
from inbounds.evaluation.trained import run_folders
from inbounds.experiments.experiment import read_cell
from inbounds.experiments.result_shapes import REFERENCES_SHAPE
from inbounds.experiments.results import Result, collect_run, load_result, merged
from inbounds.experiments.suites import suite_by_name
from inbounds.experiments.worker import CELL, FINAL
from inbounds.reading import read_object

REFERENCES = "references.json"
MEASURE_AGAIN = "Remove it and run `inbounds benchmark references` again."


def read_results(paths: Sequence[Path]) -> list[Result]:
    """Return the results below some paths, seeds of one cell put together."""
    found: list[Result] = []
    for path in paths:
        found += read_one(path)
    return merged(found)


def read_one(path: Path) -> list[Result]:
    """Return the results of one path: a result file, a run folder, or a folder above some of either."""
    if path.is_file():
        return [load_result(path)]
    files = [file for file in sorted(path.rglob("*.json")) if is_result_file(file)] if path.is_dir() else []
    if files:
        return [load_result(file) for file in files]
    folders = [folder for folder in run_folders([path]) if (folder / "evaluations.jsonl").exists()]
    if not folders:
        raise InvalidInputError(
            f"{path} holds runs but none was evaluated yet. Let one reach its first evaluation."
        )
    results = [collect_run(folder, suite_of(folder)) for folder in folders]
    return unique_names(results, folders, path)


def is_result_file(path: Path) -> bool:
    """Tell whether a JSON file is a result, by its first line and field."""
    if not path.is_file():
        return False
    with open(path, "rb") as handle:
        return handle.readline(8).strip() == b"{" and handle.readline(16).startswith(b'"format": ')


def read_named_folders(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the run folders below some paths with the names of their results; result files have none."""
    named: list[tuple[str, Path]] = []
    for path in paths:
        if path.is_dir() and not any(is_result_file(file) for file in path.rglob("*.json")):
            for folder in run_folders([path]):
                is_cell = (folder / CELL).exists()
                plain = folder.resolve().name if folder == path or is_cell else str(folder.relative_to(path))
                named.append((plain.replace("/", "-"), folder))
    return named


def suite_of(folder: Path) -> str:
    """Return the suite of a cell's folder, runs/SUITE/CELL; runs of no suite have none."""
    return folder.resolve().parent.name if (folder / CELL).exists() else ""


def unique_names(results: list[Result], folders: list[Path], root: Path) -> list[Result]:
    """Return runs that no suite planned under their path, since only their folders tell them apart."""
    named = []
    for result, folder in zip(results, folders, strict=True):
        if not result.suite and folder != root:
            named.append(dataclasses.replace(result, name=str(folder.relative_to(root)).replace("/", "-")))
        else:
            named.append(result)
    return named


def finished_cells(
    roots: Sequence[Path], suite: str, leave_out: Callable[[str], None] | None = None
) -> list[Result]:
    """Return the finished cells of a suite below some roots (runs/SUITE on each machine), merged.

    A cell that was run for fewer steps or seeds than the suite plans is finished, but not complete. A damaged cell
    raises, or, where `leave_out` is told why, is left out.
    """
    planned = {cell.name: cell for cell in suite_by_name(suite).cells()}
    found = []
    for root in roots:
        for cell in sorted((root / suite).glob(f"*/{CELL}")):
            if not (cell.parent / FINAL).exists():
                continue
            try:
                result, own = collect_run(cell.parent, suite), read_cell(cell)
            except InvalidInputError as error:
                if leave_out is None:
                    raise
                leave_out(str(error))
                continue
            plan = planned.get(own.name, own)
            found.append(dataclasses.replace(result, expected_seeds=plan.seeds, expected_steps=plan.steps))
    return merged(found)


def references_near(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return what reference policies got, where it was measured: references.json in, beside or above the results.

    Another program's file of that name says nothing about tasks, and is passed over.
    """
    for path in paths:
        for folder in (path, *path.resolve().parents[:2], path / "results"):
            if (folder / REFERENCES).is_file() and "tasks" in read_object(folder / REFERENCES, MEASURE_AGAIN):
                return read_references(folder / REFERENCES)
    return {}


def read_references(path: Path) -> dict[str, dict[str, Any]]:
    """Return mean, deviation and episodes by task and reference policy."""
    return {task: entry["played"] for task, entry in read_measured(path).items()}


def read_measured(path: Path) -> dict[str, dict[str, Any]]:
    """Return what references.json holds by task: what was played, and its provenance."""
    measured: dict[str, dict[str, Any]] = read_object(path, MEASURE_AGAIN, REFERENCES_SHAPE)["tasks"]
    return measured
