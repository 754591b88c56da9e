"""Unions: actions that satisfy at least one of several constraints, as when a machine has two modes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, convert, is_traced, largest, least, stack_rows, worst_row
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.situation import Parameter, Situation
from inbounds.errors import ConstraintError, EmptySetError
from inbounds.limits import MOST_CONSTRAINTS

Move = Callable[[Constraint, Situation, Array], Array]
"""How a member answers for an action."""


class Union(Constraint):
    """Actions that lie in at least one of several sets, C = C_1 or C_2 or ...; written `first | second`.

    A union need not be convex. Its projection is the nearest of the members' projections, which is exactly
    the nearest point of the union wherever theirs are exact; between two members it jumps.
    """

    _is_made_anew_by_joining = True

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        """Flatten nested unions and refuse members of different dimensions."""
        self.constraints: tuple[Constraint, ...] = tuple(
            member
            for constraint in as_constraints("Union", "|", constraints)
            for member in (constraint.constraints if isinstance(constraint, Union) else (constraint,))
        )
        if not self.constraints:
            raise ConstraintError(
                "Union: no constraints were given, so no action is allowed. Give at least one."
            )
        _require_few(len(self.constraints))
        self._size = common_size(self.constraints, "be joined")

    def restricted_to(self, other: Constraint) -> Constraint:
        """Return the intersection with another set, which is the union of the members' intersections with it.

        Members that share no action with the other set drop out; if all do, the last conflict is reported.
        """
        _require_few(len(self.constraints) * (len(other.constraints) if isinstance(other, Union) else 1))
        kept: list[Constraint] = []
        conflict: EmptySetError | None = None
        for member in self.constraints:
            try:
                kept.append(member & other)
            except EmptySetError as error:
                conflict = error
        if conflict is not None and not kept:
            raise conflict
        return kept[0] if len(kept) == 1 else Union(kept)

    def excess(self, at: Situation, action: Array) -> Array:
        """Return, as the only row, the largest excess of the member that is broken least."""
        return self._least_broken(at, [member.excess(at, action) for member in self.constraints])

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the same of the tightened rows."""
        return self._least_broken(at, [member.tightened_excess(at, action) for member in self.constraints])

    def accepts(self, at: Situation, action: Array) -> Array:
        """Ask the members until one accepts."""
        accepted = self.constraints[0].accepts(at, action)
        for member in self.constraints[1:]:
            accepted = accepted | member.accepts(at, action)
        return accepted

    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the nearest of the members' projections."""

        def project(member: Constraint, at: Situation, action: Array) -> Array:
            return member.settled(at, member.nearest(at, action), at.dtype)

        return self._nearest_of(at, action, project, at.dtype)

    def pulled_inside(self, at: Situation, point: Array, dtype: Any) -> Array:
        """Let every member pull the point inside, and take what is nearest."""

        def pull(member: Constraint, at: Situation, point: Array) -> Array:
            return member.pulled_inside(at, point, dtype)

        return self._nearest_of(at, point, pull, dtype)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return, state by state, the interior point of the first member that has one."""
        *others, last = self.constraints
        chosen = _interior_of(last, at, dimension)
        for member in reversed(others):
            point = _interior_of(member, at, dimension)
            chosen = at.xp.where(member.accepts(at, point)[..., None], point, chosen)
        return chosen

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return how far one can go inside a single member; where members overlap, one may get farther."""
        xp = at.xp
        lengths = [
            xp.where(member.accepts(at, point), member.reach(at, point, direction), 0.0)[..., None]
            for member in self.constraints
        ]
        return largest(xp, stack_rows(xp, lengths))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the only row."""
        return [self.formula()]

    def formula(self) -> str:
        """Join the members' formulas."""
        return " or ".join(f"({member.formula()})" for member in self.constraints)

    def parameters(self) -> dict[str, Parameter]:
        """Return the members."""
        return {"constraints": self.constraints}

    def size(self) -> int | None:
        """Return the dimension that any member tells."""
        return self._size

    def is_constant(self) -> bool:
        """Tell whether every member is the same in every state."""
        return all(member.is_constant() for member in self.constraints)

    @property
    def projection_is_exact(self) -> bool:
        """Tell whether the members' projections are the nearest points; then the union's is as well."""
        return all(member.projection_is_exact for member in self.constraints)

    def __repr__(self) -> str:
        """Show the members joined by `|`."""
        return " | ".join(f"({member!r})" for member in self.constraints)

    def _least_broken(self, at: Situation, excesses: list[Array]) -> Array:
        xp = at.xp
        worst = [worst_row(xp, rows)[..., None] for rows in excesses]
        return least(xp, stack_rows(xp, worst))[..., None]

    def _nearest_of(self, at: Situation, action: Array, move: Move, dtype: Any) -> Array:
        """Return, action by action, the nearest of the members' answers that are accepted, as numbers of a type."""
        xp = at.xp
        best: Array | None = None
        distance: Array | None = None
        for member in self.constraints:
            try:
                point = move(member, at, action)
            except EmptySetError:
                # This member has no action in some state; elsewhere it may still be the nearest.
                point = _one_by_one(member, at, action, move)
            point = convert(point, xp, dtype)
            compared = convert(point, xp, at.dtype)
            away = xp.where(member.accepts(at, compared), _distance(xp, compared, action), float("inf"))
            if best is None or distance is None:
                best, distance = point, away
                continue
            is_nearer = away < distance
            best = xp.where(is_nearer[..., None], point, best)
            distance = xp.where(is_nearer, away, distance)
        if not is_traced(distance) and bool(xp.any(distance == float("inf"))):
            raise EmptySetError(
                f"no action satisfies {self.formula()}: in some state every member is empty. Widen one of them."
            )
        return best


