"""How observations and actions with parts become one vector and back, and how constraints read parts by name."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint, Expression, Oracle, Reference
from inbounds.constraints.arrays import as_numpy
from inbounds.errors import ConfigurationError, ConstraintError, InvalidInputError, SimulationError


class Part(NamedTuple):
    """One array within a larger whole: what it is called, how to get there, and where its numbers go."""

    name: str
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclasses.dataclass(frozen=True)
class Flattening:
    """The order in which the arrays of a nested whole follow one another in a vector.

    Parts come in the order of their space (Gymnasium sorts the keys of a plain dictionary), each row by row.
    """

    what: str
    """What is flattened, for messages."""
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """The number of entries of the vector."""
        return sum(part.size for part in self.parts)

    def named_sizes(self) -> tuple[tuple[str, int], ...]:
        """Return names and sizes of the parts."""
        return tuple((part.name, part.size) for part in self.parts)

    def named_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the parts, in the order of their names; axes of length 1 do not count."""
        return sorted((part.name, tuple(side for side in part.shape if side != 1)) for part in self.parts)

    def listed(self) -> str:
        """Write names and shapes of the parts."""
        return ", ".join(f"{part.name} of shape {part.shape}" for part in self.parts) or "nothing"

    def flatten(self, whole: Any) -> NDArray[np.float64]:
        """Return the vector of a whole; one that does not have the expected parts is refused."""
        pieces = []
        for part in self.parts:
            value = whole
            try:
                for step in part.path:
                    value = value[step]
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise SimulationError(
                    f"{self.what} has no numbers at '{part.name}' ({error!r}). Let the environment return the "
                    f"same parts at every reset and step."
                ) from error
            pieces.append(vector_of_part(self.what, part.name, value, part.shape))
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0), *pieces])

    def unflatten(self, vector: NDArray[np.floating]) -> Any:
        """Return the whole whose vector this is."""
        if len(self.parts) == 1 and not self.parts[0].path:
            only = self.parts[0]
            return vector.astype(only.dtype).reshape(only.shape)
        whole: dict[Any, Any] = {}
        start = 0
        for part in self.parts:
            values = vector[start : start + part.size].astype(part.dtype).reshape(part.shape)
            start += part.size
            branch = whole
            for step in part.path[:-1]:
                branch = branch.setdefault(step, {})
            branch[part.path[-1]] = values
        return _with_tuples(whole)


