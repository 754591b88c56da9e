"""The policy restricted to C(s), which is what acts: its draws and their density, from several draws of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from inbounds.learners.aram_acting import law
from inbounds.learners.learner import Spec
from inbounds.policies.networks import Network
from inbounds.policies.proposal import Squashed, squash

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram


class Truncated(NamedTuple):
    """Draws of a policy, and one of the policy restricted to C(s)."""

    raw: jax.Array
    """The first draw, wherever it lies, by reparameterisation."""
    acting: Squashed
    """The first feasible draw with log pi_C; the gradient of the density is that of the mean over pi_C."""


def truncated(
    settings: Aram,
    actor: Network,
    spec: Spec,
    observation: jax.Array,
    preference: jax.Array,
    noise: jax.Array,
) -> Truncated:
    """Draw from what acts, pi_C(a|s) = pi(a|s) 1[a in C(s)] / Z(s), with log pi_C = log pi - log Z.

    Z(s) is the feasible share of several draws (half a draw's where none is feasible, and the first stands in).
    grad E_{pi_C}[log pi_C] = Cov_{pi_C}(log pi, grad log pi), estimated by the feasible draws; unlike
    reparameterisation this sees that draws enter and leave C(s), and Z drops out of it.

    Args:
        settings: how many preferences the actor sees.
        actor: the policy network.
        spec: the task's box and constraint.
        observation: (batch, observation size).
        preference: (batch, 2).
        noise: (draws, batch, dimension), standard normal.
    """
    proposal = law(settings, actor, spec, observation, preference)
    drawn = squash(proposal, noise)
    actions = spec.box.stretch(jnp.moveaxis(jax.lax.stop_gradient(drawn.value), 0, 1))
    is_feasible = jnp.moveaxis(spec.constraint.contains(observation[:, None], actions), 1, 0)
    count, rows = jnp.sum(is_feasible, axis=0), jnp.arange(observation.shape[0])
    first = jnp.argmax(is_feasible, axis=0)
    unsquashed = jax.lax.stop_gradient(proposal.mean + jnp.exp(proposal.log_std) * noise)
    again = (unsquashed - proposal.mean) * jnp.exp(-proposal.log_std)
    density = squash(proposal, again).log_density
    known = jax.lax.stop_gradient(density)
    mean = jnp.sum(jnp.where(is_feasible, known, 0.0), axis=0) / jnp.maximum(count, 1)
    weight = jnp.where(is_feasible, known - mean, 0.0) / jnp.maximum(count - 1, 1)
    slope = jnp.sum(weight * density, axis=0)
    value = known[first, rows] - jnp.log(jnp.maximum(count, 0.5) / noise.shape[0])
    acting = Squashed(drawn.value[first, rows], value + slope - jax.lax.stop_gradient(slope))
    return Truncated(drawn.value[0], acting)
