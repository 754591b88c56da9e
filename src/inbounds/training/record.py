"""The run folder: resolved configuration, provenance, metrics and evaluations, each line whole or not there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.deploy.sealed_arrays import meaning_of_run, write_sealed
from inbounds.errors import ConfigurationError, InvalidInputError

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

CONFIG, PROVENANCE, POLICY = "config.json", "provenance.json", "policy.safetensors"
METRICS, EVALUATIONS = "metrics.jsonl", "evaluations.jsonl"


def require_same_constraint(task: Task, config: Mapping[str, Any], path: Path) -> None:
    """Refuse a run whose constraint is not the task's: its numbers would be about another question."""
    recorded = config.get("constraint")
    if recorded is not None and recorded != task.constraint.to_json():
        raise ConfigurationError(
            f"{path} was trained under another constraint than {task.name} has now "
            f"({task.constraint.formula()}). Train again, or use the version that wrote it."
        )


def as_recorded(values: Any) -> Any:
    """Return values as a run folder gives them back: what JSON does not know becomes what it does."""
    return json.loads(json.dumps(values, default=_plain))


class RunFolder:
    """Writes and reads one run; reports know runs through this class alone."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        """Return where checkpoints lie."""
        return self.path / "checkpoints"

    def create(self, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
        """Start a new run; an existing one is never overwritten."""
        if (self.path / CONFIG).exists():
            raise ConfigurationError(f"{self.path} holds a run already. Choose another folder, or resume it.")
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / CONFIG).write_text(json.dumps(config, indent=1, default=_plain) + "\n")
        (self.path / PROVENANCE).write_text(json.dumps(provenance, indent=1, default=_plain) + "\n")

    def config(self) -> dict[str, Any]:
        """Return the resolved configuration."""
        return self._json(CONFIG)

    def provenance(self) -> dict[str, Any]:
        """Return where the run was made."""
        return self._json(PROVENANCE)

    def amend_provenance(self, **values: Any) -> None:
        """Add facts that only became known later, such as a resume."""
        (self.path / PROVENANCE).write_text(
            json.dumps({**self.provenance(), **values}, indent=1, default=_plain) + "\n"
        )

    def extend(self, steps: int) -> None:
        """Record that a resumed run goes on to another last step than it was started for."""
        config = self.config()
        if config["training"]["steps"] != steps:
            config["training"]["steps"] = steps
            (self.path / CONFIG).write_text(json.dumps(config, indent=1) + "\n")

    def write_policy(self, arrays: Mapping[str, Any]) -> None:
        """Write what acting needs, all seeds on a leading axis; small enough to be sent around."""
        temporary = self.path / f".{POLICY}"
        write_sealed(temporary, arrays, meaning_of_run(self.config()))
        temporary.replace(self.path / POLICY)

    def log(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one line to metrics or evaluations."""
        with open(self.path / name, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, default=_plain) + "\n")

    def truncate_after(self, step: int) -> None:
        """Forget lines beyond a checkpoint that a resumed run is about to write again."""
        for name in (METRICS, EVALUATIONS):
            kept = [row for row in self.rows(name) if row["step"] <= step]
            if (self.path / name).exists():
                (self.path / name).write_text("".join(json.dumps(row) + "\n" for row in kept))

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Read a JSONL file, naming a damaged line instead of passing over it."""
        path = self.path / name
        if not path.exists():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidInputError(
                    f"line {number} of {path} is damaged ({error}). Remove the line, or resume the run."
                ) from error
            yield row

    def _json(self, name: str) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads((self.path / name).read_text())
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"{self.path} is not a run: it has no {name}. Give the folder that training wrote."
            ) from error
        except json.JSONDecodeError as error:
            raise InvalidInputError(
                f"{self.path / name} is damaged ({error}). Restore it or train again."
            ) from error
        return read


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a run folder")
