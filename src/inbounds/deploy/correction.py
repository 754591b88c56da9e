"""How an infeasible action becomes a feasible one in bounded time: along a ray, by projection, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint, Polytope, SumBand
from inbounds.constraints.arrays import all_finite
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Situation
from inbounds.deploy.interventions import Kind
from inbounds.errors import ConstraintError, EmptySetError, InfeasibleActionError

Vector = NDArray[np.float64]
Action = NDArray[np.floating]
"""float32 or float64, as it leaves."""
Choice = Literal["quickest", "ray", "projection"]

SHRINKAGE = (1.0, 1.0 - 1e-6, 1.0 - 1e-4, 1.0 - 1e-2)
"""Shares of the way to the boundary that are tried in turn, since rounding may carry a point over it."""


class Place(NamedTuple):
    """Where an action is to be executed: what is seen, and what was executed before; both finite, or not known."""

    observation: Vector | None
    previous_action: Vector | None


class Moved(NamedTuple):
    """A feasible action, and how it was found."""

    action: Action
    kind: Kind


class Correction:
    """Moves actions into C(s): to c + t (a - c) on the ray from an interior point c, or to the nearest action.

    Whatever a step returns is checked once more, in the type that leaves; if one fails the next is taken, and at
    last c itself.
    """

    def __init__(self, constraint: Constraint, choice: Choice) -> None:
        """Decide which of the two ways comes first."""
        self.constraint = constraint
        self.is_constant = constraint.is_constant()
        self.reads_observation = reads_observation(constraint)
        self._size = constraint.size()
        self._centre: Vector | None = None
        is_ray = choice == "ray" or (choice == "quickest" and has_quick_interior(constraint))
        ways: list[tuple[Kind, Callable[[Place, Action], Iterator[Action]]]] = [
            ("ray", self._on_ray),
            ("projection", self._projected),
        ]
        self._ways = [*(ways if is_ray else ways[::-1]), ("interior_point", self._central)]

    def excess(self, place: Place, action: Action) -> float:
        """Return the violation of a finite action, in float64: +infinity where it overflows."""
        if action.size != self._size:  # let the constraint say what it expects
            observation, before = place
            return float(self.constraint.violation(observation, action, previous_action=before))
        at = Situation(np, np.float64, *place)
        at.require_fitting(action.shape[-1])
        return float(at.quietly(self.constraint.worst_excess, at, action.astype(np.float64)))

    def moved(self, place: Place, action: Action) -> Moved:
        """Return a feasible action near a finite one that is not."""
        problem: ConstraintError | None = None
        for kind, way in self._ways:
            try:
                # A point that overflowed is not feasible, and is not taken.
                with np.errstate(all="ignore"):
                    for point in way(place, action):
                        if all_finite(point) and self.excess(place, point) <= 0.0:
                            return Moved(point, kind)
            except ConstraintError as error:
                problem = error
        why = (
            str(problem)
            if problem
            else f"rounding to {action.dtype} leaves none inside; use dtype=np.float64."
        )
        kind_of_error = EmptySetError if isinstance(problem, EmptySetError) else InfeasibleActionError
        seen = (
            None
            if place.observation is None
            else np.array2string(place.observation, precision=4, threshold=8)
        )
        raise kind_of_error(
            f"no feasible action was found: {why} Nothing was executed. Widen the constraint, or look at the "
            f"observation: {seen}."
        ) from problem

    def centre(self, place: Place, size: int | None) -> Vector:
        """Return an interior point; `size` is the number of entries where the set does not tell it."""
        if self._centre is not None:
            return self._centre
        at, entries = self.constraint.situation_without_action(place.observation, size, place.previous_action)
        return self._centre_at(at, entries)

    def _centre_at(self, at: Situation, size: int) -> Vector:
        if self._centre is not None:
            return self._centre
        centre: Vector = self.constraint.interior(at, size)
        self.constraint.require_nonempty(at, self.constraint.tightened_excess(at, centre), size)
        if self.is_constant:
            self._centre = centre
        return centre

    def _on_ray(self, place: Place, action: Action) -> Iterator[Action]:
        at, target = Situation(np, np.float64, *place), action.astype(np.float64)
        centre = self._centre_at(at, target.size)
        direction = target - centre
        reach = min(float(self.constraint.reach(at, centre, direction)), 1.0)
        for share in SHRINKAGE:
            yield (centre + share * reach * direction).astype(action.dtype)

    def _projected(self, place: Place, action: Action) -> Iterator[Action]:
        point = self.constraint.project(place.observation, action, previous_action=place.previous_action)
        yield np.asarray(point, dtype=action.dtype)

    def _central(self, place: Place, action: Action) -> Iterator[Action]:
        yield self.centre(place, action.size).astype(action.dtype)


def reads_observation(constraint: Constraint) -> bool:
    """Tell whether the set cannot be known without an observation; one that reads the previous action alone can."""
    for member in constraint.members():
        read = [value for value in member.parameters().values() if isinstance(value, Reference)]
        if any(one.source == "observation" for one in read) or (not read and not member.is_constant()):
            return True
    return False


def has_quick_interior(constraint: Constraint) -> bool:
    """Tell whether an interior point costs less than a projection.

    It does where it never changes, and for curved sets. Only for linear rows that move with the state it is a
    program of its own, while projecting on them takes a few steps of an active-set method.
    """
    if constraint.is_constant():
        return True
    members = constraint.members()
    bands = sum(isinstance(member, SumBand) for member in members)
    return bands < 2 and not any(isinstance(member, Polytope) for member in members)
