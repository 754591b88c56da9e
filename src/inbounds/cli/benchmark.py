"""`inbounds benchmark`: the plan and its price first, then every open experiment, and a table of what is finished."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from inbounds.cli.display import duration
from inbounds.cli.options import prepare_device, started_device
from inbounds.cli.terminal import Terminal, command
from inbounds.errors import ConfigurationError, InvalidInputError
from inbounds.storage.files import write_json

METAVAR = "SUITE|FILE.py:SUITE|MODULE:SUITE"
MANY = 24
"""Before it runs, a longer suite is counted instead of listed; `--plan` lists every one."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Run a suite: tasks x learners x seeds. Stop it at any time; the same command goes on where it stopped.

    Every experiment is a run folder below OUT/SUITE and a process of its own. What is finished is skipped, what was
    begun is resumed, one that fails is reported and the others go on. Finished ones become small files below RESULTS,
    which `inbounds report` reads and which can be committed; `--merge` adds those of other machines.
    """

    suite: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=METAVAR)] = "smoke"
    """Which suite. `inbounds list suites` explains ours; your own is imported from where you name it.
    `references` plays the reference policies of all tasks."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")
    """Where run folders are written: FOLDER/SUITE/EXPERIMENT."""
    results: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where result files are written: FOLDER/SUITE/EXPERIMENT.json; by default OUT/results."""
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK [TASK ...]")] = ()
    """Only these tasks of the suite."""
    learners: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ()
    """Only these learners of the suite."""
    presets: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ()
    """Only experiments of these presets, `default` or `paper`."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ()
    """Only these variants of the suite, such as `eta-constant` of `reviewers`."""
    jobs: int | None = None
    """Experiments that run side by side on this machine; by default 2 on a CPU with two cores or more, 1 on a GPU."""
    steps: int | None = None
    """Train every experiment for so many steps instead of the suite's."""
    seeds: int | None = None
    """Train so many seeds instead of the suite's."""
    seed: int = 0
    """First seed: a second machine may take seeds 5 to 9 of the same experiments, and `--merge` puts them together."""
    plan: bool = False
    """Only show the plan and its estimated time."""
    only: Literal["train", "evaluate"] | None = None
    """`train` leaves the final evaluations to a later call; `evaluate` makes those that are left and trains
    nothing. They need no GPU and no checkpoints, so run folders can be copied elsewhere without them."""
    retry: bool = False
    """Try experiments again that failed before."""
    collect: bool = False
    """Run nothing: only collect what is finished into RESULTS."""
    merge: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER [FOLDER ...]")] = ()
    """Further OUT folders, copied from other machines, whose finished experiments are collected too."""
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|gpu")] = None
    """Where to compute; by default what JAX finds."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Run the experiments on a Ray cluster instead (`auto`, or host:port); needs the package ray."""


def run(arguments: list[str]) -> int:
    """Plan, run, collect; the status is 0 if all of the plan is done."""
    options = tyro.cli(Options, prog="inbounds benchmark", args=arguments)
    prepare_device(options.device)
    # Experiments are processes that share the device: none, this one included, may reserve most of its memory at start.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from inbounds.experiments.collecting import require_experiments
    from inbounds.experiments.suites import OWN_SUITE, missing_learners, suite_by_name
    from inbounds.tasks.named_tasks import is_import_path

    terminal = Terminal()
    options = dataclasses.replace(options, jobs=jobs_of(options))
    if options.suite == "references":
        return play_references(terminal, options)
    with contextlib.chdir("."):  # the user's file may change the working directory
        suite = suite_by_name(options.suite)
    if is_import_path(options.suite):
        os.environ[OWN_SUITE] = options.suite  # for the workers, which import nothing that a file names
    require_experiments(options.merge, suite)
    if missing := missing_learners(suite):
        terminal.say(f"not in this version, so left out: {', '.join(missing)}")
    status = 0
    if not options.collect:
        cells = make_plan(suite, options)
        show_plan(terminal, suite, cells, options)
        if options.plan:
            return 0
        status = work_on(terminal, cells, options)
    is_whole = collect(terminal, suite, options)
    return status or (0 if is_whole else 1)


