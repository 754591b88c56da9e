"""What runs one cell: train it or go on, evaluate the kept policy, and leave the verdict in its folder.

`python -m inbounds.benchmark.worker FOLDER` is a process of its own, so that a crash, an exhausted device or
a killed machine costs one cell; the folder alone tells what is left to do.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from inbounds.benchmark.cell import Cell, read_cell
from inbounds.errors import ConfigurationError
from inbounds.training.interrupts import Requests
from inbounds.training.record import CONFIG, EVALUATIONS, METRICS, RunFolder

CELL, FINAL, FAILURE, LOG, LOCK = "cell.json", "final.json", "failure.json", "log.txt", ".lock"
TRAINED = "trained.json"
"""Says that training is over, so that the final evaluation needs no checkpoint: any machine can make it."""
STOPPED, BUSY, LEFT = 3, 4, 5
"""Exit statuses besides 0 (finished) and 1 (failed): to go on, at work elsewhere, trained with its evaluation left."""
TRAIN_ONLY = "--train-only"
SWEEP_EPISODES = 10
TIMED_ACTIONS = 2_000


def prepare(folder: Path, cell: Cell) -> None:
    """Write down what the folder is for; a folder of another experiment is left alone."""
    path = folder / CELL
    if path.exists():
        found = read_cell(path)
        if found != cell:
            raise ConfigurationError(
                f"{folder} holds another experiment under the same name: {differences(found, cell)}. Choose "
                f"another --out, or remove the folder."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cell.as_json(), indent=1) + "\n")


def is_busy(folder: Path) -> bool:
    """Tell whether a process is working on a cell at this moment."""
    if not (folder / LOCK).exists():
        return False
    with open(folder / LOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def differences(found: Cell, wanted: Cell) -> str:
    """Say in which fields two cells differ."""
    one, two = found.as_json(), wanted.as_json()
    return ", ".join(f"{name} {one[name]} instead of {two[name]}" for name in one if one[name] != two[name])


def run_cell(folder: Path, cell: Cell, should_stop: Any = None, train_only: bool = False) -> int:
    """Train and evaluate a cell; return 0 if it is finished, or the status that says what is left."""
    if not (folder / TRAINED).exists():
        if not train_cell(folder, cell, should_stop):
            return STOPPED
        (folder / TRAINED).write_text(json.dumps({"steps": cell.steps}) + "\n")
    if train_only or (should_stop is not None and should_stop()):
        return LEFT
    write_final(folder, cell)
    return 0


def train_cell(folder: Path, cell: Cell, should_stop: Any) -> bool:
    """Train a cell, from its newest checkpoint where it has one; tell whether it reached its end."""
    from inbounds.benchmark.tasks import find_task
    from inbounds.training.api import train

    run = RunFolder(folder)
    has_checkpoint = run.checkpoints.exists() and any(run.checkpoints.glob("step-*"))
    if not has_checkpoint:
        forget_start(folder)
    stopped: list[bool] = []

    def watch(row: dict[str, Any]) -> bool:
        has_more = row["step"] < cell.steps  # with the last report it is trained, whatever is asked
        if should_stop is not None and has_more and should_stop():
            stopped.append(True)
            return True
        return False

    train(
        find_task(cell.task),
        cell.make_learner(),
        out=folder,
        resume=has_checkpoint,
        callbacks=(watch,),
        **cell.training_settings(),
    )
    return not stopped


def forget_start(folder: Path) -> None:
    """Remove what a run left that died before its first checkpoint: there is nothing to go on from."""
    for name in (CONFIG, METRICS, EVALUATIONS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def write_final(folder: Path, cell: Cell) -> None:
    """Evaluate the kept policy on fresh episodes; the file appears whole or not at all."""
    from inbounds.benchmark.episode import trace_episode
    from inbounds.benchmark.evaluation import (
        evaluate_run,
        evaluator_of,
        has_preferences,
        suggested_preference,
        sweep_preferences,
    )
    from inbounds.benchmark.inference import time_inference
    from inbounds.benchmark.trained import TrainedRun

    opened = TrainedRun.open(folder)
    preference = tuple(RunFolder(folder).config()["training"]["preference"])
    evaluator = evaluator_of(opened, cell.final_episodes)
    found = evaluate_run(opened, cell.final_episodes, preference, evaluator=evaluator)
    final: dict[str, Any] = {"final": found.as_json()}
    if has_preferences(opened):
        episodes = min(SWEEP_EPISODES, cell.final_episodes)
        shared = evaluator if episodes == cell.final_episodes else None
        points = sweep_preferences(opened, episodes, evaluator=shared)
        final["front"] = {
            "points": [list(point) for point in points],
            "suggested": list(suggested_preference(points).preference),
        }
    final["episode"] = trace_episode(opened, preference).as_json()
    final["inference"] = time_inference(opened, preference, TIMED_ACTIONS).as_json()
    temporary = folder / f".{FINAL}"
    temporary.write_text(json.dumps(final, indent=1) + "\n")
    temporary.replace(folder / FINAL)
    (folder / FAILURE).unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the cell of one folder.

    Returns 0 when it is finished, 1 when it failed (the folder says why), 3 when it was stopped and can go on,
    4 when another process is at it, 5 when it is trained and was to be no more than that.
    """
    name, *options = sys.argv[1:] if arguments is None else arguments
    folder = Path(name)
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"another process is working on {folder}; it was left alone.")
            return BUSY
        with Requests().heard(signal.SIGINT, signal.SIGTERM) as asked:
            return work_on(folder, asked, TRAIN_ONLY in options)


def work_on(folder: Path, asked: Requests, train_only: bool) -> int:
    """Run the cell of a folder that nobody else works on."""
    if (folder / FINAL).exists():
        return 0
    cell = read_cell(folder / CELL)
    try:
        return run_cell(folder, cell, lambda: bool(asked), train_only)
    except Exception as error:
        failure = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        (folder / FAILURE).write_text(json.dumps(failure, indent=1) + "\n")
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
