"""What training steps: a batch of environments on the host, or one environment of pure JAX functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import jax


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


class CompiledStep(NamedTuple):
    """One step of one compiled environment; the caller adds batches by `vmap`."""

    state: Any
    observation: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class CompiledEnvironment(Protocol):
    """Two pure functions over one state; no reset happens inside `step`."""

    observation_size: int
    action_size: int
    horizon: int

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Return a fresh state and its observation, drawn from `key` alone."""
        ...

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Advance by one decision; all randomness comes from `key`."""
        ...
