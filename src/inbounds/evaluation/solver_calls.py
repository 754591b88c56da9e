"""What feasibility cost: projections and other solver calls of a run, counted by their cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from inbounds.errors import InvalidInputError
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder

SUFFIX = "_calls"
"""Learners whose updates ask a solver log running counts under `CAUSE_calls`."""


class SolverCalls(NamedTuple):
    """Calls of every seed, by cause; the paper's figure counts what happens in training."""

    acting: tuple[int, ...]
    """Training: actions that had to be projected before they were executed."""
    updates: dict[str, tuple[int, ...]]
    """Training: what updates solved, by cause (layers, linear programs of Frank and Wolfe)."""
    evaluation: tuple[int, ...]
    """The final evaluation: deterministic actions that had to be projected."""
    rounding: int
    """Bike sharing: integer allocations, one per environment step, made by the environment."""

    def training_total(self) -> list[int]:
        """Return what the paper counts: all solver calls of training, per seed."""
        columns = (self.acting, *self.updates.values())
        return [sum(counts) for counts in zip(*columns, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "acting": list(self.acting),
            "updates": {cause: list(counts) for cause, counts in self.updates.items()},
            "evaluation": list(self.evaluation),
            "rounding": self.rounding,
        }


def count_solver_calls(folder: RunFolder, evaluation: Sequence[int] = ()) -> SolverCalls:
    """Return the calls of a run up to its last row of metrics, and those of an evaluation made now.

    Folders of published policies have no metrics: their training counts are empty, which is not zero.
    """
    last: dict[int, dict[str, Any]] = {row["seed"]: row for row in folder.rows(METRICS)}
    evaluated: dict[int, dict[str, Any]] = {row["seed"]: row for row in folder.rows(EVALUATIONS)}
    seeds = sorted(last)
    for row in last.values():
        for name, count in row.items():
            if name.endswith(SUFFIX) and not (count is not None and 0 <= count < float("inf")):
                raise InvalidInputError(
                    f"{folder.path / METRICS} has {count} for '{name}' of seed {row['seed']}, which is not a count. "
                    f"Leave the run out, or train it again."
                )
    causes = sorted(
        {name.removesuffix(SUFFIX) for row in last.values() for name in row if name.endswith(SUFFIX)}
    )
    steps = max((row["step"] for row in (*last.values(), *evaluated.values())), default=0)
    return SolverCalls(
        acting=tuple(int(last[seed]["projections"]) for seed in seeds),
        updates={cause: tuple(int(last[seed].get(cause + SUFFIX, 0)) for seed in seeds) for cause in causes},
        evaluation=tuple(int(count) for count in evaluation),
        rounding=steps if str(folder.config()["task"]).startswith("bss") else 0,
    )
