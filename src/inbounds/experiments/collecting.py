"""From folders to results: run folders, result files and folders of either are read into one list."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, InboundsError, InvalidInputError
from inbounds.evaluation.trained import run_folders, runs_below
from inbounds.experiments.experiment import REFERENCES_SHAPE, read_cell
from inbounds.experiments.results import EPISODE_FILE, Result, collect_run, load_result
from inbounds.experiments.suites import Suite
from inbounds.experiments.worker import CELL, FINAL, present_task_check
from inbounds.reading import read_object
from inbounds.storage.files import write_json
from inbounds.tasks.registry import TASKS

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

REFERENCES = "references.json"
MEASURE_AGAIN = "Remove it and run `inbounds benchmark references` again."


def read_results(paths: Sequence[Path]) -> list[Result]:
    """Return the results below some paths: seeds of one experiment put together, and no run hidden by another."""
    found: list[Result] = []
    for path in paths:
        found += read_one(path)
    in_suites, alone = [one for one in found if one.suite], [one for one in found if not one.suite]
    return told_apart([*merged(in_suites), *numbered(alone)])


def numbered(results: Sequence[Result]) -> list[Result]:
    """Return results of which no two have one name; folders of one name may lie in several places."""
    counts: dict[str, int] = {}
    named = []
    for result in results:
        counts[result.name] = count = counts.get(result.name, 0) + 1
        named.append(result if count == 1 else dataclasses.replace(result, name=f"{result.name}-{count}"))
    return named


def read_one(path: Path) -> list[Result]:
    """Return the results of one path: a result file, a run folder, or a folder above some of either."""
    if path.is_file():
        return [load_result(path)]
    files = [file for file in sorted(path.rglob("*.json")) if is_result_file(file)] if path.is_dir() else []
    folders = [
        folder
        for folder in reported_folders(path, has_files=bool(files))
        if (folder / "evaluations.jsonl").exists()
    ]
    if not files and not folders:
        raise InvalidInputError(
            f"{path} holds runs but none was evaluated yet. Let one reach its first evaluation."
        )
    results = [collect_run(folder, suite_of(folder)) for folder in folders]
    return [*map(load_result, files), *unique_names(results, folders, path)]


def reported_folders(path: Path, *, has_files: bool) -> list[Path]:
    """Return the run folders below a path; beside result files only those of no suite: the files hold the rest."""
    if not has_files:
        return run_folders([path])
    return [folder for folder in runs_below(path) if not (folder / CELL).exists()]


def merged(results: Iterable[Result]) -> list[Result]:
    """Return one result per suite and experiment; seeds from several machines are put together.

    The same seed twice, another simulator, another constraint or horizon, other settings or other steps are refused:
    such numbers are not a sample of one thing.
    """
    by_cell: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.suite, result.name)
        by_cell[key] = joined(by_cell[key], result) if key in by_cell else result
    return list(by_cell.values())


def joined(first: Result, second: Result) -> Result:
    """Return two results of one experiment as one."""
    if twice := sorted(set(first.seeds) & set(second.seeds)):
        raise InvalidInputError(
            f"{first.name}: seed {twice[0]} was trained twice. Leave one of the two folders out."
        )
    if first.steps != second.steps or first.curve["step"] != second.curve["step"]:
        raise InvalidInputError(
            f"{first.name}: seeds {list(first.seeds)} have {first.steps:,} steps, seeds {list(second.seeds)} have "
            f"{second.steps:,}. Train them equally long."
        )
    if first.final["source"] != second.final["source"] or first.final["episodes"] != second.final["episodes"]:
        raise InvalidInputError(
            f"{first.name}: the final evaluations differ in episodes. Finish both experiments."
        )
    require_same_origin([first, second])
    has_best = first.best is not None and second.best is not None
    if quantities(first, has_best) != quantities(second, has_best):
        raise InvalidInputError(
            f"{first.name}: seeds {list(first.seeds)} and {list(second.seeds)} logged different quantities. Train them "
            f"with one version."
        )
    return dataclasses.replace(
        first,
        seeds=first.seeds + second.seeds,
        expected_seeds=max(first.expected_seeds, len(first.seeds) + len(second.seeds)),
        curve={**joined_curves(first.curve, second.curve), "seconds": first.curve["seconds"]},
        training=joined_curves(first.training, second.training),
        diagnostics=joined_diagnostics(first.diagnostics, second.diagnostics),
        final=joined_evaluations(first.final, second.final),
        best=joined_evaluations(first.best, second.best) if first.best and second.best else None,
        worst_violation=max(first.worst_violation, second.worst_violation),
        environment_steps=first.environment_steps + second.environment_steps,
        provenance=first.provenance + second.provenance,
    )


def quantities(result: Result, has_best: bool) -> list[set[str]]:
    """Return what a result has numbers of."""
    evaluated = [result.final, *([result.best or {}] if has_best else [])]
    causes = [part["solver_calls"]["updates"] for part in evaluated]
    return [set(part) for part in (*evaluated, *causes, result.curve, result.training)]


def joined_evaluations(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the final evaluation of more seeds."""
    final = {
        name: value + second[name] if isinstance(value, list) and name != "preference" else value
        for name, value in first.items()
        if name != "solver_calls"
    }
    calls, more = first["solver_calls"], second["solver_calls"]
    final["solver_calls"] = {
        "acting": calls["acting"] + more["acting"],
        "updates": {cause: counts + more["updates"][cause] for cause, counts in calls["updates"].items()},
        "evaluation": calls["evaluation"] + more["evaluation"],
        "rounding": calls["rounding"],
    }
    final["worst_violation"] = max(first["worst_violation"], second["worst_violation"])
    return final


