"""Methods compared over all tasks: normalised returns, probabilities of improvement, profiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inbounds.experiments.results import Result
from inbounds.report.comparison import (
    compared_methods,
    comparison_table,
    draw_profiles,
    improvement,
)
from inbounds.report.published import RETURN
from tests.experiments.synthetic_runs import make_result

REFERENCES = {task: {"uniform": {"mean": 0.0}} for task in ("hopper", "ant")}


def result_of(learner: str, task: str, scores: list[float], **changes: object) -> Result:
    """Return a result whose normalised returns are `scores`."""
    best, base = RETURN[task, "aram"].mean, make_result()
    final = {**base.final, "return": [best * score for score in scores]}
    named = {"name": f"{task}-{learner}-default", "task": task, "learner": learner}
    return dataclasses.replace(base, final=final, **{**named, **changes})


RESULTS = [
    result_of("aram", "hopper", [1.0, 1.1, 1.2, 1.3, 1.4]),
    result_of("aram", "ant", [1.0] * 5),
    result_of("sac", "hopper", [0.5, 0.6, 0.7, 0.8, 1.2]),
    result_of("sac", "ant", [1.0] * 5),
    result_of("td3", "hopper", [0.1] * 5),
]


def test_the_uniform_policy_is_zero_and_the_papers_aram_is_one() -> None:
    methods = compared_methods(RESULTS, REFERENCES)
    np.testing.assert_allclose(methods["sac-default"].scores[:, 0], [0.5, 0.6, 0.7, 0.8, 1.2])
    assert list(methods) == ["aram-default", "sac-default", "td3-default"]  # the best first


def test_the_probability_of_improvement_counts_pairs_of_runs_on_common_tasks() -> None:
    methods = compared_methods(RESULTS, REFERENCES)
    found = improvement(methods["aram-default"], methods["sac-default"])
    # Hopper: 22 of 25 pairs are won and one is even, at 1.2; on Ant all pairs are even.
    assert found is not None and found.value == pytest.approx((22.5 / 25 + 0.5) / 2)
    assert found.low <= found.value <= found.high
    alone = improvement(methods["aram-default"], methods["td3-default"])
    assert alone is not None and alone.value == 1.0


def test_incomplete_results_and_tasks_without_a_scale_are_left_out() -> None:
    short = result_of("sac", "hopper", [1.0] * 5, steps=100)
    unknown = result_of("aram", "reacher", [1.0] * 5)
    assert compared_methods([short, unknown], REFERENCES) == {}
    assert draw_profiles([short], REFERENCES) is None


def test_the_table_has_a_row_per_method_and_the_figure_a_curve_per_method() -> None:
    table = comparison_table(RESULTS, REFERENCES).splitlines()
    assert len(table) == 2 + 3 and table[2].startswith("| ARAM | 2 | 1.")
    figure = draw_profiles(RESULTS, REFERENCES)
    assert figure is not None
    (axes,) = figure.axes
    curves = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 3 and all(line.get_ydata()[0] == 1.0 for line in curves)
