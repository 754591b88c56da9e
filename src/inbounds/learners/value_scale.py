"""Values relative to the running mean and deviation of their targets, so that one step size fits every reward."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from inbounds.policies.networks import Network


class ValueScale(NamedTuple):
    """Critics say `mean + deviation * output` for each objective; `first` and `second` moments of targets move them."""

    mean: jax.Array
    deviation: jax.Array
    first: jax.Array
    second: jax.Array


def unit_scale(objectives: int) -> ValueScale:
    """Return the scale under which outputs are values."""
    zeros, ones = jnp.zeros(objectives), jnp.ones(objectives)
    return ValueScale(zeros, ones, zeros, ones)


def scaled(scale: ValueScale, output: jax.Array) -> jax.Array:
    """Return values in the units of the reward from what a critic's last layer says."""
    return scale.mean + scale.deviation * output


def with_moments(scale: ValueScale, target: jax.Array, updates: jax.Array) -> ValueScale:
    """Average the moments of a batch of targets into the running ones: plainly at first, then over 1,000 updates."""
    share = jnp.maximum(1e-3, 1.0 / updates)
    first = scale.first + share * (jnp.mean(target, axis=0) - scale.first)
    second = scale.second + share * (jnp.mean(target**2, axis=0) - scale.second)
    return scale._replace(first=first, second=second)


def moved_to_moments(scale: ValueScale) -> ValueScale:
    """Return the scale whose mean and deviation are the running moments."""
    deviation = jnp.sqrt(jnp.clip(scale.second - scale.first**2, 1e-4, 1e8))
    return scale._replace(mean=scale.first, deviation=deviation)


def rescaled_critic(critic: Network, old: ValueScale, new: ValueScale) -> Network:
    """Change the last layer so that the critic's values stay the same under a new scale."""
    *hidden, last = critic
    weight = last.weight * (old.deviation / new.deviation)
    bias = (old.deviation * last.bias + old.mean - new.mean) / new.deviation
    return (*hidden, last._replace(weight=weight, bias=bias))
