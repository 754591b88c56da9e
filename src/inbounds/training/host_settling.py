"""Actions that the compiled programs left open are settled on the host, in float64, before they are executed.

Two kinds are left open. Where no float32 number was accepted, a compiled projection answers NaN: either no action is
allowed, which stops the run, or float64 finds one. And a function that tells whether an action is allowed knows no
margin: the programs ask it at observations that were rounded to float32, the guard at the observations themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.oracle import asks_a_function
from inbounds.tasks.empty_states import observation_shown
from inbounds.tasks.task import Task


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
