"""TD3 plus projection: no awareness of the constraint, the floor that every method should beat."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from inbounds.learners.deterministic import ActorStep, DeterministicActorCritic, DeterministicState
from inbounds.learners.learner import Spec, with_presets
from inbounds.learners.penalty import violation_penalty
from inbounds.policies.acceptance import Draw
from inbounds.policies.networks import Network

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"hidden": (400, 300), "batch_size": 100},
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Td3(DeterministicActorCritic):
    """TD3 whose executed action is the projection of the actor's, and whose learning never hears of it.

    Two switches span a family (Kasaura et al. 2023): what is stored, and a price c g(s, mu(s)) on the actor's
    distance to the set. TD3 and DPro store projected actions, DPre stores those of the actor; a plus means c
    = 1.
    """

    stored: Literal["projected", "raw"] = "projected"
    """Which action enters the replay: the executed one, or the actor's before projection."""
    penalty: float = 0.0
    """c, the price of the actor's distance to the set."""

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the executed or the raw action."""
        return draw.action if self.stored == "projected" else draw.proposals[:, 0]

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1(s, mu(s)) + c mean g(s, mu(s))."""
        step = super().actor_step(actor, state, spec, observation)
        if self.penalty == 0:
            return step
        price = violation_penalty(spec, observation, self.squashed(actor, observation))
        return step._replace(loss=step.loss + self.penalty * jnp.mean(price))
