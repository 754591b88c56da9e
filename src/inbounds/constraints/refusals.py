"""What is said of an action outside its set, and of a set without any action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from inbounds.constraints.arrays import Array
from inbounds.errors import EmptySetError

if TYPE_CHECKING:
    from inbounds.constraints.constraint import Constraint
    from inbounds.constraints.situation import Situation

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


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
