"""The figures of the paper, drawn from results, and the picture of one run; each returns it or nothing to draw.

Colours tell methods apart for the colour-blind too, lines carry dashes beyond the eighth method, and every panel
stays readable at the width of a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from inbounds.errors import ConfigurationError, MissingDependencyError
from inbounds.experiments.results import Result
from inbounds.report.page import method_place, task_place
from inbounds.report.published import RETURN, VALID_ACTION_RATE, labels, solver_calls
from inbounds.report.statistics import curve_band
from inbounds.report.style import COLOURS, DASHES, MARKERS, PARAMETERS, drawn, learner_name, save, task_name
from inbounds.storage.files import replacing
from inbounds.training.record import EVALUATIONS, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """How a method is drawn in every panel of a figure."""

    label: str
    colour: str
    dash: Literal["-", "--", "-.", ":"]
    marker: str


def looks(results: Sequence[Result]) -> dict[str, Look]:
    """Return the look of every method, the same in all panels."""
    names = labels(results)
    ordered = dict.fromkeys(result.method for result in sorted(results, key=method_place))
    return {
        method: Look(
            drawn(names[method]),
            COLOURS[place % len(COLOURS)],
            DASHES[place // len(COLOURS) % len(DASHES)],
            MARKERS[place % len(MARKERS)],
        )
        for place, method in enumerate(ordered)
    }


def panels(
    results: Sequence[Result], height: float = 1.75
) -> tuple[Figure, Iterator[tuple[str, Axes, list[Result]]]]:
    """Return a figure with one panel per task, up to four in a row, and what belongs into each."""
    from matplotlib.figure import Figure

    tasks = sorted({result.task for result in results}, key=task_place)
    columns = min(4, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(max(1.9 * columns, 3.2), height * rows + 0.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for empty in axes[len(tasks) :]:
        empty.set_axis_off()

    def filled() -> Iterator[tuple[str, Axes, list[Result]]]:
        for task, one in zip(tasks, axes, strict=False):
            one.set_title(drawn(task_name(task)))
            yield task, one, sorted((r for r in results if r.task == task), key=method_place)
        for place, one in enumerate(axes[: len(tasks)]):  # axes mean the same everywhere: name them once
            if place % columns:
                one.set_ylabel("")
            if place + columns < len(tasks):
                one.set_xlabel("")

    return figure, filled()


def legend(figure: Figure, look: dict[str, Look], published: bool = False) -> None:
    """Put one legend below all panels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=one.colour, linestyle=one.dash, label=one.label) for one in look.values()]
    if published:
        handles.append(Line2D([], [], color="0.5", linestyle=(0, (4, 3)), linewidth=1, label="paper: ARAM"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6))


def draw_curves(results: Sequence[Result], name: str, label: str, by_time: bool = False) -> Figure | None:
    """Draw interquartile means over seeds with bootstrap bands, against steps or seconds of training."""
    if by_time:
        results = [result for result in results if trained_alone(result)]
    if not results:
        return None
    from matplotlib.ticker import EngFormatter

    look, table = looks(results), {"return": RETURN, "valid_action_rate": VALID_ACTION_RATE}.get(name, {})
    figure, filled = panels(results)
    for task, axes, found in filled:
        for result in found:
            one, band = look[result.method], curve_band(result.curve[name])
            x = np.asarray(result.curve["seconds" if by_time else "step"], dtype=float)
            axes.plot(x, band.middle, color=one.colour, linestyle=one.dash)
            if len(result.seeds) > 1:
                axes.fill_between(x, band.low, band.high, color=one.colour, alpha=0.18, linewidth=0)
        if (task, "aram") in table:
            axes.axhline(table[task, "aram"].mean, color="0.5", linestyle=(0, (4, 3)), linewidth=1)
        axes.set_xlabel("seconds of training" if by_time else "environment steps")
        axes.set_ylabel(label)
        if name == "valid_action_rate":
            axes.set_ylim(-0.02, 1.02)
        if name == "training_projections":
            axes.set_yscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    legend(figure, look, bool(table))
    return figure


def trained_alone(result: Result) -> bool:
    """Tell whether each run trained one seed alone, so that its seconds mean something."""
    return all(len(origin["seeds"]) == 1 for origin in result.provenance)


def draw_return_by_steps(results: Sequence[Result]) -> Figure | None:
    """Draw returns against steps (Figures 7 and 9)."""
    return draw_curves(results, "return", "return")


def draw_return_by_time(results: Sequence[Result]) -> Figure | None:
    """Draw returns against the training time of one seed alone (Figure 3)."""
    return draw_curves(results, "return", "return", by_time=True)


def draw_valid_by_steps(results: Sequence[Result]) -> Figure | None:
    """Draw valid action rates against steps (Figures 8 and 10)."""
    return draw_curves(results, "valid_action_rate", "valid action rate")


def draw_projections(results: Sequence[Result]) -> Figure | None:
    """Draw cumulative projections of executed actions, on a logarithmic scale (Figure 4)."""
    return draw_curves(results, "training_projections", "projections")


def draw_acceptance(results: Sequence[Result]) -> Figure | None:
    """Draw the fraction of proposals that were feasible during training (asked for by reviewers)."""
    drawn = [result for result in results if result.training["step"]]
    if not drawn:
        return None
    from matplotlib.ticker import EngFormatter

    look = looks(drawn)
    figure, filled = panels(drawn)
    for _, axes, found in filled:
        for result in found:
            one, band = look[result.method], curve_band(result.training["acceptance"])
            axes.plot(result.training["step"], band.middle, color=one.colour, linestyle=one.dash)
        axes.set(xlabel="environment steps", ylabel="acceptance", ylim=(-0.02, 1.02))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    legend(figure, look)
    return figure


