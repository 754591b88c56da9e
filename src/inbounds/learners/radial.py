"""DAlpha, DRad and SRad: a layer along rays from a centre of the set makes every action valid by construction."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from inbounds.learners.learner import Spec
from inbounds.learners.sac import StochasticActorCritic, StochasticState
from inbounds.learners.settings import with_presets
from inbounds.learners.solver_calls import add_calls
from inbounds.learners.td3 import (
    DeterministicActorCritic,
    DeterministicState,
    TargetAction,
    drawn_through_layer,
)
from inbounds.policies.acceptance import Draw, project_proposals
from inbounds.policies.gaussian import Gaussian, Squashed, log_normal, sample
from inbounds.policies.heads import AlongRay, RadialGaussian
from inbounds.policies.radial import alpha_projection, radial_log_slope, radial_squash, ray, shrinkage

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


def projected_along_ray(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the action in [-1, 1] after alpha-projection."""
    return jnp.asarray(alpha_projection(ray(spec.constraint, spec.box, observation, action)))


@with_presets(DETERMINISTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Drad(DeterministicActorCritic):
    """DRad (Kasaura et al. 2023): TD3 with the layer c + tanh(L)/L (mu - c), smooth everywhere.

    Noise is added before the layer, the executed action is stored, and gradients pass through the layer. The
    smoothed target action is brought back to the set by alpha-projection.
    """

    smooth: ClassVar[bool] = True
    causes: ClassVar[tuple[str, ...]] = (CENTRE,)

    def head(self, spec: Spec) -> AlongRay:
        """Return the head that moves the actor's output along its ray into the set."""
        return AlongRay(smooth=self.smooth)

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute what the layer makes of the noisy output."""
        return drawn_through_layer(
            spec, observation, squashed, self.bounded(layer, spec, observation, squashed)
        )

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return alpha(L(mu_bar(s')) + noise); where L is alpha-projection itself, it is applied once."""
        action = self.squashed(state.target_actor, observation)
        if self.smooth:
            action = self.bounded(state.layer, spec, observation, action)
        return TargetAction(projected_along_ray(spec, observation, action + noise), {})

    def adapt(
        self, state: DeterministicState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> DeterministicState:
        """Count one centre for every state that was acted in."""
        return state._replace(calls=add_calls(state.calls, {CENTRE: draw.action.shape[0]}))


@with_presets(DETERMINISTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Dalpha(Drad):
    """DAlpha (Kasaura et al. 2023): TD3 with the layer c + (mu - c)/max(L, 1), which moves only what is outside."""

    smooth: ClassVar[bool] = False


@with_presets(STOCHASTIC_PRESETS)
@dataclasses.dataclass(frozen=True)
class Srad(StochasticActorCritic):
    """SAC whose policy is a Gaussian squashed radially into C(s), with its exact density (Kasaura et al. 2023).

    log pi(x|s) = log N(a; mean, std) - log |det| of the squash, for x = c + tanh(L)/L (a - c).
    """

    causes: ClassVar[tuple[str, ...]] = (CENTRE,)

    def sample(self, spec: Spec, observation: jax.Array, proposal: Gaussian, noise: jax.Array) -> Squashed:
        """Return a radially squashed Gaussian and its log-density in [-1, 1]."""
        drawn, log_density = sample(proposal, noise), jnp.sum(log_normal(proposal, noise), axis=-1)
        at = ray(spec.constraint, spec.box, observation, drawn)
        shrink = shrinkage(at.gauge)
        log_density = log_density - radial_log_slope(at, shrink)
        return Squashed(radial_squash(at, shrink), log_density)

    def head(self, spec: Spec) -> RadialGaussian:
        """Return the policy head."""
        return RadialGaussian()

    def draw(self, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Execute the drawn action, which is inside; the first random ones fill the box and are moved here."""
        inside = spec.box.rescale(projected_along_ray(spec, observation, squashed))
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
        spread = jax.tree.map(lambda leaf: leaf[..., None, :], proposal)
        return jnp.asarray(spec.box.rescale_unbounded(sample(spread, noise)))

    def adapt(
        self, state: StochasticState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> StochasticState:
        """Count one centre for every state that was acted in."""
        return state._replace(calls=add_calls(state.calls, {CENTRE: draw.action.shape[0]}))
