"""What a user sees of a run in the terminal: a live panel or lines while it trains, and what it came to."""

from __future__ import annotations

import csv
import io
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from inbounds.cli.terminal import Terminal, command, shown
from inbounds.evaluation.baselines import ReferenceReturn, play_reference, quick_references
from inbounds.storage.files import write_text
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder
from inbounds.training.summary import RunSummary, plural, two_digits

SHOWN = 8
"""Evaluations that the live table keeps in sight."""


class Standing:
    """Where a run stands: the newest rows of all seeds, averaged."""

    def __init__(self, steps: int, seeds: int) -> None:
        """Begin with nothing known but how far the run goes."""
        self.steps, self.seeds = steps, seeds
        self.step, self.speed, self.acceptance, self.projections = 0, 0.0, 0.0, 0.0
        self.evaluations: list[dict[str, float]] = []
        self._waiting: dict[str, list[Mapping[str, Any]]] = {"metrics": [], "evaluation": []}
        self._evaluation_seconds = 0.0
        self._reports = 0

    def take(self, row: Mapping[str, Any]) -> str | None:
        """Take one row in; return its kind when it completes a report of all seeds."""
        waiting = self._waiting[row["kind"]]
        waiting.append(row)
        if len(waiting) < self.seeds:
            return None
        rows, self._waiting[row["kind"]] = waiting, []
        self.step = row["step"]
        if row["kind"] == "metrics":
            self._reports += 1
            self.speed = row["steps_per_second"]
            self.acceptance = _mean(rows, "acceptance")
            self.projections = _mean(rows, "projections")
        else:
            self._evaluation_seconds += row["evaluation_seconds"]
            self.evaluations.append(
                {
                    "step": row["step"],
                    "return": _mean(rows, "return"),
                    "valid_action_rate": _mean(rows, "valid_action_rate"),
                    "projections": _mean(rows, "training_projections"),
                    "worst_violation": max(one["worst_violation"] for one in rows),
                }
            )
        return str(row["kind"])

    def seconds_left(self) -> float | None:
        """Return an estimate from the newest speed and what evaluations have cost so far.

        The first report was slowed down by compilation and the random phase, so it tells nothing yet.
        """
        if self._reports < 2 or not self.speed:
            return None
        ahead = self.steps - self.step
        return ahead / self.speed + self._evaluation_seconds * ahead / self.step


