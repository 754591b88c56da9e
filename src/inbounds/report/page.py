"""The report as one web page: its data as plain numbers, the page that draws them, and a server that follows runs."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import inbounds
from inbounds.errors import ConfigurationError, InboundsError, MissingDependencyError, explained
from inbounds.evaluation.protocol import rounded
from inbounds.experiments.collecting import is_mujoco_task, require_same_origin
from inbounds.experiments.results import Result
from inbounds.experiments.suites import SUITES
from inbounds.report.published import (
    NOT_COMPARABLE,
    RETURN,
    VALID_ACTION_RATE,
    WORDS,
    best_published_rate,
    is_short,
    labels,
    solver_calls,
    summarise,
)
from inbounds.report.statistics import curve_band
from inbounds.report.style import ORDER, TASK_NAMES, place_of, task_name
from inbounds.storage.files import encoded
from inbounds.tasks.registry import make, names

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
    called = labels(ordered)
    return {
        "title": title,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "version": inbounds.__version__,
        "suites": list(dict.fromkeys(result.suite for result in ordered)),
        "questions": {
            name: SUITES[name].question for name in {result.suite for result in ordered} if name in SUITES
        },
        "tasks": [task_data(task, references.get(task, {}), ordered) for task in tasks],
        "methods": [
            {"id": method, "label": called[method], "place": index} for index, method in enumerate(methods)
        ],
        "results": [
            result_data(result, points, called) | {"film": films.get(result.name)} for result in ordered
        ],
        "totals": totals(ordered),
        "verdicts": WORDS,
        "notes": NOT_COMPARABLE if any(is_published(task) for task in tasks) else {},
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


def is_published(task: str) -> bool:
    """Tell whether the paper has any number about a task."""
    return any(which == task for which, _ in (*RETURN, *VALID_ACTION_RATE))


def formula_of(task: str, results: Sequence[Result]) -> str | None:
    """Return the constraint of a task as text: as its runs recorded it, or as one of our tasks has it."""
    recorded = [result.formula for result in results if result.task == task and result.formula]
    if recorded:
        return recorded[0]
    return make(task).constraint.formula() if task in names() else None


def task_data(task: str, references: Mapping[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Return a task's name, constraint and reference policies, and what the paper published about it."""
    best = best_published_rate(task)
    return {
        "id": task,
        "name": task_name(task),
        "formula": formula_of(task, results),
        "mujoco": is_mujoco_task(task),
        "references": dict(references),
        "published": {
            name: {learner: list(number) for (which, learner), number in table.items() if which == task}
            for name, table in (("return", RETURN), ("valid_action_rate", VALID_ACTION_RATE))
        },
        "best_rate": None if best is None else best.mean,
    }


def result_data(result: Result, points: int, called: Mapping[str, str]) -> dict[str, Any]:
    """Return one result: final numbers with verdicts, curves as bands, and where it comes from."""
    calls = solver_calls(result)
    return {
        "suite": result.suite,
        "name": result.name,
        "task": result.task,
        "method": result.method,
        "label": called[result.method],
        "seeds": list(result.seeds),
        "expected": result.expected_seeds,
        "steps": result.steps,
        "planned": result.expected_steps,
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
        "diagnostics": diagnostics_data(result, points),
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


def diagnostics_data(result: Result, points: int) -> dict[str, Any]:
    """Return whatever a learner logged about itself, as bands by the name that it was logged under."""
    found = result.diagnostics or {
        "step": result.training["step"],
        "acceptance": result.training["acceptance"],
    }
    bands = {
        name: band_data(found["step"], curves, points) for name, curves in found.items() if name != "step"
    }
    return {name: band for name, band in bands.items() if band is not None}


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


FILMS = {".mp4": "video/mp4", ".gif": "image/gif"}


def render_page(data: Mapping[str, Any], live: bool = False) -> str:
    """Return the page as text; it needs no other file and asks no host for anything."""
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise MissingDependencyError(
            "a report needs the package jinja2. Install it with `pip install jinja2`."
        ) from error
    template = Environment(autoescape=False).from_string(asset("page.html.j2"))
    return template.render(
        title=escaped(str(data["title"])),
        style=asset("style.css"),
        script=asset("chart.js") + asset("page.js"),
        data=embedded(data),
        live=live,
    )


def asset(name: str) -> str:
    """Return a file that is installed with the package."""
    return resources.files("inbounds.report").joinpath("assets", name).read_text(encoding="utf-8")


def embedded(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand inside a script element: nothing in it can close the element."""
    # A learner's setting may be infinite, which JSON does not know.
    finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
    return json.dumps(finite, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def escaped(text: str) -> str:
    """Return text that HTML shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def film_as_text(path: Path) -> str | None:
    """Return a film as a data address, or nothing for a file that no browser would show."""
    kind = FILMS.get(path.suffix.lower())
    if kind is None or not path.is_file():
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def make_server(collect: Callable[[], dict[str, Any]], port: int = 0) -> ThreadingHTTPServer:
    """Return a server on the loopback address: `/` is the page, `/data.json` what `collect` finds now."""

    class Handler(BaseHTTPRequestHandler):
        """Answers two addresses and refuses everything else."""

        def do_GET(self) -> None:
            """Answer one request; a run that is just being written gives a moment's pause, not an end."""
            try:
                if self.path == "/":
                    self._answer(200, "text/html; charset=utf-8", render_page(collect(), live=True))
                elif self.path == "/data.json":
                    self._answer(200, "application/json", embedded(collect()))
                else:
                    self._answer(404, "text/plain", "not here")
            except InboundsError as error:
                self._answer(503, "text/plain", str(error))
            except ConnectionError:
                pass  # the browser has gone
            except OSError as error:
                self._answer(503, "text/plain", explained(error))

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = encoded(text)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet: the terminal belongs to the user."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise ConfigurationError(
            f"the page cannot be served at port {port} ({why}). Choose another --port; 0 takes any that is free."
        ) from error
