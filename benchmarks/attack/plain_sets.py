"""A set as plain data: what the checker judges by, and what is printed. The library itself is not needed for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Reading:
    """The numbers `scale * source[entries] + offset`; `entries` is one place, (start, stop), or None for all."""

    source: str
    entries: int | tuple[int, int] | None
    scale: float = 1.0
    offset: float = 0.0
    shape: tuple[int, ...] | None = None

    def taken(self, source: Vector | None) -> Vector:
        """Return the entries of a batch of sources (n, m) as they are: (n,), (n, k) or (n, *shape)."""
        if source is None:
            raise ValueError(f"{self} has no {self.source} to read")
        if self.entries is None:
            return source
        if isinstance(self.entries, int):
            return source[:, self.entries]
        part = source[:, slice(*self.entries)]
        return part if self.shape is None else part.reshape(len(part), *self.shape)

    def __str__(self) -> str:
        if self.entries is None:
            text = "ib.previous_action"
        elif isinstance(self.entries, int):
            text = f"ib.obs[{self.entries}]"
        else:
            text = f"ib.obs[{self.entries[0]}:{self.entries[1]}]"
        text += f" * {self.scale!r}" if self.scale != 1.0 else ""
        text += f" + {self.offset!r}" if self.offset != 0.0 else ""
        return text if self.shape is None else f"({text}).reshape{self.shape}"


Value = Any
"""A number or an array of float64, a Reading, the name of a membership function, or None where it is left out."""


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One set of a kind, with the arguments of its constructor."""

    kind: str
    arguments: Mapping[str, Value]


@dataclasses.dataclass(frozen=True)
class Joined:
    """Several sets, of which all hold (`&`) or at least one does (`|`)."""

    sign: str
    parts: tuple[Plain, ...]


Plain = Leaf | Joined


def leaves(plain: Plain) -> Iterator[Leaf]:
    """Go through the elementary sets."""
    if isinstance(plain, Leaf):
        yield plain
        return
    for part in plain.parts:
        yield from leaves(part)


def kinds(plain: Plain) -> str:
    """Name the kinds of a set, constant or observed, in an order that does not depend on how it was drawn."""
    names = {leaf.kind + (" (read)" if reads(leaf) else "") for leaf in leaves(plain)}
    return ("| " if has_union(plain) else "") + " & ".join(sorted(names))


def reads(leaf: Leaf) -> bool:
    """Tell whether any argument is read."""
    return any(isinstance(value, Reading) for value in leaf.arguments.values())


def reads_previous_action(plain: Plain) -> bool:
    """Tell whether the set depends on the action before."""
    return any(
        isinstance(value, Reading) and value.source == "previous_action"
        for leaf in leaves(plain)
        for value in leaf.arguments.values()
    )


def has_union(plain: Plain) -> bool:
    """Tell whether some part is a union."""
    return isinstance(plain, Joined) and (plain.sign == "|" or any(has_union(part) for part in plain.parts))


def is_bounded(plain: Plain) -> bool:
    """Tell whether a set surely has an end in every direction, whatever it reads."""
    if isinstance(plain, Joined):
        ends = [is_bounded(part) for part in plain.parts]
        return any(ends) if plain.sign == "&" else all(ends)
    if plain.kind in ("Ball", "Simplex", "RateLimit"):
        return True
    sides = [plain.arguments.get(name) for name in ("low", "high")]
    return all(
        side is not None and (isinstance(side, Reading) or bool(np.isfinite(side).all())) for side in sides
    )


def changed(plain: Plain, change: Callable[[Leaf], Leaf]) -> Plain:
    """Return the same set with every leaf replaced."""
    if isinstance(plain, Leaf):
        return change(plain)
    return Joined(plain.sign, tuple(changed(part, change) for part in plain.parts))


def code(plain: Plain) -> str:
    """Write the set as the Python expression that declares it, with every digit."""
    if isinstance(plain, Joined):
        return "(" + f" {plain.sign} ".join(code(part) for part in plain.parts) + ")"
    if plain.kind == "Oracle":
        arguments = f"memberships.{plain.arguments['function']}, {plain.arguments['dimension']}"
        return f"ib.Oracle({arguments})"
    given = ", ".join(
        f"{name}={number(value)}" for name, value in plain.arguments.items() if value is not None
    )
    return f"ib.{plain.kind}({given})"


def number(value: Any) -> str:
    """Write a number, a vector or a matrix with every digit."""
    if value is None or isinstance(value, Reading):
        return str(value)
    array = np.asarray(value)
    if array.size > 4 and bool(np.all(array == array.flat[0])):
        return f"np.full({array.shape}, {array.flat[0].item()!r})"
    return repr(array.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
