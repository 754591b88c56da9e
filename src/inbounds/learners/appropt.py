"""ApprOpt: an actor that ends in a clamp for allocations, cheap and feasible without any solver."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from inbounds.constraints.intersection import BoxLike
from inbounds.constraints.sum_band import SumBand
from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Spec
from inbounds.learners.settings import with_presets
from inbounds.learners.td3 import (
    ActorStep,
    DeterministicActorCritic,
    DeterministicState,
    drawn_through_layer,
)
from inbounds.learners.violation_cost import violation_penalty
from inbounds.policies.acceptance import Draw
from inbounds.policies.heads import Allocation
from inbounds.policies.networks import Network

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    # The DDPG of Bhatia et al.; their layer norm, parameter noise, observation stack and smaller step of the actor
    # (1e-4) are left out.
    "bhatia": {
        "hidden": (400, 300),
        "batch_size": 128,
        "tau": 0.001,
        "gamma": 1.0,
        "critics": 1,
        "smoothing": 0.0,
        "policy_delay": 1,
    },
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class ApprOpt(DeterministicActorCritic):
    """ApprOpt (Bhatia et al. 2019) in TD3, for sets sum_i a_i = total (up to a tolerance), low <= a <= high.

    The actor's output, stretched over the box, is shifted to the total and clamped until nothing breaks a
    limit. Gradients pass through the layer, noise is added before it, and what it returns is executed and
    stored. It never asks a solver.
    """

    leaky: bool = False
    """Let clamped entries pass gradients as if they were free."""
    penalty: float = 0.0
    """Price of the distance of the actor's output to the set before the layer."""

    def init(self, key: jax.Array, spec: Spec) -> DeterministicState:
        """Refuse sets that are not allocations, then start as TD3 does."""
        others = [member for member in spec.constraint.members() if not isinstance(member, BoxLike)]
        if len(others) != 1 or not isinstance(others[0], SumBand):
            raise ConfigurationError(
                f"ApprOpt shares out a total, but the set is {spec.constraint.formula()}. "
                f"Use OptLayer, whose layer knows every set, or a SumBand or Simplex with a Box."
            )
        return super().init(key, spec)

    def head(self, spec: Spec) -> Allocation:
        """Return the head that shifts and clamps the actor's output."""
        return Allocation(leaky=self.leaky)

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute what the layer returns; validity is reported for the actor's own output."""
        return drawn_through_layer(
            spec, observation, squashed, self.bounded(layer, spec, observation, squashed)
        )

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1 after the layer, plus the price of the output before it."""
        step = super().actor_step(actor, state, spec, observation)
        if self.penalty == 0:
            return step
        penalty = violation_penalty(spec, observation, self.squashed(actor, observation))
        return step._replace(loss=step.loss + self.penalty * jnp.mean(penalty))