def vector_of_part(what: str, name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the numbers of one part; of another count, they would shift what is read behind them."""
    try:
        piece = as_numpy(what, value)
    except InvalidInputError as error:
        raise SimulationError(
            f"{what} has no numbers at '{name}': {error} Let the environment return the same parts at every reset "
            f"and step."
        ) from error
    if piece.size != math.prod(shape):
        raise SimulationError(
            f"'{name}' of {what} has shape {piece.shape}, but {shape} was announced. Let the environment keep to one "
            f"shape."
        )
    return piece.astype(np.float64, copy=False).ravel()


def flattening_of_space(what: str, space: Any, remedy: str) -> Flattening:
    """Return the order of the parts of a space made of Boxes, Dicts and Tuples; other spaces are refused."""
    parts: list[Part] = []

    def visit(inner: Any, path: tuple[Any, ...]) -> None:
        if isinstance(inner, gymnasium.spaces.Box) and inner.dtype.kind in "fiu":
            parts.append(Part("/".join(map(str, path)) or what, path, inner.shape, inner.dtype))
        elif isinstance(inner, gymnasium.spaces.Dict):
            for key, value in inner.spaces.items():
                visit(value, (*path, key))
        elif isinstance(inner, gymnasium.spaces.Tuple):
            for index, value in enumerate(inner.spaces):
                visit(value, (*path, index))
        else:
            where = f" at '{'/'.join(map(str, path))}'" if path else ""
            raise ConfigurationError(f"the {what} space holds {inner}{where}, which is not a Box. {remedy}")

    visit(space, ())
    if not parts:
        raise ConfigurationError(f"the {what} space {space} is empty. {remedy}")
    return Flattening(what, tuple(parts))


def flattening_of_value(what: str, value: Any) -> Flattening:
    """Return the order of the parts of published numbers: an array, or a dictionary of arrays."""
    parts: list[Part] = []

    def visit(inner: Any, path: tuple[Any, ...]) -> None:
        if isinstance(inner, Mapping):
            for key in inner:
                visit(inner[key], (*path, key))
            return
        try:
            array = as_numpy(what, inner)
        except InvalidInputError as error:
            raise ConfigurationError(
                f"the environment publishes {inner!r} as info['{what}'], which is not an array of numbers. Publish "
                f"the numbers that the set depends on, and let a constraint read them by ib.obs['{what}']."
            ) from error
        parts.append(Part("/".join(map(str, (what, *path))), path, array.shape, array.dtype))

    visit(value, ())
    return Flattening(what, tuple(parts))


def _with_tuples(whole: Any) -> Any:
    """Turn the branches that are numbered from 0 into tuples, as the spaces of that kind expect."""
    if not isinstance(whole, dict):
        return whole
    inner = {key: _with_tuples(value) for key, value in whole.items()}
    return tuple(inner.values()) if list(inner) == list(range(len(inner))) else inner


PREVIOUS_ACTION = "previous_action"
"""The part of an observation that holds the action executed last, and the source of references to it."""


def references_of(constraint: Constraint) -> Iterator[tuple[str, str, Reference]]:
    """Yield everything that a constraint reads: the kind of set, the name of its argument, and the reference."""
    for name, value in constraint.parameters().items():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Expression):
                for reference in item.references():
                    yield type(constraint).__name__, name, reference
            elif isinstance(item, Constraint):
                yield from references_of(item)


def reads_previous_action(constraint: Constraint) -> bool:
    """Tell whether a constraint depends on the action that was executed last."""
    return any(
        PREVIOUS_ACTION in (reference.source, reference.part) for _, _, reference in references_of(constraint)
    )


def resolved(constraint: Constraint, places: Places, own_size: int | None) -> Constraint:
    """Return the same set with every named part, and the previous action, read by their place in the observation.

    `own_size` is the number of the environment's own entries if others are appended to them, else None. Readings by
    number count within the environment's own, and functions are given these alone: `obs[-1]` is the last entry of the
    environment's observation, whatever follows it.
    """
    return _rebuilt(
        constraint,
        lambda reference: resolved_reference(reference, places, "the constraint", own_size),
        own_size,
    )


def placed(constraint: Constraint, places: Places) -> Constraint:
    """Return the same set with every named part read by its place; the previous action stays what it is."""
    return _rebuilt(
        constraint,
        lambda reference: (
            reference
            if reference.source == PREVIOUS_ACTION
            else resolved_reference(reference, places, "the constraint")
        ),
    )


Places = Mapping[str, tuple[int, int] | None]
"""Where the parts of an observation begin, and their sizes, by name; None for a name that several of them have."""


def places_of_parts(parts: Iterable[tuple[str, int]]) -> Places:
    """Return where parts lie that follow one another."""
    places: dict[str, tuple[int, int] | None] = {}
    start = 0
    for name, size in parts:
        places[name] = None if name in places else (start, size)
        start += size
    return places


def resolved_reference(
    reference: Reference, places: Places, reader: str, own_size: int | None = None
) -> Reference:
    """Return the same reading by its place in the observation; `reader` says who reads, for the error.

    With `own_size`, a reading by number counts within the first `own_size` entries, as in `resolved`.
    """
    if reference.source == PREVIOUS_ACTION:
        reference = Reference(
            "observation",
            reference.indices,
            reference.scale,
            reference.offset,
            reference.shape,
            PREVIOUS_ACTION,
        )
    if reference.part is None:
        if own_size is None:
            return reference
        if reference.least_size > own_size:
            raise ConfigurationError(
                f"{reader} reads {reference}, but the environment's observation has {own_size} entries. Correct the "
                f"indices, or read what was appended to it by its name: "
                f"{', '.join(f'ib.obs[{name!r}]' for name, place in places.items() if place and place[0] >= own_size)}."
            )
        return reference.at_part(0, own_size)
    if reference.part not in places:
        raise ConstraintError(
            f"{reader} reads {reference}, but the observation has only the parts "
            f"{', '.join(map(repr, places))}. Name one of these, or count entries: ib.obs[3:6]."
        )
    place = places[reference.part]
    if place is None:
        raise ConstraintError(
            f"{reader} reads {reference}, but several parts of the observation are called '{reference.part}'. Rename "
            f"that of the environment: 'previous_action' and 'constraint' are added by the library where a set needs "
            f"them, and a part 'b' inside 'a' is called 'a/b'."
        )
    return reference.at_part(*place)


def _rebuilt(
    constraint: Constraint, change: Callable[[Reference], Reference], shown: int | None = None
) -> Constraint:
    """Return the constraint with changed references; parts without any stay the same objects.

    With `shown`, functions are given so many entries of the observation.
    """
    arguments = constraint.parameters()
    changed = {name: _changed(value, change, shown) for name, value in arguments.items()}
    if isinstance(constraint, Oracle) and shown is not None and constraint.observation_size is None:
        changed["observation_size"] = shown
    if all(changed[name] is arguments[name] for name in arguments):
        return constraint
    return _made_again(constraint, changed)


def _made_again(constraint: Constraint, arguments: Mapping[str, Any]) -> Constraint:
    """Return a set of the same kind with these arguments.

    A kind of the user must name all arguments of its constructor in `parameters()`: one that is left out would have its
    default in the new set, which might allow more.
    """
    kind, constructor = type(constraint), type(constraint).__init__
    if not constructor.__module__.startswith("inbounds."):
        named = [
            one.name
            for one in inspect.signature(constructor).parameters.values()
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        ][1:]
        if set(named) != set(arguments):
            raise ConstraintError(
                f"{kind.__name__}: parameters() names {', '.join(arguments) or 'nothing'}, but the constructor takes "
                f"{', '.join(named) or 'nothing'}. Let parameters() return every argument of the constructor, so that "
                f"the set can be made again with other readings."
            )
    return kind(**arguments)


def _changed(value: Any, change: Callable[[Reference], Reference], shown: int | None) -> Any:
    if isinstance(value, Expression):
        new = value.replaced(change)
        return value if new == value else new
    if isinstance(value, Constraint):
        return _rebuilt(value, change, shown)
    if isinstance(value, tuple | list):
        items = [_changed(item, change, shown) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    return value


def numbers_of(constraint: Constraint, prefix: str = "") -> dict[str, NDArray[np.float64]]:
    """Return the numbers that a published set is made of, under names that tell kind and argument."""
    found: dict[str, NDArray[np.float64]] = {}
    for name, value in constraint.parameters().items():
        path = f"{prefix}{type(constraint).__name__}.{name}"
        if _is_numbers(value):
            found[path] = np.asarray(value, dtype=np.float64)
        for index, item in enumerate(value if isinstance(value, tuple | list) else (value,)):
            if isinstance(item, Constraint):
                found |= numbers_of(item, f"{path}.{index}.")
    return found


def form_of(constraint: Constraint) -> tuple[Any, ...]:
    """Return what a set is apart from its numbers: kinds, shapes, readings and members; two forms can be compared."""
    arguments = [
        (name, np.shape(value) if _is_numbers(value) else _form_of_argument(value))
        for name, value in constraint.parameters().items()
    ]
    return (type(constraint), *arguments)


def _form_of_argument(value: Any) -> Any:
    if isinstance(value, Constraint):
        return form_of(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return tuple(map(_form_of_argument, value)) if isinstance(value, tuple | list) else value


def is_same_set(one: Constraint, other: Constraint) -> bool:
    """Tell whether two constraints have the same form and the same numbers."""
    if one is other:
        return True
    numbers, others = numbers_of(one), numbers_of(other)
    return form_of(one) == form_of(other) and all(
        np.array_equal(numbers[name], others[name]) for name in numbers
    )


def reading_its_numbers(constraint: Constraint, part: str, prefix: str = "") -> Constraint:
    """Return the same kind of set, with its numbers read from the parts of an observation that hold `numbers_of` it."""
    if isinstance(constraint, Oracle):
        raise ConstraintError("an Oracle is a function, which may change without its numbers telling.")
    arguments: dict[str, Any] = {}
    for name, value in constraint.parameters().items():
        if _is_numbers(value) and not np.isfinite(value).all():
            raise ConstraintError(f"{name} of {constraint.formula()} is not finite; state a bound instead.")
        path = f"{prefix}{type(constraint).__name__}.{name}"
        if _is_numbers(value):
            shape = np.shape(value)
            indices = None if shape else 0
            reference = Reference("observation", indices, part=f"{part}/{path}")
            arguments[name] = reference.reshape(*shape) if len(shape) > 1 else reference
        elif isinstance(value, tuple | list):
            arguments[name] = type(value)(
                reading_its_numbers(item, part, f"{path}.{index}.") if isinstance(item, Constraint) else item
                for index, item in enumerate(value)
            )
        elif isinstance(value, Constraint):
            arguments[name] = reading_its_numbers(value, part, f"{path}.0.")
        else:
            arguments[name] = value
    return _made_again(constraint, arguments)


def _is_numbers(value: Any) -> bool:
    """Tell whether an argument is floating-point numbers: counts and flags belong to the kind of the set."""
    return isinstance(value, float | np.floating | np.ndarray) and np.asarray(value).dtype.kind == "f"
