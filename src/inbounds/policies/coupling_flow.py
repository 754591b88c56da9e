"""Conditional coupling flows: invertible maps between a cube and a set that changes with a condition.

Notation: x is an action in [-1, 1], z a latent, y the condition; g maps (z, y) to x and f is its inverse.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import namespace_of
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.references import Reference
from inbounds.policies.box import like
from inbounds.policies.networks import Network, apply_network


class Coupling(NamedTuple):
    """One affine layer: the entries outside its mask are scaled and shifted as two networks of those inside tell."""

    scale: Network
    shift: Network


Flow = tuple[Coupling, ...]


class Mapped(NamedTuple):
    """Where a map leads, f(x | y) or g(z | y), and log |det| of its Jacobian there."""

    value: Any
    log_slope: Any


def mask_of(layer: int, size: int) -> NDArray[np.float32]:
    """Return 1 for the entries that a layer leaves as they are: the first half, or in every other layer the rest."""
    is_first = np.arange(size) < (size + 1) // 2
    return (is_first if layer % 2 == 0 else ~is_first).astype(np.float32)


def affine(coupling: Coupling, layer: int, value: Any, condition: Any) -> tuple[Any, Any]:
    """Return the logarithm of the scale, bounded by 1, and the shift; both are 0 inside the layer's mask."""
    xp, mask = namespace_of(value), mask_of(layer, value.shape[-1])
    inputs = xp.concat([like(value, mask) * value, condition], axis=-1)
    outside = like(value, np.float32(1.0) - mask)
    log_scale, shift = xp.tanh(apply_network(coupling.scale, inputs)), apply_network(coupling.shift, inputs)
    return log_scale * outside, shift * outside


def to_action(flow: Flow, latent: Any, condition: Any) -> Any:
    """Return x = g(z, y)."""
    return to_action_with_slope(flow, latent, condition).value


def to_action_with_slope(flow: Flow, latent: Any, condition: Any) -> Mapped:
    """Return x = g(z, y), layer by layer x <- x exp(s) + t outside the mask, and log |det J_g| = sum of all s."""
    xp = namespace_of(latent)
    value, log_slope = latent, xp.zeros_like(latent[..., 0])
    for layer, coupling in enumerate(flow):
        log_scale, shift = affine(coupling, layer, value, condition)
        value = value * xp.exp(log_scale) + shift
        log_slope = log_slope + xp.sum(log_scale, axis=-1)
    return Mapped(value, log_slope)


def to_latent(flow: Flow, action: Any, condition: Any) -> Mapped:
    """Return z = f(x, y), the layers undone in reverse order, and log |det J_f| = - sum of all s."""
    xp = namespace_of(action)
    value, log_slope = action, xp.zeros_like(action[..., 0])
    for layer, coupling in reversed(tuple(enumerate(flow))):
        log_scale, shift = affine(coupling, layer, value, condition)
        value = (value - shift) * xp.exp(-log_scale)
        log_slope = log_slope - xp.sum(log_scale, axis=-1)
    return Mapped(value, log_slope)


def entries_read(constraint: Constraint, observation_size: int) -> NDArray[np.int64]:
    """Return which entries of an observation a constraint reads, in order."""
    places = np.arange(observation_size, dtype=np.float64)
    read = [
        np.ravel(value.read_unscaled(places))
        for member in constraint.members()
        for value in member.parameters().values()
        if isinstance(value, Reference) and value.source == "observation"
    ]
    return np.unique(np.concatenate([np.zeros(0), *read])).astype(np.int64)


def condition_of(
    constraint: Constraint, observation: Any, condition_range: tuple[float, float] | list[float]
) -> Any:
    """Return y(s): the entries that the constraint reads, their range brought to about [-1, 1]."""
    low, high = condition_range
    xp = namespace_of(observation)
    places = xp.asarray(entries_read(constraint, observation.shape[-1]))
    return (xp.take(observation, places, axis=-1) - 0.5 * (low + high)) / (0.5 * (high - low))


def mollified_uniform(latent: Any, width: float) -> Any:
    """Return log p(z) up to a constant: flat on [-1, 1]^d, Gaussian in the distance sum_i (|z_i| - 1)+ outside."""
    xp = namespace_of(latent)
    outside = xp.sum(xp.maximum(xp.abs(latent) - 1.0, 0.0), axis=-1)
    return -0.5 * (outside / width) ** 2


def flow_loss(flow: Flow, action: Any, condition: Any, width: float) -> Any:
    """Return -mean [log p(f(x | y)) + log |det J_f|] over feasible samples, the forward divergence."""
    latent = to_latent(flow, action, condition)
    return -namespace_of(action).mean(mollified_uniform(latent.value, width) + latent.log_slope)
