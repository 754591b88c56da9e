"""Results: what a report needs of run folders, in one small file per cell that can be committed and merged."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inbounds.errors import InvalidInputError
from inbounds.evaluation.protocol import rounded
from inbounds.evaluation.solver_calls import SUFFIX
from inbounds.experiments.experiment import read_cell
from inbounds.experiments.result_shapes import FINAL_SHAPE, RESULT_SHAPE
from inbounds.experiments.worker import CELL, FINAL
from inbounds.reading import read_object, require_name, require_shape
from inbounds.storage.files import write_text
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder

FORMAT = 1
POINTS = 160
"""Points that a curve keeps; 1.5M steps evaluated every 10,000 are 150."""
CURVES = ("return", "valid_action_rate", "deterministic_valid_rate", "training_projections")
LAST_EVALUATION = "the last evaluation of training"
FRESH_EPISODES = "the last policy on fresh episodes"
BEST_ON_FRESH_EPISODES = "the kept policy on fresh episodes"
"""Older results: the policy of each seed's best evaluation, or the last one, as their provenance says."""
COLLECT_AGAIN = "Collect it again from its run folder, or leave it out."


@dataclasses.dataclass(frozen=True)
class Result:
    """One task, one method, some seeds: curves, final numbers, and where they come from."""

    suite: str
    name: str
    task: str
    learner: str
    preset: str
    variant: str
    seeds: tuple[int, ...]
    expected_seeds: int
    """How many seeds the suite asks for; fewer in `seeds` means that the cell is not complete."""
    steps: int
    expected_steps: int
    curve: Mapping[str, Any]
    """`step`, and per curve one list per seed; `seconds` of training, evaluations aside."""
    training: Mapping[str, Any]
    """`step`, and `acceptance` with one list per seed."""
    final: Mapping[str, Any]
    """Per seed: return, valid action rates, solver calls; `source` says which episodes."""
    best: Mapping[str, Any] | None
    """The same for the policies of each seed's best evaluation; None in older results."""
    worst_violation: float
    """Over every evaluated action; training itself refuses what is infeasible."""
    environment_steps: int
    """Steps behind this result, all seeds and episodes of training together."""
    front: Mapping[str, Any] | None
    inference: Mapping[str, Any] | None
    episode: Mapping[str, Any] | None
    provenance: tuple[Mapping[str, Any], ...]
    """One entry per run folder, with the seeds that it trained."""
    command: str

    @property
    def method(self) -> str:
        """Return the row that this result belongs to in a table of tasks and methods."""
        return "-".join(part for part in (self.learner, self.preset, self.variant) if part)

    @property
    def is_complete(self) -> bool:
        """Tell whether all seeds were trained to the end and evaluated on fresh episodes."""
        return (
            len(self.seeds) >= self.expected_seeds
            and self.steps >= self.expected_steps
            and self.final["source"] in (FRESH_EPISODES, BEST_ON_FRESH_EPISODES)
        )

    @property
    def preparation_seconds(self) -> float | None:
        """Return how long a run took before its first step, on average over the run folders.

        All seeds of a folder are prepared together. None where a folder does not say, as older ones do not.
        """
        known = [origin.get("preparation_seconds") for origin in self.provenance]
        spent = [float(seconds) for seconds in known if seconds is not None]
        return sum(spent) / len(spent) if spent and len(spent) == len(known) else None

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "this") -> Result:
        """Read what `as_json` returned; suite and name, which are those of files, must be names."""
        if data.get("format") != FORMAT:
            raise InvalidInputError(f"{origin} is not a result of format {FORMAT}. {COLLECT_AGAIN}")
        require_shape(data, RESULT_SHAPE, origin, COLLECT_AGAIN)
        for name in (data["name"], data["suite"] or data["name"]):
            require_name(name, origin, COLLECT_AGAIN)
        values: dict[str, Any] = {field.name: data.get(field.name) for field in dataclasses.fields(cls)}
        read = cls(**{**values, "seeds": tuple(data["seeds"]), "provenance": tuple(data["provenance"])})
        require_every_seed(read, origin, COLLECT_AGAIN)
        return read


