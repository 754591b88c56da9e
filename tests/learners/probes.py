"""Problems so small that their answers are known: each isolates one thing that can break in a learner.

| probe | what a learner must be able to do |
|---|---|
| `constant_reward` | learn a value |
| `observed_reward` | learn a value that depends on the observation |
| `delayed_reward` | carry a value back over one step, discounted |
| `interior_optimum` | find an action that the constraint allows |
| `boundary_optimum` | find the best action of a constant set, though the unconstrained one is outside |
| `moving_optimum` | the same on a set that the observation changes |
| `allocation_optimum` | the same on a thin band, sum_i a_i = total up to a tolerance |

Every probe terminates, so that nothing lies beyond its horizon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Ball, Box, SumBand, WeightedL1, obs
from inbounds.constraints.constraint import Constraint
from inbounds.learners.learner import Learner, Metrics, Spec
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import Task
from inbounds.training.compiled_collector import CompiledCollector
from inbounds.training.config import seed_keys
from inbounds.training.program import Counters, Programs

TARGET = np.array([0.8, 0.6])
"""Where the unconstrained optimum of the quadratic probes lies; its norm is 1."""


def first_state(learner: Learner, spec: Spec) -> Any:
    """Return the learner's first state, made by one compiled function instead of one for every operation in it."""
    return jax.jit(lambda key: learner.init(key, spec))(jax.random.key(0))


class ProbeState(NamedTuple):
    """How far the episode is, and what is observed in it."""

    time: jax.Array
    observation: jax.Array


