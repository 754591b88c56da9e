"""What is done while the disk fails, and what must hold afterwards: nothing is lost, and repeating it succeeds."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import inbounds as ib
from benchmarks.faults.disk import DEADLY, NUMBERS, POWER_CUTS, Fault, FaultyDisk, Killed
from benchmarks.faults.ledger import BrokenPromiseError, Ledger, require_sentence
from benchmarks.faults.runs import HALF, QuickRuns, content_of, require_clean, require_same, rows_of
from inbounds.cli.display import write_csv
from inbounds.deploy.export import export
from inbounds.experiments.results import collect_run, load_result, save_result
from inbounds.training import loop
from inbounds.training.checkpoint import newest_checkpoint
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder


class Command(NamedTuple):
    """Something that writes files."""

    name: str
    prepare: Callable[[Path], None]
    """Put into a new folder what is there before."""
    act: Callable[[Path], Any]
    require_intact: Callable[[Path, int], None]
    """Refuse what the fault left, if anything is lost; it is told the newest step that was saved before."""
    require_result: Callable[[Path], None]
    """Refuse what is there once the command has returned, whatever happens afterwards, if it is not its result."""
    require_done: Callable[[Path], None]
    """Repeat the command, or go on, and refuse what is not the result that it has without a fault."""


def strikes(command: Command, fault: Fault, base: Path) -> int:
    """Return at how many calls of a command a fault can strike; the power can also fail when it has returned."""
    command.prepare(base / "folder")
    with FaultyDisk(fault, 0).installed() as disk:
        command.act(base / "folder")
    empty(base)
    return disk.calls + (fault in POWER_CUTS)


def try_command(command: Command, fault: Fault, at: int, base: Path, ledger: Ledger) -> None:
    """Let one call of a command go wrong, look at what is left, and go on."""
    folder = base / "folder"
    command.prepare(folder)
    with ledger.trial(fault.value, command.name, f"call {at}"):
        saved, disk, has_returned = Saved(), FaultyDisk(fault, at, base), False
        try:
            with saved.noted(), disk.installed():
                command.act(folder)
            has_returned = True
            ledger.ended("done in spite of it")
        except Killed:
            ledger.ended("died")
        except Exception as error:
            if fault in DEADLY:
                raise
            require_sentence(error, os.strerror(NUMBERS[fault]))
            ledger.ended("refused with cause and remedy")
        if disk.durable is not None:
            empty(base)
            disk.durable.write_to(base, fault)
        if has_returned:
            command.require_result(folder)
        command.require_intact(folder, saved.step)
        command.require_done(folder)
    empty(base)


def empty(base: Path) -> None:
    """Remove everything in a folder."""
    shutil.rmtree(base)
    base.mkdir()


class Saved:
    """Notes the newest checkpoint that training believed to be saved."""

    step = 0

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Listen within a block."""
        usual = loop.write_checkpoint

        def write(folder: Path, step: int, *arguments: Any, **options: Any) -> Path:
            path = usual(folder, step, *arguments, **options)
            self.step = step
            return path

        loop.write_checkpoint = write
        try:
            yield
        finally:
            loop.write_checkpoint = usual


# Training ------------------------------------------------------------------------------------------------------------


