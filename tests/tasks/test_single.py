"""Every task as a Gymnasium environment: the checker, the episodes of the batch, the guard, the pictures."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from inbounds.errors import (
    ConfigurationError,
    InfeasibleActionError,
    InvalidInputError,
    MissingDependencyError,
)
from inbounds.tasks import drawing, make
from inbounds.tasks.drawing import MujocoPicture, open_context
from inbounds.tasks.locomotion import SPECS
from inbounds.tasks.mujoco_batch import MujocoBatch
from inbounds.tasks.spaces import ConstrainedBox

NAMES = tuple(SPECS)
IDS = tuple(spec.environment_id for spec in SPECS.values())


def has_opengl() -> bool:
    try:
        open_context(8, 8).free()
    except MissingDependencyError:
        return False
    return True


needs_opengl = pytest.mark.skipif(not has_opengl(), reason="neither EGL nor OSMesa is installed")


def checked(environment: gymnasium.Env[Any, Any], **options: Any) -> None:
    with warnings.catch_warnings():
        # Velocities have no bound, and Gymnasium advises to shrink every action box to [-1, 1].
        warnings.filterwarnings("ignore", message=".*observation space (minimum|maximum) value is.*infinity")
        check_env(environment, **options)


@pytest.mark.parametrize("environment_id", IDS)
def test_gymnasiums_own_checker_finds_nothing_wrong(environment_id: str) -> None:
    checked(gymnasium.make(environment_id).unwrapped, skip_render_check=True)


@needs_opengl
@pytest.mark.parametrize("environment_id", IDS)
def test_gymnasiums_own_checker_finds_nothing_wrong_with_the_pictures(environment_id: str) -> None:
    environment = gymnasium.make(environment_id, render_mode="rgb_array")
    checked(environment.unwrapped)
    environment.close()


@pytest.mark.parametrize("environment_id", IDS)
def test_the_action_space_draws_feasible_actions_for_whole_episodes(environment_id: str) -> None:
    environment = gymnasium.make(environment_id)
    assert isinstance(environment.action_space, ConstrainedBox)
    environment.action_space.seed(0)
    environment.reset(seed=0)
    for _ in range(120):
        _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        if terminated or truncated:
            environment.reset()
    guard = environment.unwrapped.guard
    assert guard.corrections == 0 and -np.inf < guard.worst_violation <= 0.0


@pytest.mark.parametrize("name", NAMES)
def test_it_lives_through_the_episodes_of_a_member_of_a_batch_to_the_last_bit(name: str) -> None:
    task = make(name)
    batch, environment = task.host(3, 1), gymnasium.make(task.environment_id)
    observations = batch.reset([5, 6, 7])
    observation, _ = environment.reset(seed=6)
    rng = np.random.default_rng(0)
    episodes = 0
    for _ in range(110):
        np.testing.assert_array_equal(observation, observations[1])
        wild = rng.uniform(-1.0, 1.0, (3, task.action_size))
        actions = np.asarray(task.constraint.project(observations, wild))
        step = batch.step(actions)
        observation, reward, terminated, truncated, _ = environment.step(actions[1])
        np.testing.assert_array_equal(observation, step.final_observation[1])
        assert (reward, terminated, truncated) == (step.reward[1], step.terminated[1], step.truncated[1])
        observations = step.observation
        if terminated or truncated:
            observation, _ = environment.reset()
            episodes += 1
    assert episodes > 0 or name in ("halfcheetah", "ant")


@pytest.mark.parametrize("environment_id", IDS)
def test_an_infeasible_action_is_refused_through_every_wrapper(environment_id: str) -> None:
    environment = gymnasium.make(environment_id)
    environment.reset(seed=0)
    outside = np.full(environment.action_space.shape, 1.5, dtype=np.float32)
    reached = environment.step(np.zeros_like(outside))[0]
    for door in (environment, environment.unwrapped):
        with pytest.raises(InfeasibleActionError, match=environment.unwrapped.guard.task_name):
            door.step(outside)
    environment.reset(seed=0)
    np.testing.assert_array_equal(environment.step(np.zeros_like(outside))[0], reached)


def test_a_reset_in_the_middle_begins_an_episode_that_the_seed_decides() -> None:
    def second_start() -> np.ndarray:
        environment = make("hopper").make_environment()
        first, _ = environment.reset(seed=0)
        environment.step(np.zeros(3))
        second, _ = environment.reset()
        assert (first != second).any()
        return second

    np.testing.assert_array_equal(second_start(), second_start())


def test_stepping_outside_an_episode_is_refused() -> None:
    environment = make("reacher").make_environment()
    with pytest.raises(InvalidInputError, match=r"before reset.*env\.reset"):
        environment.step(np.zeros(2))
    environment.reset(seed=0)
    for _ in range(50):
        *_, truncated, _ = environment.step(np.zeros(2))
    assert truncated
    with pytest.raises(InvalidInputError, match=r"is over.*env\.reset"):
        environment.step(np.zeros(2))


def test_a_correcting_environment_counts() -> None:
    environment = make("reacher").make_environment(on_violation="correct")
    environment.reset(seed=0)
    environment.step(np.ones(2))
    assert environment.guard.corrections == 1


def test_it_works_in_gymnasiums_vector_environments() -> None:
    vector = gymnasium.make_vec("inbounds/Reacher-v0", num_envs=3)
    observations, _ = vector.reset(seed=4)
    np.testing.assert_array_equal(observations, make("reacher").host(3, 1).reset([4, 5, 6]))
    vector.step(np.zeros((3, 2), dtype=np.float32))
    vector.close()


def test_an_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rgb_array"):
        make("ant").make_environment(render_mode="ascii")


def test_without_a_render_mode_there_is_no_picture() -> None:
    environment = make("ant").make_environment()
    environment.reset(seed=0)
    assert environment.render() is None


@needs_opengl
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_the_state_and_the_gauge(name: str) -> None:
    task = make(name)
    environment = task.make_environment(render_mode="rgb_array")
    with pytest.raises(InvalidInputError, match=r"env\.reset"):
        environment.render()
    environment.reset(seed=0)
    first = environment.render()
    assert first.shape == (480, 480, 3) and first.dtype == np.uint8 and first.std() > 10
    np.testing.assert_array_equal(environment.render(), first)
    environment.action_space.seed(0)
    for _ in range(10):
        environment.step(environment.action_space.sample())
    assert (environment.render() != first).any()
    environment.close()
    environment.close()


@needs_opengl
def test_the_last_picture_of_an_episode_shows_how_it_ended() -> None:
    environment = make("reacher").make_environment(render_mode="rgb_array")
    endless = MujocoBatch(dataclasses.replace(SPECS["reacher"], horizon=1000), make("reacher").constraint, 1)
    environment.reset(seed=0)
    endless.reset([0])
    for _ in range(50):
        *_, truncated, _ = environment.step(np.array([0.2, 0.05]))
        endless.step(np.array([[0.2, 0.05]]))
    assert truncated
    picture = MujocoPicture(endless)
    np.testing.assert_array_equal(environment.render(), picture(False))
    environment.reset()
    assert (environment.render() != picture(False)).any()
    picture.close()
    environment.close()


def test_without_opengl_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> Any:
        raise ImportError(f"{module} is not there")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(drawing.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"egl.*osmesa.*apt install.*render_mode=None"):
        open_context(8, 8)