class ProbeEnvironment:
    """An episode of fixed length whose observations and rewards are two small functions."""

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        horizon: int,
        observe: Callable[[jax.Array, jax.Array], jax.Array],
        reward: Callable[[jax.Array, jax.Array], jax.Array],
    ) -> None:
        """Take `observe(key, time)` and `reward(observation, action)`."""
        self.observation_size, self.action_size, self.horizon = observation_size, action_size, horizon
        self._observe, self._reward = observe, reward

    def reset(self, key: jax.Array) -> tuple[ProbeState, jax.Array]:
        """Begin at time zero."""
        observation = self._observe(key, jnp.zeros((), jnp.int32)).astype(jnp.float32)
        return ProbeState(jnp.zeros((), jnp.int32), observation), observation

    def step(self, state: ProbeState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Pay the reward and go on; the last step terminates."""
        time = state.time + 1
        observation = self._observe(key, time).astype(jnp.float32)
        return CompiledStep(
            state=ProbeState(time, observation),
            observation=observation,
            reward=jnp.asarray(self._reward(state.observation, action), jnp.float32),
            terminated=time >= self.horizon,
            truncated=jnp.zeros((), bool),
        )


class Probe(NamedTuple):
    """A task with its answers; observations and actions come in any batch."""

    task: Task
    observations: NDArray[np.float32]
    """Some observations at which to ask."""
    best_action: NDArray[np.float64] | None
    """The optimal action at each of them; None where every action is as good."""
    value: Callable[[float], NDArray[np.float64]]
    """From the discount factor to the optimal value at each of them."""


def probe_task(name: str, environment: ProbeEnvironment, constraint: Constraint) -> Task:
    """Make a task of a probe; its actions fill the box [-1, 1]."""
    low = np.full(environment.action_size, -1.0, np.float32)
    high = np.full(environment.action_size, 1.0, np.float32)
    joint = constraint & Box(low, high)
    return task_of_compiled(
        environment,
        joint,
        name=name,
        action_low=low,
        action_high=high,
        reward_divisor=1.0,
        reward_shift=0.0,
        source="made for tests",
        environment_id=f"inbounds/Probe-{name}-v0",
    )


def constant_reward() -> Probe:
    """Return one step that pays 1 whatever is done."""
    environment = ProbeEnvironment(1, 2, 1, lambda key, time: jnp.zeros(1), lambda observation, action: 1.0)
    task = probe_task("constant", environment, Ball(radius_squared=0.25))
    return Probe(task, np.zeros((1, 1), np.float32), None, lambda gamma: np.ones(1))


def observed_reward() -> Probe:
    """Return one step that pays what is observed, -1 or 1."""
    environment = ProbeEnvironment(
        1,
        2,
        1,
        lambda key, time: jax.random.rademacher(key, (1,), jnp.float32),
        lambda observation, action: observation[0],
    )
    task = probe_task("observed", environment, Ball(radius_squared=0.25))
    return Probe(task, np.array([[-1.0], [1.0]], np.float32), None, lambda gamma: np.array([-1.0, 1.0]))


def delayed_reward() -> Probe:
    """Return two steps of which only the second pays 1."""
    environment = ProbeEnvironment(
        1,
        2,
        2,
        lambda key, time: time[None].astype(jnp.float32),
        lambda observation, action: observation[0],
    )
    task = probe_task("delayed", environment, Ball(radius_squared=0.25))
    return Probe(task, np.array([[0.0], [1.0]], np.float32), None, lambda gamma: np.array([gamma, 1.0]))


def quadratic(observation: jax.Array, action: jax.Array) -> jax.Array:
    """Pay 1 minus the squared distance to the target: the best action of any set is a projection."""
    target = jnp.concatenate([jnp.asarray(TARGET), jnp.zeros(action.shape[-1] - 2)])
    return 1.0 - jnp.sum((action - target) ** 2)


def quadratic_probe(
    name: str, constraint: Constraint, observe: Any, observations: NDArray[np.float32]
) -> Probe:
    """Return one step with the quadratic reward on a set in the plane."""
    environment = ProbeEnvironment(observations.shape[1], 2, 1, observe, quadratic)
    task = probe_task(name, environment, constraint)
    seen = observations.astype(np.float64)
    best = np.asarray(task.constraint.project(seen, np.broadcast_to(TARGET, (len(seen), 2))))
    return Probe(task, observations, best, lambda gamma: 1.0 - np.sum((best - TARGET) ** 2, axis=-1))


def interior_optimum() -> Probe:
    """Return the quadratic reward on a ball that holds the target."""
    return quadratic_probe(
        "interior", Ball(radius_squared=1.5), lambda key, time: jnp.zeros(1), np.zeros((1, 1), np.float32)
    )


def boundary_optimum() -> Probe:
    """Return the quadratic reward on a ball of radius 1/2: the best action is (0.4, 0.3), worth 3/4."""
    return quadratic_probe(
        "boundary", Ball(radius_squared=0.25), lambda key, time: jnp.zeros(1), np.zeros((1, 1), np.float32)
    )


def moving_optimum() -> Probe:
    """Return the quadratic reward where sum_i |w_i a_i| <= 1/2 and the weights are observed."""
    weights = np.array([[0.5, 1.5], [1.0, 1.0], [1.5, 0.5], [0.7, 1.3]], np.float32)
    return quadratic_probe(
        "moving",
        WeightedL1(weights=obs[0:2], bound=0.5),
        lambda key, time: jax.random.uniform(key, (2,), minval=0.5, maxval=1.5),
        weights,
    )


def allocation_optimum() -> Probe:
    """Return the quadratic reward on three entries that must add up to 1/2, give or take 1/20."""
    environment = ProbeEnvironment(1, 3, 1, lambda key, time: jnp.zeros(1), quadratic)
    task = probe_task("allocation", environment, SumBand(total=0.5, tolerance=0.05))
    target = np.array([[*TARGET, 0.0]])
    best = np.asarray(task.constraint.project(None, target))
    return Probe(
        task, np.zeros((1, 1), np.float32), best, lambda gamma: 1.0 - np.sum((best - target) ** 2, axis=-1)
    )


class Learnt(NamedTuple):
    """A learner after its training on a probe, with everything that a test may want to look at."""

    learner: Learner
    spec: Spec
    state: Any
    """The state of the only seed."""
    metrics: Metrics
    """Of the last update."""
    counters: Counters
    """Of the only seed."""
    replay: Any

    def raw_actions(self, probe: Probe) -> NDArray[np.float64]:
        """Return what the policy is centred on at the probe's observations, before projection."""
        preference = jnp.asarray([0.9, 0.1])
        observations = jnp.asarray(probe.observations)
        return np.asarray(self.learner.mode(self.state, self.spec, observations, preference), np.float64)

    def actions(self, probe: Probe) -> NDArray[np.float64]:
        """Return what would be executed at the probe's observations."""
        return np.asarray(
            self.spec.constraint.project(probe.observations.astype(np.float64), self.raw_actions(probe))
        )

    def regret(self, probe: Probe) -> float:
        """Return how much reward is lost at worst, over the probe's observations, in a quadratic probe."""
        assert probe.best_action is not None
        target = np.concatenate([TARGET, np.zeros(probe.best_action.shape[1] - 2)])
        lost = np.sum((self.actions(probe) - target) ** 2, axis=-1) - np.sum(
            (probe.best_action - target) ** 2, axis=-1
        )
        return float(np.max(lost))


def learn(
    probe: Probe, learner: Learner, steps: int, environments: int = 16, warm_up: int = 320, seed: int = 0
) -> Learnt:
    """Train on a probe in the compiled loop, one update per step; every executed action is checked."""
    task = probe.task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    programs = Programs(learner, spec, environments, environments, capacity=max(steps, learner.batch_size))
    keys = seed_keys(seed, 1)
    turns = -(-steps // environments)
    collector = CompiledCollector(task, programs, keys, [seed], warm_up)
    collector.start()
    state, metrics, _ = collector.run(programs.init(keys), turns)
    only = jax.tree.map(lambda leaf: leaf[0], state)
    return Learnt(
        learner, spec, only.learner, jax.tree.map(lambda leaf: leaf[0], metrics), only.counters, only.replay
    )
