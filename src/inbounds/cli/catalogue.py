"""`inbounds list`: what can be trained, with what, and which suites exist."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated

import tyro
from rich import box
from rich.table import Table

from inbounds.cli.terminal import Terminal


@dataclasses.dataclass(frozen=True)
class Options:
    """Show the tasks with their constraints, the learners and the suites."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[tasks|learners|suites]")] = "all"
    """Show only one of the three tables."""


def run(arguments: list[str]) -> int:
    """Print the tables."""
    options = tyro.cli(Options, prog="inbounds list", args=arguments)
    tables = {"tasks": tasks_table, "learners": learners_table, "suites": suites_table}
    from inbounds.errors import UnknownNameError

    if options.what not in (*tables, "all"):
        raise UnknownNameError("table", options.what, tables, "Leave it out to see all three.")
    console = Terminal()
    for name, make_table in tables.items():
        if options.what == name:
            console.print(make_table(True))
        elif options.what == "all":
            console.print(make_table(False))
    return 0


def tasks_table(is_alone: bool) -> Table:
    """Return one row per task; reference policies only where the table has the page to itself."""
    from inbounds.evaluation.baselines import reference_names
    from inbounds.tasks.registry import make, names

    table = Table(title="Tasks", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("every action satisfies")
    table.add_column("observation", justify="right")
    table.add_column("action", justify="right")
    table.add_column("horizon", justify="right")
    if is_alone:
        table.add_column("reference policies")
    for name in names():
        task = make(name)
        table.add_row(
            name,
            task.constraint.formula(),
            str(task.observation_size),
            str(task.action_size),
            f"{task.horizon:,}",
            *([", ".join(reference_names(task))] if is_alone else []),
        )
    return table


def learners_table(is_alone: bool) -> Table:
    """Return one row per learner."""
    from inbounds.learners.registry import LEARNERS, make_learner

    table = Table(title="Learners", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    if is_alone:
        table.add_column("presets")
    for name, kind in LEARNERS.items():
        summary = (inspect.getdoc(kind) or "").split("\n")[0]
        presets = [", ".join(make_learner(name).presets)] if is_alone else []
        table.add_row(name, summary.removeprefix("Return "), *presets)
    return table


def suites_table(is_alone: bool) -> Table:
    """Return one row per suite."""
    from inbounds.experiments.suites import SUITES

    table = Table(
        title="Suites of `inbounds benchmark`", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it answers")
    table.add_column("experiments", justify="right")
    if is_alone:
        table.add_column("in the paper")
    for suite in SUITES.values():
        table.add_row(
            suite.name, suite.question, str(len(suite.cells())), *([suite.shows] if is_alone else [])
        )
    return table
