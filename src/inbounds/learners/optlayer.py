"""OptLayer: an actor that ends in an exact, differentiable projection, and its vanishing gradients."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from inbounds.learners.learner import Spec
from inbounds.learners.settings import with_presets
from inbounds.learners.solver_calls import add_calls
from inbounds.learners.td3 import (
    ActorStep,
    DeterministicActorCritic,
    DeterministicState,
    TargetAction,
)
from inbounds.learners.violation_cost import violation_penalty
from inbounds.policies.acceptance import Draw
from inbounds.policies.networks import Network

LAYER = "layer"

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"hidden": (400, 300), "batch_size": 100},
    # DDPG with OptLayer as the authors of NFWPO run it: the actor moves every 50th update. Targets move with it, by as
    # much as their 0.001 per update adds up to. Actor and critic share one step size; theirs are 1e-4 and 1e-3.
    "lin": {
        "hidden": (400, 300),
        "batch_size": 16,
        "tau": 0.0488,
        "critics": 1,
        "smoothing": 0.0,
        "policy_delay": 50,
    },
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class OptLayer(DeterministicActorCritic):
    """OptLayer (Pham et al. 2018) in TD3: L(a) = Pi_C(a) is the actor's last layer, in acting and in learning.

    The projections of this library are closed forms or Newton steps on the optimality conditions, so that
    their derivative is the implicit one: on an active face the normal part of a gradient vanishes, and at a
    vertex all of it does. Noise comes before the layer, and what the layer returns is executed and stored.
    """

    penalty: float = 0.0
    """c, the price of the actor's distance to the set before the layer, which keeps a gradient alive (DOpt+)."""

    causes: ClassVar[tuple[str, ...]] = (LAYER,)

    def bounded(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> jax.Array:
        """Project the actor's output."""
        projected: jax.Array = spec.constraint.project(observation, spec.box.rescale(squashed))
        return spec.box.normalise(projected)

    def mode(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return L(mu(s)) in the environment's units."""
        squashed = self.squashed(state.actor, observation)
        return spec.box.rescale(self.bounded(state.layer, spec, observation, squashed))

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute the layer's output, which needs no further projection; validity is that of its input."""
        proposal = spec.box.rescale(squashed)
        is_feasible = spec.constraint.contains(observation, proposal)
        return Draw(
            action=spec.constraint.project(observation, proposal),
            proposals=proposal[..., None, :],
            is_rejected=~is_feasible[..., None],
            is_projected=jnp.zeros(is_feasible.shape, bool),
            acceptance=is_feasible.astype(jnp.float32),
        )

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return clip(L(mu_bar(s')) + noise), which is not projected again."""
        action = self.bounded(state.layer, spec, observation, self.squashed(state.target_actor, observation))
        return TargetAction(jnp.clip(action + noise, -1.0, 1.0), {LAYER: observation.shape[0]})

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1(s, L(mu(s))) + c mean g(s, mu(s)); the price is that of the layer's input."""
        step = super().actor_step(actor, state, spec, observation)
        calls: dict[str, jax.Array | int] = {LAYER: observation.shape[0]}
        if self.penalty == 0:
            return ActorStep(step.loss, calls)
        penalty = violation_penalty(spec, observation, self.squashed(actor, observation))
        return ActorStep(step.loss + self.penalty * jnp.mean(penalty), calls)

    def adapt(
        self, state: DeterministicState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> DeterministicState:
        """Count one call of the layer for every action."""
        return state._replace(calls=add_calls(state.calls, {LAYER: draw.action.shape[0]}))
