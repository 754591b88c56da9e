"""The contract between a learner and the loop: a frozen dataclass of settings with pure functions over one state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.references import Reference
from inbounds.errors import UnknownNameError
from inbounds.policies.acceptance import Draw
from inbounds.policies.networks import InputScale
from inbounds.policies.proposal import ActionBox
from inbounds.replay.ring import Transition

Metrics = dict[str, jax.Array]


class Spec(NamedTuple):
    """What a learner knows of a task: sizes, the action box and the constraint, but no environment."""

    observation_size: int
    box: ActionBox
    constraint: Constraint
    inputs: InputScale | None = None
    """What networks see observations relative to; None leaves them as they are."""
    start: Reference | NDArray[np.float32] | None = None
    """A sensible action, as a part of the observation or the same in all states: where a policy may begin."""
    discount: float = 0.99
    """What a reward one step later is worth, for learners that leave it to the task."""

    @classmethod
    def of(
        cls,
        observation_size: int,
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        constraint: Constraint,
        shift: NDArray[np.float32] | None = None,
        scale: NDArray[np.float32] | None = None,
        start: Reference | NDArray[np.float32] | None = None,
        discount: float = 0.99,
    ) -> Spec:
        """Build a spec from the bounds of the action box, the scale of observations and a start, if any."""
        box = ActionBox(np.asarray(low, np.float32), np.asarray(high, np.float32))
        inputs = None if shift is None or scale is None else InputScale(shift, scale)
        return cls(observation_size, box, constraint, inputs, start, discount)

    def relative(self, observation: jax.Array) -> jax.Array:
        """Return observations as networks see them, for maps whose first layer does not do it itself."""
        if self.inputs is None:
            return observation
        return (observation - self.inputs.shift) / self.inputs.scale


class Outcome(NamedTuple):
    """What the environments answered to a draw (leading axes: environments)."""

    reward: jax.Array
    """The training reward, after the task's scale and shift."""
    discount: jax.Array
    """0 where the episode terminated, 1 elsewhere."""
    next_observation: jax.Array
    is_last: jax.Array | None = None
    """Whether the episode ended with this step, by termination or by the time limit; the loop always tells."""


class Memory(NamedTuple):
    """Transitions for one ring, and which of them really happened."""

    transition: Transition
    mask: jax.Array | None


class Learner(Protocol):
    """Settings plus pure functions; everything that changes lives in the state that they pass on.

    `init`, `remember`, `adapt` and `update` see one seed and are vmapped by the loop; `act` sees all seeds at
    once, because a projection that is not needed must not be computed, which `vmap` could not promise.
    """

    batch_size: int
    proposals: int

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the names of the replay's rings; the first one fills what the others leave of a batch."""
        ...

    @property
    def objectives(self) -> int:
        """Return the number of entries of a stored reward."""
        ...

    def init(self, key: jax.Array, spec: Spec) -> Any:
        """Return a fresh state."""
        ...

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw what an environment keeps for one episode (ARAM: its preference), with a last axis of any size."""
        ...

    def act(
        self, state: Any, spec: Spec, observation: jax.Array, context: jax.Array, keys: jax.Array, warm: bool
    ) -> Draw:
        """Choose actions for (seeds, environments, observation size); `warm` asks for the first random steps."""
        ...

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return what one step of all environments of a seed adds to each ring."""
        ...

    def adapt(self, state: Any, spec: Spec, draw: Draw, step: jax.Array, warm: bool) -> Any:
        """Let slow controllers see what acting looked like; most learners return the state unchanged."""
        ...

    def shares(self, state: Any, spec: Spec, step: jax.Array) -> jax.Array:
        """Return the share of a batch wanted from each ring but the first."""
        ...

    def noise(self, key: jax.Array, spec: Spec) -> Any:
        """Draw all randomness of one update, so that `update` is a function of its arguments alone."""
        ...

    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        """Take one gradient step on one minibatch."""
        ...

    def export(self, state: Any) -> Any:
        """Return the arrays that acting needs after training: what `ib.load` and a deployed policy read."""
        ...

    def deterministic(
        self, state: Any, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return the raw, unprojected action that a deployed policy is centred on."""
        ...

    def samples(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw raw, unprojected actions: (..., count, action size)."""
        ...


class OnPolicyLearner(Learner, Protocol):
    """A learner that forgets: what it did since its last update is its whole batch, and is used once.

    Every `rollout` environment steps of a seed, `update` gets all transitions of the first ring with the
    leading axes (time, environments), in order, and the ring starts anew. In between nothing is learnt, and
    what the last update reported is read from the field `metrics` that the state of such a learner has.
    """

    rollout: int


LearnerClass = TypeVar("LearnerClass", bound=type)


def with_presets(presets: Mapping[str, Mapping[str, Any]]) -> Callable[[LearnerClass], LearnerClass]:
    """Give a learner's dataclass named sets of values: `Aram(preset="paper", penalty=0.1)`.

    Explicit arguments win over the preset, the preset over the defaults.
    """

    def decorate(learner: LearnerClass) -> LearnerClass:
        plain = learner.__init__  # type: ignore[misc]  # the class is still being built, nothing subclasses it

        @functools.wraps(plain)
        def chosen(self: Any, preset: str = "default", **values: Any) -> None:
            if preset not in presets:
                raise UnknownNameError("preset", preset, presets, f"`{learner.__name__}` has these.")
            plain(self, preset=preset, **{**presets[preset], **values})

        learner.__init__ = chosen  # type: ignore[misc]
        setattr(learner, "presets", dict(presets))  # noqa: B010  # a class variable that no type names yet
        return learner

    return decorate
