"""How a constraint is written to JSON and read back, without ever running code that the file names."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression, expression_from_json
from inbounds.constraints.references import Reference, reference_from_json
from inbounds.errors import ConstraintError
from inbounds.limits import MOST_CONSTRAINTS, MOST_NUMBERS

# Where each kind of constraint lives. Only these can be read from a file.
HOMES = {
    "Ball": "ellipsoid",
    "Box": "box",
    "Ellipsoid": "ellipsoid",
    "Intersection": "intersection",
    "Oracle": "oracle",
    "Polytope": "polytope",
    "PowerBudget": "level_set",
    "RateLimit": "box",
    "Shell": "shell",
    "Simplex": "sum_band",
    "Simplices": "simplices",
    "SumBand": "sum_band",
    "Union": "union",
    "WeightedL1": "level_set",
}

BUILDERS = {"Intersection": "joined"}
"""Kinds that are not built by their constructor: an intersection that holds a union becomes a union."""

RUNS_CODE = ("Oracle",)
"""Kinds that name a function; it is only imported when the caller allows it."""

PLAIN = (bool, int, float, str, tuple)
"""Values of a module that belong to the function which names them."""

LARGEST_DEPTH = 20
"""How deep constraints may be nested in a file."""


def constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """Return a constraint as plain data: its kind and its constructor's arguments."""
    data = _described(constraint)
    _require_moderate(data)  # or the file could not be read again
    return data


def constraint_from_json(data: Any, *, allow_code: bool = False) -> Constraint:
    """Build a constraint from plain data; what names a function is refused unless `allow_code=True`."""
    _require_moderate(data)
    _require_few(_distributed(data, 0).sets)
    return _read(data, allow_code, 0)


def fingerprints(constraint: Constraint) -> dict[str, str]:
    """Return a checksum of each function that a set asks, by its import path; empty where its source is not known."""
    parameters, found = constraint.parameters(), {}
    if type(constraint).__name__ in RUNS_CODE:
        named = parameters["function"]
        place = named if isinstance(named, str) else _place(named)
        found[place] = _fingerprint(constraint.function)  # type: ignore[attr-defined]  # an Oracle's
    for value in parameters.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Constraint):
                found |= fingerprints(part)
    return found


def _fingerprint(function: Any) -> str:
    """Return the SHA-256 of a function's source and of the plain values of its module that it names."""
    try:
        source = inspect.getsource(function)
        named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    except (OSError, TypeError, AttributeError):
        return ""
    plain = sorted((name, repr(value)) for name, value in named.items() if isinstance(value, PLAIN))
    return hashlib.sha256(repr((source, plain)).encode()).hexdigest()


def is_described_by(constraint: Constraint, data: Any, functions: Mapping[str, str]) -> bool:
    """Tell whether plain data describes a set; a function of the same name and checksum is the same from every path.

    `functions` are the `fingerprints` that were recorded with the data. Nothing that the data names is imported.
    """
    own = fingerprints(constraint)

    def is_same(one: Any, other: Any) -> bool:
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return one.keys() == other.keys() and all(
                is_same_function(one[name], other[name])
                if name == "function" and one.get("kind") in RUNS_CODE
                else is_same(one[name], other[name])
                for name in one
            )
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(is_same, one, other))
        return bool(one == other)

    def is_same_function(recorded: Any, place: str) -> bool:
        if not isinstance(recorded, str):
            return False
        known = functions.get(recorded, "")
        if not known or not own[place]:
            return recorded == place
        return recorded.partition(":")[2] == place.partition(":")[2] and known == own[place]

    return is_same(data, _described(constraint, _place))


