"""Critics whose hidden layers are relative to their moments over a batch, and that need no target copy for it."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from inbounds.policies.networks import Network, first_layer

LEAST_VARIANCE = 1e-3
"""What is added to a variance, so that a unit that says the same of every row is left at its bias."""


class Moments(NamedTuple):
    """What the units of a hidden layer are relative to."""

    mean: jax.Array
    deviation: jax.Array


def apply_normalised(
    network: Network, rows: jax.Array, given: tuple[Moments, ...] | None = None
) -> tuple[jax.Array, tuple[Moments, ...]]:
    """Return the outputs for a batch, and what its hidden layers were relative to.

    h = relu((y - mean) / deviation + b), y = W x + b, with mean and deviation of y over these rows, or those given. The
    mean takes the bias of y away again, like every input that is the same in all rows, so that it is added afterwards;
    a factor on each unit is left to the weights that follow.
    """
    moments: list[Moments] = []
    said = first_layer(network, rows)
    for depth, (layer, following) in enumerate(itertools.pairwise(network)):
        moments.append(moments_of(said) if given is None else given[depth])
        mean, deviation = moments[-1]
        said = jax.nn.relu((said - mean) / deviation + layer.bias) @ following.weight + following.bias
    return said, tuple(moments)


def moments_of(said: jax.Array) -> Moments:
    """Return mean and deviation of every unit over a batch."""
    return Moments(jnp.mean(said, axis=0), jnp.sqrt(jnp.var(said, axis=0) + LEAST_VARIANCE))


def values_now_and_next(
    critic: Network, now: jax.Array, following: jax.Array
) -> tuple[jax.Array, jax.Array, tuple[Moments, ...]]:
    """Return (batch, critics, outputs) of stacked critics for rows now and for those that follow, in one batch.

    Actions that follow are the policy's, those now are older: together they have the same moments in the value and in
    its target. CrossQ (Bhatt et al. 2024) found that no slow copy of the critics has to keep targets steady then. It
    differs elsewhere: it normalises inputs too, and after the activation, and its policy sees running moments of the
    updated critics, where ours sees these ones.
    """
    rows = jnp.concatenate([now, following])
    outputs, moments = jax.vmap(apply_normalised, (0, None))(critic, rows)
    outputs = jnp.moveaxis(outputs, 0, 1)
    return outputs[: len(now)], outputs[len(now) :], moments


def values_relative_to(critic: Network, moments: tuple[Moments, ...], rows: jax.Array) -> jax.Array:
    """Return (batch, critics, outputs) of stacked critics, hidden layers relative to the moments of another batch."""
    outputs, _ = jax.vmap(apply_normalised, (0, None, 0))(critic, rows, moments)
    return jnp.moveaxis(outputs, 0, 1)
