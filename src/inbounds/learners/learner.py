"""A learner: the functions of a training step, and what evaluation, run folders and deployment read besides."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from inbounds.constraints.constraint import Constraint
from inbounds.learners.step import Memory, Metrics, Outcome, Spec, StepFunctions
from inbounds.policies.acceptance import Draw
from inbounds.policies.heads import Head, Query
from inbounds.replay import Transition

__all__ = [
    "Learner",
    "Memory",
    "Metrics",
    "Outcome",
    "Spec",
    "project_proposals",
    "proposal_noise",
    "real_transitions",
    "uniform_proposals",
]


def real_transitions(observation: jax.Array, action: jax.Array, outcome: Outcome) -> dict[str, Memory]:
    """Return one transition (s, a, [r], s') per environment for the buffer `real`."""
    reward, following = outcome.reward[:, None], outcome.next_observation
    return {"real": Memory(Transition(observation, action, reward, outcome.not_done, following), None)}


def project_proposals(constraint: Constraint, observation: jax.Array, proposals: jax.Array) -> Draw:
    """Project a single proposal per state, the rule of learners that do not reject."""
    raw = proposals[..., 0, :]
    is_feasible = constraint.contains(observation, raw)
    action = jax.lax.cond(jnp.all(is_feasible), lambda _, same: same, constraint.project, observation, raw)
    return Draw(action, proposals, ~is_feasible[..., None], ~is_feasible, is_feasible.astype(jnp.float32))


def proposal_noise(key: jax.Array, shape: tuple[int, ...], student_df: float | None) -> jax.Array:
    """Draw the noise of proposals: standard normal, or Student's t with these degrees of freedom."""
    if student_df is None:
        return jax.random.normal(key, shape, jnp.float32)
    return jax.random.t(key, student_df, shape, jnp.float32)


def uniform_proposals(keys: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Draw uniformly from [-1, 1] for every seed: the proposals of the random warm-up."""
    return jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)


class Learner(StepFunctions):
    """Settings plus pure functions; everything that changes is in the state that they pass on.

    A learner is a frozen dataclass that defines `init`, `act`, `remember` and `update`, and has a `batch_size`. The
    other properties and functions have defaults; override those that differ.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    """Named sets of settings, which `with_presets` fills."""

    @property
    def preset(self) -> str:
        """Return the name of the set that the settings were taken from; a learner with presets has a field for it."""
        return "default"

    # What is trained ---------------------------------------------------------------------------------------------

    @property
    def needs_positive_rewards(self) -> bool:
        """Return whether rejected proposals are stored as discounted self-loops, which need rewards >= 0."""
        return False

    @property
    def scales_task(self) -> bool:
        """Return whether training scales observations and rewards, unless the task or the run decides otherwise."""
        return False

    def starts_warm(self, spec: Spec) -> bool:
        """Return whether the first policy is the task's reference action, so that it is evaluated too."""
        return False

    # The policy --------------------------------------------------------------------------------------------------

    @property
    def proposals(self) -> int:
        """Return how many actions are proposed per step."""
        return 1

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

    def head(self, spec: Spec) -> Head | None:
        """Describe how the exported network `actor` becomes actions; without a head a policy cannot be deployed."""
        return None

    def export(self, state: Any) -> Any:
        """Return the arrays that acting needs after training; by default the whole state.

        A learner with a head returns a mapping: `actor` is the network, other names are those that the head reads.
        """
        return state

    def with_exported(self, state: Any, exported: Any) -> Any:
        """Return the state that acts with exported arrays; by default they are leaves of the state."""
        leaves, structure = jax.tree.flatten(state)
        # Exporting the numbers of the leaves tells which array belongs where.
        places = self.export(jax.tree.unflatten(structure, list(range(len(leaves)))))
        for place, array in zip(jax.tree.leaves(places), jax.tree.leaves(exported), strict=True):
            leaves[place] = jnp.asarray(array)
        return jax.tree.unflatten(structure, leaves)

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
            noise = proposal_noise(key, (*observation.shape[:-1], count, spec.box.size), head.student_df)
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
