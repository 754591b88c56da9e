"""What a run came to, in the terminal: the policy beside the reference policies, and what to do next."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from inbounds.cli.display import duration, plural, sparkline
from inbounds.cli.output import command, shown
from inbounds.cli.terminal import Terminal
from inbounds.evaluation.baselines import ReferenceReturn, play_reference, quick_references
from inbounds.storage.files import write_text
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder
from inbounds.training.summary import RunSummary


def show_summary(
    terminal: Terminal, folder: RunFolder, task: Any, with_references: bool, elapsed: float
) -> None:
    """Print the final table, the curves, and where everything is."""
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
        f"{summary.step:,} steps per seed in {duration(seconds)} of training{prepared}, {duration(elapsed)} in all; "
        f"checkpoint {checkpoint / 1e6:.1f} MB"
    )
    picture = draw(terminal, folder, references)
    terminal.say(f"run folder {folder.path}" + (f", picture {picture}" if picture else ""))
    terminal.say(f"next: {command('evaluate', folder.path)}")
    terminal.say(f"      {command('report', folder.path)}")
    terminal.say(f"      {command('render', task.name, '--policy', folder.path)}")


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
        Text.assemble((f"{returns.mean():.4g}", "bold"), f" ± {deviation:.2g}"),
        f"{valid.mean():.3f}",
        f"{summary.column('training_projections').mean():,.0f}",
        f"{summary.worst_violation:g}",
    )
    for reference in references:
        table.add_row(
            reference.name,
            f"{reference.returns.mean():.4g} ± {reference.returns.std():.2g}",
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
    return "The policy is not yet told apart from uniformly random feasible actions: train longer."


def mean_curve(rows: list[dict[str, Any]], name: str) -> list[float]:
    """Return the mean over seeds at every evaluation."""
    steps = sorted({row["step"] for row in rows})
    return [float(np.mean([row[name] for row in rows if row["step"] == step])) for step in steps]


def draw(terminal: Terminal, folder: RunFolder, references: list[ReferenceReturn]) -> Path | None:
    """Draw the learning curve, or say in one line what is missing for it."""
    from inbounds.report.run_picture import draw_run

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
