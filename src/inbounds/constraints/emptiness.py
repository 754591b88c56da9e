"""Why a set cannot be changed, whether it holds any action of a number type, and what is said of one without."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from inbounds.constraints.arrays import Array, constant_like, convert, is_everywhere, without_gradient
from inbounds.errors import ConstraintError, EmptySetError

if TYPE_CHECKING:
    from inbounds.constraints.constraint import Constraint
    from inbounds.constraints.situation import Situation

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

MADE = "_is_made"
"""The attribute of a set whose constructor has returned."""


class KindOfSet(abc.ABCMeta):
    """The metaclass of sets: it marks a set as made once its constructor, and those of subclasses, have returned."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        """Make a set."""
        made: Any = super().__call__(*arguments, **options)
        made.__dict__[MADE] = True
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, which `help` shows; without this it would show those of `__call__`."""
        own = inspect.signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])


class Unchanging(metaclass=KindOfSet):
    """A base class whose public attributes cannot be set once an object is made; those with an underscore can.

    Tasks, guards and policies derive other sets from the one that they are given, and cache what they computed. They
    would not notice that a set has changed, and would allow actions that it forbids.
    """

    _is_made_anew_by_joining = False
    """Whether `&` and `|` make a new set of this kind, which would not have what a subclass adds."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse subclasses of kinds that are made anew."""
        super().__init_subclass__(**options)
        for kind in cls.__mro__[1:]:
            if kind.__dict__.get("_is_made_anew_by_joining"):
                raise ConstraintError(
                    f"{cls.__name__}: {kind.__name__} cannot be subclassed, because joining it with another set "
                    f"makes a new {kind.__name__}. Subclass ib.Constraint, or join sets with & and |."
                )

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a set."""
        self._require_own(name, "set")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to change a set."""
        self._require_own(name, "deleted")
        super().__delattr__(name)

    def __setstate__(self, state: Any) -> None:
        """Restore a set that was copied or sent to another process; numpy forgets that its arrays cannot be written."""
        named, slots = state if isinstance(state, tuple) else (state, None)
        for name, value in {**(named or {}), **(slots or {})}.items():
            object.__setattr__(self, name, value if name.startswith("_") else _read_only(value))
        self.__dict__[MADE] = True

    def _require_own(self, name: str, change: str) -> None:
        if not name.startswith("_") and MADE in self.__dict__:
            raise ConstraintError(
                f"{type(self).__name__}.{name} cannot be {change}: a set does not change once it is made. Make a new "
                f"set. A limit that moves reads its number from the observation (ib.obs[...]), or the environment "
                f"publishes it as info['constraint'] at every reset and step. A cache of a kind of your own is called "
                f"_{name}."
            )


