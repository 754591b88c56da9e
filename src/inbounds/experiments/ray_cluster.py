"""Runs the open cells of a plan on a Ray cluster: cells are Ray tasks, and what they write comes back.

Every node runs the same worker as a local suite does. Where nodes share the file system, the run folders are used in
place and a cell whose node died goes on from its checkpoint; where they do not, a finished cell's folder comes back
as an archive without its checkpoints, and a cell whose node died starts again.
"""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from inbounds.errors import MissingDependencyError
from inbounds.experiments.experiment import Cell
from inbounds.experiments.runner import STATUS, Planned, State, last_words
from inbounds.experiments.worker import BUSY, FAILURE, LOG, prepare
from inbounds.storage.files import write_json

RETRIES = 3
"""How often a cell is tried again whose node died."""


class Outcome(NamedTuple):
    """What a node sends back."""

    status: int
    archive: bytes | None
    """The cell's folder, where the file system is not shared."""
    node: str


def run_on_ray(
    cells: Sequence[Planned],
    address: str,
    report: Callable[[str], None],
    processors: float = 1,
    gpus: float | None = None,
) -> dict[str, State]:
    """Run cells on the cluster at `address` (`auto`: the one this machine belongs to) and return what became of each.

    A cell asks for `processors` cores and, where the cluster has any, for one GPU.
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
    """Take one cell's outcome in; a cell whose node died too often is a failed cell, not a failed suite."""
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
    """Run a cell on a node of the cluster: in its own folder if the node sees it, else in a temporary one."""
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

    A worker whose node died may outlive it and still hold the cell; then its end is awaited instead of disputed.
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
    names = ("PYTHONPATH", "JAX_PLATFORMS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}
