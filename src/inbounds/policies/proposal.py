"""Proposals: a Gaussian squashed by tanh and stretched over the action box."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.policies.networks import Network

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class ActionBox(NamedTuple):
    """The box that the squashed policy fills, in the environment's units."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @property
    def size(self) -> int:
        """Return the dimension of the action."""
        return int(self.low.shape[-1])

    def stretch(self, squashed: jax.Array) -> jax.Array:
        """Map (-1, 1) to the box; rounding never leaves it."""
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return jnp.clip(middle + half * squashed, self.low, self.high)

    def normalise(self, action: jax.Array) -> jax.Array:
        """Map the box back to [-1, 1], the range in which critics see actions."""
        middle, half = 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)
        return (action - middle) / half


class Proposal(NamedTuple):
    """The distribution of a proposal before squashing: independent entries with these means and scales."""

    mean: jax.Array
    log_std: jax.Array


def proposal_from_output(output: jax.Array) -> Proposal:
    """Split the network's output into mean and logarithm of the scale, kept within its usual range."""
    mean, log_std = jnp.split(output, 2, axis=-1)
    return Proposal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))


TARGET_LOG_STD = -1.0 - 0.5 * math.log(2.0 * math.pi * math.e)
"""The log-scale at which every entry of an unsquashed Gaussian has entropy -1, the target of a tuned alpha."""


def before_squashing(box: ActionBox, action: jax.Array) -> jax.Array:
    """Return arctanh of an action in [-1, 1]; the corners of the box, which are at infinity, are moved to 0.99."""
    return jnp.arctanh(jnp.clip(box.normalise(action.astype(jnp.float32)), -0.99, 0.99))


def narrow_around(network: Network, mean: jax.Array | None) -> Network:
    """Return the network with a constant output: this mean (None: zero) and the scale of entropy -1."""
    last = network[-1]
    size = last.bias.shape[-1] // 2
    centre = jnp.zeros(size) if mean is None else mean
    bias = jnp.concatenate([centre, jnp.full(size, TARGET_LOG_STD)])
    return (*network[:-1], last._replace(weight=jnp.zeros_like(last.weight), bias=bias))


class Squashed(NamedTuple):
    """A proposal in (-1, 1) with its log-density there."""

    value: jax.Array
    log_density: jax.Array


def squash(proposal: Proposal, noise: jax.Array) -> Squashed:
    """Return tanh(mean + std * noise) and its log-density.

    log pi(a) = sum_i [ log N(x_i; mean_i, std_i) - log(1 - tanh(x_i)^2) ], where the last term is computed as
    2 (log 2 - x - softplus(-2x)), which does not overflow. Extra leading axes of `noise` draw more than once.
    """
    unsquashed = proposal.mean + jnp.exp(proposal.log_std) * noise
    normal = -0.5 * (noise**2 + math.log(2 * math.pi)) - proposal.log_std
    slope = 2.0 * (math.log(2.0) - unsquashed - jax.nn.softplus(-2.0 * unsquashed))
    return Squashed(jnp.tanh(unsquashed), jnp.sum(normal - slope, axis=-1))
