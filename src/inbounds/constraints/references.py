"""Numbers that are read from the observation: data, not code, so that a constraint fits into a file."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import LARGE, Array, constant_like, namespace_of
from inbounds.constraints.expressions import Expression, Shape
from inbounds.errors import ConstraintError, InvalidInputError

LARGEST_INDEX = 10**9
"""Far more entries than any observation has, and few enough for arrays of indices."""


class Span(NamedTuple):
    """The entries start, start + step, ... before stop, as in a slice."""

    start: int | None
    stop: int | None
    step: int | None

    def size(self) -> int | None:
        """Return how many entries these are, where that does not depend on how many there are in all."""
        start, stop, step = self.start, self.stop, self.step or 1
        if start is None and step > 0:
            start = 0
        if start is None or stop is None or (start < 0) != (stop < 0):
            return None
        size = len(range(start, stop, step))
        # Counted from the end, a span may begin before the first entry.
        return size if start >= 0 or size == 0 else None


@dataclasses.dataclass(frozen=True)
class Reference(Expression):
    """The affine reading `scale * source[indices] + offset` of an observation or of the previous action.

    `indices` is None for all entries, an integer for one number, a `Span` or a tuple of integers for a
    vector; `shape` reshapes the vector row by row, so that a matrix can be read as well. With a `part`,
    `indices` count within that named part of the observation; `at_part` says where the part lies.
    """

    source: str
    indices: int | tuple[int, ...] | Span | None
    scale: float = 1.0
    offset: float = 0.0
    shape: tuple[int, ...] | None = None
    part: str | None = None

    # With a number, a reading stays a reading; with all else it becomes a part of an expression.

    def __mul__(self, factor: Any) -> Any:
        if not _is_number(factor):
            return super().__mul__(factor)
        number = _number("multiplied by", factor)
        return dataclasses.replace(self, scale=self.scale * number, offset=self.offset * number)

    def __rmul__(self, factor: Any) -> Any:
        return self * factor if _is_number(factor) else super().__rmul__(factor)

    def __add__(self, shift: Any) -> Any:
        if not _is_number(shift):
            return super().__add__(shift)
        return dataclasses.replace(self, offset=self.offset + _number("shifted by", shift))

    def __radd__(self, shift: Any) -> Any:
        return self + shift if _is_number(shift) else super().__radd__(shift)

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, shift: Any) -> Any:
        return self + (-_number("shifted by", shift)) if _is_number(shift) else super().__sub__(shift)

    def __rsub__(self, shift: Any) -> Any:
        return -self + shift if _is_number(shift) else super().__rsub__(shift)

    def __truediv__(self, divisor: Any) -> Any:
        if not _is_number(divisor):
            return super().__truediv__(divisor)
        if divisor == 0:
            raise ConstraintError(f"{self} is divided by zero. Divide by another number.")
        return self * (1.0 / _number("divided by", divisor))

    @functools.cached_property
    def own_shape(self) -> Shape:
        """The shape of what is read in a single state."""
        if self.shape is not None:
            return self.shape
        return () if isinstance(self.indices, int) else (self.size(),)

    @property
    def counts_from_the_end(self) -> bool:
        """Tell whether it depends on the number of entries of an observation which of them are read."""
        if self.part is not None or self.source != "observation":
            return False
        if self.indices is None or isinstance(self.indices, Span):
            start, stop, _ = self.indices or Span(None, None, None)
            return stop is None or stop < 0 or (start or 0) < 0
        return int(np.min(self.indices)) < 0

    def references(self) -> Iterator[Reference]:
        """Yield this reference."""
        yield self

    def replaced(self, change: Callable[[Reference], Reference]) -> Reference:
        """Return what the change makes of this reference."""
        return change(self)

    def reshape(self, *shape: int) -> Reference:
        """Read the entries as an array of this shape, row by row."""
        return dataclasses.replace(self, shape=tuple(int(side) for side in shape))

    def at_part(self, start: int, size: int) -> Reference:
        """Return the same reading by plain indices, for a named part of `size` entries that begins at `start`."""
        positions = range(size)
        if self.indices is None:
            indices: int | tuple[int, ...] | Span = Span(start, start + size, None)
        elif isinstance(self.indices, Span):
            taken = positions[slice(*self.indices)]
            if not taken:
                raise ConstraintError(f"{self} names no entries: the part has {size}. Name others.")
            indices = (
                Span(start + taken[0], start + taken[-1] + 1, None)
                if taken.step == 1
                else tuple(start + position for position in taken)
            )
        else:
            chosen = np.atleast_1d(self.indices).tolist()
            if any(not -size <= index < size for index in chosen):
                raise ConstraintError(f"{self} names entries beyond the part's {size}. Name others.")
            absolute = tuple(start + positions[index] for index in chosen)
            indices = absolute[0] if isinstance(self.indices, int) else absolute
        return dataclasses.replace(self, indices=indices, part=None)

    def read(self, values: Array | None) -> Array:
        """Take the entries out of an observation (leading axes are kept) and apply scale and offset."""
        taken = self.read_unscaled(values)
        if self.scale != 1.0:
            taken = taken * self.scale
        return taken + self.offset if self.offset != 0.0 else taken

    def read_unscaled(self, values: Array | None) -> Array:
        """Take the entries out of an observation, as they are."""
        if self.part is not None:
            raise InvalidInputError(
                f"the constraint reads {self} by a name, which only a Task knows. Ask task.constraint, or name "
                f"the entries by their numbers."
            )
        if values is None:
            raise InvalidInputError(
                f"the constraint reads {self}, but no {self._source_name()} was given. Pass it along."
            )
        size = values.shape[-1]
        if size < self.least_size:
            raise InvalidInputError(
                f"the constraint reads {self}, but the {self._source_name()} has only {size} entries. "
                f"Check the indices of the constraint, or the {self._source_name()} that was passed."
            )
        if self._key is not None:
            taken = values[..., self._key]
        else:
            xp = namespace_of(values)
            positions = [index % size for index in self.indices]  # type: ignore[union-attr]
            taken = xp.take(values, constant_like(values, np.asarray(positions)), axis=-1)
        count = 1 if isinstance(self.indices, int) else int(taken.shape[-1])
        if not count:
            raise self._misfit(values, "no entry at all")
        if self.shape is None:
            return taken
        if count != math.prod(self.shape):
            raise self._misfit(values, f"{count} entries, not the {math.prod(self.shape)} of {self.shape}")
        return namespace_of(values).reshape(taken, (*values.shape[:-1], *self.shape))

    def _misfit(self, values: Array, read: str) -> InvalidInputError:
        return InvalidInputError(
            f"the constraint reads {self}, which in {'an' if self.source == 'observation' else 'a'} "
            f"{self._source_name()} of {values.shape[-1]} entries is {read}. Check the indices of the constraint, "
            f"or the {self._source_name()} that was passed."
        )

    @functools.cached_property
    def _key(self) -> int | slice | None:
        """What plain indexing takes; None for a list of entries."""
        if isinstance(self.indices, Span):
            return slice(*self.indices)
        return (
            slice(None) if self.indices is None else self.indices if isinstance(self.indices, int) else None
        )

    @functools.cached_property
    def least_size(self) -> int:
        """How many entries the source must have, before a named part is resolved."""
        if self.indices is None:
            return 1
        if isinstance(self.indices, Span):
            start, stop, _ = self.indices
            return max(1, _needed(start) if start is not None else 1, stop if stop is not None else 1)
        return max(_needed(index) for index in np.atleast_1d(self.indices).tolist())

    @functools.cached_property
    def overflows_beyond(self) -> float:
        """How large a finite entry may be before scale and offset can make it infinite."""
        if abs(self.scale) <= 1.0 and abs(self.offset) <= LARGE:
            return math.inf
        return (sys.float_info.max - abs(self.offset)) / max(abs(self.scale), 1.0)

    def size(self) -> int | None:
        """Return how many entries the last axis has, where that is known without an observation."""
        if self.shape is not None:
            return self.shape[-1]
        if isinstance(self.indices, Span):
            return self.indices.size()
        return len(self.indices) if isinstance(self.indices, tuple) else None

    def to_json(self) -> dict[str, Any]:
        """Return the plain data that `reference_from_json` turns back into this reference."""
        if self.part is not None:
            raise ConstraintError(
                f"{self} is a name, which means nothing outside its Task. Write task.constraint to the file."
            )
        indices: Any = self.indices
        if isinstance(indices, Span):
            indices = indices._asdict()
        elif isinstance(indices, tuple):
            indices = list(indices)
        shape = list(self.shape) if self.shape is not None else None
        affine = {"scale": self.scale, "offset": self.offset}
        return {"source": self.source, "indices": indices, **affine, "shape": shape}

    def _source_name(self) -> str:
        return self.source.replace("_", " ")

    def __str__(self) -> str:
        text = "obs" if self.source == "observation" else self.source
        if self.part is not None:
            text += f"[{self.part!r}]"
        indices = self.indices
        if isinstance(indices, Span):
            parts = ["" if part is None else str(part) for part in indices]
            text += f"[{':'.join(parts if parts[2] else parts[:2])}]"
        elif indices is not None:
            text += f"[{indices if isinstance(indices, int) else list(indices)}]"
        if self.scale != 1.0:
            text = f"{self.scale:g}*{text}"
        if self.offset != 0.0:
            text = f"({text} {'+' if self.offset > 0 else '-'} {abs(self.offset):g})"
        return text


def reference_from_json(data: dict[str, Any]) -> Reference:
    """Rebuild a reference from plain data, refusing what `to_json` never writes."""
    source, indices, shape = data.get("source"), data.get("indices"), data.get("shape")
    if source not in ("observation", "previous_action"):
        raise ConstraintError(
            f"a reference reads from 'observation' or 'previous_action', not {source!r}. Correct it."
        )
    if isinstance(indices, dict) and set(indices) == set(Span._fields):
        indices = Span(*(None if indices[part] is None else _integer(indices[part]) for part in Span._fields))
        if indices.step == 0:
            raise ConstraintError("a reference with step 0 names no entries. Give 'step' another value.")
        if indices.size() == 0:
            raise ConstraintError("a reference ends before it begins. Give 'start' and 'stop' other values.")
    elif isinstance(indices, list):
        indices = tuple(_integer(index) for index in indices)
        if not indices:
            raise ConstraintError(
                "a reference with an empty list names no entries. Give 'indices' one or more."
            )
    elif indices is not None:
        indices = _integer(indices)
    if shape is not None:
        if not isinstance(shape, list):
            raise ConstraintError(
                f"the shape of a reference is a list of integers, not {shape!r}. Correct 'shape'."
            )
        shape = tuple(_integer(side) for side in shape)
        if not shape or min(shape) < 1:
            raise ConstraintError(
                f"a reference has no array of shape {shape}. Give 'shape' sides of 1 or more."
            )
    scale, offset = (
        _number("scaled and shifted by", data.get(key, default))
        for key, default in (("scale", 1.0), ("offset", 0.0))
    )
    return Reference(source, indices, scale, offset, shape)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _number(action: str, value: Any) -> float:
    if _is_number(value) and abs(value) <= sys.float_info.max:  # false for NaN as well
        return float(value)
    raise ConstraintError(
        f"a reference can be {action} a finite number, got {value!r}. Name single entries for more."
    )


def _needed(index: int) -> int:
    return index + 1 if index >= 0 else -index


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INDEX:
        return value
    raise ConstraintError(
        f"the indices of a reference are integers up to {LARGEST_INDEX:,} in size, got {value!r:.80}. Correct "
        f"'indices' or 'shape'."
    )


class ObservationEntries:
    """`obs[11:17]`, `obs[3]` and `obs[[1, 4]]` name entries of the observation.

    `obs["power"]` and `obs["power", 2:5]` name a part of an observation that is a dictionary, and entries of
    that part; the Task that gets the constraint knows where they lie.
    """

    def __iter__(self) -> Iterator[Reference]:
        """Refuse: Python would name one entry after another without end."""
        raise ConstraintError(
            "ib.obs alone names no entries, and only an observation tells how many there are. Say which: ib.obs[0:3]."
        )

    def __contains__(self, item: Any) -> bool:
        """Refuse, for the same reason."""
        return item in iter(self)

    def __repr__(self) -> str:
        return "ib.obs"

    def __getitem__(self, selection: Any) -> Reference:
        """Name the selected entries."""
        if isinstance(selection, str) and selection:
            return Reference("observation", None, part=selection)
        if isinstance(selection, tuple) and len(selection) == 2 and isinstance(selection[0], str):
            return dataclasses.replace(self[selection[1]], part=selection[0])
        if isinstance(selection, slice):
            parts = (selection.start, selection.stop, selection.step)
            if all(part is None or isinstance(part, int) for part in parts) and selection.step != 0:
                reference = Reference("observation", Span(*parts))
                if reference.size() == 0:
                    raise ConstraintError(
                        f"{reference} names no entries: it ends before it begins. Write it as in obs[11:17]."
                    )
                return reference
        elif isinstance(selection, list | tuple):
            if any(isinstance(index, bool | np.bool_) for index in selection):
                raise ConstraintError(
                    f"obs[{selection!r}] names no entries: True and False would be read as entries 1 and 0. Write the "
                    f"numbers of the entries that a mask keeps: obs[np.flatnonzero(mask).tolist()]."
                )
            if selection and all(isinstance(index, int | np.integer) for index in selection):
                return Reference("observation", tuple(int(index) for index in selection))
        elif isinstance(selection, int | np.integer) and not isinstance(selection, bool):
            return Reference("observation", int(selection))
        raise ConstraintError(
            f"obs[{selection!r}] names no entries. Use an integer, a slice or a list of integers: obs[11:17]; "
            f"or the name of a part: obs['power']."
        )


obs = ObservationEntries()
"""Entries of the observation, to be used wherever a constraint takes a number or an array."""

previous_action = Reference("previous_action", None)
"""The action that was executed last, for limits on how fast an action may change."""
