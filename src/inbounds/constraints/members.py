"""What unions and intersections are made of: a list of constraints that speak of actions of one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbounds.constraints.constraint import Constraint
from inbounds.errors import ConstraintError


def as_constraints(kind: str, sign: str, given: Any) -> tuple[Constraint, ...]:
    """Return the members that a union or an intersection was given; refuse anything but a list of constraints."""
    members: tuple[Any, ...] = tuple(given) if isinstance(given, Sequence) else ()
    wrong = [member for member in members if not isinstance(member, Constraint)]
    if wrong or not isinstance(given, Sequence):
        problem = f"{wrong[0]!r} is not a constraint" if wrong else f"{given!r} is not a list of constraints"
        raise ConstraintError(
            f"{kind}: {problem}. Join sets such as Box(-1.0, 1.0) with {sign}, or list them."
        )
    return members


def common_size(members: Sequence[Constraint], purpose: str) -> int | None:
    """Return of how many entries all members speak, None where none of them tells; refuse those that differ."""
    sizes = [(member.formula(), member.size()) for member in members if member.size() is not None]
    if len({size for _, size in sizes}) > 1:
        listed = "; ".join(f"{formula} speaks of {size} entries" for formula, size in sizes)
        raise ConstraintError(f"these constraints cannot {purpose}: {listed}. Give them the same dimension.")
    return sizes[0][1] if sizes else None
