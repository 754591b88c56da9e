"""DAlpha, DRad and SRad: a layer along rays from a centre of the set makes every action valid by construction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from inbounds.learners.learner import Spec
from inbounds.learners.sac import StochasticActorCritic, StochasticState
from inbounds.learners.settings import with_presets
from inbounds.learners.solver_calls import add_calls
from inbounds.learners.td3 import DeterministicActorCritic, DeterministicState, TargetAction
from inbounds.policies.acceptance import Draw, project_proposals
from inbounds.policies.proposal import Proposal, Squashed
from inbounds.policies.radial import alpha_projection, radial_squash, ray

CENTRE = "centre"
"""The cause under which the search for a point inside C(s) is counted: once for every state that is met."""

DETERMINISTIC_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"hidden": (400, 300), "batch_size": 100},
}
STOCHASTIC_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 3e-4, "hidden": (256, 256), "batch_size": 256},
}


def along_ray(kind: str, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the action in [-1, 1] after alpha-projection or radial squashing."""
    at = ray(spec.constraint, spec.box, observation, action)
    return (alpha_projection(at) if kind == "alpha" else radial_squash(at)).value


def drawn_along_ray(spec: Spec, observation: jax.Array, raw: jax.Array, bounded: jax.Array) -> Draw:
    """Execute the layer's action; validity is reported for the actor's own, which the layer corrects.

    A projection stands behind the layer: it is only ever computed, and counted, if rounding left the set.
    """
    draw = project_proposals(spec.constraint, observation, spec.box.stretch(bounded)[..., None, :])
    proposal = spec.box.stretch(raw)
    is_feasible = spec.constraint.contains(observation, proposal)
    return draw._replace(
        proposals=proposal[..., None, :],
        is_rejected=~is_feasible[..., None],
        acceptance=is_feasible.astype(jnp.float32),
    )


@with_presets(DETERMINISTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Drad(DeterministicActorCritic):
    """DRad (Kasaura et al. 2023): TD3 with the layer c + tanh(L)/L (mu - c), smooth everywhere.

    Noise is added before the layer, the executed action is stored, and gradients pass through the layer. The
    smoothed target action is brought back to the set by alpha-projection.
    """

    kind: ClassVar[Literal["radial", "alpha"]] = "radial"
    causes: ClassVar[tuple[str, ...]] = (CENTRE,)

    def bounded(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> jax.Array:
        """Move the actor's output along its ray into the set."""
        return along_ray(self.kind, spec, observation, squashed)

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute what the layer makes of the noisy output."""
        return drawn_along_ray(spec, observation, squashed, self.bounded(layer, spec, observation, squashed))

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return alpha(L(mu_bar(s')) + noise); where L is alpha-projection itself, it is applied once."""
        action = self.squashed(state.target_actor, observation)
        if self.kind == "radial":
            action = self.bounded(state.layer, spec, observation, action)
        return TargetAction(along_ray("alpha", spec, observation, action + noise), {})

    def adapt(
        self, state: DeterministicState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> DeterministicState:
        """Count one centre for every state that was acted in."""
        return state._replace(calls=add_calls(state.calls, {CENTRE: draw.action.shape[0]}))


@with_presets(DETERMINISTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Dalpha(Drad):
    """DAlpha (Kasaura et al. 2023): TD3 with the layer c + (mu - c)/max(L, 1), which moves only what is outside."""

    kind: ClassVar[Literal["radial", "alpha"]] = "alpha"


@with_presets(STOCHASTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Srad(StochasticActorCritic):
    """SAC whose law is a Gaussian squashed radially into C(s), with its exact density (Kasaura et al. 2023).

    log pi(x|s) = log N(a; mean, std) - log |det| of the squash, for x = c + tanh(L)/L (a - c).
    """

    causes: ClassVar[tuple[str, ...]] = (CENTRE,)

    def sample(self, spec: Spec, observation: jax.Array, proposal: Proposal, noise: jax.Array) -> Squashed:
        """Return a radially squashed Gaussian and its log-density in [-1, 1]."""
        gaussian = proposal.mean + jnp.exp(proposal.log_std) * noise
        log_normal = jnp.sum(-0.5 * (noise**2 + math.log(2 * math.pi)) - proposal.log_std, axis=-1)
        squashed = radial_squash(ray(spec.constraint, spec.box, observation, gaussian))
        return Squashed(squashed.value, log_normal - squashed.log_slope)

    def draw(self, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute the drawn action, which is inside; the first random ones fill the box and are moved here."""
        inside = spec.box.stretch(along_ray("alpha", spec, observation, squashed))
        return project_proposals(spec.constraint, observation, inside[..., None, :])

    def samples(
        self,
        state: StochasticState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw from the Gaussian before it is squashed: afterwards every draw is valid by construction."""
        proposal = self.proposal(state.trained.actor, observation)
        noise = jax.random.normal(key, (*observation.shape[:-1], count, spec.box.size), jnp.float32)
        gaussian = proposal.mean[..., None, :] + jnp.exp(proposal.log_std)[..., None, :] * noise
        middle, half = 0.5 * (spec.box.high + spec.box.low), 0.5 * (spec.box.high - spec.box.low)
        return gaussian * half + middle

    def adapt(
        self, state: StochasticState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> StochasticState:
        """Count one centre for every state that was acted in."""
        return state._replace(calls=add_calls(state.calls, {CENTRE: draw.action.shape[0]}))
