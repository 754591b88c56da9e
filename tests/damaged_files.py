"""Every way to damage one field of a JSON file: other kinds of values, none at all, and what is left without it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MISSING = object()
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, 0.5, float("nan"), float("inf"), 1e308, "", "x", "\x1b[2J[/]../x\n"),
    *([], {}, [None], [[]], {"a": [1]}, MISSING),
)


def places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the way to every value inside plain data, the data themselves included."""
    yield above
    parts = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for name, part in parts:
        yield from places(part, (*above, name))


def changed(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value in one place."""
    if not place:
        return {} if value is MISSING else value
    whole = copy.deepcopy(data)
    part = whole
    for name in place[:-1]:
        part = part[name]
    if value is MISSING:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return whole


def damaged(path: Path) -> Iterator[tuple[str, str]]:
    """Return a description and the new content for every damage to a JSON file, or to the second line of a log."""
    first, *rest = path.read_text().splitlines(keepends=True) if path.suffix == ".jsonl" else ["", ""]
    text = rest[0] if path.suffix == ".jsonl" else path.read_text()
    after = "".join(rest[1:])
    data = json.loads(text)
    for place in places(data):
        for value in WRONG:
            words = "missing" if value is MISSING else repr(value)[:20]
            yield f"{path.name} {place} {words}", f"{first}{json.dumps(changed(data, place, value))}\n{after}"
