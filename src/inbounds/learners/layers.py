"""Actors that end in a layer which maps into the set: OptLayer, ApprOpt, DAlpha, DRad and SRad."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from inbounds.constraints.box import BoxLike
from inbounds.constraints.sum_band import SumBand
from inbounds.errors import ConfigurationError
from inbounds.learners import sac, td3
from inbounds.learners.costs import add_calls
from inbounds.learners.learner import Learner, Outcome, Spec, project_proposals
from inbounds.learners.sac import StochasticActorCritic, StochasticState
from inbounds.learners.settings import with_presets
from inbounds.learners.td3 import (
    ActorStep,
    DeterministicActorCritic,
    DeterministicState,
    TargetAction,
    draw_through_layer,
)
from inbounds.policies.acceptance import Draw
from inbounds.policies.gaussian import Gaussian, Squashed, log_normal, sample
from inbounds.policies.heads import Allocation, AlongRay, RadialGaussian
from inbounds.policies.layers import alpha_projection, radial_log_slope, radial_squash, ray, shrinkage
from inbounds.policies.networks import Network

LAYER, CENTRE = "layer", "centre"
"""Causes of solver calls: a projection by the layer, and the search for a point inside C(s), once per state."""
OPTLAYER_PRESETS: dict[str, dict[str, Any]] = {
    **td3.PRESETS,
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
APPROPT_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": td3.PRESETS["paper"],
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


def counting(cause: str) -> Callable[..., Any]:
    """Return an `adapt` that counts one solver call of this cause for every executed action."""

    def adapt(
        learner: Learner,
        state: Any,
        spec: Spec,
        draw: Draw,
        outcome: Outcome,
        step: jax.Array,
        is_random: bool,
    ) -> Any:
        return state._replace(calls=add_calls(state.calls, {cause: draw.action.shape[0]}))

    return adapt


@with_presets(OPTLAYER_PRESETS)
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
        step = super().actor_step(actor, state, spec, observation)._replace(calls={LAYER: len(observation)})
        return td3.penalised(step, self.penalty, spec, observation, self.squashed(actor, observation))

    adapt = counting(LAYER)


@with_presets(APPROPT_PRESETS)
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

    draw = draw_through_layer

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1 after the layer, plus the price of the output before it."""
        step = super().actor_step(actor, state, spec, observation)
        return td3.penalised(step, self.penalty, spec, observation, self.squashed(actor, observation))


def projected_along_ray(spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the action in [-1, 1] after alpha-projection."""
    return jnp.asarray(alpha_projection(ray(spec.constraint, spec.box, observation, action)))


@with_presets(td3.PRESETS)
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

    draw = draw_through_layer

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return alpha(L(mu_bar(s')) + noise); where L is alpha-projection itself, it is applied once."""
        action = self.squashed(state.target_actor, observation)
        if self.smooth:
            action = self.bounded(state.layer, spec, observation, action)
        return TargetAction(projected_along_ray(spec, observation, action + noise), {})

    adapt = counting(CENTRE)


@with_presets(td3.PRESETS)
@dataclasses.dataclass(frozen=True)
class Dalpha(Drad):
    """DAlpha (Kasaura et al. 2023): TD3 with the layer c + (mu - c)/max(L, 1), which moves only what is outside."""

    smooth: ClassVar[bool] = False


@with_presets(sac.PRESETS)
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

    adapt = counting(CENTRE)
