"""Where a state leaves no action: the error that shows the observation, what the set reads there, and the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from inbounds.errors import EmptySetError, InboundsError
from inbounds.tasks.named_parts import references_of

if TYPE_CHECKING:
    from inbounds.constraints import Constraint

REMEDY = (
    "Let the constraint leave an action in every state (a bound that is read from the observation may need a "
    "floor), or end the episode before it gets there."
)

LISTED = 100
"""How many entries of an observation are shown at most."""


@contextlib.contextmanager
def observation_shown(constraint: Constraint, observation: Any, task_name: str) -> Iterator[None]:
    """Add the task, the observation and the remedy to the error that a set without actions raises."""
    try:
        yield
    except EmptySetError as error:
        raise no_action_left(constraint, observation, task_name, str(error)) from error


def require_an_action(
    constraint: Constraint, observation: Any, action: Any, previous_action: Any, task_name: str
) -> None:
    """Raise EmptySetError if the set is empty at an observation, as far as can be seen from an action.

    An action that is finite is projected: where a set is known by a function alone, the search begins there.
    """
    start = np.asarray(action, dtype=np.float64)
    try:
        if np.isfinite(start).all():
            constraint.project(observation, start, previous_action=previous_action)
        else:
            constraint.interior_point(observation, dimension=len(start), previous_action=previous_action)
    except EmptySetError as error:
        raise no_action_left(constraint, observation, task_name, str(error)) from error
    except InboundsError:
        return  # another error than this one is told better by who asks


def no_action_left(constraint: Constraint, observation: Any, task_name: str, reason: str) -> EmptySetError:
    """Return the error for a state in which no action is allowed."""
    seen = np.asarray(observation, dtype=np.float64)
    return EmptySetError(
        f"{task_name}: no action is allowed at the observation {_listed(seen)}{_readings(constraint, seen)}: {reason} "
        f"{REMEDY}"
    )


def _readings(constraint: Constraint, observation: Any) -> str:
    """Write the numbers that the constraint reads from an observation, where it reads any."""
    found: list[str] = []
    for kind, argument, reference in references_of(constraint):
        if reference.source == "observation":
            with contextlib.suppress(InboundsError):  # the reading itself may be what is wrong
                found.append(f"{argument} of {kind} is {reference} = {_listed(reference.read(observation))}")
    return f" ({'; '.join(found)})" if found else ""


def _listed(values: Any) -> str:
    """Write numbers, of many the first ones."""
    entries = [f"{value:.7g}" for value in np.ravel(values)]
    if np.ndim(values) == 0:
        return entries[0]
    more = f", ... ({len(entries)} entries)" if len(entries) > LISTED else ""
    return f"[{', '.join(entries[:LISTED])}{more}]"
