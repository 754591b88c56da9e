"""The report of `check_task`: its findings, and whether training can start."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """Something that was noticed: how bad it is, what it is, and what to change."""

    level: Literal["problem", "warning", "note"]
    what: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class TaskReport:
    """What `check_task` noticed; `print(report)` shows it."""

    task: str
    constraint: str
    findings: tuple[Finding, ...]
    steps: int
    """How many steps were taken with uniformly feasible actions."""
    feasible_share: float | None
    """Share of uniform actions of the box that are feasible, over the visited states; None if none was visited."""

    @property
    def is_ready(self) -> bool:
        """Tell whether training can start: there may be warnings, but no problem."""
        return not any(finding.level == "problem" for finding in self.findings)

    def __str__(self) -> str:
        """Write a heading and, for every finding, what it is and what to do."""
        share = "unknown" if self.feasible_share is None else f"{100 * self.feasible_share:.3g} %"
        lines = [
            f"{self.task}: {'ready to train' if self.is_ready else 'not ready'}",
            f"  set       {self.constraint}",
            f"  tried     {self.steps} steps with uniformly feasible actions; {share} of the box is feasible",
        ]
        for level, what, remedy in self.findings:
            lines += [f"  {level:<9} {what}", f"            -> {remedy}"]
        return "\n".join(lines if self.findings else [*lines, "  nothing else to report"])
