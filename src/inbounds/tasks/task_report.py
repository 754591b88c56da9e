"""The report of `check_task`: its findings, whether training can start, and which learner to try first.

docs/which_learner.md has the reasons for the recommendations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

from inbounds.constraints import Box, Constraint, Intersection, Oracle, Shell, Union
from inbounds.tasks.task import Task

THIN = 1e-4
"""A feasible fraction of the box below which acceptance-rejection hardly ever accepts."""


class Recommendation(NamedTuple):
    """A learner to try first, by its name, and why."""

    learner: str
    reason: str


NO_LIMIT = Recommendation("sac", "the box is the only limit, so that nothing is ever rejected.")
THIN_SET = Recommendation(
    "spre",
    "the set is so thin that proposals are never accepted. It learns from projections instead; so does 'dpre', whose "
    "policy is deterministic.",
)
FUNCTION = Recommendation(
    "aram",
    "only a function tells what is allowed, and projecting asks it many times. With proposals=100, ARAM asks it about "
    "proposals and seldom projects.",
)
PIECES = Recommendation(
    "aram", "the set is not convex, and a projection may jump from one part of it to another."
)
USUAL = Recommendation(
    "aram",
    "its own proposals become feasible, so that little is projected. If the return alone counts and projections are "
    "cheap, compare with 'spre'.",
)


def recommended(task: Task, share: float | None) -> Recommendation:
    """Return the learner to try first.

    Args:
        task: what is solved.
        share: share of uniform actions of the box that are feasible, over visited states; None if unknown.
    """
    members = tuple(every_member(task.constraint))
    if share == 1.0 and all(isinstance(member, Box) for member in members):
        return NO_LIMIT
    if share is not None and share < THIN:
        return THIN_SET
    if any(isinstance(member, Oracle) for member in members):
        return FUNCTION
    is_in_pieces = any(isinstance(member, Union | Shell) for member in members)
    return PIECES if is_in_pieces else USUAL


def every_member(constraint: Constraint) -> Iterator[Constraint]:
    """Yield the sets that a constraint is made of: unions, and what they and intersections join."""
    if not isinstance(constraint, Intersection):
        yield constraint
    for value in constraint.parameters().values():
        for part in value if isinstance(value, tuple | list) else ():
            if isinstance(part, Constraint):
                yield from every_member(part)


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
    feasible_fraction: float | None
    """Fraction of uniform actions of the box that are feasible, over the visited states; None if none was visited."""
    recommendation: Recommendation
    """Which learner to try first, and why."""

    @property
    def is_ready(self) -> bool:
        """Tell whether training can start: there may be warnings, but no problem."""
        return not any(finding.level == "problem" for finding in self.findings)

    def __str__(self) -> str:
        """Write a heading and, for every finding, what it is and what to do."""
        known = self.feasible_fraction
        fraction = "unknown" if known is None else f"{100 * known:.3g} %"
        lines = [
            f"{self.task}: {'ready to train' if self.is_ready else 'not ready'}",
            f"  set       {self.constraint}",
            f"  tried     {self.steps} steps with uniformly feasible actions; {fraction} of the box is feasible",
        ]
        for level, what, remedy in self.findings:
            lines += [f"  {level:<9} {what}", f"            -> {remedy}"]
        if not self.findings:
            lines.append("  nothing else to report")
        if self.is_ready:
            learner, reason = self.recommendation
            lines.append(f"  learner   begin with '{learner}': {reason}")
        return "\n".join(lines)
