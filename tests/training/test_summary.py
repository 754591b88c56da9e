"""What a run came to, told in a few lines."""

from __future__ import annotations

import pytest

from inbounds.training.summary import RunSummary, best_line, best_rows


def rows_of(*returns):
    """Return evaluations every 10 steps; one tuple per step, one number per seed."""
    return [
        {"step": 10 * turn, "seed": seed, "return": value}
        for turn, values in enumerate(returns, start=1)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("returns", "steps"),
    [
        (((1.0, 5.0), (3.0, 4.0), (2.0, 6.0)), [20, 30]),
        (((5.0,), (5.0,), (1.0,)), [10]),
        (((5.0,), (5.0 + 1e-9,)), [10]),  # training compares in single precision
        ((), []),
    ],
)
def test_the_best_evaluations_are_those_whose_policies_training_keeps(returns, steps):
    assert [row["step"] for row in best_rows(rows_of(*returns))] == steps


@pytest.mark.parametrize(
    ("returns", "line"),
    [
        (((1.0, 1.0), (2.0, 2.0)), []),
        (((1.0, 3.0), (0.0, 2.0)), ["  best return        2, evaluated at step 10"]),
        (((1.0, 3.0), (2.0, 2.0)), ["  best return        2.5, evaluated at steps 10 to 20"]),
    ],
)
def test_a_line_reports_the_best_evaluations_unless_they_are_the_last(returns, line, tmp_path):
    best = best_rows(rows_of(*returns))
    summary = RunSummary(
        path=tmp_path, task="t", learner="aram", step=20, evaluations=(), worst_violation=0.0, best=best
    )
    assert best_line(summary) == line
