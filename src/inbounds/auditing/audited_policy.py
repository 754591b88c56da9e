"""How to open what is audited: our folders, ONNX files, zips of stable-baselines3, Python callables."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.deploy.correction import Proposer, proposer
from inbounds.deploy.export_check import session_of
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, MissingDependencyError
from inbounds.tasks.named_tasks import imported
from inbounds.tasks.task import Task

WORKER = Path(__file__).with_name("stable_baselines3_worker.py")
PEERS = Path(".peers") / "bin" / "python"


class StableBaselines3Process:
    """A zip of stable-baselines3 behind two pipes: observations go in, actions and their times come out.

    The process rebuilds the network from the file's JSON and loads plain tensors; pickled objects in the file
    are never read, there neither.
    """

    def __init__(self, path: Path, task: Task, interpreter: str | None, deterministic: bool) -> None:
        """Start the process and wait until the policy stands."""
        python = interpreter or (str(PEERS) if PEERS.exists() else sys.executable)
        about = {
            "path": str(path.resolve()),
            "observation_size": task.observation_size,
            "action_low": task.action_low.tolist(),
            "action_high": task.action_high.tolist(),
            "deterministic": deterministic,
        }
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        try:
            self._process = subprocess.Popen(
                [python, "-I", str(WORKER), json.dumps(about)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**kept, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise MissingDependencyError(
                f"{python} cannot be started ({error}). Name a Python with stable-baselines3: --interpreter PATH."
            ) from error
        self._action_size = task.action_size
        self.seconds = 0.0
        """How long the last answer took, measured in the process."""
        told = self._told()
        if "missing" in told:
            self.close()
            raise MissingDependencyError(
                f"{python} has no stable-baselines3 ({told['missing']}). Run `make peers`, or name an interpreter that "
                f"has it: --interpreter PATH."
            )
        if "error" in told:
            self.close()
            raise CheckpointError(
                f"{path} cannot be audited: {told['error']} Save it again with model.save(), from a standard policy."
            )
        self.algorithm = str(told["algorithm"])

    def ask(self, observation: Any, before: Any) -> NDArray[np.float64]:
        """Send one observation and wait for the action."""
        assert self._process.stdin is not None and self._process.stdout is not None
        size = 8 * (1 + self._action_size)
        try:
            self._process.stdin.write(np.asarray(observation, "<f8").tobytes())
            self._process.stdin.flush()
            answer = self._process.stdout.read(size)
        except BrokenPipeError:
            answer = b""
        if len(answer) != size:
            raise CheckpointError(
                "the process of stable-baselines3 ended while it was asked; its words are above. Try the policy "
                "there: model.predict(observation)."
            )
        (self.seconds,) = struct.unpack("<d", answer[:8])
        return np.frombuffer(answer[8:], "<f8").copy()

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            told: dict[str, Any] = json.loads(line)
        except ValueError:
            return {"error": "its process ended before the policy stood; its words are above."}
        return told

    def __enter__(self) -> StableBaselines3Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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
    """The fraction of raw proposals that were feasible so far; None where every answer is a raw proposal."""
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
    preference: tuple[float, float] | None,
    interpreter: str | None,
) -> Iterator[AuditedPolicy]:
    """Open a policy by what it is; a process that was started for it ends with the context."""
    if isinstance(getattr(policy, "path", None), Path) and not (callable(policy) or hasattr(policy, "act")):
        policy = policy.path  # what `train` or `export` returned
    if not isinstance(policy, str | Path):
        yield _from_object(policy, deterministic, type(policy).__name__)
        return
    path = Path(policy)
    if path.is_dir():
        yield _from_folder(path, task, seed, deterministic, preference)
    elif path.suffix == ".onnx" and path.exists():
        yield _from_onnx(path, task, seed, deterministic, preference)
    elif path.suffix == ".zip" and path.exists():
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
        yield _from_object(imported(str(policy)), deterministic, path.name)
    else:
        missing = "" if path.exists() else ", because it does not exist"
        raise InvalidInputError(
            f"'{policy}' is not a policy that can be audited{missing}. Give a run or exported folder, an .onnx file, a "
            f"stable-baselines3 .zip, or module:callable."
        )


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
    path: Path, task: Task, seed: int, deterministic: bool, preference: tuple[float, float] | None
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
    path: Path, task: Task, seed: int, deterministic: bool, preference: tuple[float, float] | None
) -> AuditedPolicy:
    try:
        session = session_of(path.read_bytes())
    except MissingDependencyError:
        raise
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
    if preference is None and "preference" in inputs:
        preference = _exported_preference(path)
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


def _exported_preference(path: Path) -> tuple[float, float]:
    from inbounds.deploy.policy import GRAPH, MANIFEST, read_plan

    is_exported = path.name == GRAPH and (path.parent / MANIFEST).exists()
    found = read_plan(path.parent).preference if is_exported else None
    if found is None:
        raise ConfigurationError(
            f"{path} takes a preference, and no {MANIFEST} beside it says which one is its own. Name it: "
            f"preference=(0.9, 0.1), or --preference 0.9 0.1."
        )
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _fed(value: Any, given: Any) -> Any:
    array = np.asarray(value, np.float64 if "double" in given.type else np.float32)
    return array if array.ndim == len(given.shape) else array[(None,) * (len(given.shape) - array.ndim)]
