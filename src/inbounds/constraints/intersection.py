"""Intersections: actions that satisfy several constraints at once, by joint closed forms where they exist."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from inbounds.constraints.alternating import REACH, Projection, central_point, nearest_by_turns
from inbounds.constraints.arrays import Array, clip, convert, largest, stack_rows
from inbounds.constraints.box import Bounds, box_centre, corner, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.farthest import FarthestInBox
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.linear_rows import (
    LinearRows,
    farthest_in_rows,
    interior_in_rows,
    nearest_in_rows,
    open_where_empty,
    stacked,
)
from inbounds.constraints.members import as_constraints, common_size
from inbounds.constraints.polytope import Polytope
from inbounds.constraints.situation import Parameter, Situation, read_situation
from inbounds.constraints.sum_band import SumBand
from inbounds.errors import ConstraintError


@runtime_checkable
class BoxLike(Protocol):
    """A constraint that is a box in every state."""

    def inner_bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the bounds that `contains` compares with, or bounds that are some more margins inside."""


@runtime_checkable
class JointWithBox(Protocol):
    """A constraint that has closed forms together with any box, whose bounds may be infinite."""

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Return the Euclidean projection on the set and the box together."""

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Return a point well inside the set and the box."""


@runtime_checkable
class Restrictable(Protocol):
    """A constraint that is not convex, and makes its intersections itself."""

    def restricted_to(self, other: Constraint) -> Constraint:
        """Return the set of actions that satisfy this constraint and another one."""


