"""Measured scales: what networks see and learners earn, relative to uniformly feasible actions."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.tasks.normalisation import met_one_by_one, met_side_by_side
from inbounds.tasks.task import AssembledTask
from tests.tasks.own_environments import Line, Plant


class Rare(gymnasium.Env[Any, Any]):
    """A force that is felt at one step in a hundred beside what always varies; all that was seen is written down."""

    def __init__(self, seen: list[Any], reward: tuple[float, float] = (0.0, 1.0)) -> None:
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (2,)), Box(-1.0, 1.0, (1,))
        self.seen, self.mean, self.deviation = seen, *reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self.mean + self.deviation * self.np_random.normal()
        return self._observed(), float(reward), False, False, {}

    def _observed(self) -> Any:
        force = 500.0 * (self.np_random.random() < 0.002)
        self.seen.append(np.array([force, self.np_random.normal()]))
        return self.seen[-1]


def test_no_observation_that_was_met_lies_further_than_ten_deviations_from_the_mean() -> None:
    seen: list[Any] = []
    task = ib.Task(functools.partial(Rare, seen), horizon=100)
    seen.clear()
    scaled = task.normalised(rewards=False)
    assert scaled.observation_shift is not None and scaled.observation_scale is not None
    rows = np.array(seen)
    plain = np.abs(rows - rows.mean(axis=0)).max(axis=0) / rows.std(axis=0)
    assert plain[0] > 15 and plain[1] < 10  # the force alone needs the floor
    relative = (rows - scaled.observation_shift) / scaled.observation_scale
    assert np.abs(relative).max() <= 10 * (1 + 1e-5)
    assert scaled.observation_scale[1] == pytest.approx(rows[:, 1].std(), rel=0.01)


@pytest.mark.parametrize(
    ("mean", "deviation", "average"),
    [(-30.0, 4.0, 1.0), (0.0, 2.0, 1.0), (50.0, 4.0, 10.0), (-8.0, 0.0, 1.0)],
    ids=["negative", "centred", "positive", "constant"],
)
def test_an_average_step_pays_one_deviation_or_what_it_paid_before(
    mean: float, deviation: float, average: float
) -> None:
    make = functools.partial(Rare, [], (mean, deviation))
    task = ib.Task(make, horizon=100, ends_only_in_failure=True).normalised(observations=False)
    assert task.training_reward(mean) == pytest.approx(average, rel=0.1, abs=0.1)
    assert task.training_reward(mean) >= 0.9
    one_more = task.training_reward(mean + deviation) - task.training_reward(mean)
    assert one_more == pytest.approx(0.8 if mean == 50.0 else float(deviation > 0), rel=0.05)


def test_nothing_is_lifted_where_an_episode_may_end_with_success() -> None:
    task = ib.Task(functools.partial(Rare, [], (-30.0, 4.0)), horizon=100).normalised(observations=False)
    assert task.reward_shift == 0.0 and task.training_reward(-30.0) == pytest.approx(-7.5, rel=0.1)


def test_environments_that_are_compiled_are_played_side_by_side_for_as_many_steps() -> None:
    task = ib.make("bss3z")
    one, many = met_one_by_one(task, 64, 0), met_side_by_side(task, 64, 0)
    assert one.rewards.shape == many.rewards.shape == (64,)
    assert many.observations.shape == (64 + 16, task.observation_size)
    assert np.unique(many.rewards).size > 8
    assert abs(one.rewards.mean() - many.rewards.mean()) < 3 * one.rewards.std()


def test_scales_are_measured_under_feasible_actions_and_leave_the_rest_alone() -> None:
    task = ib.Task(functools.partial(Line, "negative"), ib.RateLimit(0.2), horizon=20)
    scaled = task.normalised(steps=400)
    assert isinstance(scaled, AssembledTask) and scaled.constraint is task.constraint
    assert scaled.observation_shift is not None and scaled.observation_scale is not None
    rows = []
    environment = task.make_environment()
    environment.action_space.seed(9)
    for episode in range(20):
        observation, _ = environment.reset(seed=episode)
        for _ in range(20):
            rows.append(observation)
            observation, *_ = environment.step(environment.action_space.sample())
    relative = (np.array(rows) - scaled.observation_shift) / scaled.observation_scale
    assert np.abs(relative.mean(axis=0)).max() < 0.5
    np.testing.assert_allclose(relative.std(axis=0)[[0, 1, 3]], 1.0, atol=0.35)
    assert scaled.observation_scale[2] == 1.0, "an entry that never changes is not magnified"


def test_the_same_seed_measures_the_same_scales() -> None:
    task = ib.Task(Plant, horizon=10)
    one, other = task.normalised(steps=50), task.normalised(steps=50)
    np.testing.assert_array_equal(one.observation_shift, other.observation_shift)
    assert (one.reward_divisor, one.reward_shift) == (other.reward_divisor, other.reward_shift)


def test_either_scale_can_be_left_out() -> None:
    task = ib.Task(Plant, horizon=10, reward_divisor=3.0)
    assert task.normalised(steps=50, rewards=False).reward_divisor == 3.0
    assert task.normalised(steps=50, observations=False).observation_shift is None
    with pytest.raises(ConfigurationError, match="too few"):
        task.normalised(steps=1)
