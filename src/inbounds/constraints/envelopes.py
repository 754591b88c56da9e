"""Where uniform candidates come from: simple sets around a constraint, and exact draws from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, is_traced, total
from inbounds.constraints.box import Bounds, BoxLike, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.ellipsoid import Ball, Ellipsoid
from inbounds.constraints.intersection import Intersection
from inbounds.constraints.level_set import PowerBudget, WeightedL1, unbounded
from inbounds.constraints.linear_rows import times
from inbounds.constraints.oracle import Oracle
from inbounds.constraints.randomness import (
    Randomness,
    log_factorial,
    log_unit_ball,
    points_of_corner,
    points_of_unit_ball,
    power_between,
    unit_vectors,
)
from inbounds.constraints.shell import Shell
from inbounds.constraints.simplices import Simplices
from inbounds.constraints.situation import Situation, read_situation
from inbounds.constraints.sum_band import SumBand
from inbounds.constraints.union import Union


class Candidates(NamedTuple):
    """Points, and the probability with which each is to be kept for the kept ones to be uniform."""

    points: Array
    chance: Array


class Envelope(NamedTuple):
    """A set around a constraint: its name, the logarithm of its volume, and draws of a given leading shape."""

    name: str
    log_volume: Array
    draw: Callable[[Randomness, tuple[int, ...]], Candidates]


def smallest_envelope(constraint: Constraint, at: Situation, dimension: int) -> Envelope | None:
    """Return an envelope that draws, state by state, from the smallest set that is known around a constraint.

    It is None where every known set around the constraint is unbounded.
    """
    envelopes = known_envelopes(constraint, at, dimension)
    if at.xp is not np and constraint.is_constant():
        # What is constant is chosen on the host, so that compiled programs hold only what they need.
        known = smallest_envelope(constraint, read_situation(np.zeros(1), None, None), dimension)
        envelopes = [envelope for envelope in envelopes if known is not None and envelope.name == known.name]
    joint = None
    for envelope in envelopes:
        joint = envelope if joint is None else _smaller(at, joint, envelope)
    return joint


def known_envelopes(constraint: Constraint, at: Situation, dimension: int) -> list[Envelope]:
    """Return all sets around a constraint that can be drawn from, except those known to be unbounded."""
    box = bounding_box(constraint, at, dimension)
    envelopes = [_around_box(at, box)] if is_finite(at, box) else []
    members = constraint.members() if isinstance(constraint, Intersection) else (constraint,)
    for index, member in enumerate(members):
        for envelope in envelopes_of(member, at, dimension, box):
            envelopes.append(envelope._replace(name=f"{envelope.name} of member {index}"))
    return envelopes


@functools.singledispatch
def bounding_box(constraint: Constraint, at: Situation, dimension: int) -> Bounds:
    """Return a box around a set; a kind that is not known here may reach anywhere."""
    if isinstance(constraint, BoxLike):
        return spread(at.xp, constraint.inner_bounds(at), dimension)
    return spread(at.xp, unbounded(at), dimension)


@bounding_box.register
def _(constraint: Ball, at: Situation, dimension: int) -> Bounds:
    radius = at.xp.sqrt(_bound(at, constraint))[..., None]
    return spread(at.xp, Bounds(-radius, radius), dimension)


@bounding_box.register
def _(constraint: Shell, at: Situation, dimension: int) -> Bounds:
    radius = at.xp.maximum(at.value(constraint.upper, axes=0), 0.0)[..., None]
    return spread(at.xp, Bounds(-radius, radius), dimension)


@bounding_box.register
def _(constraint: Ellipsoid, at: Situation, dimension: int) -> Bounds:
    xp = at.xp
    directions, curvatures = constraint.axes(at)
    is_curved = curvatures > 0
    squares = directions * directions
    # The entry of the inverse of Q, and infinity for entries that a free axis has a part in.
    inverse = xp.sum(
        xp.where(is_curved, 1.0 / xp.where(is_curved, curvatures, 1.0), 0.0)[..., None, :] * squares, axis=-1
    )
    is_free = xp.any(~is_curved[..., None, :] & (squares > 0), axis=-1)
    farthest = xp.sqrt(_bound(at, constraint)[..., None] * inverse)
    farthest = xp.where(is_free, float("inf"), farthest)
    return Bounds(-farthest, farthest)


@bounding_box.register
def _(constraint: WeightedL1, at: Situation, dimension: int) -> Bounds:
    farthest = _room_of_entries(at, at.xp.abs(at.value(constraint.weights)), constraint)
    return spread(at.xp, Bounds(-farthest, farthest), dimension)


@bounding_box.register
def _(constraint: PowerBudget, at: Situation, dimension: int) -> Bounds:
    weights = at.value(constraint.weights)
    farthest = _room_of_entries(at, at.xp.abs(weights), constraint)
    low = at.xp.where(weights < 0, -farthest, -float("inf"))
    return spread(at.xp, Bounds(low, at.xp.where(weights > 0, farthest, float("inf"))), dimension)


@bounding_box.register
def _(constraint: SumBand, at: Situation, dimension: int) -> Bounds:
    limits = spread(at.xp, constraint._with_limits(at, unbounded(at), at.margins), dimension)
    return _within_band(constraint, at, limits)


@bounding_box.register
def _(constraint: Simplices, at: Situation, dimension: int) -> Bounds:
    boxes = constraint.each(lambda part, group: bounding_box(part, at, len(group)))
    return Bounds(*(constraint.assembled(at, [box[side] for box in boxes]) for side in (0, 1)))


@bounding_box.register
def _(constraint: Intersection, at: Situation, dimension: int) -> Bounds:
    xp = at.xp
    box = spread(xp, unbounded(at), dimension)
    for member in constraint.members():
        own = bounding_box(member, at, dimension)
        box = Bounds(xp.maximum(box.low, own.low), xp.minimum(box.high, own.high))
    for member in constraint.members():
        if isinstance(member, SumBand):
            box = _within_band(member, at, box)
    return spread(xp, box, dimension)


@bounding_box.register
def _(constraint: Union, at: Situation, dimension: int) -> Bounds:
    xp = at.xp
    box = bounding_box(constraint.constraints[0], at, dimension)
    for member in constraint.constraints[1:]:
        own = bounding_box(member, at, dimension)
        box = Bounds(xp.minimum(box.low, own.low), xp.maximum(box.high, own.high))
    return box


@bounding_box.register
def _(constraint: Oracle, at: Situation, dimension: int) -> Bounds:
    if constraint.within is None:
        return spread(at.xp, unbounded(at), dimension)
    return bounding_box(constraint.within, at, dimension)


@functools.singledispatch
def envelopes_of(constraint: Constraint, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return envelopes that fit a kind of set better than a box; the box is known to be around it as well."""
    return []


