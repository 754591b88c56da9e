"""Numbers too large for the arithmetic: what cannot be computed is not feasible, and projections still are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Polytope,
    PowerBudget,
    RateLimit,
    Simplex,
    SumBand,
    WeightedL1,
    obs,
)
from inbounds.constraints.situation import read_situation
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from tests.slices import quick_slice

CROSSED = np.array([[4.0, -3.0], [-3.0, 4.0]])
SQUARE = Box([-1.0, -1.0], [1.0, 1.0])
PREVIOUS = np.zeros(2)

SETS: dict[str, Constraint] = {
    "box": Box([-1.0, -np.inf], [np.inf, 1.0]),
    "ball": Ball(radius_squared=1.0),
    "ball in a box": Ball(radius_squared=1.0) & SQUARE,
    "ball in half a box": Ball(radius_squared=1.0) & Box(-np.inf, 0.5),
    "weighted l1": WeightedL1([1.0, 2.0], 1.0),
    "weighted l1 in a box": WeightedL1([1.0, 2.0], 1.0) & SQUARE,
    "power budget": PowerBudget([1.0, -2.0], 1.0),
    "power budget in a box": PowerBudget([1.0, -2.0], 1.0) & SQUARE,
    "ellipsoid": Ellipsoid(CROSSED, 1.0),
    "ellipsoid in a box": Ellipsoid(CROSSED, 1.0) & SQUARE,
    "polytope": Polytope([[1.0, 1.0], [-1.0, 2.0]], [1.0, 1.0]),
    "polytope in a box": Polytope([[1.0, 1.0], [-1.0, 2.0]], [1.0, 1.0]) & SQUARE,
    "sum band": SumBand(0.5, 0.1),
    "sum band with caps": SumBand(0.5, 0.1, -1.0, 1.0),
    "simplex": Simplex(1.0),
    "rate limit and ball": RateLimit(0.1) & Ball(radius_squared=1.0) & SQUARE,
    "polytope and ball": Polytope([[1.0, 1.0]], [1.0]) & Ball(radius_squared=1.0) & SQUARE,
    "union": (Ball(radius_squared=1.0) & SQUARE) | Box(2.0, 3.0),
}

OVERFLOWING: dict[str, Constraint] = {
    "box": Box(-1.0, 10.0 * obs[0]),
    "ball": Ball(radius_squared=10.0 * obs[0]),
    "weighted l1": WeightedL1(10.0 * obs[0:2], 1.0),
    "power budget": PowerBudget(10.0 * obs[0:2], 1.0),
    "ellipsoid": Ellipsoid(10.0 * obs[0:4].reshape(2, 2), 1.0),
    "polytope's rows": Polytope(10.0 * obs[0:4].reshape(2, 2), 1.0),
    "polytope's bounds": Polytope(np.eye(2), 10.0 * obs[0:2]),
    "rate limit": RateLimit(10.0 * obs[0]),
    "sum band": SumBand(10.0 * obs[0], 1.0),
    "simplex": Simplex(10.0 * obs[0]),
}


def is_feasible(constraint: Constraint, action: Any) -> bool:
    """Judge an action by exact fractions, sharing nothing with the constraints but their parameters."""
    if not np.all(np.isfinite(action)):
        return False
    a = [Fraction(float(entry)) for entry in action]
    match constraint:
        case Ball():
            return sum(x * x for x in a) <= Fraction(float(constraint.bound))
        case WeightedL1():
            terms = [abs(Fraction(float(w)) * x) for w, x in zip(constraint.weights, a, strict=True)]
            return sum(terms) <= Fraction(float(constraint.bound))
        case PowerBudget():
            terms = [max(Fraction(float(w)) * x, 0) for w, x in zip(constraint.weights, a, strict=True)]
            return sum(terms) <= Fraction(float(constraint.bound))
        case Ellipsoid():
            form = [Fraction(q) * a[i] * a[j] for (i, j), q in np.ndenumerate(constraint.matrix)]
            return sum(form) <= Fraction(float(constraint.bound))
        case Polytope():
            rows = [sum(Fraction(c) * x for c, x in zip(row, a, strict=True)) for row in constraint.matrix]
            return all(row <= Fraction(b) for row, b in zip(rows, constraint.bound, strict=True))
        case Simplex():
            return abs(sum(a) - 1) <= Fraction(1, 10**5) and min(a) >= 0
        case SumBand():
            is_held = constraint.limits is None or is_feasible(constraint.limits, action)
            return abs(sum(a) - Fraction(0.5)) <= Fraction(0.1) and is_held
        case RateLimit():
            return all(abs(x) <= Fraction(0.1) for x in a)
        case Box():
            low, high = np.broadcast_to(constraint.low, 2), np.broadcast_to(constraint.high, 2)
            return all(low[i] <= a[i] <= high[i] for i in range(2))
    members = [is_feasible(member, action) for member in constraint.constraints]  # type: ignore[attr-defined]
    return any(members) if "|" in repr(constraint) else all(members)


@functools.cache
def compiled(name: str) -> Any:
    """Return a compiled function from a batch of actions to violations, acceptance and projections."""
    constraint = SETS[name]

    def answers(action: jax.Array) -> Any:
        methods = (constraint.violation, constraint.contains, constraint.project)
        return tuple(method(None, action, previous_action=jnp.zeros(2)) for method in methods)

    return jax.jit(answers)


# Compiling a set takes about a second, a polytope several: where sets share their code, one speaks for the others.
every_compiled = pytest.mark.parametrize(
    "name",
    quick_slice(SETS, ["box", "weighted l1 in a box", "ellipsoid"]),
)


def huge(sizes: list[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares = np.array([[1.0, 1.0], [1.0, -1.0], [-0.3, 0.9], [1.0, 1e-30], [-1.0, 0.0], [0.2, -1e-3]])
    return np.concatenate([size * shares for size in sizes])


@pytest.mark.parametrize(
    ("constraint", "action"),
    [
        (Ellipsoid(CROSSED, 1.0) & SQUARE, [1e308, 1e308]),
        (Ellipsoid(CROSSED, 1.0), [1e150, 1e160]),
        (Ellipsoid(CROSSED, 1.0), [1e160, 1e150]),
        (Ellipsoid(CROSSED, 1.0) & Box(-np.inf, np.inf), [1e155, 1e155]),
        (Ball(radius_squared=1.0), [1e200, 0.0]),
        (WeightedL1([1e200, 1.0], 1.0), [1e200, 0.0]),
        (SumBand(0.0, 1.0), [1.7e308, 1.7e308]),
    ],
)
def test_a_violation_that_overflows_is_infinite_and_not_accepted(constraint: Constraint, action: Any) -> None:
    for given in (action, [action, [0.0, 0.0]]):
        violation = np.asarray(constraint.violation(None, given)).reshape(-1)
        accepted = np.asarray(constraint.contains(None, given)).reshape(-1)
        assert violation[0] == np.inf and not accepted[0]
        assert np.all(violation[1:] <= 0) and np.all(accepted[1:])
    assert "infeasible" in constraint.explain(None, action)
    assert "nan" not in constraint.explain(None, action)


def test_a_sum_that_overflows_on_the_way_is_not_taken_for_a_small_one() -> None:
    row = Polytope(np.ones((1, 4)), [1.0])
    action = np.array([-1e308, -1e308, 1.5e308, 1.5e308])  # the sum is 1e308
    for order in ([0, 1, 2, 3], [2, 3, 0, 1], [0, 2, 1, 3]):
        assert row.violation(None, action[order]) > 0
        assert not row.contains(None, action[order])
        assert not row.violation(None, np.stack([action[order], np.zeros(4)]))[0] <= 0


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("action", [[0.5, -0.5], [-0.25, -0.25], [0.0, 0.0]])
def test_no_action_is_feasible_where_a_parameter_overflows(name: str, action: list[float]) -> None:
    constraint, previous = OVERFLOWING[name], {"previous_action": PREVIOUS}
    for sign in (1.0, -1.0):
        seen = np.full(4, sign * 1e308)
        assert constraint.violation(seen, action, **previous) == np.inf
        assert not constraint.contains(seen, action, **previous)
        assert "infeasible" in constraint.explain(seen, action, **previous)
        with pytest.raises(EmptySetError, match="overflow"):
            constraint.project(seen, action, **previous)
        with pytest.raises(EmptySetError, match="overflow"):
            constraint.interior_point(seen, dimension=None if constraint.size() else 2, **previous)


@pytest.mark.parametrize("name", quick_slice(OVERFLOWING, ["box", "ball", "weighted l1", "rate limit"]))
def test_no_action_is_feasible_where_a_parameter_overflows_in_a_compiled_function(name: str) -> None:
    constraint = OVERFLOWING[name]
    actions = jnp.array([[0.5, -0.5], [-0.25, -0.25], [0.0, 0.0]], jnp.float32)

    @jax.jit
    def answers(seen: jax.Array) -> Any:
        previous = {"previous_action": jnp.zeros(2)}
        return (
            constraint.violation(seen, actions, **previous),
            constraint.contains(seen, actions, **previous),
            constraint.project(seen, actions, **previous),
        )

    for sign in (1.0, -1.0):
        violation, accepted, projected = answers(jnp.full(4, sign * 1e38, jnp.float32))
        assert np.all(np.asarray(violation) == np.inf) and not np.any(accepted)
        assert np.all(np.isnan(projected))


@pytest.mark.parametrize("name", SETS)
def test_huge_actions_are_projected_on_feasible_ones(name: str) -> None:
    constraint = SETS[name]
    actions = {np.float64: huge([1e20, 1e160, 1e308]), np.float32: huge([1e25, 3e38])}
    if name == "polytope and ball":  # hundreds of quadratic programs for each
        actions = {dtype: given[-1:] for dtype, given in actions.items()}
    for dtype, given in actions.items():
        projected = constraint.project(None, given.astype(dtype), previous_action=PREVIOUS)
        assert projected.dtype == dtype
        assert all(is_feasible(constraint, row) for row in projected)
        assert np.all(constraint.violation(None, projected, previous_action=PREVIOUS) <= 0)
        alone = constraint.project(None, given[-1].astype(dtype), previous_action=PREVIOUS)
        assert is_feasible(constraint, alone)


@every_compiled
def test_huge_actions_are_projected_on_feasible_ones_in_a_compiled_function(name: str) -> None:
    given = huge([1e18, 1e20, 1e30, 3e38]).astype(np.float32)
    projected = np.asarray(compiled(name)(given)[2])
    assert np.all(np.isfinite(projected))
    assert all(is_feasible(SETS[name], row) for row in projected)


@every_compiled
def test_an_infinite_action_is_never_accepted_in_a_compiled_function(name: str) -> None:
    actions = np.array([[np.inf, 0.0], [-np.inf, -np.inf], [0.0, -np.inf], [np.nan, 0.0]], np.float32)
    violation, accepted, projected = compiled(name)(np.tile(actions, (6, 1)))
    assert np.all(np.asarray(violation) == np.inf)
    assert not np.any(accepted)
    assert np.all(np.isnan(projected))


@pytest.mark.parametrize("size", [1e20, 1e37])
def test_the_projection_of_a_huge_action_on_a_ball_keeps_its_direction(size: float) -> None:
    action = np.tile(np.array([0.6, -0.8], np.float32) * np.float32(size), (24, 1))
    expected = [[0.6, -0.8]] * 24
    np.testing.assert_allclose(compiled("ball")(action)[2], expected, atol=1e-5)
    np.testing.assert_allclose(
        Ball(radius_squared=1.0).project(None, 1e270 * action.astype(np.float64)), expected, atol=1e-5
    )


def test_a_member_that_overflows_leaves_the_others_of_a_union() -> None:
    union = Ellipsoid(CROSSED, 1.0) | Box(-1e300, 1e300)
    assert union.violation(None, [1e30, 1e30]) <= 0 and union.contains(None, [1e30, 1e30])
    assert union.violation(None, [1e155, 1e155]) <= 0  # the quadratic form is infinite minus infinite there


def test_distances_along_huge_directions_are_numbers() -> None:
    for name, constraint in SETS.items():
        start = [0.1, 0.4] if "sum band" in name else [0.5, 0.5] if name == "simplex" else [0.0, 0.0]
        for direction in huge([1e160, 1e308]):
            length = constraint.distance(None, start, direction, previous_action=PREVIOUS)
            assert not np.isnan(length) and length >= 0


@pytest.mark.parametrize("method", ["violation", "contains", "project", "explain"])
def test_numbers_that_float64_cannot_hold_are_refused(method: str) -> None:
    ask = getattr(Ball(radius_squared=1.0), method)
    for action in (
        np.array([1.0, 2.0], np.longdouble) * np.longdouble("1e4000"),
        [10**400, 0],
        [0.0, np.inf],
    ):
        with pytest.raises(InvalidInputError):
            ask(None, action)


@pytest.mark.parametrize("method", ["violation", "contains", "project"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_number_that_is_not_finite_refuses_the_batch(method: str, dtype: Any) -> None:
    actions = np.zeros((3, 2), dtype)
    actions[1, 1] = np.nan
    with pytest.raises(InvalidInputError, match="not finite"):
        getattr(SQUARE, method)(None, actions)
    seen = np.zeros((3, 4))
    seen[2, 0] = np.inf
    with pytest.raises(InvalidInputError, match="observation"):
        getattr(WeightedL1(obs[0:2], 1.0), method)(seen, np.zeros((3, 2), dtype))


def test_an_empty_set_has_no_interior_point_in_a_compiled_function() -> None:
    constraint = Ball(radius_squared=obs[0]) & SQUARE
    point = jax.jit(constraint.interior_point)
    assert np.all(np.isnan(point(jnp.array([-1.0]))))
    assert constraint.contains(np.ones(1), np.asarray(point(jnp.array([1.0]))))


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1.0, 1e300, 1.7e308])
def test_the_end_of_the_distance_along_any_direction_is_inside(size: float) -> None:
    norm = WeightedL1([69.0, 1100.0], 12000.0) & Box([-330.0, -43.0], [-42.0, 8.0])
    band = SumBand(0.0, 0.004) & Box(-10.0, 10.0)
    for constraint, start in ((norm, np.array([-118.0, 1.0])), (band, np.zeros(2))):
        for heading in (np.array([0.0, 1.0]), np.array([1.0, -1.0]), np.array([1.0, 0.5])):
            length = constraint.distance(None, start, size * heading)
            with np.errstate(over="ignore", under="ignore"):
                end = start + 0.999 * np.where(np.isfinite(length), length, 0.0) * (size * heading)
            assert length >= 0 and constraint.violation(None, end) <= 0
            if 1e-300 <= size <= 1e300:
                usual = constraint.distance(None, start, heading)
                assert length * size == pytest.approx(usual)


def test_entries_that_pass_zero_later_than_float64_can_say_do_not_lengthen_a_ray() -> None:
    band = SumBand(total=-130.0, tolerance=210.0, low=[-1500.0, 14.0, -810.0, -1300.0])
    start, heading = np.array([-41.0, 37.0, -9.0, -72.0]), np.array([-1.7e308, -27.0, -1e308, -1e308])
    length = band.distance(None, start, heading)
    assert length > 0 and band.violation(None, start + 0.999 * length * heading) <= 0


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e308])
def test_a_matrix_of_any_size_that_is_read_has_its_axes(size: float) -> None:
    rows = np.array([[1.0, 0.3], [0.3, 0.5]])
    at = read_situation(np.zeros(2), size * np.ravel(rows), None)
    directions, curvatures = Ellipsoid(obs[0:4].reshape(2, 2), 1.0).axes(at)
    np.testing.assert_allclose(curvatures / size, np.linalg.eigvalsh(rows))
    np.testing.assert_allclose(directions.T @ directions, np.eye(2), atol=1e-15)


def test_a_matrix_that_overflows_when_it_is_read_is_refused_in_words() -> None:
    ellipsoid = Ellipsoid((10.0 * obs[0:9]).reshape(3, 3), 1.0) & Box(-np.ones(3), 1.0)
    with np.errstate(over="ignore"), pytest.raises(EmptySetError, match=r"numbers in Q.*overflow.* Check"):
        ellipsoid.sample(np.random.default_rng(0), np.full(9, 1e308))


def test_rows_with_coefficients_near_the_largest_number_allow_the_zero_that_they_hold() -> None:
    rows = Polytope(obs[0:6].reshape(3, 2), [1.0, 2.0, 3.0]) & Box(-0.01, 0.02)
    observation = np.array([1e154, -1.7e308, 0.4, -0.8, 1e300, 1e308])
    nearest = rows.project(observation, np.array([0.0, -2000.0]))
    assert rows.violation(observation, nearest) <= 0


def test_rows_that_overflow_at_the_centre_of_a_box_have_an_interior_point_next_to_zero() -> None:
    rows = Polytope(obs[0:4].reshape(1, 4), obs[4:5]) & SumBand(-7.0, 6.6, -6.0, 2.0) & SumBand(-6.4, obs[5])
    observation = np.array([0.6, 1e154, 1e308, -1e300, 3.4e38, 1e300])
    inside = rows.interior_point(observation)
    moved = rows.project(observation, np.array([-0.6, -2.7, -2.5, 0.5]))
    assert rows.contains(observation, inside) and rows.contains(observation, moved)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_compiled_bound_that_is_read_as_no_number_allows_nothing(value: float) -> None:
    ball, action = Ball(radius_squared=obs[0] - 0.05), np.full(3, 0.1, np.float32)
    observation = np.array([value], np.float32)
    assert jax.jit(ball.violation)(observation, action) == np.inf
    assert not jax.jit(ball.contains)(observation, action)


WIDE_ROWS: dict[str, Callable[[], Constraint]] = {
    "large": lambda: Polytope([[1e200, 1.0], [0.0, -1e190], [1.0, 1.0]], [-1e199, -1e189, 1.0]) & SQUARE,
    "small": lambda: Polytope([[1e-200, 0.0], [0.0, -1e-300], [1.0, 1.0]], [-1e-201, -1e-301, 1.0]) & SQUARE,
    "read": lambda: Polytope(obs[0:6].reshape(3, 2), obs[6:9]) & SQUARE,
    "nearly the largest": lambda: Polytope(1.5e308 * np.eye(2), [-1.5e307, -1.5e307]) & SQUARE,
    "next to a wide budget": lambda: (
        WeightedL1([5e7, 8e-154], 6e297) & Polytope([[-3e177, 0.0], [0.0, 3e239]], [-1e52, -4e121])
    ),
}
READ = np.array([1e200, 1.0, 0.0, -1e190, 1e-200, 1e-200, -1e199, -1e189, 1e-200])


@pytest.mark.parametrize("name", WIDE_ROWS)
def test_rows_whose_squares_overflow_or_vanish_limit_an_action(name: str) -> None:
    constraint = WIDE_ROWS[name]()
    with np.errstate(all="raise", under="ignore"):
        inside = constraint.interior_point(READ)
        moved = constraint.project(READ, [1.0, 1.0])
    assert constraint.contains(READ, inside) and constraint.contains(READ, moved)


@pytest.mark.parametrize("name", ["large", "small"])
def test_rows_whose_squares_overflow_or_vanish_limit_a_compiled_action(name: str) -> None:
    constraint = WIDE_ROWS[name]()
    with jax.enable_x64(True):
        moved = jax.jit(lambda action: constraint.project(None, action))(jnp.ones(2))
    assert constraint.contains(None, np.asarray(moved))


@pytest.mark.parametrize("gradient", [[1.0, 1.0], [-1.0, 1.0], [1.0, 0.0]])
def test_an_action_is_farthest_also_where_the_set_ends_beyond_its_type(gradient: list[float]) -> None:
    reading, most = Box(obs[0:2], [1e200, 1.0]), np.finfo(np.float32).max
    low, single = np.array([-1e181, 0.5]), np.array(gradient, np.float32)
    for found in (
        reading.linear_maximiser(low, single),
        Ball(radius_squared=1e120).linear_maximiser(None, single),
    ):
        assert found.dtype == np.float32 and found[0] == np.sign(gradient[0]) * most
    assert reading.contains(low, reading.linear_maximiser(low, single))


def test_a_compiled_action_is_farthest_also_where_the_set_ends_beyond_its_type() -> None:
    constraint = Box(obs[0:2], [1e200, 1.0])
    low = np.array([-1e181, 0.5])
    with jax.enable_x64(True):
        asked = jax.jit(lambda seen, gradient: constraint.linear_maximiser(seen, gradient))
        found = np.asarray(asked(jnp.asarray(low), jnp.asarray([-1.0, 1.0], jnp.float32)))
    assert found.dtype == np.float32 and constraint.contains(low, found)


@pytest.mark.parametrize("size", [1e-40, 1e-50, 1e-300])
def test_constants_that_float32_takes_for_zero_are_refused_and_not_dropped(size: float) -> None:
    stated = (
        Polytope([[size, 0.0]], [-0.1 * size]) & SQUARE,
        WeightedL1([size, size], 0.1 * size) & SQUARE,
        PowerBudget(size * obs[0:2], 1.0) | Ball(radius_squared=0.1),
    )
    action, seen = np.full(2, 0.5), np.ones(2)
    for constraint in stated:
        moved = constraint.project(seen, action)
        assert constraint.violation(seen, moved) <= 0
        for method in (constraint.contains, constraint.project, constraint.violation):
            with pytest.raises(ConstraintError, match=r"takes numbers below .* for zero\. State"):
                jax.jit(method)(jnp.asarray(seen, jnp.float32), jnp.asarray(action, jnp.float32))
    kept = Box(-1e-300, 1e-300) & Box([-1.0, 0.0], [1.0, 1.0])
    assert not jax.jit(kept.contains)(None, jnp.asarray(action, jnp.float32))


STRICT_SETS: dict[str, Constraint] = {
    "ball": Ball(radius=0.5),
    "ellipsoid": Ellipsoid(CROSSED, 1.0),
    "tiny weights": WeightedL1([1e-310, 1.0], 1.0),
    "tiny and mixed weights": PowerBudget([1e-310, -2.0], 1.0),
    "rows": Polytope([[1.0, 2.0], [-1.0, 0.5]], [1.0, 1.0]) & Box([-2.0, -2.0], [2.0, 2.0]),
    "several": Ball(radius=0.5) & Box([-1.0, -1.0], [1.0, 1.0]) & SumBand(0.1, 0.02, -1.0, 1.0),
    "one or the other": Ball(radius=0.5) | Box([0.0, 0.0], [1.0, 1.0]),
}


@pytest.mark.parametrize("action", [[5e-324, 5e-324], [0.3, -0.2], [1e-200, 1.0], [1e200, -1e160]], ids=str)
@pytest.mark.parametrize("name", STRICT_SETS)
def test_answers_are_the_same_where_a_program_made_every_loss_of_digits_an_error(
    name: str, action: list[float]
) -> None:
    constraint, given = STRICT_SETS[name], np.array(action)

    def answers() -> list[Any]:
        questions = [
            lambda: constraint.violation(None, given),
            lambda: constraint.contains(None, given),
            lambda: constraint.project(None, given),
            lambda: constraint.sample(np.random.default_rng(0), None, n=2, dimension=2),
            lambda: constraint.interior_point(None, dimension=2),
            lambda: constraint.distance(None, constraint.project(None, np.zeros(2)), given),
            lambda: constraint.linear_maximiser(None, given),
        ]
        found: list[Any] = []
        for question in questions:
            try:
                found.append(question())
            except ConstraintError as error:  # a set without an end has no uniform draw and no farthest point
                found.append(str(error))
        return found

    usual = answers()
    with np.errstate(all="raise"):
        strict = answers()
    for one, other in zip(usual, strict, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_set_with_bounds_at_zero_is_built_where_a_program_made_underflow_an_error() -> None:
    with np.errstate(all="raise"):
        assert Simplex(1.0).contains(None, [0.5, 0.5])
