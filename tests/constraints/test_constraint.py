"""What every kind of set promises, whatever its mathematics."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inbounds as ib
from inbounds.constraints import Ball, Box, Constraint, SumBand, WeightedL1, obs
from inbounds.constraints.expressions import Expression
from inbounds.deploy.safety_filter import SafetyFilter
from inbounds.errors import ConstraintError, EmptySetError, InboundsError, InvalidInputError
from tests.constraints.strategies import FAMILIES, Family, around_the_boundary, questions
from tests.slices import quick_slice

few = settings(max_examples=20)
every_family = pytest.mark.parametrize("name", FAMILIES)
# Compiling takes longer than testing: where kinds share their code, one of them speaks for the others.
ONE_OF_EACH = (
    "box of the state",
    "ball",
    "ball in a box beside zero",
    "weighted l1 in a box beside zero",
    "power budget in a box",
    "sum band with caps",
    "capped simplex",
    "rate limit, budget and box",
)
# Three of these stand in `make test`, the others follow in `make test-slow`.
QUICK = ("ball in a box beside zero", "weighted l1 in a box beside zero", "sum band with caps")
one_of_each = pytest.mark.parametrize("name", quick_slice(ONE_OF_EACH, QUICK))
every_compiled_family = pytest.mark.parametrize("name", quick_slice(FAMILIES, QUICK))


def family_and_question(name: str, data: st.DataObject) -> tuple[Family, Constraint, Any, Any]:
    family = FAMILIES[name]
    state, actions = data.draw(questions(family))
    return family, family.constraint, state, actions


@functools.cache
def compiled(name: str, method: str) -> Callable[..., Any]:
    return jax.jit(getattr(FAMILIES[name].constraint, method))


@every_family
@few
@given(data=st.data())
def test_projections_are_feasible_without_tolerance_in_their_type(name: str, data: st.DataObject) -> None:
    _, constraint, state, actions = family_and_question(name, data)
    for dtype in (np.float64, np.float32):
        projected = constraint.project(state, actions.astype(dtype))
        assert projected.dtype == dtype
        assert np.all(constraint.violation(state, projected) <= 0)
        assert np.all(constraint.contains(state, projected))


@every_family
@few
@given(data=st.data())
def test_what_is_accepted_stays_unchanged_bit_for_bit(name: str, data: st.DataObject) -> None:
    _, constraint, state, actions = family_and_question(name, data)
    for dtype in (np.float64, np.float32):
        given = actions.astype(dtype)
        projected = constraint.project(state, given)
        accepted = constraint.contains(state, given)
        assert projected[accepted].tobytes() == given[accepted].tobytes()
        assert constraint.project(state, projected).tobytes() == projected.tobytes()


@every_family
@settings(max_examples=15)
@given(data=st.data())
def test_projections_are_the_nearest_points_that_another_solver_finds(name: str, data: st.DataObject) -> None:
    family, constraint, state, actions = family_and_question(name, data)
    solve = family.exact(state)
    for action, projected in zip(actions[:2], constraint.project(state, actions[:2]), strict=True):
        size = max(np.linalg.norm(action), np.linalg.norm(projected))
        size = max(size, np.linalg.norm(state)) if family.rounds_with_state else size
        np.testing.assert_allclose(projected, solve(action), rtol=0, atol=2e-6 * (1 + size))


@every_family
@few
@given(data=st.data())
def test_projections_do_not_move_apart(name: str, data: st.DataObject) -> None:
    _, constraint, state, actions = family_and_question(name, data)
    projected = constraint.project(state, actions)
    for i in range(1, len(actions)):
        before = np.linalg.norm(actions[i] - actions[0])
        after = np.linalg.norm(projected[i] - projected[0])
        assert after <= before + 1e-5 * (1 + np.max(np.abs(actions)) + np.max(np.abs(projected)))


@every_family
@few
@given(data=st.data())
def test_numpy_and_the_strict_array_api_agree(name: str, data: st.DataObject) -> None:
    _, constraint, state, actions = family_and_question(name, data)
    expected = constraint.project(state, actions)
    strict = constraint.project(array_api_strict.asarray(state), array_api_strict.asarray(actions))
    np.testing.assert_allclose(
        np.asarray(strict), expected, rtol=0, atol=1e-12 * (1 + np.max(np.abs(actions)))
    )


@every_compiled_family
@few
@given(data=st.data())
def test_numpy_and_jax_agree(name: str, data: st.DataObject) -> None:
    family, constraint, state, actions = family_and_question(name, data)
    expected = constraint.project(state, actions)
    single = compiled(name, "project")(jnp.asarray(state), jnp.asarray(actions))
    size = 1 + np.max(np.abs(actions)) + np.max(np.abs(expected))
    size += np.max(np.abs(state)) if family.rounds_with_state else 0.0
    np.testing.assert_allclose(np.asarray(single), expected, rtol=0, atol=1e-5 * size)


@every_compiled_family
@few
@given(data=st.data())
def test_compiled_projections_are_feasible_in_float64(name: str, data: st.DataObject) -> None:
    _, constraint, state, actions = family_and_question(name, data)
    projected = np.asarray(compiled(name, "project")(jnp.asarray(state), jnp.asarray(actions)))
    assert np.all(constraint.violation(state, projected) <= 0)
    assert np.all(constraint.contains(state, projected))


@every_family
@few
@given(data=st.data())
def test_acceptance_in_float32_implies_feasibility_in_float64(name: str, data: st.DataObject) -> None:
    family, constraint, state, actions = family_and_question(name, data)
    points = around_the_boundary(family, state, actions)
    assert np.all(constraint.violation(state, points[constraint.contains(state, points)]) <= 0)


@every_compiled_family
@few
@given(data=st.data())
def test_compiled_acceptance_in_float32_implies_feasibility_in_float64(
    name: str, data: st.DataObject
) -> None:
    family, constraint, state, actions = family_and_question(name, data)
    points = around_the_boundary(family, state, actions)
    accepted = np.asarray(compiled(name, "contains")(jnp.asarray(state), jnp.asarray(points)))
    assert np.all(constraint.violation(state, points[accepted]) <= 0)


@pytest.mark.parametrize(
    "name", ["ball in a box", "weighted l1 in a box", "power budget", "sum band with caps"]
)
def test_the_boundary_points_of_these_tests_fall_on_both_sides(name: str) -> None:
    family = FAMILIES[name]
    state = np.array([80.0, 2.0]) if "sum" in name else np.array([3.0, -2.0, 1.0, 0.5, 4.0, 2.0])
    actions = np.ones((1, family.dimension)) * 7.0 * np.sign(np.resize(state, family.dimension))
    points = around_the_boundary(family, state, actions)
    worst = family.constraint.violation(state, points)
    assert np.any((worst > 0) & (worst < 1e-5 * 80)) and np.any((worst < 0) & (worst > -1e-5 * 80))


@pytest.mark.parametrize(
    "name",
    quick_slice(
        ["ball in a box", "weighted l1 in a box beside zero", "sum band with caps"], ["sum band with caps"]
    ),
)
def test_one_at_a_time_under_vmap_is_the_same_as_a_batch(name: str) -> None:
    family = FAMILIES[name]
    rng = np.random.default_rng(1)
    state = np.abs(rng.normal(size=family.state_size)) * 0.5 + 0.3
    actions = rng.normal(size=(4, family.dimension)) * 2.0 * family.action_scale
    batch = compiled(name, "project")(jnp.asarray(state), jnp.asarray(actions))
    one_by_one = jax.jit(jax.vmap(family.constraint.project, in_axes=(None, 0)))(
        jnp.asarray(state), jnp.asarray(actions)
    )
    np.testing.assert_allclose(one_by_one, batch, rtol=0, atol=2e-6 * (1 + np.max(np.abs(actions))))


@pytest.mark.parametrize(
    "name",
    quick_slice(
        ["ball in a box beside zero", "weighted l1 in a box", "power budget in a box", "sum band with caps"],
        ["sum band with caps"],
    ),
)
def test_no_projection_of_a_large_compiled_batch_goes_astray(name: str) -> None:
    """A compiler may round one number differently in two places; comparisons must not depend on it."""
    family = FAMILIES[name]
    rng = np.random.default_rng(2)
    state = rng.uniform(0.3, 0.9, size=family.state_size)
    actions = rng.normal(size=(5000, family.dimension)) * rng.choice([0.3, 1.0, 4.0], size=(5000, 1))
    actions = (actions * family.action_scale).astype(np.float32)
    batch = compiled(name, "project")(jnp.asarray(state), jnp.asarray(actions))
    expected = family.constraint.project(state, actions)
    np.testing.assert_allclose(batch, expected, rtol=0, atol=1e-5 * (1 + np.max(np.abs(expected))))


def test_compiling_changes_nothing_but_rounding() -> None:
    state, actions = jnp.array([2.0]), jnp.linspace(-9.0, 9.0, 20).reshape(4, 5)
    eager = FAMILIES["ball"].constraint.project(state, actions)
    np.testing.assert_allclose(eager, compiled("ball", "project")(state, actions), rtol=0, atol=2e-6)


@functools.cache
def gradient(name: str) -> Callable[..., Any]:
    project = FAMILIES[name].constraint.project
    return jax.jit(jax.grad(lambda state, actions: jnp.sum(jnp.sin(project(state, actions))), argnums=(0, 1)))


@one_of_each
@few
@given(data=st.data())
def test_gradients_of_projections_are_finite(name: str, data: st.DataObject) -> None:
    _, _, state, actions = family_and_question(name, data)
    for part in gradient(name)(jnp.asarray(state), jnp.asarray(actions)):
        assert np.all(np.isfinite(part))


@every_family
@few
@given(data=st.data())
def test_interior_points_are_accepted_and_rays_end_at_the_boundary(name: str, data: st.DataObject) -> None:
    family, constraint, state, actions = family_and_question(name, data)
    centre = constraint.interior_point(state, dimension=family.dimension)
    assert constraint.contains(state, centre)
    lengths = constraint.distance(state, centre, actions)
    assert np.all(lengths >= 0)
    for length, direction in zip(lengths, actions, strict=True):
        speed = np.linalg.norm(direction)
        if not np.isfinite(length) or speed == 0:
            far = centre + 1e6 * direction
            assert constraint.violation(state, far) <= 1e-6 * np.max(np.abs(far))
            continue
        reached = centre + length * direction
        scale = 1 + np.linalg.norm(reached) + np.max(np.abs(state))
        assert constraint.violation(state, reached) <= 1e-12 * scale
        beyond = centre + (length * (1 + 1e-5) + 1e-4 * scale / speed) * direction
        # A ray that runs almost along a thin set, such as a simplex, gains less than the margin of `contains`.
        assert constraint.violation(state, beyond) > -4e-6 * scale


def test_batches_of_states_and_actions_broadcast() -> None:
    constraint = WeightedL1(weights=obs[0:3], bound=obs[3]) & Box(-1.0, 1.0)
    rng = np.random.default_rng(0)
    states, actions = np.abs(rng.normal(size=(6, 4))), rng.normal(size=(5, 6, 3)) * 3.0
    projected = constraint.project(states, actions)
    for i, j in np.ndindex(5, 6):
        np.testing.assert_array_equal(projected[i, j], constraint.project(states[j], actions[i, j]))
    assert constraint.project(states, actions[0, 0]).shape == (6, 3)
    assert constraint.project(states, np.zeros(3)).shape == (6, 3)
    assert constraint.contains(states, actions).shape == (5, 6)
    assert constraint.violation(states[0], actions).shape == (5, 6)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ([np.nan, 0.0], "not finite"),
        ([np.inf, 0.0], "not finite"),
        ([0.0, 0.0, 0.0], "has 3 entries, but .* speaks of 2"),
        (0.5, "single number"),
        (["left", "right"], "not an array of numbers"),
        (np.array([True, False]), "real numbers are expected"),
        (np.array([1j, 0j]), "real numbers are expected"),
    ],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("method", ["contains", "violation", "project", "explain"])
def test_an_action_that_cannot_be_checked_is_an_error(method: str, action: Any, expected: str) -> None:
    constraint = Ball(radius_squared=1.0) & Box([-1.0, -1.0], [1.0, 1.0])
    with pytest.raises(InvalidInputError, match=expected):
        getattr(constraint, method)(None, action)


@pytest.mark.parametrize(
    ("observation", "expected"),
    [(None, "no observation was given"), ([1.0], "has only 1 entries"), ([1.0, np.nan, 1.0], "not finite")],
)
def test_an_observation_that_cannot_be_read_is_an_error(observation: Any, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        WeightedL1(weights=obs[0:2], bound=1.0).contains(observation, [0.0, 0.0])


@one_of_each
def test_nothing_that_is_not_a_number_is_feasible_in_a_compiled_function(name: str) -> None:
    family = FAMILIES[name]
    state = jnp.full(family.state_size, 0.7)
    action = jnp.zeros((4, family.dimension)).at[1, 1].set(jnp.nan)
    assert not compiled(name, "contains")(state, action)[1]
    projected = compiled(name, "project")(state, action)
    assert not np.any(compiled(name, "contains")(state, projected)[1])
    assert np.all(np.isfinite(projected[0]))


@pytest.mark.parametrize("name", ["ball", "weighted l1 in a box", "sum band", "rate limit"])
def test_nothing_is_feasible_in_a_state_that_is_not_a_number(name: str) -> None:
    state = jnp.full(FAMILIES[name].state_size, jnp.nan)
    action = jnp.zeros((4, FAMILIES[name].dimension))
    assert not np.any(compiled(name, "contains")(state, action))
    assert np.all(np.isnan(compiled(name, "project")(state, action)))


def test_an_empty_state_dependent_set_raises_and_names_the_rows_that_conflict() -> None:
    constraint = SumBand(total=obs[0], tolerance=0.1) & Box([0.0, 0.0], [1.0, 1.0])
    assert not constraint.contains([5.0], [1.0, 1.0])
    for ask in (lambda: constraint.project([5.0], [1.0, 1.0]), lambda: constraint.interior_point([5.0])):
        with pytest.raises(EmptySetError, match=r"sum_i a_i >= obs\[0\] - 0.1; a\[0\] <= 1; a\[1\] <= 1"):
            ask()
    assert np.all(np.isnan(jax.jit(constraint.project)(jnp.array([5.0]), jnp.array([1.0, 1.0]))))


@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("is_action_known", [False, True], ids=["known observation", "known action"])
def test_what_is_known_while_compiling_is_checked_then(is_action_known: bool, library: Any) -> None:
    constraint = WeightedL1(weights=obs[0:2], bound=1.0) & Box([-1.0, -1.0], [1.0, 1.0])
    observation, action = np.array([1.0, 2.0], np.float32), np.array([0.7, 0.9], np.float32)
    known, free = (action, observation) if is_action_known else (observation, action)

    def compiled_project(known: Any) -> Any:
        if is_action_known:
            return jax.jit(lambda observation: constraint.project(observation, known))
        return jax.jit(lambda action: constraint.project(known, action))

    answer = compiled_project(library.asarray(known))(jnp.asarray(free))
    np.testing.assert_allclose(answer, constraint.project(observation, action), atol=1e-5)
    with pytest.raises(InvalidInputError, match="not finite"):
        compiled_project(library.full(2, np.nan))(jnp.asarray(free))


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_action_without_entries_is_refused(shape: tuple[int, ...]) -> None:
    for ask in (
        Box(-1.0, 1.0).violation,
        Ball(radius_squared=1.0).contains,
        Box(-1.0, 1.0).project,
        Ball(radius_squared=1.0).explain,
    ):
        with pytest.raises(InvalidInputError, match=r"without any entry.*Pass one number or more"):
            ask(None, np.zeros(shape))


def test_integers_and_half_precision_are_answered_in_the_working_type() -> None:
    ball = Ball(radius_squared=1.0)
    assert ball.project(None, np.array([3, 4])).dtype == np.float64
    half = ball.project(None, np.array([3.0, 4.0], dtype=np.float16))
    assert half.dtype == np.float64 and ball.violation(None, half) <= 0


def test_an_explanation_names_the_row_and_the_amount() -> None:
    constraint = Ball(radius_squared=2.0) & Box([-1.0, -1.0], [1.0, 1.0])
    assert constraint.explain(None, [1.5, 0.0]) == (
        "infeasible: a[0] <= 1 is exceeded by 0.5 (2 rows are broken in all)."
    )
    assert (
        constraint.explain(None, [0.5, 0.0]) == "feasible: the tightest row is a[0] <= 1, with 0.5 to spare."
    )
    lines = constraint.explain(None, [[0.5, 0.0], [1.5, 0.0]]).splitlines()
    assert [line.split(":")[0] for line in lines] == ["action [0]", "action [1]"]


def test_the_dimension_is_asked_for_where_nothing_tells_it() -> None:
    with pytest.raises(InvalidInputError, match="Pass dimension="):
        Ball(radius_squared=1.0).interior_point()
    assert Ball(radius_squared=1.0).interior_point(dimension=3).shape == (3,)
    with pytest.raises(InvalidInputError, match="speaks of 2"):
        Box([0.0, 0.0], 1.0).interior_point(dimension=3)


def test_distance_is_zero_from_outside_and_refuses_a_direction_of_another_size() -> None:
    ball = Ball(radius_squared=1.0)
    assert ball.distance(None, [2.0, 0.0], [-1.0, 0.0]) == 0
    with pytest.raises(InvalidInputError, match="direction has 3 entries"):
        ball.distance(None, [0.0, 0.0], [1.0, 0.0, 0.0])


def test_batches_that_do_not_fit_each_other_are_refused_by_name() -> None:
    read = WeightedL1(obs[0:2], bound=1.0)
    with pytest.raises(InvalidInputError, match="observation does not fit actions"):
        read.contains(np.ones((3, 2)), np.zeros((2, 2)))
    assert read.contains(np.ones((3, 2)), np.zeros((4, 1, 2))).shape == (4, 3)


@pytest.mark.parametrize("wrong", [{"n": -1}, {"n": 2.5}, {"dimension": 0}])
def test_a_number_of_draws_or_entries_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="or more"):
        Ball(radius_squared=1.0).sample(np.random.default_rng(0), None, **{"dimension": 2, **wrong})


def test_a_list_may_mix_readings_and_numbers() -> None:
    mixed = WeightedL1([obs[2], 1], bound=1.0)
    state, action = np.array([0.0, 0.0, 3.0]), np.array([0.25, 0.5])
    assert float(mixed.violation(state, action)) == pytest.approx(3.0 * 0.25 + 0.5 - 1.0)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("method", ["contains", "violation", "project", "explain"])
def test_masked_entries_are_refused_and_other_arrays_of_numpy_are_plain_ones(method: str) -> None:
    masked, constraint = np.ma.array([3.0, 4.0], mask=[False, True]), Ball(radius_squared=1.0)
    with pytest.raises(InvalidInputError, match=r"masked array.*filled"):
        getattr(constraint, method)(None, masked)
    answer = getattr(constraint, method)(None, np.matrix([[3.0, 4.0]]))
    assert type(answer) is not np.matrix
    np.testing.assert_array_equal(answer, getattr(constraint, method)(None, np.array([[3.0, 4.0]])))


class Own(Box):
    """A set of a user's own: a box of two entries whose answers have the shape that is asked for."""

    shape: tuple[int, ...] = (2,)

    def nearest(self, at: Any, action: Any) -> Any:
        return np.zeros(self.shape)

    def interior(self, at: Any, dimension: int) -> Any:
        return np.zeros(self.shape)


