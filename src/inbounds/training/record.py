"""The run folder: resolved configuration, provenance, metrics, evaluations and checkpoints, each whole or not there."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import platform
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inbounds
from inbounds.constraints.references import Reference
from inbounds.constraints.serialisation import is_described_by
from inbounds.errors import ConfigurationError, InvalidInputError, quoted
from inbounds.limits import MOST_ENVIRONMENTS, MOST_EPISODES, MOST_SEEDS, require_moderate
from inbounds.reading import COUNT, FINITE, NUMBER, SEED, Several, Shape, Whole, read_object
from inbounds.storage.files import locked, make_folder, plain, remove_parts, write_json
from inbounds.storage.logs import append_rows, cut_log, log_checksum, read_rows, sync_log
from inbounds.storage.sealed_arrays import POLICY_FILES, checksum_of_json, meaning_of_run, write_sealed

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco", "daqp")


def provenance() -> dict[str, Any]:
    """Return what somebody needs to check or repeat a result."""
    import jax

    device = jax.devices()[0]
    return {
        "inbounds": inbounds.__version__,
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "device": f"{device.platform}: {device.device_kind}",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = __import__(name) if name == "mujoco" else None
        return getattr(module, "__version__", None)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "-C", str(Path(__file__).parent), *arguments),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


CONFIG, PROVENANCE = "config.json", "provenance.json"
POLICY, BEST_POLICY = POLICY_FILES["last"], POLICY_FILES["best"]
METRICS, EVALUATIONS = "metrics.jsonl", "evaluations.jsonl"
REMEDIES = {
    CONFIG: "Restore it or train again; a resumed run takes other settings as options.",
    PROVENANCE: "Restore it; or remove it and resume, and a new one is written.",
}
"""What to do about a damaged description."""
SEAL = "sha256"
"""The field of config.json and provenance.json that holds the checksum of the others."""
CHECKPOINT = re.compile(r"step-(\d{12})")
"""The names of checkpoints; whatever else lies beside them belongs to the user."""


def require_same_constraint(task: Task, config: Mapping[str, Any], path: Path) -> None:
    """Refuse a run whose constraint is not the task's: its numbers would be about another question."""
    recorded = config.get("constraint")
    functions = config.get("functions", {})
    if recorded is not None and not is_described_by(task.constraint, recorded, functions):
        edited = ", or a function of it was edited" if functions else ""
        raise ConfigurationError(
            f"{path} was trained under another constraint than {task.name} has now "
            f"({task.constraint.formula()}){edited}. Train again, or use the version that wrote it."
        )


def require_same_problem(task: Task, config: Mapping[str, Any], path: Path) -> None:
    """Refuse to evaluate a run on a task of other numbers than its own: they belong to another policy or problem."""
    require_same_constraint(task, config, path)
    for name, value in as_recorded(described_task(task)).items():
        if name != "task" and name in config and config[name] != value:
            raise ConfigurationError(
                f"{path} was trained with {name} {config[name]}, the task has {value}. Pass the task as it was, or "
                f"train again."
            )


def described_task(task: Task) -> dict[str, Any]:
    """Return what makes a task the problem that it is, besides its constraint and its scales, as a run records it."""
    reference = task.reference_action
    return {
        "task": task.name,
        "observation_size": task.observation_size,
        "observation_parts": task.observation_parts,
        "reference_action": reference.to_json() if isinstance(reference, Reference) else reference,
        "horizon": task.horizon,
        "action_low": task.action_low,
        "action_high": task.action_high,
    }


def own_reward_scale(task: Task) -> dict[str, Any]:
    """Return the reward scale that a task brings along; training may measure another and train on that instead.

    Of one that `task.normalised()` measured only this is told: measured again, it may have other last digits.
    """
    scale = {"reward_divisor": float(task.reward_divisor), "reward_shift": float(task.reward_shift)}
    return dict.fromkeys(scale, "measured") if task.is_reward_measured else scale


def as_recorded(values: Any) -> Any:
    """Return values as a run folder gives them back: what JSON does not know becomes what it does."""
    return json.loads(json.dumps(values, default=plain))


def as_tuples(value: Any) -> Any:
    """Return JSON's lists as the tuples that settings are made of."""
    if isinstance(value, dict):
        return {name: as_tuples(entry) for name, entry in value.items()}
    return tuple(as_tuples(entry) for entry in value) if isinstance(value, list | tuple) else value