def _require_few(members: int) -> None:
    """Refuse a union that is too long to be asked; the intersection of several has the product of their members."""
    if members > MOST_CONSTRAINTS:
        raise ConstraintError(
            f"Union: {members:,} members, but every one of them is asked for each action, and at most "
            f"{MOST_CONSTRAINTS} are possible. Join fewer sets, or declare the whole set as an Oracle."
        )


def _distance(xp: Any, point: Array, action: Array) -> Array:
    """Return a number that grows with the Euclidean distance, the root mean square of half the differences.

    It is finite for all finite numbers, since nothing large is squared or added up.
    """
    away = xp.abs(0.5 * point - 0.5 * action)
    scale = largest(xp, away)[..., None]
    share = away / xp.where(scale > 0, scale, 1.0)
    return scale[..., 0] * xp.sqrt(xp.mean(share * share, axis=-1))


def _interior_of(member: Constraint, at: Situation, dimension: int) -> Array:
    """Return a member's interior point in every state; an oracle that finds none in one of them raises for all."""
    try:
        return member.interior(at, dimension)
    except EmptySetError:
        nowhere = at.xp.zeros(dimension, dtype=at.dtype)
        return _one_by_one(member, at, nowhere, lambda member, at, _: member.interior(at, dimension))


def _one_by_one(member: Constraint, at: Situation, action: Array, move: Move) -> Array:
    """Move each action of a batch by itself, and leave alone those for which the member is empty."""
    lead = np.broadcast_shapes(action.shape[:-1], at.batch)
    moved = np.array(np.broadcast_to(action, (*lead, action.shape[-1])))

    for place in np.ndindex(*lead):
        alone = at.alone(place, lead)
        with contextlib.suppress(EmptySetError):
            moved[place] = np.asarray(move(member, alone, at.xp.asarray(moved[place])))
    return convert(moved, at.xp, at.dtype, at.device)


def as_constraints(kind: str, sign: str, given: Any) -> tuple[Constraint, ...]:
    """Return the members that a union or an intersection was given; refuse anything but a list of constraints."""
    members: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) else ()
    wrong = [member for member in members if not isinstance(member, Constraint)]
    if wrong or not isinstance(given, Sequence):
        problem = f"{wrong[0]!r} is not a constraint" if wrong else f"{given!r} is not a list of constraints"
        raise ConstraintError(
            f"{kind}: {problem}. Join sets such as Box(-1.0, 1.0) with {sign}, or list them."
        )
    return members


def common_size(members: Sequence[Constraint], purpose: str) -> int | None:
    """Return of how many entries all members speak, None where none of them tells; refuse those that differ."""
    sizes = [(member.formula(), member.size()) for member in members if member.size() is not None]
    if len({size for _, size in sizes}) > 1:
        listed = "; ".join(f"{formula} speaks of {size} entries" for formula, size in sizes)
        readings = [value for one in members if one.size() == 1 for value in one.parameters().values()]
        vectors = [f"{read}" for read in readings if isinstance(read, Expression) and read.own_shape == (1,)]
        hint = (
            f" {vectors[0]} is a vector of one entry; a number that holds for every entry of the action is read by its "
            f"index, ib.obs[1] instead of ib.obs[1:2], or ib.obs['name', 0] in a named part."
            if vectors
            else ""
        )
        raise ConstraintError(
            f"these constraints cannot {purpose}: {listed}. Give them the same dimension.{hint}"
        )
    return sizes[0][1] if sizes else None
