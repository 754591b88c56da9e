"""Points of an intersection without a closed form: its members project in turns and agree (ADMM)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, control_flow, is_jax, is_traced
from inbounds.constraints.box import Bounds
from inbounds.constraints.situation import Situation

Projection = Callable[[Array], Array]

PENALTY = 3.0
"""How much agreement counts against staying near the action; the problem has no unit, so one value serves all."""

RELAXATION = 1.6
ROUNDS_ON_DEVICE = 150
ROUNDS_ON_HOST = 400
REACH = 150.0
"""How many widths of a set away an action may be; from 1000 the rounds above end far from the nearest point."""
SETTLED = 1e-12
"""A disagreement, relative to the action, below which the host stops."""


class Agreement(NamedTuple):
    """The point of every member and its running disagreement with the others."""

    points: tuple[Array, ...]
    disagreements: tuple[Array, ...]


def nearest_by_turns(at: Situation, projections: Sequence[Projection], action: Array) -> Array:
    """Return the Euclidean projection on an intersection, from projections on its members.

    The alternating direction method of multipliers: each member projects on its own, and their mean is drawn
    to the action. JAX runs a fixed number of rounds, so that it can be batched; elsewhere it stops when
    settled.
    """
    xp = at.xp
    weight = 1.0 / (1.0 + PENALTY * len(projections))

    def one_round(state: Agreement) -> Agreement:
        drawn = weight * action
        for point, disagreement in zip(*state, strict=True):
            drawn = drawn + (weight * PENALTY) * (point - disagreement)
        points, disagreements = [], []
        for project, point, disagreement in zip(projections, *state, strict=True):
            wish = RELAXATION * drawn + (1.0 - RELAXATION) * point + disagreement
            points.append(project(wish))
            disagreements.append(wish - points[-1])
        return Agreement(tuple(points), tuple(disagreements))

    points = tuple(project(action) for project in projections)
    shape = np.broadcast_shapes(*(tuple(point.shape) for point in points))
    points = tuple(xp.broadcast_to(point, shape) for point in points)
    state = Agreement(points, tuple(xp.zeros_like(point) for point in points))

    def size_of(numbers: Array) -> Array:
        """Return sizes; what overflowed does not change any more, and is not waited for."""
        return xp.where(xp.isfinite(numbers), xp.abs(numbers), 0.0)

    def is_settled(before: Agreement, after: Agreement) -> Array:
        pairs = zip(
            (*after.points, *after.disagreements), (*before.points, *before.disagreements), strict=True
        )
        changes = [xp.max(size_of(new - old))[None] for new, old in pairs]
        return xp.max(xp.concat(changes)) <= SETTLED * (1.0 + xp.max(size_of(after.points[0])))

    traced = next((array for array in (action, *points) if is_jax(array) or is_traced(array)), None)
    if traced is None:
        for _ in range(ROUNDS_ON_HOST):
            before, state = state, one_round(state)
            if bool(is_settled(before, state)):
                break
    elif hasattr(flow := control_flow(traced), "settling_loop"):
        state = flow.settling_loop(ROUNDS_ON_HOST, one_round, state, is_settled)
    else:
        state = flow.fori_loop(0, ROUNDS_ON_DEVICE, lambda _, current: one_round(current), state)
    return sum(state.points[1:], state.points[0]) / float(len(projections))


def central_point(
    at: Situation, projections: Sequence[Projection], starts: Sequence[Array], box: Bounds
) -> Array:
    """Return the mean of the projections of points spread around the members' own interior points.

    A mean of points that touch the set from all sides lies inside it, unless the set is flat. The starts may be
    the same in all states of a batch; the points around them are projected state by state.
    """
    xp, dimension = at.xp, box.low.shape[-1]
    centre: Array = sum(starts[1:], starts[0]) / float(len(starts))
    centre = xp.broadcast_to(centre, (*at.batch, dimension))
    width = box.high - box.low
    reach = xp.where(xp.isfinite(width), 0.5 * width, 1.0 + xp.abs(centre))
    sides = np.concatenate([np.eye(dimension), -np.eye(dimension)])
    sides = at.value(sides.reshape(2 * dimension, *(1,) * (centre.ndim - 1), dimension))
    return xp.mean(nearest_by_turns(at, projections, centre + sides * reach), axis=0)
