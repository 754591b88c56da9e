"""What a run came to, told in a few lines."""

from __future__ import annotations

import pytest

from inbounds.training.summary import RunSummary, kept_line, kept_rows


def rows_of(*returns):
    """Return evaluations every 10 steps; one tuple per step, one number per seed."""
    return [
        {"step": 10 * turn, "seed": seed, "return": value}
        for turn, values in enumerate(returns, start=1)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("returns", "is_best", "steps"),
    [
        (((1.0, 5.0), (3.0, 4.0), (2.0, 6.0)), True, [20, 30]),
        (((5.0,), (5.0,), (1.0,)), True, [10]),
        (((5.0,), (5.0 + 1e-9,)), True, [10]),  # training compares in single precision
        (((3.0, 1.0), (2.0, 0.0)), False, [20, 20]),
        ((), True, []),
    ],
)
def test_the_kept_evaluations_are_those_that_training_kept(returns, is_best, steps):
    rows = rows_of(*returns)
    last = max((row["step"] for row in rows), default=0)
    assert [row["step"] for row in kept_rows(rows, last, is_best=is_best)] == steps


@pytest.mark.parametrize(
    ("returns", "line"),
    [
        (((1.0, 1.0), (2.0, 2.0)), []),
        (((1.0, 3.0), (0.0, 2.0)), ["  kept policy        that of step 10, the best evaluated: 2"]),
        (((1.0, 3.0), (2.0, 2.0)), ["  kept policy        that of steps 10 to 20, the best evaluated: 2.5"]),
    ],
)
def test_a_line_says_which_policies_were_kept_unless_they_are_the_last(returns, line, tmp_path):
    kept = kept_rows(rows_of(*returns), 20, is_best=True)
    summary = RunSummary(
        path=tmp_path, task="t", learner="aram", step=20, evaluations=(), worst_violation=0.0, kept=kept
    )
    assert kept_line(summary) == line