def draw_trade_off(results: Sequence[Result]) -> Figure | None:
    """Draw return against valid action rate, one mark per seed (Figure 5), and fronts of preferences."""
    if not results:
        return None
    look = looks(results)
    figure, filled = panels(results)
    for _, axes, found in filled:
        for result in found:
            one = look[result.method]
            axes.plot(
                result.final["valid_action_rate"],
                result.final["return"],
                linestyle="",
                marker=one.marker,
                markersize=4,
                color=one.colour,
            )
            if result.front is not None:
                points = sorted(result.front["points"])
                axes.plot(
                    [p[3] for p in points], [p[1] for p in points], color=one.colour, linewidth=0.8, alpha=0.6
                )
        axes.set(xlabel="valid action rate", ylabel="return")
    legend(figure, look)
    return figure


def draw_solver_calls(results: Sequence[Result]) -> Figure | None:
    """Draw all solver calls of training as bars on a logarithmic scale, in total (Figure 4)."""
    drawn = [result for result in results if solver_calls(result)]
    return draw_bars(
        drawn, lambda result: float(np.mean(solver_calls(result))), "solver calls per seed", is_log=True
    )


def draw_inference(results: Sequence[Result]) -> Figure | None:
    """Draw the time of one action, alone and with the environment's step (Table 3)."""
    drawn = [result for result in results if result.inference is not None]
    return draw_bars(drawn, _microseconds, "microseconds per action", second=_microseconds_with_step)


def draw_bars(
    results: Sequence[Result],
    value: Callable[[Result], float],
    label: str,
    second: Callable[[Result], float] | None = None,
    is_log: bool = False,
) -> Figure | None:
    """Draw one bar per method and task; a second, paler one behind it where there are two numbers."""
    if not results:
        return None
    look = looks(results)
    figure, filled = panels(results)
    for _, axes, found in filled:
        for place, result in enumerate(found):
            one = look[result.method]
            if second is not None:
                axes.bar(place, second(result), color=one.colour, alpha=0.3)
            axes.bar(place, value(result), color=one.colour)
        axes.set_xticks([])
        axes.set_ylabel(label)
        if is_log:
            axes.set_yscale("symlog", linthresh=1)
    legend(figure, look)
    return figure


def _microseconds(result: Result) -> float:
    return float((result.inference or {})["median"])


def _microseconds_with_step(result: Result) -> float:
    return float((result.inference or {})["with_step"])


FIGURES: dict[str, Callable[[Sequence[Result]], Figure | None]] = {
    "return_by_steps": draw_return_by_steps,
    "return_by_time": draw_return_by_time,
    "valid_action_rate_by_steps": draw_valid_by_steps,
    "projections": draw_projections,
    "solver_calls": draw_solver_calls,
    "return_and_validity": draw_trade_off,
    "inference_time": draw_inference,
    "acceptance": draw_acceptance,
}


FORMATS = ("pdf", "svg", "png", "eps", "jpg")


def write_figures(
    results: Sequence[Result], folder: Path, formats: tuple[str, ...] = ("pdf", "svg", "png")
) -> list[Path]:
    """Draw every figure of every suite that has something to draw; file names say suite and figure."""
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise ConfigurationError(
            f"no figure can be written as {unknown[0]!r}. Choose from {', '.join(FORMATS)}."
        )
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise MissingDependencyError(
            "figures need matplotlib. Install it with `pip install matplotlib`."
        ) from error
    written: list[Path] = []
    suites = sorted({result.suite for result in results})
    with rc_context(PARAMETERS):
        for suite in suites:
            found = [result for result in results if result.suite == suite]
            for name, draw in FIGURES.items():
                figure = draw(found)
                if figure is not None:
                    written += save(figure, folder / (f"{suite}-{name}" if suite else name), formats)
    return written


PICTURE = "learning_curve.png"


def draw_run(folder: RunFolder, references: Mapping[str, float]) -> Path:
    """Draw the evaluations of a run and write learning_curve.png into its folder; needs matplotlib."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    config, rows = folder.config(), list(folder.rows(EVALUATIONS))
    steps = np.asarray(sorted({row["step"] for row in rows}))
    seeds = sorted({row["seed"] for row in rows})
    with rc_context(PARAMETERS):
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axes, name, label in (
            (left, "return", "return"),
            (right, "valid_action_rate", "valid action rate"),
        ):
            found = {(row["step"], row["seed"]): row[name] for row in rows}
            curves = np.asarray([[found.get((step, seed), np.nan) for step in steps] for seed in seeds])
            if len(seeds) > 1:
                axes.plot(steps, curves.T, color=COLOURS[0], alpha=0.25, linewidth=0.8)
            axes.plot(steps, np.nanmean(curves, axis=0), color=COLOURS[0], marker=".", label="policy")
            axes.set(xlabel="environment steps", ylabel=label)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for index, (name, value) in enumerate(references.items()):
            left.axhline(value, color=COLOURS[1 + index], linestyle="--", linewidth=1, label=name)
        left.legend()
        right.set_ylim(-0.02, 1.02)
        learner, preset = learner_name(config["learner"]["name"]), config["learner"].get("preset", "default")
        figure.suptitle(drawn(f"{task_name(config['task'])}: {learner}, {preset}"))
        path = folder.path / PICTURE
        with replacing(path) as part:
            figure.savefig(part, format="png")
    return path
