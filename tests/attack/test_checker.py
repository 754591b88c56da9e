"""The checker of the attack suite: what it calls outside is outside, by more than float64 can fail to see."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from benchmarks.attack import checker
from benchmarks.attack.actions import draw_actions
from benchmarks.attack.anchored_sets import Style
from benchmarks.attack.checker import exact_excess, judge
from benchmarks.attack.plain_sets import Joined, Leaf, Reading
from benchmarks.attack.sets import draw

FOLDER = Path(checker.__file__).parent
BALL = Leaf("Ball", {"radius_squared": 2.0})
SKEWED = Leaf("Ellipsoid", {"matrix": np.array([[4.0, -3.0], [-3.0, 4.0]]), "bound": 1.0})
ROWS = Leaf("Polytope", {"A": np.array([[1.0, 2.0], [-1.0, 0.0]]), "b": np.array([3.0, 0.5])})
BEFORE = Reading("previous_action", None)


def read(start: int, stop: int | None = None, scale: float = 1.0, offset: float = 0.0) -> Reading:
    return Reading("observation", start if stop is None else (start, stop), scale, offset)


FORMULAS = {
    "box": (Leaf("Box", {"low": [-1.0, 0.0], "high": 2.0}), [-1.5, 1.0], None, None, 0.5),
    "box without an end": (
        Leaf("Box", {"low": -np.inf, "high": [3.0, np.inf]}),
        [1.0, 9.0],
        None,
        None,
        -2.0,
    ),
    "ball": (BALL, [1.0, 2.0], None, None, 3.0),
    "ellipsoid": (SKEWED, [1.0, 0.5], None, None, 1.0),
    "weighted L1": (Leaf("WeightedL1", {"weights": [1.0, -2.0], "bound": 3.0}), [-1.0, 2.0], None, None, 2.0),
    "power budget": (
        Leaf("PowerBudget", {"weights": [1.0, -2.0], "bound": 3.0}),
        [1.0, 2.0],
        None,
        None,
        -2.0,
    ),
    "sum band": (
        Leaf("SumBand", {"total": 2.0, "tolerance": 0.5, "low": -9.0, "high": 9.0}),
        [3.0, 0.25],
        None,
        None,
        0.75,
    ),
    "sum band from below": (Leaf("SumBand", {"total": 2.0, "tolerance": 0.5}), [1.0, 0.25], None, None, 0.25),
    "simplex": (
        Leaf("Simplex", {"total": 1.0, "high": None, "tolerance": 0.25}),
        [-0.5, 1.5],
        None,
        None,
        0.5,
    ),
    "polytope": (ROWS, [2.0, 1.0], None, None, 1.0),
    "rate limit": (Leaf("RateLimit", {"delta": 0.5, "previous": BEFORE}), [1.0, 3.0], None, [1.0, 2.0], 0.5),
    "what is read": (
        Leaf("Ball", {"radius_squared": read(1, scale=2.0, offset=1.0)}),
        [2.0, 0.0],
        [7.0, 0.5],
        None,
        2.0,
    ),
    "a matrix that is read": (
        Leaf("Ellipsoid", {"matrix": Reading("observation", (0, 4), shape=(2, 2)), "bound": 1.0}),
        [1.0, 1.0],
        [2.0, 0.0, 0.0, 3.0],
        None,
        4.0,
    ),
    "both": (Joined("&", (BALL, ROWS)), [2.0, 1.0], None, None, 3.0),
    "either": (Joined("|", (BALL, ROWS)), [2.0, 1.0], None, None, 1.0),
    "a function": (
        Joined(
            "&",
            (Leaf("Oracle", {"function": "in_disc", "dimension": 2}), Leaf("Box", {"low": -2, "high": 2})),
        ),
        [2.5, 1.0],
        None,
        None,
        1.0,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_excess_of_every_formula_is_what_a_hand_finds(name: str) -> None:
    plain, action, observation, previous, excess = FORMULAS[name]
    states = [None if part is None else np.array([part]) for part in (observation, previous)]
    verdict = judge(plain, np.array([action]), *states)
    assert verdict.excess[0] == excess
    assert bool(verdict.outside[0]) == (excess > 0)
    assert bool(verdict.inside[0]) == (excess < 0)
    if name != "a function":
        assert exact_excess(plain, action, observation, previous) == Fraction(excess)


def test_verdicts_agree_with_rational_arithmetic_on_random_sets() -> None:
    style = Style(largest_dimension=6)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        drawn = draw(rng, style)
        states = drawn.states(rng, 6, wildness=0.3)
        actions = draw_actions(rng, drawn, states, 6)
        verdict = judge(drawn.plain, actions, *states)
        for row, action in enumerate(actions):
            exact = exact_excess(
                drawn.plain, action, *(None if source is None else source[row] for source in states)
            )
            assert not (verdict.outside[row] and exact <= 0)
            assert not (verdict.inside[row] and exact >= 0)
            if np.isfinite(verdict.excess[row]):
                allowed = verdict.resolution[row] + 1e-15 * abs(verdict.excess[row])
                assert abs(exact - Fraction(verdict.excess[row])) <= Fraction(allowed)


def test_an_action_beyond_the_resolution_is_outside_and_one_within_it_is_close() -> None:
    step = np.spacing(2.0)
    sums = np.array([2.0 - 40 * step, 2.0 - step, 2.0, 2.0 + step, 2.0 + 40 * step])
    verdict = judge(
        Leaf("SumBand", {"total": 1.0, "tolerance": 1.0}), np.stack([sums - 1.0, 0 * sums + 1.0], axis=1)
    )
    assert verdict.inside.tolist() == [True, False, False, False, False]
    assert verdict.outside.tolist() == [False, False, False, False, True]


def test_limits_by_constants_are_compared_without_any_resolution() -> None:
    high = 0.1
    actions = np.array([[high], [np.nextafter(high, 1.0)], [np.nextafter(high, 0.0)]])
    verdict = judge(Leaf("Box", {"low": -1.0, "high": high}), actions)
    assert verdict.outside.tolist() == [False, True, False]
    assert verdict.inside.tolist() == [False, False, True]


def test_what_overflows_in_float64_is_judged_by_its_exact_value() -> None:
    actions = np.array([[1e308, 1e308], [1e150, 1e160], [1e-200, 1e-200]])
    verdict = judge(SKEWED, actions)
    assert verdict.outside.tolist() == [True, True, False]
    scaled = Leaf("PowerBudget", {"weights": read(0, 2, scale=10.0), "bound": 1e308})
    verdict = judge(scaled, np.array([[1.0, -1.0], [0.0, 0.0]]), np.full((2, 2), 1e308))
    assert verdict.outside.tolist() == [True, False]
    assert verdict.inside.tolist() == [False, True]


def test_squares_that_vanish_in_float64_still_count() -> None:
    verdict = judge(Leaf("Ball", {"radius_squared": 0.0}), np.array([[1e-100], [0.0]]))
    assert verdict.outside.tolist() == [True, False]


def test_nan_and_infinity_are_outside_of_everything() -> None:
    everything = Leaf("Box", {"low": -np.inf, "high": np.inf})
    verdict = judge(everything, np.array([[np.nan], [np.inf], [-np.inf], [1e300]]))
    assert verdict.outside.tolist() == [True, True, True, False]


@pytest.mark.parametrize("entries, tolerance", [(3, 1e-5), (100, 4.8e-5)])
def test_a_simplex_without_a_tolerance_has_the_documented_one(entries: int, tolerance: float) -> None:
    simplex: Any = Leaf("Simplex", {"total": 2.0})
    shares = np.full(entries, 2.0 / entries)
    actions = np.stack([shares * (1.0 + 0.99 * tolerance), shares * (1.0 + 1.01 * tolerance)])
    assert judge(simplex, actions).outside.tolist() == [False, True]


@pytest.mark.parametrize("entries, tolerance", [(3, 4e-6 * 198.0), (20, 9.6e-6 * 198.0)])
def test_a_total_that_is_read_as_a_difference_has_the_tolerance_of_its_terms(
    entries: int, tolerance: float
) -> None:
    simplex = Leaf("Simplex", {"total": read(0, offset=-98.0)})
    shares = np.full(entries, 2.0 / entries)
    actions = np.stack([shares * (1.0 + 0.99 * tolerance / 2.0), shares * (1.0 + 1.01 * tolerance / 2.0)])
    verdict = judge(simplex, actions, np.full((2, 1), 100.0))
    assert verdict.outside.tolist() == [False, True]
    constraint = ib.Simplex(ib.obs[0] - 98.0)
    assert (constraint.violation(np.full((2, 1), 100.0), actions) <= 0).tolist() == [True, False]


@pytest.mark.parametrize("module", ["checker", "plain_sets", "memberships"])
def test_the_checker_imports_nothing_of_the_library(module: str) -> None:
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not any(str(name).split(".")[0] == "inbounds" for name in imported)
