"""Products of simplices: groups of entries that each share a total of their own, as when several budgets are split."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, constant_like, least, namespace_of, stack_rows
from inbounds.constraints.box import Bounds, Box, spread
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Constant, Expression, Operation
from inbounds.constraints.level_set import unbounded
from inbounds.constraints.linear_rows import LinearRows
from inbounds.constraints.references import Reference, Span
from inbounds.constraints.situation import Parameter, Situation, parameter, relative_margin, show
from inbounds.constraints.sum_band import Simplex
from inbounds.errors import ConstraintError
from inbounds.limits import MOST_CONSTRAINTS, MOST_NUMBERS

SHOWN = 3
"""Formulas write out so many groups."""


class Simplices(Constraint):
    """Actions whose entries are nonnegative and add up to a total within each of several groups.

    Every entry belongs to exactly one group, and every group is a `Simplex`: `sum_{i in group} a_i = total`,
    `0 <= a_i <= high_i`, the equality up to the tolerance that a `Simplex` of this size has. Groups are projected and
    sampled independently of one another, which is exact for the product.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[int]],
        total: Parameter = 1.0,
        high: Parameter | None = None,
        tolerance: Parameter | None = None,
    ) -> None:
        """Store the groups and what each adds up to.

        Args:
            groups: the entries of each group, such as [[0, 1, 2], [3, 4]]; together they name every entry once.
            total: what each group adds up to: one number or expression for all, or a vector with one per group.
            high: the largest value of an entry, a number or a vector with one per entry; None for no limit.
            tolerance: how far a group may be off its total; by default that of a `Simplex`.
        """
        self.groups = _checked(groups)
        self.total = parameter("Simplices", "total", total, 1)
        self.high = None if high is None else parameter("Simplices", "high", high, 1, is_finite=False)
        self.tolerance = None if tolerance is None else parameter("Simplices", "tolerance", tolerance, 0)
        self._size = sum(map(len, self.groups))
        if isinstance(self.high, Expression):
            raise ConstraintError(
                f"Simplices: high={self.high} is observed, but limits of entries are numbers here. "
                f"Write Simplices(...) & Box(0.0, {self.high})."
            )
        if self.high is not None and self.high.ndim and len(self.high) != self._size:
            raise ConstraintError(
                f"Simplices: high has {len(self.high)} entries, but the groups name {self._size}. Give one per entry."
            )
        self.limits = Box(0.0, np.inf if self.high is None else self.high)
        self.parts = tuple(
            Simplex(entry_of(self.total, index, len(self.groups)), self._high_of(group), self.tolerance)
            for index, group in enumerate(self.groups)
        )
        order = np.concatenate([np.asarray(group, dtype=np.int64) for group in self.groups])
        is_sorted = bool(np.all(order == np.arange(self._size)))
        self._places = None if is_sorted else np.argsort(order)
        if self.is_constant():
            self.interior_point()

    def _high_of(self, group: tuple[int, ...]) -> Any:
        return self.high[list(group)] if self.high is not None and self.high.ndim else self.high

    def part_of(self, array: Array, group: tuple[int, ...]) -> Array:
        """Return the entries of a group along the last axis."""
        first, last = group[0], group[-1] + 1
        if group == tuple(range(first, last)):
            return array[..., first:last]
        return namespace_of(array).take(array, constant_like(array, np.asarray(group)), axis=-1)

    def assembled(self, at: Situation, pieces: list[Array]) -> Array:
        """Return one array of what belongs to each group, in the order of the action."""
        joined = stack_rows(at.xp, pieces)
        if self._places is None:
            return joined
        return at.xp.take(joined, constant_like(joined, self._places), axis=-1)

    def each(self, function: Callable[[Simplex, tuple[int, ...]], Any]) -> list[Any]:
        """Ask every group."""
        return [function(part, group) for part, group in zip(self.parts, self.groups, strict=True)]

    def bounds_of(self, at: Situation, bounds: Bounds) -> list[Bounds]:
        """Return what a box leaves to the entries of each group."""
        low, high = spread(at.xp, bounds, self._size)
        return [Bounds(self.part_of(low, group), self.part_of(high, group)) for group in self.groups]

    def excess(self, at: Situation, action: Array) -> Array:
        """Return the rows of all groups, one after another."""
        return stack_rows(at.xp, self.each(lambda part, group: part.excess(at, self.part_of(action, group))))

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the tightened rows of all groups."""
        return stack_rows(
            at.xp, self.each(lambda part, group: part.tightened_excess(at, self.part_of(action, group)))
        )

    def accepts(self, at: Situation, action: Array) -> Array:
        """Ask every group."""
        answers = self.each(lambda part, group: part.accepts(at, self.part_of(action, group)))
        accepted = answers[0]
        for answer in answers[1:]:
            accepted = accepted & answer
        return accepted

    def nearest(self, at: Situation, action: Array) -> Array:
        """Project every group by itself."""
        return self.assembled(
            at, self.each(lambda part, group: part.nearest(at, self.part_of(action, group)))
        )

    def nearest_in_box(self, at: Situation, action: Array, bounds: Bounds) -> Array:
        """Project every group on its simplex and its part of a box."""
        boxes = iter(self.bounds_of(at, bounds))
        return self.assembled(
            at,
            self.each(lambda part, group: part.nearest_in_box(at, self.part_of(action, group), next(boxes))),
        )

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return the farthest point of every group."""
        return self.farthest_in_box(at, direction, unbounded(at))

    def farthest_in_box(self, at: Situation, direction: Array, bounds: Bounds) -> Array:
        """Return the farthest point of every group and its part of a box."""
        boxes = iter(self.bounds_of(at, bounds))
        return self.assembled(
            at,
            self.each(
                lambda part, group: part.farthest_in_box(at, self.part_of(direction, group), next(boxes))
            ),
        )

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the middle of every simplex."""
        return self.interior_in_box(at, dimension, unbounded(at))

    def interior_in_box(self, at: Situation, dimension: int, bounds: Bounds) -> Array:
        """Return a point well inside every simplex and its part of a box."""
        boxes = iter(self.bounds_of(at, bounds))
        return self.assembled(
            at, self.each(lambda part, group: part.interior_in_box(at, len(group), next(boxes)))
        )

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Clip to the limits of entries."""
        return self.limits.within_exact_bounds(at, action)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the reach of the group that stops first."""
        lengths = self.each(
            lambda part, group: part.reach(at, self.part_of(point, group), self.part_of(direction, group))
        )
        return least(at.xp, stack_rows(at.xp, [length[..., None] for length in lengths]))

    def rows(self, at: Situation, dimension: int) -> LinearRows:
        """Return both ends of every group's sum as linear rows, for projections on several kinds of rows at once."""
        own = [part.rows(at, len(group)) for part, group in zip(self.parts, self.groups, strict=True)]
        matrix = np.zeros((2 * len(self.groups), dimension))
        for index, group in enumerate(self.groups):
            matrix[2 * index, list(group)], matrix[2 * index + 1, list(group)] = 1.0, -1.0
        full = at.value(matrix, axes=2)
        bound = stack_rows(at.xp, [rows.bound for rows in own])
        scale = stack_rows(at.xp, [rows.bound_scale for rows in own])
        return LinearRows(full, bound, at.xp.abs(full), scale, relative_margin(max(map(len, self.groups))))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name both ends of every group's sum and the limits of its entries."""
        names = []
        for part, group in zip(self.parts, self.groups, strict=True):
            entries = " + ".join(f"a[{i}]" for i in group)
            own = part.row_names(at, len(group))
            names += [own[0].replace("sum_i a_i", entries), own[1].replace("sum_i a_i", entries)]
            names += [f"a[{i}] >= 0" for i in group]
            highs = self.limits.high if np.ndim(self.limits.high) else np.full(self._size, self.limits.high)
            names += [f"a[{i}] <= {highs[i]:g}" for i in group]
        return names

    def formula(self) -> str:
        """Write the sums of the groups and the limits."""
        sums = [
            f"sum of a{list(group)} = {show(part.total)}"
            for part, group in zip(self.parts, self.groups, strict=True)
        ]
        more = [f"{len(sums) - SHOWN} more"] if len(sums) > SHOWN else []
        caps = "" if self.high is None else f" <= {show(self.high)}"
        return ", ".join([*sums[:SHOWN], *more, f"0 <= a_i{caps}"])

    def parameters(self) -> dict[str, Parameter]:
        """Return the constructor's arguments."""
        return {
            "groups": self.groups,
            "total": self.total,
            "high": self.high,
            "tolerance": self.tolerance,
        }

    def size(self) -> int | None:
        """Return how many entries the groups name."""
        return self._size


