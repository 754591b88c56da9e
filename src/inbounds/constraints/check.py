"""What is wrong with a new constraint: its answers are compared with one another on random questions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.contradictions import CHECKS, Questions, numbers, random_questions
from inbounds.errors import ConstraintError, InboundsError, InvalidInputError

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is as it should be, and if not, an example."""

    question: str
    is_fault: bool
    detail: str = ""
    is_note: bool = False

    def __str__(self) -> str:
        mark = "FAULT" if self.is_fault else "note " if self.is_note else "ok   "
        return f"{mark}  {self.question}" + (f": {self.detail}" if self.detail else "")


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that was found out about a constraint."""

    constraint: str
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(finding for finding in self.findings if finding.is_fault)

    @property
    def is_sound(self) -> bool:
        """Whether nothing wrong was found; a proof it is not."""
        return not self.faults

    def raise_faults(self) -> None:
        """Raise an error that lists what is wrong, if anything is."""
        if self.faults:
            listed = "\n".join(f"  {finding}" for finding in self.faults)
            raise ConstraintError(
                f"{self.constraint} does not keep its promises:\n{listed}\n"
                f"Correct these methods and check the constraint again."
            )

    def __str__(self) -> str:
        count = len(self.faults)
        verdict = "no fault found" if self.is_sound else "1 fault" if count == 1 else f"{count} faults"
        lines = [f"{self.constraint}: {verdict} in {len(self.findings)} checks"]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings])


def check_constraint(
    constraint: Constraint,
    observation_sample: Any = None,
    dimension: int | None = None,
    *,
    previous_action: Any = None,
    seed: int = 0,
    raise_on_fault: bool = False,
) -> Report:
    """Ask a constraint many random questions and report which answers contradict one another.

    Args:
        constraint: The constraint to be examined.
        observation_sample: Observations it will meet, shape (n, size); None if it reads none.
        dimension: The number of entries of an action, where the constraint does not tell.
        previous_action: The action executed before, for constraints that read it.
        seed: Where the random actions come from.
        raise_on_fault: Raise a `ConstraintError` that lists the faults instead of only reporting them.
    """
    findings = _examined(constraint, observation_sample, previous_action, dimension, seed)
    report = Report(_described(constraint), tuple(findings))
    if raise_on_fault:
        report.raise_faults()
    return report


def _examined(
    constraint: Constraint, sample: Any, previous: Any, dimension: int | None, seed: int
) -> Iterator[Finding]:
    size = constraint.size() if constraint.size() is not None else dimension
    if size is None:
        raise InvalidInputError(
            "the constraint does not tell how many entries an action has. Pass dimension= to check_constraint."
        )
    observations = _rows(sample)
    previous_action = None if previous is None else np.asarray(previous, dtype=np.float64)
    rng = np.random.default_rng(seed)
    questions: list[Questions] = []
    refused: list[str] = []
    for observation in observations:
        try:
            questions.append(random_questions(constraint, observation, previous_action, size, rng))
        except InboundsError as error:
            refused.append(_shortened(error))
        except Exception as error:
            refused.append(f"{type(error).__name__}: {_shortened(error)}")
    yield Finding(
        "every observation leaves an action",
        bool(refused),
        f"in {len(refused)} of {len(observations)}: {refused[0]}" if refused else "",
    )
    if not questions:
        return
    for question, examine in CHECKS:
        yield _finding(question, examine, questions)
    yield _binding(questions)
    yield _exactness(constraint)
    yield _round_trip(constraint, questions)


def _finding(
    question: str,
    examine: Callable[[Questions], str | None],
    questions: list[Questions],
) -> Finding:
    """Return the first contradiction in any observation; an error is one as well."""
    for asked in questions:
        try:
            contradiction = examine(asked)
        except Exception as error:
            contradiction = f"it raised {type(error).__name__}: {_shortened(error)}"
        if contradiction is not None:
            place = "" if asked.observation is None else f" (observation {numbers(asked.observation)})"
            return Finding(question, True, contradiction + place)
    return Finding(question, False)


def _binding(questions: list[Questions]) -> Finding:
    """Note what never decides: a set without a limit, or a member that the others make superfluous."""
    share = float(np.mean([np.mean(asked.contains(asked.actions)) for asked in questions]))
    question = "the constraint excludes something"
    if share == 1.0:
        return Finding(question, False, "it never binds: all random actions are allowed", is_note=True)
    members = questions[0].constraint.members()
    idle = [member.formula() for member in members if len(members) > 1 and not _decides(member, questions)]
    if idle:
        return Finding(question, False, f"never by itself: {'; '.join(idle)}", is_note=True)
    return Finding(question, False, f"{100 * share:.3g} % of random actions are allowed")


def _decides(member: Constraint, questions: list[Questions]) -> bool:
    """Tell whether some action is excluded by one member alone."""
    for asked in questions:
        is_left = ~dataclasses.replace(asked, constraint=member).contains(asked.actions)
        for other in asked.constraint.members():
            if other is not member:
                is_left = is_left & dataclasses.replace(asked, constraint=other).contains(asked.actions)
        if np.any(is_left):
            return True
    return False


def _exactness(constraint: Constraint) -> Finding:
    question = "the projection is the exact one"
    if constraint.projection_is_exact:
        return Finding(question, False)
    return Finding(question, False, "no, it is the nearest of many samples", is_note=True)


def _round_trip(constraint: Constraint, questions: list[Questions]) -> Finding:
    question = "it can be written to JSON and read back"
    try:
        written = json.loads(json.dumps(constraint.to_json()))
        again = Constraint.from_json(written, allow_code=True)
    except Exception as error:
        return Finding(question, False, f"no: {_shortened(error)}", is_note=True)
    for asked in questions:
        other = dataclasses.replace(asked, constraint=again)
        if not np.array_equal(asked.violation(asked.actions), other.violation(asked.actions)):
            return Finding(question, True, "what is read back gives other violations")
    return Finding(question, False)


def _rows(sample: Any) -> list[FloatArray | None]:
    if sample is None:
        return [None]
    array = np.asarray(sample, dtype=np.float64)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or len(array) == 0:
        raise InvalidInputError(
            f"observation_sample has shape {array.shape}, but (n, size) is expected. Stack observations as rows."
        )
    return list(array)


def _described(constraint: Constraint) -> str:
    try:
        return f"{type(constraint).__name__}: {constraint.formula()}"
    except Exception:
        return type(constraint).__name__


def _shortened(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return text if len(text) <= 200 else f"{text[:197]}..."
