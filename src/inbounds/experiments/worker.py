"""Runs one experiment: train it or go on, evaluate its last and its best policy, and write the result into its folder.

`python -m inbounds.experiments.worker FOLDER` is a process of its own, so that a crash, an exhausted device or
a killed machine costs one experiment; the folder alone tells what is left to do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, FolderBusyError, InboundsError
from inbounds.experiments.experiment import Cell, option, read_cell
from inbounds.experiments.suites import OWN_SUITE, Suite, own_suite
from inbounds.storage.files import locked, remove_file, write_json
from inbounds.tasks.named_tasks import own_task, task_of_cell
from inbounds.training.interrupts import Requests
from inbounds.training.record import CONFIG, RunFolder

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

CELL, FINAL, FAILURE, LOG = "cell.json", "final.json", "failure.json", "log.txt"
TRAINED = "trained.json"
"""Says that training is over, so that the final evaluation needs no checkpoint: any machine can make it."""
STOPPED, BUSY, LEFT = 3, 4, 5
"""Exit statuses besides 0 (finished) and 1 (failed): to go on, at work elsewhere, trained with its evaluation left."""
TRAIN_ONLY = "--train-only"
SWEEP_EPISODES = 10
TIMED_ACTIONS = 2_000


def prepare(folder: Path, cell: Cell) -> None:
    """Write down what the folder is for; a folder of another experiment is left alone."""
    if (folder / CELL).exists():
        require_experiment(folder, cell)
        return
    write_json(folder / CELL, cell.as_json())


def require_experiment(folder: Path, cell: Cell) -> None:
    """Refuse a folder that says it holds another experiment."""
    if (folder / CELL).exists() and (found := read_cell(folder / CELL)) != cell:
        raise ConfigurationError(
            f"{folder} holds another experiment under the same name: {differences(found, cell)}. Choose "
            f"another --out, or remove the folder."
        )


def present_task_check(suite: Suite) -> Callable[[Path, str], None]:
    """Return a function that refuses the run in a folder if its task in the user's suite is another one now.

    Our own tasks are not compared: their versions are.
    """
    made = functools.cache(suite.task)

    def require(folder: Path, name: str) -> None:
        if name in suite.tasks:
            require_present_task(
                folder,
                functools.partial(made, name),
                f"The suite {suite.name} has another task '{name}' now: put the earlier one back, choose another "
                f"--out, or remove the folder.",
            )

    return require


def require_present_task(folder: Path, make: Callable[[], Task], remedy: str) -> None:
    """Refuse a run that was begun on another task than is made now.

    What cannot be read or made here is not compared, since whatever needs it says why.
    """
    from inbounds.training.api import require_same_task

    if not (folder / CONFIG).exists():
        return
    try:
        with contextlib.chdir("."):  # the task may change the working directory
            config, task = RunFolder(folder).config(), make()
    except InboundsError:
        return
    try:
        require_same_task(task, config, folder)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error} {remedy}") from error


def differences(found: Cell, wanted: Cell) -> str:
    """Say in which fields two experiments differ."""
    one, two = found.as_json(), wanted.as_json()
    return ", ".join(f"{name} {one[name]} instead of {two[name]}" for name in one if one[name] != two[name])


def run_cell(folder: Path, cell: Cell, should_stop: Any = None, train_only: bool = False) -> int:
    """Train and evaluate an experiment; return 0 if it is finished, or the status that says what is left."""
    if not (folder / TRAINED).exists():
        if not train_cell(folder, cell, should_stop):
            return STOPPED
        write_json(folder / TRAINED, {"steps": cell.steps})
    if train_only or (should_stop is not None and should_stop()):
        return LEFT
    write_final(folder, cell)
    return 0


def task_of(cell: Cell) -> Task:
    """Return the task of an experiment: one of ours, or one of the suite or the command that this process works for."""
    suite = own_suite()
    return task_of_cell(cell.task) if suite is None else suite.task(cell.task)


def command_of(cell: Cell) -> str:
    """Return the command that trains an experiment again: alone, or for the user's own suite as its only experiment."""
    if own_suite() is None:
        return cell.command(f"runs/{cell.name}", own_task(cell.task))
    words = ["inbounds", "benchmark", os.environ[OWN_SUITE], "--tasks", cell.task, "--learners", cell.learner]
    words += ["--presets", cell.preset, *(["--variants", cell.variant] if cell.variant else [])]
    numbers = {"steps": cell.steps, "seeds": cell.seeds, "seed": cell.seed}
    return shlex.join([*words, *(word for name, value in numbers.items() for word in option(name, value))])


