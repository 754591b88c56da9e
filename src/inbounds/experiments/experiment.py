"""One cell of a suite: a task, a learner with its settings, how long it is trained and for which seeds."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbounds.errors import InvalidInputError
from inbounds.experiments.result_shapes import CELL_SHAPE
from inbounds.reading import read_object, require_name, require_shape
from inbounds.training.record import as_tuples

PLAN_AGAIN = "Remove it and run the suite again, which writes it anew and goes on."
Values = tuple[tuple[str, Any], ...]
"""Settings by name, as pairs, so that a cell can be compared and hashed."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is trained; equal cells are the same experiment."""

    task: str
    learner: str
    preset: str
    steps: int
    seeds: int = 5
    seed: int = 0
    """First seed."""
    variant: str = ""
    """What distinguishes cells of the same task, learner and preset."""
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
        """Return what the cell trains, whatever the task: the rows of a table."""
        return "-".join(part for part in (self.learner, self.preset, self.variant) if part)

    def make_learner(self) -> Any:
        """Build the learner."""
        from inbounds.learners.registry import make_learner

        preset = {} if self.preset == "default" else {"preset": self.preset}
        return make_learner(self.learner, **preset, **dict(self.settings))

    def training_settings(self) -> dict[str, Any]:
        """Return the arguments of `train`."""
        return {"steps": self.steps, "seeds": self.seeds, "seed": self.seed, **dict(self.training)}

    def command(self, out: Path | str) -> str:
        """Return the command that trains the same thing by hand."""
        words = ["inbounds", "train", self.task, "--learner", self.learner, "--preset", self.preset]
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
                f"{origin} is not a cell of a suite: it has {', '.join(unknown)}. {remedy}"
            )
        require_shape(data, CELL_SHAPE, origin, remedy)
        cell = cls(**{**data, "settings": pairs(data["settings"]), "training": pairs(data["training"])})
        require_name(cell.name, origin, remedy)
        return cell


def read_cell(path: Path) -> Cell:
    """Read the file that says what a folder is for."""
    return Cell.from_json(read_object(path, PLAN_AGAIN), str(path))


def pairs(values: Mapping[str, Any]) -> Values:
    """Return settings in the form that cells keep."""
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
