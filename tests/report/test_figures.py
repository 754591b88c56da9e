"""Figures: drawn where there is something to draw, in every format, the same colour for the same method."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbounds.experiments.results import Result
from inbounds.report.figures import FIGURES, draw_return_by_time, draw_run, looks, write_figures
from inbounds.report.style import COLOURS
from inbounds.training.record import RunFolder
from tests.experiments.synthetic_runs import make_result, write_run

INFERENCE = {
    "path": "numpy",
    "actions": 5,
    "median": 20.0,
    "mean": 21.0,
    "slowest_percent": 30.0,
    "with_step": 50.0,
}
FRONT = {"points": [[0.1, 1.0, 0.1, 0.9, 0], [0.9, 2.0, 0.1, 0.5, 0]], "suggested": [0.9, 0.1]}


def two_tasks() -> list[Result]:
    return [
        make_result(inference=INFERENCE, front=FRONT),
        make_result(learner="dpre", name="reacher-dpre"),
        make_result(task="ant", name="ant-aram"),
    ]


def test_axes_that_mean_the_same_in_every_panel_are_named_once_in_a_row_and_a_column() -> None:
    tasks = ("reacher", "halfcheetah", "hopper", "hoppervel", "ant", "nsfnet")
    figure = FIGURES["return_by_steps"]([make_result(task=task, name=task) for task in tasks])
    assert figure is not None
    named = [(axes.get_xlabel() != "", axes.get_ylabel() != "") for axes in figure.axes[:6]]
    assert named == [(False, True), (False, False), (True, False), (True, False), (True, True), (True, False)]


@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"return_by_time"}))
def test_a_figure_has_one_panel_per_task_and_a_legend(name: str) -> None:
    figure = FIGURES[name](two_tasks())
    assert figure is not None and figure.legends
    titles = {axes.get_title() for axes in figure.axes} - {""}
    assert titles == ({"Reacher"} if name == "inference_time" else {"Reacher", "Ant"})


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_of_nothing_is_no_figure(name: str) -> None:
    assert FIGURES[name]([]) is None


def test_only_seeds_that_trained_alone_are_drawn_against_time() -> None:
    assert draw_return_by_time(two_tasks()) is None
    figure = draw_return_by_time([make_result(seeds=(0,))])
    assert figure is not None and list(figure.axes[0].lines[0].get_xdata()) == [1.0, 2.0, 3.0]


def test_a_method_looks_the_same_in_every_panel_and_no_two_of_eight_share_a_colour() -> None:
    learners = ("aram", "sosac", "dpre", "spre", "nfwpo", "flowpg", "focops", "sac")
    look = looks([make_result(learner=learner) for learner in learners])
    assert len({one.colour for one in look.values()}) == len(COLOURS) == 8


@pytest.mark.slow
def test_figures_are_written_in_every_format_and_equal_figures_are_equal_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_figures([make_result()], tmp_path / folder, ("svg", "png", "pdf"))
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert "paper-return_by_steps.svg" in names and len(names) % 3 == 0
    for name in names:
        if not name.endswith(".png"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_picture_of_a_run_is_written_into_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run"))
    assert draw_run(folder, {"uniform": -3.0}).stat().st_size > 1000
