"""The synthetic polytope: the same everywhere, rewards that Proposition 1 allows, and room above the trivial."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from inbounds.tasks.polytope_tracking import polytope_tracking_task
from inbounds.tasks.registry import make


def test_two_makings_are_the_same_task() -> None:
    one, two = (polytope_tracking_task(6, 4) for _ in range(2))
    assert one.constraint.to_json() == two.constraint.to_json()


def test_rewards_are_never_negative_and_one_only_on_target() -> None:
    environment = polytope_tracking_task(6, 4).compiled()  # type: ignore[misc]
    state, observation = environment.reset(jax.random.key(0))
    target = np.tanh(environment.target @ np.asarray(observation))  # type: ignore[attr-defined]
    assert environment.step(state, target, jax.random.key(1)).reward == pytest.approx(1.0)
    corner = -np.sign(target)
    assert 0.0 <= environment.step(state, corner, jax.random.key(1)).reward < 1.0


def test_an_episode_ends_by_its_time_limit_only() -> None:
    task = polytope_tracking_task(6, 4)
    environment = task.make_environment()
    observation, _ = environment.reset(seed=0)
    action = np.asarray(task.constraint.interior_point(observation, dimension=6))
    for step in range(1, task.horizon + 1):
        observation, _, terminated, truncated, _ = environment.step(action)
        assert not terminated and truncated == (step == task.horizon)


def test_few_uniform_actions_are_feasible_and_the_target_is_mostly_outside() -> None:
    task = make("polytope50")
    generator = np.random.default_rng(0)
    uniform = generator.uniform(-1, 1, size=(5_000, 50))
    assert 0.002 < np.mean(task.constraint.contains(None, uniform)) < 0.05
