"""How anything is asked for an action, and how an infeasible one becomes feasible in bounded time."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from inbounds.constraints import Constraint, Intersection, Polytope, RateLimit, Shell, SumBand, Union
from inbounds.constraints.arrays import all_finite, as_numpy, largest_size, namespace_of, worst_row
from inbounds.constraints.expressions import Expression
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Situation, require_fitting
from inbounds.deploy.interventions import Kind
from inbounds.errors import (
    ConfigurationError,
    ConstraintError,
    EmptySetError,
    InfeasibleActionError,
    InvalidInputError,
)

Proposer = Callable[[Any, NDArray[np.float64] | None], Any]
"""A function of the observation and of the action executed before it."""


def proposer(policy: Any, deterministic: bool = False) -> Proposer:
    """Return how to ask a policy: `act`, `predict` as stable-baselines3 has it, or a plain call.

    The previous action is passed to an `act` that takes it; `deterministic` to an `act` or `predict` that does.
    """
    if hasattr(policy, "act"):
        known = inspect.signature(policy.act).parameters
        fixed = {"deterministic": deterministic} if "deterministic" in known else {}
        return functools.partial(_acting_after if "previous_action" in known else _acting, policy, fixed)
    if hasattr(policy, "predict"):
        return functools.partial(_predicting, policy, deterministic)
    if callable(policy):
        return functools.partial(_called, policy)
    raise ConfigurationError(
        f"{policy!r} cannot be asked for an action. Pass an object with act(observation) or "
        f"predict(observation), or a function."
    )


# Functions of the module, since a filter may be sent to another process.


def _acting_after(policy: Any, fixed: dict[str, bool], observation: Any, before: Any) -> Any:
    return policy.act(observation, previous_action=before, **fixed)


def _acting(policy: Any, fixed: dict[str, bool], observation: Any, before: Any) -> Any:
    return policy.act(observation, **fixed)


def _predicting(policy: Any, deterministic: bool, observation: Any, before: Any) -> Any:
    return policy.predict(observation, deterministic=deterministic)[0]


def _called(policy: Any, observation: Any, before: Any) -> Any:
    return policy(observation)


def vector(name: str, value: Any, dtype: type[np.float64] | None = np.float64) -> NDArray[Any]:
    """Return one vector of real numbers, of its own type for `dtype=None`; anything else is refused."""
    array = as_numpy(name, value)
    if dtype is not None and array.dtype != dtype:
        array = array.astype(dtype)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"the {name} is {array.dtype} of shape {array.shape}, but one vector of real numbers is expected. "
            f"Flatten it, and pass one at a time."
        )
    return array


Vector = NDArray[np.float64]
Action = NDArray[np.floating]
"""float32 or float64, as it leaves."""
Choice = Literal["quickest", "ray", "projection"]

Fallback = Literal["refuse", "hold", "interior_point"]
"""What to do without an observation or an action that can be trusted."""
FALLBACKS = get_args(Fallback)

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
        return float(worst_row(np, self.rows(place, action)))

    def rows(self, place: Place, action: Action) -> Vector:
        """Return the excess of a finite action over every limit, in float64."""
        if action.size != self._size:  # let the constraint say what it expects
            observation, before = place
            at, array, _ = self.constraint.situation(observation, action.astype(np.float64), before)
        else:
            array = action.astype(np.float64)
            at = Situation(np, np.float64, *place, size=largest_size([*place, array]))
            require_fitting(self.constraint, at, action.shape[-1])
        rows: Vector = at.quietly(self.constraint.excess, at, array)
        return rows

    def moved(self, place: Place, action: Action) -> Moved:
        """Return a feasible action near a finite one that is not."""
        problem: ConstraintError | None = None
        for kind, way in self._ways:
            try:
                # A point that overflowed is not feasible, and is not taken.
                with np.errstate(all="ignore"):
                    for point in way(place, action):
                        if (
                            point.shape == action.shape
                            and all_finite(point)
                            and self.excess(place, point) <= 0.0
                        ):
                            return Moved(point, kind)
            except ConstraintError as error:
                # What another way found, such as that the set is not convex, tells more than that it seems empty.
                if problem is None or not isinstance(error, EmptySetError):
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
        point = self.constraint.interior(at, size)
        centre: Vector = at.one_action(self.constraint, "interior", point, (size,))
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


def parts_of(constraint: Constraint) -> Iterator[Constraint]:
    """Yield a set and all sets that it is made of, however they are joined."""
    yield constraint
    for value in constraint.parameters().values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Constraint):
                yield from parts_of(part)


def expressions_of(constraint: Constraint) -> Iterator[Expression]:
    """Yield all that a set and its members read or compute from the state."""
    for part in parts_of(constraint):
        for value in part.parameters().values():
            yield from (
                one
                for one in (value if isinstance(value, tuple | list) else (value,))
                if isinstance(one, Expression)
            )


def reads_previous_action(constraint: Constraint) -> bool:
    """Tell whether a set depends on the action that was executed before."""
    read = (reference for expression in expressions_of(constraint) for reference in expression.references())
    return any(reference.source == "previous_action" for reference in read)


def reads_observation(constraint: Constraint) -> bool:
    """Tell whether the set cannot be known without an observation; one that reads the previous action alone can."""
    for part in parts_of(constraint):
        values = (value for value in part.parameters().values() if isinstance(value, Expression))
        read = [reference for value in values for reference in value.references()]
        is_joined = isinstance(part, Intersection | Union)
        if any(one.source == "observation" for one in read) or not (read or is_joined or part.is_constant()):
            return True
    return False


def has_quick_interior(constraint: Constraint) -> bool:
    """Tell whether an interior point costs less than a projection.

    It does where it never changes, and for curved sets. Only for linear rows that move with the state it is a
    program of its own, while projecting on them takes a few steps of an active-set method. In a shell, a ray ends at
    the hole, far from an action on the other side, and the projection is a closed form.
    """
    members = constraint.members()
    if any(isinstance(member, Shell) for member in members):
        return False
    if constraint.is_constant():
        return True
    bands = sum(isinstance(member, SumBand) for member in members)
    return bands < 2 and not any(isinstance(member, Polytope) for member in members)


def leaving_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the number type of what leaves, one of two."""
    try:
        chosen: np.dtype[Any] = np.dtype(dtype)
    except TypeError:  # no type at all
        chosen = np.dtype(np.void)
    if chosen not in (np.float32, np.float64):
        raise ConfigurationError(f"dtype={dtype!r} is neither np.float32 nor np.float64. Use one of them.")
    return chosen


