"""Policies of stable-baselines3, asked in a process of their own: nothing of their file is read in ours."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError, MissingDependencyError
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
        del before
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
