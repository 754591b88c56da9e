"""What a run came to, told in a few lines."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.training.summary import RunSummary, asks_to_stop, best_line, best_rows, two_digits


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


@pytest.mark.parametrize(
    ("returns", "line"),
    [((1.0,), "  return             1\n"), ((0.0, 300.0), "  return             150 +- 150 over seeds\n")],
)
def test_a_single_seed_has_no_spread_over_seeds(returns, line, tmp_path):
    assert line in str(summary_of(returns, tmp_path))


def test_a_large_spread_is_written_in_full():
    assert [two_digits(value) for value in (152.0, 9876.0, 0.0123)] == ["150", "9,900", "0.012"]


def summary_of(returns, path):
    row = {"valid_action_rate": 1.0, "training_projections": 0, "seconds": 1.0, "step": 20}
    evaluations = tuple({"seed": seed, "return": value, **row} for seed, value in enumerate(returns))
    return RunSummary(path, "t", "aram", 20, evaluations, worst_violation=0.0, best=evaluations)


@pytest.mark.parametrize("answer", [True, np.True_, np.array(True), jnp.asarray(True)])
def test_a_callback_stops_the_run_by_true(answer):
    assert asks_to_stop(answer)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        False,
        np.False_,
        np.array(False),
        np.ones(3),
        np.ones(1, bool),
        np.array(1.0),
        [True],
        "no",
        object(),
    ],
)
def test_whatever_else_a_callback_returns_does_not_stop_the_run(answer):
    assert not asks_to_stop(answer)
