"""Playing environments step by step: what a rollout hands out, and when it asks for more."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import InvalidInputError
from inbounds.tasks.environment import batch_rollout, episode, rollout
from tests.tasks.own_environments import Plant

HORIZON = 4


def plant() -> ib.Task:
    return ib.Task(Plant, ib.WeightedL1(weights=[1.0, 1.0], bound=ib.obs["cap", 0]), horizon=HORIZON)


def act(observation: Any) -> Any:
    """Return an action that depends on all that was seen, for one observation or several."""
    return 0.1 + 0.01 * np.tanh(observation[..., 1:3])


def test_a_rollout_is_the_loop_of_gymnasium_episode_after_episode() -> None:
    task = plant()
    environment, other = task.make_environment(), task.make_environment()
    first, _ = environment.reset(seed=3)
    seen, _ = other.reset(seed=3)
    for step in itertools.islice(rollout(environment, act, first), 3 * HORIZON + 1):
        np.testing.assert_array_equal(step.observation, seen)
        np.testing.assert_array_equal(step.action, act(seen))
        seen, reward, terminated, truncated, _ = other.step(act(seen))
        np.testing.assert_array_equal(step.next_observation, seen)
        assert (step.reward, step.terminated, step.truncated) == (reward, terminated, truncated)
        assert step.is_last == (terminated or truncated)
        if step.is_last:
            seen, _ = other.reset()


def test_a_rollout_does_nothing_ahead_of_what_is_asked() -> None:
    asked: list[Any] = []
    environment = plant().make_environment()
    first, _ = environment.reset(seed=0)
    steps = rollout(environment, lambda seen: asked.append(seen) or act(seen), first)
    assert not asked
    list(itertools.islice(steps, HORIZON))
    assert len(asked) == HORIZON
    with pytest.raises(InvalidInputError, match="the episode is over"):
        environment.step(np.zeros(2))  # the next one has not begun
    next(steps)
    assert len(asked) == HORIZON + 1


def test_an_episode_ends_with_its_last_step() -> None:
    environment = plant().make_environment()
    for _ in range(2):
        first, _ = environment.reset()
        steps = list(episode(environment, act, first))
        assert [step.is_last for step in steps] == [False] * (HORIZON - 1) + [True]


class Leaving(Plant):
    """A plant whose episodes end by themselves, after a time that the seed decides."""

    def step(self, action: Any) -> Any:
        seen, reward, _, truncated, info = super().step(action)
        return seen, reward, bool(self.np_random.random() < 0.4), truncated, info


def test_a_batch_plays_until_every_first_episode_has_ended() -> None:
    task = ib.Task(Leaving, horizon=20)
    assert task.host is not None
    batch, alone = task.host(5, 1), task.make_environment()
    turns = list(batch_rollout(batch, act, batch.reset([0, 1, 2, 3, 4])))
    lengths = np.sum([turn.is_first for turn in turns], axis=0)
    assert len(set(lengths)) > 1 and len(turns) == lengths.max()
    for seed in range(5):
        first, _ = alone.reset(seed=seed)
        steps = list(episode(alone, act, first))
        assert len(steps) == lengths[seed]
        for turn, step in zip(turns, steps, strict=False):
            np.testing.assert_array_equal(turn.observation[seed], step.observation)
            np.testing.assert_array_equal(turn.action[seed], step.action)
            np.testing.assert_array_equal(turn.step.final_observation[seed], step.next_observation)
            assert turn.step.reward[seed] == step.reward


def test_a_batch_plays_so_many_steps_and_tells_first_episodes_from_later_ones() -> None:
    task = plant()
    assert task.host is not None
    batch = task.host(2, 1)
    turns = list(batch_rollout(batch, act, batch.reset([0, 1]), steps=2 * HORIZON + 1))
    assert len(turns) == 2 * HORIZON + 1
    is_first = np.stack([turn.is_first for turn in turns])
    assert is_first[:HORIZON].all() and not is_first[HORIZON:].any()
    for turn, following in itertools.pairwise(turns):
        np.testing.assert_array_equal(following.observation, turn.step.observation)