@pytest.mark.parametrize("shape", [(3,), (1,), (4, 2), ()])
def test_a_point_of_another_shape_is_refused_by_the_name_of_its_method(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Own([-1.0, -1.0], [1.0, 1.0])
    assert np.array_equal(own.project(None, [3.0, 3.0]), np.zeros(2))
    monkeypatch.setattr(Own, "shape", shape)
    with pytest.raises(ConstraintError, match=r"Own\.nearest returned .*\(2,\) is expected"):
        own.project(None, [3.0, 3.0])
    with pytest.raises(ConstraintError, match=r"Own\.interior returned .*\(2,\) is expected"):
        own.interior_point(None)
    for correction in ("ray", "projection"):
        with pytest.raises(InboundsError, match=r"Own\.(nearest|interior) returned"):
            SafetyFilter(own, correction=correction).correct(None, np.full(2, 3.0))


def test_a_set_that_is_compared_by_its_content_needs_no_hash() -> None:
    class Named(Box):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named)

    short, long = Named(-1.0, obs[2:]), Named(-1.0, obs[0:])
    assert Named.__hash__ is None and short == long
    assert np.allclose(short.project(np.ones(4), [3.0, 0.5]), [1.0, 0.5], atol=1e-5)
    with pytest.raises(InvalidInputError, match="4 entries here, but 2"):
        long.project(np.ones(4), [3.0, 0.5])
    assert Named([-1.0, -1.0], [1.0, 1.0]).sample(np.random.default_rng(0), n=3).shape == (3, 2)


