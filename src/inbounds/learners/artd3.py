"""Acceptance-rejection and the augmented MDP on TD3: the two ideas of ARAM without its base learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from inbounds.errors import ConfigurationError
from inbounds.learners.deterministic import REAL, DeterministicActorCritic, DeterministicState
from inbounds.learners.learner import Memory, Outcome, Spec, with_presets
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.replay.ring import Transition

AUGMENTED = "augmented"
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

    proposals: int = 100  # type: ignore[misc]  # the learners that do not reject have a constant 1
    """Proposals per action; projection happens only if none is feasible."""
    penalty: float = 0.2
    """K, the price of a rejected proposal."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Weights of the return and of the constraint."""
    augmented_share: float = 0.2
    """eta, the share of a batch that comes from the self-loops."""

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        super().__post_init__()
        if self.proposals < 1 or self.penalty <= 0 or not 0 <= self.augmented_share < 1:
            raise ConfigurationError(
                "proposals must be at least 1, penalty positive, and augmented_share in [0, 1): "
                f"got {self.proposals}, {self.penalty}, {self.augmented_share}."
            )

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the rings of real transitions and of self-loops."""
        return (REAL, AUGMENTED)

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
        del context
        shape = (observation.shape[1], self.proposals, spec.box.size)
        if warm:
            squashed = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
        else:
            noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
            centre = jax.vmap(self.squashed)(state.actor, observation)
            squashed = jnp.clip(centre[..., None, :] + self.exploration * noise, -1.0, 1.0)
        return accept_first(spec.constraint, observation, spec.box.stretch(squashed))

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions with lambda_r r, and one self-loop per rejected proposal."""
        del spec
        weight, price = self.preference
        real = Transition(
            observation,
            draw.action,
            weight * outcome.reward[:, None],
            outcome.discount,
            outcome.next_observation,
        )
        environments, count, size = draw.proposals.shape
        repeated = jnp.repeat(observation, count, axis=0)
        loops = Transition(
            repeated,
            draw.proposals.reshape(environments * count, size),
            jnp.full((environments * count, 1), -price * self.penalty),
            jnp.ones(environments * count),
            repeated,
        )
        return {REAL: Memory(real, None), AUGMENTED: Memory(loops, draw.is_rejected.reshape(-1))}

    def shares(self, state: DeterministicState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta."""
        del state, spec, step
        return jnp.full(1, self.augmented_share)
