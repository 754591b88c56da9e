"""Uniform draws: accepted without exception, uniform by test, refused where a set has no bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from inbounds.constraints import (
    Ball,
    Box,
    Constraint,
    Ellipsoid,
    Oracle,
    Polytope,
    PowerBudget,
    RateLimit,
    Simplex,
    SumBand,
    WeightedL1,
    linear_rows,
    obs,
    previous_action,
)
from inbounds.constraints.randomness import Randomness
from inbounds.constraints.sampling import steps_of_hit_and_run, walked
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from tests.constraints.memberships import in_rings
from tests.slices import quick_slice

DRAWS = 3_000
SQUARE = Box(-np.ones(2), np.ones(2))
CUBE = Box(-np.ones(3), np.ones(3))
SETS: dict[str, Constraint] = {
    "box": Box([-1.0, 0.25, -3.0], [1.0, 0.5, 5.0]),
    "ball": Ball(radius_squared=0.5) & CUBE,
    "ball cut by its box": Ball(radius_squared=1.5) & CUBE,
    "ball in a box beside zero": Ball(radius_squared=1.5) & Box([0.2, -1.0, -1.0], [1.0, 1.0, 0.4]),
    "weighted l1": WeightedL1(weights=[2.0, 0.7, 1.0], bound=1.0) & CUBE,
    "weighted l1 cut by its box": WeightedL1(weights=[2.0, 0.1, 1.0], bound=2.0) & CUBE,
    "weighted l1 with free entries": WeightedL1(weights=[2.0, 0.0, 0.0], bound=1.0) & CUBE,
    "power budget": PowerBudget(weights=[2.0, -3.0, 0.0], bound=1.0) & CUBE,
    "band": SumBand(total=0.5, tolerance=0.3, low=-1.0, high=1.0) & CUBE,
    "band near the upper corner": SumBand(total=2.5, tolerance=0.3) & CUBE,
    "thin band": SumBand(total=-1.0, tolerance=0.01) & CUBE,
    "ellipsoid": Ellipsoid(matrix=[[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 6.0]], bound=1.0) & CUBE,
    "polytope": Polytope([[1.0, 1.0, 0.0], [-1.0, 2.0, 1.0]], [0.5, 0.7]) & CUBE,
    "ball and polytope": Ball(radius_squared=1.2) & Polytope([[1.0, 1.0, 0.5]], [0.2]) & CUBE,
}
every_set = pytest.mark.parametrize("name", SETS)


def features(points: Any) -> dict[str, Any]:
    """Return one-dimensional views of points that a wrong law would change: entries and mixtures of them."""
    points = np.asarray(points, dtype=np.float64)
    mixtures = np.random.default_rng(7).normal(size=(points.shape[-1], 3))
    views = {f"entry {index}": points[:, index] for index in range(points.shape[-1])}
    views |= {f"mixture {index}": points @ mixtures[:, index] for index in range(3)}
    return views | {"size": np.sum(points * points, axis=-1)}


def least_p_value(drawn: Any, truth: Any) -> float:
    """Compare two samples feature by feature by Kolmogorov-Smirnov, corrected for their number."""
    ours, theirs = features(drawn), features(truth)
    return len(ours) * min(float(stats.ks_2samp(ours[name], theirs[name]).pvalue) for name in ours)


def by_rejection(constraint: Constraint, low: Any, high: Any, count: int = DRAWS) -> Any:
    """Draw uniformly the slow and obviously right way."""
    rng = np.random.default_rng(99)
    found: list[Any] = []
    while sum(len(part) for part in found) < count:
        candidates = rng.uniform(low, high, size=(200_000, len(low)))
        found.append(candidates[constraint.contains(None, candidates)])
    return np.concatenate(found)[:count]


def corners(constraint: Constraint) -> tuple[Any, Any]:
    box = next(member for member in constraint.members() if isinstance(member, Box))
    return np.asarray(box.low), np.asarray(box.high)


@pytest.mark.parametrize("name", quick_slice(SETS, list(SETS)[::2]))
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_draws_are_accepted_and_follow_the_same_law_as_plain_rejection(name: str, library: str) -> None:
    constraint = SETS[name]
    rng = np.random.default_rng(0) if library == "numpy" else jax.random.key(0)
    drawn = constraint.sample(rng, n=DRAWS)
    assert drawn.shape == (DRAWS, 3)
    assert np.all(np.asarray(constraint.contains(None, drawn)))
    assert np.max(constraint.violation(None, np.asarray(drawn, dtype=np.float64))) <= 0
    assert least_p_value(drawn, by_rejection(constraint, *corners(constraint))) > 1e-3


WRONG_SAMPLERS: dict[str, Callable[[Constraint, Any], Any]] = {
    "projected instead of rejected": lambda c, rng: c.project(None, rng.uniform(-1, 1, size=(DRAWS, 3))),
    "radius not corrected for the dimension": lambda c, rng: (
        (lambda g: g / np.linalg.norm(g, axis=-1, keepdims=True))(rng.normal(size=(DRAWS, 3)))
        * np.sqrt(0.5)
        * rng.random((DRAWS, 1))
    ),
    "a little too central": lambda c, rng: 0.93 * c.sample(rng, n=DRAWS),
    "walk that is far too short": lambda c, rng: 0.5 * (c.sample(rng, n=DRAWS) + c.interior_point()),
}


@pytest.mark.parametrize("name", WRONG_SAMPLERS)
def test_the_same_comparison_exposes_a_wrong_sampler(name: str) -> None:
    constraint = SETS["ball"]
    wrong = WRONG_SAMPLERS[name](constraint, np.random.default_rng(1))
    assert least_p_value(wrong, by_rejection(constraint, *corners(constraint))) < 1e-3


@pytest.mark.parametrize(
    "name", ["ball cut by its box", "weighted l1 with free entries", "thin band", "polytope"]
)
def test_hit_and_run_forgets_where_it_started(name: str) -> None:
    constraint = SETS[name]
    at, size = constraint.situation_without_action(None, None, None)
    drawn = walked(constraint, Randomness(np.random.default_rng(2), at), at, size, (DRAWS,))
    assert np.all(constraint.contains(None, drawn))
    assert least_p_value(drawn, by_rejection(constraint, *corners(constraint))) > 1e-3


def test_hit_and_run_fills_the_corners_of_a_simplex_in_nine_dimensions() -> None:
    constraint = Polytope(np.ones((1, 9)), [1.0]) & Box(np.zeros(9), np.ones(9))
    spacings = np.random.default_rng(3).exponential(size=(DRAWS, 10))
    exact = spacings[:, :9] / spacings.sum(axis=1, keepdims=True)
    assert least_p_value(constraint.sample(np.random.default_rng(4), n=DRAWS), exact) > 1e-3


def test_a_ball_without_a_box_needs_none() -> None:
    drawn = Ball(radius_squared=4.0).sample(np.random.default_rng(5), n=20_000, dimension=6)
    radii = np.linalg.norm(drawn, axis=-1) / 2.0
    assert stats.kstest(radii**6, "uniform").pvalue > 1e-3


def test_shares_of_a_simplex_have_the_law_of_dirichlet() -> None:
    drawn = Simplex(total=2.0).sample(np.random.default_rng(6), n=10_000, dimension=4)
    np.testing.assert_allclose(drawn.sum(axis=-1), 2.0, rtol=1e-4)
    for entry in drawn.T:
        assert stats.kstest(entry / 2.0, stats.beta(1.0, 3.0).cdf).pvalue > 1e-3


def test_caps_of_a_simplex_are_respected_and_change_nothing_else() -> None:
    constraint = Simplex(total=1.0, high=0.5)
    spacings = np.random.default_rng(7).exponential(size=(200_000, 4))
    shares = spacings / spacings.sum(axis=1, keepdims=True)
    truth = shares[np.all(shares <= 0.5, axis=1)][:DRAWS]
    assert least_p_value(constraint.sample(np.random.default_rng(8), n=DRAWS, dimension=4), truth) > 1e-3


def test_shares_that_are_nearly_equal_are_drawn_exactly_and_not_by_a_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simplex, caps = Simplex(total=1.0, high=1.0), Box(0.0, np.full(50, 1 / 50 + 1e-9))
    monkeypatch.setattr("inbounds.constraints.sampling._completed", None)
    drawn = (simplex & caps).sample(np.random.default_rng(9), n=300)
    # What is left below the caps is uniform in a corner: its sum, to the power of the dimension, is uniform.
    at = simplex.situation(None, drawn).at
    most = float(np.sum(caps.inner_bounds(at).high))
    left = (most - drawn.sum(axis=-1)) / (most - float(np.squeeze(simplex.narrowed(at, 50, 0.0, 1.0)[0])))
    assert stats.kstest(left**50, "uniform").pvalue > 1e-3


@every_set
def test_the_ends_of_a_chord_are_what_can_be_reached_both_ways(name: str) -> None:
    constraint, rng = SETS[name], np.random.default_rng(11)
    points = constraint.sample(rng, n=50)
    headings = rng.normal(size=points.shape) * (rng.random(points.shape) < 0.7)
    at = constraint.situation(None, points).at
    ends = constraint.chord(at, points, headings)
    for found, way in zip(ends, (-headings, headings), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, constraint.reach(at, points, way), rtol=1e-9, atol=1e-12)


def test_a_step_of_a_walk_in_a_polytope_multiplies_by_its_matrix_three_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 5))
    constraint = Polytope(rows, np.ones(60)) & Box(-np.ones(5), np.ones(5))
    constraint.sample(np.random.default_rng(1), n=4)
    products = []

    def counted(xp: Any, matrix: Any, vectors: Any) -> Any:
        products.append(matrix.shape)
        return linear_rows.__dict__["_times"](xp, matrix, vectors)

    monkeypatch.setitem(linear_rows.__dict__, "_times", linear_rows.times)
    monkeypatch.setattr(linear_rows, "times", counted)
    drawn = constraint.sample(np.random.default_rng(1), n=4)
    assert len(products) <= 3 * steps_of_hit_and_run(5) + 3
    assert np.all(constraint.violation(None, drawn) <= 0)


def test_the_bikes_of_five_zones_are_drawn_exactly_and_not_by_a_walk() -> None:
    constraint = SumBand(total=150.0, tolerance=5.0, high=40.0) & Box(np.zeros(5), np.full(5, 40.0))
    truth = by_rejection(constraint, np.zeros(5), np.full(5, 40.0))
    assert least_p_value(constraint.sample(np.random.default_rng(9), n=DRAWS), truth) > 1e-3


@pytest.mark.parametrize("library", quick_slice(["numpy", "jax"], ["numpy"]))
def test_every_observation_gets_draws_from_its_own_set(library: str) -> None:
    constraint = WeightedL1(weights=obs[0:2], bound=1.0) & SQUARE
    observation = np.array([[0.1, 0.1], [50.0, 50.0], [0.0, 50.0]])
    rng = np.random.default_rng(4) if library == "numpy" else jax.random.key(4)
    drawn = np.asarray(constraint.sample(rng, observation, n=500))
    assert drawn.shape == (500, 3, 2)
    assert np.abs(drawn[:, 0]).max() > 0.9
    assert np.abs(drawn[:, 1]).max() <= 0.02
    assert np.abs(drawn[:, 2, 0]).max() > 0.9 and np.abs(drawn[:, 2, 1]).max() <= 0.02
    assert constraint.sample(rng, observation).shape == (3, 2)
    assert constraint.sample(rng, observation[0]).shape == (2,)


@pytest.mark.slow
def test_rows_read_from_the_observation_are_walked_state_by_state() -> None:
    constraint = Polytope(obs[0:10].reshape(2, 5), obs[10:12]) & Box(-np.ones(5), np.ones(5))
    rng = np.random.default_rng(10)
    observation = np.concatenate([rng.normal(size=(6, 10)), rng.uniform(0.1, 1.0, size=(6, 2))], axis=-1)
    compiled = jax.jit(lambda key, state: constraint.sample(key, state, n=7))
    for drawn in (constraint.sample(rng, observation, n=7), compiled(jax.random.key(0), observation)):
        drawn = np.asarray(drawn, dtype=np.float64)
        assert drawn.shape == (7, 6, 5)
        assert np.all(constraint.violation(observation, drawn) <= 0)
        assert np.all(np.std(drawn, axis=0) > 0.05)


def test_a_rate_limit_is_drawn_around_the_previous_action() -> None:
    constraint = RateLimit(0.1, previous=previous_action) & Ball(radius_squared=1.0) & SQUARE
    drawn = constraint.sample(np.random.default_rng(0), n=50, previous_action=np.array([0.5, 0.5]))
    assert np.all(np.abs(drawn - 0.5) <= 0.1)


@pytest.mark.parametrize("name", quick_slice(SETS, ["band"]))
def test_compiled_and_mapped_draws_are_accepted(name: str) -> None:
    constraint = SETS[name]
    draw = jax.jit(jax.vmap(lambda key: constraint.sample(key, n=3)))
    drawn = draw(jax.random.split(jax.random.key(1), 20))
    assert drawn.shape == (20, 3, 3)
    assert np.max(constraint.violation(None, np.asarray(drawn, dtype=np.float64))) <= 0
    assert len(np.unique(np.asarray(drawn).reshape(60, 3), axis=0)) == 60


def test_the_same_generator_gives_the_same_draws() -> None:
    for seed in (np.random.default_rng, jax.random.key):
        first, second = (SETS["ball and polytope"].sample(seed(5), n=10) for _ in range(2))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "constraint",
    [
        Box([0.0, -np.inf], [1.0, 1.0]),
        PowerBudget(weights=np.ones(2), bound=1.0),
        WeightedL1(weights=[1.0, 0.0], bound=1.0),
        SumBand(total=1.0, tolerance=0.1, low=[-np.inf, -np.inf], high=[1.0, np.inf]),
        Polytope([[1.0, -1.0], [-1.0, 1.0]], [1.0, 1.0]),
        Ellipsoid(matrix=[[1.0, 0.0], [0.0, 0.0]], bound=1.0),
    ],
    ids=lambda constraint: type(constraint).__name__,
)
@pytest.mark.parametrize("library", ["numpy", "jax", "compiled"])
def test_a_set_without_bounds_is_refused_and_a_box_is_suggested(constraint: Constraint, library: str) -> None:
    draw = jax.jit(lambda key: constraint.sample(key)) if library == "compiled" else constraint.sample
    with pytest.raises(ConstraintError, match="& Box"):
        draw(np.random.default_rng(0) if library == "numpy" else jax.random.key(0))


def test_a_bounded_polytope_needs_no_box() -> None:
    triangle = Polytope([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, 0.0, 0.0])
    drawn = triangle.sample(np.random.default_rng(0), n=2_000)
    np.testing.assert_allclose(drawn.mean(axis=0), 1.0 / 3.0, atol=0.02)


def test_an_empty_set_has_no_draws() -> None:
    constraint = SumBand(total=obs[0], tolerance=0.1) & SQUARE
    with pytest.raises(EmptySetError):
        constraint.sample(np.random.default_rng(0), np.array([9.0]))


RATE = RateLimit(0.1) & Box(-1.0, 1.0)


def test_a_rate_limit_that_leaves_its_box_has_no_draws() -> None:
    before = np.array([[0.5, 5.0], [0.5, 0.5]])
    with pytest.raises(EmptySetError, match=r"a\[1\] >= previous_action\[1\] - 0.1; a\[1\] <= 1\. Widen"):
        RATE.sample(np.random.default_rng(0), dimension=2, previous_action=before)
    with pytest.raises(EmptySetError, match="Widen"):
        RATE.sample(jax.random.key(0), dimension=2, previous_action=before[0])
    compiled = jax.jit(lambda key, action: RATE.sample(key, dimension=2, previous_action=action))
    drawn = np.asarray(compiled(jax.random.key(0), before), dtype=np.float64)
    assert np.all(np.isnan(drawn[0]))
    assert RATE.violation(None, drawn[1], previous_action=before[1]) <= 0.0


CUT = Box(0.5 * np.ones(2), np.ones(2))
FEW: dict[str, tuple[Constraint, Any, Any]] = {
    "ball": (Ball(radius_squared=obs[0]) & SQUARE, [-1.0], [0.5]),
    "band": (SumBand(total=obs[0], tolerance=0.1) & SQUARE, [9.0], [1.0]),
    "l1 beside zero": (WeightedL1(np.ones(2), obs[0]) & CUT, [0.9], [1.2]),
    "ellipsoid": (Ellipsoid(np.diag([1.0, 2.0]), obs[0]) & CUT, [0.7], [1.0]),
    "polytope": (Polytope(-np.ones((1, 5)), obs[0:1]) & Box(-np.ones(5), np.ones(5)), [-6.0], [-3.0]),
    "union": (
        (Ball(radius_squared=obs[0]) & SQUARE) | (WeightedL1(np.ones(2), obs[0]) & CUT),
        [-1.0],
        [1e-9],
    ),
}
"""Sets with a state in which they are empty, and one in which they are not."""


@pytest.mark.parametrize("name", quick_slice(FEW, ["ball"]))
def test_compiled_draws_are_nan_in_those_states_alone_that_have_no_action(name: str) -> None:
    constraint, *states = FEW[name]
    states = np.array(states)
    drawn = jax.jit(lambda key, state: constraint.sample(key, state, n=50))(jax.random.key(0), states)
    drawn = np.asarray(drawn, dtype=np.float64)
    assert np.all(np.isnan(drawn[:, 0]))
    assert np.all(constraint.violation(states[1], drawn[:, 1]) <= 0.0)


@pytest.mark.parametrize("name", FEW)
def test_draws_in_a_state_without_any_action_are_refused_with_a_remedy(name: str) -> None:
    constraint, *states = FEW[name]
    with pytest.raises(EmptySetError, match=r"no action satisfies .* Widen one of them"):
        constraint.sample(np.random.default_rng(0), np.array(states))


def test_the_members_of_a_union_may_be_empty_in_different_states() -> None:
    small = Box(np.zeros(2), np.full(2, 1e-4))
    members = [
        Polytope([[sign, sign]], obs[index : index + 1]) & small for index, sign in enumerate((1.0, -1.0))
    ]
    constraint = members[0] | members[1]
    states = np.array([[-1.0, -1e-5], [1e-5, -1.0]])
    drawn = constraint.sample(np.random.default_rng(0), states, n=100)
    assert np.all(constraint.violation(states, drawn) <= 0.0)
    assert np.all(constraint.violation(states, constraint.interior_point(states)) <= 0.0)
    with pytest.raises(EmptySetError, match="Widen"):
        constraint.interior_point(np.array([[-1.0, -1.0], [1e-5, -1.0]]))


def test_a_set_that_is_a_single_point_is_drawn_as_that_point() -> None:
    constraint = Ball(radius_squared=0.0) & SQUARE
    np.testing.assert_array_equal(constraint.sample(np.random.default_rng(0), n=3), np.zeros((3, 2)))
    np.testing.assert_array_equal(constraint.sample(jax.random.key(0), n=3), jnp.zeros((3, 2)))


def test_a_seed_is_no_generator() -> None:
    with pytest.raises(InvalidInputError, match="default_rng"):
        SETS["ball"].sample(0)


def test_a_walk_in_an_oracle_is_uniform_and_calls_the_function_a_few_times_per_step() -> None:
    calls = [0]

    def in_ball(observation: Any, action: Any) -> Any:
        calls[0] += int(np.prod(np.shape(action)[:-1]))
        return np.sum(np.square(action), axis=-1) <= 1.0

    # A ball fills less than a millionth of this cube: no draw comes from rejection.
    ball = Oracle(in_ball, within=Box(np.full(12, -2.0), 2.0), is_batched=True)
    draws = ball.sample(np.random.default_rng(0), None, 400)
    assert calls[0] < 400 * (256 + 30 * (40 + 12 * 12))
    # The d-th power of the radius of a uniform draw is uniform, and so is every direction.
    radius = np.linalg.norm(draws, axis=-1)
    assert stats.kstest(radius**12, "uniform").pvalue > 1e-3
    first = 0.5 + 0.5 * draws[:, 0] / radius
    assert stats.kstest(first, stats.beta(5.5, 5.5).cdf).pvalue > 1e-3


@pytest.mark.sweep
def test_compiled_walks_in_an_oracle_are_allowed() -> None:
    oracle = Oracle(in_rings, within=Box(np.full(8, -2.0), 2.0), is_batched=True)
    draws = np.asarray(jax.jit(lambda key: oracle.sample(key, None, 5))(jax.random.key(0)))
    assert in_rings(None, draws.astype(np.float64)).all()
    assert len(np.unique(draws[:, 0])) == 5