# One of every kind that `&`, `|` and the constructors make, with the attribute that a user would change.
KINDS: dict[str, tuple[Constraint, str]] = {
    "box": (Box(-1.0, 1.0), "high"),
    "ball": (Ball(radius_squared=1.0), "bound"),
    "ellipsoid": (ib.Ellipsoid(np.eye(2), 1.0), "bound"),
    "weighted l1": (WeightedL1([1.0, 1.0], 1.0), "weights"),
    "power budget": (ib.PowerBudget([1.0, 1.0], 1.0), "bound"),
    "sum band": (SumBand(0.0, 1.0), "tolerance"),
    "simplex": (ib.Simplex(1.0), "total"),
    "simplices": (ib.Simplices([[0, 1], [2]], total=[1.0, 1.0]), "groups"),
    "shell": (ib.Shell(0.5, 1.0), "upper"),
    "polytope": (ib.Polytope(np.eye(2), np.ones(2)), "bound"),
    "rate limit": (ib.RateLimit(0.1), "delta"),
    "intersection": (Ball(radius_squared=1.0) & Box(-1.0, 1.0), "constraints"),
    "union": (Ball(radius_squared=1.0) | Box(-1.0, 1.0), "constraints"),
    "oracle": (ib.Oracle(np.isfinite, within=Box(-1.0, 1.0)), "within"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_does_not_change_once_it_is_made(kind: str) -> None:
    made, name = KINDS[kind]
    for constraint in (made, copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        before = getattr(constraint, name)
        for attribute in (name, "radius", "radius_squared"):
            with pytest.raises(
                ConstraintError, match=rf"{attribute} cannot be set.*new set.*info\['constraint'\]"
            ):
                setattr(constraint, attribute, np.array(0.01))
            with pytest.raises(ConstraintError, match=f"{attribute} cannot be deleted"):
                delattr(constraint, attribute)
        assert getattr(constraint, name) is before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_writes_into_the_numbers_of_a_copy(kind: str, duplicate: Callable[[Any], Any]) -> None:
    def arrays(value: Any) -> Iterator[np.ndarray]:
        if isinstance(value, np.ndarray):
            yield value
        if isinstance(value, Constraint | Expression):
            value = [inner for name, inner in vars(value).items() if not name.startswith("_")]
        for item in value if isinstance(value, tuple | list) else ():
            yield from arrays(item)

    made = duplicate(
        KINDS[kind][0] & ib.WeightedL1([2.0 * obs[0], 1.0], 1.0) if kind == "ball" else KINDS[kind][0]
    )
    assert not any(array.flags.writeable for array in arrays(made))


def test_a_set_of_ones_own_keeps_its_cache_and_its_slots_when_it_is_copied() -> None:
    made = Scratching(2.0)
    for one in (made, copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made):
        assert one.violation(None, [2.0, 0.0]) == pytest.approx(0.0) and one.factor == 2.0
        assert one.sizes is not made.sizes or one is made or not one.sizes.flags.writeable
    assert made.sizes.flags.writeable  # the user's own array


class Scratching(Ball):
    """A set of the user with an array to write into, one of his own, and a slot."""

    __slots__ = ("factor",)

    def __init__(self, radius: float) -> None:
        super().__init__(radius=radius)
        self._scratch, self.sizes, self.factor = np.zeros(2), np.ones(2), radius

    def excess(self, at: Any, action: Any) -> Any:
        self._scratch[:] = 0.5
        return super().excess(at, action)


@pytest.mark.parametrize("kind", [ib.Oracle, ib.Union, ib.Intersection])
def test_sets_that_are_made_anew_when_they_are_joined_cannot_be_subclassed(kind: type[Constraint]) -> None:
    with pytest.raises(ConstraintError, match=f"Stricter: {kind.__name__} cannot be subclassed.*Constraint"):
        type("Stricter", (kind,), {})


def test_a_set_that_forgets_its_underscores_is_made_after_it_is_sent() -> None:
    with pytest.raises(ConstraintError, match="bound cannot be set"):
        pickle.loads(pickle.dumps(Forgetful(radius=1.0))).bound = np.array(9.0)


class Forgetful(Ball):
    """A set of the user that sends its public attributes alone."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


def test_a_set_of_ones_own_is_complete_when_the_outermost_constructor_returns() -> None:
    class Cached(Ball):
        def __init__(self, radius: float) -> None:
            self.asked = 0
            super().__init__(radius=radius)
            self.radius = radius
            self._calls = 0

        @functools.cached_property
        def area(self) -> float:
            return float(np.pi * self.radius**2)

        def nearest(self, at: Any, action: Any) -> Any:
            self._calls += 1
            return super().nearest(at, action)

    @dataclasses.dataclass(eq=False)
    class Data(Box):
        side: float

        def __post_init__(self) -> None:
            super().__init__(-self.side, self.side)

    own = Cached(2.0)
    own.project(None, [3.0, 3.0])
    assert own._calls == 1 and own.area == pytest.approx(4 * np.pi)
    for constraint, name in ((own, "radius"), (own, "asked"), (Data(1.0), "side")):
        with pytest.raises(ConstraintError, match=f"{name} cannot be set"):
            setattr(constraint, name, 0.1)
    assert list(inspect.signature(Cached).parameters) == ["radius"]
    assert list(inspect.signature(Box).parameters) == ["low", "high"]
