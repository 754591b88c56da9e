"""Uniform draws from a set: exact where the set has a sampler, by hit-and-run where it has none.

Candidates come from a law that is uniform on a superset (a box, a ball, a cross-polytope, a band); the accepted ones
are uniform on the set. What no candidate settles, and every set without such a law, walks: a random direction, a
uniform step to anywhere along it inside the set, from the interior point on, often enough to forget the start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array
from inbounds.constraints.ball import Ball
from inbounds.constraints.box import Bounds, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.intersection import BoxLike
from inbounds.constraints.randomness import Randomness, randomness
from inbounds.constraints.simplex import Simplex
from inbounds.constraints.situation import Situation
from inbounds.constraints.sum_band import SumBand
from inbounds.constraints.weighted_l1 import WeightedL1
from inbounds.errors import ConstraintError

CANDIDATES = 32
"""Candidates per draw and round; on the device there is one round, on the host there are as many as ROUNDS."""
ROUNDS = 40


def steps_of_a_walk(dimension: int) -> int:
    """Return how many steps hit-and-run takes: enough for the start to be forgotten in sets that are not needles."""
    return 60 + 12 * dimension


def draw_uniform(constraint: Constraint, rng: Any, at: Situation, dimension: int, n: int | None) -> Array:
    """Draw actions uniformly from a set; every one is accepted by `contains`."""
    source = randomness(rng, at.dtype)
    batch = next(
        (given.shape[:-1] for given in (at.observation, at.previous_action) if given is not None), ()
    )
    shape = (*(() if n is None else (n,)), *batch)
    bounds = joint_bounds(constraint, at, dimension)
    law = candidate_law(constraint, at, dimension, bounds)
    if law is None:
        return walk(constraint, source, at, dimension, shape)
    if at.xp is np:
        return _fill_on_host(constraint, source, at, dimension, shape, law)
    return _choose_on_device(constraint, source, at, dimension, shape, law)


def joint_bounds(constraint: Constraint, at: Situation, dimension: int) -> Bounds | None:
    """Return the box that a set certainly lies in, where its members tell one that is finite."""
    xp = at.xp
    joint: Bounds | None = None
    for member in constraint.members():
        limits: object = member._limits if isinstance(member, SumBand) else member
        if isinstance(limits, BoxLike):
            own = spread(xp, limits.inner_bounds(at), dimension)
            joint = own if joint is None else Bounds(xp.maximum(joint.low, own.low), xp.minimum(joint.high, own.high))
    return joint


class Law:
    """Candidates for a set: `draw(source, shape)` gives (*shape, dimension), uniform on a superset of it."""

    def __init__(self, draw: Any) -> None:
        """Keep the function."""
        self.draw = draw


def candidate_law(constraint: Constraint, at: Situation, dimension: int, bounds: Bounds | None) -> Law | None:
    """Choose the law of candidates: the kind of set decides, a box serves any set that has one."""
    others = [member for member in constraint.members() if not isinstance(member, BoxLike)]
    kinds = {type(member) for member in others}
    if Simplex in kinds:
        member = next(member for member in others if isinstance(member, Simplex))
        return Law(lambda source, shape: _simplex(member, source, at, dimension, shape))
    is_bounded = bounds is not None and _is_finite(at, bounds)
    if SumBand in kinds and bounds is not None and is_bounded:
        band = next(member for member in others if isinstance(member, SumBand))
        return Law(lambda source, shape: _band(band, source, at, dimension, bounds, shape))
    if kinds == {Ball}:
        ball = next(member for member in others if isinstance(member, Ball))
        return Law(lambda source, shape: _ball(ball, source, at, dimension, shape))
    if kinds == {WeightedL1}:
        weighted = next(member for member in others if isinstance(member, WeightedL1))
        return Law(lambda source, shape: _weighted(weighted, source, at, dimension, bounds, shape))
    if bounds is not None and is_bounded:
        if kinds and any(type(member).__name__ == "Polytope" for member in others):
            return None  # a polytope in a box is usually a sliver of it
        return Law(lambda source, shape: _box(bounds, source, shape))
    if any(type(member).__name__ in ("Polytope", "Ellipsoid") for member in others):
        return None
    raise ConstraintError(
        f"{constraint.formula()} has no bounds in some direction, so nothing can be drawn uniformly from it. "
        f"Intersect it with a box: `constraint & Box(low, high)`."
    )


def _is_finite(at: Situation, bounds: Bounds) -> bool:
    """Tell whether a box has no infinite side; a box that is traced is taken to be finite."""
    try:
        return bool(at.xp.all(at.xp.isfinite(bounds.low)) and at.xp.all(at.xp.isfinite(bounds.high)))
    except Exception as error:
        if type(error).__module__.startswith("jax"):
            return True
        raise


def _box(bounds: Bounds, source: Randomness, shape: tuple[int, ...]) -> Array:
    """Draw every entry by itself."""
    return bounds.low + (bounds.high - bounds.low) * source.uniform((*shape, bounds.low.shape[-1]))


def _ball(ball: Ball, source: Randomness, at: Situation, dimension: int, shape: tuple[int, ...]) -> Array:
    """Draw a direction, then a radius R U^(1/d)."""
    direction = source.normal((*shape, dimension))
    length = at.xp.sqrt(at.xp.sum(direction**2, axis=-1, keepdims=True))
    radius = at.xp.sqrt(at.value(ball.bound, axes=0))[..., None]
    return direction / length * radius * source.uniform((*shape, 1)) ** (1.0 / dimension)


def _weighted(
    member: WeightedL1,
    source: Randomness,
    at: Situation,
    dimension: int,
    bounds: Bounds | None,
    shape: tuple[int, ...],
) -> Array:
    """Draw from the cross-polytope sum |w_i a_i| <= M, or from the box where that is the smaller of the two.

    The first d of d + 1 normalised exponentials are uniform on the corner of a simplex; signs spread it out.
    """
    xp = at.xp
    weights = xp.abs(at.value(member.weights))
    bound = at.value(member.bound, axes=0)[..., None]
    spacings = source.exponential((*shape, dimension + 1))
    share = spacings[..., :dimension] / xp.sum(spacings, axis=-1, keepdims=True)
    sign = xp.where(source.uniform((*shape, dimension)) < 0.5, -1.0, 1.0)
    has_weight = weights > 0
    reach = bound / xp.where(has_weight, weights, xp.ones_like(weights))
    crossed = sign * share * reach
    if bounds is None:
        if xp is np and not np.all(has_weight):
            raise ConstraintError(
                f"{member.formula()} has a weight of 0, so that entry is not bounded. Intersect it with a Box."
            )
        return crossed
    width = bounds.high - bounds.low
    log_box = xp.sum(xp.log(width), axis=-1)
    log_cross = dimension * math.log(2.0) - math.lgamma(dimension + 1) + xp.sum(xp.log(reach), axis=-1)
    is_smaller = (log_cross < log_box) & xp.all(has_weight, axis=-1)
    return xp.where(is_smaller[..., None], crossed, _box(bounds, source, shape))


def _band(
    member: SumBand, source: Randomness, at: Situation, dimension: int, bounds: Bounds, shape: tuple[int, ...]
) -> Array:
    """Draw all entries but the last in their limits and the last in what the band leaves for it.

    A candidate is kept with the share that this interval has of the widest possible one, so that kept ones are
    uniform; others are sent outside, where nothing accepts them.
    """
    xp = at.xp
    free = _box(Bounds(bounds.low[..., :-1], bounds.high[..., :-1]), source, shape)
    rest = xp.sum(free, axis=-1)
    band = member.band(at, dimension)
    low = xp.maximum(bounds.low[..., -1], band.lower - rest)
    high = xp.minimum(bounds.high[..., -1], band.upper - rest)
    widest = xp.minimum(bounds.high[..., -1] - bounds.low[..., -1], band.upper - band.lower)
    is_kept = source.uniform(shape) * widest < high - low
    last = xp.where(is_kept, low + (high - low) * source.uniform(shape), xp.full_like(low, float("inf")))
    return xp.concat([free, last[..., None]], axis=-1)


def _simplex(
    member: Simplex, source: Randomness, at: Situation, dimension: int, shape: tuple[int, ...]
) -> Array:
    """Normalise exponentials: uniform shares of the total; caps reject."""
    spacings = source.exponential((*shape, dimension))
    total = at.value(member.total, axes=0)[..., None]
    return total * spacings / at.xp.sum(spacings, axis=-1, keepdims=True)


def _fill_on_host(
    constraint: Constraint,
    source: Randomness,
    at: Situation,
    dimension: int,
    shape: tuple[int, ...],
    law: Law,
) -> Array:
    """Draw round after round for the places that are still empty; walk for what forty rounds leave."""
    drawn = np.zeros((*shape, dimension))
    is_open = np.ones(shape, bool)
    for _ in range(ROUNDS * CANDIDATES):
        candidate = law.draw(source, shape)
        is_good = is_open & np.isfinite(candidate).all(axis=-1) & constraint.accepts(at, candidate)
        drawn = np.where(is_good[..., None], candidate, drawn)
        is_open = is_open & ~is_good
        if not is_open.any():
            return drawn
    return np.where(is_open[..., None], walk(constraint, source, at, dimension, shape), drawn)


def _choose_on_device(
    constraint: Constraint,
    source: Randomness,
    at: Situation,
    dimension: int,
    shape: tuple[int, ...],
    law: Law,
) -> Array:
    """Take the first accepted of a fixed number of candidates; walk where there is none."""
    import jax

    xp = at.xp
    candidates = law.draw(source, (CANDIDATES, *shape))
    accepted = constraint.accepts(at, candidates) & xp.all(xp.isfinite(candidates), axis=-1)
    first = xp.argmax(accepted, axis=0)
    chosen = xp.take_along_axis(candidates, first[None, ..., None], axis=0)[0]
    found = xp.any(accepted, axis=0)
    walked = jax.lax.cond(
        xp.all(found), lambda: chosen, lambda: walk(constraint, source, at, dimension, shape)
    )
    return xp.where(found[..., None], chosen, walked)


def walk(
    constraint: Constraint, source: Randomness, at: Situation, dimension: int, shape: tuple[int, ...]
) -> Array:
    """Hit and run from the interior point; a point that rounding put outside is pulled back at the end.

    Where entries share a total, every other direction keeps the sum: in a thin band no other leads anywhere.
    """
    xp = at.xp
    start = xp.broadcast_to(constraint.interior(at, dimension), (*shape, dimension))
    keeps_sum = any(isinstance(member, SumBand) for member in constraint.members())
    count = steps_of_a_walk(dimension)
    headings, places = source.normal((count, *shape, dimension)), source.uniform((count, *shape))

    def step(point: Array, heading: Array, place: Array, turn: Any) -> Array:
        if keeps_sum:
            level = heading - xp.mean(heading, axis=-1, keepdims=True)
            heading = xp.where(turn % 2 == 0, level, heading)
        forward = constraint.reach(at, point, heading)
        backward = constraint.reach(at, point, -heading)
        return point + ((forward + backward) * place - backward)[..., None] * heading

    point = _repeat(xp, step, start, headings, places)
    point = xp.where(constraint.accepts(at, point)[..., None], point, start + 0.999 * (point - start))
    return xp.where(constraint.accepts(at, point)[..., None], point, start)


def _repeat(xp: Any, step: Any, start: Array, headings: Array, places: Array) -> Array:
    """Apply all steps of a walk, compiled as one loop under JAX."""
    if xp is np:
        point = start
        for turn in range(headings.shape[0]):
            point = step(point, headings[turn], places[turn], turn)
        return point
    import jax

    def body(turn: Any, point: Array) -> Array:
        return step(point, headings[turn], places[turn], turn)

    return jax.lax.fori_loop(0, headings.shape[0], body, start)
