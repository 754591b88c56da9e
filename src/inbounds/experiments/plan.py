"""Where a suite stands: which cells are finished, begun, failed or still to do, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from inbounds.errors import InvalidInputError
from inbounds.experiments.experiment import Cell
from inbounds.experiments.result_shapes import FAILURE_SHAPE
from inbounds.experiments.results import Result
from inbounds.experiments.worker import FAILURE, FINAL, TRAINED, require_experiment
from inbounds.reading import read_object
from inbounds.training.record import METRICS, RunFolder, step_of


class State(Enum):
    """What a cell's folder tells."""

    FINISHED = "finished"
    TRAINED = "trained"
    BEGUN = "begun"
    FAILED = "failed"
    WAITING = "to do"


class Planned(NamedTuple):
    """A cell, its folder and what is left of it."""

    cell: Cell
    folder: Path
    state: State
    steps_left: int
    seconds_left: float | None
    """None where nothing comparable has been measured."""
    note: str


def plan(cells: Sequence[Cell], root: Path, speeds: Speeds) -> list[Planned]:
    """Look at every cell's folder below `root`."""
    return [planned(cell, root / cell.name, speeds) for cell in cells]


def planned(cell: Cell, folder: Path, speeds: Speeds) -> Planned:
    """Look at one cell's folder; one that holds another experiment is refused before anything runs.

    A cell whose own files are damaged counts as failed, so that the others go on.
    """
    try:
        require_experiment(folder, cell)
        return standing(cell, folder, speeds)
    except InvalidInputError as error:
        return Planned(cell, folder, State.FAILED, cell.steps, None, str(error))


def standing(cell: Cell, folder: Path, speeds: Speeds) -> Planned:
    """Return what a cell's folder tells."""
    if (folder / FINAL).exists():
        return Planned(cell, folder, State.FINISHED, 0, 0.0, "")
    if (folder / FAILURE).exists():
        return Planned(cell, folder, State.FAILED, cell.steps, None, read_failure(folder))
    if (folder / TRAINED).exists():
        return Planned(cell, folder, State.TRAINED, 0, None, "but not judged")
    checkpoints = RunFolder(folder).checkpoint_folders()
    done = step_of(checkpoints[-1]) if checkpoints else 0
    left = max(0, cell.steps - done)
    speed = own_speed(folder) or speeds.of(cell)
    seconds = None if speed is None else left / speed
    state = State.BEGUN if done else State.WAITING
    return Planned(cell, folder, state, left, seconds, f"at step {done:,}" if done else "")


def read_failure(folder: Path) -> str:
    """Return why a cell failed, in its own words."""
    failure = read_object(folder / FAILURE, "Remove it, and the cell is tried again.", FAILURE_SHAPE)
    return str((failure["error"].splitlines() or ["it gave no reason"])[0])


def own_speed(folder: Path) -> float | None:
    """Return the speed at which a begun cell has trained so far, evaluations included.

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
        """Return the speed of the most similar measurement: this cell, then its task, then its method."""
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
    """Return the estimated seconds of what can be estimated, and how many cells cannot be."""
    open_cells = [cell for cell in cells if cell.state in (State.BEGUN, State.WAITING)]
    known = [cell.seconds_left for cell in open_cells if cell.seconds_left is not None]
    return sum(known) / max(jobs, 1), len(open_cells) - len(known)
