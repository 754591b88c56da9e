"""How sure a comparison is: interquartile means, bootstrap intervals, probabilities of improvement.

Scores are arrays (runs, tasks): rows are independent seeds, columns tasks. Intervals resample seeds within
each task, never tasks, because tasks are chosen and seeds are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inbounds.errors import InvalidInputError

Scores = NDArray[np.float64]
RESAMPLES = 10_000


class Interval(NamedTuple):
    """A point estimate and the interval that covers 95 % of the resampled ones."""

    value: float
    low: float
    high: float


def as_scores(values: ArrayLike) -> Scores:
    """Return (runs, tasks); a flat list is one task. Missing values are refused, never averaged away."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim == 1:
        scores = scores[:, None]
    if scores.ndim != 2 or scores.size == 0:
        raise InvalidInputError(f"scores have shape {scores.shape}; give at least one run, as (runs, tasks).")
    if not np.all(np.isfinite(scores)):
        raise InvalidInputError(
            "a score is missing or not finite. Finish the missing seed, or leave its task out."
        )
    return scores


def mean_and_deviation(values: ArrayLike) -> tuple[float, float]:
    """Return what papers print as mean +- sd: the sample standard deviation over runs, 0 for a single one."""
    flat = as_scores(values).ravel()
    return float(flat.mean()), float(flat.std(ddof=1)) if flat.size > 1 else 0.0


def interquartile_mean(scores: ArrayLike, axis: tuple[int, ...] = (-2, -1)) -> NDArray[np.float64]:
    """Return the mean of the middle half of all scores: a quarter is cut at either end.

    With n scores, floor(n / 4) are cut on each side, as a 25 % trimmed mean is defined.
    """
    array = np.asarray(scores, dtype=np.float64)
    moved = np.moveaxis(array, axis, range(-len(axis), 0))
    flat = np.sort(moved.reshape(*moved.shape[: -len(axis)], -1), axis=-1)
    cut = flat.shape[-1] // 4
    trimmed: NDArray[np.float64] = flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)
    return trimmed


def stratified_bootstrap(
    scores: ArrayLike,
    statistic: Callable[[Scores], NDArray[np.float64]] = interquartile_mean,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Return a statistic with its percentile interval; seeds are resampled within each task.

    `statistic` maps (..., runs, tasks) to (...).
    """
    array = as_scores(scores)
    drawn = _resampled(array, np.random.default_rng(seed), resamples)
    values = np.concatenate([statistic(part) for part in drawn])
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(statistic(array)), float(low), float(high))


def probability_of_improvement(first: ArrayLike, second: ArrayLike) -> float:
    """Return P(X > Y) + P(X = Y) / 2 for a run of each method, averaged over tasks (Mann and Whitney's U)."""
    one, two = as_scores(first), as_scores(second)
    require_same_tasks(one, two)
    return float(_improvement(one, two))


def probability_of_improvement_interval(
    first: ArrayLike, second: ArrayLike, resamples: int = 2_000, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """Return the probability of improvement with its interval; both methods' seeds are resampled."""
    one, two = as_scores(first), as_scores(second)
    require_same_tasks(one, two)
    generator = np.random.default_rng(seed)
    pairs = zip(_resampled(one, generator, resamples), _resampled(two, generator, resamples), strict=True)
    values = np.concatenate([_improvement(left, right) for left, right in pairs])
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(_improvement(one, two)), float(low), float(high))


class Profile(NamedTuple):
    """A performance profile: the fraction of runs above each threshold, with a pointwise interval."""

    thresholds: NDArray[np.float64]
    share: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def performance_profile(
    scores: ArrayLike, thresholds: ArrayLike, resamples: int = 2_000, seed: int = 0, confidence: float = 0.95
) -> Profile:
    """Return the fraction of runs whose (normalised) score exceeds each threshold, averaged over tasks."""
    array, levels = as_scores(scores), np.asarray(thresholds, dtype=np.float64)

    def share(sample: Scores) -> NDArray[np.float64]:
        above = sample[..., None] > levels
        return np.asarray(above.mean(axis=(-3, -2)))

    drawn = _resampled(array, np.random.default_rng(seed), resamples)
    values = np.concatenate([share(part) for part in drawn])
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return Profile(levels, share(array), low, high)


def normalised(scores: ArrayLike, worst: ArrayLike, best: ArrayLike) -> Scores:
    """Return scores on a scale where each task's `worst` is 0 and its `best` is 1."""
    low, high = np.asarray(worst, np.float64), np.asarray(best, np.float64)
    if np.any(high == low):
        raise InvalidInputError(
            "a task's best and worst reference are equal, so that it has no scale. Leave it out."
        )
    return np.asarray((as_scores(scores) - low) / (high - low))


def paired_difference(
    first: ArrayLike, second: ArrayLike, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean difference of two policies on common episodes, with its bootstrap interval."""
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != two.shape:
        raise InvalidInputError(
            f"pairs need equal shapes, got {one.shape} and {two.shape}. Use common episodes."
        )
    return stratified_bootstrap((one - two).ravel(), _mean_over_all, resamples, seed)


def require_same_tasks(one: Scores, two: Scores) -> None:
    """Refuse methods whose columns are not the same tasks."""
    if one.shape[1] != two.shape[1]:
        raise InvalidInputError(
            f"one method has {one.shape[1]} tasks, the other {two.shape[1]}. Compare them on common tasks."
        )


def _mean_over_all(scores: Scores) -> NDArray[np.float64]:
    return np.asarray(scores.mean(axis=(-2, -1)))


def _improvement(one: Scores, two: Scores) -> NDArray[np.float64]:
    left, right = one[..., :, None, :], two[..., None, :, :]
    wins = (left > right) + 0.5 * (left == right)
    return np.asarray(wins.mean(axis=(-3, -2, -1)))


def _resampled(scores: Scores, generator: np.random.Generator, resamples: int) -> list[Scores]:
    """Return resamples (count, runs, tasks) in blocks that keep the memory of a long bootstrap small."""
    runs, tasks = scores.shape
    block = max(1, min(resamples, 2**22 // scores.size))
    parts = []
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        rows = generator.integers(runs, size=(count, runs, tasks))
        parts.append(scores[rows, np.arange(tasks)])
    return parts


class Band(NamedTuple):
    """A curve with its pointwise interval."""

    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def curve_band(curves: ArrayLike, resamples: int = 200, seed: int = 0, confidence: float = 0.95) -> Band:
    """Return the interquartile mean over seeds at every point of (seeds, points), with its bootstrap interval."""
    array = np.asarray(curves, dtype=np.float64)
    rows = np.random.default_rng(seed).integers(len(array), size=(resamples, len(array)))
    values = interquartile_mean(array[rows], axis=(-2,))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return Band(interquartile_mean(array, axis=(-2,)), low, high)
