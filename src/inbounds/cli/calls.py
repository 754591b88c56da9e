"""The commands as functions: what `ib.train`, `ib.evaluate`, `ib.render` and `ib.write_report` do from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inbounds.errors import told_by_python

if TYPE_CHECKING:
    from inbounds.evaluation.protocol import FinalEvaluation
    from inbounds.learners.learner import Learner
    from inbounds.tasks.task import Task
    from inbounds.training.summary import Callback, RunSummary


def train(
    task: Task | str,
    learner: Learner | str = "aram",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    warn: Callable[[str], None] = told_by_python,
    **settings: Any,
) -> RunSummary:
    """Train a learner on a task and return the summary of the run.

    Steps of training are also logged under the name `inbounds.training` of the module `logging`: evaluations and
    checkpoints as INFO, every row as DEBUG.

    Args:
        task: a task or the name of one of ours.
        learner: a learner or its name.
        out: the run folder; by default runs/TASK-LEARNER-TIME.
        resume: go on with the run in `out`, from its newest checkpoint and with its settings; those given here may be
            more `steps`, and others that do not change what was learnt. A run without a checkpoint begins again.
        callbacks: functions of a row, a `MetricsRow` or an `EvaluationRow` (`row["kind"]` tells which); one that
            returns True stops the run after a checkpoint.
        progress: show how training goes: live in a terminal or a notebook with ipywidgets, as lines elsewhere.
        warn: called with what a user should know but need not act upon; by default a Python warning.
        settings: `steps`, `seed`, `seeds`, `environments`, `updates_per_step`, `warm_up`, `capacity`,
            `evaluate_every`, `episodes`, `scale_observations`, `scale_rewards`, `preference`, `checkpoint_every`,
            `keep`, `threads`, `device` and `deterministic`; `inbounds train --help` explains them with their defaults.
    """
    from inbounds.training.api import train as train_quietly

    with progress_display(task, learner, out, resume, settings) if progress else nothing_shown() as display:
        return train_quietly(
            task,
            learner,
            out=out,
            resume=resume,
            callbacks=[*display, *callbacks],
            warn=warn,
            **settings,
        )


@contextlib.contextmanager
def nothing_shown() -> Iterator[Sequence[Callback]]:
    """Give no callback."""
    yield ()


@contextlib.contextmanager
def progress_display(
    task: Any, learner: Any, out: str | Path | None, resume: bool, settings: dict[str, Any]
) -> Iterator[Sequence[Callback]]:
    """Give the callback that shows progress: a live panel where the output can redraw it, otherwise lines."""
    from inbounds.cli.display import LiveDisplay, PlainDisplay
    from inbounds.cli.terminal import Terminal
    from inbounds.tasks.task import Task
    from inbounds.training.config import TrainingConfig
    from inbounds.training.record import RunFolder
    from inbounds.training.summary import plural

    recorded = RunFolder(Path(out)).config()["training"] if resume and out is not None else {}
    known = {name: ({**recorded, **settings}).get(name) for name in ("steps", "seeds")}
    config = TrainingConfig(**{name: value for name, value in known.items() if value is not None})
    steps, seeds = config.steps, config.seeds
    terminal = Terminal()
    task_name = task.name if isinstance(task, Task) else str(task)
    title = f"{task_name}, {learner if isinstance(learner, str) else type(learner).__name__}"
    if can_redraw(terminal):
        with LiveDisplay(f"{title}, {plural(seeds, 'seed')}", steps, seeds, terminal) as live:
            yield (live,)
    else:
        yield (PlainDisplay(steps, seeds, terminal),)


def can_redraw(terminal: Any) -> bool:
    """Tell whether a panel can be redrawn in place: in a terminal, or in a notebook that has widgets."""
    return terminal.is_terminal or (terminal.is_jupyter and find_spec("ipywidgets") is not None)


def evaluate(
    run: RunSummary | str | Path,
    task: Task | str | None = None,
    *,
    policy: Literal["last", "best"] = "last",
    episodes: int = 100,
    preference: tuple[float, float] | None = None,
    seed: int | None = None,
) -> FinalEvaluation:
    """Evaluate a run on episodes that training has not seen; nothing is written.

    The return is that of deterministic actions, projected where they are infeasible; the valid action rate is the
    feasible fraction of 100 raw samples at every visited state.

    Args:
        run: what `train` returned, or the folder of a run.
        task: the task of a run that is not one of ours, or the name of one that is.
        policy: the last policy of the run, or that of each seed's best evaluation.
        episodes: episodes per seed.
        preference: weights of return and validity of a preference-conditioned policy; by default those of the run.
        seed: evaluate this seed alone; all of them by default.
    """
    from inbounds.evaluation.protocol import evaluate_run
    from inbounds.evaluation.trained import TrainedRun
    from inbounds.limits import require_whole
    from inbounds.tasks.registry import make

    require_whole(1, episodes=episodes)
    known = make(task) if isinstance(task, str) else task
    opened = TrainedRun.open(folder_of(run), known, policy=policy)
    return evaluate_run(opened if seed is None else opened.only(seed), episodes, preference)


def render(
    run: RunSummary | str | Path,
    task: Task | str | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    policy_seed: int | None = None,
    preference: tuple[float, float] | None = None,
    steps: int | None = None,
) -> Path:
    """Film one episode of a policy, with the use of the constraint drawn into it, and return the file.

    Args:
        run: what `train` returned or the folder of a run; or the name of a reference policy of the task, such as
            "uniform".
        task: the task of a run that is not one of ours, or of the reference policy.
        out: an .mp4 or .gif; by default TASK-RUN.mp4, or .gif where no encoder is installed.
        seed: seed of the episode.
        policy_seed: which of the run's seeds acts; by default its first.
        preference: weights of return and validity of a preference-conditioned policy; by default those of the run.
        steps: film so many steps at most; by default the whole episode.
    """
    from inbounds.cli.render import film, reference_player, require_possible, run_player
    from inbounds.tasks.registry import make

    require_possible(seed, steps)
    here = Path.cwd()  # the task may change the working directory
    folder, known = here / folder_of(run), make(task) if isinstance(task, str) else task
    player = (
        run_player(folder, known, policy_seed, preference)
        if folder.is_dir()
        else reference_player(str(run), known, seed)
    )
    return here / film(player, None if out is None else Path(out), seed, steps, here).path


def write_report(
    *runs: RunSummary | str | Path,
    task: Task | None = None,
    out: str | Path | None = None,
    title: str | None = None,
) -> Path:
    """Turn runs into one self-contained web page and return its file.

    Args:
        runs: what `train` returned, run folders, folders above them, or results.
        task: the task of runs that are not on one of ours; one episode of it shows how much of the constraint is used.
        out: the page; by default report.html in the first of them.
        title: heading of the page.
    """
    from inbounds.cli.report import Options, collect, default_page
    from inbounds.errors import ConfigurationError
    from inbounds.experiments.collecting import trace_runs
    from inbounds.report.page import render_page
    from inbounds.storage.files import write_text

    folders = tuple(folder_of(run) for run in runs)
    if not folders:
        raise ConfigurationError("a report of what? Give what train() returned, or folders of runs.")
    target = default_page(folders[0]) if out is None else Path(out)
    trace_runs(folders, task, told_by_python)
    write_text(target, render_page(collect(Options(folders, title=title))))
    return target


def folder_of(run: Any) -> Path:
    """Return the folder of what `train` returned, or of a path to it."""
    from inbounds.errors import InvalidInputError

    path = getattr(run, "path", run)
    if not isinstance(path, str | Path):
        raise InvalidInputError(
            f"{run!r} is not a run. Give what train() returned, or the folder that it wrote."
        )
    return Path(path)
