"""Reference policies: feasible everywhere, for one observation or many; the search finds what is best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box
from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.evaluation.baselines import best_constant_action, reference_names, reference_policy
from inbounds.tasks import make, names
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import AssembledTask, Task
from tests.slices import quick_slice

FREE = tuple((name, policy) for name in names() for policy in ("uniform", "interior"))
BIKES = (("bss3z", "never-moving"), ("bss5z", "never-moving"))
PAIRS = [pytest.param(*pair, id="-".join(pair)) for pair in FREE + BIKES]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), FREE + BIKES)
def test_every_action_of_a_reference_policy_is_feasible(name: str, policy: str) -> None:
    task = make(name)
    act = reference_policy(task, policy)
    rng = np.random.default_rng(0)
    environment = task.make_environment()
    observation, _ = environment.reset(seed=0)
    for _ in range(20):
        action = act(observation, rng)
        assert action.shape == (task.action_size,)
        assert float(task.constraint.violation(observation, action)) <= 0.0
        observation, _, terminated, truncated, _ = environment.step(action.astype(np.float32))
        if terminated or truncated:
            observation, _ = environment.reset()
    environment.close()


@pytest.mark.parametrize(("name", "policy"), quick_slice(PAIRS, PAIRS[::7]))
def test_a_reference_policy_acts_for_many_observations_at_once(name: str, policy: str) -> None:
    task = make(name)
    first, _ = task.make_environment().reset(seed=0)
    many = np.repeat(first[None], 5, axis=0)
    actions = reference_policy(task, policy)(many, np.random.default_rng(0))
    assert actions.shape == (5, task.action_size)
    assert np.max(task.constraint.violation(many, actions)) <= 0.0
    assert (actions[0] != actions[1]).any() == (policy == "uniform")


def test_uniform_draws_come_from_the_given_generator() -> None:
    act = reference_policy(make("ant"), "uniform")
    observation = np.zeros(27)
    drawn = act(observation, np.random.default_rng(3))
    np.testing.assert_array_equal(drawn, act(observation, np.random.default_rng(3)))
    assert (drawn != act(observation, np.random.default_rng(4))).any()


@pytest.mark.parametrize("name", ["bss3z", "bss5z"])
def test_never_moving_bikes_is_to_ask_for_the_allocation_there_is(name: str) -> None:
    zones = {"bss3z": 3, "bss5z": 5}[name]
    observation = np.arange(2 * zones + 1, dtype=np.float64)
    action = reference_policy(make(name), "never-moving")(observation, np.random.default_rng(0))
    np.testing.assert_array_equal(action, np.arange(zones, 2 * zones))


def test_tasks_have_the_policies_that_make_sense_for_them() -> None:
    assert reference_names(make("halfcheetah")) == ("uniform", "interior")
    assert "constant" in reference_names(make("nsfnet"))
    assert "never-moving" in reference_names(make("bss3z")) and "never-moving" not in reference_names(
        make("ant")
    )
    with pytest.raises(UnknownNameError, match="Did you mean 'uniform'"):
        reference_policy(make("ant"), "unifrom")


class Counter(NamedTuple):
    elapsed: jax.Array


class Bowl:
    """A compiled environment of one state that pays -|a - target|^2 plus noise."""

    observation_size, action_size, horizon = 1, 2, 20
    target = np.array([0.4, -0.3])

    def reset(self, key: jax.Array) -> tuple[Counter, jax.Array]:
        return Counter(jnp.int32(0)), jnp.zeros(1)

    def step(self, state: Counter, action: jax.Array, key: jax.Array) -> CompiledStep:
        elapsed = state.elapsed + 1
        reward = -jnp.sum((action - self.target) ** 2) + 0.01 * jax.random.normal(key)
        return CompiledStep(Counter(elapsed), jnp.zeros(1), reward, False, elapsed >= self.horizon)


def bowl(radius_squared: float) -> Task:
    low, high = np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32)
    constraint = Ball(radius_squared=radius_squared) & Box(low.astype(np.float64), high.astype(np.float64))
    return AssembledTask(
        "bowl", constraint, 1, low, high, 20, 1.0, 0.0, "a test", "none", None, Bowl, _no_environment
    )


def _no_environment(**options: Any) -> Any:
    return SimpleNamespace(**options)


@pytest.mark.parametrize(("radius_squared", "expected"), [(4.0, (0.4, -0.3)), (0.0625, (0.2, -0.15))])
def test_the_search_finds_the_best_feasible_constant_action(
    radius_squared: float, expected: tuple[float, float]
) -> None:
    found = best_constant_action(bowl(radius_squared), steps=40_000, seed=0)
    np.testing.assert_allclose(found.action, expected, atol=0.02)
    distance = np.square(np.array(expected) - Bowl.target).sum()
    assert found.mean_reward == pytest.approx(-distance, abs=0.02)
    assert found.steps <= 40_000


def test_the_seed_decides_what_the_search_finds() -> None:
    first, again, other = (best_constant_action(bowl(4.0), steps=8_000, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.action, again.action)
    assert (first.action != other.action).any()


def test_the_search_works_on_the_host_too() -> None:
    found = best_constant_action(make("reacher"), steps=8_000, seed=0, candidates=16)
    uniform = best_constant_action(make("reacher"), steps=2_000, seed=1, candidates=4)
    assert float(make("reacher").constraint.violation(None, found.action)) <= 0.0
    assert found.mean_reward < 0.0 and np.square(found.action).sum() < 0.05
    assert uniform.steps <= 2_000


def test_a_set_that_moves_has_no_constant_action() -> None:
    with pytest.raises(ConfigurationError, match="interior"):
        best_constant_action(make("hopper"))


def test_too_small_a_budget_says_how_much_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="give at least 2858"):
        best_constant_action(bowl(4.0), steps=100, candidates=100)
