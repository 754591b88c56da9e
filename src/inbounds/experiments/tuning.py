"""Searches settings of a learner with Optuna: trials are experiments, run by the executor that runs suites.

The study is an SQLite file beside the trials' run folders, so that it can be stopped, continued, and worked on from
several terminals at once; a trial that was interrupted goes on from its checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, MissingDependencyError
from inbounds.experiments.experiment import Cell, pairs, read_cell
from inbounds.experiments.runner import Planned, Speeds, State, last_words, plan
from inbounds.experiments.worker import CELL, FINAL, differences, require_present_task, task_of
from inbounds.reading import FINITE, read_object
from inbounds.storage.files import is_locked, make_folder
from inbounds.tasks.named_tasks import own_task

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

MOST_FAILURES = 3
"""So many failed trials, one after the other, mean that the next one would fail, too."""
JUDGE_AGAIN = "Remove it and run the same command again, which repeats the final evaluation only."
RETURNS = {"final": {"return": [FINITE]}}
Execute = Callable[[Sequence[Planned]], dict[str, State]]
"""Runs experiments and tells what became of each: processes of this machine, or a Ray cluster."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that one setting may take: a range, on a logarithmic scale if asked, or a choice."""

    name: str
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_whole: bool = False
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: Any) -> Any:
        """Ask Optuna for a value."""
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.is_whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.is_log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.is_log)


def parse_range(text: str, learner: Any) -> Range:
    """Read `name=low:high`, `name=low:high:log` or `name=a,b,c` for a field of a learner."""
    name, equals, values = text.partition("=")
    known = {field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)}
    remedy = "Write name=low:high, name=low:high:log or name=a,b,c."
    if not equals or name not in known:
        raise ConfigurationError(f"'{text}' names no setting of {type(learner).__name__}. {remedy}")
    if ":" not in values:
        return Range(name, choices=tuple(_value(choice, known[name]) for choice in values.split(",")))
    low, high, *scale = values.split(":")
    if scale not in ([], ["log"]):
        raise ConfigurationError(f"'{text}' has an unknown scale. {remedy}")
    is_whole = isinstance(known[name], int) and not isinstance(known[name], bool)
    try:
        found = Range(name, float(low), float(high), bool(scale), is_whole)
    except ValueError as error:
        raise ConfigurationError(f"'{text}' has no numbers for bounds. {remedy}") from error
    if found.low >= found.high or (found.is_log and found.low <= 0):
        raise ConfigurationError(f"'{text}' is empty, or logarithmic and not positive. {remedy}")
    return found


def _value(text: str, like: Any) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


DEFAULT_SPACE = (
    "learning_rate=1e-4:3e-3:log",
    "tau=0.002:0.02:log",
    "gamma=0.9,0.97,0.99",
    "batch_size=128,256,512",
)
"""What every learner has."""
TUNED_SPACE = ("target_acceptance=0.9:0.99", "entropy_ramp=5000,20000,50000")
"""What learners have besides that tune their penalty."""
FIXED_SPACE = ("penalty=0.05:0.5:log", "eta=0.05:0.4")
"""What learners have besides that keep it."""


def default_space(learner: Any) -> list[Range]:
    """Return the settings that are searched if nobody says which."""
    names = {field.name for field in dataclasses.fields(learner)}
    is_tuned = getattr(learner, "target_acceptance", None) is not None
    texts = (*DEFAULT_SPACE, *(TUNED_SPACE if is_tuned else FIXED_SPACE))
    return [parse_range(text, learner) for text in texts if text.partition("=")[0] in names]