def joined_curves(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return curves of more seeds; the steps are the same."""
    return {
        name: value if name in ("step", "seconds") else value + second[name] for name, value in first.items()
    }


def joined_diagnostics(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> Any:
    """Return diagnostics of more seeds, where both logged the same at the same steps."""
    if first is None or second is None or set(first) != set(second) or first["step"] != second["step"]:
        return None
    return joined_curves(first, second)


def told_apart(results: Sequence[Result]) -> list[Result]:
    """Return runs of no suite so that none hides another: seeds put together, or each run a method of its own.

    Runs of one task and method are put together if they have the same settings and other seeds; otherwise the name
    of the run's folder becomes part of the method.
    """
    by_method: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        by_method.setdefault((result.suite, result.task, result.method), []).append(result)
    found: list[Result] = []
    for (suite, _, _), group in by_method.items():
        if suite or len(group) == 1:
            found += group
        elif len({how_it_was_trained(result) for result in group}) == 1 and (one := as_one(group)):
            found.append(one)
        else:
            found += [dataclasses.replace(result, variant=result.name) for result in group]
    return found


ONE_THING = ("learner_settings", "training_settings", "problem")
"""What the origins of one experiment share: how and on what it was trained."""


def how_it_was_trained(result: Result) -> str:
    """Return everything that two runs must share to be a sample of one thing, as text."""
    kept = (*ONE_THING, "environments", "updates_per_step", "packages")
    return json.dumps(
        [[origin.get(name) for name in kept] for origin in result.provenance], sort_keys=True, default=str
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of what two origins were trained differently in."""
    parts = [(one.get(name) or {}, other.get(name) or {}) for name in ONE_THING]
    return [name for part, its in parts for name in {**part, **its} if part.get(name) != its.get(name)]


def as_one(group: Sequence[Result]) -> Result | None:
    """Return several runs as one, named after the first; nothing where their seeds or steps do not fit."""
    one = group[0]
    try:
        for other in group[1:]:
            one = joined(one, other)
    except InvalidInputError:
        return None
    return one


def require_same_origin(results: Sequence[Result]) -> None:
    """Refuse one table from several versions of MuJoCo, where tasks run on it, or one row from several settings."""
    versions: dict[str, str] = {}
    for result in results:
        for origin in result.provenance if is_mujoco_task(result.task) else ():
            versions.setdefault(str(origin["packages"]["mujoco"]), result.name)
    if len(versions) > 1:
        examples = ", ".join(f"{name} with {version}" for version, name in sorted(versions.items()))
        raise InvalidInputError(
            f"these results come from MuJoCo {' and '.join(sorted(versions))} ({examples}); another version is another "
            f"task. Report them apart, or train again with one version."
        )
    firsts: dict[tuple[str, str], Mapping[str, Any]] = {}
    for result in results:
        for origin in result.provenance:
            first = firsts.setdefault((result.suite, result.name), origin)
            if names := differences(first, origin):
                raise InvalidInputError(
                    f"{result.name}: its seeds were trained with different settings ({', '.join(names)}). Report them "
                    f"apart, or leave one of the folders out."
                )


def is_mujoco_task(task: str) -> bool:
    """Tell whether one of our tasks is simulated by MuJoCo; of a user's task nobody knows."""
    return task in TASKS and TASKS[task].factory.startswith("locomotion")


def is_result_file(path: Path) -> bool:
    """Tell whether a JSON file is a result, by its first line and field."""
    if not path.is_file():
        return False
    with open(path, "rb") as handle:
        return handle.readline(8).strip() == b"{" and handle.readline(16).startswith(b'"format": ')


def read_named_folders(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the run folders below some paths with the names of their results; result files have none."""
    named: list[tuple[str, Path]] = []
    for path in paths:
        if path.is_dir():
            has_files = any(is_result_file(file) for file in path.rglob("*.json"))
            for folder in reported_folders(path, has_files=has_files):
                is_cell = (folder / CELL).exists()
                plain = folder.resolve().name if folder == path or is_cell else str(folder.relative_to(path))
                named.append((plain.replace("/", "-"), folder))
    return named


def trace_runs(paths: Sequence[Path], task: Task | None, tell: Callable[[str], None]) -> None:
    """Measure how one episode of every finished run of no suite uses its constraint, and keep it in the run folder.

    Experiments of suites have it from their final evaluation. `task` is that of runs whose task is not one of ours;
    without it `tell` is called with which runs have no episode.
    """
    from inbounds.evaluation.inference import trace_episode
    from inbounds.evaluation.trained import TrainedRun
    from inbounds.training.record import POLICY, RunFolder

    # The task may change the working directory.
    for _, folder in read_named_folders([path.absolute() for path in paths]):
        policy, kept = folder / POLICY, folder / EPISODE_FILE
        if not policy.exists() or (folder / CELL).exists():
            continue
        if kept.exists() and kept.stat().st_mtime >= policy.stat().st_mtime:
            continue
        config = RunFolder(folder).config()
        given = None if config["task"] in TASKS else task
        if given is None and config["task"] not in TASKS:
            tell(
                f"{folder}: the use of the constraint over an episode is not shown, since '{config['task']}' is a task "
                f"of your own. Pass it: ib.write_report(run, task=task), or --task FILE.py:TASK."
            )
            continue
        try:
            run = TrainedRun.open(folder, given)
            write_json(kept, trace_episode(run).as_json())
        except InboundsError as error:
            tell(f"{folder}: the use of the constraint over an episode is not shown: {error}")


def suite_of(folder: Path) -> str:
    """Return the suite of an experiment's folder, runs/SUITE/EXPERIMENT; runs of no suite have none."""
    return folder.resolve().parent.name if (folder / CELL).exists() else ""


def unique_names(results: list[Result], folders: list[Path], root: Path) -> list[Result]:
    """Return runs that no suite planned under their path, since only their folders tell them apart."""
    named = []
    for result, folder in zip(results, folders, strict=True):
        if not result.suite and folder != root:
            named.append(dataclasses.replace(result, name=str(folder.relative_to(root)).replace("/", "-")))
        else:
            named.append(result)
    return named


def require_experiments(folders: Sequence[Path], suite: Suite) -> None:
    """Refuse folders to merge that hold no experiment of a suite: misspelt ones, or those of another level."""
    for folder in folders:
        if not any((folder / suite.name).glob(f"*/{CELL}")):
            what = f"holds no experiment of {suite.name}" if folder.is_dir() else "does not exist"
            raise InvalidInputError(
                f"the folder {folder} to merge {what}. Name the OUT folder of the other machine, in which "
                f"{suite.name}/EXPERIMENT lies."
            )


def finished_cells(
    roots: Sequence[Path], suite: Suite, leave_out: Callable[[str], None] | None = None
) -> list[Result]:
    """Return the finished experiments of a suite below some roots (runs/SUITE on each machine), merged.

    An experiment that was run for fewer steps or seeds than the suite plans is finished, but not complete. One that is
    damaged, or was run before its task was edited, raises, or is left out where `leave_out` is given, which is called
    with the reason.
    """
    planned = {cell.name: cell for cell in suite.cells()}
    require_present_task = present_task_check(suite)
    found = []
    for root in roots:
        for cell in sorted((root / suite.name).glob(f"*/{CELL}")):
            if not (cell.parent / FINAL).exists():
                continue
            try:
                result, own = collect_run(cell.parent, suite.name), read_cell(cell)
                require_present_task(cell.parent, own.task)
            except (InvalidInputError, ConfigurationError) as error:
                if leave_out is None:
                    raise
                leave_out(str(error))
                continue
            plan = planned.get(own.name, own)
            found.append(dataclasses.replace(result, expected_seeds=plan.seeds, expected_steps=plan.steps))
    return merged(found)


def references_near(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return what reference policies got, where it was measured: references.json in, beside or above the results.

    Another program's file of that name says nothing about tasks, and is passed over.
    """
    for path in paths:
        for folder in (path, *path.resolve().parents[:2], path / "results"):
            if (folder / REFERENCES).is_file() and "tasks" in read_object(folder / REFERENCES, MEASURE_AGAIN):
                return read_references(folder / REFERENCES)
    return {}


def read_references(path: Path) -> dict[str, dict[str, Any]]:
    """Return mean, deviation and episodes by task and reference policy."""
    return {task: entry["played"] for task, entry in read_measured(path).items()}


def read_measured(path: Path) -> dict[str, dict[str, Any]]:
    """Return what references.json holds by task: what was played, and its provenance."""
    measured: dict[str, dict[str, Any]] = read_object(path, MEASURE_AGAIN, REFERENCES_SHAPE)["tasks"]
    return measured