def entry_of(value: Any, index: int, count: int) -> Any:
    """Return one entry of a vector of `count` numbers or an expression of it; a single number stands for all."""
    if not isinstance(value, Expression):
        if value.ndim and len(value) != count:
            raise ConstraintError(
                f"Simplices: total has {len(value)} entries, but there are {count} groups. Give one per group."
            )
        return value[index] if value.ndim else value
    shape = value.own_shape
    if shape == ():
        return value
    if shape not in ((1,), (count,), (None,)):
        raise ConstraintError(
            f"Simplices: total={value} has {shape[0]} entries, but there are {count} groups. Give one per group."
        )
    return _entry(value, 0 if shape == (1,) else index)


def _entry(value: Expression, index: int) -> Expression:
    if value.own_shape == ():
        return value
    index = 0 if value.own_shape == (1,) else index
    if isinstance(value, Constant):
        return Constant(float(value.array[index]))
    if isinstance(value, Reference) and value.shape is None:
        return dataclasses.replace(value, indices=_position(value, index))
    if isinstance(value, Operation) and value.name == "stack" and len(value.own_shape) == 1:
        return value.operands[index]
    if isinstance(value, Operation) and value.name != "sum" and len(value.own_shape) == 1:
        return Operation(value.name, tuple(_entry(operand, index) for operand in value.operands))
    raise ConstraintError(
        f"Simplices: the entries of total={value} cannot be told apart. List one expression per group."
    )


