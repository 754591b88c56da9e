"""Uniform draws from a set: exact by rejection where that is quick, and by hit-and-run for what is left."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, convert, is_everywhere, is_jax, is_traced, largest
from inbounds.constraints.box import Box, RateLimit
from inbounds.constraints.constraint import STRICT_MARGINS, Constraint
from inbounds.constraints.envelopes import Envelope, bounding_box, smallest_envelope
from inbounds.constraints.oracle import Oracle
from inbounds.constraints.polytope import Polytope
from inbounds.constraints.randomness import Randomness
from inbounds.constraints.simplices import Simplices
from inbounds.constraints.situation import Situation, read_situation
from inbounds.constraints.union import Union
from inbounds.errors import ConstraintError, EmptySetError

ROUNDS = 256
"""How often candidates are drawn for actions that have none yet, before hit-and-run takes over."""

MOST_ENTRIES_OF_POLYTOPE = 4
"""In more dimensions than this a polytope fills so little of its box that rejection is not even tried."""

MOST_TRIES = 40
"""How often a step of a walk in an oracle tries a point of the chord before it waits; a few are mostly enough."""

FAR = 1e7
"""A set that reaches this far from its interior point is taken to be unbounded."""


def steps_of_hit_and_run(dimension: int) -> int:
    """Return how many steps hit-and-run takes.

    Half of them are enough for Kolmogorov-Smirnov tests on thousands of draws to see no difference from exact ones, in
    slabs, the link capacities of networks with 9 and 20 flows, and simplices of few dimensions. In solid simplices of
    more than 30 dimensions, sums over all entries are still biased.
    """
    return 40 + 12 * dimension


class Shape(NamedTuple):
    """A point inside a set, and the ways from it to points all around the set, along a first axis."""

    centre: Array
    ways: Array


class Chord(NamedTuple):
    """The part of a line that is still tried, the point found on it, and whether it is found."""

    low: Array
    high: Array
    moved: Array
    is_found: Array


class Filling(NamedTuple):
    """Actions drawn so far, and which of them are final."""

    actions: Array
    is_final: Array


@np.errstate(all="ignore")  # what overflows or vanishes on the way is not accepted, or drawn again
def draw_uniform(constraint: Constraint, rng: Any, at: Situation, dimension: int, n: int | None) -> Array:
    """Draw actions uniformly from a set, one for each observation of a batch, or `n` for each.

    Every draw is accepted by `contains`. Candidates come from the smallest known set around the constraint
    and are kept where they are accepted, which is exactly uniform; actions that have none after a fixed
    number of candidates come from hit-and-run, which is uniform after infinitely many steps. Where a state
    has no allowed action, an error names the conflicting rows; a compiled function returns NaN there instead.
    """
    shape = at.batch if n is None else (n, *at.batch)
    # As for projections: what is drawn in float32 must also be accepted where float64 is asked.
    strict = at._replace(margins=STRICT_MARGINS) if at.is_single_precision else at
    return _accepted(constraint, at, _candidates(constraint, rng, strict, dimension, shape))


def _candidates(
    constraint: Constraint, rng: Any, at: Situation, dimension: int, shape: tuple[int, ...]
) -> Array:
    """Draw actions that are accepted wherever the set has any that are."""
    if isinstance(constraint, Simplices):
        # A product is drawn group by group: tried together, a group that fails would spoil the others.
        parts = zip(constraint.parts, constraint.groups, strict=True)
        pieces = [
            _candidates(part, _own_source(rng, index), at, len(group), shape)
            for index, (part, group) in enumerate(parts)
        ]
        return constraint.assembled(at, pieces)
    randomness = Randomness(rng, at)
    is_sliver = dimension > MOST_ENTRIES_OF_POLYTOPE and any(
        isinstance(member, Polytope) for member in constraint.members()
    )
    envelope = None if is_sliver else smallest_envelope(constraint, at, dimension)
    if envelope is None:
        return walked(constraint, randomness, at, dimension, shape)
    _require_finite(constraint, envelope)
    if all(type(member) in (Box, RateLimit) for member in constraint.members()):
        return envelope.draw(randomness, shape).points
    filling = filled(constraint, randomness, at, envelope, (*shape, dimension))
    if is_traced(filling.is_final):
        import jax

        rest = Randomness(jax.random.fold_in(rng, 1), at)
        return jax.lax.cond(
            at.xp.all(filling.is_final),
            lambda: filling.actions,
            lambda: _completed(constraint, rest, at, filling),
        )
    if bool(at.xp.all(filling.is_final)):
        return filling.actions
    return _completed(constraint, randomness, at, filling)


def _own_source(rng: Any, index: int) -> Any:
    """Return a source of random numbers for one of several draws; a numpy Generator goes on by itself."""
    if not is_jax(rng):
        return rng
    import jax

    return jax.random.fold_in(rng, index)


def _accepted(constraint: Constraint, at: Situation, drawn: Array) -> Array:
    """Return draws that are all accepted; refuse a state without any, or answer NaN where nothing can be refused."""
    is_accepted = constraint.accepts(at, drawn)
    if is_traced(is_accepted):
        return at.xp.where(is_accepted[..., None], drawn, float("nan"))
    if is_everywhere(is_accepted):
        return drawn
    _require_nonempty(constraint, at, constraint.interior(at, drawn.shape[-1]))
    raise EmptySetError(
        f"no draw from {constraint.formula()} is accepted after it is rounded to {at.dtype}: the set is too thin. "
        f"Widen it, or draw with a numpy generator and a numpy observation, which are used in float64."
    )


def filled(
    constraint: Constraint, randomness: Randomness, at: Situation, envelope: Envelope, shape: tuple[int, ...]
) -> Filling:
    """Draw candidates until every action has an accepted one, or the rounds are over."""
    xp = at.xp

    def one_round(randomness: Randomness, filling: Filling) -> Filling:
        points, chance = envelope.draw(randomness, shape[:-1])
        is_kept = constraint.accepts(at, points) & (randomness.uniform(shape[:-1]) < chance)
        actions = xp.where((is_kept & ~filling.is_final)[..., None], points, filling.actions)
        return Filling(actions, filling.is_final | is_kept)

    nothing = Filling(xp.zeros(shape, dtype=at.dtype), xp.zeros(shape[:-1], dtype=xp.bool))
    return randomness.repeat_while(ROUNDS, lambda state: ~xp.all(state.is_final), one_round, nothing)


def walked(
    constraint: Constraint,
    randomness: Randomness,
    at: Situation,
    dimension: int,
    shape: tuple[int, ...],
    *,
    refuses: bool = True,
) -> Array:
    """Walk from the interior point: a random direction, then anywhere on the chord along it.

    Directions are random mixtures of the ways from the interior point to points all around the set. Their
    law is the same in every step and symmetric, which keeps the walk uniform, and it has the shape of the
    set, so that sets as thin as bands do not slow the walk down. In a state without any action the walk is refused,
    or else stays where it is, outside.
    """
    xp = at.xp
    centre, ways = shape_of(constraint, at, dimension, refuses=refuses)
    centre = xp.broadcast_to(centre, (*shape, dimension))

    def one_step(randomness: Randomness, point: Array) -> Array:
        # Third powers let a few ways prevail, which leads out of corners in half as many steps.
        heading = _mixed(xp, randomness.normal((*shape, ways.shape[-2])), ways)
        size = largest(xp, xp.abs(heading))[..., None]
        heading = heading / xp.where(size > 0, size, 1.0)
        if isinstance(constraint, Oracle) and constraint.within is not None:
            return _tried(constraint, constraint.within, randomness, at, point, heading)
        behind, ahead = constraint.chord(at, point, heading)
        # Only an empty set, which has no point to walk from, lets one go on for ever.
        ahead, behind = (xp.where(xp.isfinite(length), length, 0.0) for length in (ahead, behind))
        place = randomness.uniform(shape)
        moved = point + (place * ahead - (1.0 - place) * behind)[..., None] * heading
        moved = constraint.within_exact_bounds(at, moved)
        # Only rounding can make a point of the chord unacceptable; the walk then waits one step.
        return xp.where(constraint.accepts(at, moved)[..., None], moved, point)

    return randomness.repeat(steps_of_hit_and_run(dimension), one_step, centre)


def _mixed(xp: Any, normal: Array, ways: Array) -> Array:
    """Return mixtures of ways by the third powers of normal numbers; on the host one product makes all of them."""
    if xp is np and ways.ndim == 2:
        return np.matmul(normal * normal * normal, ways)
    return xp.matmul((normal**3)[..., None, :], ways)[..., 0, :]


def _tried(
    constraint: Oracle,
    within: Constraint,
    randomness: Randomness,
    at: Situation,
    point: Array,
    heading: Array,
) -> Array:
    """Draw from the chord of the set around an oracle until the function allows a point.

    Each point that is not allowed becomes the end of the chord on its side of where the walk is (the shrinkage of
    slice sampling), which keeps the uniform distribution whatever the shape of the set. Looking for the ends of the
    oracle's own chord would call the function a hundred times as often.
    """
    xp, shape = at.xp, tuple(point.shape[:-1])

    def one_try(randomness: Randomness, chord: Chord) -> Chord:
        place = chord.low + (chord.high - chord.low) * randomness.uniform(shape)
        there = constraint.within_exact_bounds(at, point + place[..., None] * heading)
        is_allowed = constraint.accepts(at, there)
        is_behind = place < 0
        return Chord(
            xp.where(is_behind, place, chord.low),
            xp.where(is_behind, chord.high, place),
            xp.where((is_allowed & ~chord.is_found)[..., None], there, chord.moved),
            chord.is_found | is_allowed,
        )

    behind, ahead = within.chord(at, point, heading)
    ahead, behind = (xp.where(xp.isfinite(length), length, 0.0) for length in (ahead, behind))
    chord = Chord(-behind, ahead, point, xp.zeros(shape, dtype=xp.bool))
    return randomness.repeat_while(MOST_TRIES, lambda state: ~xp.all(state.is_found), one_try, chord).moved


def shape_of(constraint: Constraint, at: Situation, dimension: int, *, refuses: bool = True) -> Shape:
    """Return where a walk starts and which way it goes; for a constant set this is found once, on the host."""
    if not constraint.is_constant():
        return _measured(constraint, at, dimension, refuses)
    shapes: dict[int, Shape] = constraint.__dict__.setdefault("_shapes", {})
    if dimension not in shapes:
        shapes[dimension] = _measured(constraint, read_situation(np.zeros(1), None, None), dimension, refuses)
    centre, ways = (convert(part, at.xp, at.dtype, at.device) for part in shapes[dimension])
    return Shape(centre, ways)


def _completed(constraint: Constraint, randomness: Randomness, at: Situation, filling: Filling) -> Array:
    shape, dimension = filling.actions.shape[:-1], filling.actions.shape[-1]
    if isinstance(constraint, Union):
        rest = _walked_in_members(constraint, randomness, at, dimension, shape)
    else:
        rest = walked(constraint, randomness, at, dimension, shape)
    return at.xp.where(filling.is_final[..., None], filling.actions, rest)


def _walked_in_members(
    constraint: Union, randomness: Randomness, at: Situation, dimension: int, shape: tuple[int, ...]
) -> Array:
    """Walk in every member of a union, and choose among the walks that ended inside their member.

    All of them are as likely: the members' volumes, which should decide, are not known.
    """
    xp = at.xp
    chosen, inside = xp.zeros((*shape, dimension), dtype=at.dtype), xp.zeros(shape, dtype=at.dtype)
    for member in constraint.constraints:
        try:
            points = walked(member, randomness, at, dimension, shape, refuses=False)
        except EmptySetError:  # of an oracle that finds no action to start from
            continue
        is_inside = member.accepts(at, points)
        inside = inside + xp.astype(is_inside, at.dtype)
        is_chosen = is_inside & (randomness.uniform(shape) * inside < 1.0)
        chosen = xp.where(is_chosen[..., None], points, chosen)
    return chosen


def _measured(constraint: Constraint, at: Situation, dimension: int, refuses: bool) -> Shape:
    """Project points along all axes outside the set, and add to each way the chord along its axis.

    The projections give the directions the proportions of the set; the chords keep every direction possible,
    whatever the projections have in common.
    """
    xp = at.xp
    centre = constraint.interior(at, dimension)
    if refuses:
        _require_nonempty(constraint, at, centre)
    centre = centre[..., None, :]
    box = bounding_box(constraint, at, dimension)
    width = largest(xp, box.high - box.low)[..., None, None]
    if not is_traced(width) and not bool(xp.all(xp.isfinite(width))):
        _require_near(constraint, at, centre)
    axes, aside = _axes(at, dimension), _aside(at)
    room = xp.where(xp.isfinite(width), width, 10.0 * (1.0 + xp.abs(centre)))
    ways = constraint.nearest(aside, centre + room * axes) - centre
    chords = constraint.reach(aside, centre + 0.0 * axes, axes)
    return Shape(centre[..., 0, :], ways + xp.where(xp.isfinite(chords), chords, 1.0)[..., None] * axes)


def _require_nonempty(constraint: Constraint, at: Situation, centre: Array) -> None:
    """Refuse states whose centre keeps not even the margin of `contains`."""
    at = at._replace(margins=1.0)
    constraint.require_nonempty(at, constraint.tightened_excess(at, centre), centre.shape[-1])


def _require_finite(constraint: Constraint, envelope: Envelope) -> None:
    """Refuse an envelope whose volume is known to be infinite in some state."""
    if not is_traced(envelope.log_volume) and np.any(np.asarray(envelope.log_volume) == float("inf")):
        _refuse(constraint)


def _require_near(constraint: Constraint, at: Situation, centre: Array) -> None:
    """Refuse an unbounded set: only there do projections of far points along the axes stay far."""
    dimension = centre.shape[-1]
    far = centre + FAR * _axes(at, dimension)
    reached = at.xp.abs(constraint.nearest(_aside(at), far) - centre)
    if bool(at.xp.any(reached > FAR / (4.0 * dimension))):
        _refuse(constraint)


def _axes(at: Situation, dimension: int) -> Array:
    """Return the unit vectors and their negatives."""
    units = np.concatenate([np.eye(dimension), -np.eye(dimension)])
    return convert(units, at.xp, at.dtype, at.device)


def _aside(at: Situation) -> Situation:
    """Return a situation in which every observation of a batch meets several points, one axis before last."""
    return at._replace(
        observation=None if at.observation is None else at.observation[..., None, :],
        previous_action=None if at.previous_action is None else at.previous_action[..., None, :],
    )


def _refuse(constraint: Constraint) -> None:
    raise ConstraintError(
        f"{constraint.formula()} is unbounded, so that nothing can be drawn uniformly from it. "
        f"Intersect it with a box: constraint & Box(low, high)."
    )