def training_commands(runs: QuickRuns, base: Path) -> list[Command]:
    """Return training from nothing, and resuming a run in several states."""
    whole_folder, half = base / "whole", base / "half"
    runs.train(whole_folder)
    whole = content_of(whole_folder)
    runs.train_half(half)

    def copied(folder: Path) -> None:
        shutil.copytree(half, folder)

    def torn(folder: Path) -> None:
        copied(folder)
        for name in (METRICS, EVALUATIONS):
            with open(folder / name, "ab") as log:
                log.write(b'{"step": 30, "se')

    def damaged(folder: Path) -> None:
        copied(folder)
        state = folder / "checkpoints" / f"step-{HALF:012d}" / "state.safetensors"
        state.write_bytes(state.read_bytes()[:-9])

    def require_intact(folder: Path, saved: int, before: int = 0) -> None:
        step = max(saved, before)
        if step == 0 and not (folder / "config.json").exists():
            return
        RunFolder(folder).config()
        RunFolder(folder).provenance()
        if step:
            newest = newest_checkpoint(folder / "checkpoints", lambda told: None).notes["step"]
            if newest < step:
                raise BrokenPromiseError(f"the checkpoint of step {step} is lost; step {newest} is left")
            if (folder / "policy.safetensors").exists():
                ib.load(folder)
            for name in (METRICS, EVALUATIONS):
                wanted = [row for row in whole[name] if row["step"] <= step]
                if rows_of(folder, name)[: len(wanted)] != wanted:
                    raise BrokenPromiseError(f"{name} has lost rows up to step {step}")

    def require_result(folder: Path) -> None:
        require_same(folder, whole)

    def require_done(folder: Path) -> None:
        runs.finish(folder)
        require_same(folder, whole)
        require_clean(folder)

    def resume(folder: Path, **settings: Any) -> None:
        runs.train(folder, resume=True, warn=lambda told: None, **settings)

    def begun_at(before: int) -> Callable[[Path, int], None]:
        return lambda folder, saved: require_intact(folder, saved, before)

    return [
        Command("a new run", lambda folder: None, runs.train, require_intact, require_result, require_done),
        Command("a resumed run", copied, resume, begun_at(HALF), require_result, require_done),
        Command(
            "a resumed run, logs torn",
            torn,
            lambda folder: resume(folder, threads=1),
            begun_at(HALF),
            require_result,
            require_done,
        ),
        Command(
            "a resumed run, newest checkpoint damaged",
            damaged,
            resume,
            begun_at(HALF // 2),
            require_result,
            require_done,
        ),
    ]


# Everything else -----------------------------------------------------------------------------------------------------


def other_commands(runs: QuickRuns, base: Path) -> list[Command]:
    """Return the commands that write single files and folders over older ones."""
    run = base / "whole"
    result = collect_run(run)
    seen = np.array([0.1, -0.2])

    def exported(folder: Path, proposals: int = 4) -> None:
        export(run, folder, proposals=proposals)

    def require_export(folder: Path, saved: int) -> None:
        ib.load(folder).act(seen)

    def require_exported(folder: Path) -> None:
        if ib.load(folder).proposals != 3:
            raise BrokenPromiseError("the export is not the one that was asked for")

    def export_again(folder: Path) -> None:
        exported(folder, 3)
        require_exported(folder)

    def save(folder: Path, command: str = "before") -> None:
        save_result(dataclasses.replace(result, command=command), folder)

    def saved_command(folder: Path) -> str:
        return load_result(next(folder.glob("*.json"))).command

    def require_result(folder: Path, saved: int) -> None:
        if saved_command(folder) not in ("before", "after"):
            raise BrokenPromiseError("the result is neither the old nor the new one")

    def require_saved(folder: Path) -> None:
        if saved_command(folder) != "after":
            raise BrokenPromiseError("the result is not the new one")

    def save_again(folder: Path) -> None:
        save(folder, "after")
        require_saved(folder)

    def tables(folder: Path) -> None:
        write_csv(RunFolder(folder))

    def with_tables(folder: Path) -> None:
        shutil.copytree(run, folder)
        tables(folder)

    def require_tables(folder: Path, saved: int) -> None:
        for name in (METRICS, EVALUATIONS):
            with open((folder / name).with_suffix(".csv"), encoding="utf-8") as handle:
                found = list(csv.DictReader(handle))
            if [int(row["step"]) for row in found] != [row["step"] for row in rows_of(run, name)]:
                raise BrokenPromiseError(f"{name} as a table has other rows")

    def require_written(folder: Path) -> None:
        require_tables(folder, 0)

    def tables_again(folder: Path) -> None:
        tables(folder)
        require_written(folder)

    return [
        Command(
            "an export over another",
            exported,
            lambda folder: exported(folder, 3),
            require_export,
            require_exported,
            export_again,
        ),
        Command(
            "a result over another",
            save,
            lambda folder: save(folder, "after"),
            require_result,
            require_saved,
            save_again,
        ),
        Command("tables over others", with_tables, tables, require_tables, require_written, tables_again),
    ]


def chosen_calls(count: int, most: int | None, seed: int) -> list[int]:
    """Return all calls from 1 to `count`, or `most` of them: one at random from each of as many equal stretches."""
    if most is None or count <= most:
        return list(range(1, count + 1))
    chance = random.Random(seed)
    edges = [1 + number * count // most for number in range(most + 1)]
    return [chance.randrange(start, stop) for start, stop in itertools.pairwise(edges)]
