"""What a constraint reads, entry by entry, and how names become numbers once a task knows where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inbounds.constraints import Constraint, Reference
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

    def resolve(reference: Reference) -> Reference:
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
                f"the constraint reads {reference}, but the observation has only the parts "
                f"{', '.join(map(repr, places))}. Name one of these, or count entries: ib.obs[3:6]."
            )
        return reference.at_part(*places[reference.part])

    return _rebuilt(constraint, resolve)


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
