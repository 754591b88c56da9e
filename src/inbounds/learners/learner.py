"""The contract between a learner and the training loop: settings, and pure functions over one state."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.references import Reference
from inbounds.policies.acceptance import Draw
from inbounds.policies.box import ActionBox
from inbounds.policies.heads import Head, Query
from inbounds.policies.networks import InputScale
from inbounds.replay.buffer import Transition

Metrics = dict[str, jax.Array]


class Spec(NamedTuple):
    """The parts of a task that a learner reads: sizes, the action box and the constraint, but no environment."""

    observation_size: int
    box: ActionBox
    constraint: Constraint
    inputs: InputScale | None = None
    """Shift and scale of the observations inside the networks; None leaves them as they are."""
    reference_action: Reference | NDArray[np.float32] | None = None
    """A sensible action of the task, a part of the observation or the same in all states, for a warm start."""
    discount: float = 0.99
    """Discount factor, for learners that have none of their own."""

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
        discount: float = 0.99,
    ) -> Spec:
        """Build a spec from the bounds of the action box and, where given, scales and a reference action."""
        box = ActionBox(np.asarray(low, np.float32), np.asarray(high, np.float32))
        inputs = None if shift is None or scale is None else InputScale(shift, scale)
        return cls(observation_size, box, constraint, inputs, reference_action, discount)

    def relative(self, observation: jax.Array) -> jax.Array:
        """Return scaled observations, for networks whose first layer does not scale them itself."""
        if self.inputs is None:
            return observation
        return (observation - self.inputs.shift) / self.inputs.scale


class Outcome(NamedTuple):
    """The environments' answers to a draw (leading axis: environments)."""

    reward: jax.Array
    """The training reward, after the task's scale and shift."""
    discount: jax.Array
    """0 where the episode terminated, 1 elsewhere."""
    next_observation: jax.Array
    is_last: jax.Array | None = None
    """Whether the episode ended with this step, by termination or truncation; the training loop always sets it."""


class Memory(NamedTuple):
    """Transitions for one replay buffer, and which of them to store."""

    transition: Transition
    mask: jax.Array | None
    """False for rows to leave out; None stores all."""


def real_transitions(observation: jax.Array, action: jax.Array, outcome: Outcome) -> dict[str, Memory]:
    """Return one transition (s, a, [r], s') per environment for the buffer `real`."""
    reward, following = outcome.reward[:, None], outcome.next_observation
    return {"real": Memory(Transition(observation, action, reward, outcome.discount, following), None)}


class Learner(abc.ABC):
    """Settings plus pure functions; everything that changes is in the state that they pass on.

    A learner is a frozen dataclass that defines `init`, `act`, `remember` and `update`, and has a `batch_size`. The
    other properties and functions have defaults; override those that differ.

    `act` sees all seeds at once (leading axes: seeds, environments), so that a projection which no seed needs is not
    computed. All other functions see one seed, and the training loop maps them over seeds.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    """Named sets of settings, which `with_presets` fills."""

    # Required ----------------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Return the transitions per update."""

    @abc.abstractmethod
    def init(self, key: jax.Array, spec: Spec) -> Any:
        """Return a new state."""

    @abc.abstractmethod
    def act(
        self, state: Any, spec: Spec, observation: jax.Array, context: jax.Array, keys: jax.Array, warm: bool
    ) -> Draw:
        """Choose actions at (seeds, environments, observation size); `warm` is True during random warm-up."""

    @abc.abstractmethod
    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return what one step of all environments of a seed adds to each replay buffer."""

    @abc.abstractmethod
    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        """Take one gradient step on one batch."""

    # Properties with defaults ------------------------------------------------------------------------------------

    @property
    def proposals(self) -> int:
        """Return how many actions are proposed per step."""
        return 1

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the names of the replay buffers; the first one fills what the others leave of a batch."""
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

    @property
    def augmented(self) -> bool:
        """Return whether rejected proposals are stored as self-loops with reward 0, which needs rewards >= 0."""
        return False

    @property
    def preference_size(self) -> int:
        """Return how many entries of a preference the policy reads; 0 if it has none."""
        return 0

    @property
    def min_return_weight(self) -> float:
        """Return the smallest weight of the return among the preferences that are learnt."""
        return 0.0

    @property
    def exploration(self) -> float:
        """Return the standard deviation, in [-1, 1], of noise that acting adds to a deterministic policy."""
        return 0.0

    @property
    def evaluates_samples(self) -> bool:
        """Return whether evaluation executes the first feasible of `proposals` samples instead of the mode."""
        return False

    @property
    def scales_task(self) -> bool:
        """Return whether training scales observations and rewards, unless the task or the run decides otherwise."""
        return False

    def head(self, spec: Spec) -> Head | None:
        """Describe how the exported network `actor` becomes actions; without a head a policy cannot be deployed."""
        return None

    def starts_warm(self, spec: Spec) -> bool:
        """Return whether the first policy is the task's reference action, and so worth an evaluation."""
        return False

    # Functions with defaults -------------------------------------------------------------------------------------

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw what an environment keeps for one episode, such as a preference, with a last axis of any size."""
        return jnp.zeros((*shape, 0))

    def adapt(self, state: Any, spec: Spec, draw: Draw, step: jax.Array, warm: bool) -> Any:
        """Return the state after an environment step, for slow controllers and counters."""
        return state

    def batch_fractions(self, state: Any, spec: Spec, step: jax.Array) -> jax.Array:
        """Return the fraction of a batch to draw from each buffer but the first."""
        return jnp.zeros(0)

    def noise(self, key: jax.Array, spec: Spec) -> Any:
        """Draw all randomness of one update; by default `update` gets the key itself."""
        return key

    def mode(self, state: Any, spec: Spec, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Return the policy's deterministic action before projection: the head without noise, or one fixed sample."""
        head = self.head(spec)
        if head is None:
            return self.samples(state, spec, observation, preference, jax.random.key(0), 1)[..., 0, :]
        parameters = self.export(state)
        noise = jnp.zeros((*observation.shape[:-1], spec.box.size))
        query = Query(observation, head.output(parameters, observation, preference), noise)
        return jnp.asarray(head.actions(spec, parameters, query))

    def samples(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw (..., count, action size) actions before rejection and projection: by the head, or as `act` proposes."""
        head = self.head(spec)
        if head is not None and head.takes_noise:
            parameters = self.export(state)
            output = head.output(parameters, observation, preference)
            noise = jax.random.normal(key, (*observation.shape[:-1], count, spec.box.size), jnp.float32)
            query = Query(observation[..., None, :], output[..., None, :], noise)
            return jnp.asarray(head.actions(spec, parameters, query))
        rows = observation.reshape(1, -1, observation.shape[-1])
        wanted = preference if self.preference_size else preference[:0]
        context = jnp.broadcast_to(wanted, (1, rows.shape[1], wanted.shape[-1]))
        seeds = jax.tree.map(lambda leaf: leaf[None], state)

        def one(sample_key: jax.Array) -> jax.Array:
            draw = self.act(seeds, spec, rows, context, sample_key[None], False)
            return draw.proposals[0, :, 0].reshape(*observation.shape[:-1], -1)

        return jax.vmap(one, out_axes=-2)(jax.random.split(key, count))

    def export(self, state: Any) -> Any:
        """Return the arrays that acting needs after training; by default the whole state.

        A learner with a head returns a mapping: `actor` is the network, other names are those that the head reads.
        """
        return state
