"""A batch of environments stepped together on the host, and what one step of it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Step(NamedTuple):
    """One step of a batch; every array has the batch as its leading axis."""

    observation: NDArray[np.float64]
    """What to act on next: where an episode ended, the first observation of the next one."""
    final_observation: NDArray[np.float64]
    """The successor state of this very transition, before any reset."""
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    """The episode ended for good: no value follows."""
    truncated: NDArray[np.bool_]
    """The time limit cut the episode: the value of the successor still counts."""


class HostEnvironments(Protocol):
    """A batch of environments with same-step autoreset and the guard inside."""

    count: int

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed and return the first observations."""
        ...

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action to each environment; an infeasible one raises before anything moves."""
        ...

    def save(self) -> dict[str, NDArray[np.generic]] | None:
        """Return the complete state, generators included, or None where it cannot be had."""
        ...

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Go back to a state that `save` returned."""
        ...
