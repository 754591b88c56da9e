"""Is an action in a set? Answered from the formulas of docs/constraints.md, in float64, extended and exact numbers.

Nothing here comes from `inbounds.constraints`: a defect there cannot hide itself. A row g(a) <= 0 is a sum of terms
less a bound. With S the sum of the absolute terms and of the bound, and k the number of roundings on the longest way
from an input to the result, any evaluation of the row in float64, in whatever order it adds, is off by less than

    resolution = k 2^-53 S + underflow.

An action is *outside* where the exact g is above the resolution of its row: no float64 evaluation of the formula can
have taken it for feasible. It is *inside* where every exact g is below minus its resolution. What lies between is
*close*; `exact_excess` decides it with rational numbers. Limits of single entries by constants are compared, not added:
their resolution is zero.

Rows are evaluated in float64 first. Where that does not decide, or overflows, they are evaluated again with the 64-bit
mantissa and the wide exponents of an extended float, whose own error is a thousandth of the resolution.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.attack import memberships
from benchmarks.attack.plain_sets import Joined, Leaf, Plain, Reading

UNIT = 2.0**-53
"""Half the distance from 1 to the next float64: the relative error of one rounding."""
TINIEST = 2.0**-1074
SIMPLEX_TOLERANCE = 1e-5
"""Of the total, where a Simplex states no tolerance."""
LEAST_SIMPLEX_TOLERANCE = 4e-6, 4.8e-7
"""Of the largest sum, or of the terms of a total that is read as a difference: for all entries, and for each."""

if np.finfo(np.longdouble).eps > 2.0**-63:
    raise ImportError(
        "the checker needs extended floats with a 64-bit mantissa, which this machine's compiler does not provide. Run "
        "it on x86-64 Linux."
    )

Numbers = Callable[[Any], Any]
"""Turns float64 arrays into arrays of the numbers to compute with."""


class Verdict(NamedTuple):
    """What the checker says about a batch of actions, one entry for each."""

    outside: NDArray[np.bool_]
    inside: NDArray[np.bool_]
    excess: NDArray[np.float64]
    """The largest g over all rows."""
    resolution: NDArray[np.float64]
    """What float64 cannot tell, at the row where it matters."""
    room: NDArray[np.float64]
    """How far inside an action is, relative to the size of the terms of its tightest row; negative outside."""


class Rows(NamedTuple):
    """Rows of one set for a batch, (n, k): g, the sum of absolute terms, and the errors of evaluating it in float64."""

    excess: Any
    size: Any
    roundings: int
    underflow: Any


class Read(NamedTuple):
    """An argument for every action of a batch; `size` is what its rounding is relative to."""

    value: Any
    size: Any
    roundings: int


class Asked(NamedTuple):
    """The question in the numbers to compute with."""

    action: Any
    observation: NDArray[np.float64] | None
    previous_action: NDArray[np.float64] | None
    numbers: Numbers


def as_float64(array: Any) -> Any:
    return np.asarray(array, np.float64)


def as_extended(array: Any) -> Any:
    return np.asarray(array, np.float64).astype(np.longdouble)


def as_fractions(array: Any) -> Any:
    given = np.asarray(array, np.float64)
    return np.array([Fraction(float(value)) for value in given.flat], dtype=object).reshape(given.shape)


def judge(plain: Plain, action: Any, observation: Any = None, previous_action: Any = None) -> Verdict:
    """Judge a batch of actions (n, d), with one observation and one previous action for each where they are read."""
    point = np.asarray(action, np.float64)
    seen, before = (
        None if source is None else np.asarray(source, np.float64)
        for source in (observation, previous_action)
    )
    with np.errstate(all="ignore"):
        is_finite = np.isfinite(point).all(axis=-1)
        finite = np.where(is_finite[:, None], point, 0.0)
        verdict = _judged(plain, Asked(finite, seen, before, as_float64), own_error=1.0)
        is_clear = (verdict.outside | verdict.inside) & np.isfinite(verdict.excess)
        unclear = np.flatnonzero(is_finite & ~is_clear)
        if unclear.size:
            part = Asked(
                as_extended(finite[unclear]),
                None if seen is None else seen[unclear],
                None if before is None else before[unclear],
                as_extended,
            )
            better = _judged(plain, part, own_error=2.0**-10)
            for old, new in zip(verdict, better, strict=True):
                old[unclear] = new
    verdict.outside[~is_finite] = True
    verdict.inside[~is_finite] = False
    verdict.excess[~is_finite] = np.inf
    verdict.room[~is_finite] = -np.inf
    return verdict


def exact_excess(plain: Plain, action: Any, observation: Any = None, previous_action: Any = None) -> Fraction:
    """Return the largest g of one action in rational arithmetic; oracles count as 0 or 1."""
    seen, before = (
        None if source is None else np.asarray(source, np.float64)[None]
        for source in (observation, previous_action)
    )
    asked = Asked(as_fractions(np.asarray(action, np.float64)[None]), seen, before, as_fractions)
    return _exact(plain, asked)


def _exact(plain: Plain, asked: Asked) -> Fraction:
    if isinstance(plain, Joined):
        parts = [_exact(part, asked) for part in plain.parts]
        return max(parts) if plain.sign == "&" else min(parts)
    return max(part for rows in _rows(plain, asked) for part in np.ravel(rows.excess))


def _judged(plain: Plain, asked: Asked, own_error: float) -> Verdict:
    """Judge by numbers whose own error is a share of the resolution."""
    if isinstance(plain, Joined):
        parts = [_judged(part, asked, own_error) for part in plain.parts]
        whole = parts[0]
        for part in parts[1:]:
            whole = _both(whole, part) if plain.sign == "&" else _either(whole, part)
        return whole
    found: Verdict | None = None
    for rows in _rows(plain, asked):
        one = _verdict(rows, own_error)
        found = one if found is None else _both(found, one)
    if found is None:
        raise ValueError(f"{plain.kind} has no rows")
    return found


def _verdict(rows: Rows, own_error: float) -> Verdict:
    resolution = rows.roundings * UNIT * rows.size + rows.underflow + 0.0 * rows.excess
    excess, error = rows.excess, own_error * resolution
    with_size = np.where(rows.size > 0, rows.size, 1)
    room = np.where(rows.size > 0, -excess / with_size, np.where(excess < 0, 1.0, 0.0))
    worst = np.argmax(np.where(np.isnan(excess), np.inf, excess), axis=-1)[..., None]
    return Verdict(
        np.any(excess - error > resolution, axis=-1),
        np.all(excess + error < -resolution, axis=-1),
        _at(excess, worst),
        _at(resolution, worst),
        np.min(np.where(np.isnan(room), -np.inf, room), axis=-1).astype(np.float64),
    )


def _at(rows: Any, worst: Any) -> NDArray[np.float64]:
    return np.take_along_axis(rows, worst, axis=-1)[..., 0].astype(np.float64)


def _both(one: Verdict, other: Verdict) -> Verdict:
    is_other = (other.excess > one.excess) | np.isnan(other.excess)
    return Verdict(
        one.outside | other.outside,
        one.inside & other.inside,
        np.where(is_other, other.excess, one.excess),
        np.where(is_other, other.resolution, one.resolution),
        np.minimum(one.room, other.room),
    )


def _either(one: Verdict, other: Verdict) -> Verdict:
    is_other = other.excess < one.excess
    return Verdict(
        one.outside & other.outside,
        one.inside | other.inside,
        np.where(is_other, other.excess, one.excess),
        np.where(is_other, other.resolution, one.resolution),
        np.maximum(one.room, other.room),
    )


# The formulas --------------------------------------------------------------------------------------------------------


def _rows(leaf: Leaf, asked: Asked) -> list[Rows]:
    return FORMULAS[leaf.kind](leaf, asked)


def _read(value: Any, asked: Asked, axes: int) -> Read:
    """Return an argument as an array of the batch, (n or 1, ...) with `axes` axes behind."""
    if isinstance(value, Reading):
        source = asked.observation if value.source == "observation" else asked.previous_action
        taken = asked.numbers(value.taken(source))
        product = taken * asked.numbers(value.scale)
        offset = asked.numbers(value.offset)
        read, size = product + offset, abs(product) + abs(offset)
        roundings = int(value.scale != 1.0) + int(value.offset != 0.0)
        missing = axes - (taken.ndim - 1)
        shape = (len(taken), *(1,) * missing, *taken.shape[1:])
        return Read(read.reshape(shape), size.reshape(shape), roundings)
    array = np.asarray(value, np.float64)
    array = asked.numbers(array.reshape(1, *(1,) * (axes - array.ndim), *array.shape))
    return Read(array, abs(array), 0)


def _box(leaf: Leaf, asked: Asked) -> list[Rows]:
    """Compare low_i <= a_i <= high_i; limits at infinity hold."""
    return [
        *_limit(asked, leaf.arguments.get("low"), -1),
        *_limit(asked, leaf.arguments.get("high"), +1),
    ]


def _limit(asked: Asked, value: Any, side: int) -> list[Rows]:
    if value is None:
        return []
    is_there = np.asarray(True)
    if not isinstance(value, Reading):
        is_there = np.isfinite(np.atleast_1d(np.asarray(value, np.float64)))
        value = np.where(is_there, np.atleast_1d(value), 0.0)
    limit = _read(value, asked, 1)
    excess = asked.action - limit.value if side > 0 else limit.value - asked.action
    # A limit at infinity is a row that nothing makes tight.
    nowhere = asked.numbers(-np.finfo(np.float64).max)
    excess = np.where(is_there, excess, nowhere)
    size = np.where(is_there, limit.size + abs(asked.action), 0 * nowhere)
    return [Rows(excess, size, limit.roundings, TINIEST if limit.roundings else 0.0)]


def _ball(leaf: Leaf, asked: Asked) -> list[Rows]:
    bound = _read(leaf.arguments["radius_squared"], asked, 0)
    squares = asked.action * asked.action
    return [_sum(squares, squares, bound, asked, per_term=1)]


def _ellipsoid(leaf: Leaf, asked: Asked) -> list[Rows]:
    matrix, bound = _read(leaf.arguments["matrix"], asked, 2), _read(leaf.arguments["bound"], asked, 0)
    action, size = asked.action, abs(asked.action)
    turned = np.matmul(matrix.value, action[..., None])[..., 0]
    terms = (action * turned).sum(axis=-1)
    sizes = (size * np.matmul(matrix.size, size[..., None])[..., 0]).sum(axis=-1) + bound.size
    dimension = action.shape[-1]
    roundings = 2 * dimension + 3 + matrix.roundings + bound.roundings
    underflow = 2 * dimension * (dimension + 1) * TINIEST * (1 + size.sum(axis=-1))
    return [Rows((terms - bound.value)[..., None], sizes[..., None], roundings, underflow[..., None])]


def _weighted_l1(leaf: Leaf, asked: Asked) -> list[Rows]:
    weights, bound = _read(leaf.arguments["weights"], asked, 1), _read(leaf.arguments["bound"], asked, 0)
    terms = abs(weights.value * asked.action)
    return [_sum(terms, weights.size * abs(asked.action), bound, asked, per_term=1 + weights.roundings)]


def _power_budget(leaf: Leaf, asked: Asked) -> list[Rows]:
    weights, bound = _read(leaf.arguments["weights"], asked, 1), _read(leaf.arguments["bound"], asked, 0)
    terms = weights.value * asked.action
    terms = np.where(terms > 0, terms, 0 * terms)
    sizes = weights.size * abs(asked.action) if weights.roundings else terms
    return [_sum(terms, sizes, bound, asked, per_term=1 + weights.roundings)]


def _sum(terms: Any, sizes: Any, bound: Read, asked: Asked, per_term: int) -> Rows:
    """Return the row sum_i terms_i - bound."""
    dimension = asked.action.shape[-1]
    return Rows(
        (terms.sum(axis=-1) - bound.value)[..., None],
        (sizes.sum(axis=-1) + bound.size)[..., None],
        dimension + per_term + bound.roundings,
        (2 * dimension + 2) * TINIEST * (1 + abs(asked.action).max(axis=-1)[..., None]),
    )


def _sum_band(leaf: Leaf, asked: Asked) -> list[Rows]:
    return _band(leaf, asked, _read(leaf.arguments["tolerance"], asked, 0))


def _simplex(leaf: Leaf, asked: Asked) -> list[Rows]:
    """Judge sum_i a_i = T by the stated tolerance, or by the default one, and 0 <= a_i <= high_i.

    No float satisfies an equality, so that the set is the band that the documentation of `Simplex` states, and not the
    equality. Its least width has to be relative to the terms of T = s o + c, S = |s o| + |c|, and not to T: where they
    cancel, T itself is known to 3 * 2^-24 S only after the observation, s and c were rounded to float32, which is more
    than 1e-5 T for T < 0.018 S. A band relative to T alone would hold other sums in float32 than in float64, and none
    in both. Four margins of 1e-6 S, or of 1.2e-7 S per entry, leave `contains` its margin at both ends and
    as much between them. A problem in which T is small and the equality matters to it states `tolerance`, which is
    judged without any of this.
    """
    stated = leaf.arguments.get("tolerance")
    if stated is None:
        total = _read(leaf.arguments["total"], asked, 0)
        usual = asked.numbers(SIMPLEX_TOLERANCE)
        of_all, of_each = LEAST_SIMPLEX_TOLERANCE
        least = asked.numbers(max(of_all, of_each * asked.action.shape[-1])) * (1 + usual)
        value = np.maximum(usual * total.value, least * total.size)
        tolerance = Read(value, (usual + least) * total.size, total.roundings + 1)
    else:
        tolerance = _read(stated, asked, 0)
    return _band(Leaf(leaf.kind, {**leaf.arguments, "low": 0.0}), asked, tolerance)


def _band(leaf: Leaf, asked: Asked, tolerance: Read) -> list[Rows]:
    total = _read(leaf.arguments["total"], asked, 0)
    sums, sizes = asked.action.sum(axis=-1), abs(asked.action).sum(axis=-1)
    above = sums - total.value - tolerance.value
    below = total.value - tolerance.value - sums
    size = sizes + total.size + tolerance.size
    roundings = asked.action.shape[-1] + 2 + max(total.roundings, tolerance.roundings)
    rows = np.stack(np.broadcast_arrays(above, below), axis=-1)
    return [Rows(rows, size[..., None], roundings, 2 * TINIEST), *_box(leaf, asked)]


def _polytope(leaf: Leaf, asked: Asked) -> list[Rows]:
    matrix, bound = _read(leaf.arguments["A"], asked, 2), _read(leaf.arguments["b"], asked, 1)
    action, size = asked.action[..., None], abs(asked.action)[..., None]
    excess = np.matmul(matrix.value, action)[..., 0] - bound.value
    sizes = np.matmul(matrix.size, size)[..., 0] + bound.size
    dimension = asked.action.shape[-1]
    roundings = dimension + 2 + matrix.roundings + bound.roundings
    underflow = (2 * dimension + 2) * TINIEST * (1 + size.max(axis=-2))
    return [Rows(excess, sizes, roundings, underflow)]


def _rate_limit(leaf: Leaf, asked: Asked) -> list[Rows]:
    delta, before = _read(leaf.arguments["delta"], asked, 1), _read(leaf.arguments["previous"], asked, 1)
    excess = abs(asked.action - before.value) - delta.value
    size = before.size + delta.size + abs(asked.action)
    return [Rows(excess, size + 0 * excess, 3 + delta.roundings + before.roundings, 2 * TINIEST)]


def _oracle(leaf: Leaf, asked: Asked) -> list[Rows]:
    function = getattr(memberships, leaf.arguments["function"])
    points = np.asarray(asked.action, np.float64)
    states = [None] * len(points) if asked.observation is None else asked.observation
    answers = [bool(function(state, point)) for state, point in zip(states, points, strict=True)]
    # One unit inside or outside, since a function tells no distance.
    excess = asked.numbers(np.where(answers, -1.0, 1.0))[:, None]
    return [Rows(excess, abs(excess), 0, 0.0)]


FORMULAS: dict[str, Callable[[Leaf, Asked], list[Rows]]] = {
    "Ball": _ball,
    "Box": _box,
    "Ellipsoid": _ellipsoid,
    "Oracle": _oracle,
    "Polytope": _polytope,
    "PowerBudget": _power_budget,
    "RateLimit": _rate_limit,
    "Simplex": _simplex,
    "SumBand": _sum_band,
    "WeightedL1": _weighted_l1,
}