def open_study(folder: Path, name: str) -> Any:
    """Return the study in the folder's SQLite file, new or begun."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError as error:
        raise MissingDependencyError(
            'tuning needs the package optuna: `pip install "inbounds[tune]"`.'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    make_folder(folder)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{folder / 'study.db'}", engine_kwargs={"connect_args": {"timeout": 60}}
    )
    return optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)


def tune(
    base: Cell,
    space: Sequence[Range],
    trials: int,
    jobs: int,
    folder: Path,
    execute: Execute,
    report: Callable[[str], None],
) -> Any:
    """Run trials until so many are finished in all, and return the study."""
    study = open_study(folder, base.name)
    made = functools.cache(lambda: task_of(base))
    failures = 0
    while True:
        require_same_search(study, base, folder, made)
        finished = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
        if len(finished) >= trials:
            return study
        batch = interrupted(study, base, folder)[:jobs]
        wanted = min(jobs, trials - len(finished)) - len(batch)
        for _ in range(wanted):
            trial = study.ask()
            batch.append((trial.number, cell_of(base, trial.number, suggested(study, trial, space, folder))))
        states = run_batch(study, batch, folder, execute, report)
        if not all(state in (State.FINISHED, State.FAILED) for state in states):
            return study
        failures = failures + len(states) if all(state is State.FAILED for state in states) else 0
        if failures >= MOST_FAILURES:
            last = folder / batch[-1][1].name
            raise ConfigurationError(
                f"{failures} trials in a row failed; the last one, {last}: {last_words(last)} Correct the settings, or "
                f"search other values."
            )


def suggested(study: Any, trial: Any, space: Sequence[Range], folder: Path) -> dict[str, Any]:
    """Ask Optuna for the values of a trial; what it may choose from cannot change within a study, ranges can."""
    settings = {}
    for one in space:
        try:
            settings[one.name] = one.suggest(trial)
        except ValueError as error:
            study.tell(trial, state=importlib.import_module("optuna").trial.TrialState.FAIL)
            raise ConfigurationError(
                f"{folder} holds trials of a search with other choices of {one.name}. Choose another --out, or search "
                f"with those choices."
            ) from error
    return settings


def require_same_search(study: Any, base: Cell, folder: Path, make_task: Callable[[], Task]) -> None:
    """Refuse a study whose trials have other settings or another task: their returns cannot be compared.

    The user's own task may have been edited. Our own tasks are not compared: their versions are.
    """
    for trial in study.get_trials(deepcopy=False):
        cell = cell_of(base, trial.number, trial.params)
        path = folder / cell.name / CELL
        if trial.state.name == "FAIL" or not path.exists():
            continue
        if told := differences(read_cell(path), cell):
            raise ConfigurationError(
                f"{folder} holds trials of another search: {told}. Choose another --out, or search with what those "
                f"trials have."
            )
        if own_task(base.task) is not None:
            require_present_task(
                path.parent,
                make_task,
                f"{folder} holds trials of the task as it was before: put the earlier one back, or choose another "
                f"--out.",
            )


def cell_of(base: Cell, number: int, settings: Mapping[str, Any]) -> Cell:
    """Return the experiment of one trial."""
    return dataclasses.replace(
        base, variant=f"trial-{number:04d}", settings=pairs({**dict(base.settings), **settings})
    )


def interrupted(study: Any, base: Cell, folder: Path) -> list[tuple[int, Cell]]:
    """Return the trials that were begun by a process that is gone, to go on with them."""
    begun = []
    for trial in study.get_trials(deepcopy=False):
        cell = cell_of(base, trial.number, trial.params)
        is_begun = trial.state.name == "RUNNING" and (folder / cell.name / CELL).exists()
        if is_begun and not is_locked(folder / cell.name):
            begun.append((trial.number, cell))
    return begun


def run_batch(
    study: Any,
    batch: Sequence[tuple[int, Cell]],
    folder: Path,
    execute: Execute,
    report: Callable[[str], None],
) -> list[State]:
    """Run some trials, tell the study what they returned, and return what became of each."""
    cells = {cell.name: number for number, cell in batch}
    ended = execute(plan([cell for _, cell in batch], folder, Speeds([], "")))
    states = {name: ended.get(name, State.BEGUN) for name in cells}
    for name, number in cells.items():
        if states[name] is State.FINISHED:
            final = read_object(folder / name / FINAL, JUDGE_AGAIN, RETURNS)["final"]
            value = sum(final["return"]) / max(len(final["return"]), 1)
            study.tell(number, value)
            report(f"trial {number}: return {value:.5g}")
        elif states[name] is State.FAILED:
            study.tell(number, state=importlib.import_module("optuna").trial.TrialState.FAIL)
    return list(states.values())
