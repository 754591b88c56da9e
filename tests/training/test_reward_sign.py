"""Negative rewards are warned about once, and only where they matter."""

import dataclasses

import pytest

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.learners.artd3 import ArTd3
from inbounds.learners.td3 import Td3
from inbounds.training.reward_sign import RewardWarning

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
        (Aram(), 1),
        (Aram(dual_replay=False), 1),
        (ArTd3(), 1),
        (Aram(augmented=False), 0),
        (Td3(), 0),
    ],
    ids=["aram", "one buffer", "artd3", "no self-loops", "td3"],
)
def test_only_learners_on_the_augmented_mdp_need_a_sign_and_one_warning_is_enough(learner, times):
    told = []
    watch = RewardWarning(learner, told.append)
    for lowest in (None, 0.0, -0.25, -0.5):
        watch({"lowest_reward": lowest})
    watch({})
    assert len(told) == times
    assert all("ends_only_in_failure" in message and "-0.25" in message for message in told)


def test_python_warns_at_the_line_that_called_the_library():
    with pytest.warns(UserWarning, match="a training reward of -1") as told:
        RewardWarning(Aram())({"lowest_reward": -1.0})
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
    learner, settings = Aram(**TINY), {"out": tmp_path / "run", "warn": told.append}
    settings |= {"scale_observations": False, "scale_rewards": lifted}
    ib.train(task, learner, **settings, **RUN)
    assert len(told) == times
    ib.train(task, learner, **settings, resume=True, **RUN | {"steps": 80})
    assert len(told) == 2 * times  # once a call
