"""Gymnasium environments of a batch, spread over processes of this machine.

`gymnasium.vector.AsyncVectorEnv` does not keep what this library guarantees. It rounds observations to the type that
their space declares, where `Group` passes on the float64 numbers that the environment returned and its set reads. It
merges the `info` of all environments, so that a published set does not arrive as it was published. It takes one
process for each environment. And its processes are either forked, which deadlocks after JAX has started its threads,
or import the user's script again, which then trains a second time unless it guards its main part. Here a process gets
the function that makes environments, and serves one `Group` over a pipe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import SimulationError
from inbounds.tasks.environment import Step
from inbounds.tasks.gymnasium_group import Group, GroupPlan

GRACE_SECONDS = 5.0
"""How long a process may take to close its environments before it is killed."""
PROGRAM = (
    "import sys; descriptor, *sys.path = sys.argv[1:]; sys.argv[1:] = [];"
    "from inbounds.tasks.gymnasium_processes import serve; serve(int(descriptor))"
)


class PickledError(NamedTuple):
    """An error on its way; errors that say themselves how they are pickled would lose their notes."""

    written: bytes
    notes: list[str]


class Answer(NamedTuple):
    """What a process sends back: the result of a request, or the error that it met."""

    result: Any
    error: PickledError | None


class Worker(NamedTuple):
    """One process, the pipe to it, and its part of the batch."""

    process: subprocess.Popen[bytes]
    connection: Connection
    places: range


class GroupProcesses:
    """The environments of a batch in equal parts: the last in this process, the others in processes that it starts.

    They end with this object and with this process. `reset` and `step` are those of `Group`, bit for bit. An error of
    an environment is raised with its own type; with several, that of the first environment.
    """

    def __init__(self, plan: GroupPlan, processes: int, seconds: float) -> None:
        """Use `processes` processes, this one included, which may take `seconds` to make their environments.

        Raises whatever keeps the plan from being pickled, and the environments from being made.
        """
        self.plan = plan
        self.deadline: float | None = time.monotonic() + seconds
        """The time on the monotonic clock until which answers are waited for; None is for ever."""
        sent = cloudpickle.dumps(plan)
        shares = np.array_split(np.arange(plan.count), min(processes, plan.count))
        parts = [range(int(share[0]), int(share[-1]) + 1) for share in shares]
        self._own: Group | None = None
        self._workers: list[Worker] = []
        self._end = weakref.finalize(self, end, self._workers)
        try:
            for places in parts[:-1]:
                self._workers.append(started(places))
            for worker in self._workers:
                self._send(worker, (sent, worker.places))
            self._own = Group(plan, parts[-1])
            _, errors = self._answers()
            for error in errors:
                raise error
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Begin an episode in each environment, from its own seed."""
        return np.concatenate(self._ask("reset", seeds))

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action to each environment; those whose episode ended begin the next one."""
        return Step(*(np.concatenate(column) for column in zip(*self._ask("step", actions), strict=True)))

    def close(self) -> None:
        """Close the environments and end the processes; those that do not end by themselves are killed."""
        self._end()
        own, self._own = self._own, None
        if own is not None:
            own.close()

    @property
    def is_closed(self) -> bool:
        """Tell whether the processes have ended."""
        return not self._end.alive

    def _ask(self, method: str, rows: Any) -> list[Any]:
        """Let each environment do something with its row, and return the results of the parts."""
        assert self._own is not None  # only `close` takes it away
        try:
            for worker in self._workers:
                self._send(worker, (method, rows[worker.places.start : worker.places.stop]))
            error, own = None, None
            try:
                own = getattr(self._own, method)(rows[self._own.places[0] :])
            except Exception as met:
                error = met
            results, errors = self._answers()
        except BaseException:
            self.close()  # an answer may be under way, and would be taken for that of the next request
            raise
        if error is not None:
            errors.append(error)
        for first in errors:
            raise first
        return [*results, own]

    def _send(self, worker: Worker, message: Any) -> None:
        try:
            worker.connection.send(message)
        except OSError as error:
            raise self._ended(worker) from error

    def _answers(self) -> tuple[list[Any], list[Exception]]:
        """Wait for all processes, and return their results and the errors that environments raised there."""
        answers = [self._answer(worker) for worker in self._workers]
        errors = [unpickled(answer.error) for answer in answers if answer.error is not None]
        return [answer.result for answer in answers], errors

    def _answer(self, worker: Worker) -> Answer:
        if self.deadline is not None and not worker.connection.poll(
            max(0.0, self.deadline - time.monotonic())
        ):
            raise TimeoutError("another process took much longer than this one")
        try:
            answer: Answer = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended(worker) from error
        return answer

    def _ended(self, worker: Worker) -> SimulationError:
        try:
            status = f"with status {worker.process.wait(GRACE_SECONDS)}"
        except subprocess.TimeoutExpired:
            status = "its connection"
        first, last = worker.places[0], worker.places[-1]
        which = f"environment {first}" if first == last else f"environments {first} to {last}"
        return SimulationError(
            f"{self.plan.task_name}: the process that steps {which} of {self.plan.count} ended {status}. Its last "
            f"words may be above. Correct the environment; threads=1 steps all of them in the main process, where a "
            f"debugger sees them."
        )


def started(places: range) -> Worker:
    """Start a process that serves a part of a batch, out of reach of the terminal's Ctrl-C, which is for the run."""
    ours, theirs = Pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *sys.path],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Worker(process, ours, places)


def end(workers: list[Worker]) -> None:
    """Close the pipes, which ends processes that are not busy, and kill those that stay."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


# In the other process ----------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Make the environments of a part of a batch, and answer requests until the other end of the pipe is closed."""
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(descriptor)
    group: Group | None = None
    try:
        while True:
            what, argument = connection.recv()
            try:
                if group is None:
                    group, result = Group(cloudpickle.loads(what), argument), None
                else:
                    result = getattr(group, what)(argument)
                answer = Answer(result, None)
            except Exception as error:
                answer = Answer(None, pickled(error))
            connection.send(answer)
    except (EOFError, ConnectionError):
        pass  # the batch was closed, or its process has ended
    finally:
        if group is not None:
            group.close()


def pickled(error: Exception) -> PickledError:
    """Return an error to be sent; its text where it cannot be pickled and read again."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    notes = [*getattr(error, "__notes__", ()), f"In another process:\n{frames}"]
    try:
        written = cloudpickle.dumps(error)
        cloudpickle.loads(written)
    except Exception:
        written = cloudpickle.dumps(SimulationError(f"{type(error).__name__}: {error}"))
    return PickledError(written, notes)


def unpickled(sent: PickledError) -> Exception:
    """Return an error that was sent, with its notes."""
    error: Exception = cloudpickle.loads(sent.written)
    error.__notes__ = sent.notes
    return error


def end_with_parent(parent: int) -> None:
    """End this process, busy as it may be, some time after the one that started it has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
