"""Environments written as pure JAX functions, so that a whole training loop compiles to one program."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax


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
