"""How a file is read that anybody may have changed: as plain data of the expected shape, or refused in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from inbounds.errors import InboundsError, InvalidInputError

LARGEST = 64 * 2**20
"""Bytes of a JSON file; a longer one is refused unread."""
DEEPEST = 100
"""Levels of lists and objects inside one another; every function that walks through them stays far from its limit."""
NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
LONGEST_NAME = 200
LARGEST_NUMBER = 1e100
"""Its square, and sums of such squares, are finite."""

Shape = Any
"""What a part of a file must be.

A type (`str`, `bool`, `dict`, `list`), `None`, `Whole(...)`, `FINITE` or `NUMBER`; a tuple of shapes of which one must
fit; a list `[shape]` of things of one shape, or `Several(shape, length)` of so many; a mapping of the fields that an
object must have (`name?` may be missing, `*` stands for all others); `Each(shape)` for an object whose values all have
one shape.
"""


class Whole(NamedTuple):
    """A whole number between two others."""

    least: int
    most: int = 10**15


class Number(NamedTuple):
    """A number; where it is averaged and squared, it is finite and leaves room for that."""

    is_finite: bool


class Several(NamedTuple):
    """A list of so many things of one shape."""

    shape: Shape
    length: int


class Each(NamedTuple):
    """An object whose values all have one shape."""

    shape: Shape


COUNT, FINITE, NUMBER = Whole(0), Number(True), Number(False)
SEED = Whole(0, 2**63 - 1)
"""Of 63 bits: clocks in nanoseconds and drawn words are seeds, too."""


def read_object(
    path: Path, remedy: str, shape: Shape = dict, error: type[InboundsError] = InvalidInputError
) -> dict[str, Any]:
    """Return the object in a JSON file, or refuse the file; one that is missing raises FileNotFoundError.

    Args:
        path: the file.
        remedy: what to do about a damaged one; ends the message.
        shape: what the object must hold.
        error: what is raised.
    """
    return parsed_object(contents(path, error), str(path), remedy, shape, error)


def parsed_object(
    text: bytes, origin: str, remedy: str, shape: Shape = dict, error: type[InboundsError] = InvalidInputError
) -> dict[str, Any]:
    """Return the object that JSON text holds, or refuse the text; `origin` names it in the message."""
    data = parsed(text, origin, remedy, error)
    if not isinstance(data, dict):
        raise error(f"{origin} is damaged (it holds {_kind(data)} instead of an object). {remedy}")
    require_shape(data, shape, origin, remedy, error)
    return data


def parsed(text: bytes, origin: str, remedy: str, error: type[InboundsError] = InvalidInputError) -> Any:
    """Return what JSON says; text that is not JSON, not UTF-8, or nested without end is refused."""
    try:
        data = json.loads(text.decode("utf-8"))
    except RecursionError:
        raise error(f"{origin} is damaged (it is nested too deeply). {remedy}") from None
    except ValueError as cause:
        raise error(f"{origin} is damaged ({cause}). {remedy}") from cause
    level, depth = [data], 0
    while level := [part for parent in level for part in _parts(parent) if isinstance(part, dict | list)]:
        depth += 1
        if depth > DEEPEST:
            raise error(f"{origin} is damaged (it is nested too deeply). {remedy}")
    return data


def require_shape(
    data: Any, shape: Shape, origin: str, remedy: str, error: type[InboundsError] = InvalidInputError
) -> None:
    """Refuse data that are not as a file of their kind holds them."""
    if wrong := mismatch(data, shape):
        raise error(f"{origin} is damaged ({wrong}). {remedy}")


def require_name(name: Any, origin: str, remedy: str) -> str:
    """Return a name that a file states, if it can name a file or a folder and nothing else.

    Small letters and digits, with single dots or hyphens between them: no separator, no parent folder, nothing hidden.
    """
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{origin} states the name {name!r}, but a name has only small letters and digits, with single dots or "
            f"hyphens between them. {remedy}"
        )
    return name


def mismatch(data: Any, shape: Shape, where: str = "") -> str | None:
    """Return what is wrong with data, or None if they have the shape."""
    if isinstance(shape, Mapping):
        return _mismatch_of_fields(data, shape, where)
    if isinstance(shape, list | Several | Each):
        return _mismatch_of_parts(data, shape, where)
    if isinstance(shape, Whole | Number) or not isinstance(shape, tuple):
        return None if _fits(data, shape) else f"{_named(where)} is {_kind(data)} instead of {_wanted(shape)}"
    found = [mismatch(data, one, where) for one in shape]
    return None if None in found else found[0]


def _mismatch_of_fields(data: Any, fields: Mapping[str, Shape], where: str) -> str | None:
    if not isinstance(data, dict):
        return f"{_named(where)} is {_kind(data)} instead of an object"
    expected = {name: shape for name, shape in fields.items() if name != "*"}
    if "*" in fields:
        expected |= {f"{name}?": fields["*"] for name in data if not {name, f"{name}?"} & set(fields)}
    for field, shape in expected.items():
        name = field.removesuffix("?")
        place = f"{where}.{name}" if where else name
        if name not in data:
            if name == field:
                return f"{_named(place)} is missing"
        elif wrong := mismatch(data[name], shape, place):
            return wrong
    return None


def _mismatch_of_parts(data: Any, shape: list[Shape] | Several | Each, where: str) -> str | None:
    if isinstance(shape, Each):
        if not isinstance(data, dict):
            return f"{_named(where)} is {_kind(data)} instead of an object"
        parts, part = list(data.items()), shape.shape
    else:
        if not isinstance(data, list | tuple):
            return f"{_named(where)} is {_kind(data)} instead of a list"
        if isinstance(shape, Several) and len(data) != shape.length:
            return f"{_named(where)} has {len(data)} entries instead of {shape.length}"
        parts, part = list(enumerate(data)), shape[0]
    if part in (FINITE, (FINITE, None)) and _are_finite(
        [one for _, one in parts if one is not None or part == FINITE]
    ):
        return None
    found = (mismatch(one, part, f"{where}.{name}" if where else str(name)) for name, one in parts)
    return next(filter(None, found), None)


def _are_finite(values: list[Any]) -> bool:
    """Tell whether all are numbers that `FINITE` allows: what is true of long curves is found quickly."""
    if not set(map(type, values)) <= {int, float}:
        return False
    return not values or (
        min(values) >= -LARGEST_NUMBER and max(values) <= LARGEST_NUMBER and not any(map(isnan, values))
    )


def _fits(data: Any, shape: Shape) -> bool:
    if isinstance(data, bool):
        return shape is bool
    if isinstance(shape, Whole):
        return isinstance(data, int) and shape.least <= data <= shape.most
    if isinstance(shape, Number):
        is_small = isinstance(data, int | float) and abs(data) <= LARGEST_NUMBER
        return is_small or (isinstance(data, float) and not shape.is_finite)
    return data is None if shape is None else isinstance(data, shape)


def contents(path: Path, error: type[InboundsError], most: int | None = LARGEST) -> bytes:
    """Return the bytes of a regular file; a pipe, which would never end, or a folder is refused."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise error(f"{path} is not a regular file. Remove it, or restore the file of that name.")
        if most is not None and size > most:
            raise error(f"{path} has {size:,} bytes, but at most {most:,} are read. Restore it.")
        return path.read_bytes()
    except NotADirectoryError as cause:  # a file was given in place of its folder
        raise FileNotFoundError(cause.errno, "a file stands in place of the folder", str(path)) from cause
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise error(
            f"{path} cannot be read ({cause.strerror}). Make it readable, or give another path."
        ) from cause


def _parts(data: Any) -> Any:
    return data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()


def _named(where: str) -> str:
    return f"'{where}'" if where else "it"


def _kind(data: Any) -> str:
    """Return what was met in words that hold nothing of the file itself but a number."""
    if data is None or isinstance(data, bool):
        return json.dumps(data)
    if isinstance(data, int | float):
        return "a number too large" if abs(data) > LARGEST_NUMBER else f"{data:.6g}"
    return "an object" if isinstance(data, dict) else "a text" if isinstance(data, str) else "a list"


def _wanted(shape: Shape) -> str:
    if isinstance(shape, Whole):
        return f"a whole number from {shape.least:,} to {shape.most:,}"
    if isinstance(shape, Number):
        return "a finite number" if shape.is_finite else "a number"
    names: dict[Any, str] = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        None: "null",
    }
    return names[shape]
