"""Readings by number mean the environment's own observation, whatever a task appends behind it."""

from __future__ import annotations

import types

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, ConstraintError, InfeasibleActionError, InvalidInputError

ALLOWED = 0.3
"""The last entry of the observation: how large the sum of all entries of an action may be."""


class Rationed(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    info = types.MappingProxyType({})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([0.5, 0.4, ALLOWED]), dict(self.info)

    def step(self, action):
        return np.array([0.5, 0.4, ALLOWED]), 0.0, False, False, dict(self.info)


class Publishing(Rationed):
    """Announces a number that has nothing to do with the limit."""

    info = types.MappingProxyType({"constraint": 5.0})


class OwningItsSet(Rationed):
    """Announces a set that reads its own observation."""

    info = types.MappingProxyType({"constraint": ib.WeightedL1([1.0, 1.0], ib.obs[-1])})


class InACompiledLoop:
    observation_size, action_size, horizon = 3, 2, 50

    def reset(self, key):
        return jnp.zeros(()), jnp.array([0.5, 0.4, ALLOWED])

    def step(self, state, action, key):
        return ib.CompiledStep(
            state, jnp.array([0.5, 0.4, ALLOWED]), jnp.zeros(()), jnp.array(False), jnp.array(False)
        )


def largest_sums(task, steps=5):
    """Return the sum of absolute entries of every action that is executed when as much as possible is asked for."""
    environment = task.make_environment()
    observation, _ = environment.reset(seed=0)
    sums = []
    for _ in range(steps):
        action = task.constraint.project(observation, np.ones(2))
        sums.append(float(np.abs(action).sum()))
        observation, *_ = environment.step(action)
    return sums


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        (Rationed, ib.WeightedL1([1.0, 1.0], ib.obs[-1])),
        (Rationed, ib.WeightedL1([1.0, 1.0], ib.obs[-1]) & ib.RateLimit(2.0)),
        (Rationed, ib.WeightedL1([1.0, 1.0], ib.sum(ib.obs[2:])) & ib.RateLimit(2.0)),
        (Rationed, ib.WeightedL1([1.0, 1.0], ib.sum(ib.obs[[-1]])) & ib.RateLimit(2.0)),
        (Rationed, (ib.WeightedL1([1.0, 1.0], ib.obs[-1]) | ib.Ball(radius=0.1)) & ib.RateLimit(2.0)),
        (Publishing, ib.WeightedL1([1.0, 1.0], ib.obs[-1])),
        (OwningItsSet, None),
        (OwningItsSet, ib.RateLimit(2.0)),
    ],
)
def test_the_last_entry_is_that_of_the_environment(environment, limit):
    sums = largest_sums(ib.Task(environment, limit, horizon=50))
    assert max(sums) <= ALLOWED
    assert min(sums) > 0.9 * ALLOWED


def test_a_compiled_environment_is_read_alike():
    limit = ib.WeightedL1([1.0, 1.0], ib.obs[-1]) & ib.RateLimit(2.0)
    sums = largest_sums(ib.from_compiled(InACompiledLoop(), limit, action_low=-1.0, action_high=1.0))
    assert 0.9 * ALLOWED < min(sums) <= max(sums) <= ALLOWED


def allows(observation, action):
    """Tell whether an action is within the last entry of what the function is given."""
    seen.add(observation.shape[-1])
    return np.abs(action).sum(axis=-1) <= observation[..., -1]


seen: set[int] = set()


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("environment", [Rationed, Publishing])
def test_a_function_is_given_the_observation_of_the_environment_alone(environment, is_batched):
    seen.clear()
    limit = ib.Oracle(allows, dimension=2, is_batched=is_batched) & ib.RateLimit(2.0)
    task = ib.Task(environment, limit, horizon=50)
    assert max(largest_sums(task, steps=2)) <= ALLOWED
    assert not task.constraint.contains(task.make_environment().reset(seed=0)[0], np.array([0.2, 0.2]))
    assert seen == {3}


def test_a_function_that_needs_more_entries_than_it_is_passed_is_refused():
    limit = ib.Oracle(allows, dimension=2, observation_size=4)
    with pytest.raises(InvalidInputError, match=r"only 3.*Pass the whole observation"):
        limit.contains(np.zeros(3), np.zeros(2))