def _position(reference: Reference, index: int) -> int:
    indices = reference.indices
    if isinstance(indices, Span):
        start, step = indices.start or 0, indices.step or 1
        if step < 0 or start < 0 <= start + index * step:
            raise ConstraintError(
                f"Simplices: the entries of total={reference} cannot be told apart. List one expression per group."
            )
        return start + index * step
    return index if indices is None or isinstance(indices, int) else indices[index]


def _checked(groups: Any) -> tuple[tuple[int, ...], ...]:
    """Return the groups as tuples; refuse what is not a partition of the entries of an action."""
    is_listed = isinstance(groups, Sequence | np.ndarray) and not isinstance(groups, str) and len(groups) > 0
    listed = list(groups) if is_listed else []
    if not listed or not all(isinstance(group, Sequence | np.ndarray) for group in listed):
        raise ConstraintError(
            f"Simplices: groups={_shortened(groups)}, but a list of lists of entries is expected. "
            f"Write them as in groups=[[0, 1, 2], [3, 4]]."
        )
    entries = [entry for group in listed for entry in group]
    if len(listed) > MOST_CONSTRAINTS or len(entries) > MOST_NUMBERS:
        raise ConstraintError(
            f"Simplices: {len(listed)} groups of {len(entries)} entries, but at most {MOST_CONSTRAINTS} groups are "
            f"possible. Use fewer."
        )
    are_integers = all(isinstance(e, int | np.integer) and not isinstance(e, bool) for e in entries)
    is_partition = are_integers and sorted(entries) == list(range(len(entries)))
    if not is_partition or not all(len(group) for group in listed):
        raise ConstraintError(
            f"Simplices: groups={_shortened(groups)} must name every entry from 0 on exactly once, and no group may be "
            f"empty. An entry that is alone in its group equals the total."
        )
    return tuple(tuple(int(entry) for entry in group) for group in listed)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
