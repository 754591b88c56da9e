"""`inbounds list`: what can be trained, with what, and which suites exist."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.table import Table


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
    console = Console()
    for name, make_table in tables.items():
        if options.what in ("all", name):
            console.print(make_table())
    return 0


def tasks_table() -> Table:
    """Return one row per task."""
    from inbounds.tasks import make, names, reference_names

    table = Table(title="Tasks", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("every action satisfies")
    table.add_column("sizes\nobservation, action", justify="right")
    table.add_column("horizon", justify="right")
    table.add_column("reference policies")
    for name in names():
        task = make(name)
        table.add_row(
            name,
            task.constraint.formula(),
            f"{task.observation_size}, {task.action_size}",
            f"{task.horizon:,}",
            ", ".join(reference_names(task)),
        )
    return table


def learners_table() -> Table:
    """Return one row per learner."""
    from inbounds.learners.registry import LEARNERS, make_learner

    table = Table(title="Learners", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    table.add_column("presets")
    for name, kind in LEARNERS.items():
        summary = (inspect.getdoc(kind) or "").split("\n")[0]
        table.add_row(name, summary.removeprefix("Return "), ", ".join(presets_of(make_learner(name))))
    return table


def presets_of(learner: object) -> tuple[str, ...]:
    """Return the names of a learner's presets."""
    return tuple(getattr(learner, "presets", ())) or ("default",)


def suites_table() -> Table:
    """Return one row per suite."""
    from inbounds.benchmark.suite import SUITES

    table = Table(
        title="Suites of `inbounds benchmark`", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it answers")
    table.add_column("cells", justify="right")
    for suite in SUITES.values():
        table.add_row(suite.name, suite.question, str(len(suite.cells())))
    return table
