"""Rows and summaries of a run: callbacks of `train` get one row per seed and report, the same that the logs hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from inbounds.training.record import EVALUATIONS, RunFolder


class MetricsRow(TypedDict):
    """How training goes, since the last such row; metrics.jsonl holds it without `kind`.

    The learner's own numbers stand beside these under their names: losses, `alpha`, `eta`, ...
    """

    kind: Literal["metrics"]
    step: int
    """Environment steps that this seed has taken."""
    seed: int
    seconds: float
    """Training time so far, evaluations aside."""
    steps_per_second: float
    episodes: int
    """Episodes that ended."""
    training_return: float | None
    """Mean return of those episodes, in the environment's own reward; None if none ended."""
    acceptance: float
    """Fraction of all proposals that were feasible."""
    projections: int
    """Actions that were projected before they were executed, since the run began."""
    rejections: int
    """Proposals that were rejected, since the run began."""
    lowest_reward: float | None
    """The lowest reward that the learner was trained on so far."""


EvaluationRow = TypedDict(
    "EvaluationRow",
    {
        "kind": Literal["evaluation"],
        "step": int,
        "seed": int,
        "return": float,
        "return_std": float,
        "length": float,
        "valid_action_rate": float,
        "deterministic_valid_rate": float,
        "evaluation_projections": int,
        "worst_violation": float,
        "training_projections": int,
        "seconds": float,
        "evaluation_seconds": float,
    },
)
"""How good the policy is now; evaluations.jsonl holds it without `kind`."""
EvaluationRow.__doc__ = """How good the policy is now; evaluations.jsonl holds it without `kind`.

`return` and `return_std` are mean and standard deviation over episodes of deterministic actions, `length` their mean
number of steps. `valid_action_rate` is the feasible fraction of raw samples, `deterministic_valid_rate` that of raw
deterministic actions, `evaluation_projections` how many of these were projected. `worst_violation` is that of an
executed action, in float64. `seconds` is the training time so far, `evaluation_seconds` what this evaluation took.
"""

Row = MetricsRow | EvaluationRow
"""`row["kind"]` tells which one it is."""
Callback = Callable[[Row], bool | None]
"""Called with every row that is logged; returning True stops the run after a checkpoint."""


def asks_to_stop(answer: Any) -> bool:
    """Tell whether a callback returned True, of Python or of an array library.

    Whatever else a function happens to return, such as the array that it logged, has no say in whether the run goes on.
    """
    if answer is None or isinstance(answer, bool):
        return bool(answer)
    is_flag = getattr(answer, "shape", None) == () and str(getattr(answer, "dtype", "")).endswith("bool")
    return is_flag and bool(answer)


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
                f"{self.task}, {self.learner}, {self.step:,} steps, {plural(len(self.evaluations), 'seed')}",
                f"  return             {returns.mean():.4g}{spread_over_seeds(returns)}",
                *best_line(self),
                f"  valid action rate  {valid.mean():.3f}",
                f"  projections        {self.column('training_projections').mean():,.0f} in training per seed",
                f"  worst violation    {self.worst_violation:g}",
                f"  training time      {self.evaluations[0]['seconds']:.1f} s, evaluation aside{prepared}",
                f"  folder             {self.path}",
            ]
        )


def spread_over_seeds(means: np.ndarray) -> str:
    """Return the deviation over seeds as it stands behind a mean; a single seed has none."""
    return f" +- {two_digits(means.std())} over seeds" if len(means) > 1 else ""


def plural(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def two_digits(value: float) -> str:
    """Return a number rounded to two digits and written in full: 150 and not 1.5e+02."""
    return f"{float(f'{value:.2g}'):,.6g}"


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
