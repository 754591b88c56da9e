"""Where a state leaves no action, or a compiled program found none: what is settled on the host, and the error.

Two kinds are left open. Where no float32 number was accepted, a compiled projection answers NaN: either no action is
allowed, which stops the run, or float64 finds one. And a function that tells whether an action is allowed knows no
margin: the programs ask it at observations that were rounded to float32, the guard at the observations themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.oracle import asks_a_function
from inbounds.errors import EmptySetError, InboundsError
from inbounds.tasks.named_parts import references_of
from inbounds.tasks.task import Task

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
        return  # the caller raises other errors


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


class Settled(NamedTuple):
    """Actions as they will be executed, and which of them were projected on the host."""

    actions: NDArray[np.float32]
    is_projected: NDArray[np.bool_]


class Settling:
    """Settles the actions of one task; of most sets only those that are not finite are looked at."""

    def __init__(self, task: Task) -> None:
        """Ask whether the set keeps a margin that covers the rounding of observations."""
        self.task = task
        self.has_margin = not asks_a_function(task.constraint)

    def is_open(self, observations: NDArray[Any], actions: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Tell which actions (..., size) cannot be executed as they are."""
        is_finite = np.asarray(np.isfinite(actions).all(axis=-1))
        if self.has_margin:
            return ~is_finite
        asked = np.where(is_finite[..., None], actions, 0.0).astype(np.float64)
        excess = np.asarray(self.task.constraint.violation(observations.astype(np.float64), asked))
        return ~(is_finite & (excess <= 0.0))

    def settle(
        self, observations: NDArray[Any], actions: NDArray[np.float32], raw: NDArray[np.float32]
    ) -> Settled:
        """Project what is open from the raw action; EmptySetError where no action is allowed.

        What a policy that has diverged proposes, NaN, stays as it is.
        """
        is_open = self.is_open(observations, actions)
        if not is_open.any():
            return Settled(actions, is_open)
        chosen = np.array(actions)
        is_projected = is_open & np.isfinite(raw).all(axis=-1)
        for place in map(tuple, np.argwhere(is_projected)):
            seen = observations[place].astype(np.float64)
            with observation_shown(self.task.constraint, seen, self.task.name):
                chosen[place] = self.task.constraint.project(seen, raw[place])
        return Settled(chosen, is_projected)
