"""How the numbers given to a constraint are kept, compared and shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from inbounds.constraints.references import Reference
from inbounds.errors import ConstraintError

_KINDS = {0: "a number", 1: "a number or a vector", 2: "a matrix"}


def parameter(owner: str, name: str, value: Any, axes: int, *, is_finite: bool = True) -> Any:
    """Keep a reference as it is and turn numbers into a read-only float64 array with at most `axes` axes.

    A single number stays an array without axes: it holds for every entry, whatever the dimension of the
    action.
    """
    if isinstance(value, Reference):
        return value
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        # A list of readings is what one writes first for a vector that is observed.
        if isinstance(value, list | tuple) and any(isinstance(entry, Reference) for entry in value):
            listed = ", ".join(str(entry) for entry in value)
            raise ConstraintError(
                f"{owner}: {name} is the list [{listed}], but what is observed is read at once. Write one "
                f"reference with all its entries, as in obs[2:3] or obs[[2, 5]]."
            ) from error
        raise ConstraintError(
            f"{owner}: {name} is {value!r}, but {_KINDS[axes]} is expected. Pass numbers or obs[...]."
        ) from error
    if array.ndim > axes or (axes == 2 and array.ndim != 2) or array.size == 0:
        raise ConstraintError(
            f"{owner}: {name} has shape {array.shape}, but {_KINDS[axes]} is expected. Change its shape."
        )
    if np.any(np.isnan(array)) or (is_finite and not np.all(np.isfinite(array))):
        raise ConstraintError(
            f"{owner}: {name} holds a value that is not a finite number: {value!r}. Correct it."
        )
    array.flags.writeable = False
    return array


def length(owner: str, **vectors: Any) -> int | None:
    """Return the number of entries that vectors agree on; None where all are single numbers or unknown."""
    known: dict[str, int] = {}
    for name, value in vectors.items():
        entries = value.size() if isinstance(value, Reference) else len(value) if np.ndim(value) else None
        if entries is not None:
            known[name] = entries
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name} has {entries}" for name, entries in known.items())
        raise ConstraintError(
            f"{owner}: the numbers of entries differ: {listed}. Give all of them the same length."
        )
    return next(iter(known.values()), None)


def show(value: Any) -> str:
    """Write a parameter for a formula: references and short arrays as they are, longer ones by range."""
    if isinstance(value, Reference):
        return str(value)
    array = np.asarray(value)
    if array.ndim == 0 or np.all(array == array.flat[0]):
        return f"{float(array.flat[0]):g}"
    if array.size <= 4:
        return "(" + ", ".join(f"{float(entry):g}" for entry in array.ravel()) + ")"
    return f"[{array.min():g}..{array.max():g}]"


def entry(value: Any, index: int) -> str:
    """Write one entry of a vector parameter for the name of a row."""
    if isinstance(value, Reference):
        return str(value) if isinstance(value.indices, int) else f"{value}[{index}]"
    return f"{float(value if np.ndim(value) == 0 else value[index]):g}"
