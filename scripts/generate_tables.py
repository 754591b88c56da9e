"""Writes the tables of README, documentation and lab from the committed results; `--check` fails where one is stale.

A table stands between two comments of its file, `<!-- table: NAME -->` and `<!-- end of table -->`; everything
between them is replaced. Run it after results were added: `python scripts/generate_tables.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from inbounds.experiments.collecting import REFERENCES, is_result_file, read_references
from inbounds.experiments.results import Result, load_result
from inbounds.experiments.suites import PAPER_TASKS, SUITES
from inbounds.report.comparison import comparison_table
from inbounds.report.style import task_name
from inbounds.report.tables import (
    NOT_RUN,
    headline_table,
    markdown,
    reproduction_table,
    suite_table,
    violations_table,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS, LAB = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "lab"
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(LAB.glob("*.md")))
TRIALS = ("beyond-paper", "at-length")
"""Suites of the lab, which this version cannot run again; their results are read as they are."""
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    """Rewrite every marked table, or only say which ones are stale."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is stale")
    check = parser.parse_args().check
    results = [load_result(path) for path in result_files() if is_result_file(path)]
    stale = []
    for path in FILES:
        before = path.read_text(encoding="utf-8")
        after = MARKED.sub(
            lambda found: found.group(1) + table(found.group(2), results) + "\n" + found.group(3), before
        )
        if after != before:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(after, encoding="utf-8")
    if check and stale:
        sys.exit(f"stale tables in {', '.join(map(str, stale))}: run `python scripts/generate_tables.py`.")
    print(
        f"{len(results)} results; "
        + (f"rewrote {', '.join(map(str, stale))}" if stale else "every table is up to date")
    )


def result_files() -> list[Path]:
    """Return the result files of all suites, those of the lab included."""
    return sorted([*RESULTS.glob("*/*.json"), *(LAB / "results").glob("*/*.json")])


def table(name: str, results: list[Result]) -> str:
    """Return the table of that name."""
    references = read_references(RESULTS / REFERENCES) if (RESULTS / REFERENCES).exists() else {}
    if name == "headline":
        return headline_table(results, references)
    if name == "reproduction":
        return reproduction_table(results)
    if name == "violations":
        return violations_table(results)
    if name == "comparison":
        return comparison_table([result for result in results if result.suite == "paper"], references)
    if name == "which-learner":
        return learners_table(results)
    if name == "faults":
        path = RESULTS / "faults.json"
        if not path.exists():
            return f"`python -m benchmarks.faults`: {NOT_RUN}."
        return faults_table(json.loads(path.read_text())["rows"])
    if name == "attack":
        path = RESULTS / "attack.json"
        if not path.exists():
            return f"`python -m benchmarks.attack`: {NOT_RUN}."
        return attack_table(json.loads(path.read_text())["doors"])
    if name == "parts":
        return parts_table(json.loads((LAB / "followed.json").read_text())["cells"])
    if name in SUITES or name in TRIALS:
        return suite_table(results, name)
    known = ", ".join(
        (
            "headline",
            "comparison",
            "reproduction",
            "violations",
            "which-learner",
            "faults",
            "attack",
            "parts",
            *SUITES,
        )
    )
    sys.exit(f"no table is called '{name}'; known are {known}.")


COMPARED = {
    "ARAM: return, valid": ("aram", "default"),
    "SPre+ (`paper`)": ("spre", "paper"),
    "DPre+ (`paper`)": ("dpre", "paper"),
}
"""Columns of the table that helps to choose a learner: those that have run at full length on every task."""


def learners_table(results: list[Result]) -> str:
    """Return return and valid action rate of the compared learners by task, the highest return in bold."""
    lines = []
    for task in PAPER_TASKS:
        found = {
            (result.learner, result.preset): result.final
            for result in results
            if result.suite == "paper" and result.task == task and not result.variant
        }
        means = {one: mean(found[one]["return"]) for one in COMPARED.values() if one in found}
        cells = []
        for one in COMPARED.values():
            shown = NOT_RUN
            if one in found:
                number = f"{means[one]:,.{1 if abs(means[one]) < 100 else 0}f}"
                number = f"**{number}**" if means[one] == max(means.values()) else number
                shown = f"{number}, {mean(found[one]['valid_action_rate']):.2f}"
            cells.append(shown)
        lines.append((task_name(task), *cells))
    return markdown(("task", *COMPARED), lines, words=1)


