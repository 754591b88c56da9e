"""The guard: nothing infeasible passes unseen, and what is refused has moved nothing."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, RateLimit, WeightedL1, obs, previous_action
from inbounds.errors import ConfigurationError, InfeasibleActionError, InvalidInputError
from inbounds.tasks.guard import ActionGuard, Guard, share_of_bound
from inbounds.tasks.spaces import ConstrainedBox

LOW, HIGH = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
DISC = Ball(radius_squared=0.25) & Box(LOW, HIGH)
POWER = WeightedL1(weights=obs[0:2], bound=1.0) & Box(LOW, HIGH)


class Recorder(gymnasium.Env[np.ndarray, np.ndarray]):
    """Shows a fixed sequence of observations and keeps every action that reaches it."""

    def __init__(self, dtype: Any = np.float32) -> None:
        self.action_space = gymnasium.spaces.Box(LOW.astype(dtype), HIGH.astype(dtype), dtype=dtype)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)
        self.received: list[np.ndarray] = []
        self.shown = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = np.ones(2)
        return self.shown, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.received.append(action)
        self.shown = self.shown + 1.0
        return self.shown, 0.0, False, False, {}


def guarded(constraint: Any = DISC, **options: Any) -> tuple[Guard, Recorder]:
    inner = Recorder(options.pop("dtype", np.float32))
    guard = Guard(inner, constraint, task_name="disc", **options)
    guard.reset(seed=0)
    return guard, inner


def test_a_feasible_action_reaches_the_environment_unchanged() -> None:
    guard, inner = guarded()
    action = np.array([0.3, -0.2], dtype=np.float32)
    guard.step(action)
    np.testing.assert_array_equal(inner.received[0], action)
    assert inner.received[0].dtype == np.float32


def test_an_infeasible_action_is_refused_with_the_task_the_row_and_the_excess() -> None:
    guard, inner = guarded()
    with pytest.raises(InfeasibleActionError, match=r"disc.*0\.56.*project") as caught:
        guard.step(np.array([0.9, 0.0], dtype=np.float32))
    assert DISC.explain(None, np.float32([0.9, 0.0]).astype(np.float64)) in str(caught.value)
    assert inner.received == []


@pytest.mark.parametrize("excess", [1e-16, 1e-9])
def test_there_is_no_tolerance(excess: float) -> None:
    guard, inner = guarded(Box(LOW, HIGH), dtype=np.float64)
    guard.step(np.array([1.0, -1.0]))
    with pytest.raises(InfeasibleActionError):
        guard.step(np.array([np.nextafter(1.0, 2.0) if excess < 1e-15 else 1.0 + excess, 0.0]))
    assert len(inner.received) == 1


def test_the_constraint_is_evaluated_at_the_observation_returned_last() -> None:
    guard, inner = guarded(POWER)
    action = np.array([0.4, 0.2], dtype=np.float32)
    guard.step(action)  # weights (1, 1): uses 0.6
    with pytest.raises(InfeasibleActionError):
        guard.step(action)  # weights (2, 2): would use 1.2
    guard.step(action / 2)
    guard.reset(seed=0)
    guard.step(action)
    assert len(inner.received) == 3


def test_writing_into_the_observation_does_not_move_the_constraint() -> None:
    guard, _ = guarded(POWER)
    observation, *_ = guard.step(np.zeros(2, dtype=np.float32))
    observation[:] = 0.0
    with pytest.raises(InfeasibleActionError):
        guard.step(np.array([0.4, 0.2], dtype=np.float32))


def test_a_correcting_guard_projects_and_counts() -> None:
    guard, inner = guarded(on_violation="correct")
    guard.step(np.array([0.1, 0.1], dtype=np.float32))
    guard.step(np.array([0.9, 0.0], dtype=np.float32))
    guard.step(np.array([0.6, 0.8], dtype=np.float32))
    assert guard.corrections == 2
    assert guard.worst_violation == pytest.approx(0.75, abs=1e-6)
    np.testing.assert_allclose(inner.received[1], [0.5, 0.0], atol=2e-6)
    np.testing.assert_allclose(inner.received[2], [0.3, 0.4], atol=2e-6)
    for action in inner.received:
        assert float(DISC.violation(None, action.astype(np.float64))) <= 0.0


def test_what_is_checked_is_what_the_environment_executes() -> None:
    # In float64 the action is feasible; rounded to the environment's float32 it would leave the set.
    bound = 0.3
    tight = Box(-np.ones(2), np.array([1.0, 1.0])) & WeightedL1(weights=np.array([1.0, 1.0]), bound=bound)
    action = np.array([bound, 0.0])
    assert float(tight.violation(None, action)) <= 0.0 < float(np.float32(bound)) - bound
    single, inner = guarded(tight)
    with pytest.raises(InfeasibleActionError):
        single.step(action)
    assert inner.received == []
    double, _ = guarded(tight, dtype=np.float64)
    double.step(action)


@pytest.mark.parametrize(
    "action",
    [None, "left", {"torque": 1.0}, 0.1, np.zeros(3), np.zeros((1, 2)), np.array([np.nan, 0.0]), [0.0, [1.0]],
     np.array([0.0, np.inf]), np.zeros(2, dtype=bool), np.zeros(2, dtype=complex), np.array([1e300, 0.0]),
     np.ma.array([0.0, 0.0], mask=[False, True])],
    ids=str,
)  # fmt: skip
def test_what_is_no_action_is_refused_and_nothing_moves(action: Any) -> None:
    guard, inner = guarded()
    with pytest.raises(InvalidInputError, match="disc"):
        guard.step(action)
    assert inner.received == [] and guard.corrections == 0


@pytest.mark.parametrize("action", [[0, 0], (0.25, 0.0), np.array([0, 0]), np.zeros(2, dtype=np.float16)])
def test_every_sequence_of_real_numbers_is_an_action(action: Any) -> None:
    guard, inner = guarded()
    guard.step(action)
    np.testing.assert_array_equal(inner.received[0], np.asarray(action, dtype=np.float32))


def test_the_action_cannot_be_changed_after_the_check() -> None:
    guard, inner = guarded()
    action = np.zeros(2, dtype=np.float32)
    guard.step(action)
    action[:] = 1.0
    np.testing.assert_array_equal(inner.received[0], np.zeros(2))


def test_a_rate_limit_is_checked_against_the_action_executed_last() -> None:
    slow = RateLimit(0.25, previous=previous_action) & Box(LOW, HIGH)
    guard, inner = guarded(slow)
    guard.step(np.array([0.25, 0.0], dtype=np.float32))
    guard.step(np.array([0.5, 0.0], dtype=np.float32))
    with pytest.raises(InfeasibleActionError):
        guard.step(np.array([0.0, 0.0], dtype=np.float32))
    guard.step(
        np.array([0.25, 0.0], dtype=np.float32)
    )  # still measured from 0.5: what was refused was not executed
    guard.reset(seed=0)
    with pytest.raises(InfeasibleActionError):  # a new episode begins at rest
        guard.step(np.array([0.5, 0.0], dtype=np.float32))
    assert len(inner.received) == 3


def test_an_episode_can_begin_from_another_action_than_rest() -> None:
    slow = RateLimit(0.25, previous=previous_action) & Box(LOW, HIGH)
    guard, _ = guarded(slow, first_previous_action=np.array([0.5, 0.5]))
    guard.step(np.array([0.75, 0.75], dtype=np.float32))


def test_the_action_space_draws_what_the_guard_lets_pass() -> None:
    guard, inner = guarded(POWER)
    assert isinstance(guard.action_space, ConstrainedBox)
    guard.action_space.seed(0)
    for _ in range(20):
        guard.step(guard.action_space.sample())
    assert len(inner.received) == 20 and guard.worst_violation <= 0.0


def test_step_before_reset_is_refused() -> None:
    guard = Guard(Recorder(), DISC, task_name="disc")
    with pytest.raises(InvalidInputError, match=r"call env\.reset"):
        guard.step(np.zeros(2))


def test_only_boxes_of_actions_can_be_guarded() -> None:
    inner = Recorder()
    inner.action_space = gymnasium.spaces.Discrete(3)
    with pytest.raises(ConfigurationError, match="Box"):
        Guard(inner, DISC)


def test_an_unknown_reaction_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'refuse'"):
        Guard(Recorder(), DISC, on_violation="warn")


def test_a_batch_names_the_environment_whose_action_is_worst() -> None:
    door = ActionGuard(DISC, 2, task_name="disc")
    actions = np.array([[0.0, 0.0], [0.6, 0.0], [0.0, 0.9]])
    with pytest.raises(InfeasibleActionError, match="environment 2 of 3"):
        door.admit(np.zeros((3, 2)), actions)


def test_nothing_was_seen_before_the_first_action() -> None:
    door = ActionGuard(DISC, 2, task_name="disc")
    assert door.worst_violation == -math.inf and door.corrections == 0


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0, 1.5])
def test_the_share_of_the_bound_is_measured_along_the_action(share: float) -> None:
    action = share * 0.5 * np.array([0.6, 0.8])
    assert share_of_bound(Ball(radius_squared=0.25), np.zeros(2), action) == pytest.approx(share, abs=1e-5)


def test_an_action_that_no_row_limits_uses_nothing_of_the_bound() -> None:
    idle = WeightedL1(weights=obs[0:2], bound=1.0)
    assert share_of_bound(idle, np.zeros(2), np.array([0.5, 0.5])) == 0.0
