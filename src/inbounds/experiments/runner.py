"""Which experiments of a suite are open, and how they run: processes on this machine, or tasks of a Ray cluster.

A failure stops no other experiment. Every node of a cluster runs the same worker as a local suite does. Where nodes
share the file system, the run folders are used in place and an experiment whose node died goes on from its checkpoint.
Where they do not, a finished folder comes back as an archive without its checkpoints, and an experiment whose node died
starts again.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from inbounds.errors import InboundsError, InvalidInputError, MissingDependencyError, StorageError, explained
from inbounds.experiments.experiment import FAILURE_SHAPE, Cell
from inbounds.experiments.results import Result
from inbounds.experiments.suites import OWN_SUITE
from inbounds.experiments.worker import (
    BUSY,
    FAILURE,
    FINAL,
    LEFT,
    LOG,
    STOPPED,
    TRAIN_ONLY,
    TRAINED,
    prepare,
    require_experiment,
)
from inbounds.reading import read_object
from inbounds.storage.files import write_json
from inbounds.tasks.named_tasks import OWN_TASK
from inbounds.training.interrupts import Requests
from inbounds.training.record import METRICS, RunFolder, step_of


class State(Enum):
    """What an experiment's folder tells."""

    FINISHED = "finished"
    TRAINED = "trained"
    BEGUN = "begun"
    FAILED = "failed"
    WAITING = "to do"


class Planned(NamedTuple):
    """An experiment, its folder and what is left of it."""

    cell: Cell
    folder: Path
    state: State
    steps_left: int
    seconds_left: float | None
    """None where nothing comparable has been measured."""
    note: str


def plan(cells: Sequence[Cell], root: Path, speeds: Speeds) -> list[Planned]:
    """Look at every experiment's folder below `root`."""
    return [planned(cell, root / cell.name, speeds) for cell in cells]


def planned(cell: Cell, folder: Path, speeds: Speeds) -> Planned:
    """Look at one experiment's folder; one that holds another experiment is refused before anything runs.

    An experiment whose own files are damaged counts as failed, so that the others go on.
    """
    try:
        require_experiment(folder, cell)
        return standing(cell, folder, speeds)
    except InvalidInputError as error:
        return Planned(cell, folder, State.FAILED, cell.steps, None, str(error))


def standing(cell: Cell, folder: Path, speeds: Speeds) -> Planned:
    """Return what an experiment's folder tells."""
    if (folder / FINAL).exists():
        return Planned(cell, folder, State.FINISHED, 0, 0.0, "")
    if (folder / FAILURE).exists():
        return Planned(cell, folder, State.FAILED, cell.steps, None, read_failure(folder))
    if (folder / TRAINED).exists():
        return Planned(cell, folder, State.TRAINED, 0, None, "but not evaluated")
    checkpoints = RunFolder(folder).checkpoint_folders()
    done = step_of(checkpoints[-1]) if checkpoints else 0
    left = max(0, cell.steps - done)
    speed = own_speed(folder) or speeds.of(cell)
    seconds = None if speed is None else left / speed
    state = State.BEGUN if done else State.WAITING
    return Planned(cell, folder, state, left, seconds, f"at step {done:,}" if done else "")


def read_failure(folder: Path) -> str:
    """Return why an experiment failed, in its own words."""
    failure = read_object(folder / FAILURE, "Remove it, and the experiment is tried again.", FAILURE_SHAPE)
    return str((failure["error"].splitlines() or ["it gave no reason"])[0])


def own_speed(folder: Path) -> float | None:
    """Return the speed at which a begun experiment has trained so far, evaluations included.

    A log that is torn, as a killed process may leave it, tells none; the training itself will see to it.
    """
    try:
        rows = list(RunFolder(folder).rows(METRICS))
    except InvalidInputError:
        return None
    return float(rows[-1]["steps_per_second"]) if rows else None


class Speeds:
    """Steps per second and seed that were measured before, on the kind of device that this machine has."""

    def __init__(self, results: Sequence[Result], device: str) -> None:
        """Keep what was measured on this kind of device."""
        self.device = device
        self.measured: dict[tuple[str, str, str, int], float] = {}
        for result in results:
            for origin in result.provenance:
                if origin["device"] == device and origin["median_steps_per_second"]:
                    key = (result.task, result.learner, result.preset, len(origin["seeds"]))
                    self.measured[key] = float(origin["median_steps_per_second"])

    def of(self, cell: Cell) -> float | None:
        """Return the speed of the most similar measurement: this experiment, then its task, then its method."""
        scores = {
            key: (
                4 * (key[0] == cell.task) + 2 * (key[1] == cell.learner) + (key[2] == cell.preset),
                -abs(key[3] - cell.seeds),
            )
            for key in self.measured
        }
        similar = [key for key, (score, _) in scores.items() if score >= 2]
        return self.measured[max(similar, key=lambda key: scores[key])] if similar else None


