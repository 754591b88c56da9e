"""Methods compared over all tasks at once: normalised returns, probabilities of improvement, performance profiles.

A normalised return is 0 for the uniform feasible policy and 1 for the paper's ARAM, task by task, so that tasks of
different scales can be put together (Agarwal et al., 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inbounds.experiments.results import Result
from inbounds.report.published import RETURN, labels
from inbounds.report.statistics import (
    Interval,
    Scores,
    normalised,
    performance_profile,
    probability_of_improvement_interval,
    stratified_bootstrap,
)
from inbounds.report.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "aram-default"
"""The method that the others are compared with."""
WORST = "uniform"
"""The reference policy whose return is 0."""


class Method(NamedTuple):
    """A method's normalised returns on the tasks that it has finished with all planned seeds and steps."""

    label: str
    tasks: tuple[str, ...]
    scores: Scores
    """(seeds, tasks)."""
    valid_action_rate: float
    """Mean over seeds and tasks."""


def compared_methods(results: Sequence[Result], references: Mapping[str, Any]) -> dict[str, Method]:
    """Return the methods of some results, the highest interquartile mean first."""
    whole = [
        result
        for result in results
        if result.is_complete and (result.task, "aram") in RETURN and WORST in references.get(result.task, {})
    ]
    names, found = labels(whole), dict[str, Method]()
    for method in dict.fromkeys(result.method for result in whole):
        own = [result for result in whole if result.method == method]
        fewest = min(len(result.seeds) for result in own)
        scores = normalised(
            np.asarray([result.final["return"][:fewest] for result in own]).T,
            [references[result.task][WORST]["mean"] for result in own],
            [RETURN[result.task, "aram"].mean for result in own],
        )
        rate = float(np.mean([np.mean(result.final["valid_action_rate"]) for result in own]))
        found[method] = Method(names[method], tuple(result.task for result in own), scores, rate)
    return dict(
        sorted(found.items(), key=lambda entry: -stratified_bootstrap(entry[1].scores, resamples=1).value)
    )


def improvement(ours: Method, other: Method) -> Interval | None:
    """Return the probability that a run of ours earns more than one of the other, over the tasks that both have."""
    common = [task for task in ours.tasks if task in other.tasks]
    if not common:
        return None
    columns = ([method.tasks.index(task) for task in common] for method in (ours, other))
    mine, theirs = columns
    return probability_of_improvement_interval(ours.scores[:, mine], other.scores[:, theirs])


def comparison_table(results: Sequence[Result], references: Mapping[str, Any]) -> str:
    """Return one row per method: its interquartile mean, and how often our default earns more."""
    methods = compared_methods(results, references)
    rows = []
    for name, method in methods.items():
        mean = stratified_bootstrap(method.scores)
        wins = improvement(methods[OURS], method) if OURS in methods and name != OURS else None
        rows.append(
            (
                method.label,
                f"{len(method.tasks)}",
                f"{mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]",
                f"{method.valid_action_rate:.2f}",
                "" if wins is None else f"{wins.value:.2f} [{wins.low:.2f}, {wins.high:.2f}]",
            )
        )
    headings = (
        "method",
        "tasks",
        "normalised return, interquartile mean",
        "valid action rate",
        "P(ARAM earns more)",
    )
    return markdown(headings, rows)


def draw_profiles(results: Sequence[Result], references: Mapping[str, Any]) -> Figure | None:
    """Draw, per method, the fraction of runs above each normalised return; only tasks that all methods have count."""
    methods = compared_methods(results, references)
    common = [
        task
        for task in dict.fromkeys(task for method in methods.values() for task in method.tasks)
        if all(task in method.tasks for method in methods.values())
    ]
    if not common:
        return None
    from matplotlib.figure import Figure

    from inbounds.report.figures import legend, looks

    look = looks([result for result in results if result.method in methods])
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    levels = np.linspace(0.0, 1.4, 141)
    for name, method in methods.items():
        columns = [method.tasks.index(task) for task in common]
        profile = performance_profile(method.scores[:, columns], levels)
        axes.plot(levels, profile.share, color=look[name].colour, linestyle=look[name].dash)
        axes.fill_between(levels, profile.low, profile.high, color=look[name].colour, alpha=0.18, linewidth=0)
    axes.axvline(1.0, color="0.5", linestyle=(0, (4, 3)), linewidth=1)
    axes.set(
        xlabel="normalised return (1: the paper's ARAM)",
        ylabel="fraction of runs above it",
        ylim=(-0.02, 1.02),
    )
    legend(figure, look)
    return figure
