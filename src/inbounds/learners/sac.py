"""SAC plus projection: no awareness of the constraint, the floor that every method should beat."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax

from inbounds.learners.learner import Spec, with_presets
from inbounds.learners.penalty import violation_penalty
from inbounds.learners.stochastic import StochasticActorCritic
from inbounds.policies.acceptance import Draw

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 3e-4, "hidden": (256, 256), "batch_size": 256},
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Sac(StochasticActorCritic):
    """SAC whose executed action is the projection of the drawn one, and whose learning never hears of it.

    Two switches span a family (Kasaura et al. 2023): what is stored, and a price c g(s, a) on the drawn
    action's distance to the set. SAC and SPro store projected actions, SPre stores the drawn ones; a plus
    means c = 1.
    """

    stored: Literal["projected", "raw"] = "projected"
    """Which action enters the replay: the executed one, or the drawn one before projection."""
    penalty: float = 0.0
    """c, the price of a drawn action's distance to the set."""

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the executed or the raw action."""
        return draw.action if self.stored == "projected" else draw.proposals[:, 0]

    def price(self, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Return c g(s, a)."""
        if self.penalty == 0:
            return super().price(spec, observation, action)
        return self.penalty * violation_penalty(spec, observation, action)