def work_on(terminal: Terminal, cells: Sequence[Any], options: Options) -> int:
    """Run what is wanted of the experiments, say what is left, and return the exit status."""
    from inbounds.experiments.runner import State
    from inbounds.training.interrupts import Requests

    asked, wanted = Requests(), [cell for cell in cells if is_wanted(cell, options)]
    ended = execute(terminal, wanted, options, asked)
    now = {cell.cell.name: cell.state for cell in cells} | ended
    if options.only == "train":
        count = sum(state is State.TRAINED for state in now.values())
        terminal.say(
            f"{count} experiments are trained and not evaluated yet: --only evaluate does that, here or wherever their "
            f"folders are copied to."
        )
    done = (State.FINISHED, State.FAILED, *([State.TRAINED] if options.only == "train" else []))
    left = sum(now[cell.cell.name] not in done for cell in wanted)
    if left:
        why = (
            "stopped by Ctrl-C or SIGTERM" if asked else "another process works on them, or they were stopped"
        )
        terminal.say(f"{left} experiments are open ({why}); the same command goes on with them.")
    if asked and left:
        return 130
    return 1 if left or any(state is State.FAILED for state in now.values()) else 0


def collect(terminal: Terminal, suite: Any, options: Options) -> bool:
    """Write the results of finished experiments and show them; tell whether every finished experiment could be read."""
    from inbounds.experiments.collecting import finished_cells
    from inbounds.experiments.results import save_result

    target = (options.results or options.out / "results") / suite.name
    damaged: list[str] = []
    results = finished_cells([options.out, *options.merge], suite, damaged.append)
    for result in results:
        save_result(result, target)
    show_results(terminal, results)
    for why in damaged:
        terminal.say(f"left out: {why}")
    terminal.say(
        f"{len(results)} finished experiments in {target}. Look at them: {command('report', target)}"
        if results
        else "no experiment is finished yet."
    )
    return not damaged


def is_wanted(planned: Any, options: Options) -> bool:
    """Tell whether an experiment is to be run: what is left of it, unless it failed and is not to be tried again."""
    from inbounds.experiments.runner import State
    from inbounds.experiments.worker import TRAINED

    if planned.state is State.FINISHED or (planned.state is State.FAILED and not options.retry):
        return False
    part = "evaluate" if (planned.folder / TRAINED).exists() else "train"
    return options.only in (None, part)


def jobs_of(options: Options) -> int:
    """Return how many experiments run at once; times of a suite that measures them need the machine to themselves."""
    if options.jobs is not None and options.jobs < 1:
        raise ConfigurationError(f"--jobs {options.jobs} would run nothing. Use 1 or more.")
    if options.suite == "wall-clock":
        if (options.jobs or 1) > 1:
            raise ConfigurationError(
                "wall-clock measures time, so its experiments run one by one. Leave --jobs out."
            )
        return 1
    if options.jobs is not None:
        return options.jobs
    return 1 if this_device(options.device).startswith("gpu") else min(2, len(os.sched_getaffinity(0)))


def play_references(terminal: Terminal, options: Options) -> int:
    """Play the reference policies of the chosen tasks and keep their results in references.json."""
    from inbounds.evaluation.baselines import measure_references
    from inbounds.experiments.collecting import read_measured
    from inbounds.tasks.registry import names
    from inbounds.training.record import provenance

    path = (options.results or options.out / "results") / "references.json"
    known = read_measured(path) if path.exists() else {}
    steps = 200_000 if options.steps is None else options.steps
    found = measure_references(options.tasks or names(), 100, steps, terminal.say)
    origin = provenance()
    tasks = known | {task: {"played": {**policies}, "provenance": origin} for task, policies in found.items()}
    write_json(path, {"format": 1, "tasks": tasks})
    terminal.say(f"wrote {path}")
    return 0


def make_plan(suite: Any, options: Options) -> list[Any]:
    """Return the experiments of the suite with their state and estimated time; those of another task are refused."""
    from inbounds.experiments.runner import Speeds, plan
    from inbounds.experiments.suites import available_cells
    from inbounds.experiments.worker import present_task_check

    asked = available_cells(suite, options.tasks, options.learners, options.presets, options.variants)
    cells = [adjusted(cell, options) for cell in asked]
    require_present_task = present_task_check(suite)
    for cell in cells:
        require_present_task(options.out / suite.name / cell.name, cell.task)
    return plan(cells, options.out / suite.name, Speeds(measurements(options), this_device(options.device)))


def adjusted(cell: Any, options: Options) -> Any:
    """Return an experiment with the steps and seeds of the options."""
    changes = {"steps": options.steps, "seeds": options.seeds, "seed": options.seed or None}
    return dataclasses.replace(cell, **{name: value for name, value in changes.items() if value is not None})


