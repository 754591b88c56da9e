"""Conditional coupling flows: invertible maps between a cube and a set that changes with a condition.

Notation: x is an action in [-1, 1], z a latent, y the condition; g maps (z, y) to x and f is its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.policies.networks import Network, apply_network, init_network


class Coupling(NamedTuple):
    """One affine layer: the entries outside its mask are scaled and shifted by what those inside say."""

    scale: Network
    shift: Network


Flow = tuple[Coupling, ...]


class Mapped(NamedTuple):
    """Where a map leads, f(x | y) or g(z | y), and log |det| of its Jacobian there."""

    value: jax.Array
    log_slope: jax.Array


def init_flow(key: jax.Array, size: int, condition: int, layers: int, hidden: Sequence[int]) -> Flow:
    """Return a fresh flow that is nearly the identity: its last weights are a hundredth of the usual ones."""
    sizes = (size + condition, *hidden, size)

    def network(one: jax.Array) -> Network:
        *inner, last = init_network(one, sizes)
        return (*inner, last._replace(weight=0.01 * last.weight))

    keys = jax.random.split(key, 2 * layers)
    return tuple(Coupling(network(keys[2 * i]), network(keys[2 * i + 1])) for i in range(layers))


def mask_of(layer: int, size: int) -> NDArray[np.float32]:
    """Return 1 for the entries that a layer leaves as they are: the first half, or in every other layer the rest."""
    is_first = np.arange(size) < (size + 1) // 2
    return (is_first if layer % 2 == 0 else ~is_first).astype(np.float32)


def affine(
    coupling: Coupling, mask: NDArray[np.float32], value: jax.Array, condition: jax.Array
) -> jax.Array:
    """Return logarithm of the scale, bounded by 1, and shift, stacked; both are 0 inside the mask."""
    inputs = jnp.concatenate([mask * value, condition], axis=-1)
    log_scale, shift = jnp.tanh(apply_network(coupling.scale, inputs)), apply_network(coupling.shift, inputs)
    return jnp.stack([log_scale, shift]) * (1.0 - mask)


def to_action(flow: Flow, latent: jax.Array, condition: jax.Array) -> jax.Array:
    """Return x = g(z, y)."""
    return to_action_with_slope(flow, latent, condition).value


def to_action_with_slope(flow: Flow, latent: jax.Array, condition: jax.Array) -> Mapped:
    """Return x = g(z, y), layer by layer x <- x exp(s) + t outside the mask, and log |det J_g| = sum of all s."""
    value, log_slope = latent, jnp.zeros(latent.shape[:-1])
    for layer, coupling in enumerate(flow):
        log_scale, shift = affine(coupling, mask_of(layer, latent.shape[-1]), value, condition)
        value = value * jnp.exp(log_scale) + shift
        log_slope = log_slope + jnp.sum(log_scale, axis=-1)
    return Mapped(value, log_slope)


def to_latent(flow: Flow, action: jax.Array, condition: jax.Array) -> Mapped:
    """Return z = f(x, y), the layers undone in reverse order, and log |det J_f| = - sum of all s."""
    value, log_slope = action, jnp.zeros(action.shape[:-1])
    for layer, coupling in reversed(tuple(enumerate(flow))):
        log_scale, shift = affine(coupling, mask_of(layer, action.shape[-1]), value, condition)
        value = (value - shift) * jnp.exp(-log_scale)
        log_slope = log_slope - jnp.sum(log_scale, axis=-1)
    return Mapped(value, log_slope)


def mollified_uniform(latent: jax.Array, width: float) -> jax.Array:
    """Return log p(z) up to a constant: flat on [-1, 1]^d, Gaussian in the distance sum_i (|z_i| - 1)+ outside."""
    outside = jnp.sum(jnp.maximum(jnp.abs(latent) - 1.0, 0.0), axis=-1)
    return -0.5 * (outside / width) ** 2


def flow_loss(flow: Flow, action: jax.Array, condition: jax.Array, width: float) -> jax.Array:
    """Return -mean [log p(f(x | y)) + log |det J_f|] over feasible samples, the forward divergence."""
    latent = to_latent(flow, action, condition)
    return -jnp.mean(mollified_uniform(latent.value, width) + latent.log_slope)