class RunFolder:
    """Writes and reads one run; reports know runs through this class alone."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        """Return where checkpoints lie."""
        return self.path / "checkpoints"

    def checkpoint_folders(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        return checkpoints_in(self.checkpoints)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from writing this run, and remove what a killed one left unfinished."""
        make_folder(self.path)
        with locked(self.path):
            remove_parts(self.path, (CONFIG, PROVENANCE, POLICY, BEST_POLICY, METRICS, EVALUATIONS))
            remove_parts(self.checkpoints)
            yield

    def create(self, config: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
        """Start a new run; an existing one is never overwritten, nor added to where its configuration is lost."""
        if (self.path / CONFIG).exists():
            raise ConfigurationError(
                f"{self.path} holds a run already. Go on with it by `inbounds train --resume "
                f"{quoted(str(self.path))}` or train(..., resume=True), or choose another folder."
            )
        if any((self.path / name).exists() for name in (METRICS, EVALUATIONS, self.checkpoints.name)):
            raise ConfigurationError(
                f"{self.path} holds the logs or checkpoints of a run, but no {CONFIG}. Restore that file and resume, "
                f"or choose another folder."
            )
        self._write(PROVENANCE, provenance)
        # Last, since with it the folder holds a run.
        self._write(CONFIG, {"id": uuid.uuid4().hex, **config})

    def config(self) -> dict[str, Any]:
        """Return the resolved configuration, with the fields that every run has."""
        config = self._json(CONFIG, CONFIG_SHAPE)
        require_moderate(config["learner"])
        return config

    def provenance(self) -> dict[str, Any]:
        """Return where the run was made."""
        return self._json(PROVENANCE, PROVENANCE_SHAPE)

    def restore_provenance(self, values: Mapping[str, Any]) -> None:
        """Write down where a run is made from now on, if its own account is lost."""
        if not (self.path / PROVENANCE).exists():
            self._write(PROVENANCE, values)

    def amend_provenance(self, **values: Any) -> None:
        """Add facts that only became known later."""
        self._write(PROVENANCE, {**self.provenance(), **values})

    def record_resume(self, training: Mapping[str, Any], step: int, when: str, is_exact: bool) -> None:
        """Record that the run goes on from a step, and which of its settings are others from there on."""
        config = self.config()
        before, now = config["training"], {**config["training"], **as_recorded(training)}
        changed = {
            name: [before.get(name), value] for name, value in now.items() if before.get(name) != value
        }
        resumes = [
            *self.provenance().get("resumes", []),
            {"step": step, "when": when, **({"changed": changed} if changed else {})},
        ]
        self.amend_provenance(resumed_exactly=is_exact, resumes=resumes)
        if changed:
            self._write(CONFIG, {**config, "training": now})

    def write_policy(self, arrays: Mapping[str, Any], name: str = POLICY) -> None:
        """Write the arrays that acting needs, all seeds on a leading axis."""
        write_sealed(self.path / name, arrays, meaning_of_run(self.config()))

    def log(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append lines to metrics or evaluations."""
        append_rows(self.path / name, rows)

    def sync_logs(self) -> None:
        """Wait until every line is on the disk, as a checkpoint that counts on them requires."""
        for name in (METRICS, EVALUATIONS):
            sync_log(self.path / name)

    def log_checksums(self) -> dict[str, str]:
        """Return checksums of the logs, by which a checkpoint knows those that belong to it."""
        return {name: log_checksum(self.path / name) for name in (METRICS, EVALUATIONS)}

    def cut_logs(self, last: int) -> list[str]:
        """Forget lines beyond a step that a resumed run is about to write again; return what else was dropped."""
        told = []
        for name in (METRICS, EVALUATIONS):
            if count := cut_log(self.path / name, last):
                told.append(
                    f"{name} ended with {count} damaged line(s), as a process leaves them that is killed while "
                    f"writing. They were dropped."
                )
        return told

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Read metrics or evaluations, naming a damaged line instead of passing over it."""
        return read_rows(self.path / name, ROW_SHAPES[name])

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a description with the checksum of its content."""
        content = as_recorded(values)
        write_json(self.path / name, {**content, SEAL: checksum_of_json(content)})

    def _json(self, name: str, shape: Shape) -> dict[str, Any]:
        try:
            content = read_object(self.path / name, REMEDIES[name], shape)
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"{self.path} is not a run: it has no {name}. Give the folder that training wrote."
            ) from error
        seal = content.pop(SEAL, None)
        if seal is not None and seal != checksum_of_json(content):
            raise InvalidInputError(
                f"{self.path / name} is not as it was written: it was changed or damaged. {REMEDIES[name]}"
            )
        return content


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the folders that are named like checkpoints, oldest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if CHECKPOINT.fullmatch(path.name) and path.is_dir())


def step_of(checkpoint: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


CONFIG_SHAPE = {
    "task": str,
    "observation_shift?": ([FINITE], None),
    "observation_scale?": ([FINITE], None),
    "reward_divisor?": FINITE,
    "reward_shift?": FINITE,
    "functions?": {"*": str},
    "own_reward_scale?": {"reward_divisor": (FINITE, str), "reward_shift": (FINITE, str)},
    "learner": {"name": str},
    "head?": ({"kind": str}, None),
    "training": {
        "steps": COUNT,
        "seed": SEED,
        "seeds": Whole(1, MOST_SEEDS),
        "environments": Whole(1, MOST_ENVIRONMENTS),
        "updates_per_step": FINITE,
        "episodes": Whole(1, MOST_EPISODES),
        "preference": Several(FINITE, 2),
        "device?": (str, None),
        "deterministic?": bool,
    },
}
PROVENANCE_SHAPE = {
    "inbounds": str,
    "commit": (str, None),
    "is_dirty": bool,
    "python": str,
    "packages": {"mujoco": (str, None), "*": (str, None)},
    "platform": str,
    "processor": str,
    "device": str,
    "started": str,
    "preparation_seconds?": (FINITE, None),
}
ROW_SHAPES = {
    "metrics.jsonl": {
        "step": COUNT,
        "seed": SEED,
        "steps_per_second": NUMBER,
        "acceptance": (NUMBER, None),
        "projections": FINITE,
        "*": (NUMBER, None),
    },
    "evaluations.jsonl": {
        "step": COUNT,
        "seed": SEED,
        "return": NUMBER,
        "return_std": NUMBER,
        "length": NUMBER,
        "valid_action_rate": NUMBER,
        "deterministic_valid_rate": NUMBER,
        "evaluation_projections": FINITE,
        "worst_violation": NUMBER,
        "training_projections": FINITE,
        "seconds": NUMBER,
    },
}
"""By the name of the log; other fields may stand beside these."""
