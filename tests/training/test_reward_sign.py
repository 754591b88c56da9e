"""Rewards that are negative or far from the measured ones are warned about once, and only where they matter."""

import dataclasses

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.learners.aram_variants import ArTd3
from inbounds.learners.td3 import Td3
from inbounds.training import api
from inbounds.training.api import FarRewardWarning, RewardWarning

TINY = {"hidden": (8, 8), "batch_size": 16, "proposals": 4}
RUN = {
    "steps": 40,
    "warm_up": 20,
    "capacity": 1_000,
    "episodes": 1,
    "evaluate_every": 0,
    "environments": 2,
}


@pytest.mark.parametrize(
    ("learner", "times"),
    [
        (Aram(), 0),
        (Aram(self_loops="discounted"), 1),
        (Aram(self_loops="discounted", dual_replay=False), 1),
        (ArTd3(), 1),
        (Aram(self_loops="none"), 0),
        (Td3(), 0),
    ],
    ids=["aram", "discounted", "one buffer", "artd3", "no self-loops", "td3"],
)
def test_only_discounted_self_loops_need_a_sign_and_one_warning_is_enough(learner, times):
    told = []
    watch = RewardWarning(learner, told.append)
    for lowest in (None, 0.0, -0.25, -0.5):
        watch({"lowest_reward": lowest})
    watch({})
    assert len(told) == times
    assert all("ends_only_in_failure" in message and "-0.25" in message for message in told)


def test_a_reward_far_below_the_measured_ones_is_told_once_with_the_remedy():
    told = []
    watch = FarRewardWarning(told.append)
    for lowest in (None, -5.0, -1_256.0, -2_000.0):
        watch({"lowest_reward": lowest})
    assert len(told) == 1 and "-1256" in told[0] and "scale_rewards=False" in told[0]


def test_a_scale_that_the_task_brought_along_is_told_with_the_remedy_for_it():
    told = []
    FarRewardWarning(told.append, is_measured_by_training=False)({"lowest_reward": -1_256.0})
    assert len(told) == 1 and "normalised(steps=20_000)" in told[0] and "scale_rewards" not in told[0]


@pytest.mark.sweep
def test_training_warns_of_a_fall_that_a_scale_measured_by_hand_did_not_meet(tmp_path):
    task, told = ib.Task(Fall, ib.Ball(radius=0.5), name="fall", horizon=30, ends_only_in_failure=True), []
    measured = task.normalised(observations=False, steps=20)
    settings = {"out": tmp_path / "run", "warn": told.append, **RUN, "steps": 80}
    ib.train(measured, Td3(hidden=(8, 8), batch_size=16), **settings)
    assert len(told) == 1 and "task's own reward scale" in told[0]


class Fall(gymnasium.Env):
    """Pays noise of deviation 0.01 until its episode of 30 steps ends in a fall that costs 100."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        has_fallen = self.time == 30
        reward = -100.0 if has_fallen else 0.01 * float(self.np_random.normal())
        return np.zeros(1, np.float32), reward, has_fallen, False, {}


@pytest.mark.sweep
def test_training_warns_of_a_fall_that_the_measured_scale_did_not_meet(tmp_path):
    task, told = ib.Task(Fall, ib.Ball(radius=0.5), name="fall", horizon=30), []
    measured = ib.Task(Fall, ib.Ball(radius=0.5), name="fall", horizon=30, reward_divisor=0.01)
    settings = {"out": tmp_path / "run", "warn": told.append, "scale_observations": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            api, "scaled_task", lambda *given: measured
        )  # as 20 steps without a fall would measure it
        ib.train(task, Td3(hidden=(8, 8), batch_size=16), **settings, **RUN | {"steps": 80})
    assert len(told) == 1 and "-1e+04" in told[0]


def test_python_warns_at_the_line_that_called_the_library():
    with pytest.warns(UserWarning, match="a training reward of -1") as told:
        RewardWarning(Aram(self_loops="discounted"))({"lowest_reward": -1.0})
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lifted", "beforehand", "times"),
    [(True, False, 0), (False, True, 0), (False, False, 1)],
    ids=["by training", "by hand", "not at all"],
)
def test_training_warns_unless_rewards_are_lifted(tmp_path, lifted, beforehand, times):
    told, task = [], dataclasses.replace(ib.make("reacher"), reward_shift=0.0)
    assert task.ends_only_in_failure
    task = task.normalised(observations=False) if beforehand else task
    learner = Aram(self_loops="discounted", **TINY)
    settings = {"out": tmp_path / "run", "warn": told.append}
    settings |= {"scale_observations": False, "scale_rewards": lifted}
    ib.train(task, learner, **settings, **RUN)
    assert len(told) == times
    ib.train(task, learner, **settings, resume=True, **RUN | {"steps": 80})
    assert len(told) == 2 * times  # once a call
