"""Tables in Markdown, generated from results: the README's, the documentation's, and the paper's one by one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from inbounds.experiments.results import Result
from inbounds.experiments.suites import PAPER_TASKS, SUITES
from inbounds.report.published import (
    BETTER,
    EARLY,
    LEVEL,
    RETURN,
    WORSE,
    best_published_rate,
    labels,
    solver_calls,
    summarise,
)
from inbounds.report.style import task_name
from inbounds.training.summary import plural

NOT_RUN = "not run yet"
NOT_KEPT = "not kept"
MARKS = {BETTER: "▲", LEVEL: "≈", WORSE: "▼", EARLY: "…"}
TRIVIAL = ("never-moving", "constant", "uniform", "interior")
"""Which reference policy stands in the table: the first of these that the task has and that is best."""


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table; so many first columns hold words and are aligned left, the others right."""
    rules = ["---" if place < words else "---:" for place in range(len(headings))]
    return "\n".join("| " + " | ".join(map(unbroken, row)) + " |" for row in (headings, rules, *rows))


def unbroken(text: str) -> str:
    """Return the text of a cell in which no line can end before a deviation's digits or before a mark alone."""
    return re.sub(f"(?<=±) | (?=[{''.join(MARKS.values())}])", "\u00a0", text)


def number(mean: float, deviation: float | None = None) -> str:
    """Return mean and deviation with as many digits as the deviation is worth."""
    if deviation is None or deviation <= 0:
        return f"{mean:,.4g}" if abs(mean) < 1000 else f"{mean:,.0f}"
    digits = 0 if deviation >= 10 else 1 if deviation >= 1 else 2
    return f"{mean:,.{digits}f} ± {deviation:,.{digits}f}"


def seconds(spent: float | None) -> str:
    """Return a time with the digits that it is worth."""
    return "unknown" if spent is None else f"{spent:,.0f} s" if spent >= 10 else f"{spent:.1f} s"


def headline_table(results: Sequence[Result], references: Mapping[str, Any]) -> str:
    """Return the README's table: the paper's ARAM, ours with both presets, and the best trivial policy, per task."""
    headings = (
        "task",
        "paper: return",
        "ours, `paper`",
        "ours, default",
        "trivial policy",
        "paper: valid (best)",
        "ours, default: valid",
    )
    rows = []
    for task in PAPER_TASKS:
        published, best = RETURN[task, "aram"], best_published_rate(task)
        ours = {preset: find(results, "paper", task, f"aram-{preset}") for preset in ("paper", "default")}
        rows.append(
            (
                task_name(task),
                number(published.mean, published.deviation),
                *(cell(ours[preset], "return") for preset in ("paper", "default")),
                trivial(references.get(task, {})),
                f"{best.mean:.2f}" if best else "none",
                cell(ours["default"], "valid_action_rate"),
            )
        )
    return markdown(headings, rows)


def cell(result: Result | None, name: str) -> str:
    """Return one number with its verdict, or that it was not run; incomplete results say how far they are."""
    if result is None:
        return NOT_RUN
    found = summarise(result, name)
    text = f"{number(found.mean, found.deviation)} {MARKS.get(found.verdict, '')}".strip()
    return (
        text
        if result.is_complete
        else f"{text} ({len(result.seeds)} of {result.expected_seeds} seeds, {result.steps:,} steps)"
    )


def trivial(references: Mapping[str, Any]) -> str:
    """Return the best reference policy of a task."""
    known = [(references[name]["mean"], name) for name in TRIVIAL if name in references]
    if not known:
        return NOT_RUN
    mean, name = max(known)
    return f"{number(mean)} ({name})"


