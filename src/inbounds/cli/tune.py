"""`inbounds tune`: a search over settings of a learner, one run folder per trial."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from inbounds.cli.benchmark import Options as BenchmarkOptions
from inbounds.cli.benchmark import execute
from inbounds.cli.options import prepare_device, started_device
from inbounds.cli.terminal import Terminal
from inbounds.errors import ConfigurationError
from inbounds.tasks.named_tasks import METAVAR, OWN_TASK, is_import_path, label, named_task


@dataclasses.dataclass(frozen=True)
class Options:
    """Search settings of a learner with Optuna; the return of the kept policy on fresh episodes decides.

    The study lies in OUT/study.db: stop it at any time, and the same command goes on. Several terminals or machines
    that share OUT may work on it at once.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=METAVAR)]
    """Name of the task, or where to import your own from."""
    learner: Annotated[str, tyro.conf.arg(metavar="NAME")] = "aram"
    """Which learner."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "default"
    """Preset from which the search starts."""
    search: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=LOW:HIGH[:log]|NAME=A,B,C ...")] = ()
    """Settings to search; by default learning rate, tau, gamma, batch size and, for ARAM, target acceptance
    and entropy ramp, or penalty and eta where the penalty is fixed."""
    trials: int = 30
    """Finished trials in all, those of earlier calls included."""
    jobs: int = 1
    """Trials that run side by side."""
    steps: int = 100_000
    """Environment steps of a trial."""
    seeds: int = 3
    """Seeds of a trial; their mean counts."""
    episodes: int = 20
    """Fresh episodes per seed that decide."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where trials and study are written; by default runs/tune-TASK-LEARNER."""
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|gpu")] = None
    """Where to compute; by default what JAX finds."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Run the trials on a Ray cluster."""


def run(arguments: list[str]) -> int:
    """Search, then print the best trials and the command that trains with them."""
    options = tyro.cli(Options, prog="inbounds tune", args=arguments)
    prepare_device(options.device)
    from inbounds.experiments.experiment import Cell
    from inbounds.experiments.tuning import cell_of, default_space, parse_range, tune
    from inbounds.training.interrupts import Requests

    for name in ("trials", "jobs"):
        if getattr(options, name) < 1:
            raise ConfigurationError(f"--{name} {getattr(options, name)} would run nothing. Use 1 or more.")
    terminal, asked = Terminal(), Requests()
    started_device(options.device)
    with contextlib.chdir("."):  # the task may change the working directory, where the workers start
        task = label(options.task, named_task(options.task))
    if is_import_path(options.task):
        os.environ[OWN_TASK] = options.task  # for the workers, which import nothing that a file names
    base = Cell(
        task,
        options.learner,
        options.preset,
        options.steps,
        options.seeds,
        final_episodes=options.episodes,
    )
    learner = base.make_learner()
    space = [parse_range(text, learner) for text in options.search] or default_space(learner)
    folder = options.out or Path("runs") / f"tune-{task}-{options.learner}"
    terminal.say(f"searching {', '.join(one.name for one in space)} in {folder}")

    def run_cells(cells: Sequence[Any]) -> dict[str, Any]:
        wanted = BenchmarkOptions(out=folder, jobs=options.jobs, ray=options.ray)
        return execute(terminal, cells, wanted, asked)

    study = tune(base, space, options.trials, options.jobs, folder, run_cells, terminal.say)
    finished = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if len(finished) < options.trials:
        terminal.say(f"{len(finished)} of {options.trials} trials are finished; the same command goes on.")
        return 130 if asked else 1
    finished.sort(key=lambda trial: -trial.value)
    # Earlier calls may have searched other settings.
    names = dict.fromkeys(name for trial in finished for name in trial.params)
    table = Table("trial", "return", *names, title=f"best of {len(finished)} trials")
    for trial in finished[:10]:
        found = (trial.params.get(name, "") for name in names)
        values = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in found)
        table.add_row(str(trial.number), f"{trial.value:.5g}", *values)
    terminal.print(table)
    best = cell_of(base, finished[0].number, finished[0].params)
    terminal.say("train with the best: " + best.command("runs/best", options.task))
    return 0
