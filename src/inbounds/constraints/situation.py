"""Where a constraint is asked, and the numbers it was given: how they are kept, read, compared and shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import (
    LARGE,
    Array,
    as_array,
    convert,
    is_everywhere,
    namespace_of,
    require_finite,
    without_gradient,
    working_dtype,
)
from inbounds.constraints.evaluation import Evaluation
from inbounds.constraints.expressions import Constant, Expression, holds_expression
from inbounds.constraints.functions import stack
from inbounds.constraints.references import Reference
from inbounds.errors import ConstraintError, InvalidInputError

Parameter = Any
"""A number, an array, or an `Expression` of the observation and the previous action."""

RELATIVE_MARGIN = 1e-6
"""How far inside its bound an action must lie, relative to the row, for `contains` to accept it."""


def relative_margin(dimension: int) -> float:
    """Return the margin that covers the rounding of a float32 sum over `dimension` terms.

    Up to eight entries this is 1e-6; a longer sum rounds more, and float32 acceptance must still imply
    feasibility in float64.
    """
    return max(RELATIVE_MARGIN, dimension * 1.2e-7)


class Situation(NamedTuple):
    """Where a constraint is asked: the array library, its number type, and what parameters are read from.

    In single precision, which is JAX's default, every step rounds to float32 and products may underflow.
    `margins` says how many margins a row must keep to be accepted, which is one but where a float32 result
    has to be accepted in float64 as well; `slack` says how many a projection aims at, so that rounding does
    no harm. No number in the action, the observation and the previous action is larger than `size`, which is
    infinite where they were not looked at. `known` keeps the values of expressions for the questions that follow
    from one; compiled functions have None, since what one branch computes is not known in another.
    """

    xp: Any
    dtype: Any
    observation: Array | None
    previous_action: Array | None
    device: Any = None
    is_single_precision: bool = False
    margins: float = 1.0
    slack: float = 1.2
    size: float = float("inf")
    known: dict[tuple[int, str], Any] | None = None

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes of observation and previous action together: () for a single state."""
        sources = [source for source in (self.observation, self.previous_action) if source is not None]
        return np.broadcast_shapes(*(tuple(source.shape[:-1]) for source in sources))

    def value(self, parameter: Parameter, axes: int = 1) -> Array:
        """Return a parameter as an array whose last `axes` axes are its own (0: a number, 1: a vector).

        Axes before them belong to the batch of observations. A number asked for as a vector gets one entry.
        A reading that overflows is NaN, which no row accepts: as an infinite bound it would allow everything.
        """
        if isinstance(parameter, Reference):
            read = parameter.read(self.source_of(parameter))
            if self.size >= parameter.overflows_beyond:  # the size of what is traced is infinite
                is_finite = self.xp.isfinite(read)
                if self.xp is not np or not is_everywhere(is_finite):
                    read = self.xp.where(is_finite, read, float("nan"))
            return _with_axes(read, parameter, axes)
        if isinstance(parameter, Expression):
            return _with_axes(self._computed(parameter, "value"), parameter, axes)
        array = parameter if self.xp is np else convert(parameter, self.xp, self.dtype, self.device)
        return array if array.ndim >= axes else array[(None,) * (axes - array.ndim)]

    def magnitude(self, parameter: Parameter, axes: int = 1) -> Array:
        """Return what the rounding of a parameter is relative to: |p|, or |scale * entry| + |offset|.

        The two differ where an offset cancels what was read; float32 observations make such a difference
        uncertain.
        """
        if isinstance(parameter, Expression) and not isinstance(parameter, Reference):
            return _with_axes(self._computed(parameter, "magnitude"), parameter, axes)
        if not isinstance(parameter, Reference) or parameter.offset == 0.0:
            return self.xp.abs(self.value(parameter, axes))
        read = parameter.read_unscaled(self.source_of(parameter))
        return self.xp.abs(_with_axes(read, parameter, axes)) * abs(parameter.scale) + abs(parameter.offset)

    def alone(self, place: tuple[int, ...], lead: tuple[int, ...]) -> Situation:
        """Return the situation of one place of a batch whose axes are `lead`."""

        def here(source: Array | None) -> Array | None:
            return None if source is None else self.xp.broadcast_to(source, (*lead, source.shape[-1]))[place]

        return self._replace(observation=here(self.observation), previous_action=here(self.previous_action))

    def one_action(self, constraint: Any, method: str, point: Array, shape: Any) -> Array:
        """Return what a method of a set answers for actions of a shape; another shape would be repeated to fit."""
        own, wanted = tuple(np.shape(point)), tuple(shape)
        if own == wanted:
            return point
        lead = np.broadcast_shapes(wanted[:-1], self.batch)
        sides = zip(reversed(own[:-1]), reversed(lead), strict=False)
        if (
            own[-1:] != wanted[-1:]
            or len(own) > len(lead) + 1
            or any(one not in (1, most) for one, most in sides)
        ):
            raise ConstraintError(
                f"{type(constraint).__name__}.{method} returned an array of shape {own}, but one action of shape "
                f"{(*lead, *wanted[-1:])} is expected. Correct the method."
            )
        return point

    def _computed(self, parameter: Expression, what: str) -> Array:
        """Return the value or the magnitude of an expression, computed once for the same arrays."""
        if self.known is None:
            return getattr(Evaluation(parameter, self), what)()
        sources = (self.observation, self.previous_action)
        entry = self.known.get((id(parameter), what))
        if entry is None or entry[0][0] is not sources[0] or entry[0][1] is not sources[1]:
            entry = sources, getattr(Evaluation(parameter, self), what)()
            self.known[id(parameter), what] = entry
        return entry[1]

    def quietly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns; numpy does not warn of overflow, of which the answer tells already.

        Products that vanish are what the margins allow for, also where a program made them errors (`np.seterr`). Trying
        first costs other programs nothing.
        """
        if self.size <= LARGE:
            try:
                return function(*arguments)
            except FloatingPointError:
                pass
        with np.errstate(all="ignore"):
            return function(*arguments)

    def without_gradient(self) -> Situation:
        """Return the same situation, for automatic differentiation a constant."""
        observation, previous = self.observation, self.previous_action
        return self._replace(
            observation=None if observation is None else without_gradient(observation),
            previous_action=None if previous is None else without_gradient(previous),
        )

    def source_of(self, parameter: Reference) -> Array | None:
        """Return the array that a reference reads from."""
        return self.observation if parameter.source == "observation" else self.previous_action

    def require_fitting(self, dimension: int, batch: tuple[int, ...] = ()) -> None:
        """Refuse what would only fit by repeating entries, or not at all; `batch` is the shape of many actions."""
        before = self.previous_action
        if before is not None and before.shape[-1] != dimension:
            raise InvalidInputError(
                f"the previous action has {before.shape[-1]} entries, but an action has {dimension}. "
                f"Pass the action that was executed last, as it was."
            )
        for name, source in (("observation", self.observation), ("previous action", before)):
            if source is None or source.ndim < 2 or not batch:
                continue
            try:
                batch = np.broadcast_shapes(batch, tuple(source.shape[:-1]))
            except ValueError as error:
                raise InvalidInputError(
                    f"a batch of shape {tuple(source.shape[:-1])} for the {name} does not fit actions in a batch of "
                    f"shape {tuple(batch)}. Pass one {name} for each action, or one for all."
                ) from error


OF_ENTRIES = ("low", "high", "weights", "delta", "previous")
"""Arguments with one number for each entry of an action, or a single one for all."""


class OpenReading(NamedTuple):
    """An argument such as `obs[2:]`, whose length only an observation tells, and how long it must be."""

    name: str
    reading: Expression
    expected: int | None
    """None stands for the number of entries of an action."""


def open_readings(constraint: Any) -> list[OpenReading]:
    """Return the arguments of a set and of those that it is made of whose length has to be looked at."""
    # With the set itself: one that is compared by its content may have no hash, or that of another one.
    known: list[OpenReading] | None = constraint.__dict__.get("_open_readings")
    if known is not None:
        return known
    found, parameters = list[OpenReading](), constraint.parameters()
    for name, value in parameters.items():
        parts = value if isinstance(value, tuple) else (value,)
        found += [reading for part in parts if hasattr(part, "parameters") for reading in open_readings(part)]
        is_open = isinstance(value, Expression) and value.own_shape == (None,)
        if not is_open or str(value) == "previous_action":  # which every question compares with the action
            continue
        if name in OF_ENTRIES:
            found.append(OpenReading(f"{name} of {type(constraint).__name__}", value, None))
        elif name == "b":
            rows = (
                parameters["A"].own_shape
                if isinstance(parameters["A"], Expression)
                else parameters["A"].shape
            )
            found.append(OpenReading(f"b of {type(constraint).__name__}", value, rows[0]))
    constraint.__dict__["_open_readings"] = found
    return found


def require_fitting(constraint: Any, at: Situation, dimension: int, batch: tuple[int, ...] = ()) -> None:
    """Refuse sources that do not fit an action, and readings that are longer or shorter than what they stand for."""
    at.require_fitting(dimension, batch)
    if at.xp is not np and at.xp.__name__.startswith("jax"):
        _require_kept(constraint, at.dtype)
    for name, reading, expected in open_readings(constraint):
        entries, wanted = at.value(reading).shape[-1], dimension if expected is None else expected
        if wanted is not None and entries not in (1, wanted):
            raise InvalidInputError(
                f"{name} is {reading}, which has {entries} entries here, but {wanted} are expected. Check which "
                f"entries it reads, and how long the observation and the action are."
            )


def smallest_constant(constraint: Any) -> float:
    """Return the size of the smallest constant but zero that a set and its members state, infinity without any.

    Bounds of boxes do not count, as they are rounded inward to numbers that every type keeps.
    """
    known: float | None = constraint.__dict__.get("_smallest_constant")
    if known is not None:
        return known
    smallest = float("inf")
    for name, value in constraint.parameters().items():
        for part in value if isinstance(value, tuple) else (value,):
            if hasattr(part, "parameters"):
                smallest = min(smallest, smallest_constant(part))
            elif isinstance(part, Reference) or (
                isinstance(part, np.ndarray) and name not in ("low", "high")
            ):
                numbers = [part.scale, part.offset] if isinstance(part, Reference) else part
                sizes = np.abs(np.asarray(numbers, np.float64))
                smallest = min(smallest, float(np.min(sizes, initial=np.inf, where=sizes > 0)))
    constraint.__dict__["_smallest_constant"] = smallest
    return smallest


def _require_kept(constraint: Any, dtype: Any) -> None:
    """Refuse constants that JAX takes for zero in its type: a limit without them would allow everything."""
    smallest, least = smallest_constant(constraint), float(np.finfo(dtype).tiny)
    if smallest < least:
        raise ConstraintError(
            f"{constraint.formula()} states the number {smallest:.3g}, but JAX computes in {np.dtype(dtype)} here and "
            f"takes numbers below {least:.2g} for zero. State the set in other units, or ask in NumPy or with "
            f"JAX_ENABLE_X64=1."
        )


class Question(NamedTuple):
    """A checked question: the situation, the action to compute with, and the action as it came."""

    at: Situation
    action: Array
    original: Array


def read_situation(like: Array, observation: Any, previous_action: Any, size: float = 0.0) -> Situation:
    """Check observation and previous action and bring them to the array library of `like`.

    `size` is what no entry of the action exceeds, where there is one.
    """
    xp = namespace_of(like)
    dtype = working_dtype(xp)
    device = like.device if "torch" in xp.__name__ else None
    is_single = xp is not np and bool(dtype == xp.float32)
    # A float64 result loses nothing that matters to rounding, a float32 result up to half a unit, and a
    # projection that is computed in float32 a few units.
    slack = 1.8 if is_single else 1.0 + 1e-5 if like.dtype == dtype else 1.2
    seen = before = None
    if observation is not None:
        seen = as_array("observation", observation)
        size = max(size, require_finite("observation", seen))
        seen = convert(seen, xp, dtype, device)
    if previous_action is not None:
        before = as_array("previous action", previous_action)
        size = max(size, require_finite("previous action", before))
        before = convert(before, xp, dtype, device)
    size = size if xp is np else float("inf")
    known: dict[tuple[int, str], Any] | None = {} if xp is np else None
    return Situation(xp, dtype, seen, before, device, is_single, slack=slack, size=size, known=known)


def _with_axes(read: Array, parameter: Expression, axes: int) -> Array:
    own = len(parameter.own_shape)
    if own == axes + 1 and read.shape[-1] == 1:
        return read[..., 0]
    if own > axes:
        kind = ("one number", "a vector")[min(axes, 1)]
        raise InvalidInputError(
            f"{parameter} reads an array of shape {read.shape[read.ndim - own :]} where {kind} is expected. "
            f"Name fewer entries."
        )
    return read[(..., *(None,) * (axes - own), *(slice(None),) * own)] if own < axes else read


_KINDS = {0: "a number", 1: "a number or a vector", 2: "a matrix"}


def parameter(owner: str, name: str, value: Any, axes: int, *, is_finite: bool = True) -> Any:
    """Keep an expression as it is and turn numbers into a read-only float64 array with at most `axes` axes.

    A single number stays an array without axes: it holds for every entry, whatever the dimension of the
    action. A list with expressions among its entries becomes an expression.
    """
    if isinstance(value, Reference):
        return value
    if holds_expression(value):
        value = stack(value)
    if isinstance(value, Constant):
        value = value.array
    if isinstance(value, Expression):
        return _fitting(owner, name, value, axes)
    try:
        array = np.array(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConstraintError(
            f"{owner}: {name} is {value!r:.80}, but {_KINDS[axes]} is expected. Pass numbers or obs[...]."
        ) from error
    if array.ndim > axes or (axes == 2 and array.ndim != 2) or array.size == 0:
        raise ConstraintError(
            f"{owner}: {name} has shape {array.shape}, but {_KINDS[axes]} is expected. Change its shape."
        )
    if np.any(np.isnan(array)) or (is_finite and not np.all(np.isfinite(array))):
        raise ConstraintError(
            f"{owner}: {name} holds a value that is not a finite number: {value!r}. Correct it."
        )
    array.flags.writeable = False
    return array


def _fitting(owner: str, name: str, value: Expression, axes: int) -> Expression:
    """Refuse an expression with more axes than there may be; one with a single entry may stand for a number."""
    shape = value.own_shape
    if len(shape) <= axes or (len(shape) == axes + 1 and shape[-1] in (1, None)):
        return value
    raise ConstraintError(
        f"{owner}: {name} is {value}, which has shape {shape}, but {_KINDS[axes]} is expected. Name fewer "
        f"entries, or make one number of them with ib.sum or ib.dot."
    )


def length(owner: str, **vectors: Any) -> int | None:
    """Return the number of entries that vectors agree on; None where all are single numbers or unknown."""
    known: dict[str, int] = {}
    for name, value in vectors.items():
        entries = value.size() if isinstance(value, Expression) else len(value) if np.ndim(value) else None
        if entries is not None:
            known[name] = entries
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name} has {entries}" for name, entries in known.items())
        raise ConstraintError(
            f"{owner}: the numbers of entries differ: {listed}. Give all of them the same length."
        )
    return next(iter(known.values()), None)


def show(value: Any) -> str:
    """Write a parameter for a formula: expressions and short arrays as they are, longer ones by range."""
    if isinstance(value, Expression):
        return str(value)
    array = np.asarray(value)
    if array.ndim == 0 or np.all(array == array.flat[0]):
        return f"{float(array.flat[0]):g}"
    if array.size <= 4:
        return "(" + ", ".join(f"{float(entry):g}" for entry in array.ravel()) + ")"
    return f"[{array.min():g}..{array.max():g}]"


def entry(value: Any, index: int) -> str:
    """Write one entry of a vector parameter for the name of a row."""
    if isinstance(value, Expression):
        if not value.own_shape:
            return str(value)
        return f"{value}[{index}]" if isinstance(value, Reference) else f"({value})[{index}]"
    return f"{float(value if np.ndim(value) == 0 else value[index]):g}"