@envelopes_of.register
def _(constraint: Oracle, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the envelopes of the set that the oracle is restricted to."""
    if constraint.within is None or not constraint.within.is_constant():
        return []
    known = smallest_envelope(constraint.within, at, dimension)
    return [] if known is None else [known]


@envelopes_of.register
def _(constraint: Ball, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    xp = at.xp
    square = _bound(at, constraint)
    has_size = square > 0
    volume = 0.5 * dimension * xp.log(xp.where(has_size, square, 1.0)) + log_unit_ball(dimension)
    radius = xp.sqrt(square)[..., None]

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        points = points_of_unit_ball(at, randomness, (*shape, dimension)) * radius
        return _always(at, points)

    return [Envelope("ball", xp.where(has_size, volume, -float("inf")), draw)]


@envelopes_of.register
def _(constraint: Shell, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the shell itself: a direction, and a norm whose d-th power is uniform."""
    radius = power_between(at, dimension, *constraint.radii(at, dimension, 0.0))

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        headings = unit_vectors(at, randomness, (*shape, dimension))
        return _always(at, headings * radius.draw(randomness, shape)[..., None])

    return [Envelope("shell", radius.log_power + log_unit_ball(dimension), draw)]


@envelopes_of.register
def _(constraint: Ellipsoid, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the image of a ball."""
    xp = at.xp
    directions, curvatures = constraint.axes(at)
    is_curved = curvatures > 0
    if not is_traced(is_curved) and not bool(xp.all(is_curved)):
        return []
    logs = xp.where(is_curved, xp.log(xp.where(is_curved, curvatures, 1.0)), -float("inf"))
    ball = envelopes_of(Ball(radius_squared=constraint.bound), at, dimension, box)[0]

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        along = ball.draw(randomness, shape).points / xp.sqrt(xp.where(is_curved, curvatures, 1.0))
        return _always(at, times(xp, directions, along))

    return [Envelope("image of a ball", ball.log_volume - 0.5 * total(xp, logs), draw)]


@envelopes_of.register
def _(constraint: WeightedL1, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the cross-polytope of the weighted entries, times the box of those whose weight is zero."""
    xp = at.xp
    weights = xp.abs(at.value(constraint.weights))
    weights = xp.broadcast_to(weights, (*weights.shape[:-1], dimension))
    has_weight = weights > 0
    farthest = _room_of_entries(at, weights, constraint)
    width = xp.where(has_weight, 1.0, box.high - box.low)
    if not is_finite(at, Bounds(width, width)):
        return []
    middle = xp.where(has_weight, 0.0, 0.5 * (box.low + box.high))
    sides = xp.where(has_weight, 2.0 * xp.where(has_weight, farthest, 1.0), width)
    count = total(xp, xp.where(has_weight, xp.ones_like(sides), 0.0))
    volume = total(xp, xp.log(xp.where(sides > 0, sides, 1.0))) - log_factorial(at, count, dimension)

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        # Exponentials divided by their sum are uniform on a simplex; signs spread it to a cross-polytope.
        spacings = xp.where(has_weight, randomness.exponential((*shape, dimension)), 0.0)
        shares = spacings / (total(xp, spacings) + randomness.exponential(shape))[..., None]
        crossed = shares * randomness.signs((*shape, dimension)) * xp.where(has_weight, farthest, 1.0)
        free = middle + width * (randomness.uniform((*shape, dimension)) - 0.5)
        return _always(at, xp.where(has_weight, crossed, free))

    is_point = xp.any(sides <= 0, axis=-1)
    return [Envelope("cross-polytope", xp.where(is_point, -float("inf"), volume), draw)]


@envelopes_of.register
def _(constraint: SumBand, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the slab of the box, and the corners of the box that the band cuts off."""
    xp = at.xp
    lower, upper = constraint.drawn_sums(at, dimension)
    envelopes = []
    if is_finite(at, box) and dimension > 1:
        envelopes.append(_slab(at, box, lower, upper))
    if is_finite(at, Bounds(box.low, box.low)):
        corner = total(xp, box.low)
        draw, volume = points_of_corner(at, dimension, lower - corner, upper - corner)
        envelopes.append(Envelope("lower corner", volume, _shifted(at, draw, box.low, 1.0)))
    if is_finite(at, Bounds(box.high, box.high)):
        corner = total(xp, box.high)
        draw, volume = points_of_corner(at, dimension, corner - upper, corner - lower)
        envelopes.append(Envelope("upper corner", volume, _shifted(at, draw, box.high, -1.0)))
    return envelopes


@envelopes_of.register
def _(constraint: Simplices, at: Situation, dimension: int, box: Bounds) -> list[Envelope]:
    """Return the product of the smallest set around each group."""
    xp = at.xp
    chosen: list[Envelope] = []
    for part, own in zip(constraint.parts, constraint.bounds_of(at, box), strict=True):
        known = envelopes_of(part, at, own.low.shape[-1], own)
        chosen.append(functools.reduce(functools.partial(_smaller, at), known))

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        points, chances = zip(*(one.draw(randomness, shape) for one in chosen), strict=True)
        return Candidates(constraint.assembled(at, list(points)), functools.reduce(xp.multiply, chances))

    volume = functools.reduce(xp.add, [one.log_volume for one in chosen])
    return [Envelope("product", volume, draw)]


def is_finite(at: Situation, bounds: Bounds) -> bool:
    """Tell whether no bound is infinite; what is not known yet is taken to be finite."""
    return all(is_traced(side) or bool(at.xp.all(at.xp.isfinite(side))) for side in bounds)


def _around_box(at: Situation, box: Bounds) -> Envelope:
    xp = at.xp
    width = xp.maximum(box.high - box.low, 0.0)
    volume = total(xp, xp.log(xp.where(width > 0, width, float(np.finfo(np.float32).tiny))))

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        points = box.low + width * randomness.uniform((*shape, width.shape[-1]))
        return _always(at, xp.minimum(points, box.high))

    return Envelope("box", volume, draw)


def _slab(at: Situation, box: Bounds, lower: Array, upper: Array) -> Envelope:
    """Draw all entries but the last from the box, and the last from what the band leaves to it.

    The share that this interval has of the widest one is the probability of keeping the point.
    """
    xp = at.xp
    last_low, last_high = box.low[..., -1], box.high[..., -1]
    widest = xp.minimum(upper - lower, last_high - last_low)
    first = _around_box(at, Bounds(box.low[..., :-1], box.high[..., :-1]))
    has_width = widest > 0
    volume = first.log_volume + xp.log(xp.where(has_width, widest, float(np.finfo(np.float32).tiny)))

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        points = first.draw(randomness, shape).points
        rest = total(xp, points)
        start, stop = xp.maximum(last_low, lower - rest), xp.minimum(last_high, upper - rest)
        width = xp.maximum(stop - start, 0.0)
        last = start + width * randomness.uniform(shape)
        chance = xp.where(has_width, width / xp.where(has_width, widest, 1.0), 1.0)
        points = xp.concat([points, last[..., None]], axis=-1)
        return Candidates(points, chance + xp.zeros_like(points[..., 0]))

    return Envelope("slab", volume, draw)


def _shifted(
    at: Situation, draw: Callable[[Randomness, tuple[int, ...]], Array], corner: Array, sign: float
) -> Callable[[Randomness, tuple[int, ...]], Candidates]:
    def shifted(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        return _always(at, corner + sign * draw(randomness, shape))

    return shifted


def _smaller(at: Situation, first: Envelope, second: Envelope) -> Envelope:
    """Draw from the smaller of two envelopes, state by state."""
    xp = at.xp
    is_first = first.log_volume <= second.log_volume
    if not is_traced(is_first):
        if bool(xp.all(is_first)):
            return first
        if not bool(xp.any(is_first)):
            return second

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Candidates:
        one, other = first.draw(randomness, shape), second.draw(randomness, shape)
        return Candidates(
            xp.where(is_first[..., None], one.points, other.points),
            xp.where(is_first, one.chance, other.chance),
        )

    name = f"{first.name} or {second.name}"
    return Envelope(name, xp.minimum(first.log_volume, second.log_volume), draw)


def _within_band(constraint: SumBand, at: Situation, box: Bounds) -> Bounds:
    """Cut a box where the other entries leave less of the sum to an entry than its own limit."""
    xp = at.xp
    band = constraint.band(at, box.low.shape[-1])
    others_low, others_high = _sum_of_others(xp, box.low), _sum_of_others(xp, box.high)
    low = xp.maximum(box.low, band.lower[..., None] - others_high)
    return Bounds(low, xp.minimum(box.high, band.upper[..., None] - others_low))


def _sum_of_others(xp: Any, values: Array) -> Array:
    """Return, for every entry, the sum of all other ones, of which some may be infinite."""
    is_infinite = ~xp.isfinite(values)
    finite = xp.where(is_infinite, 0.0, values)
    infinite = xp.where(is_infinite, xp.where(values > 0, 1.0, -1.0 + 0.0 * finite), 0.0)
    left = total(xp, infinite)[..., None] - infinite
    others = total(xp, finite)[..., None] - finite
    return xp.where(left > 0, float("inf"), xp.where(left < 0, -float("inf"), others))


def _bound(at: Situation, constraint: Any) -> Array:
    """Return a bound on squares; where it is negative the set is empty, and zero is as good an envelope as any."""
    return at.xp.maximum(at.value(constraint.bound, axes=0), 0.0)


def _room_of_entries(at: Situation, weights: Array, constraint: Any) -> Array:
    """Return how large each entry may be by itself; weights of zero leave it free."""
    xp = at.xp
    has_weight = weights > 0
    bound = at.value(constraint.bound, axes=0)[..., None]
    return xp.where(has_weight, bound / xp.where(has_weight, weights, 1.0), float("inf"))


def _always(at: Situation, points: Array) -> Candidates:
    return Candidates(points, at.xp.ones_like(points[..., 0]))
