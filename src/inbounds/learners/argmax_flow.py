"""Argmax flows: a distribution over integers as the largest of real numbers that a flow makes (arXiv:2102.05379).

Each of d entries with K levels gets K real numbers v, drawn from a conditional flow; the level of the largest is the
action. pi(a|s) is the integral of p(v|s) over all v with that argmax, which only bounds can give.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from inbounds.learners.networks import init_flow, init_network
from inbounds.policies.coupling_flow import Flow, to_action, to_action_with_slope, to_latent
from inbounds.policies.gaussian import Gaussian, gaussian_of
from inbounds.policies.networks import Network, apply_network


class ArgmaxFlow(NamedTuple):
    """p(v|s): a conditional Gaussian and a flow behind it; q(v|a,s): where v may have come from."""

    base: Network
    flow: Flow
    posterior: Flow


class Bounds(NamedTuple):
    """Estimates of log pi(a|s): the lower bound E_q[log w] and the upper bound log E_q[w^2] / 2, w = p / q."""

    lower: jax.Array
    upper: jax.Array

    @property
    def middle(self) -> jax.Array:
        """Return the mean of both bounds."""
        return 0.5 * (self.lower + self.upper)


def init_argmax_flow(
    key: jax.Array,
    observation: int,
    entries: int,
    levels: int,
    hidden: tuple[int, ...],
    layers: int,
    posterior_layers: int,
) -> ArgmaxFlow:
    """Return a fresh policy: nearly uniform, since all numbers of an entry start with the same base."""
    base_key, flow_key, posterior_key = jax.random.split(key, 3)
    size = entries * levels
    *inner, last = init_network(base_key, (observation, *hidden, 2 * size))
    return ArgmaxFlow(
        base=(*inner, last._replace(weight=0.1 * last.weight)),
        flow=init_flow(flow_key, size, observation, layers, hidden),
        posterior=init_flow(posterior_key, size, observation + size, posterior_layers, hidden),
    )


def base_distribution(policy: ArgmaxFlow, observation: jax.Array) -> Gaussian:
    """Return the conditional Gaussian."""
    return gaussian_of(apply_network(policy.base, observation))


def log_normal(noise: jax.Array) -> jax.Array:
    """Return the log-density of standard normal entries."""
    return jnp.sum(-0.5 * (noise**2 + math.log(2 * math.pi)), axis=-1)


def drawn_levels(policy: ArgmaxFlow, observation: jax.Array, noise: jax.Array, levels: int) -> jax.Array:
    """Return the levels (..., entries) that noise (..., entries * levels) leads to."""
    base = base_distribution(policy, observation)
    numbers = to_action(policy.flow, base.mean + jnp.exp(base.log_std) * noise, observation)
    return jnp.argmax(numbers.reshape(*numbers.shape[:-1], -1, levels), axis=-1)


def log_numbers(policy: ArgmaxFlow, observation: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return log p(v|s)."""
    base = base_distribution(policy, observation)
    latent = to_latent(policy.flow, numbers, observation)
    noise = (latent.value - base.mean) * jnp.exp(-base.log_std)
    return log_normal(noise) - jnp.sum(base.log_std, axis=-1) + jnp.asarray(latent.log_slope)


class Explained(NamedTuple):
    """Numbers v whose argmax is a given action, and log q(v|a,s)."""

    numbers: jax.Array
    log_density: jax.Array


def explained(
    policy: ArgmaxFlow, observation: jax.Array, level: jax.Array, noise: jax.Array, levels: int
) -> Explained:
    """Draw v from q(v|a,s): a flow makes u, and what exceeds the number T of the chosen level is pressed below it.

    v_k = T - softplus(T - u_k) for all other levels k of an entry, whose slope is sigmoid(T - u_k).
    """
    chosen = jax.nn.one_hot(level, levels)
    condition = jnp.concatenate([observation, chosen.reshape(*level.shape[:-1], -1)], axis=-1)
    made = to_action_with_slope(policy.posterior, noise, condition)
    free = made.value.reshape(*level.shape, levels)
    top = jnp.sum(chosen * free, axis=-1, keepdims=True)
    below = top - free
    numbers = jnp.where(chosen > 0, free, top - jax.nn.softplus(below))
    slope = jnp.sum(jnp.where(chosen > 0, 0.0, jax.nn.log_sigmoid(below)), axis=(-2, -1))
    return Explained(numbers.reshape(*level.shape[:-1], -1), log_normal(noise) - made.log_slope - slope)


def log_density_bounds(
    policy: ArgmaxFlow, observation: jax.Array, level: jax.Array, noise: jax.Array, levels: int
) -> Bounds:
    """Return bounds of log pi(a|s) from several draws of q.

    Args:
        policy: the flow and its posterior.
        observation: (..., observation size).
        level: (..., entries).
        noise: (draws, ..., entries * levels), standard normal.
        levels: K.
    """
    spread = (noise.shape[0], *level.shape[:-1])
    seen = jnp.broadcast_to(observation, (*spread, observation.shape[-1]))
    chosen = jnp.broadcast_to(level, (*spread, level.shape[-1]))
    where = explained(policy, seen, chosen, noise, levels)
    log_weight = log_numbers(policy, seen, where.numbers) - where.log_density
    largest = jax.nn.logsumexp(2.0 * log_weight, axis=0) - math.log(noise.shape[0])
    return Bounds(jnp.mean(log_weight, axis=0), 0.5 * largest)