def suite_table(results: Sequence[Result], suite: str) -> str:
    """Return every result of a suite, one row each.

    The return is that of the last policy, with that of the best evaluated one beside it. Older results hold one of
    the two alone; where that is the best, its return stands in the second column.
    """
    found = [result for result in results if result.suite == suite]
    if not found:
        return f"`inbounds benchmark {suite}`: {NOT_RUN}."
    names = labels(found)
    is_prepared = any(result.preparation_seconds is not None for result in found)
    rows = []
    for result in found:
        calls = solver_calls(result)
        interval = summarise(result, "return").interquartile
        rows.append(
            (
                task_name(result.task),
                names[result.method],
                NOT_KEPT if is_best_alone(result) else cell(result, "return"),
                best_return(result),
                f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]",
                cell(result, "valid_action_rate"),
                f"{sum(calls) / len(calls):,.0f}" if calls else "unknown",
                *((seconds(result.preparation_seconds),) if is_prepared else ()),
                seconds(result.curve["seconds"][-1]),
                f"{result.worst_violation:g}",
                f"{len(result.seeds)} x {result.steps:,}",
            )
        )
    headings = (
        "task",
        "method",
        "return, last policy",
        "best policy",
        "interquartile mean",
        "valid action rate",
        "solver calls",
        *(("preparation",) if is_prepared else ()),
        "training",
        "worst violation",
        "seeds x steps",
    )
    return markdown(headings, rows, words=2)


def is_best_alone(result: Result) -> bool:
    """Tell whether the final numbers are those of each seed's best evaluated policy and there are no others."""
    return any(origin.get("policy") == "best" for origin in result.provenance)


def best_return(result: Result) -> str:
    """Return mean and deviation of the best evaluated policies on fresh episodes."""
    if is_best_alone(result):
        return cell(result, "return")
    if result.best is None:
        return NOT_KEPT
    returns = result.best["return"]
    return number(statistics.mean(returns), statistics.stdev(returns) if len(returns) > 1 else None)


def violations_table(results: Sequence[Result]) -> str:
    """Return, suite by suite, how many steps training took, which ends where an action leaves its set.

    The worst violation is that of the evaluations, the final ones included.
    """
    rows = []
    for suite in SUITES:
        found = [result for result in results if result.suite == suite]
        if found:
            steps = sum(result.environment_steps for result in found)
            worst = max(result.worst_violation for result in found)
            rows.append((f"`{suite}`", f"{len(found)}", f"{steps:,}", f"{worst:g}"))
    return markdown(("suite", "experiments", "steps of training", "worst violation in evaluations"), rows)


def find(results: Sequence[Result], suite: str, task: str, method: str) -> Result | None:
    """Return the result of one experiment."""
    return next((r for r in results if (r.suite, r.task, r.method) == (suite, task, method)), None)


class Artefact(NamedTuple):
    """One table or figure of the paper, and how ours is made."""

    name: str
    shows: str
    suite: str | None
    """The suite whose results answer it; None if it is not an experiment."""
    figure: str | None
    """Which file of `inbounds report --figures` draws it."""
    answer: Callable[[Sequence[Result]], str] | str


def verdicts(name: str, learners: tuple[str, ...] = ()) -> Callable[[Sequence[Result]], str]:
    """Return a verdict in words: on how many tasks our mean reaches the paper's."""

    def answer(results: Sequence[Result]) -> str:
        asked = [result for result in results if not learners or result.learner in learners]
        verdicts = [summarise(result, name).verdict for result in asked if result.is_complete]
        compared = [one for one in verdicts if one in MARKS]
        counts = ", ".join(f"{compared.count(kind)} {MARKS[kind]}" for kind in MARKS if kind in compared)
        return "; ".join(filter(None, (counted(asked), counts)))

    return answer


def counted(results: Sequence[Result]) -> str:
    """Return how much of a suite is there; what it shows is for the reader to see."""
    complete = sum(result.is_complete for result in results)
    shorter = f"{len(results) - complete} trained for fewer steps or seeds" if complete < len(results) else ""
    return ", ".join(filter(None, (f"{plural(complete, 'experiment')} complete", shorter)))