class Intersection(Constraint):
    """Actions that lie in every one of several sets, C = C_1 and C_2 and ...; written `first & second`.

    Boxes and rate limits merge into one box. With one other set of a kind that knows boxes, projections are
    closed forms; otherwise the sets take turns until nothing moves any more.
    """

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        """Flatten nested intersections and refuse what does not fit together or leaves no action."""
        given = as_constraints("Intersection", "&", constraints)
        self.constraints = tuple(member for constraint in given for member in constraint.members())
        if not self.constraints:
            raise ConstraintError(
                "Intersection: no constraints were given, so that nothing is limited. Give at least one."
            )
        self._size = common_size(self.constraints, "hold together")
        limits = [member.limits for member in self.constraints if isinstance(member, SumBand)]
        boxes = [member for member in self.constraints if isinstance(member, BoxLike)]
        self._boxes: tuple[BoxLike, ...] = (*boxes, *(limit for limit in limits if limit is not None))
        self._others = tuple(member for member in self.constraints if not isinstance(member, BoxLike))
        # The only member that is not a box, where it has closed forms with any box.
        only = self._others[0] if len(self._others) == 1 else None
        self._joint: JointWithBox | None = only if isinstance(only, JointWithBox) else None
        self._is_constant = all(member.is_constant() for member in self.constraints)
        self._centres: dict[tuple[int, float, float], Array] = {}
        if self._is_constant and self._size is not None:
            self.interior_point()

    def bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the box that all boxes among the members make together; it may be infinite."""
        xp = at.xp
        joint: Bounds | None = None
        for member in self._boxes:
            own = member.inner_bounds(at, margins)
            joint = (
                own
                if joint is None
                else Bounds(xp.maximum(joint.low, own.low), xp.minimum(joint.high, own.high))
            )
        return unbounded(at) if joint is None else joint

    def excess(self, at: Situation, action: Array) -> Array:
        """Return the rows of all members, one after another."""
        return stack_rows(at.xp, [member.excess(at, action) for member in self.constraints])

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the tightened rows of all members, one after another."""
        return stack_rows(at.xp, [member.tightened_excess(at, action) for member in self.constraints])

    def accepts(self, at: Situation, action: Array) -> Array:
        """Ask every member."""
        accepted = self.constraints[0].accepts(at, action)
        for member in self.constraints[1:]:
            accepted = accepted & member.accepts(at, action)
        return accepted

    def nearest(self, at: Situation, action: Array) -> Array:
        """Use the joint closed form where there is one, and otherwise let the members take turns."""
        bounds = self.bounds(at, at.slack)
        if not self._others:
            return clip(at.xp, action, *bounds)
        if self._joint is not None:
            return self._joint.nearest_in_box(at, action, bounds)
        rows, curved = self._linear(at, action.shape[-1]), self._curved()
        if rows is not None and not curved:
            return nearest_in_rows(at, rows, action, bounds)
        near = self._drawn_near(at, action)
        return nearest_by_turns(at, self._projections(at, action.shape[-1], bounds), near)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the box's centre, a closed form, the deepest point of all rows, or a mean of points around.

        For a constant set this mean, which takes many projections, is found once, on the host.
        """
        bounds = self.bounds(at)
        if not self._others:
            return box_centre(at.xp, spread(at.xp, bounds, dimension))
        if self._joint is not None:
            return self._joint.interior_in_box(at, dimension, bounds)
        rows, curved = self._linear(at, dimension), self._curved()
        if rows is not None and not curved:
            return interior_in_rows(at, rows, dimension, bounds)
        if not self.is_constant():
            return self._central(at, dimension)
        key = (dimension, at.margins, at.slack)
        if key not in self._centres:
            host = read_situation(np.zeros(1), None, None)._replace(margins=at.margins, slack=at.slack)
            self._centres[key] = self._central(host, dimension)
        return convert(self._centres[key], at.xp, at.dtype, at.device)

    def _central(self, at: Situation, dimension: int) -> Array:
        """Return a mean of points all around the set, which the members find by taking turns.

        They start as near as the members allow: from far away they would need many more rounds.
        """
        from inbounds.constraints.envelopes import bounding_box

        box = bounding_box(self, at, dimension)
        starts = [box_centre(at.xp, box), *(member.interior(at, dimension) for member in self._others)]
        return central_point(at, self._projections(at, dimension, self.bounds(at)), starts, box)

    def _drawn_near(self, at: Situation, action: Array) -> Array:
        """Move actions that are far away along the line to the set, since turns do not settle from there.

        For a set of width w and an action at distance D, the answer is less than w^2 / D farther away than the nearest.
        """
        from inbounds.constraints.envelopes import bounding_box

        xp, box = at.xp, bounding_box(self, at, action.shape[-1])
        centre = box_centre(xp, box)
        farthest = REACH * largest(xp, xp.abs(box.high - box.low))[..., None]
        distance = largest(xp, xp.abs(action - centre))[..., None]
        is_far = (distance > farthest) & xp.isfinite(distance)
        share = farthest / xp.where(is_far, distance, 1.0)
        return xp.where(is_far, centre + share * (action - centre), action)

    def require_nonempty(self, at: Situation, inside: Array, dimension: int) -> None:
        """Refuse an empty set; rows and limits that exclude one another are found by a linear program."""
        if isinstance(self._joint, Polytope):
            self._joint.refuse_conflict(at, inside, spread(at.xp, self.bounds(at), dimension))
        super().require_nonempty(at, inside, dimension)

    def _curved(self) -> list[Constraint]:
        return [member for member in self._others if not isinstance(member, SumBand | Polytope)]

    def _linear(self, at: Situation, dimension: int) -> LinearRows | None:
        """Return the rows of all linear members together."""
        parts = [member.rows(at) for member in self._others if isinstance(member, Polytope)]
        parts += [member.rows(at, dimension) for member in self._others if isinstance(member, SumBand)]
        return stacked(at, parts) if parts else None

    def _projections(self, at: Situation, dimension: int, bounds: Bounds) -> list[Projection]:
        """Return one projection for all rows, and one per curved member; each with the box where it can be."""
        projections: list[Projection] = []
        rows = self._linear(at, dimension)
        if rows is not None:
            rows, box = open_where_empty(at, rows, bounds, dimension)
            projections.append(partial(nearest_in_rows, at, rows, bounds=box))
        for member in self._curved():
            if isinstance(member, JointWithBox):
                projections.append(partial(member.nearest_in_box, at, bounds=bounds))
            else:
                projections += [partial(member.nearest, at), lambda action: clip(at.xp, action, *bounds)]
        return projections

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Use the closed form of a box, or of a box and one other set, or the linear program of all rows."""
        bounds = self.bounds(at, at.slack)
        if not self._others:
            return corner(at.xp, direction, bounds)
        if len(self._others) == 1 and isinstance(self._others[0], FarthestInBox):
            return self._others[0].farthest_in_box(at, direction, bounds)
        rows = self._linear(at, direction.shape[-1])
        if rows is not None and not self._curved():
            return farthest_in_rows(at, rows, direction, bounds)
        return super().farthest(at, direction)

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Clip to the box of all members."""
        return clip(at.xp, action, *self.bounds(at))

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the reach of the member that stops first."""
        length = self.constraints[0].reach(at, point, direction)
        for member in self.constraints[1:]:
            length = at.xp.minimum(length, member.reach(at, point, direction))
        return length

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the rows of all members, in the order of `excess`."""
        return [name for member in self.constraints for name in member.row_names(at, dimension)]

    def formula(self) -> str:
        """Join the members' formulas; what a member says already, as a band says its caps, is not said twice."""
        parts = list(dict.fromkeys(member.formula() for member in self.constraints))
        said = [part for part in parts if not any(other.endswith(f", {part}") for other in parts)]
        return " and ".join(said)

    def parameters(self) -> dict[str, Parameter]:
        """Return the members."""
        return {"constraints": self.constraints}

    def size(self) -> int | None:
        """Return the dimension that any member tells."""
        return self._size

    def members(self) -> tuple[Constraint, ...]:
        """Return the sets whose intersection this is."""
        return self.constraints

    def is_constant(self) -> bool:
        """Tell whether every member is the same in every state."""
        return self._is_constant

    def __repr__(self) -> str:
        """Show the members joined by `&`."""
        return " & ".join(repr(member) for member in self.constraints)


def intersect(*constraints: Constraint) -> Constraint:
    """Return the set of actions that satisfy all the constraints; a single one stays what it is."""
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise ConstraintError(
                f"{constraint!r} is not a constraint, so nothing can be intersected with it. "
                f"Join constraints with &, as in Ball(radius_squared=1.0) & Box(-1.0, 1.0)."
            )
    for index, constraint in enumerate(constraints):
        # What is not convex, a union or an oracle, knows itself how to be restricted to other sets.
        if isinstance(constraint, Restrictable) and len(constraints) > 1:
            return constraint.restricted_to(intersect(*constraints[:index], *constraints[index + 1 :]))
    return constraints[0] if len(constraints) == 1 else Intersection(constraints)
