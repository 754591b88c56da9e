"""What training steps, a batch of environments on the host or one of pure JAX functions, and how policies play them.

Every loop over episodes outside of training is one of the generators below.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium
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

    def close(self) -> None:
        """Release threads, processes and what the environments hold; nothing else may be called afterwards."""
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


# Playing -------------------------------------------------------------------------------------------------------------

Act = Callable[[NDArray[Any]], Any]
"""From an observation, or a batch of them, to an action, or one for each."""


class RolloutStep(NamedTuple):
    """One step of one environment."""

    observation: NDArray[np.float64]
    """What the policy saw."""
    action: Any
    next_observation: NDArray[np.float64]
    """Where the action led, also at the end of an episode."""
    reward: float
    terminated: bool
    truncated: bool

    @property
    def is_last(self) -> bool:
        """Tell whether the episode ended with this step."""
        return self.terminated or self.truncated


def rollout(
    environment: gymnasium.Env[Any, Any], act: Act, observation: NDArray[np.float64]
) -> Iterator[RolloutStep]:
    """Play from the observation that `reset` returned, episode after episode, for as long as steps are asked for.

    Nothing happens ahead: the next episode begins, and the policy is asked, when the next step is wanted.
    """
    while True:
        action = act(observation)
        following, reward, terminated, truncated, _ = environment.step(action)
        step = RolloutStep(observation, action, following, float(reward), bool(terminated), bool(truncated))
        yield step
        observation = environment.reset()[0] if step.is_last else following


def episode(
    environment: gymnasium.Env[Any, Any], act: Act, observation: NDArray[np.float64]
) -> Iterator[RolloutStep]:
    """Play from the observation that `reset` returned to the end of the episode."""
    for step in rollout(environment, act, observation):
        yield step
        if step.is_last:
            return


class BatchRolloutStep(NamedTuple):
    """One step of a batch; every array has the batch as its leading axis."""

    observation: NDArray[np.float64]
    """What the policy saw."""
    action: Any
    step: Step
    is_first: NDArray[np.bool_]
    """Whether this was a step of the first episode since `reset`."""


def batch_rollout(
    environments: HostEnvironments, act: Act, observation: NDArray[np.float64], steps: int | None = None
) -> Iterator[BatchRolloutStep]:
    """Play from the observations that `reset` returned: so many steps, or until all first episodes have ended."""
    is_first = np.ones(environments.count, np.bool_)
    for _ in itertools.count() if steps is None else range(steps):
        action = act(observation)
        step = environments.step(action)
        yield BatchRolloutStep(observation, action, step, is_first)
        is_first = is_first & ~(step.terminated | step.truncated)
        if steps is None and not is_first.any():
            return
        observation = step.observation
