"""Layers that map a network's output into the set: along rays from a centre, through a flow, or as an allocation.

Rays: c(s) is a point inside C(s), v = a - c the offset of an action, and L(v) the gauge of the set seen from c:
v / L(v) lies on the boundary, so that L <= 1 means inside.
Flows: x is an action in [-1, 1], z a latent, y the condition; g maps (z, y) to x and f is its inverse.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import convert, namespace_of, repeat, without_gradient
from inbounds.constraints.box import BoxLike
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.sum_band import SumBand
from inbounds.policies.box import ActionBox, like
from inbounds.policies.gaussian import log_tanh_slope
from inbounds.policies.networks import Network, apply_network

INSIDE = 1.0 - 1e-5
"""How much of the way to the boundary is used, so that rounding does not end outside."""


class Ray(NamedTuple):
    """The centre c, the offset v of an action from it, and the gauge L(v); all in the range [-1, 1]."""

    centre: Any
    offset: Any
    gauge: Any


def ray(
    constraint: Constraint, box: ActionBox, observation: Any, action: Any, previous_action: Any = None
) -> Ray:
    """Return where an action lies as seen from the set's centre.

    Args:
        constraint: the set; it must be bounded, as a set with a box always is.
        box: maps [-1, 1] to the environment's units.
        observation: (..., observation size).
        action: (..., action size); it may lie outside [-1, 1].
        previous_action: what was executed last, for sets that read it.
    """
    xp = namespace_of(action)
    # Where a set is empty this is the point that misses least: NaN from one state would spoil the whole loss.
    at, size = constraint.situation_without_action(observation, box.size, previous_action)
    interior = constraint.interior(at, size)
    centre = xp.broadcast_to(box.normalise(interior), action.shape)
    offset = convert(action, xp, centre.dtype) - centre
    # At the centre itself every direction is as good; any one keeps the derivative of the gauge finite.
    is_centre = xp.all(offset == 0, axis=-1)[..., None]
    heading = like(offset, box.half) * xp.where(is_centre, 1.0, offset)
    start = xp.broadcast_to(interior, action.shape)
    length = constraint.distance(observation, start, heading, previous_action=previous_action)
    # From a centre on the boundary every length may be 0.
    gauge = 1.0 / xp.maximum(length, float(np.finfo(np.float32).tiny))
    return Ray(centre, offset, xp.where(is_centre[..., 0], 0.0, gauge))


def alpha_projection(at: Ray) -> Any:
    """Return c + v / max(L, 1): what is outside goes to where its ray leaves the set."""
    xp = namespace_of(at.gauge)
    factor = INSIDE / xp.where(at.gauge <= INSIDE, INSIDE, at.gauge)
    return at.centre + factor[..., None] * at.offset


def radial_squash(at: Ray, shrink: Any = None) -> Any:
    """Return c + shrink v, shrink = tanh(L) / L: a smooth bijection from all of space to the interior of the set."""
    factor = INSIDE * (shrinkage(at.gauge) if shrink is None else shrink)
    return at.centre + factor[..., None] * at.offset


def radial_log_slope(at: Ray, shrink: Any) -> Any:
    """Return log |det| of the Jacobian of `radial_squash`, given `shrinkage(at.gauge)`.

    Along a ray the gauge L becomes tanh(L), and the d - 1 directions across it shrink by tanh(L) / L:
    log |det| = (d - 1) log(tanh(L) / L) + log(1 - tanh(L)^2).
    """
    along = log_tanh_slope(at.gauge)
    across = namespace_of(at.gauge).log(INSIDE * shrink)
    return (at.offset.shape[-1] - 1) * across + along + math.log(INSIDE)


def shrinkage(gauge: Any) -> Any:
    """Return tanh(L) / L = 1 - L^2 / 3 + 2 L^4 / 15 - ..., which needs no division near the centre."""
    xp = namespace_of(gauge)
    is_small = gauge < 1e-2
    large = xp.where(is_small, 1.0, gauge)
    squared = xp.where(is_small, gauge, 0.0) ** 2
    return xp.where(is_small, 1.0 - squared / 3.0 + 2.0 * squared**2 / 15.0, xp.tanh(large) / large)


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
        np.ravel(reference.read_unscaled(places))
        for member in constraint.members()
        for value in member.parameters().values()
        if isinstance(value, Expression)
        for reference in value.references()
        if reference.source == "observation"
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


# Allocations ---------------------------------------------------------------------------------------------------------


class Clamps(NamedTuple):
    """Which entries ended at their lower and at their upper limit; the others are free."""

    is_low: Any
    is_high: Any


def clamp_rounds(target: Any, low: Any, high: Any, total: Any) -> Clamps:
    """Return which entries are clamped: first those below their limits, round by round, then those above.

    From a target within the limits only one of the two phases ever clamps: all entries move the same way.
    Then no clamp would have to be released, and the result is the nearest allocation. From outside the limits
    it need not even be feasible, which is why the actor's output is rescaled to the limits first.
    """
    xp = namespace_of(target)
    nothing = xp.zeros_like(target, dtype=xp.bool)

    def lower_round(_: int, is_low: Any) -> Any:
        return is_low | (allocation(target, low, high, total, Clamps(is_low, nothing)) < low)

    is_low = repeat(target.shape[-1], lower_round, nothing)

    def upper_round(_: int, is_high: Any) -> Any:
        return is_high | (allocation(target, low, high, total, Clamps(is_low, is_high)) > high)

    return Clamps(is_low, repeat(target.shape[-1], upper_round, nothing))


def allocation(target: Any, low: Any, high: Any, total: Any, clamps: Clamps) -> Any:
    """Return z_i = y_i + (c - sum of clamped entries - sum_free y) / |free| for free entries, else the limit."""
    xp = namespace_of(target)
    fixed = xp.where(clamps.is_low, low, high)
    is_free = ~(clamps.is_low | clamps.is_high)
    count = xp.sum(xp.astype(is_free, target.dtype), axis=-1, keepdims=True)
    taken = xp.sum(xp.where(is_free, target, fixed), axis=-1, keepdims=True)
    shift = (total[..., None] - taken) / xp.maximum(count, 1.0)
    return xp.where(is_free, target + shift, fixed)


def clamped_allocation(target: Any, low: Any, high: Any, total: Any, leaky: bool = False) -> Any:
    """Return the nearest allocation of `total` within the limits, the target itself where it is one.

    The Jacobian is delta_ij - 1/|free| on the free entries and 0 elsewhere; `leaky` uses I - 11^T/d
    everywhere, so that clamped entries still feel a gradient.

    Args:
        target: (..., d), the actor's output in the environment's units, within the limits.
        low: lower limits, broadcast with the target.
        high: upper limits, broadcast with the target.
        total: (...), what the entries must add up to.
        leaky: whether clamped entries pass gradients.
    """
    clamps = clamp_rounds(without_gradient(target), low, high, total)
    result = allocation(target, low, high, total, clamps)
    if not leaky:
        return result
    surrogate = target - namespace_of(target).mean(target, axis=-1, keepdims=True)
    return without_gradient(result - surrogate) + surrogate


def allocate(
    constraint: Constraint,
    box: ActionBox,
    observation: Any,
    squashed: Any,
    previous_action: Any = None,
    *,
    leaky: bool = False,
) -> Any:
    """Return the allocation in [-1, 1] that `clamped_allocation` makes of the target `rescale(squashed)`.

    Total and limits are those of the set's only SumBand and of its boxes.
    """
    at, target, _ = constraint.situation(observation, box.rescale(squashed), previous_action)
    xp = at.xp
    low, high, total = like(target, box.low), like(target, box.high), xp.zeros_like(target[..., 0])
    for member in constraint.members():
        if isinstance(member, SumBand):
            total = total + at.value(member.total, axes=0)
            low = low if member.low is None else xp.maximum(low, at.value(member.low))
            high = high if member.high is None else xp.minimum(high, at.value(member.high))
        elif isinstance(member, BoxLike):
            own = member.inner_bounds(at)
            low, high = xp.maximum(low, own.low), xp.minimum(high, own.high)
    return box.normalise(clamped_allocation(target, low, high, total, leaky))