class LiveDisplay:
    """A panel that is redrawn in place; use it as a context and as a callback of `train`."""

    def __init__(self, title: str, steps: int, seeds: int, terminal: Terminal) -> None:
        """Prepare the panel."""
        self.standing = Standing(steps, seeds)
        self.title = title
        self.progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=terminal,
            expand=True,
        )
        self.bar = self.progress.add_task("", total=steps, note="compiling, then random steps")
        self.live = Live(self._panel(), console=terminal, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveDisplay:
        self.live.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.live.__exit__(*failure)

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Take one row in and redraw."""
        if self.standing.take(row) is None:
            return
        left = self.standing.seconds_left()
        note = f"{self.standing.speed:,.0f} steps/s" + ("" if left is None else f", {duration(left)} left")
        self.progress.update(self.bar, completed=self.standing.step, note=note)
        self.live.update(self._panel())

    def _panel(self) -> Panel:
        standing = self.standing
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        for heading in ("step", "return", "valid action rate", "projections", "worst violation"):
            table.add_column(heading, justify="right")
        for row in standing.evaluations[-SHOWN:]:
            table.add_row(
                f"{row['step']:,.0f}",
                f"{row['return']:.4g}",
                f"{row['valid_action_rate']:.3f}",
                f"{row['projections']:,.0f}",
                f"{row['worst_violation']:g}",
            )
        returns = [row["return"] for row in standing.evaluations]
        valid = [row["valid_action_rate"] for row in standing.evaluations]
        curves = f"return {sparkline(returns)}   valid {sparkline(valid)}" if returns else "no evaluation yet"
        now = (
            f"acceptance {standing.acceptance:.3f}, {standing.projections:,.0f} projections"
            if standing.step
            else ""
        )
        return Panel(
            Group(self.progress, table, curves, now),
            title=Text(shown(self.title)),
            title_align="left",
            box=box.ROUNDED,
        )


class PlainDisplay:
    """One line per evaluation, and one per ten seconds without any; for logs and pipes."""

    def __init__(self, steps: int, seeds: int, terminal: Terminal) -> None:
        """Prepare to print."""
        self.standing, self.terminal = Standing(steps, seeds), terminal
        self._printed = time.monotonic()
        self._waiting: str | None = None

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Take one row in and print what it completes; an evaluation at the same step says it all."""
        kind = self.standing.take(row)
        if kind == "evaluation":
            newest = self.standing.evaluations[-1]
            words = (
                f"return {newest['return']:.4g}  valid action rate {newest['valid_action_rate']:.3f}  "
                f"worst violation {newest['worst_violation']:g}  {self._pace()}"
            )
            self._say(self._line(words))
        elif kind == "metrics":
            if self._waiting is not None and time.monotonic() - self._printed >= 10.0:
                self._say(self._waiting)
            self._waiting = self._line(self._pace())

    def _pace(self) -> str:
        standing, left = self.standing, self.standing.seconds_left()
        pace = f"projections {standing.projections:,.0f}  {standing.speed:,.0f} steps/s"
        return pace if left is None else f"{pace}  {duration(left)} left"

    def _line(self, words: str) -> str:
        return f"step {self.standing.step:,} of {self.standing.steps:,}  {words}"

    def _say(self, line: str) -> None:
        self.terminal.say(line)
        self._printed, self._waiting = time.monotonic(), None


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _mean(rows: list[Mapping[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return a line of bars; more values than `width` are averaged in groups, what is not finite is blank."""
    if not values:
        return ""
    groups = min(width, len(values))
    edges = [round(index * len(values) / groups) for index in range(groups + 1)]
    means = [_finite_mean(values[start:end]) for start, end in itertools.pairwise(edges)]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return " " * groups
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    top = len(BARS) - 1
    return "".join(BARS[round(top * (mean - low) / span)] if math.isfinite(mean) else " " for mean in means)


def _finite_mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def show_summary(
    terminal: Terminal,
    folder: RunFolder,
    task: Any,
    with_references: bool,
    elapsed: float,
    own: Sequence[str] = (),
) -> None:
    """Print the final table, the curves, and where everything is; `own` says where a user's task is imported from."""
    summary = RunSummary.read(folder.path)
    if not summary.evaluations:
        terminal.say(f"{summary.task}, {summary.learner}: not evaluated yet ({folder.path})")
        return
    episodes = int(folder.config()["training"]["episodes"])
    references = (
        [play_reference(task, name, episodes) for name in quick_references(task)] if with_references else []
    )
    terminal.print(result_table(summary, references))
    rows = list(folder.rows(EVALUATIONS))
    for name, label in (("return", "return"), ("valid_action_rate", "valid action rate")):
        curve = mean_curve(rows, name)
        terminal.print(f"{label:18} {sparkline(curve)}  {curve[0]:.4g} -> {curve[-1]:.4g}")
    verdict = compare(summary, references)
    if verdict:
        terminal.say(verdict)
    seconds = summary.evaluations[0]["seconds"]
    checkpoint = sum(path.stat().st_size for path in folder.checkpoints.rglob("*") if path.is_file())
    spent = summary.preparation_seconds
    prepared = "" if spent is None else f" ({spent:.1f} s before the first step)"
    terminal.say(
        f"{summary.step:,} steps per seed in {duration(seconds)} of training{prepared}; "
        f"this command took {duration(elapsed)}; checkpoint {checkpoint / 1e6:.1f} MB"
    )
    picture = draw(terminal, folder, references)
    terminal.say(f"run folder {folder.path}" + (f", picture {picture}" if picture else ""))
    where = ["--task", *own] if own else []
    terminal.say(f"next: {command('evaluate', folder.path, *where)}")
    terminal.say(f"      {command('report', folder.path, *where)}")
    terminal.say(f"      {command('render', folder.path, *where)}")


def result_table(summary: RunSummary, references: list[ReferenceReturn]) -> Table:
    """Return the policy's last evaluation above what the reference policies got."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{summary.task}, after {summary.step:,} steps",
        title_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for heading in ("return", "valid action rate", "projections", "worst violation"):
        table.add_column(heading, justify="right")
    returns, valid = summary.column("return"), summary.column("valid_action_rate")
    spread = returns if len(returns) > 1 else summary.column("return_std")
    deviation = returns.std() if len(returns) > 1 else float(spread[0])
    table.add_row(
        Text.assemble((shown(summary.learner), "bold"), f", {plural(len(returns), 'seed')}"),
        Text.assemble((f"{returns.mean():.4g}", "bold"), f" ± {two_digits(deviation)}"),
        f"{valid.mean():.3f}",
        f"{summary.column('training_projections').mean():,.0f}",
        f"{summary.worst_violation:g}",
    )
    for reference in references:
        table.add_row(
            reference.name,
            f"{reference.returns.mean():.4g} ± {two_digits(reference.returns.std())}",
            "1.000",
            "",
            f"{reference.worst_violation:g}",
        )
    return table


def compare(summary: RunSummary, references: list[ReferenceReturn]) -> str:
    """Say in words whether the policy is better than drawing feasible actions at random."""
    uniform = next((reference for reference in references if reference.name == "uniform"), None)
    if uniform is None:
        return ""
    returns = np.asarray(summary.column("return"))
    noise = np.hypot(
        np.mean(summary.column("return_std")) / np.sqrt(len(returns) * len(uniform.returns)),
        uniform.returns.std() / np.sqrt(len(uniform.returns)),
    )
    gain = float(returns.mean() - uniform.returns.mean())
    if gain > 3 * noise:
        # A single episode has no spread to compare with.
        errors = f", {gain / noise:.0f} standard errors" if noise else ""
        return f"The policy beats uniformly random feasible actions by {gain:.4g}{errors}."
    if gain < -3 * noise:
        return f"The policy is worse than uniformly random feasible actions by {-gain:.4g}: train longer."
    return "The policy does not differ significantly from uniformly random feasible actions: train longer."


def mean_curve(rows: list[dict[str, Any]], name: str) -> list[float]:
    """Return the mean over seeds at every evaluation."""
    steps = sorted({row["step"] for row in rows})
    return [float(np.mean([row[name] for row in rows if row["step"] == step])) for step in steps]


def draw(terminal: Terminal, folder: RunFolder, references: list[ReferenceReturn]) -> Path | None:
    """Draw the learning curve, or say in one line what is missing for it."""
    from inbounds.report.figures import draw_run

    try:
        return draw_run(folder, {reference.name: float(reference.returns.mean()) for reference in references})
    except ImportError:
        terminal.say("no picture: matplotlib is not installed here; `inbounds report` draws it where it is.")
        return None


def write_csv(folder: RunFolder) -> None:
    """Write metrics and evaluations once more as CSV, for those who want to open them in a spreadsheet."""
    for name in (METRICS, EVALUATIONS):
        rows = list(folder.rows(name))
        if not rows:
            continue
        columns = list(dict.fromkeys(column for row in rows for column in row))
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, columns)
        writer.writeheader()
        writer.writerows(rows)
        write_text((folder.path / name).with_suffix(".csv"), table.getvalue())
