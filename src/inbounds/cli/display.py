"""What a user sees while training: a live panel in a terminal, one line per report elsewhere."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from inbounds.cli.output import shown
from inbounds.cli.terminal import Terminal

SHOWN = 8
"""Evaluations that the live table keeps in sight."""


class Standing:
    """Where a run stands: the newest rows of all seeds, averaged."""

    def __init__(self, steps: int, seeds: int) -> None:
        """Begin with nothing known but how far the run goes."""
        self.steps, self.seeds = steps, seeds
        self.step, self.speed, self.acceptance, self.projections = 0, 0.0, 0.0, 0.0
        self.evaluations: list[dict[str, float]] = []
        self._waiting: dict[str, list[dict[str, Any]]] = {"metrics": [], "evaluation": []}
        self._evaluation_seconds = 0.0
        self._reports = 0

    def take(self, row: dict[str, Any]) -> str | None:
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

    def __call__(self, row: dict[str, Any]) -> None:
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

    def __call__(self, row: dict[str, Any]) -> None:
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


def plural(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _mean(rows: list[dict[str, Any]], name: str) -> float:
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
