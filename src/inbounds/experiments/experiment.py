"""One experiment of a suite: a task, a learner with its settings, the steps; and the shapes of its files."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbounds.errors import InvalidInputError
from inbounds.limits import MOST_SEEDS
from inbounds.reading import (
    COUNT,
    FINITE,
    SEED,
    Each,
    Several,
    Whole,
    read_object,
    require_name,
    require_shape,
)
from inbounds.training.record import PROVENANCE_SHAPE, as_tuples

PAIR = Several(FINITE, 2)
BY_SEED = [FINITE]
CURVES_BY_SEED = [[FINITE]]

CELL_SHAPE = {
    "task": str,
    "learner": str,
    "preset": str,
    "steps": Whole(1),
    "seeds": Whole(1, MOST_SEEDS),
    "seed": SEED,
    "variant": str,
    "settings": dict,
    "training": dict,
    "final_episodes": Whole(1),
}
FINAL_NUMBERS = {
    "episodes": Whole(1),
    "preference": PAIR,
    "return": BY_SEED,
    "return_std": BY_SEED,
    "length": BY_SEED,
    "valid_action_rate": BY_SEED,
    "deterministic_valid_rate": BY_SEED,
    "worst_violation": FINITE,
    "solver_calls": {"acting": [COUNT], "updates": Each([COUNT]), "evaluation": [COUNT], "rounding": COUNT},
}
FRONT = {"points": [Several(FINITE, 5)], "suggested": PAIR}
INFERENCE = {"path": str, "actions": COUNT, "mean": FINITE, "median": FINITE, "with_step": FINITE}
EPISODE = {"step": [COUNT], "share": [FINITE], "reward": [FINITE], "total": FINITE}
FINAL_SHAPE = {
    "final": FINAL_NUMBERS,
    "best?": FINAL_NUMBERS,
    "front?": FRONT,
    "inference?": INFERENCE,
    "episode?": EPISODE,
}
FAILURE_SHAPE = {"error": str}

ORIGIN = {
    **PROVENANCE_SHAPE,
    "seeds": [SEED],
    "environments": Whole(1),
    "median_steps_per_second": (FINITE, None),
    "learner_settings": dict,
    "training_settings?": dict,
    "problem?": dict,
}
RESULT_SHAPE = {
    "suite": str,
    "name": str,
    "task": str,
    "learner": str,
    "preset": str,
    "variant": str,
    "seeds": [SEED],
    "expected_seeds": COUNT,
    "steps": COUNT,
    "expected_steps": COUNT,
    "curve": {
        "step": [COUNT],
        "seconds": [FINITE],
        "return": CURVES_BY_SEED,
        "valid_action_rate": CURVES_BY_SEED,
        "deterministic_valid_rate": CURVES_BY_SEED,
        "training_projections": CURVES_BY_SEED,
    },
    "training": {"step": [COUNT], "acceptance": [[(FINITE, None)]], "*": [[(FINITE, None)]]},
    "final": {"source": str, **FINAL_NUMBERS},
    "best?": (FINAL_NUMBERS, None),
    "worst_violation": FINITE,
    "environment_steps": COUNT,
    "front": (FRONT, None),
    "inference": (INFERENCE, None),
    "episode": (EPISODE, None),
    "formula?": (str, None),
    "diagnostics?": ({"step": [COUNT], "*": [[(FINITE, None)]]}, None),
    "provenance": [ORIGIN],
    "command": str,
}
"""`training` holds `step`, and per quantity one curve for every seed, with gaps where it was not logged."""
REFERENCES_SHAPE = {"tasks": Each({"played": Each({"mean": FINITE, "deviation": FINITE, "episodes": COUNT})})}


PLAN_AGAIN = "Remove it and run the suite again, which writes it anew and goes on."
Values = tuple[tuple[str, Any], ...]
"""Settings by name, as pairs, so that an experiment can be compared and hashed."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is trained; two that are equal are the same experiment."""

    task: str
    learner: str
    preset: str
    steps: int
    seeds: int = 5
    seed: int = 0
    """First seed."""
    variant: str = ""
    """What distinguishes experiments of the same task, learner and preset."""
    settings: Values = ()
    """Fields of the learner that differ from its preset."""
    training: Values = ()
    """Further fields of `TrainingConfig`."""
    final_episodes: int = 100
    """Fresh episodes per seed of the final table."""

    @property
    def name(self) -> str:
        """Return the name of its folder and of its result file."""
        return "-".join(part for part in (self.task, self.learner, self.preset, self.variant) if part)

    @property
    def method(self) -> str:
        """Return what the experiment trains, whatever the task: the rows of a table."""
        return "-".join(part for part in (self.learner, self.preset, self.variant) if part)

    def make_learner(self) -> Any:
        """Build the learner."""
        from inbounds.learners.registry import make_learner

        preset = {} if self.preset == "default" else {"preset": self.preset}
        return make_learner(self.learner, **preset, **dict(self.settings))

    def training_settings(self) -> dict[str, Any]:
        """Return the arguments of `train`."""
        return {"steps": self.steps, "seeds": self.seeds, "seed": self.seed, **dict(self.training)}

    def command(self, out: Path | str, task: str | None = None) -> str:
        """Return the command that trains the same thing by hand; `task` says where a user's task is imported from."""
        words = [
            "inbounds",
            "train",
            self.task if task is None else task,
            "--learner",
            self.learner,
            "--preset",
            self.preset,
        ]
        for name, value in self.training_settings().items():
            words += option(name, value)
        for name, value in self.settings:
            words += option(f"{self.learner}.{name}", value)
        return shlex.join([*words, "--out", str(out)])

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**dataclasses.asdict(self), "settings": dict(self.settings), "training": dict(self.training)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "this", remedy: str = PLAN_AGAIN) -> Cell:
        """Read what `as_json` returned; its name, which will be that of a folder, must be one."""
        if unknown := sorted(set(data) - set(CELL_SHAPE)):
            raise InvalidInputError(
                f"{origin} is not an experiment of a suite: it has {', '.join(unknown)}. {remedy}"
            )
        require_shape(data, CELL_SHAPE, origin, remedy)
        cell = cls(**{**data, "settings": pairs(data["settings"]), "training": pairs(data["training"])})
        require_name(cell.name, origin, remedy)
        return cell


def read_cell(path: Path) -> Cell:
    """Read the file that says what a folder is for."""
    return Cell.from_json(read_object(path, PLAN_AGAIN), str(path))


def pairs(values: Mapping[str, Any]) -> Values:
    """Return settings in the form that experiments keep."""
    return tuple((name, as_tuples(value)) for name, value in values.items())


def option(name: str, value: Any) -> list[str]:
    """Return a setting as words of a command line."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        prefix, _, last = flag.rpartition(".")
        positive = f"--{flag}"
        return [positive if value else f"--{prefix + '.' if prefix else ''}no-{last}"]
    entries = value if isinstance(value, tuple) else (value,)
    return [f"--{flag}", *(str(entry) for entry in entries)]