def total_seconds(cells: Sequence[Planned], jobs: int) -> tuple[float, int]:
    """Return the estimated seconds of what can be estimated, and how many experiments cannot be."""
    open_cells = [cell for cell in cells if cell.state in (State.BEGUN, State.WAITING)]
    known = [cell.seconds_left for cell in open_cells if cell.seconds_left is not None]
    return sum(known) / max(jobs, 1), len(open_cells) - len(known)


Report = Callable[[str], None]
STATUS = {0: State.FINISHED, STOPPED: State.BEGUN, BUSY: State.BEGUN, LEFT: State.TRAINED}


class Job(NamedTuple):
    """An experiment in progress."""

    planned: Planned
    process: subprocess.Popen[bytes]
    began: float


def run_locally(
    cells: Sequence[Planned],
    jobs: int,
    report: Report,
    environment: dict[str, str],
    train_only: bool = False,
    asked: Requests | None = None,
) -> dict[str, State]:
    """Run experiments side by side and return what became of each; Ctrl-C lets every one save before it ends.

    A polite request to end (SIGTERM, as `timeout` and batch systems send it) counts as one: workers are sessions of
    their own and would go on without us. `asked` holds afterwards whether there was one; experiments that were not
    started then are not in the answer.
    """
    waiting, ended = list(cells), dict[str, State]()
    running: list[Job] = []
    asked = Requests() if asked is None else asked
    with asked.catching(signal.SIGINT, signal.SIGTERM) as requests, saved_at_end(running):
        told = 0
        while running or (waiting and not requests):
            while waiting and len(running) < jobs and not requests:
                planned = waiting.pop(0)
                try:
                    running.append(start(planned, environment, train_only))
                except (InboundsError, OSError) as error:
                    ended[planned.cell.name] = State.FAILED
                    why = explained(error) if isinstance(error, OSError) else error
                    report(f"FAILED    {planned.cell.name} could not be started: {why}")
                else:
                    report(f"started   {planned.cell.name}")
            time.sleep(0.2)
            if requests.count > told:
                told = requests.count
                how = "saves at its next report; Ctrl-C once more ends them" if told == 1 else "ends"
                report(f"stopping: every experiment {how} at once")
                for job in running:
                    job.process.send_signal(signal.SIGINT if told == 1 else signal.SIGKILL)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                state = (
                    State.BEGUN if was_ended(job, told) else STATUS.get(job.process.returncode, State.FAILED)
                )
                ended[job.planned.cell.name] = state
                report(verdict(job, state))
    return ended


@contextlib.contextmanager
def saved_at_end(running: list[Job]) -> Iterator[None]:
    """Ask experiments that still run when a block ends by an error to save and end: nobody watches them any more."""
    try:
        yield
    finally:
        for job in running:
            job.process.send_signal(signal.SIGINT)


def was_ended(job: Job, told: int) -> bool:
    """Tell whether somebody ended an experiment before it could save: it has not failed, and goes on next time."""
    asked = (-signal.SIGINT, -signal.SIGTERM, *([-signal.SIGKILL] if told > 1 else []))
    return job.process.returncode in asked


def start(planned: Planned, environment: dict[str, str], train_only: bool) -> Job:
    """Start the worker of one experiment, with its output in the experiment's own log."""
    prepare(planned.folder, planned.cell)
    (planned.folder / FAILURE).unlink(missing_ok=True)
    options = [TRAIN_ONLY] if train_only else []
    with open(planned.folder / LOG, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "inbounds.experiments.worker", str(planned.folder), *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # the terminal's Ctrl-C goes to us alone; we tell the workers
        )
    return Job(planned, process, time.monotonic())


def verdict(job: Job, state: State) -> str:
    """Return one line about how an experiment ended."""
    took = f"{time.monotonic() - job.began:.0f} s"
    if state is State.FAILED:
        return f"FAILED    {job.planned.cell.name} after {took}: {last_words(job.planned.folder)}"
    return f"{state.value:10}{job.planned.cell.name} after {took}"