def collect_run(path: Path, suite: str = "") -> Result:
    """Read one run folder; whatever is missing or damaged is named, never averaged over."""
    folder = RunFolder(path)
    config = folder.config()
    rows = list(folder.rows(EVALUATIONS))
    if not rows:
        raise InvalidInputError(f"{path} has no evaluation yet. Let it train to its first evaluation.")
    seeds = tuple(range(config["training"]["seed"], config["training"]["seed"] + config["training"]["seeds"]))
    curve = curves(rows, seeds, CURVES, path)
    steps = curve["step"]
    seconds = {row["step"]: row["seconds"] for row in rows}
    curve = {**curve, "seconds": [rounded(seconds[step]) for step in steps]}
    cell = read_cell(path / CELL) if (path / CELL).exists() else None
    learner = config["learner"]
    last = max(row["step"] for row in rows)
    again = "Remove it and run the suite again, which repeats the final evaluation only."
    written = read_object(path / FINAL, again, FINAL_SHAPE) if (path / FINAL).exists() else {}
    final = final_numbers(folder, rows, seeds, written, config["training"]["episodes"])
    result = Result(
        suite=suite,
        name=cell.name if cell else path.resolve().name,
        task=config["task"],
        learner=learner["name"],
        preset=learner.get("preset", "default"),
        variant=cell.variant if cell else "",
        seeds=seeds,
        expected_seeds=len(seeds),
        steps=last,
        expected_steps=config["training"]["steps"],
        curve=curve,
        training=training_curves(folder, seeds, path),
        final=final,
        best=written.get("best"),
        worst_violation=max(
            final["worst_violation"],
            written.get("best", final)["worst_violation"],
            *(row["worst_violation"] for row in rows),
        ),
        environment_steps=last * len(seeds),
        front=written.get("front"),
        inference=written.get("inference"),
        episode=written.get("episode"),
        provenance=({**folder.provenance(), "seeds": list(seeds), **how_it_ran(folder, config)},),
        command=cell.command(f"runs/{cell.name}") if cell else command_of(config),
    )
    require_shape(result.as_json(), RESULT_SHAPE, str(path), "Leave it out, or train it again.")
    require_every_seed(
        result, str(path), f"{path / FINAL} may belong to another run: {again[0].lower()}{again[1:]}"
    )
    return result


def require_every_seed(result: Result, origin: str, remedy: str) -> None:
    """Refuse a result in which some quantity has more or fewer numbers than there are seeds, or a curve than steps."""
    columns: dict[str, Any] = {}
    for kind, numbers in (("final", result.final), ("best", result.best or {})):
        columns |= {f"{kind} {name}": values for name, values in numbers.items() if name != "preference"}
        calls = numbers.get("solver_calls", {"acting": [], "updates": {}})
        if calls["acting"] or calls["updates"]:  # else the folder has no metrics, and nobody counted
            columns |= {f"{kind} solver calls": calls["acting"]}
            columns |= {f"{kind} calls of {cause}": counts for cause, counts in calls["updates"].items()}
    for part in (result.curve, result.training):
        columns |= {f"curve of {name}": part[name] for name in part if name not in ("step", "seconds")}
    for name, values in columns.items():
        if isinstance(values, list) and len(values) != len(result.seeds):
            raise InvalidInputError(
                f"{origin} is about {len(result.seeds)} seeds {list(result.seeds)}, but has numbers of {len(values)} "
                f"for '{name.replace('_', ' ')}': a seed is missing, or one too many. {remedy}"
            )
    for part in (result.curve, result.training):
        curves = [part[name] for name in part if name not in ("step", "seconds")]
        points = [curve for by_seed in curves for curve in by_seed] + [part.get("seconds", part["step"])]
        if any(not isinstance(curve, list) or len(curve) != len(part["step"]) for curve in points):
            raise InvalidInputError(f"{origin} has a curve with more or fewer points than steps. {remedy}")
    if not (result.seeds and result.curve["step"] and result.provenance):
        raise InvalidInputError(f"{origin} has no seed, no evaluation or no provenance. {remedy}")


