"""Intersections: actions that satisfy several constraints at once, by joint closed forms where they exist."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from inbounds.constraints.alternating import REACH, Projection, central_point, nearest_by_turns
from inbounds.constraints.arrays import Array, clip, convert, is_traced, largest, stack_rows
from inbounds.constraints.box import Bounds, BoxLike, box_centre, corner, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.deepest import Members, deepest_point
from inbounds.constraints.level_set import PowerBudget, WeightedL1, unbounded
from inbounds.constraints.linear_rows import (
    LinearRows,
    box_around_rows,
    farthest_in_rows,
    interior_in_rows,
    nearest_in_rows,
    open_where_empty,
    stacked,
)
from inbounds.constraints.polytope import Polytope
from inbounds.constraints.shell import Shell, pulled_into
from inbounds.constraints.simplices import Simplices
from inbounds.constraints.situation import Parameter, Situation, read_situation
from inbounds.constraints.sum_band import EVERYWHERE, SumBand
from inbounds.constraints.threshold import MANY_ENTRIES, FarthestInBox
from inbounds.constraints.union import as_constraints, common_size
from inbounds.errors import ConstraintError

REACHES = (1e1, 1e3, 1e5)
"""How many times as far out as its action next to zero a set that is very wide is searched for an interior point."""


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

    _is_made_anew_by_joining = True

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        """Flatten nested intersections and refuse what does not fit together or leaves no action."""
        given = as_constraints("Intersection", "&", constraints)
        self.constraints = tuple(member for constraint in given for member in constraint.members())
        if not self.constraints:
            raise ConstraintError(
                "Intersection: no constraints were given, so that nothing is limited. Give at least one."
            )
        if any(isinstance(member, Restrictable) for member in self.constraints):
            raise ConstraintError(
                "Intersection: unions and oracles are not convex, and projections on them in turns would not be the "
                "nearest points. Join the sets with &, which makes the union of the members' intersections."
            )
        self._size = common_size(self.constraints, "hold together")
        limits = [member.limits for member in self.constraints if isinstance(member, SumBand | Simplices)]
        boxes = [member for member in self.constraints if isinstance(member, BoxLike)]
        self._boxes: tuple[BoxLike, ...] = (*boxes, *(limit for limit in limits if limit is not None))
        self._others = tuple(member for member in self.constraints if not isinstance(member, BoxLike))
        # The only member that is not a box, where it has closed forms with any box.
        only = self._others[0] if len(self._others) == 1 else None
        if len(self._others) > 1 and any(isinstance(member, Shell) for member in self._others):
            listed = "; ".join(member.formula() for member in self._others)
            raise ConstraintError(
                f"a Shell is not convex and can be intersected with boxes and rate limits alone, not with another of "
                f"these: {listed}. Write two shells as one, a Ball as the shell's upper norm, and declare anything "
                f"else as an Oracle within the convex sets."
            )
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
        from inbounds.constraints.envelopes import bounding_box

        box = bounding_box(self, at, action.shape[-1])
        around = box
        if rows is not None and at.xp is np:
            around = box_around_rows(at, rows, box, action)
        near = _drawn_near(at.xp, action, around)
        return nearest_by_turns(at, self._projections(at, action.shape[-1], bounds), near, box)

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
        """Return the centre of a largest ball inside, or a mean of points that the members find by taking turns.

        The ball is sure where all members are linear in some variables, and otherwise helps where turns do not.
        Turns start as near as the members allow: from far away they would need many more rounds.
        """
        from inbounds.constraints.envelopes import bounding_box

        box = bounding_box(self, at, dimension)

        def starts() -> list[Array]:
            return [member.interior(at, dimension) for member in self._others]

        def by_turns() -> Array:
            points = starts()
            found = central_point(at, self._projections(at, dimension, self.bounds(at)), points, box)
            return self._or_start(at, found, points)

        if at.xp is not np:
            return by_turns()
        members = Members(self._linear(at, dimension), self._curved(), self.bounds(at), box)
        if all(isinstance(member, WeightedL1 | PowerBudget) for member in members.curved):
            found = deepest_point(at, members)
            is_known = np.isfinite(found).all(axis=-1)
            if not is_known.all():
                return np.where(is_known[..., None], found, by_turns())
            # Numbers near 1e300 defeat the solver: its answer for a set that is not empty may be outside.
            return found if self.accepts(at, found).all() else self._or_start(at, found, starts())
        found = by_turns()
        is_inside = np.broadcast_to(self.accepts(at, found), at.batch)
        if is_inside.all():
            return found
        deeper = deepest_point(at, members, ~is_inside)
        found = np.where(np.isfinite(deeper).all(axis=-1)[..., None], deeper, found)
        if self.accepts(at, found).all():
            return found
        # Both fail where the box around a set is 1e10 times as wide as its limits: most of such a set is left out.
        near = clip(np, np.zeros_like(box.low), *box)
        size = largest(np, np.abs(near))[..., None]
        for reach in REACHES:
            away = reach * np.where(size > 0, size, 1.0)
            part = Bounds(np.maximum(box.low, near - away), np.minimum(box.high, near + away))
            found = self._or_start(at, found, [deepest_point(at, members._replace(box=part), ~is_inside)])
            is_inside = self.accepts(at, found)
            if is_inside.all():
                break
        return found

    def _or_start(self, at: Situation, found: Array, starts: Sequence[Array]) -> Array:
        """Return, where turns found nothing that is accepted, the interior point of a member that all others accept.

        Turns do not settle where the box around the set is much larger than the set, as for an ellipsoid with a
        curvature that only rounding keeps above zero.
        """
        xp = at.xp
        is_inside = self.accepts(at, found)
        for start in starts:
            if not is_traced(is_inside) and bool(xp.all(is_inside)):
                break
            is_better = ~is_inside & self.accepts(at, start)
            found = xp.where(is_better[..., None], start, found)
            is_inside = is_inside | is_better
        return found

    def require_nonempty(self, at: Situation, inside: Array, dimension: int) -> None:
        """Refuse an empty set; rows and limits that exclude one another are found by a linear program."""
        if isinstance(self._joint, Polytope):
            self._joint.refuse_conflict(at, inside, spread(at.xp, self.bounds(at), dimension))
        super().require_nonempty(at, inside, dimension)

    def pulled_inside(self, at: Situation, point: Array, dtype: Any) -> Array:
        """Move points towards the interior; in a shell, which has a hole on the way, project once more."""
        if isinstance(self._joint, Shell):
            return pulled_into(self, at, point, dtype)
        return super().pulled_inside(at, point, dtype)

    @property
    def projection_is_exact(self) -> bool:
        """Tell whether `project` returns the nearest point; in a shell this depends on the box."""
        if not isinstance(self._joint, Shell) or not self._boxes:
            return super().projection_is_exact
        if not all(isinstance(box, Constraint) and box.is_constant() for box in self._boxes):
            return False
        return self._joint.is_exact_in(*self.bounds(EVERYWHERE))

    def _curved(self) -> list[Constraint]:
        return [member for member in self._others if not isinstance(member, SumBand | Simplices | Polytope)]

    def _linear(self, at: Situation, dimension: int) -> LinearRows | None:
        """Return the rows of all linear members together."""
        parts = [member.rows(at) for member in self._others if isinstance(member, Polytope)]
        parts += [
            member.rows(at, dimension) for member in self._others if isinstance(member, SumBand | Simplices)
        ]
        return stacked(at, parts) if parts else None

    def _projections(self, at: Situation, dimension: int, bounds: Bounds) -> list[Projection]:
        """Return one projection for all rows, and one per curved member; each with the box where it can be."""
        projections: list[Projection] = []
        straight = [member for member in self._others if isinstance(member, SumBand | Simplices | Polytope)]
        if len(straight) == 1 and isinstance(straight[0], SumBand | Simplices):
            projections.append(partial(straight[0].nearest_in_box, at, bounds=bounds))
        elif (rows := self._linear(at, dimension)) is not None:
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

    def chord(self, at: Situation, point: Array, direction: Array) -> tuple[Array, Array]:
        """Return the ends of the shortest chord.

        A convex member that accepts both ends so far does not shorten it, and in many dimensions is only asked.
        """
        is_asked = at.xp is np and point.shape[-1] > MANY_ENTRIES and is_convex(self)
        members = sorted(self.constraints, key=lambda member: not isinstance(member, BoxLike))
        behind, ahead = members[0].chord(at, point, direction)
        for member in members[1:]:
            if is_asked and all(
                np.isfinite(length).all() and member.accepts(at, point + length[..., None] * way).all()
                for length, way in ((ahead, direction), (behind, -direction))
            ):
                continue
            own = member.chord(at, point, direction)
            behind, ahead = at.xp.minimum(behind, own[0]), at.xp.minimum(ahead, own[1])
        return behind, ahead

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


def is_convex(constraint: Constraint) -> bool:
    """Tell whether everything between two actions of a set is in it by construction; a custom set is taken to be."""
    return not isinstance(constraint, Restrictable) and not any(
        isinstance(member, Shell) for member in constraint.members()
    )


def joined(constraints: Sequence[Constraint]) -> Constraint:
    """Return the set that `&` makes of a list, which is how an intersection is read from a file."""
    given = as_constraints("Intersection", "&", constraints)
    return intersect(*given) if given else Intersection(given)


def _drawn_near(xp: Any, action: Array, box: Bounds) -> Array:
    """Move actions that are far from a box along the line to it, since turns do not settle from there.

    For a set of width w and an action at distance D, the answer is less than w^2 / D farther away than the nearest.
    """
    centre = box_centre(xp, box)
    farthest = REACH * largest(xp, xp.abs(box.high - box.low))[..., None]
    distance = largest(xp, xp.abs(action - centre))[..., None]
    is_far = (distance > farthest) & xp.isfinite(distance)
    share = farthest / xp.where(is_far, distance, 1.0)
    return xp.where(is_far, centre + share * (action - centre), action)