def last_words(folder: Path) -> str:
    """Return why an experiment failed: its own account, or the end of its log where it had no time for one."""
    if (folder / FAILURE).exists():
        try:
            return read_failure(folder)
        except InvalidInputError as error:
            return str(error)
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines() if (folder / LOG).exists() else []
    words = f"the process was killed; its log ends with: {lines[-1] if lines else 'nothing'}"
    with contextlib.suppress(StorageError):  # a full disk, say, which the log tells of
        write_json(folder / FAILURE, {"error": words, "trace": ""})
    return words


RETRIES = 3
"""How often an experiment is tried again whose node died."""


class Outcome(NamedTuple):
    """What a node sends back."""

    status: int
    archive: bytes | None
    """The experiment's folder, where the file system is not shared."""
    node: str


def run_on_ray(
    cells: Sequence[Planned],
    address: str,
    report: Callable[[str], None],
    processors: float = 1,
    gpus: float | None = None,
) -> dict[str, State]:
    """Run experiments on the cluster at `address` (`auto`: this machine's own) and return what became of each.

    An experiment asks for `processors` cores and, where the cluster has any, for one GPU.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise MissingDependencyError('--ray needs the package ray: `pip install "inbounds[ray]"`.') from error
    ray.init(
        address=address, ignore_reinit_error=True, log_to_driver=False, runtime_env={"env_vars": forwarded()}
    )
    resources = ray.cluster_resources()
    wanted = gpus if gpus is not None else (1.0 if resources.get("GPU") else 0.0)
    report(
        f"cluster {address}: {len(ray.nodes())} nodes, {resources.get('CPU', 0):.0f} cores, "
        f"{resources.get('GPU', 0):.0f} GPUs"
    )
    remote = ray.remote(num_cpus=processors, num_gpus=wanted, max_retries=RETRIES)(run_there)
    for planned in cells:
        prepare(planned.folder, planned.cell)
        (planned.folder / FAILURE).unlink(missing_ok=True)
    waiting: dict[Any, Planned] = {
        remote.remote(str(planned.folder.resolve()), planned.cell.as_json()): planned for planned in cells
    }
    ended: dict[str, State] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            planned = waiting.pop(ready[0])
            ended[planned.cell.name] = receive(ray, ready[0], planned, report)
    finally:
        for reference in waiting:
            ray.cancel(reference, force=False)
        ray.shutdown()
    return ended


def receive(ray: Any, reference: Any, planned: Planned, report: Callable[[str], None]) -> State:
    """Take one experiment's outcome in; if its node died too often, it failed alone and not the suite."""
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        failure = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}", "trace": str(error)}
        write_json(planned.folder / FAILURE, failure)
        report(f"FAILED    {planned.cell.name}: {failure['error']}")
        return State.FAILED
    if outcome.archive is not None:
        unpack(outcome.archive, planned.folder)
    state = STATUS.get(outcome.status, State.FAILED)
    words = f": {last_words(planned.folder)}" if state is State.FAILED else ""
    report(f"{state.value:10}{planned.cell.name} on {outcome.node}{words}")
    return state


def run_there(folder: str, cell: dict[str, Any]) -> Outcome:
    """Run an experiment on a node of the cluster: in its own folder if the node sees it, else in a temporary one."""
    target = Path(folder)
    node = os.uname().nodename
    if (target / "cell.json").exists():
        return Outcome(work(target), None, node)
    with tempfile.TemporaryDirectory(prefix="inbounds-") as temporary:
        prepare(Path(temporary) / "cell", Cell.from_json(cell))
        status = work(Path(temporary) / "cell")
        return Outcome(status, pack(Path(temporary) / "cell"), node)


def work(folder: Path) -> int:
    """Run the worker in a process of its own, as a local suite does.

    A worker whose node died may outlive it and still hold the experiment; then its end is awaited instead of disputed.
    """
    command = [sys.executable, "-m", "inbounds.experiments.worker", str(folder)]
    while True:
        with open(folder / LOG, "ab") as log:
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
        if status != BUSY:
            return status
        time.sleep(5.0)


def pack(folder: Path) -> bytes:
    """Return a folder as an archive, without checkpoints, which are large and of no use elsewhere."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "checkpoints" not in path.parts:
                archive.add(path, arcname=str(path.relative_to(folder)))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write an archive of `pack` into a folder; names that lead out of it are refused by the filter."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def forwarded() -> dict[str, str]:
    """Return the environment that workers on other nodes need as well."""
    names = (OWN_TASK, OWN_SUITE, "PYTHONPATH", "JAX_PLATFORMS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}
