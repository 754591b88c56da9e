from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, RateLimit, obs, previous_action
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError


def test_the_previous_action_is_passed_along_or_read_from_the_observation() -> None:
    asked = RateLimit(0.1)
    read = RateLimit(0.1, previous=obs[2:4])
    last, observation = np.array([0.5, -0.5]), np.array([9.0, 9.0, 0.5, -0.5])
    for action, is_allowed in (([0.55, -0.45], True), ([0.65, -0.5], False), ([0.5, -0.62], False)):
        assert bool(asked.contains(None, action, previous_action=last)) == is_allowed
        assert bool(read.contains(observation, action)) == is_allowed
    assert asked.violation(None, [0.7, -0.5], previous_action=last) == pytest.approx(0.1)
    np.testing.assert_allclose(asked.project(None, [9.0, -9.0], previous_action=last), [0.6, -0.6], atol=1e-6)
    assert RateLimit(0.1, previous=previous_action).explain(None, [0.8, 0.0], previous_action=[0.0, 0.0]) == (
        "infeasible: a[0] <= previous_action[0] + 0.1 is exceeded by 0.7."
    )


def test_without_the_previous_action_nothing_can_be_said() -> None:
    with pytest.raises(InvalidInputError, match="no previous action was given"):
        RateLimit(0.1).contains(None, [0.0])
    with pytest.raises(InvalidInputError, match="not finite"):
        RateLimit(0.1).contains(None, [0.0], previous_action=[np.nan])


@pytest.mark.parametrize("last", [1e3, 1.0, 1e-3, 0.0])
def test_acceptance_in_float32_is_feasible_for_the_previous_action_in_float64(last: float) -> None:
    limit = RateLimit(0.1)
    previous = np.array([last * (1 + 1e-9), -last])
    steps = np.concatenate([-np.geomspace(1e-8, 1e-2, 50), [0.0], np.geomspace(1e-8, 1e-2, 50)])
    actions = (previous + np.array([0.1, -0.1]) * (1 + steps[:, None])).astype(np.float32)
    compiled = jax.jit(lambda a, p: limit.contains(None, a, previous_action=p))
    accepted = np.asarray(compiled(jnp.asarray(actions), jnp.asarray(previous)))
    assert np.all(limit.violation(None, actions[accepted], previous_action=previous) <= 0)
    projected = limit.project(None, actions, previous_action=previous)
    assert np.all(limit.violation(None, projected, previous_action=previous) <= 0)


def test_box_and_rate_limit_make_one_box() -> None:
    constraint = RateLimit([0.5, 0.1]) & Box(-1.0, 1.0) & Ball(radius_squared=1.0)
    projected = constraint.project(None, [5.0, 5.0], previous_action=[0.7, 0.0])
    np.testing.assert_allclose(projected, [np.sqrt(1 - 0.01), 0.1], atol=2e-6)
    assert constraint.contains(None, projected, previous_action=[0.7, 0.0])


def test_a_previous_action_that_lies_too_far_outside_leaves_nothing() -> None:
    constraint = RateLimit(0.5) & Box([-1.0, -1.0], [1.0, 1.0])
    with pytest.raises(EmptySetError, match=r"a\[1\] >= previous_action\[1\] - 0.5; a\[1\] <= 1"):
        constraint.project(None, [0.0, 0.0], previous_action=[0.0, 2.0])


@pytest.mark.parametrize("delta", [0.0, -1.0, [0.1, 0.0]])
def test_a_limit_that_allows_no_change_is_refused(delta: float) -> None:
    with pytest.raises(ConstraintError, match="must be positive"):
        RateLimit(delta)


@pytest.mark.parametrize(
    ("action", "last"), [([0.0, 0.05], [0.0]), ([0.05], [0.0, 0.0]), ([0.0, 0.0], [0.0] * 3)]
)
def test_a_previous_action_of_another_size_is_refused_and_never_repeated(
    action: list[float], last: list[float]
) -> None:
    limit = RateLimit(0.1)
    for ask in (limit.contains, limit.violation, limit.project):
        with pytest.raises(
            InvalidInputError, match=f"previous action has {len(last)} entries.*{len(action)}"
        ):
            ask(None, action, previous_action=last)
    with pytest.raises(InvalidInputError, match="as it was"):
        limit.interior_point(None, dimension=len(action), previous_action=last)
