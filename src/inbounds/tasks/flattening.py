"""How observations and actions that have parts become one vector, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError, SimulationError


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
                piece = np.asarray(value, dtype=np.float64)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise SimulationError(
                    f"{self.what} has no numbers at '{part.name}' ({error!r}). Let the environment return the "
                    f"same parts at every reset and step."
                ) from error
            if piece.size != part.size:
                raise SimulationError(
                    f"'{part.name}' of {self.what} has shape {piece.shape}, but {part.shape} was announced. "
                    f"Let the environment keep to one shape."
                )
            pieces.append(piece.ravel())
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
            array = np.asarray(inner, dtype=np.float64)
        except (TypeError, ValueError) as error:
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