ARTEFACTS = (
    Artefact(
        "Table 1",
        "qualitative comparison of methods",
        None,
        None,
        "words only; our measured counterpart is the suite `paper`",
    ),
    Artefact(
        "Table 2",
        "valid action rate of five methods on eight tasks",
        "paper",
        None,
        verdicts("valid_action_rate"),
    ),
    Artefact(
        "Table 3", "evaluation time of five methods on four tasks", "wall-clock", "inference_time", counted
    ),
    Artefact("Table 4", "return of FOCOPS and ARAM", "paper", None, verdicts("return", ("aram", "focops"))),
    Artefact(
        "Table 5",
        "valid action rate of FOCOPS and ARAM",
        "paper",
        None,
        verdicts("valid_action_rate", ("aram", "focops")),
    ),
    Artefact(
        "Table 6", "the action constraints", None, None, "`inbounds list tasks` prints them from the code"
    ),
    Artefact("Table 7", "ARAM's hyper-parameters", None, None, '`Aram(preset="paper")`'),
    Artefact("Table 8", "hyper-parameters of the baselines", None, None, '`preset="paper"` of each learner'),
    Artefact("Figure 1", "the augmented MDP, a drawing", None, None, "no experiment"),
    Artefact("Figure 2", "the framework, a drawing", None, None, "no experiment"),
    Artefact("Figure 3", "return versus wall-clock time", "wall-clock", "return_by_time", counted),
    Artefact("Figure 4", "cumulative solver calls", "paper", "projections", counted),
    Artefact(
        "Figure 5", "return and validity of ARAM and SOSAC", "ablation-morl", "return_and_validity", counted
    ),
    Artefact("Figure 6", "the training process, a drawing", None, None, "no experiment"),
    Artefact("Figure 7", "return versus steps", "paper", "return_by_steps", verdicts("return")),
    Artefact(
        "Figure 8",
        "valid action rate versus steps",
        "paper",
        "valid_action_rate_by_steps",
        verdicts("valid_action_rate"),
    ),
    Artefact(
        "Figure 9",
        "return of FOCOPS and ARAM versus steps",
        "paper",
        "return_by_steps",
        verdicts("return", ("aram", "focops")),
    ),
    Artefact(
        "Figure 10",
        "valid action rate of FOCOPS and ARAM versus steps",
        "paper",
        "valid_action_rate_by_steps",
        verdicts("valid_action_rate", ("aram", "focops")),
    ),
    Artefact("Figure 11", "learning curves of ARAM and SOSAC", "ablation-morl", "return_by_steps", counted),
    Artefact("Figure 12", "sensitivity to the penalty K", "sensitivity-penalty", "return_by_steps", counted),
    Artefact(
        "Figure 13",
        "target distribution: normal and Student-t",
        "target-distribution",
        "return_by_steps",
        counted,
    ),
    Artefact(
        "Figure 14", "NSFnet20d: return, validity, solver calls", "scalability", "return_by_steps", counted
    ),
    Artefact("not in the paper", "what its reviewers asked for", "reviewers", "return_by_steps", counted),
    Artefact("not in the paper", "the constraints of other papers", "literature", "return_by_steps", counted),
)


def reproduction_table(results: Sequence[Result]) -> str:
    """Return one row per table and figure of the paper: what it shows, our command, where ours is, the verdict."""
    rows = []
    for artefact in ARTEFACTS:
        if artefact.suite is None:
            rows.append((artefact.name, artefact.shows, "", "", str(artefact.answer)))
            continue
        assert artefact.suite in SUITES and callable(artefact.answer)
        found = [result for result in results if result.suite == artefact.suite]
        command = f"`inbounds benchmark {artefact.suite}`"
        where = f"`benchmarks/results/{artefact.suite}/`"
        if artefact.figure is not None:
            where += f", figure `{artefact.suite}-{artefact.figure}`"
        rows.append(
            (artefact.name, artefact.shows, command, where, artefact.answer(found) if found else NOT_RUN)
        )
    return markdown(("of the paper", "shows", "command", "ours", "verdict"), rows, words=5)
