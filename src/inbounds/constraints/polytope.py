"""Polytopes: several linear limits at once, as for the capacities of the links of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, convert, is_traced, least, or_infinite, total
from inbounds.constraints.box import Bounds, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.host_solvers import conflict
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.linear_rows import (
    LinearRows,
    farthest_in_rows,
    interior_in_rows,
    nearest_in_rows,
    rounding_of_sum,
)
from inbounds.constraints.situation import (
    RELATIVE_MARGIN,
    Parameter,
    Situation,
    entry,
    parameter,
    read_situation,
    show,
)
from inbounds.errors import ConstraintError, EmptySetError

MOST_TERMS = 8
"""Rows with more coefficients than this are named by their number alone."""

MOST_CENTRES = 16
"""How many boxes a constant polytope remembers its centre in."""


class Polytope(Constraint):
    """Actions with `A a <= b`, that is `sum_j A_ij a_j <= b_i` for every row i.

    `A` has one row per limit and one column per entry of the action; `A` and `b` are constant or read from
    the observation, as in `Polytope(obs[0:12].reshape(3, 4), obs[12:15])`. The margin of a row is
    1e-6 |b_i|, or what rounding can do to a sum of terms as large as |A_ij a_j| where that is more.

    There is no closed form. On the host each projection is a small quadratic program for daqp; elsewhere, and
    where daqp is not installed, a fixed number of interior-point steps solves all of a batch together.
    """

    def __init__(self, A: Parameter, b: Parameter) -> None:
        """Store the rows, check that they fit together and, where they are constant, that a point exists."""
        self.matrix = parameter("Polytope", "A", A, 2)
        self.bound = parameter("Polytope", "b", b, 1)
        shape = self.matrix.shape
        if shape is None or len(shape) != 2:
            raise ConstraintError(
                f"Polytope: A={self.matrix} reads no matrix. Say how many rows and columns it has, "
                f"as in obs[0:12].reshape(3, 4)."
            )
        self._rows, self._size = int(shape[0]), int(shape[1])
        is_read = isinstance(self.bound, Expression)
        entries = self.bound.size() if is_read else len(self.bound) if self.bound.ndim else None
        if entries is not None and entries != self._rows:
            raise ConstraintError(
                f"Polytope: A has {self._rows} rows but b has {entries} entries. Give b one entry per row."
            )
        self._known_rows: LinearRows | None = None
        self._centres: dict[tuple[bytes, bytes, float], Any] = {}
        if self.is_constant():
            self.interior_point()

    def rows(self, at: Situation) -> LinearRows:
        """Return the rows in a situation, for computing with them or for stacking them with others."""
        if at.xp is np and self._known_rows is not None:
            return self._known_rows
        rows = LinearRows(
            at.value(self.matrix, axes=2),
            at.value(self.bound),
            at.magnitude(self.matrix, axes=2),
            at.magnitude(self.bound),
            rounding_of_sum(at, self._size, is_read=isinstance(self.matrix, Expression)),
        )
        if at.xp is np and self.is_constant():
            self._known_rows = rows = rows._replace(totals=total(np, rows.matrix_scale))
        return rows

    def excess(self, at: Situation, action: Array) -> Array:
        """Return A a - b."""
        return or_infinite(at.xp, self.rows(at).excess(at, action))

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return A a - b plus the margin of every row."""
        rows = self.rows(at)
        return rows.excess(at, action) + rows.margin(at, action, at.margins)

    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the projection on the rows alone."""
        return self.nearest_in_box(at, action, unbounded(at))

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Return the projection on the rows and a box together; bounds may be infinite."""
        return nearest_in_rows(at, self.rows(at), action, bounds)

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the centre of a largest ball inside."""
        return self.interior_in_box(at, dimension, unbounded(at))

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Return the centre of a largest ball inside the rows and a box; found once where all is constant."""
        box = spread(at.xp, bounds, dimension)
        is_known = not (is_traced(box.low) or is_traced(box.high))
        if not (is_known and box.low.ndim == 1 and self.is_constant()):
            return interior_in_rows(at, self.rows(at), dimension, box)
        low, high = (np.asarray(side, dtype=np.float64) for side in box)
        key = (low.tobytes(), high.tobytes(), at.margins)
        centre = self._centres.get(key)
        if centre is None:
            host = read_situation(low, None, None)._replace(margins=at.margins)
            centre = interior_in_rows(host, self.rows(host), dimension, Bounds(low, high))
            # A box that moves with the state never comes back: only the centres of a few boxes are kept.
            if len(self._centres) >= MOST_CENTRES:
                self._centres.clear()
            self._centres[key] = centre
        return convert(centre, at.xp, at.dtype, at.device)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the smallest ratio of room to speed over the rows, their margins included."""
        return least(at.xp, self.rows(at).reach(at, point, direction))

    def chord(self, at: Situation, point: Array, direction: Array) -> tuple[Array, Array]:
        """Return both ends of a line; on the host, products of the matrix are shared by them."""
        if at.xp is not np:
            return super().chord(at, point, direction)
        return self.rows(at).chord(at, point, direction)

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return a vertex that is farthest along a direction."""
        return self.farthest_in_box(at, direction, unbounded(at))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Solve a linear program over the rows and a box: on the host, or by steps in a compiled function."""
        return farthest_in_rows(at, self.rows(at), direction, bounds)

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Write out every row, or name it by its number where its numbers are read or too many."""
        return [self._row_name(index) for index in range(self._rows)]

    def formula(self) -> str:
        """Write the rows together."""
        return f"A a <= {show(self.bound)} ({self._rows} rows)"

    def parameters(self) -> dict[str, Parameter]:
        """Return the matrix and the bounds."""
        return {"A": self.matrix, "b": self.bound}

    def size(self) -> int | None:
        """Return the number of columns."""
        return self._size

    def require_nonempty(self, at: Situation, inside: Array, dimension: int) -> None:
        """Refuse an empty set with the rows that exclude one another."""
        self.refuse_conflict(at, inside, spread(at.xp, unbounded(at), dimension))
        super().require_nonempty(at, inside, dimension)

    def refuse_conflict(self, at: Situation, inside: Array, box: Bounds) -> None:
        """On the host, raise the error of an empty set with a proof that it is one; return where there is no proof.

        `inside` holds the tightened rows of the set, and maybe others, at the point that misses them least.
        """
        if at.xp is not np or np.all(inside <= 0):
            return
        rows, lead = self.rows(at), inside.shape[:-1]
        place = np.unravel_index(int(np.argmax(~np.all(inside <= 0, axis=-1))), lead)

        def here(array: Array, axes: int) -> Any:
            return np.broadcast_to(array, (*lead, *array.shape[array.ndim - axes :]))[place]

        matrix, bound, scale = here(rows.matrix, 2), here(rows.bound, 1), here(rows.bound_scale, 1)
        low, high = here(box.low, 1), here(box.high, 1)
        if not (np.isfinite(matrix).all() and np.isfinite(bound).all()):
            return
        tightened = conflict(matrix, bound - at.margins * RELATIVE_MARGIN * scale, low, high)
        if tightened.missing <= 0:
            return
        names = [self._row_name(index) for index in tightened.rows]
        names += [f"a[{j}] >= {low[j]:g}" for j in tightened.lower_limits]
        names += [f"a[{j}] <= {high[j]:g}" for j in tightened.upper_limits]
        plain = conflict(matrix, bound, low, high)
        reason = (
            f"they miss one another by {2.0 * plain.missing:.3g}"
            if plain.missing > 0
            else f"the set is only {-2.0 * plain.missing:.3g} wide, and the margin of `contains` takes that away"
        )
        raise EmptySetError(
            f"no action satisfies {self.formula()}: {reason}. Conflicting rows: {'; '.join(names)}. "
            f"Widen one of them."
        )

    def _row_name(self, index: int) -> str:
        right = entry(self.bound, index)
        if isinstance(self.matrix, Expression) or np.count_nonzero(self.matrix[index]) > MOST_TERMS:
            return f"row {index} of A a <= {right}"
        terms = "".join(_term(float(factor), j) for j, factor in enumerate(self.matrix[index]) if factor != 0)
        return f"row {index}: {terms.removeprefix(' + ').strip() or '0'} <= {right}"


