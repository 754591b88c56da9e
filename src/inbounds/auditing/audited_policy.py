"""How to open what is audited: our folders, ONNX files, zips of stable-baselines3, Python callables."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inbounds.auditing.foreign_process import StableBaselines3Process
from inbounds.constraints import Constraint
from inbounds.deploy.proposer import Proposer, proposer
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, MissingDependencyError
from inbounds.tasks.task import Task

PROPOSALS = 20
"""How many rows of noise an ONNX policy gets whose file leaves their number open."""


@dataclasses.dataclass(frozen=True)
class AuditedPolicy:
    """Something that can be asked for actions, and what is known about it."""

    name: str
    kind: str
    ask: Proposer
    digest: str | None = None
    constraint: Constraint | None = None
    acceptance: Callable[[], float | None] | None = None
    """The share of raw proposals that were feasible so far; None where every answer is a raw proposal."""
    projections: Callable[[], int] | None = None
    seconds: Callable[[], float] | None = None
    """The time of the last answer where it was measured elsewhere."""
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def open_policy(
    policy: Any,
    task: Task,
    seed: int,
    deterministic: bool,
    preference: tuple[float, float],
    interpreter: str | None,
) -> Iterator[AuditedPolicy]:
    """Open a policy by what it is; a process that was started for it ends with the context."""
    if not isinstance(policy, str | Path):
        yield _from_object(policy, deterministic, type(policy).__name__)
        return
    path = Path(policy)
    if path.is_dir():
        yield _from_folder(path, task, seed, deterministic, preference)
    elif path.suffix == ".onnx":
        yield _from_onnx(path, task, seed, deterministic, preference)
    elif path.suffix == ".zip":
        with StableBaselines3Process(path, task, interpreter, deterministic) as process:
            yield AuditedPolicy(
                path.name,
                f"stable-baselines3 {process.algorithm}",
                process.ask,
                digest=file_digest(path),
                seconds=lambda: process.seconds,
                notes=("time was measured inside the process of stable-baselines3",),
            )
    elif ":" in str(policy) and not path.exists():
        yield _from_object(imported(str(policy)), deterministic, str(policy))
    else:
        raise InvalidInputError(
            f"'{policy}' is not a policy that can be audited. Give a run or exported folder, an .onnx file, a "
            f"stable-baselines3 .zip, or module:callable."
        )


def imported(path: str) -> Any:
    """Import "module:name" or "file.py:name"; only code that the user names is ever run."""
    home, _, name = path.rpartition(":")
    try:
        if home.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(home).stem, home)
            if spec is None or spec.loader is None:
                raise ImportError(f"{home} is no Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look their own module up
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(home)
        value = module
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise InvalidInputError(
            f"'{path}' cannot be imported ({error}). Write module:name or path/to/file.py:name, and run where it "
            f"can be found."
        ) from error
    return value


def file_digest(*paths: Path) -> str:
    """Return the SHA-256 of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _from_object(policy: Any, deterministic: bool, name: str) -> AuditedPolicy:
    if isinstance(policy, type):
        policy = policy()
    own = getattr(policy, "constraint", None)
    return AuditedPolicy(
        name,
        "Python callable" if not hasattr(policy, "act") else f"Python object {type(policy).__name__}",
        proposer(policy, deterministic),
        constraint=own if isinstance(own, Constraint) else None,
        acceptance=(lambda: _acceptance(policy)) if hasattr(policy, "proposals_checked") else None,
        projections=(lambda: int(policy.projections)) if hasattr(policy, "projections") else None,
    )


def _from_folder(
    path: Path, task: Task, seed: int, deterministic: bool, preference: tuple[float, float]
) -> AuditedPolicy:
    from inbounds.deploy.policy import load, names_code, read_plan

    # A set that only a function knows is not in the folder: the task brings it.
    own = task.constraint if names_code(read_plan(path).constraint) else None
    policy = load(path, preference=preference, constraint=own)
    policy.rng = np.random.default_rng(seed)
    files = [path / name for name in ("config.json", "policy.safetensors", "policy.json")]
    opened = _from_object(policy, deterministic, path.resolve().name)
    digest = file_digest(*(file for file in files if file.is_file()))
    return dataclasses.replace(opened, kind="inbounds policy, numpy", digest=digest)


def _acceptance(policy: Any) -> float | None:
    return policy.proposals_accepted / policy.proposals_checked if policy.proposals_checked else None


def _from_onnx(
    path: Path, task: Task, seed: int, deterministic: bool, preference: tuple[float, float]
) -> AuditedPolicy:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependencyError(
            "auditing an ONNX file needs onnxruntime. Install it with `pip install 'inbounds[export]'`."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong arrives as an exception
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class of errors
        raise CheckpointError(
            f"{path} is not an ONNX file that onnxruntime accepts ({_first_line(error)}). Export it again."
        ) from error
    inputs = {given.name: given for given in session.get_inputs()}
    known = {"observation", "noise", "preference", "previous_action"}
    if "observation" not in inputs or set(inputs) - known:
        raise ConfigurationError(
            f"{path} takes {', '.join(inputs) or 'nothing'}, but an audited policy takes `observation` and perhaps "
            f"{', '.join(sorted(known - {'observation'}))}. Rename its inputs."
        )
    names = [given.name for given in session.get_outputs()]
    wanted = [name for name in ("action", "accepted") if name in names] or names[:1]
    generator = np.random.default_rng(seed)
    given = inputs.get("noise")
    sides = [] if given is None else [side if isinstance(side, int) else None for side in given.shape]
    noise_shape = [
        side or (task.action_size if k == len(sides) - 1 else PROPOSALS) for k, side in enumerate(sides)
    ]
    accepted: list[int] = []

    def ask(observation: Any, before: Any) -> Any:
        values = {"observation": observation, "preference": preference, "previous_action": before}
        if given is not None:
            values["noise"] = (
                np.zeros(noise_shape) if deterministic else generator.standard_normal(noise_shape)
            )
        feed = {name: _fed(values[name], inputs[name]) for name in inputs}
        try:
            action, *numbers = session.run(wanted, feed)
        except Exception as error:  # a graph for another task, say
            raise CheckpointError(
                f"{path} does not answer for {task.name} ({_first_line(error)}). Audit it on its own task."
            ) from error
        accepted.extend(int(number) for number in numbers)
        return np.reshape(action, -1)

    def acceptance() -> float | None:
        # Proposals are tried in order: the k-th was accepted after k - 1 were rejected; all were where none was.
        tried = sum(number + 1 if number >= 0 else noise_shape[0] for number in accepted if noise_shape)
        return sum(number >= 0 for number in accepted) / tried if tried else None

    return AuditedPolicy(
        path.name,
        "ONNX, onnxruntime",
        ask,
        digest=file_digest(path),
        acceptance=acceptance,
        projections=(lambda: sum(number < 0 for number in accepted)) if "accepted" in wanted else None,
        notes=() if "accepted" in wanted else ("the graph does not say which proposals it accepted",),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _fed(value: Any, given: Any) -> Any:
    array = np.asarray(value, np.float64 if "double" in given.type else np.float32)
    return array if array.ndim == len(given.shape) else array[(None,) * (len(given.shape) - array.ndim)]
