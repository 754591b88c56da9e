"""The discrete allocation: its rules, its lookups, and the best that can be had."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import InfeasibleActionError
from inbounds.tasks.allocation import RingAllocation, allocation_task, best_reward

RULES = RingAllocation()


def is_allowed_by_hand(action):
    steps = [abs(action[i] - action[(i + 1) % 5]) for i in range(5)]
    return sum(action) == 15 and all(1 <= step <= 3 for step in steps) and all(0 <= a <= 6 for a in action)


def test_fewer_than_one_in_a_hundred_actions_is_allowed():
    assert len(RULES.allowed) == 120
    assert len(RULES.allowed) / 7**5 < 0.01
    assert all(is_allowed_by_hand(action) for action in RULES.allowed)


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        ([3.5, 2.5, 4, 2, 3], "whole number"),
        ([2, 4, 3, 5, 2], "sum_i"),
        ([3, 3, 4, 2, 3], "differs"),
        ([6, 2, 3, 1, 3], "<= 3"),
    ],
)
def test_a_broken_rule_is_named(action, rule):
    assert not RULES.contains(None, np.array(action, float))
    assert rule in RULES.explain(None, np.array(action, float))


def test_numpy_and_jax_decide_alike():
    actions = np.random.default_rng(0).integers(0, 7, (2_000, 5)).astype(np.float32)
    actions[:120] = RULES.allowed
    np.testing.assert_array_equal(RULES.contains(None, actions), RULES.contains(None, jnp.asarray(actions)))


def test_a_projection_is_the_nearest_allowed_action_also_when_compiled():
    wanted = np.random.default_rng(1).uniform(0.0, 6.0, (50, 5)).astype(np.float32)
    found = np.asarray(RULES.project(None, wanted))
    assert np.all(RULES.contains(None, found))
    nearest = np.min(np.linalg.norm(wanted[:, None] - RULES.allowed, axis=-1), axis=1)
    np.testing.assert_allclose(np.linalg.norm(found - wanted, axis=-1), nearest, rtol=1e-5)
    compiled = jax.jit(lambda a: RULES.project(None, a))(jnp.asarray(wanted))
    np.testing.assert_allclose(np.linalg.norm(compiled - wanted, axis=-1), nearest, rtol=1e-5)


@pytest.mark.parametrize("rng", [np.random.default_rng(0), jax.random.key(0)], ids=["numpy", "jax"])
def test_samples_are_allowed_and_reach_every_action(rng):
    drawn = np.asarray(RULES.sample(rng, None, n=2_000))
    assert np.all(RULES.contains(None, drawn))
    assert len(np.unique(drawn, axis=0)) == 120


def test_the_environment_refuses_what_the_rules_do_not_allow():
    environment = allocation_task().make_environment()
    environment.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="whole number"):
        environment.step(np.array([3.5, 2.5, 4, 2, 3]))


def test_the_best_reward_is_the_distance_to_the_nearest_allowed_action():
    task = allocation_task()
    environment = task.make_environment()
    observation, _ = environment.reset(seed=3)
    best = float(best_reward(RULES, observation[None])[0])
    rewards = []
    for action in RULES.allowed:
        environment.reset(seed=3)
        rewards.append(environment.step(action)[1])
    assert max(rewards) == pytest.approx(best)
