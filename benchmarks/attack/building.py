"""From plain data to the library's own constraint, declared as a user would."""

from __future__ import annotations

from typing import Any

import inbounds as ib
from benchmarks.attack import memberships
from benchmarks.attack.plain_sets import Joined, Plain, Reading


def reference(reading: Reading) -> Any:
    """Return the library's way to read numbers from the observation or the previous action."""
    entries = reading.entries
    if entries is None:
        read = ib.previous_action
    else:
        read = ib.obs[entries] if isinstance(entries, int) else ib.obs[slice(*entries)]
    read = read * reading.scale if reading.scale != 1.0 else read
    read = read + reading.offset if reading.offset != 0.0 else read
    return read if reading.shape is None else read.reshape(*reading.shape)


def build(plain: Plain) -> Any:
    """Return the library's constraint."""
    if isinstance(plain, Joined):
        built = [build(part) for part in plain.parts]
        whole = built[0]
        for part in built[1:]:
            whole = whole & part if plain.sign == "&" else whole | part
        return whole
    if plain.kind == "Oracle":
        return ib.Oracle(getattr(memberships, plain.arguments["function"]), plain.arguments["dimension"])
    given = {
        name: reference(value) if isinstance(value, Reading) else value
        for name, value in plain.arguments.items()
        if value is not None
    }
    return getattr(ib, plain.kind)(**given)
