"""How a number of ours compares with the paper's: above, level, below, or nothing to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from inbounds.experiments.results import Result
from inbounds.experiments.suites import STEPS
from inbounds.report.published import RETURN, VALID_ACTION_RATE, Published
from inbounds.report.statistics import Interval, mean_and_deviation, stratified_bootstrap
from inbounds.report.style import learner_name

PUBLISHED: Mapping[str, Mapping[tuple[str, str], Published]] = {
    "return": RETURN,
    "valid_action_rate": VALID_ACTION_RATE,
}
BETTER, LEVEL, WORSE, EARLY, ALONE = "above", "level", "below", "early", "alone"
WORDS = {
    BETTER: "at or above the paper's mean",
    LEVEL: "below the paper's mean, but our 95 % interval or the paper's deviation reaches it",
    WORSE: "below the paper",
    EARLY: "below the paper, after fewer steps than its suite plans: too early to compare",
    ALONE: "the paper has no number",
}


class Summary(NamedTuple):
    """One quantity over the seeds of a result, beside the paper's."""

    mean: float
    deviation: float
    interquartile: Interval
    values: tuple[float, ...]
    published: Published | None
    verdict: str


def summarise(result: Result, name: str) -> Summary:
    """Return mean, deviation, interquartile mean and verdict of `return` or `valid_action_rate`."""
    values = tuple(float(value) for value in result.final[name])
    mean, deviation = mean_and_deviation(values)
    interval = stratified_bootstrap(values, resamples=2_000)
    published = PUBLISHED[name].get((result.task, result.learner))
    found = verdict(mean, interval, published)
    if found == WORSE and is_short(result):
        found = EARLY
    return Summary(mean, deviation, interval, values, published, found)


def is_short(result: Result) -> bool:
    """Tell whether a result was trained for fewer steps than its task gets where it is compared with the paper."""
    return result.steps < STEPS.get(result.task, 0)


def verdict(mean: float, interval: Interval, published: Published | None) -> str:
    """Judge one mean against a published one; rounding of the published digits is not held against us."""
    if published is None:
        return ALONE
    if mean >= published.mean:
        return BETTER
    reaches = interval.high >= published.mean or mean >= published.mean - published.deviation
    return LEVEL if reaches else WORSE


def solver_calls(result: Result) -> list[int]:
    """Return all solver calls of training per seed: projections of executed actions and what updates solved."""
    calls: Mapping[str, Any] = result.final["solver_calls"]
    return [sum(row) for row in zip(calls["acting"], *calls["updates"].values(), strict=True)]


def labels(results: Iterable[Result]) -> dict[str, str]:
    """Return a name per method for legends: the learner, its preset where it has several, and the variant."""
    found = list(results)
    presets: dict[str, set[str]] = {}
    for result in found:
        presets.setdefault(result.learner, set()).add(result.preset)
    named = {}
    for result in found:
        has_several = len(presets[result.learner]) > 1 and result.preset != "default"
        extra = ", ".join(part for part in (result.preset if has_several else "", result.variant) if part)
        name = learner_name(result.learner)
        named[result.method] = f"{name} ({extra})" if extra else name
    return named