@pytest.mark.parametrize(
    "limit", [ib.Ball(radius_squared=ib.obs[3]), ib.WeightedL1([1.0, 1.0], ib.obs[3] + 0.3)]
)
def test_an_index_beyond_the_environments_entries_is_refused_whatever_is_appended(limit):
    with pytest.raises(ConfigurationError, match="has 3 entries"):
        ib.Task(Rationed, limit, horizon=50)
    with pytest.raises(ConfigurationError, match=r"has 3 entries.*ib\.obs\['previous_action'\]"):
        ib.Task(Rationed, limit & ib.RateLimit(2.0), horizon=50)


def test_a_reference_action_is_read_from_the_environments_entries():
    task = ib.Task(Rationed, ib.RateLimit(2.0), horizon=50, reference_action=ib.obs[-2:])
    np.testing.assert_array_equal(task.reference_action.read(np.arange(5.0)), [1.0, 2.0])
    with pytest.raises(ConfigurationError, match="has 3 entries"):
        ib.Task(Rationed, ib.RateLimit(2.0), horizon=50, reference_action=ib.obs[3:5])


def test_a_box_of_all_further_entries_fits_beside_a_limit_on_changes():
    task = ib.Task(Rationed, ib.Box(-1.0, ib.obs[1:]) & ib.RateLimit(2.0), horizon=50)
    action = task.constraint.project(np.array([0.5, 0.4, ALLOWED, 0.0, 0.0]), np.ones(2))
    np.testing.assert_allclose(action, [0.4, ALLOWED], atol=1e-6)


class DeadZone(ib.Box):
    """A box of the user, of which a corner is left out: a_0 + a_1 <= 0.5."""

    def excess(self, at, action):
        return np.concatenate([super().excess(at, action), action.sum(axis=-1, keepdims=True) - 0.5], axis=-1)

    def tightened_excess(self, at, action):
        return self.excess(at, action) + 1e-6

    def accepts(self, at, action):
        return (self.tightened_excess(at, action) <= 0).all(axis=-1)

    def row_names(self, at, dimension):
        return [*super().row_names(at, dimension), "the sum"]


def test_a_box_of_the_user_that_limits_more_than_its_bounds_is_kept():
    zone = DeadZone([-1.0, -1.0], [1.0, 1.0])
    environment = ib.Task(Rationed, zone, horizon=5).make_environment()
    environment.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match=r"the sum is exceeded by 1\.3"):
        environment.step(np.array([0.9, 0.9]))
    drawn = zone.sample(np.random.default_rng(0), n=200)
    assert (drawn.sum(axis=-1) <= 0.5).all() and drawn.sum(axis=-1).max() > 0.3


class Wide(ib.Box):
    """A box of the user that allows twice as much as its bounds."""

    def excess(self, at, action):
        return super().excess(at, 0.5 * action)

    def tightened_excess(self, at, action):
        return super().tightened_excess(at, 0.5 * action)


def test_a_box_of_the_user_that_allows_more_than_its_bounds_does_not_stand_for_the_action_space():
    guard = ib.Guard(Rationed(), Wide(-np.ones(2), np.ones(2)))
    guard.reset(seed=0)
    with pytest.raises(InfeasibleActionError):
        guard.step(np.array([1.9, 0.0], np.float32))


class Circle(ib.Ball):
    """A set of the user whose constructor takes nothing."""

    def __init__(self):
        super().__init__(radius_squared=ib.obs[-1])


class Tight(ib.Ball):
    """A set of the user that says nothing of its factor."""

    def __init__(self, radius_squared, factor=1.0):
        super().__init__(radius_squared=radius_squared)
        self.factor = factor

    def excess(self, at, action):
        return super().excess(at, self.factor * action)


class Told(Tight):
    """The same, told."""

    def __init__(self, radius_squared, factor=1.0):
        super().__init__(radius_squared, factor)

    def parameters(self):
        return {**super().parameters(), "factor": self.factor}


@pytest.mark.parametrize("limit", [Circle(), Tight(ib.obs[-1], factor=4.0)])
def test_a_set_that_cannot_be_made_again_from_its_parameters_is_refused(limit):
    with pytest.raises(
        ConstraintError, match=r"parameters\(\) names radius_squared, but the constructor takes"
    ):
        ib.Task(Rationed, limit & ib.RateLimit(2.0), horizon=5)


def test_a_set_of_the_user_is_made_again_with_all_of_its_parameters():
    task = ib.Task(Rationed, Told(ib.obs[-1], factor=4.0) & ib.RateLimit(2.0), horizon=5)
    seen = np.array([0.5, 0.4, ALLOWED, 0.0, 0.0])
    assert task.constraint.violation(seen, np.array([0.2, 0.0])) > 0  # 0.64 > 0.3
    assert task.constraint.violation(seen, np.array([0.1, 0.0])) <= 0
