"""What a run came to: the last evaluation of every seed, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inbounds.training.record import EVALUATIONS, RunFolder


@dataclass(frozen=True)
class RunSummary:
    """Return, valid action rate, projections and worst violation of a run's last evaluation."""

    path: Path
    task: str
    learner: str
    step: int
    evaluations: tuple[dict[str, Any], ...]
    """The last evaluation, one row per seed."""
    worst_violation: float
    """The worst over all evaluations; training refuses anything above zero at the environment's door."""
    best: tuple[dict[str, Any], ...] = ()
    """The best evaluation of each seed; the folder holds its policy beside the last one."""
    preparation_seconds: float | None = None
    """Part of the training time that passed before the first step: compiling, and FlowPG's training of its flow."""

    @classmethod
    def read(cls, path: Path) -> RunSummary:
        """Read the folder of a run."""
        folder = RunFolder(path)
        config = folder.config()
        rows = list(folder.rows(EVALUATIONS))
        last = max((row["step"] for row in rows), default=0)
        return cls(
            path=Path(path),
            task=config["task"],
            learner=config["learner"]["name"],
            step=last,
            evaluations=tuple(row for row in rows if row["step"] == last),
            worst_violation=max((row["worst_violation"] for row in rows), default=0.0),
            best=best_rows(rows),
            preparation_seconds=folder.provenance().get("preparation_seconds"),
        )

    def column(self, name: str) -> np.ndarray:
        """Return one number per seed."""
        return np.asarray([row[name] for row in self.evaluations], dtype=np.float64)

    def __str__(self) -> str:
        """Return the lines that a user wants to see first."""
        if not self.evaluations:
            return f"{self.task}, {self.learner}: not evaluated yet ({self.path})"
        returns, valid = self.column("return"), self.column("valid_action_rate")
        spent = self.preparation_seconds
        prepared = "" if spent is None else f", {spent:.1f} s of it before the first step"
        return "\n".join(
            [
                f"{self.task}, {self.learner}, {self.step:,} steps, {len(self.evaluations)} seed(s)",
                f"  return             {returns.mean():.4g} +- {returns.std():.2g} over seeds",
                *best_line(self),
                f"  valid action rate  {valid.mean():.3f}",
                f"  projections        {self.column('training_projections').mean():,.0f} in training per seed",
                f"  worst violation    {self.worst_violation:g}",
                f"  training time      {self.evaluations[0]['seconds']:.1f} s, evaluation aside{prepared}",
                f"  folder             {self.path}",
            ]
        )


def best_rows(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the best evaluation of each seed; of equal ones the first, as training chooses it."""
    return tuple(
        max((row for row in rows if row["seed"] == seed), key=lambda row: np.float32(row["return"]))
        for seed in sorted({row["seed"] for row in rows})
    )


def best_line(summary: RunSummary) -> list[str]:
    """Return a line about the best evaluations, unless the last ones are the best."""
    steps = [row["step"] for row in summary.best]
    if all(step == summary.step for step in steps):
        return []
    mean = np.mean([row["return"] for row in summary.best])
    when = f"step {steps[0]:,}" if len(set(steps)) == 1 else f"steps {min(steps):,} to {max(steps):,}"
    return [f"  best return        {mean:.4g}, evaluated at {when}"]
