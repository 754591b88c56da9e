"""Using a compiled environment from the host: seeds, single and batched, episodes, refusals, saving."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds.tasks.compiled_gymnasium as compiled_gymnasium
from inbounds.constraints import Box
from inbounds.errors import (
    CheckpointError,
    ConfigurationError,
    InfeasibleActionError,
    InvalidInputError,
    SimulationError,
)
from inbounds.tasks.compiled_gymnasium import CompiledBatch, CompiledGymnasium, GuardedGymnasium, keys_of
from inbounds.tasks.environment import CompiledStep

LOW, HIGH = np.full(2, -1, np.float32), np.full(2, 1, np.float32)
BOX = Box(LOW, HIGH)
FAILS_ABOVE = 0.9


class WalkState(NamedTuple):
    place: jax.Array
    steps: jax.Array
    key: jax.Array
    """A typed key, as environments carry one that draw their own numbers."""


class Walk:
    """A random walk pushed by the action, cut after five steps; it fails where the first entry exceeds 0.9."""

    observation_size, action_size, horizon = 2, 2, 5

    def reset(self, key: jax.Array) -> tuple[WalkState, jax.Array]:
        state = WalkState(jax.random.normal(key, (2,)), jnp.int32(0), key)
        return state, state.place

    def step(self, state: WalkState, action: jax.Array, key: jax.Array) -> CompiledStep:
        place = state.place + action + jax.random.normal(key, (2,))
        steps = state.steps + 1
        reward = jnp.where(action[0] > FAILS_ABOVE, jnp.nan, -jnp.sum(place**2))
        return CompiledStep(
            WalkState(place, steps, jax.random.fold_in(state.key, 1)),
            place,
            reward,
            place[0] > 3.0,
            steps >= self.horizon,
        )

    def explain_failure(self, state: WalkState) -> str:
        return f"the walk broke at step {int(state.steps)}"


WALK = Walk()
SEEDS = [7, 8, 2**40 + 1]


def batch(count: int = 3) -> CompiledBatch:
    return CompiledBatch(WALK, BOX, count, task_name="walk")


def single() -> CompiledGymnasium:
    return CompiledGymnasium(WALK, action_low=LOW, action_high=HIGH, task_name="walk")


def actions(step: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(step).uniform(-0.8, 0.8, (count, 2))


@pytest.mark.parametrize("member", range(3))
def test_a_single_environment_lives_through_the_episodes_of_the_batch_member_with_its_seed(
    member: int,
) -> None:
    many, one = batch(), single()
    first = many.reset(SEEDS)
    observation, _ = one.reset(seed=SEEDS[member])
    np.testing.assert_array_equal(observation, first[member])
    for step in range(23):
        moved = many.step(actions(step))
        observation, reward, terminated, truncated, _ = one.step(actions(step)[member])
        np.testing.assert_array_equal(observation, moved.final_observation[member])
        assert reward == moved.reward[member]
        assert (terminated, truncated) == (moved.terminated[member], moved.truncated[member])
        if terminated or truncated:
            observation, _ = one.reset()
        np.testing.assert_array_equal(observation, moved.observation[member])


def test_a_member_does_not_depend_on_who_else_is_in_the_batch() -> None:
    small, large = batch(2), batch(3)
    small.reset(SEEDS[1:])
    large.reset(SEEDS)
    for step in range(8):
        moved = large.step(actions(step))
        alone = small.step(actions(step)[1:])
        np.testing.assert_array_equal(moved.observation[1:], alone.observation)


def test_keys_are_those_of_jax_and_every_bit_of_a_seed_counts() -> None:
    ours = jax.random.key_data(keys_of([0, 5, 2**32 - 1]))
    theirs = [jax.random.key_data(jax.random.key(seed, impl="threefry2x32")) for seed in (0, 5, 2**32 - 1)]
    np.testing.assert_array_equal(ours, np.stack(theirs))
    words = jax.random.key_data(keys_of([1, 1 + 2**32, 1 + 2**63, -1]))
    assert len(np.unique(np.asarray(words), axis=0)) == 4


def test_the_same_seed_gives_the_same_trajectory_and_another_one_does_not() -> None:
    def trajectory(seed: int) -> list[float]:
        environment = single()
        environment.reset(seed=seed)
        return [environment.step(actions(step, 1)[0])[1] for step in range(5)]

    assert trajectory(3) == trajectory(3)
    assert trajectory(3) != trajectory(4)


def test_no_global_random_state_is_read_or_changed() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    environment = single()
    environment.reset(seed=1)
    environment.step(np.zeros(2))
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_a_restored_batch_continues_to_the_last_bit() -> None:
    one, other = batch(), batch()
    one.reset(SEEDS)
    for step in range(3):
        one.step(actions(step))
    saved = one.save()
    assert all(isinstance(part, np.ndarray) for part in saved.values())
    other.restore(saved)
    for step in range(3, 12):
        for ours, theirs in zip(one.step(actions(step)), other.step(actions(step)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_what_was_saved_by_a_batch_of_another_size_is_refused() -> None:
    one = batch(2)
    one.reset(SEEDS[:2])
    with pytest.raises(CheckpointError, match="same count"):
        batch(3).restore(one.save())


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (
            np.array([[0.0, 0.0], [0.0, 1.5], [0.0, 0.0]]),
            InfeasibleActionError,
            "walk.*environment 1 of 3.*0.5",
        ),
        (np.array([[0.0, np.nan], [0.0, 0.0], [0.0, 0.0]]), InvalidInputError, "walk.*nan"),
        (np.zeros((3, 3)), InvalidInputError, "walk.*shape"),
        (np.array([["a", "b"]] * 3), InvalidInputError, "walk.*not real numbers"),
    ],
)
def test_a_bad_action_is_refused_before_anything_moves(
    action: np.ndarray, error: type[Exception], words: str
) -> None:
    environments = batch()
    environments.reset(SEEDS)
    before = environments.save()
    with pytest.raises(error, match=words):
        environments.step(action)
    after = environments.save()
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_a_reward_that_is_no_number_is_an_error_that_says_why_and_moves_nothing() -> None:
    environments = batch()
    environments.reset(SEEDS)
    before = environments.save()
    failing = np.zeros((3, 2))
    failing[2, 0] = 0.95
    with pytest.raises(SimulationError, match="walk: environment 2 of 3 failed: the walk broke at step 1"):
        environments.step(failing)
    for name, part in environments.save().items():
        np.testing.assert_array_equal(part, before[name])


def test_the_guarded_environment_refuses_what_leaves_the_constraint() -> None:
    environment = GuardedGymnasium(WALK, BOX, action_low=LOW, action_high=HIGH, task_name="walk")
    environment.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="walk"):
        environment.step(np.array([0.0, 1.25]))
    assert int(environment.unwrapped.state.steps) == 0  # type: ignore[attr-defined]
    environment.step(np.array([0.0, 0.5]))
    assert int(environment.unwrapped.state.steps) == 1  # type: ignore[attr-defined]


def test_step_before_reset_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="reset"):
        single().step(np.zeros(2))
    with pytest.raises(InvalidInputError, match="reset"):
        batch().step(np.zeros((3, 2)))


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rgb_array"):
        CompiledGymnasium(WALK, action_low=LOW, action_high=HIGH, task_name="walk", render_mode="human")
    with pytest.raises(ConfigurationError, match="no drawing"):
        CompiledGymnasium(WALK, action_low=LOW, action_high=HIGH, task_name="walk", render_mode="rgb_array")
    with pytest.raises(ConfigurationError, match="1 or more"):
        batch(0)
    with pytest.raises(InvalidInputError, match="one seed each"):
        batch(3).reset([1, 2])


def test_the_drawing_gets_the_state_and_the_last_action() -> None:
    seen: list[tuple[int, list[float]]] = []

    def draw(state: WalkState, action: np.ndarray) -> np.ndarray:
        seen.append((int(state.steps), action.tolist()))
        return np.zeros((4, 6, 3), np.uint8)

    environment = CompiledGymnasium(
        WALK, action_low=LOW, action_high=HIGH, task_name="walk", draw=draw, render_mode="rgb_array"
    )
    environment.reset(seed=0)
    picture = environment.render()
    environment.step(np.array([0.5, -0.5]))
    environment.render()
    assert picture is not None
    assert picture.shape == (4, 6, 3)
    assert seen == [(0, [0.0, 0.0]), (1, [0.5, -0.5])]
    assert single().render() is None


def test_environments_that_are_made_again_share_what_was_compiled() -> None:
    single().reset(seed=0)
    compiled = compiled_gymnasium.begin._cache_size()
    single().reset(seed=1)
    assert compiled_gymnasium.begin._cache_size() == compiled


def test_it_is_a_gymnasium_environment() -> None:
    environment = single()
    assert isinstance(environment, gymnasium.Env)
    observation, info = environment.reset(seed=0)
    assert environment.observation_space.contains(observation)
    assert info == {}
