"""The contract between a learner and a training step: what passes between them, and the functions that are called."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.references import Reference
from inbounds.policies.acceptance import Draw
from inbounds.policies.box import ActionBox
from inbounds.policies.networks import InputScale
from inbounds.replay import Transition

Metrics = dict[str, jax.Array]


class Spec(NamedTuple):
    """The parts of a task that a learner reads: sizes, the action box and the constraint, but no environment."""

    observation_size: int
    box: ActionBox
    constraint: Constraint
    inputs: InputScale | None = None
    """Shift and scale of the observations inside the networks; None leaves them as they are."""
    reference_action: Reference | NDArray[np.float32] | None = None
    """The action that a warm start begins at: constant, or read from the observation."""
    horizon: int = 1_000
    """Steps after which an episode is cut."""
    environments: int = 1
    """Environments of a seed that step together."""

    @classmethod
    def of(
        cls,
        observation_size: int,
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        constraint: Constraint,
        shift: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        reference_action: Reference | NDArray[np.float32] | None = None,
        horizon: int = 1_000,
    ) -> Spec:
        """Build a spec from the bounds of the action box and, where given, scales and a reference action."""
        box = ActionBox(np.asarray(low, np.float32), np.asarray(high, np.float32))
        inputs = None if shift is None or scale is None else InputScale(shift, scale)
        return cls(observation_size, box, constraint, inputs, reference_action, horizon)


class Outcome(NamedTuple):
    """Rewards and successors after executing a draw (leading axis: environments)."""

    reward: jax.Array
    """The training reward, after the task's scale and shift."""
    not_done: jax.Array
    """0 where the episode terminated, 1 elsewhere."""
    next_observation: jax.Array
    is_last: jax.Array | None = None
    """Whether the episode ended with this step, by termination or truncation; the training loop always sets it."""


class Memory(NamedTuple):
    """Transitions for one replay buffer, and which of them to store."""

    transition: Transition
    mask: jax.Array | None
    """False for rows to leave out; None stores all."""


class StepFunctions(abc.ABC):
    """Pure functions over one state, which holds everything that changes.

    `act` sees all seeds at once (leading axes: seeds, environments), so that a projection which no seed needs is not
    computed. All other functions see one seed, and the training loop maps them over seeds.
    """

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Return the transitions per update."""

    @abc.abstractmethod
    def init(self, key: jax.Array, spec: Spec) -> Any:
        """Return a new state."""

    @abc.abstractmethod
    def act(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Choose actions at (seeds, environments, observation size); `is_random` holds during the random warm-up."""

    @abc.abstractmethod
    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return what one step of all environments of a seed adds to each replay buffer."""

    @abc.abstractmethod
    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        """Take one gradient step on one batch."""

    # With defaults -----------------------------------------------------------------------------------------------

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the names of the replay buffers; the first one provides what the others do not."""
        return ("real",)

    @property
    def objectives(self) -> int:
        """Return the number of entries of a stored reward."""
        return 1

    @property
    def rollout(self) -> int:
        """Return the environment steps between two updates of an on-policy learner; 0 for off-policy learners.

        An on-policy `update` gets all transitions of the first buffer with the leading axes (time, environments), in
        order. In between its state's field `metrics` holds the metrics of the last update.
        """
        return 0

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw the variables of one episode, such as a preference, with a last axis of any size."""
        return jnp.zeros((*shape, 0))

    def adapt(
        self, state: Any, spec: Spec, draw: Draw, outcome: Outcome, step: jax.Array, is_random: bool
    ) -> Any:
        """Return the state after an environment step, for slow controllers and counters."""
        return state

    def batch_fractions(self, state: Any, spec: Spec, step: jax.Array) -> jax.Array:
        """Return the fraction of a batch to draw from each buffer but the first."""
        return jnp.zeros(0)

    def noise(self, key: jax.Array, spec: Spec) -> Any:
        """Draw all randomness of one update; by default `update` gets the key itself."""
        return key
