"""The paper's numbers, each with its table and row, and how ours compare: above, level, below, or not comparable.

Source: Hung, Sun and Hsieh, "Efficient Action-Constrained Reinforcement Learning via Acceptance-Rejection
Method and Augmented MDPs", ICLR 2025. Means and standard deviations are over five seeds. Returns of the other
methods were published as curves only, so they have no entry here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from inbounds.experiments.results import Result
from inbounds.experiments.suites import STEPS
from inbounds.report.statistics import Interval, mean_and_deviation, stratified_bootstrap
from inbounds.report.style import learner_name


class Published(NamedTuple):
    """One published number."""

    mean: float
    deviation: float
    table: str
    row: str


_TASKS = {
    "hopper": "Hopper",
    "hoppervel": "HopperVel",
    "reacher": "Reacher",
    "halfcheetah": "HalfCheetah",
    "ant": "Ant",
    "nsfnet": "NSFnet",
    "bss3z": "BSS3z",
    "bss5z": "BSS5z",
}

# Table 2 (FOCOPS: Table 5); columns dpre, spre, nfwpo, flowpg, aram, focops.
_VALID = {
    "hopper": ((0.97, 0.03), (0.40, 0.01), (0.99, 0.01), (0.98, 0.01), (0.99, 0.01), (0.22, 0.15)),
    "hoppervel": ((0.38, 0.30), (0.60, 0.09), (0.94, 0.03), (0.71, 0.19), (0.80, 0.09), (0.32, 0.11)),
    "reacher": ((0.25, 0.16), (0.93, 0.03), (0.97, 0.02), (0.95, 0.01), (0.98, 0.01), (0.87, 0.10)),
    "halfcheetah": ((0.35, 0.06), (0.78, 0.19), (0.97, 0.01), (0.78, 0.17), (0.78, 0.29), (0.59, 0.13)),
    "ant": ((0.41, 0.38), (0.29, 0.07), (0.99, 0.01), (0.83, 0.17), (1.00, 0.00), (0.26, 0.09)),
    "nsfnet": ((0.00, 0.00), (0.04, 0.01), (0.92, 0.05), (0.98, 0.01), (0.94, 0.04), (0.46, 0.28)),
    "bss3z": ((0.25, 0.02), (0.28, 0.24), (0.73, 0.18), (0.59, 0.20), (0.72, 0.24), (0.45, 0.19)),
    "bss5z": ((0.13, 0.11), (0.31, 0.16), (0.84, 0.14), (0.68, 0.17), (0.77, 0.16), (0.16, 0.13)),
}
_VALID_COLUMNS = ("dpre", "spre", "nfwpo", "flowpg", "aram", "focops")

# Table 4, in units of the scale; columns focops, aram.
_RETURN = {
    "hopper": (1e3, (2.27, 0.41), (3.07, 0.24)),
    "hoppervel": (1e2, (0.07, 3.13), (6.49, 2.31)),
    "reacher": (1.0, (-5.80, 1.14), (-4.78, 0.33)),
    "halfcheetah": (1e3, (6.08, 1.87), (8.38, 1.11)),
    "ant": (1e3, (3.06, 1.11), (5.00, 0.32)),
    "nsfnet": (1e4, (0.68, 0.16), (1.32, 0.08)),
    "bss3z": (1e3, (-1.93, 0.20), (-1.65, 0.04)),
    "bss5z": (1e4, (-1.61, 0.05), (-1.51, 0.02)),
}

# Table 3: seconds for a million evaluation steps; columns dpre, spre, nfwpo, flowpg, aram.
_SECONDS = {
    "reacher": ((71.47, 5.63), (303.01, 60.81), (67.43, 5.02), (71.47, 3.12), (44.72, 0.93)),
    "halfcheetah": ((211.67, 48.70), (253.53, 30.48), (180.41, 10.57), (210.63, 7.51), (57.14, 8.13)),
    "hopper": ((99.43, 6.71), (175.43, 9.47), (88.71, 11.41), (103.12, 5.13), (61.72, 2.15)),
    "hoppervel": ((177.31, 15.73), (97.12, 7.95), (82.63, 7.13), (91.43, 5.17), (63.81, 10.04)),
}


def _scaled(value: float, scale: float) -> float:
    return float(f"{value * scale:.6g}")


VALID_ACTION_RATE: dict[tuple[str, str], Published] = {
    (task, learner): Published(*pair, "Table 5" if learner == "focops" else "Table 2", _TASKS[task])
    for task, pairs in _VALID.items()
    for learner, pair in zip(_VALID_COLUMNS, pairs, strict=True)
}
"""By task and learner: fraction of raw policy samples that are feasible."""

RETURN: dict[tuple[str, str], Published] = {
    (task, learner): Published(_scaled(pair[0], scale), _scaled(pair[1], scale), "Table 4", _TASKS[task])
    for task, (scale, *pairs) in _RETURN.items()
    for learner, pair in zip(("focops", "aram"), pairs, strict=True)
}
"""By task and learner: return of the final policy."""

INFERENCE_SECONDS: dict[tuple[str, str], Published] = {
    (task, learner): Published(*pair, "Table 3", _TASKS[task])
    for task, pairs in _SECONDS.items()
    for learner, pair in zip(_VALID_COLUMNS[:5], pairs, strict=True)
}
"""By task and learner: seconds per million evaluation steps."""

NOT_COMPARABLE = {
    "return": (
        "The paper does not state its step budgets; its MuJoCo is older than ours, and another version "
        "is another task. Its policies act under a tolerance of 1e-6 to 1e-1 depending on the method, ours "
        "under none."
    ),
    "valid_action_rate": (
        "The paper does not say how deterministic policies (DPre+, NFWPO, FlowPG) were sampled, nor at which "
        "tolerance an action counts as valid. Ours is violation <= 0 in float64 for all methods; for "
        "deterministic ones the raw output counts, and the rate with exploration noise stands beside it."
    ),
    "inference": (
        "The paper gives seconds per million steps without hardware, batch size or whether the environment's "
        "step is inside. Only ratios within one table compare."
    ),
    "solver_calls": "The paper published solver calls as curves only.",
}


def best_published_rate(task: str) -> Published | None:
    """Return the highest valid action rate that the paper has for a task, over all methods."""
    found = [number for (name, _), number in VALID_ACTION_RATE.items() if name == task]
    return max(found, key=lambda number: number.mean, default=None)


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
