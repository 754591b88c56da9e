"""What the web page shows, as plain data: every number is computed here, the page only draws."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import inbounds
from inbounds.evaluation.protocol import rounded
from inbounds.experiments.results import Result, require_same_origin
from inbounds.experiments.suites import SUITES
from inbounds.report.published import NOT_COMPARABLE, RETURN, VALID_ACTION_RATE, best_published_rate
from inbounds.report.statistics import curve_band
from inbounds.report.style import ORDER, TASK_NAMES, place_of, task_name
from inbounds.report.verdict import WORDS, is_short, labels, solver_calls, summarise

MANY = 120
"""With more results than this, curves keep fewer points, so that the page stays small and quick."""
CURVES = {"return": "return", "valid_action_rate": "valid", "training_projections": "calls"}


def page_data(
    results: Sequence[Result], references: Mapping[str, Any], title: str, films: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything that the page embeds."""
    require_same_origin(results)
    points = 160 if len(results) <= MANY else 60
    ordered = sorted(
        results, key=lambda result: (suite_place(result.suite), task_place(result.task), method_place(result))
    )
    tasks = list(dict.fromkeys(result.task for result in ordered))
    tasks.sort(key=task_place)
    methods = list(dict.fromkeys(result.method for result in sorted(ordered, key=method_place)))
    names = labels(ordered)
    return {
        "title": title,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "version": inbounds.__version__,
        "suites": list(dict.fromkeys(result.suite for result in ordered)),
        "questions": {
            name: SUITES[name].question for name in {result.suite for result in ordered} if name in SUITES
        },
        "tasks": [task_data(task, references.get(task, {})) for task in tasks],
        "methods": [
            {"id": method, "label": names[method], "place": index} for index, method in enumerate(methods)
        ],
        "results": [
            result_data(result, points, names) | {"film": films.get(result.name)} for result in ordered
        ],
        "totals": totals(ordered),
        "verdicts": WORDS,
        "notes": NOT_COMPARABLE,
    }


def suite_place(suite: str) -> tuple[int, str]:
    """Return where a suite stands: as they are listed, then others by name."""
    names = list(SUITES)
    return (names.index(suite) if suite in names else len(names), suite)


def task_place(task: str) -> tuple[int, str]:
    """Return where a task stands: the paper's order, then others by name."""
    names = list(TASK_NAMES)
    return (names.index(task) if task in names else len(names), task)


def method_place(result: Result) -> tuple[int, int, str]:
    """Return where a method stands: its learner's place, the default before the paper's settings."""
    learner = (
        ORDER.index(result.learner) if result.learner in ORDER else len(ORDER) + place_of(result.learner)
    )
    return (
        learner,
        ("default", "paper").index(result.preset) if result.preset in ("default", "paper") else 2,
        result.variant,
    )


def task_data(task: str, references: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's name, its reference policies and what the paper published about it."""
    best = best_published_rate(task)
    return {
        "id": task,
        "name": task_name(task),
        "references": dict(references),
        "published": {
            name: {learner: list(number) for (which, learner), number in table.items() if which == task}
            for name, table in (("return", RETURN), ("valid_action_rate", VALID_ACTION_RATE))
        },
        "best_rate": None if best is None else best.mean,
    }


def result_data(result: Result, points: int, names: Mapping[str, str]) -> dict[str, Any]:
    """Return one result: final numbers with verdicts, curves as bands, and where it comes from."""
    calls = solver_calls(result)
    return {
        "suite": result.suite,
        "name": result.name,
        "task": result.task,
        "method": result.method,
        "label": names[result.method],
        "seeds": list(result.seeds),
        "expected": result.expected_seeds,
        "steps": result.steps,
        "complete": result.is_complete,
        "short": is_short(result),
        "source": result.final["source"],
        "episodes": result.final["episodes"],
        "preference": result.final["preference"],
        "final": {name: summary_data(result, name) for name in ("return", "valid_action_rate")},
        "deterministic": rounded(float(np.mean(result.final["deterministic_valid_rate"])), 4),
        "calls": {"mean": rounded(float(np.mean(calls)), 5), "values": calls} if calls else None,
        "preparation": None if (spent := result.preparation_seconds) is None else rounded(spent, 4),
        "worst": result.worst_violation,
        "environment_steps": result.environment_steps,
        "curves": curves_data(result, points),
        "acceptance": band_data(result.training["step"], result.training.get("acceptance", []), points),
        "front": result.front,
        "episode": result.episode,
        "inference": result.inference,
        "provenance": [dict(origin) for origin in result.provenance],
        "command": result.command,
    }


def summary_data(result: Result, name: str) -> dict[str, Any]:
    """Return one quantity, rounded for reading."""
    found = summarise(result, name)
    return {
        "mean": rounded(found.mean),
        "deviation": rounded(found.deviation),
        "iqm": [rounded(value) for value in found.interquartile],
        "values": [rounded(value) for value in found.values],
        "published": None if found.published is None else list(found.published),
        "verdict": found.verdict,
    }


def curves_data(result: Result, points: int) -> dict[str, Any]:
    """Return the learning curves as bands; seconds only where one seed trained alone."""
    steps = result.curve["step"]
    data: dict[str, Any] = {
        short: band_data(steps, result.curve[name], points) for name, short in CURVES.items()
    }
    alone = all(len(origin["seeds"]) == 1 for origin in result.provenance)
    data["seconds"] = (
        [rounded(result.curve["seconds"][index], 4) for index in chosen(steps, points)] if alone else None
    )
    return data


def band_data(steps: Sequence[int], curves: Sequence[Sequence[Any]], points: int) -> dict[str, Any] | None:
    """Return steps, interquartile mean and interval; curves with holes (a metric that was not logged) are left out."""
    if not steps or not curves or any(value is None for curve in curves for value in curve):
        return None
    kept = chosen(steps, points)
    band = curve_band([[curve[index] for index in kept] for curve in curves])
    columns = [[rounded(value, 4) for value in column] for column in band]
    if len(curves) == 1:
        columns = columns[:1]
    return {"step": [steps[index] for index in kept], "band": columns}


def chosen(steps: Sequence[int], points: int) -> list[int]:
    """Return the indices of at most so many points, always with the last one."""
    stride = max(1, -(-len(steps) // points))
    return [index for index in range(len(steps)) if (len(steps) - 1 - index) % stride == 0]


def totals(results: Sequence[Result]) -> dict[str, Any]:
    """Return what stands at the top of the page."""
    return {
        "results": len(results),
        "complete": sum(result.is_complete for result in results),
        "runs": sum(len(result.seeds) for result in results),
        "environment_steps": sum(result.environment_steps for result in results),
        "worst_violation": max((result.worst_violation for result in results), default=0.0),
    }
