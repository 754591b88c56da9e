"""Results: what a report needs of run folders, in one small file per experiment that can be committed and merged."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inbounds.constraints.constraint import Constraint
from inbounds.deploy.policy import recorded_preference
from inbounds.errors import InboundsError, InvalidInputError
from inbounds.evaluation.protocol import SUFFIX, rounded
from inbounds.experiments.experiment import EPISODE, FINAL_SHAPE, RESULT_SHAPE, Cell, read_cell
from inbounds.experiments.worker import CELL, FINAL
from inbounds.reading import read_object, require_name, require_shape
from inbounds.storage.files import write_text
from inbounds.storage.sealed_arrays import checksum_of_json
from inbounds.tasks.registry import names
from inbounds.training.config import CHANGEABLE
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder

FORMAT = 1
POINTS = 160
"""Points that a curve keeps; 1.5M steps evaluated every 10,000 are 150."""
EPISODE_FILE = "episode.json"
NOT_DIAGNOSTIC = frozenset(
    {"kind", "step", "seed", "seconds", "steps_per_second", "episodes", "projections", "rejections"}
)
"""What every learner logs beside its diagnostics."""
MAY_DIFFER = frozenset({*CHANGEABLE, "seed", "seeds"})
"""Settings of training that runs of one experiment may have others of; their lengths are compared on their own."""
PROBLEM = (
    *("observation_size", "observation_parts", "reference_action", "horizon"),
    *("action_low", "action_high", "constraint", "own_reward_scale"),
)
"""What `config.json` says of the task itself."""
LONGEST_ENTRY = 100
"""Characters; a constraint may hold a million numbers, and a result is a small file."""
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
    """How many seeds the suite asks for; fewer in `seeds` means that the experiment is not complete."""
    steps: int
    expected_steps: int
    curve: Mapping[str, Any]
    """`step`, and per curve one list per seed; `seconds` of training, evaluations aside."""
    training: Mapping[str, Any]
    """`step`, and `acceptance` with one list per seed."""
    diagnostics: Mapping[str, Any] | None
    """The same for whatever else the learner logged: losses, temperature, entropy. Result files leave it out."""
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
    formula: str | None
    """The constraint, written out; None in result files of tasks that are not ours."""
    provenance: tuple[Mapping[str, Any], ...]
    """One entry per run folder, with the seeds that it trained."""
    command: str

    @property
    def method(self) -> str:
        """Return the row that this result belongs to in a table of tasks and methods."""
        return "-".join(part for part in (self.learner, self.preset, self.variant) if part)

    @property
    def is_complete(self) -> bool:
        """Tell whether all seeds were trained to the end and, in a suite, evaluated on fresh episodes."""
        is_trained = len(self.seeds) >= self.expected_seeds and self.steps >= self.expected_steps
        is_evaluated = self.final["source"] in (FRESH_EPISODES, BEST_ON_FRESH_EPISODES)
        return is_trained and (is_evaluated or not self.suite)

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
        diagnostics=diagnostic_curves(folder, seeds, path),
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
        episode=written.get("episode", read_episode(path)),
        formula=formula_of(config),
        provenance=({**folder.provenance(), "seeds": list(seeds), **how_it_ran(folder, config)},),
        command=command_of(config, folder.provenance(), cell),
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
    """Return what a wall-clock time depends on, and what the seeds of one experiment share."""
    speeds = sorted(row["steps_per_second"] for row in folder.rows(METRICS))
    return {
        "environments": config["training"]["environments"],
        "updates_per_step": config["training"]["updates_per_step"],
        "median_steps_per_second": speeds[len(speeds) // 2] if speeds else None,
        "learner_settings": config["learner"],
        "training_settings": {
            name: value for name, value in config["training"].items() if name not in MAY_DIFFER
        },
        "problem": problem_of(config),
    }


def problem_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes the task of a run the problem that it is; of longer entries only their checksum.

    Of scales that were measured it counts only that they were: another machine may measure other last digits.
    """
    values = {name: config.get(name) for name in PROBLEM}
    values["observation_scale"] = config.get("observation_scale") is not None
    values["functions"] = config.get("functions") or None  # of an Oracle, by their source
    return {
        name: value if len(json.dumps(value)) <= LONGEST_ENTRY else checksum_of_json(value)
        for name, value in values.items()
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


def diagnostic_curves(folder: RunFolder, seeds: Sequence[int], path: Path) -> dict[str, Any]:
    """Return the curves of everything that a learner logged about itself."""
    rows = list(folder.rows(METRICS))
    names = dict.fromkeys(name for row in rows for name in row if name not in NOT_DIAGNOSTIC)
    return curves(rows, seeds, tuple(names), path)


def read_episode(path: Path) -> Mapping[str, Any] | None:
    """Return the episode that `inbounds report` has measured for a run of no suite, where it has."""
    again = "Remove it; the report measures it again."
    return read_object(path / EPISODE_FILE, again, EPISODE) if (path / EPISODE_FILE).exists() else None


def formula_of(config: Mapping[str, Any]) -> str | None:
    """Return the constraint of a run as text; None where only code of the user could tell."""
    if config.get("constraint") is None:
        return None
    try:
        return Constraint.from_json(config["constraint"]).formula()
    except InboundsError:  # a function of the user: a report runs no code that it was not told to run
        return None


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
    from inbounds.evaluation.protocol import count_solver_calls

    last = max(row["step"] for row in rows)
    by_seed = {row["seed"]: row for row in rows if row["step"] == last}
    names = ("return", "return_std", "length", "valid_action_rate", "deterministic_valid_rate")
    return {
        "source": LAST_EVALUATION,
        "seeds": list(seeds),
        "episodes": episodes,
        "preference": list(recorded_preference(folder.config())),
        **{name: [rounded(by_seed[seed][name]) for seed in seeds] for name in names},
        "worst_violation": max(row["worst_violation"] for row in rows),
        "solver_calls": count_solver_calls(
            folder, seeds, [by_seed[seed]["evaluation_projections"] for seed in seeds]
        ).as_json(),
    }


def thinned(steps: Sequence[int], points: int = POINTS) -> list[int]:
    """Return at most so many of the steps, always with the last one."""
    stride = -(-len(steps) // points)
    return [step for index, step in enumerate(reversed(steps)) if index % stride == 0][::-1] if steps else []


def command_of(config: Mapping[str, Any], provenance: Mapping[str, Any], cell: Cell | None) -> str:
    """Return the command that began a run, or else one that trains the same again.

    A run that was trained from Python has no command; what differs from the defaults is in its config.json.
    """
    training, learner = config["training"], config["learner"]
    if isinstance(provenance.get("command"), str):
        return str(provenance["command"])
    if cell is not None:
        return cell.command(f"runs/{cell.name}")
    if config["task"] not in names():
        sizes = ", ".join(f"{name}={training[name]}" for name in ("steps", "seeds", "seed"))
        return f"ib.train(task, {learner['name']!r}, {sizes})  # the task {config['task']!r} of your own"
    words = ["inbounds", "train", config["task"], "--learner", learner["name"]]
    words += ["--preset", str(learner.get("preset", "default")), "--steps", str(training["steps"])]
    return shlex.join([*words, "--seeds", str(training["seeds"]), "--seed", str(training["seed"])])


def save_result(result: Result, folder: Path) -> Path:
    """Write one result, every field on a line of its own, so that a change shows where it is.

    Diagnostics stay in the run folder: they are many numbers, and no table needs them.
    """
    name = require_name(result.name, f"the result {result.name!r}", "Rename the folder of its run.")
    lines = [
        f"{json.dumps(field)}: {json.dumps(value, separators=(',', ':'))}"
        for field, value in result.as_json().items()
        if field != "diagnostics"
    ]
    path = folder / f"{name}.json"
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
    return path


def load_result(path: Path) -> Result:
    """Read a result file."""
    return Result.from_json(read_object(path, COLLECT_AGAIN), str(path))


def _number(value: Any) -> Any:
    return None if value is None else rounded(float(value), 5)
