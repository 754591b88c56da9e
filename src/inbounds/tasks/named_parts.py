"""What a constraint reads, entry by entry, and how names become numbers once a task knows where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint, Oracle, Reference
from inbounds.errors import ConstraintError

PREVIOUS_ACTION = "previous_action"
"""The part of an observation that holds the action executed last, and the source of references to it."""


def references_of(constraint: Constraint) -> Iterator[tuple[str, str, Reference]]:
    """Yield everything that a constraint reads: the kind of set, the name of its argument, and the reference."""
    for name, value in constraint.parameters().items():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Reference):
                yield type(constraint).__name__, name, item
            elif isinstance(item, Constraint):
                yield from references_of(item)


def resolved(constraint: Constraint, places: Mapping[str, tuple[int, int]]) -> Constraint:
    """Return the same set with every named part, and the previous action, read by their place in the observation."""
    return _rebuilt(constraint, lambda reference: resolved_reference(reference, places, "the constraint"))


def resolved_reference(reference: Reference, places: Mapping[str, tuple[int, int]], reader: str) -> Reference:
    """Return the same reading by its place in the observation; `reader` says who reads, for the error."""
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
        return reference
    if reference.part not in places:
        raise ConstraintError(
            f"{reader} reads {reference}, but the observation has only the parts "
            f"{', '.join(map(repr, places))}. Name one of these, or count entries: ib.obs[3:6]."
        )
    return reference.at_part(*places[reference.part])


def _rebuilt(constraint: Constraint, change: Callable[[Reference], Reference]) -> Constraint:
    """Return the constraint with changed references; parts without any stay the same objects."""
    arguments = constraint.parameters()
    changed = {name: _changed(value, change) for name, value in arguments.items()}
    if all(changed[name] is arguments[name] for name in arguments):
        return constraint
    return type(constraint)(**changed)


def _changed(value: Any, change: Callable[[Reference], Reference]) -> Any:
    if isinstance(value, Reference):
        new = change(value)
        return value if new == value else new
    if isinstance(value, Constraint):
        return _rebuilt(value, change)
    if isinstance(value, tuple | list):
        items = [_changed(item, change) for item in value]
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
    return type(constraint)(**arguments)


def _is_numbers(value: Any) -> bool:
    """Tell whether an argument is floating-point numbers: counts and flags belong to the kind of the set."""
    return isinstance(value, float | np.floating | np.ndarray) and np.asarray(value).dtype.kind == "f"