def _read_only(value: Any) -> Any:
    """Return an array, or those in a tuple or list, as copies that nobody can write into."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    return type(value)(map(_read_only, value)) if type(value) in (tuple, list) else value


def verdict(names: list[str], rows: FloatArray) -> str:
    """Name the row of one action that is broken most, and by how much, or the one that leaves least room."""
    rows = np.where(np.isnan(rows), np.inf, rows)
    worst = int(np.argmax(rows))
    if not rows[worst] > 0:
        return f"feasible: the tightest row is {names[worst]}, with {-rows[worst]:.6g} to spare."
    broken = int(np.sum(rows > 0))
    more = f" ({broken} rows are broken in all)" if broken > 1 else ""
    if rows[worst] == np.inf:
        return f"infeasible: the excess of {names[worst]} is too large for float64{more}."
    return f"infeasible: {names[worst]} is exceeded by {rows[worst]:.6g}{more}."


def refuse_empty(constraint: Constraint, at: Situation, inside: Array, dimension: int) -> NoReturn:
    """Raise the error of a set whose best points have these tightened rows, naming those that conflict."""
    rows = np.reshape(np.asarray(inside), (-1, inside.shape[-1]))
    rows = np.where(np.isnan(rows), np.inf, rows)
    row = rows[int(np.argmax(np.max(rows, axis=-1)))]
    names = constraint.row_names(at, dimension)
    if row.max() == np.inf:
        listed = "; ".join(names[index] for index in np.flatnonzero(row == np.inf))
        raise EmptySetError(
            f"no action is known to satisfy {constraint.formula()}: numbers in these rows overflow: {listed}. Check "
            f"the observation, and the scale at which the constraint reads it."
        )
    conflicting = [names[index] for index in np.flatnonzero(row >= -1e-3 * row.max())]
    remedy = "Widen one of them."
    if at.is_single_precision:
        remedy = "Widen one of them, or compute in float64, whose margin is smaller (JAX_ENABLE_X64=1)."
    raise EmptySetError(
        f"no action satisfies {constraint.formula()}: the best point misses by {row.max():.3g}, the margin "
        f"of `contains` included. Conflicting rows: {'; '.join(conflicting)}. {remedy}"
    )


def refuse_unrepresentable(constraint: Constraint, point: FloatArray, dtype: Any) -> NoReturn:
    """Raise the error of a set that lies between the numbers of a type; a point of it is known in float64."""
    kind = np.dtype(dtype)
    gap = float(np.max(np.spacing(np.abs(point).astype(kind))))
    shown = np.array2string(point, precision=10, threshold=8, separator=", ")
    raise EmptySetError(
        f"no {kind} action was found that satisfies {constraint.formula()}: float64 actions do, such as {shown}, "
        f"but {kind} numbers lie up to {gap:.3g} apart there. Use float64 actions, or widen the set."
    )


STRIDES = 2.0 ** np.arange(12)
"""By how many gaps an entry is moved in one try; an entry near zero has much smaller gaps than the others."""
MOST_MOVES = 100
MOST_NUMBERS = 1_000_000
"""How many numbers are tried at once."""


class Found(NamedTuple):
    """Points, one per row, and which of them are accepted."""

    points: Any
    are_accepted: Any


def representable(constraint: Constraint, at: Situation, answer: Array, starts: Sequence[Array]) -> Array:
    """Return answers that are accepted as the numbers they are; others give way to numbers next to a start.

    A set that is thinner than the gaps between the numbers of a type may lose every point by rounding. Then
    numbers of the answer's type next to the starts are tried in turn, and at last an error says that there are none.
    """
    xp = at.xp
    is_accepted = constraint.accepts(at, convert(answer, xp, at.dtype))
    if is_everywhere(is_accepted):
        return answer
    dimension, lead = answer.shape[-1], tuple(is_accepted.shape)
    left = np.flatnonzero(~np.asarray(is_accepted))
    replaced = np.array(np.broadcast_to(np.asarray(without_gradient(answer)), (*lead, dimension)))
    flat = np.reshape(replaced, (-1, dimension))
    for start in starts:
        points = np.reshape(np.broadcast_to(np.asarray(without_gradient(start)), replaced.shape), flat.shape)
        found = _nearby(constraint, at, lead, left, points[left].astype(flat.dtype))
        flat[left] = found.points
        left = left[~found.are_accepted]
        if not left.size:
            break
    else:
        refuse_unrepresentable(constraint, np.asarray(points[left[0]], dtype=np.float64), flat.dtype)
    return xp.where(
        is_accepted[..., None], answer, convert(np.reshape(flat, replaced.shape), xp, answer.dtype, at.device)
    )


def _nearby(constraint: Constraint, at: Situation, lead: tuple[int, ...], rows: Any, points: Any) -> Found:
    """Look next to points, one for each of some rows of a batch, a block of them at a time."""
    block = max(1, MOST_NUMBERS // (2 * len(STRIDES) * points.shape[-1] ** 2))
    parts = [
        _descended(constraint, _at_rows(at, lead, rows[first : first + block]), points[first : first + block])
        for first in range(0, len(rows), block)
    ]
    return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _at_rows(at: Situation, lead: tuple[int, ...], rows: Any) -> Situation:
    """Return the situation of some questions out of a batch of shape `lead`, in one row each."""

    def chosen(source: Array | None) -> Array | None:
        if source is None or source.ndim < 2:
            return source
        size = source.shape[-1]
        flat = at.xp.reshape(at.xp.broadcast_to(source, (*lead, size)), (-1, size))
        return at.xp.take(flat, constant_like(flat, rows), axis=0)

    return at._replace(observation=chosen(at.observation), previous_action=chosen(at.previous_action))


def _descended(constraint: Constraint, at: Situation, points: Any) -> Found:
    """Move one entry at a time by some gaps, whichever move takes most off the rows that are missed."""
    count, dimension = points.shape
    # Along the first axes, how many gaps which entry moves; the others stay.
    moves = np.concatenate([STRIDES, -STRIDES])[:, None, None, None] * np.eye(dimension)[:, None, :]

    def asked(candidates: Any) -> Array:
        return convert(candidates.astype(np.float64), at.xp, at.dtype, at.device)

    def missed(candidates: Any) -> Any:
        rows = np.asarray(constraint.tightened_excess(at, asked(candidates)))
        total = np.sum(np.maximum(rows, 0.0), axis=-1)
        return np.where(np.isnan(total), np.inf, total)

    def are_accepted(candidates: Any) -> Any:
        return np.asarray(constraint.accepts(at, asked(candidates)))

    cost = missed(points)
    for _ in range(MOST_MOVES):
        gaps = np.spacing(np.abs(points)).astype(np.float64)
        candidates = np.reshape((points + moves * gaps).astype(points.dtype), (-1, count, dimension))
        costs = missed(candidates)
        best = np.argmin(costs, axis=0)[None]
        least = np.take_along_axis(costs, best, axis=0)[0]
        is_better = (least < cost) & ~are_accepted(points)
        if not np.any(is_better):
            break
        moved = np.take_along_axis(candidates, best[..., None], axis=0)[0]
        points = np.where(is_better[:, None], moved, points)
        cost = np.where(is_better, least, cost)
    return Found(points, are_accepted(points))
