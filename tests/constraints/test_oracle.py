"""Oracles: a membership function alone gives feasible, deterministic and openly approximate answers."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Constraint, Oracle
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from tests.constraints.memberships import below_entry, in_ring, in_rings, number

BOX = Box([-2.0, -2.0], [2.0, 2.0])
RING = Oracle(in_rings, within=BOX, is_batched=True)


def distance_to_ring(actions: Any) -> Any:
    radius = np.linalg.norm(actions, axis=-1)
    return np.abs(radius - np.clip(radius, 0.9, 1.1))


def test_membership_is_what_the_function_says_inside_the_other_set() -> None:
    actions = np.array([[1.0, 0.0], [0.0, 0.0], [1.05, 0.2]])
    np.testing.assert_array_equal(RING.contains(None, actions), in_rings(None, actions))
    np.testing.assert_array_equal(RING.violation(None, actions) <= 0, in_rings(None, actions))
    assert not (RING & Box([0.0, 0.0], [0.5, 0.5])).contains(None, [1.0, 0.0])


def test_one_by_one_and_batched_functions_answer_alike() -> None:
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, size=(50, 2))
    single = Oracle(in_ring, within=BOX)
    np.testing.assert_array_equal(single.contains(None, actions), RING.contains(None, actions))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_projections_are_feasible_final_and_near(dtype: Any) -> None:
    actions = np.random.default_rng(1).uniform(-3.0, 3.0, size=(40, 2)).astype(dtype)
    projected = RING.project(None, actions)
    assert projected.dtype == dtype
    assert np.all(RING.contains(None, projected))
    assert RING.project(None, projected).tobytes() == projected.tobytes()
    excess = np.linalg.norm(projected - actions, axis=-1) - distance_to_ring(actions)
    assert np.all(excess >= -1e-6) and np.max(excess) < 0.05


def test_it_says_that_its_projection_is_not_exact() -> None:
    assert not RING.projection_is_exact
    assert not (RING | Ball(radius_squared=0.1)).projection_is_exact
    assert "approximate" in RING.explain(None, [0.0, 0.0])
    assert "does not allow" in RING.explain(None, [0.0, 0.0]) and "allows" in RING.explain(None, [1.0, 0.0])


def test_the_same_question_has_the_same_answer() -> None:
    action = np.array([0.1, 0.2])
    np.testing.assert_array_equal(RING.project(None, action), RING.project(None, action))


def test_compiled_programs_call_the_function_on_the_host() -> None:
    actions = np.random.default_rng(2).uniform(-2.0, 2.0, size=(10, 2)).astype(np.float32)
    oracle = Oracle(in_rings, within=BOX, is_batched=True, samples=300)
    mapped = jax.jit(jax.vmap(lambda action: oracle.contains(None, action)))(actions)
    np.testing.assert_array_equal(mapped, oracle.contains(None, actions))
    projected = np.asarray(jax.jit(lambda action: oracle.project(None, action))(actions))
    assert np.all(oracle.contains(None, projected))


def test_the_observation_is_passed_along() -> None:
    oracle = Oracle(below_entry, within=BOX, is_batched=True)
    states = np.array([[1.0], [-1.0]])
    np.testing.assert_array_equal(oracle.contains(states, np.array([0.2, 0.2])), [True, False])
    projected = oracle.project(states, np.array([1.0, 1.0]))
    np.testing.assert_allclose(projected, [[0.5, 0.5], [-0.5, -0.5]], atol=0.05)
    on_device = jax.jit(oracle.contains)(jnp.asarray(states), jnp.full((2, 2), 0.2))
    np.testing.assert_array_equal(on_device, [True, False])


def test_draws_are_uniform_on_what_the_function_allows() -> None:
    drawn = RING.sample(np.random.default_rng(3), n=3_000)
    assert np.all(RING.contains(None, drawn))
    squares = np.sum(drawn**2, axis=-1)
    np.testing.assert_allclose(np.quantile(squares, [0.25, 0.5, 0.75]), [0.91, 1.01, 1.11], atol=0.015)


def test_without_another_set_points_are_sought_around_the_action() -> None:
    oracle = Oracle(in_rings, dimension=2, is_batched=True)
    projected = oracle.project(None, [0.2, 0.1])
    assert oracle.contains(None, projected)
    with pytest.raises(ConstraintError, match="& Box"):
        oracle.sample(np.random.default_rng(0))


def test_where_nothing_is_found_the_error_says_how_to_help() -> None:
    with pytest.raises(EmptySetError, match="within=Box"):
        Oracle(lambda observation, action: False, within=BOX, samples=50).project(None, [0.0, 0.0])


def test_distances_stop_at_the_first_refusal() -> None:
    assert RING.distance(None, [1.0, 0.0], [1.0, 0.0]) == pytest.approx(0.1, abs=1e-4)
    assert RING.distance(None, [0.0, 0.0], [1.0, 0.0]) == 0.0


def test_an_oracle_is_written_by_its_path_and_read_only_when_code_is_allowed() -> None:
    written = json.loads(json.dumps(Oracle(in_ring, within=BOX).to_json()))
    assert written["function"] == "tests.constraints.memberships:in_ring"
    with pytest.raises(ConstraintError, match="allow_code"):
        Constraint.from_json(written)
    again = Constraint.from_json(written, allow_code=True)
    assert again.contains(None, [1.0, 0.0]) and not again.contains(None, [0.0, 0.0])


def test_a_function_without_a_path_cannot_be_written() -> None:
    with pytest.raises(ConstraintError, match="JSON"):
        Oracle(lambda observation, action: True, within=BOX).to_json()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": 3}, "cannot be called"),
        ({"function": "nowhere"}, "package.module:function"),
        ({"function": "no.such.module:name"}, "cannot be imported"),
        ({"function": in_ring, "dimension": 3, "within": BOX}, "speaks of 2"),
        *(
            ({"function": in_ring, "samples": samples}, "at least one")
            for samples in (0, np.nan, 2.7, "many", True)
        ),
        ({"function": in_ring, "within": 1.0}, "not a constraint"),
    ],
)
def test_what_is_no_oracle_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        Oracle(**arguments)


def test_answers_that_are_not_booleans_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="True or False"):
        Oracle(number, within=BOX).contains(None, [0.0, 0.0])
    with pytest.raises(InvalidInputError, match="is_batched"):
        Oracle(lambda o, a: np.ones(7, dtype=bool), within=BOX, is_batched=True).contains(
            None, np.zeros((3, 2))
        )


def any_positive(observation: Any, action: Any) -> Any:
    """Forget the axis, so that one boolean answers for a whole batch."""
    return (action > 0).any()


def is_any_positive(observation: Any, action: Any) -> Any:
    return (action > 0).any(axis=-1)


def test_one_answer_for_a_whole_batch_is_refused_and_not_given_to_every_action() -> None:
    forgetful = Oracle(any_positive, is_batched=True, within=BOX)
    batch = np.array([[-0.5, -0.5], [0.5, 0.5]])
    asked = [
        lambda: forgetful.contains(None, batch),
        lambda: forgetful.contains(None, batch[:1]),
        lambda: forgetful.violation(None, batch),
        lambda: forgetful.project(None, batch),
        lambda: forgetful.sample(np.random.default_rng(0), None, n=20),
    ]
    for ask in asked:
        with pytest.raises(InvalidInputError, match=r"shape \(\) .*axis=-1"):
            ask()
    assert forgetful.contains(None, batch[1]) and not forgetful.contains(None, batch[0])


def test_a_function_of_one_argument_answers_for_every_pair() -> None:
    states, actions = np.zeros((3, 1)), np.array([[-0.5, -0.5], [0.5, 0.5]])
    oracle = Oracle(is_any_positive, is_batched=True, within=BOX)
    np.testing.assert_array_equal(oracle.contains(states, actions[1]), [True] * 3)
    np.testing.assert_array_equal(oracle.contains(states[:, None], actions), [[False, True]] * 3)
    np.testing.assert_array_equal(jax.jit(oracle.contains)(states[:, None], actions), [[False, True]] * 3)
    forgetful = Oracle(lambda o, a: (o <= 0).all(), is_batched=True, within=BOX)
    with pytest.raises(InvalidInputError, match="axis=-1"):
        forgetful.contains(states, actions[1])


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("method", ["contains", "project"])
def test_a_function_that_writes_into_its_arguments_is_stopped_before_it_moves_an_action(
    method: str, is_batched: bool
) -> None:
    def writes(observation: Any, action: Any) -> Any:
        action *= 0.0
        return np.sum(action, axis=-1) <= 1.0

    oracle = Oracle(writes, within=Box([-1.0, -1.0], 1.0), is_batched=is_batched)
    action = np.array([0.5, 0.25])
    with pytest.raises(ValueError, match="read-only"):
        getattr(oracle, method)(None, action)
    assert action.tolist() == [0.5, 0.25]
