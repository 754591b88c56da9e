"""Variants of the literature: each set is its published formula, and Walker2d is Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium.envs.mujoco.walker2d_v4
import numpy as np
import pytest

from inbounds.tasks import make
from inbounds.tasks.locomotion_variants import VARIANTS

Formula = Callable[[Any, Any], list[Any]]


def shell(lower: float, upper: float) -> Formula:
    return lambda s, a: [np.sum(a**2) - upper, lower - np.sum(a**2)]


def sine(angles: slice, rates: slice) -> Formula:
    return lambda s, a: [
        np.sum(np.abs(s[rates] * a)) - 10.0,
        np.sum(np.sin(s[angles]) ** 2 * a**2) - 0.1,
    ]


def tip(s: Any, a: Any) -> list[Any]:
    # The squared speed of the fingertip of an arm with two links of length 1 that turn at rates a1 and a2.
    cosine = s[1]
    return [a[0] ** 2 + 2.0 * a[0] * (a[0] + a[1]) * cosine + (a[0] + a[1]) ** 2 - 0.05]


def angular(s: Any, a: Any) -> list[Any]:
    back, front = np.sin(s[2] + s[3] + s[4]), np.sin(s[5] + s[6] + s[7])
    return [s[11] * a[0] * back + s[14] * a[3] * front - 5.0]


FORMULAS: dict[str, Formula] = {
    "reachershell": shell(0.045, 0.05),
    "reachertip": tip,
    "halfcheetahangular": angular,
    "hoppersine": sine(slice(2, 5), slice(8, 11)),
    "hopperleast": shell(0.617, 4.0),
    "walker2dpower": lambda s, a: [np.sum(np.maximum(s[11:17] * a, 0.0)) - 10.0],
    "walker2dsine": sine(slice(2, 8), slice(11, 17)),
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_an_action_is_allowed_where_the_published_formula_allows_it(name: str) -> None:
    task, formula = make(name), FORMULAS[name]
    rng = np.random.default_rng(0)
    observations = rng.uniform(-2.0, 2.0, (300, task.observation_size))
    observations[:, :2] = np.tanh(observations[:, :2])  # cosines, where they are
    actions = rng.uniform(-1.0, 1.0, (300, task.action_size)) * rng.choice([0.1, 0.3, 1.0], (300, 1))
    rows = [max(formula(s, a)) for s, a in zip(observations, actions, strict=True)]
    excess = np.maximum(rows, np.max(np.abs(actions) - 1.0, axis=-1))
    allowed = np.asarray(task.constraint.violation(observations, actions)) <= 0
    np.testing.assert_array_equal(allowed, excess <= 0)
    assert 0 < allowed.sum() < 300 or name in ("walker2dpower", "halfcheetahangular")


@pytest.mark.parametrize("name", list(VARIANTS))
def test_projections_and_draws_in_visited_states_are_feasible(name: str) -> None:
    task = make(name)
    environment = task.make_environment()
    observation, _ = environment.reset(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(15):
        wanted = rng.uniform(-1.0, 1.0, task.action_size)
        action = task.constraint.project(observation, wanted.astype(np.float32))
        drawn = task.constraint.sample(rng, observation)
        for point in (action, drawn):
            assert float(task.constraint.violation(observation, point.astype(np.float64))) <= 0.0
        observation, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            observation, _ = environment.reset(seed=1)
    environment.close()


def test_walker2d_steps_as_gymnasium_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings about the model to a file where it stands
    original = gymnasium.envs.mujoco.walker2d_v4.Walker2dEnv()
    task = make("walker2dpower")
    batch = task.host(1, 1)
    batch.reset([0])
    rng, ends = np.random.default_rng(3), 0
    observation, _ = original.reset(seed=3)
    for _ in range(400):
        state = batch.save()
        state["positions"], state["velocities"] = (
            original.data.qpos[None].copy(),
            original.data.qvel[None].copy(),
        )
        state["elapsed"] = np.zeros(1, dtype=np.int64)
        batch.restore(state)
        action = task.constraint.project(observation, rng.uniform(-1.0, 1.0, 6))
        ours = batch.step(action[None])
        observation, reward, terminated, _, _ = original.step(action)
        np.testing.assert_allclose(ours.final_observation[0], observation, atol=1e-10)
        assert ours.reward[0] == pytest.approx(reward, abs=1e-10)
        assert bool(ours.terminated[0]) == terminated
        ends += terminated
        if terminated:
            observation, _ = original.reset()
    assert ends > 0
    original.close()