def require_fallbacks(chosen: Mapping[str, str]) -> None:
    """Refuse names of no fallback."""
    for name, value in chosen.items():
        if value not in FALLBACKS:
            raise ConfigurationError(f"{name}={value!r} is unknown. Choose from {', '.join(FALLBACKS)}.")


def observed_previous(constraint: Constraint, fallbacks: Mapping[str, str]) -> list[Reference]:
    """Return where an observation holds the previous action, as far as rate limits say so.

    Without an observation, a fallback writes there what was executed since; where it could not, it is refused.
    """
    limits = [part.previous for part in parts_of(constraint) if isinstance(part, RateLimit)]
    read = [one for one in limits if isinstance(one, Expression)]
    observed = [one for one in read if any(part.source == "observation" for part in one.references())]
    found = [one for one in observed if isinstance(one, Reference) and is_written_exactly(one)]
    answering = [f"{name}={value!r}" for name, value in fallbacks.items() if value != "refuse"]
    if answering and len(found) < len(observed):
        other = next(one for one in observed if one not in found)
        raise ConfigurationError(
            f"{answering[0]} counts from the action that was executed last, but the limit on changes reads {other}, "
            f"into which an action cannot be written without rounding. Let it read entries as they are, "
            f"ib.RateLimit(delta, previous=ib.obs[a:b]), or ib.previous_action; or choose 'refuse'."
        )
    return found


def is_written_exactly(reading: Reference) -> bool:
    """Tell whether entries can be found that read as any given numbers: a power of two loses none of their digits."""
    return reading.offset == 0.0 and abs(math.frexp(reading.scale)[0]) == 0.5


def recalled(readings: Sequence[Reference], last: Any, executed: Any) -> Any:
    """Return observations, (..., n), in which the readings give the actions, (..., d), that were executed since.

    Arrays are numpy's or torch's, both of float64.
    """
    xp, now = namespace_of(last), last + 0.0
    for reading in readings:
        places = np.ravel(reading.read_unscaled(np.arange(last.shape[-1]))).tolist()
        # One entry may stand for all of an action; whether it can is seen below.
        now[..., places] = executed[..., : len(places)] / reading.scale
    for reading in readings:
        read = reading.read(now)
        read = read[..., None] if isinstance(reading.indices, int) else read
        if not bool(xp.all(read == executed)):
            raise InvalidInputError(
                f"without an observation, what was executed last cannot be read from {reading}: {executed}. Nothing "
                f"was executed. Let the limit on changes read one entry for each of the action, or ib.previous_action."
            )
    return now