PARTS = {
    "one-proposal": "one proposal, followed self-loops, tuned K, learning rate 1e-3",
    "twenty-proposals": "twenty proposals",
    "hundred-proposals": "a hundred proposals",
    "one-proposal-learning-rate-0.0003": "a learning rate of 3e-4",
    "one-proposal-penalty-20": "K = 20, not tuned",
    "one-proposal-no-self-loops": "no self-loops",
    "former default, from-scratch": "former default: discounted self-loops, a hundred proposals, 3e-4",
    "former default, from-scratch-one-proposal": "former default with one proposal",
}
"""Rows of the table of the default's parts, by variant; all have a discount of 0.99 and start anywhere in the box."""
PARTS_STEPS = 200_000


def parts_table(cells: Mapping[str, Mapping[str, Any]]) -> str:
    """Return return and valid action rate of each variant after 200,000 steps, or after those that it was given."""
    tasks = [task for task in cells if len(set(PARTS) & set(cells[task])) > 1]
    return markdown(
        ("variant", *map(task_name, tasks)),
        [(shown, *(part_cell(cells[task].get(name)) for task in tasks)) for name, shown in PARTS.items()],
        words=1,
    )


def part_cell(curve: Mapping[str, Any] | None) -> str:
    """Return the last evaluation of one curve: mean and deviation over seeds, and the mean valid action rate."""
    if curve is None:
        return NOT_RUN
    last = curve["steps"][-1]
    returns, valid = ([seed[-1] for seed in curve[name]] for name in ("return", "valid"))
    digits = 1 if abs(mean(returns)) < 100 else 0
    shown = f"{mean(returns):,.{digits}f} ± {stdev(returns):,.{digits}f}, {mean(valid):.2f}"
    return shown if last == PARTS_STEPS else f"{shown} ({last // 1_000}k)"


PLACES = {
    "a new run": "new runs",
    "a resumed run": "resumed runs",
    "runs one after the other": "new runs",
    "an export": "exports",
    "a result": "results",
    "tables": "tables",
    "checkpoint": "checkpoints",
    **dict.fromkeys(("metrics.jsonl", "evaluations.jsonl"), "logs"),
    **dict.fromkeys(("policy.safetensors", "best.safetensors"), "policies"),
}
"""What stands in the table of faults, by how the name of a place begins; other names stand as they are."""


def faults_table(rows: list[dict[str, Any]]) -> str:
    """Return one row per kind of fault: where it struck, how often, and how often nothing was lost."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["fault"], []).append(row)
    lines = []
    for kind, found in kinds.items():
        places = [
            next((PLACES[one] for one in PLACES if row["where"].startswith(one)), row["where"])
            for row in found
        ]
        counts = [f"{sum(row[column] for row in found):,}" for column in ("tried", "survived")]
        lines.append((kind, ", ".join(dict.fromkeys(places)), *counts))
    totals = [f"{sum(row[column] for row in rows):,}" for column in ("tried", "survived")]
    return markdown(("fault", "struck", "tried", "survived"), [*lines, ("all", "", *totals)], words=2)


DOORS = {
    "known": "questions that once had a wrong answer",
    "project": "`project` in NumPy",
    "contains": "`contains`, `violation` and `explain` in NumPy",
    "sample": "`sample` with a NumPy generator",
    "interior_point": "`interior_point`, `linear_maximiser` and `distance`",
    "compiled": "the same in JAX (eager, `jit`, `vmap`, float64) and in other array libraries",
    "filter": "`ib.SafetyFilter`",
    "torch": "`ib.TorchFilter`",
    "guard": "`ib.Guard`",
    "wrappers": "`ib.ProjectAction`, `ib.AcceptReject`, `ib.AugmentedMDP`",
    "task": "environments of `ib.Task`, with published sets",
    "space": "`ib.ConstrainedBox`",
    "policy": "deployed policies in NumPy",
    "onnx": "exported policies in onnxruntime",
}
"""What is asked at each door of the attack."""


def attack_table(doors: dict[str, dict[str, Any]]) -> str:
    """Return one row per door: sets, questions, actions outside their set, and every other finding."""
    columns = ("rounds", "cases", "outside")
    others = ("silent NaN", "unexplained exception", "slow", "refused", "wrong answer")
    rows = [
        (*(found[name] for name in columns), sum(found[name] for name in others)) for found in doors.values()
    ]
    rows.append(tuple(sum(column) for column in zip(*rows, strict=True)))
    names = [*(DOORS[door] for door in doors), "all"]
    lines = [(name, *(f"{count:,}" for count in row)) for name, row in zip(names, rows, strict=True)]
    return markdown(("entry point", "sets", "cases", "infeasible", "other findings"), lines, words=1)


if __name__ == "__main__":
    main()
