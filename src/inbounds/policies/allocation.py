"""ApprOpt's layer: entries that must add up to a total are shifted together and clamped, in a few rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

from inbounds.constraints.arrays import namespace_of, repeat, without_gradient
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.intersection import BoxLike
from inbounds.constraints.sum_band import SumBand
from inbounds.policies.box import ActionBox, like


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
