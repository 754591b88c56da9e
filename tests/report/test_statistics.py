"""Statistics with answers that are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from inbounds.errors import InvalidInputError
from inbounds.report.statistics import (
    interquartile_mean,
    mean_and_deviation,
    normalised,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    probability_of_improvement_interval,
    stratified_bootstrap,
)


def test_mean_and_deviation_are_those_that_papers_print() -> None:
    assert mean_and_deviation([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_deviation([4.0]) == (4.0, 0.0)


def test_the_interquartile_mean_is_the_mean_of_the_middle_half() -> None:
    assert interquartile_mean(np.array([[0.0], [1.0], [2.0], [1000.0]])) == 1.5


@pytest.mark.parametrize("shape", [(5, 1), (5, 8), (3, 3), (10, 4)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).normal(size=shape)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores.ravel(), 0.25))


def test_one_outlying_seed_moves_the_mean_but_not_the_interquartile_mean() -> None:
    scores = np.arange(8.0)[:, None]
    spoilt = scores.copy()
    spoilt[-1] = 1e6
    assert interquartile_mean(scores) == interquartile_mean(spoilt)


def test_equal_scores_have_an_interval_of_no_width() -> None:
    assert stratified_bootstrap(np.full((5, 3), 2.0), resamples=50) == (2.0, 2.0, 2.0)


def test_the_bootstrap_resamples_seeds_within_tasks_and_never_mixes_tasks() -> None:
    # Each task has one value for all seeds, so that a stratified resample is always the sample itself.
    scores = np.tile(np.array([0.0, 10.0, 1000.0]), (5, 1))
    found = stratified_bootstrap(scores, lambda sample: sample.mean(axis=(-2, -1)), resamples=200)
    assert found.low == found.high == found.value


def test_the_interval_covers_the_mean_of_a_normal_law_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        sample = generator.normal(size=30)
        found = stratified_bootstrap(sample, lambda part: part.mean(axis=(-2, -1)), resamples=400, seed=trial)
        covered += found.low <= 0.0 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_interval_of_a_mean_has_the_width_that_theory_gives() -> None:
    sample = np.random.default_rng(2).normal(size=400)
    found = stratified_bootstrap(sample, lambda part: part.mean(axis=(-2, -1)), resamples=4_000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * sample.std() / 20, rel=0.06)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.0),
        ([0.0], [1.0], 0.0),
        ([1.0, 1.0], [1.0, 1.0], 0.5),
        ([0.0, 2.0], [1.0], 0.5),
    ],
)
def test_the_probability_of_improvement_counts_wins_and_halves_ties(
    first: list[float], second: list[float], expected: float
) -> None:
    assert probability_of_improvement(first, second) == expected


def test_the_probability_of_improvement_is_mann_and_whitneys_u() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0.5, size=9), generator.normal(size=7)
    wins = stats.mannwhitneyu(first, second).statistic
    assert probability_of_improvement(first, second) == pytest.approx(wins / 63)
    found = probability_of_improvement_interval(first, second, resamples=300)
    assert found.low <= found.value <= found.high


def test_a_profile_falls_from_one_to_zero_and_counts_runs_above_each_threshold() -> None:
    found = performance_profile([[0.1], [0.4], [0.6], [0.9]], [0.0, 0.5, 1.0], resamples=100)
    assert found.share.tolist() == [1.0, 0.5, 0.0]
    assert np.all(found.low <= found.share) and np.all(found.share <= found.high)


def test_normalised_scores_are_zero_at_the_worst_and_one_at_the_best() -> None:
    assert normalised([[0.0, 10.0], [5.0, 30.0]], [0.0, 10.0], [10.0, 30.0]).tolist() == [
        [0.0, 0.0],
        [0.5, 1.0],
    ]
    with pytest.raises(InvalidInputError, match="no scale"):
        normalised([[1.0]], [2.0], [2.0])


def test_a_paired_difference_ignores_what_both_share() -> None:
    noise = 100 * np.random.default_rng(4).normal(size=50)
    found = paired_difference(noise + 1.0, noise, resamples=200)
    assert found.low == pytest.approx(1.0) and found.high == pytest.approx(1.0)


def test_a_missing_seed_is_refused_and_not_averaged_away() -> None:
    with pytest.raises(InvalidInputError, match="missing"):
        mean_and_deviation([1.0, float("nan")])


def test_methods_on_different_tasks_are_not_compared() -> None:
    with pytest.raises(InvalidInputError, match="tasks"):
        probability_of_improvement(np.zeros((2, 3)), np.zeros((2, 4)))


def test_aggregates_are_those_that_rliable_gives() -> None:
    # Computed with rliable 1.2.0 (20,000 and 2,000 resamples) on this very sample.
    generator = np.random.default_rng(0)
    first, second = generator.normal(0.5, 0.3, size=(5, 8)), generator.normal(0.35, 0.3, size=(5, 8))
    found = stratified_bootstrap(first)
    assert found.value == pytest.approx(0.4762193972920138)
    assert (found.low, found.high) == pytest.approx((0.40734, 0.54941), abs=0.005)
    improvement = probability_of_improvement_interval(first, second)
    assert improvement.value == 0.495
    assert (improvement.low, improvement.high) == pytest.approx((0.36, 0.625), abs=0.02)
    profile = performance_profile(first, np.linspace(0, 1, 6), resamples=10)
    assert profile.share == pytest.approx([0.975, 0.9, 0.65, 0.325, 0.1, 0.0])