def measurements(options: Options) -> list[Any]:
    """Return all results at hand, for their speeds; one that is damaged tells none."""
    from inbounds.experiments.collecting import is_result_file
    from inbounds.experiments.results import load_result

    roots = [options.results or options.out / "results", Path("benchmarks") / "results"]
    files = [file for root in roots if root.is_dir() for file in sorted(root.rglob("*.json"))]
    found = []
    for file in filter(is_result_file, files):
        with contextlib.suppress(InvalidInputError):
            found.append(load_result(file))
    return found


def this_device(asked: str | None = None) -> str:
    """Return the kind of device, as provenance names it."""
    device = started_device(asked)
    return f"{device.platform}: {device.device_kind}"


def show_plan(terminal: Terminal, suite: Any, cells: Sequence[Any], options: Options) -> None:
    """Print what will run and what it will cost, or what is not known about that."""
    from inbounds.experiments.runner import State, total_seconds

    about = f": {suite.question} (paper: {suite.shows})"
    terminal.say(Text.assemble((suite.name, "bold"), about))
    if options.plan or len(cells) <= MANY:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("experiment", overflow="fold")
        for heading in ("seeds", "steps left", "state", "estimate"):
            is_number = heading != "state"
            table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number)
        for cell in cells:
            estimate = (
                ""
                if cell.state is State.FINISHED
                else "?"
                if cell.seconds_left is None
                else duration(cell.seconds_left)
            )
            words = f"{cell.state.value} {cell.note}".strip()
            table.add_row(cell.cell.name, str(cell.cell.seeds), f"{cell.steps_left:,}", words, estimate)
        terminal.print(table)
    counts = Counter(cell.state for cell in cells)
    terminal.print(", ".join(f"{counts[state]} {state.value}" for state in State if counts[state]))
    seconds, unknown = total_seconds(cells, options.jobs or 1)
    if seconds:
        terminal.print(
            f"about {duration(seconds)} at the speed measured on this kind of device, evaluations aside"
        )
    if unknown:
        terminal.say(
            f"{unknown} experiments of unknown duration: nothing comparable was measured on this kind of device yet; "
            f"the estimate appears as experiments finish"
        )
    for cell in cells:
        if cell.state is State.FAILED:
            terminal.say(f"failed before: {cell.cell.name}: {cell.note} (--retry tries again)")


def execute(terminal: Terminal, cells: Sequence[Any], options: Options, asked: Any) -> dict[str, Any]:
    """Run the experiments here or on a Ray cluster; `asked` counts the requests to stop."""
    if options.ray is not None:
        if options.only is not None:
            raise ConfigurationError("nodes of a cluster train and evaluate. Leave --only or --ray out.")
        from inbounds.experiments.runner import run_on_ray

        return run_on_ray(cells, options.ray, terminal.say)
    from inbounds.experiments.runner import run_locally

    jobs = options.jobs or 1
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str((options.out / ".compiled").resolve()))
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    environment = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "OMP_NUM_THREADS": str(threads),
    }
    train_only = options.only == "train"
    return run_locally(cells, jobs, terminal.say, environment, train_only, asked)


def show_results(terminal: Terminal, results: Sequence[Any]) -> None:
    """Print the final table: mean and deviation over seeds, as the paper does."""
    from inbounds.report.statistics import mean_and_deviation
    from inbounds.report.tables import number

    if not results:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    # Numbers are never cut: where space is short, names take two lines.
    table.add_column("experiment", overflow="fold")
    for heading in ("return", "valid rate", "solver\ncalls", "seeds x\nsteps"):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for result in results:
        returns, rates = (mean_and_deviation(result.final[name]) for name in ("return", "valid_action_rate"))
        calls = result.final["solver_calls"]
        training = [sum(row) for row in zip(calls["acting"], *calls["updates"].values(), strict=True)]
        table.add_row(
            result.name,
            number(*returns),
            f"{rates[0]:.3f} ± {rates[1]:.3f}",
            f"{sum(training) / len(training):,.0f}" if training else "unknown",
            f"{len(result.seeds)} x {result.steps:,}",
        )
    worst = max(result.worst_violation for result in results)
    steps = sum(result.environment_steps for result in results)
    table.caption = f"{steps:,} steps of training; worst violation in evaluations: {worst:g}"
    terminal.print(table)