def _place(function: Any) -> str:
    """Return where a function stands, at the top level of the script itself as well; refuse others."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if module is None or getattr(sys.modules.get(module), name, None) is not function:
        return _refuse(function)
    return f"{module}:{name}"


def _require_moderate(data: Any) -> None:
    """Refuse what takes too long to build, however short its description is."""
    constraints, numbers, level = 0, 0, [data]
    while level:
        inside: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                constraints += "kind" in one
                inside += one.values()
            elif isinstance(one, list):
                inside += one
            else:
                numbers += 1
        if numbers > MOST_NUMBERS:
            raise ConstraintError(
                f"the constraint is made of more than {MOST_NUMBERS:,} numbers, which takes too long to build. Say it "
                f"with fewer."
            )
        _require_few(constraints)
        level = inside


class Distributed(NamedTuple):
    """How many members a set has once intersections are inside unions, and of how many sets these are made."""

    members: int
    sets: int


def _distributed(data: Any, depth: int) -> Distributed:
    """Count what a description is made of after (A | B) & C has become (A & C) | (B & C), without building it."""
    _require_flat(depth)
    held = data.get("constraints") if isinstance(data, Mapping) else None
    parts = [
        _distributed(part["constraint"], depth + 1)
        for part in (held if isinstance(held, list) else ())
        if isinstance(part, Mapping) and "constraint" in part
    ]
    if not parts:
        return Distributed(1, 1)
    if data.get("kind") == "Union":
        return Distributed(sum(part.members for part in parts), sum(part.sets for part in parts))
    members = math.prod(part.members for part in parts)
    return Distributed(members, sum(part.sets * (members // part.members) for part in parts))


def _require_few(sets: int) -> None:
    if sets > MOST_CONSTRAINTS:
        raise ConstraintError(
            f"the constraint is made of more than {MOST_CONSTRAINTS} sets, those included that intersections of unions "
            f"consist of, which takes too long to build. Say it with fewer, such as one Polytope with several rows."
        )


def _require_flat(depth: int) -> None:
    if depth > LARGEST_DEPTH:
        raise ConstraintError(f"constraints are nested more than {LARGEST_DEPTH} deep. Flatten the file.")


def is_kind_of_ours(constraint: Constraint) -> bool:
    """Tell whether a set is of a kind of the library, and not of a subclass, which a file would take for it."""
    kind = type(constraint)
    return kind.__name__ in HOMES and kind.__module__.startswith("inbounds.constraints.")


def _refuse(function: Any) -> str:
    raise ConstraintError(
        f"the function {getattr(function, '__qualname__', function)!s} of "
        f"{getattr(function, '__module__', 'no module')} cannot be written to JSON, and no run could be loaded or "
        f"resumed with it, because it has no import path: it is the script's own (__main__), a lambda, a method, or "
        f"made inside another function. Move it to the top level of a module, and import it from there."
    )


def _described(constraint: Constraint, called: Callable[[Any], str] = _refuse) -> dict[str, Any]:
    kind = type(constraint).__name__
    if not is_kind_of_ours(constraint):
        raise ConstraintError(
            f"{type(constraint).__module__}.{kind} is not a kind of constraint that can be written to a file. Known: "
            f"{', '.join(HOMES)}. Declare it as an Oracle of an importable function instead."
        )
    arguments = {
        name: _plain(value, called) for name, value in constraint.parameters().items() if value is not None
    }
    return {"kind": kind, **arguments}


def _plain(value: Any, called: Callable[[Any], str]) -> Any:
    if isinstance(value, Constraint):
        return {"constraint": _described(value, called)}
    if isinstance(value, Reference):
        return {"reference": value.to_json()}
    if isinstance(value, Expression):
        return {"expression": value.to_json()}
    if isinstance(value, tuple | list):
        return [_plain(item, called) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _numbers(value.tolist())
    if isinstance(value, float):
        return _numbers(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if callable(value):
        return called(value)
    raise ConstraintError(
        f"{value!r} cannot be written to JSON. Build the constraint from numbers, arrays and obs[...]."
    )


def _numbers(value: Any) -> Any:
    """Write infinities as words, since JSON has none."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value if np.isfinite(value) else {"number": str(value)}


def _read(data: Any, allow_code: bool, depth: int) -> Constraint:
    _require_flat(depth)
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise ConstraintError(
            f"a constraint is an object with a 'kind' and its arguments, got {_shortened(data)}. "
            f"Write it with constraint.to_json()."
        )
    kind: str = data["kind"]
    if kind not in HOMES:
        raise ConstraintError(f"no constraint is called {kind!r}. Known: {', '.join(HOMES)}. Correct 'kind'.")
    if kind in RUNS_CODE and not allow_code:
        raise ConstraintError(
            f"{kind} would import and run {_shortened(data.get('function'))}. "
            f"Pass allow_code=True if you trust where this file comes from."
        )
    arguments = {name: _value(value, allow_code, depth) for name, value in data.items() if name != "kind"}
    constructor = getattr(
        importlib.import_module(f"inbounds.constraints.{HOMES[kind]}"), BUILDERS.get(kind, kind)
    )
    try:
        constraint = constructor(**arguments)
    except (TypeError, AttributeError) as error:
        raise ConstraintError(
            f"{kind} cannot be built from the arguments {', '.join(arguments) or 'none'}: {error}. "
            f"Compare with what to_json() writes."
        ) from error
    if not isinstance(constraint, Constraint):
        raise ConstraintError(f"{kind} did not give a constraint. Write the file with constraint.to_json().")
    return constraint


def _value(value: Any, allow_code: bool, depth: int) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"constraint"}:
            return _read(value["constraint"], allow_code, depth + 1)
        if set(value) == {"reference"} and isinstance(value["reference"], dict):
            return reference_from_json(value["reference"])
        if set(value) == {"expression"}:
            return expression_from_json(value["expression"], reference_from_json)
        if set(value) == {"number"} and value["number"] in ("inf", "-inf"):
            return float(value["number"])
        raise ConstraintError(
            f"{_shortened(value)} is neither a constraint, a reference, an expression nor a number. "
            f"Write the file with constraint.to_json()."
        )
    if isinstance(value, list):
        return [_value(item, allow_code, depth) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConstraintError(f"{_shortened(value)} is not JSON. Write the file with constraint.to_json().")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