def how_it_ran(folder: RunFolder, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a wall-clock time depends on."""
    speeds = sorted(row["steps_per_second"] for row in folder.rows(METRICS))
    return {
        "environments": config["training"]["environments"],
        "updates_per_step": config["training"]["updates_per_step"],
        "median_steps_per_second": speeds[len(speeds) // 2] if speeds else None,
        "learner_settings": config["learner"],
    }


def curves(
    rows: Sequence[Mapping[str, Any]], seeds: Sequence[int], names: Sequence[str], path: Path
) -> dict[str, Any]:
    """Return rows by name, seed and step; a seed that is missing at a step is an error."""
    found = {(row["step"], row["seed"]): row for row in rows}
    steps = sorted({step for step, _ in found})
    for step in steps:
        if missing := [seed for seed in seeds if (step, seed) not in found]:
            raise InvalidInputError(
                f"{path}: seed {missing[0]} has no row at step {step:,}. Resume the run, or remove the step."
            )
    kept = thinned(steps)
    return {
        "step": kept,
        **{
            name: [[_number(found[step, seed].get(name)) for step in kept] for seed in seeds]
            for name in names
        },
    }


def training_curves(folder: RunFolder, seeds: Sequence[int], path: Path) -> dict[str, Any]:
    """Return acceptance and solver calls during training."""
    rows = list(folder.rows(METRICS))
    calls = sorted({name for row in rows for name in row if name.endswith(SUFFIX)})
    return curves(rows, seeds, ("acceptance", *calls), path)


def final_numbers(
    folder: RunFolder,
    rows: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    written: Mapping[str, Any],
    episodes: int,
) -> dict[str, Any]:
    """Return the final evaluation, or else the last one of training, and say which of the two it is."""
    if "final" in written:
        return {"source": FRESH_EPISODES, **written["final"]}
    from inbounds.evaluation.solver_calls import count_solver_calls

    last = max(row["step"] for row in rows)
    by_seed = {row["seed"]: row for row in rows if row["step"] == last}
    names = ("return", "return_std", "length", "valid_action_rate", "deterministic_valid_rate")
    return {
        "source": LAST_EVALUATION,
        "seeds": list(seeds),
        "episodes": episodes,
        "preference": list(folder.config()["training"]["preference"]),
        **{name: [rounded(by_seed[seed][name]) for seed in seeds] for name in names},
        "worst_violation": max(row["worst_violation"] for row in rows),
        "solver_calls": count_solver_calls(
            folder, [by_seed[seed]["evaluation_projections"] for seed in seeds]
        ).as_json(),
    }


def thinned(steps: Sequence[int], points: int = POINTS) -> list[int]:
    """Return at most so many of the steps, always with the last one."""
    stride = -(-len(steps) // points)
    return [step for index, step in enumerate(reversed(steps)) if index % stride == 0][::-1] if steps else []


def command_of(config: Mapping[str, Any]) -> str:
    """Return the command of a run that no suite planned: what differs from the defaults is in its config.json."""
    training, learner = config["training"], config["learner"]
    words = ["inbounds", "train", config["task"], "--learner", learner["name"]]
    words += ["--preset", str(learner.get("preset", "default")), "--steps", str(training["steps"])]
    return shlex.join([*words, "--seeds", str(training["seeds"]), "--seed", str(training["seed"])])


def save_result(result: Result, folder: Path) -> Path:
    """Write one result: every field on a line of its own, so that a change shows where it is."""
    name = require_name(result.name, f"the result {result.name!r}", "Rename the folder of its run.")
    lines = [
        f"{json.dumps(field)}: {json.dumps(value, separators=(',', ':'))}"
        for field, value in result.as_json().items()
    ]
    path = folder / f"{name}.json"
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
    return path


def load_result(path: Path) -> Result:
    """Read a result file."""
    return Result.from_json(read_object(path, COLLECT_AGAIN), str(path))


def merged(results: Iterable[Result]) -> list[Result]:
    """Return one result per suite and cell; seeds from several machines are put together.

    The same seed twice, another simulator, other settings or other steps are refused: such numbers are not a sample
    of one thing.
    """
    by_cell: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.suite, result.name)
        by_cell[key] = joined(by_cell[key], result) if key in by_cell else result
    return list(by_cell.values())


def joined(first: Result, second: Result) -> Result:
    """Return two results of one cell as one."""
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
        raise InvalidInputError(f"{first.name}: the final evaluations differ in episodes. Finish both cells.")
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


def require_same_origin(results: Sequence[Result]) -> None:
    """Refuse one table from several simulators or several settings of one method."""
    versions: dict[str, str] = {}
    for result in results:
        for origin in result.provenance:
            versions.setdefault(str(origin["packages"]["mujoco"]), result.name)
    if len(versions) > 1:
        examples = ", ".join(f"{name} with {version}" for version, name in sorted(versions.items()))
        raise InvalidInputError(
            f"these results come from MuJoCo {' and '.join(sorted(versions))} ({examples}); another version is another "
            f"task. Report them apart, or train again with one version."
        )
    settings: dict[tuple[str, str], Any] = {}
    for result in results:
        for origin in result.provenance:
            key = (result.suite, result.name)
            if settings.setdefault(key, origin["learner_settings"]) != origin["learner_settings"]:
                raise InvalidInputError(
                    f"{result.name}: its seeds were trained with different settings. Report them apart."
                )


def _number(value: Any) -> Any:
    return None if value is None else rounded(float(value), 5)
