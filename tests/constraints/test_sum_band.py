"""Sum bands and simplices, whose projections shift all entries together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, Simplex, SumBand, obs
from inbounds.constraints.box import Bounds
from inbounds.constraints.situation import relative_margin
from inbounds.constraints.sum_band import shift_to_band
from inbounds.errors import ConstraintError, EmptySetError
from tests.constraints.exact_projection import onto_sum_band
from tests.slices import quick_slice


def test_entries_are_shifted_to_the_nearer_end_of_the_band() -> None:
    band = SumBand(total=90.0, tolerance=5.0, low=0.0, high=40.0)
    np.testing.assert_allclose(band.project(None, [40.0, 40.0, 39.0]), [32.0, 32.0, 31.0], rtol=1e-5)
    np.testing.assert_allclose(band.project(None, [20.0, 20.0, 36.0]), [23.0, 23.0, 39.0], rtol=1e-5)
    inside = np.array([30.0, 31.0, 30.0])
    np.testing.assert_array_equal(band.project(None, inside), inside)


def test_caps_are_met_exactly_while_the_others_share_the_rest() -> None:
    band = SumBand(total=90.0, tolerance=5.0, low=0.0, high=40.0)
    projected = band.project(None, [100.0, 50.0, -60.0])
    np.testing.assert_allclose(projected, [40.0, 40.0, 5.0], rtol=1e-4)
    np.testing.assert_array_equal(projected[:2], [40.0, 40.0])


@pytest.mark.parametrize(
    ("total", "low", "high"),
    [
        (6.0, 0.0, 4.0),
        (6.0, [0.5, 1.0, 0.0, 2.0], None),
        (-6.0, -4.0, 0.0),
        (-6.0, None, -0.5),
        (0.5, -1.0, 1.0),
    ],
)
def test_entries_of_either_sign_are_projected_as_by_another_solver(total: float, low: Any, high: Any) -> None:
    band = SumBand(total=total, tolerance=0.25, low=low, high=high)
    rng = np.random.default_rng(0)
    actions = 10.0 ** rng.uniform(-1.0, 2.0, (40, 1)) * rng.normal(size=(40, 4))
    projected = band.project(None, actions)
    assert np.all(band.violation(None, projected) <= 0)
    project = onto_sum_band(
        total, 0.25, -np.inf if low is None else low, np.inf if high is None else high, dimension=4
    )
    for action, together in zip(actions, projected, strict=True):
        alone = band.project(None, action)
        np.testing.assert_array_equal(band.project(None, alone), alone)
        np.testing.assert_allclose(alone, together, rtol=0, atol=1e-12 * (1 + np.linalg.norm(action)))
        size = max(np.linalg.norm(action), np.linalg.norm(alone))
        assert np.linalg.norm(alone - project(action)) <= 2e-6 * (1 + size)


@pytest.mark.sweep
def test_an_entry_that_its_limit_stops_has_no_derivative_where_the_sum_needs_no_shift() -> None:
    band = SumBand(total=90.0, tolerance=5.0, low=0.0, high=40.0)
    derivative = jax.jacobian(lambda action: band.project(None, action))(jnp.array([41.5, 30.0, 20.0]))
    np.testing.assert_array_equal(derivative, np.diag([0.0, 1.0, 1.0]))


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_a_gap_that_entries_are_too_large_to_close_moves_nothing(lead: tuple[int, ...]) -> None:
    action = np.broadcast_to(np.array([1e17, -1e17 + 16.0]), (*lead, 2))
    unlimited = Bounds(np.array([-np.inf]), np.array([np.inf]))
    ends = np.full(lead, -15.9), np.full(lead, 15.9)
    np.testing.assert_array_equal(shift_to_band(np, action, unlimited, *ends), action)


@pytest.mark.parametrize("tolerance", [1e-3, 2e-4, 1.2e-4])
def test_a_thin_band_still_has_projections(tolerance: float) -> None:
    band = SumBand(total=90.0, tolerance=tolerance, low=0.0, high=40.0)
    actions = np.random.default_rng(0).normal(size=(200, 3)) * 100.0
    for answer in (band.project(None, actions), band.project(None, actions.astype(np.float32))):
        assert np.all(band.violation(None, answer) <= 0)
        assert np.all(band.contains(None, answer))


def test_a_band_that_the_margin_empties_is_refused() -> None:
    band = SumBand(total=90.0, tolerance=1e-5)
    with pytest.raises(EmptySetError, match="the margin of `contains` included"):
        band.project(None, [1.0, 2.0, 3.0])


def test_compiled_thin_bands_are_feasible_in_float64() -> None:
    band = SumBand(total=obs[0], tolerance=2e-3, low=0.0, high=40.0)
    actions = (np.random.default_rng(0).normal(size=(200, 3)) * 100.0).astype(np.float32)
    projected = np.asarray(jax.jit(band.project)(jnp.array([90.1]), jnp.asarray(actions)))
    assert np.all(band.violation(np.float64(np.float32(90.1)) * np.ones(1), projected) <= 0)


def test_missing_limits_and_limits_of_the_state() -> None:
    band = SumBand(total=1.0, tolerance=0.1, low=obs[0:2])
    assert band.size() == 2
    np.testing.assert_allclose(band.project([-5.0, 0.5], [4.0, -4.0]), [0.6, 0.5], rtol=1e-5)
    free = SumBand(total=1.0, tolerance=0.1)
    np.testing.assert_allclose(free.project(None, [1e3, -1e3, 4.1]), [999.0, -1001.0, 3.1], atol=2e-2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"total": 10.0, "tolerance": 0.1, "low": [0.0, 0.0], "high": 1.0}, "sum_i a_i >= 10 - 0.1"),
        ({"total": 1.0, "tolerance": 0.1, "low": [1.0, 1.0]}, "sum_i a_i <= 1 \\+ 0.1"),
        ({"total": 1.0, "tolerance": -0.1}, "tolerance=-0.1 is negative"),
        ({"total": 1.0, "tolerance": 0.1, "low": 2.0, "high": 1.0}, "no action satisfies"),
    ],
)
def test_a_constant_empty_band_is_refused_when_it_is_built(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(EmptySetError, match=expected):
        SumBand(**arguments)


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(ConstraintError, match="a number is expected"):
        SumBand(total=[1.0, 2.0], tolerance=0.1)
    with pytest.raises(ConstraintError, match="low has 2, high has 3"):
        SumBand(total=1.0, tolerance=0.1, low=[0.0, 0.0], high=[1.0, 1.0, 1.0])


def test_the_box_beside_a_band_joins_its_limits() -> None:
    joint = SumBand(total=0.0, tolerance=0.5, high=0.5) & Box([-1.0, -2.0], [3.0, 3.0])
    np.testing.assert_allclose(joint.project(None, [9.0, -9.0]), [0.5, -1.0], atol=1e-5)


def test_shares_meet_the_total_and_small_ones_vanish() -> None:
    projected = Simplex().project(None, [0.8, 0.6, -0.5, 0.1])
    np.testing.assert_allclose(projected, [0.6, 0.4, 0.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(projected[2:], [0.0, 0.0])
    capped = Simplex(total=1.0, high=0.5).project(None, [0.9, 0.6, -0.5, 0.1])
    np.testing.assert_allclose(capped, [0.5, 0.5, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("entries", quick_slice([2, 7, 40, 300], [300]))
def test_the_equality_keeps_its_stated_tolerance_in_any_dimension(entries: int) -> None:
    simplex = Simplex(total=2.0)
    tolerance = 2.0 * max(1e-5, 4.0 * relative_margin(entries))
    actions = np.random.default_rng(entries).normal(size=(50, entries))
    for answer in (
        simplex.project(None, actions),
        simplex.project(None, actions.astype(np.float32)),
        np.asarray(jax.jit(lambda a: simplex.project(None, a))(jnp.asarray(actions))),
    ):
        assert np.all(simplex.contains(None, answer))
        assert np.all(answer >= 0)
        assert np.max(np.abs(np.sum(answer, axis=-1, dtype=np.float64) - 2.0)) <= tolerance
    uniform = np.full(entries, 2.0 / entries)
    assert simplex.contains(None, uniform)
    assert not simplex.contains(None, uniform * (1 + 1.1 * tolerance))


def test_a_tolerance_that_was_given_is_kept() -> None:
    assert Simplex(tolerance=0.1).contains(None, [0.5, 0.55])
    assert not Simplex().contains(None, [0.5, 0.55])
    with pytest.raises(EmptySetError, match="Make it positive"):
        Simplex(total=0.0)
    with pytest.raises(EmptySetError, match=r"a\[0\] <= 0.25"):
        Simplex(total=1.0, high=[0.25, 0.25, 0.25])


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_caps_that_add_up_to_the_total_are_where_the_projection_ends(lead: tuple[int, ...]) -> None:
    action = np.broadcast_to(np.array([-0.49, -0.04, 1.01, 1.13, -0.37]), (*lead, 5))
    projected = Simplex(total=1.0, high=0.5).project(None, action)
    assert np.allclose(projected, np.broadcast_to([0.0, 0.0, 0.5, 0.5, 0.0], action.shape), atol=1e-9)


def test_a_band_that_only_small_entries_can_meet_has_its_interior_point_near_zero() -> None:
    low, high = np.array([-0.5, -2.0, -1.7]), np.array([1.7, 1.0, 1.1])
    thin = SumBand(
        total=4e-8, tolerance=1.5e-7, low=low, high=high
    )  # the margin is 1e-6 of the sum of absolute values
    assert thin.contains(None, np.zeros(3))
    assert thin.contains(None, thin.interior_point())


def test_the_distance_ends_at_the_band_where_entries_move_at_speeds_that_float64_cannot_compare() -> None:
    start = np.array([50.0, -60.0, -85.0, -34.0, 49.0, -20.0, 16.0, -41.0])
    direction = np.array([-3.4e38, -1e308, 116.0, 21.0, -1e308, -1e200, 83.0, 88.0])
    band = SumBand(float(start.sum()), 0.1)
    length = band.distance(None, start, direction)
    assert band.violation(None, start + 0.999 * length * direction) <= 0.0


@pytest.mark.parametrize("name", ["positive", "negative", "simplex"])
def test_the_reach_between_limits_of_one_sign_is_a_sum_and_ends_where_acceptance_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    band = {
        "positive": SumBand(8.0, 0.5, low=0.0, high=1.0),
        "negative": SumBand(-8.0, 0.5, low=-1.0, high=-0.01),
        "simplex": Simplex(1.0, high=0.1),
    }[name]
    monkeypatch.setattr("inbounds.constraints.sum_band.convex_reach", None)
    rng = np.random.default_rng(3)
    points = band.sample(rng, n=200, dimension=40)
    headings = rng.normal(size=points.shape) * np.where(points == 0.0, 0.0, 1.0)
    headings[::2] -= headings[::2].mean(axis=-1, keepdims=True)  # along the band
    lengths = band.distance(None, points, headings)[:, None]
    assert np.all(lengths > 0) and np.all(np.isfinite(lengths))
    assert np.all(band.contains(None, points + (1.0 - 1e-7) * lengths * headings))
    assert not np.any(band.contains(None, points + (1.0 + 1e-6) * lengths * headings))
