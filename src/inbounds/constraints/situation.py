"""Where a constraint is asked: the array library, its number type, and what parameters are read from."""

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
from inbounds.constraints.references import Reference
from inbounds.errors import InvalidInputError

Parameter = Any
"""A number, an array, or a `Reference` to entries of the observation."""

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
    infinite where they were not looked at.
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
            if self.size > parameter.overflows_beyond:
                is_finite = self.xp.isfinite(read)
                if self.xp is not np or not is_everywhere(is_finite):
                    read = self.xp.where(is_finite, read, float("nan"))
            return _with_axes(read, parameter, axes)
        array = parameter if self.xp is np else convert(parameter, self.xp, self.dtype, self.device)
        return array if array.ndim >= axes else array[(None,) * (axes - array.ndim)]

    def magnitude(self, parameter: Parameter, axes: int = 1) -> Array:
        """Return what the rounding of a parameter is relative to: |p|, or |scale * entry| + |offset|.

        The two differ where an offset cancels what was read; float32 observations make such a difference
        uncertain.
        """
        if not isinstance(parameter, Reference) or parameter.offset == 0.0:
            return self.xp.abs(self.value(parameter, axes))
        read = parameter.read_unscaled(self.source_of(parameter))
        return self.xp.abs(_with_axes(read, parameter, axes)) * abs(parameter.scale) + abs(parameter.offset)

    def quietly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns; numpy does not warn of overflow, of which the answer tells already."""
        if self.size <= LARGE:
            return function(*arguments)
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
    return Situation(xp, dtype, seen, before, device, is_single, slack=slack, size=size)


def _with_axes(read: Array, parameter: Reference, axes: int) -> Array:
    own = (
        len(parameter.shape)
        if parameter.shape is not None
        else 0
        if isinstance(parameter.indices, int)
        else 1
    )
    if own == axes + 1 and read.shape[-1] == 1:
        return read[..., 0]
    if own > axes:
        kind = ("one number", "a vector")[min(axes, 1)]
        raise InvalidInputError(
            f"{parameter} reads an array of shape {read.shape[read.ndim - own :]} where {kind} is expected. "
            f"Name fewer entries."
        )
    return read[(..., *(None,) * (axes - own), *(slice(None),) * own)] if own < axes else read
