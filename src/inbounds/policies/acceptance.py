"""Acceptance-rejection: the first feasible proposal is executed; projection is the fallback if there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from inbounds.constraints.arrays import control_flow, namespace_of
from inbounds.constraints.constraint import Constraint

if TYPE_CHECKING:
    import jax

Fallback = Callable[[Any, Any], Any]
"""From observations and raw actions to feasible actions."""


class Draw(NamedTuple):
    """The result of acceptance-rejection for a batch of observations (leading axes: seeds, environments)."""

    action: jax.Array
    """The executed action; feasible."""
    proposals: jax.Array
    """All proposals in the order in which they were drawn, on the axis before the last."""
    is_rejected: jax.Array
    """Proposals that were rejected: those before the accepted one, or all of them."""
    is_projected: jax.Array
    """No proposal was feasible, so the fallback chose the action."""
    acceptance: jax.Array
    """Fraction of all proposals that are feasible: an estimate of the policy's mass on C(s)."""


def accept_first(
    constraint: Constraint,
    observation: jax.Array,
    proposals: jax.Array,
    fallback: Fallback | None = None,
) -> Draw:
    """Take the first feasible proposal, exactly as drawing one by one would.

    Args:
        constraint: the set C(s).
        observation: (..., observation size).
        proposals: (..., N, action size), independent draws from the same distribution.
        fallback: given observations and last proposals, returns feasible actions for the rows in which no proposal is
            feasible; the constraint's projection by default. It is computed only if such a row exists, so do not
            place this function under `vmap`, which would compute it always.
    """
    xp = namespace_of(proposals)
    is_feasible = constraint.contains(observation[..., None, :], proposals)
    found = xp.any(is_feasible, axis=-1)
    first = xp.argmax(is_feasible, axis=-1)  # 0 if none is feasible: `found` tells the two cases apart
    count = proposals.shape[-2]
    is_before = xp.arange(count) < xp.where(found, first, count)[..., None]
    chosen = xp.take_along_axis(proposals, first[..., None, None], axis=-2)[..., 0, :]
    last = proposals[..., -1, :]
    correct = fallback if fallback is not None else constraint.project
    corrected = control_flow(last).cond(xp.all(found), lambda _, raw: raw, correct, observation, last)
    action = xp.where(found[..., None], chosen, corrected)
    return Draw(action, proposals, is_before & ~is_feasible, ~found, xp.mean(is_feasible, axis=-1))
