"""NFWPO: the actor regresses on Frank-Wolfe steps inside the set, at the price of two solver calls per row."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from inbounds.learners.learner import Spec
from inbounds.learners.settings import with_presets
from inbounds.learners.td3 import ActorStep, DeterministicActorCritic, DeterministicState
from inbounds.policies.networks import Network, q_values

PROJECTION, LINEAR_PROGRAM = "projection", "linear_program"

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256, "rate": 0.01},
    "kasaura": {"hidden": (400, 300), "batch_size": 100, "rate": 0.01},
    # One critic, no smoothing and no delay: the DDPG of the method's own authors, at an affordable batch. Actor and
    # critic share one step size here; theirs are 1e-4 and 1e-3.
    "lin": {
        "hidden": (400, 300),
        "batch_size": 16,
        "tau": 0.001,
        "critics": 1,
        "smoothing": 0.0,
        "policy_delay": 1,
        "rate": 0.05,
    },
}


class FrankWolfe(NamedTuple):
    """Where a Frank-Wolfe step leads, in [-1, 1], and which rows had to be projected before it."""

    target: jax.Array
    is_projected: jax.Array


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Nfwpo(DeterministicActorCritic):
    """NFWPO (Lin et al. 2021) in TD3, as the benchmark of Kasaura et al. has it.

    For every state of a batch: a_0 = Pi_C(mu(s)), G = grad_a Q_1(s, a_0), c = argmax <x, G> over x in C(s),
    and the actor descends |mu(s) - (a_0 + beta (c - a_0))|^2. No gradient passes through a projection, so
    that none vanishes there.
    """

    rate: float = 0.05
    """beta, the length of a Frank-Wolfe step. Lin et al. use 0.01 on HalfCheetah and 0.05 elsewhere, Kasaura et al.
    0.05 on Reacher and 0.01 elsewhere; the ARAM paper has 0.01 for all."""

    causes: ClassVar[tuple[str, ...]] = (PROJECTION, LINEAR_PROGRAM)

    def frank_wolfe(
        self, critic: Network, spec: Spec, observation: jax.Array, squashed: jax.Array
    ) -> FrankWolfe:
        """Return a_0 + beta (c - a_0), between the projected action and the farthest one along the gradient."""
        box, constraint = spec.box, spec.constraint
        raw = box.rescale(squashed)
        is_feasible = constraint.contains(observation, raw)
        start = box.normalise(constraint.project(observation, raw))

        def value(action: jax.Array) -> jax.Array:
            return jnp.sum(q_values(critic, observation, action)[:, 0, 0])

        # In the environment's units a gradient is divided by what actions are multiplied with.
        gradient = jax.grad(value)(start) / (0.5 * (box.high - box.low))
        corner = box.normalise(constraint.linear_maximiser(observation, gradient))
        return FrankWolfe(start + self.rate * (corner - start), ~is_feasible)

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return the mean squared distance of the actor to its Frank-Wolfe targets."""
        squashed = self.squashed(actor, observation)
        step = jax.lax.stop_gradient(self.frank_wolfe(state.critic, spec, observation, squashed))
        calls: dict[str, jax.Array | int] = {
            PROJECTION: jnp.sum(step.is_projected, dtype=jnp.int32),
            LINEAR_PROGRAM: observation.shape[0],
        }
        return ActorStep(jnp.mean(jnp.sum((squashed - step.target) ** 2, axis=-1)), calls)