def train_cell(folder: Path, cell: Cell, should_stop: Any) -> bool:
    """Train an experiment, or go on with it where it was begun; tell whether it reached its end."""
    from inbounds.training.api import train

    stopped: list[bool] = []

    def watch(row: Mapping[str, Any]) -> bool:
        has_more = row["step"] < cell.steps  # with the last report it is trained, whatever is asked
        if should_stop is not None and has_more and should_stop():
            stopped.append(True)
            return True
        return False

    train(
        task_of(cell),
        cell.make_learner(),
        out=folder,
        resume=(folder / CONFIG).exists(),
        warn=print,
        callbacks=(watch,),
        command=command_of(cell),
        **cell.training_settings(),
    )
    return not stopped


def write_final(folder: Path, cell: Cell) -> None:
    """Evaluate the last and the best policy on fresh episodes; the file appears whole or not at all."""
    from inbounds.evaluation.inference import time_inference, trace_episode
    from inbounds.evaluation.protocol import (
        evaluate_run,
        evaluator_of,
        has_preferences,
        suggested_preference,
        sweep_preferences,
    )
    from inbounds.evaluation.trained import TrainedRun

    opened = TrainedRun.open(folder, task_of(cell))
    evaluator = evaluator_of(opened, cell.final_episodes)
    found = evaluate_run(opened, cell.final_episodes, evaluator=evaluator)
    best = dataclasses.replace(opened, states=TrainedRun.open(folder, opened.task, policy="best").states)
    found_best = evaluate_run(best, cell.final_episodes, evaluator=evaluator)
    final: dict[str, Any] = {"final": found.as_json(), "best": found_best.as_json()}
    if has_preferences(opened):
        episodes = min(SWEEP_EPISODES, cell.final_episodes)
        shared = evaluator if episodes == cell.final_episodes else None
        points = sweep_preferences(opened, episodes, evaluator=shared)
        final["front"] = {
            "points": [list(point) for point in points],
            "suggested": list(suggested_preference(points).preference),
        }
    final["episode"] = trace_episode(opened).as_json()
    final["inference"] = time_inference(opened, actions=TIMED_ACTIONS).as_json()
    write_json(folder / FINAL, final)
    remove_file(folder / FAILURE)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment of one folder.

    Returns 0 when it is finished, 1 when it failed (the folder says why), 3 when it was stopped and can go on,
    4 when another process is at it, 5 when it is trained and was to be no more than that.
    """
    name, *options = sys.argv[1:] if arguments is None else arguments
    folder = Path(name).absolute()  # the task may change the working directory
    try:
        with locked(folder), Requests().catching(signal.SIGINT, signal.SIGTERM) as asked:
            return work_on(folder, asked, TRAIN_ONLY in options)
    except FolderBusyError as error:
        print(error)
        return BUSY


def work_on(folder: Path, asked: Requests, train_only: bool) -> int:
    """Run the experiment of a folder that nobody else works on."""
    if (folder / FINAL).exists():
        return 0
    try:
        return run_cell(folder, read_cell(folder / CELL), lambda: bool(asked), train_only)
    except Exception as error:
        failure = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        write_json(folder / FAILURE, failure)
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