def barrier(h: Parameter, Lf_h: Parameter, Lg_h: Parameter, gamma: Parameter = 1.0) -> Polytope:
    """Return the half-space of a control barrier function: `Lg_h . a >= -Lf_h - gamma h`.

    For dynamics ds/dt = f(s) + g(s) a, the time derivative of h(s) is Lf_h + Lg_h . a. While every action satisfies
    the row, h cannot fall faster than exponentially, so that h >= 0 holds from any state with h >= 0 on. This is a
    statement about continuous time and an exact model; docs/barriers.md says what remains of it otherwise.

    Args:
        h: the barrier, positive in safe states: a number or an expression of the observation.
        Lf_h: the derivative of h along the dynamics without any action.
        Lg_h: the derivative of h along each entry of the action: a vector, or a list of numbers and expressions.
        gamma: how fast h may fall towards 0, in 1/s; larger values restrict actions later. Positive.
    """
    rate = parameter("barrier", "gamma", gamma, 0)
    if not isinstance(rate, Expression) and rate <= 0:
        raise ConstraintError(
            f"barrier: gamma={float(rate):g}, but h falls at a positive rate. Use 1.0, or more to restrict less."
        )
    control = parameter("barrier", "Lg_h", Lg_h, 1)
    shape = control.own_shape if isinstance(control, Expression) else control.shape
    if len(shape) != 1 or shape[0] is None:
        raise ConstraintError(
            f"barrier: Lg_h={show(control)} is not a vector of known length. Give one number or expression per entry "
            f"of the action, as in Lg_h=[0.0, ib.obs[3]]."
        )
    fall = parameter("barrier", "Lf_h", Lf_h, 0) + rate * parameter("barrier", "h", h, 0)
    return Polytope([-control], [fall])


def _term(factor: float, index: int) -> str:
    size = "" if abs(factor) == 1.0 else f"{abs(factor):g} "
    return f" {'-' if factor < 0 else '+'} {size}a[{index}]"
