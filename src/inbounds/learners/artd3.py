"""Acceptance-rejection and the augmented MDP on TD3: the two ideas of ARAM without its base learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from inbounds.learners.aram import AUGMENTED, REAL, self_loops
from inbounds.learners.learner import Memory, Outcome, Spec, real_transitions
from inbounds.learners.settings import require_valid, with_presets
from inbounds.learners.td3 import DeterministicActorCritic, DeterministicState
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.heads import Deterministic, Query
from inbounds.policies.networks import apply_network

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class ArTd3(DeterministicActorCritic):
    """TD3 on the augmented MDP at one preference (lambda_r, lambda_c).

    Proposals mu(s) + noise are drawn until one is feasible; the accepted one earns lambda_r r, and each rejected
    one is remembered as a self-loop (s, a, -lambda_c K, s). The critics thus price infeasible actions, and the
    actor needs neither a projection nor a penalty of its own.
    """

    proposals: int = 100
    """Proposals per action; projection is computed only if none is feasible."""
    penalty: float = 0.2
    """K, the penalty of a rejected proposal."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Weights of the return and of the constraint."""
    eta: float = 0.2
    """Fraction of a batch that comes from the self-loops."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained."""
        require_valid(self, excluded={"penalty": 0.0})

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the replay buffers of real transitions and of self-loops."""
        return (REAL, AUGMENTED)

    @property
    def augmented(self) -> bool:
        """Return True: rejected proposals are stored as self-loops."""
        return True

    def act(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        warm: bool,
    ) -> Draw:
        """Take the first feasible proposal: noise around the actor's output, or uniform at first."""
        shape = (observation.shape[1], self.proposals, spec.box.size)
        if warm:
            squashed = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
            return accept_first(spec.constraint, observation, spec.box.rescale(squashed))
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        output = jax.vmap(apply_network)(state.actor, observation)
        query = Query(observation[..., None, :], output[..., None, :], noise)
        proposals = jnp.broadcast_to(self.head(spec).actions(spec, state.layer, query), noise.shape)
        return accept_first(spec.constraint, observation, proposals)

    def head(self, spec: Spec) -> Deterministic:
        """Return the policy head: noise around the actor's output."""
        return Deterministic(proposals=self.proposals, std=self.exploration)

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions with lambda_r r, and one self-loop per rejected proposal."""
        weight, cost = self.preference
        real = real_transitions(observation, draw.action, outcome._replace(reward=weight * outcome.reward))
        loops = self_loops(observation, draw, jnp.asarray([-cost * self.penalty]))
        return {**real, AUGMENTED: Memory(loops, draw.is_rejected.reshape(-1))}

    def batch_fractions(self, state: DeterministicState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta."""
        return jnp.full(1, self.eta)
