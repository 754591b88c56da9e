"""Collecting from environments on the host: their step overlaps with the updates on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.learners.step import Metrics
from inbounds.policies.acceptance import Draw
from inbounds.tasks.empty_states import Settling
from inbounds.tasks.environment import HostEnvironments
from inbounds.tasks.task import Task
from inbounds.training.program import Exchange, Programs, TrainingState


class Episodes(NamedTuple):
    """Episodes that ended while collecting: which seed, undiscounted return, and length."""

    seed: list[int]
    value: list[float]
    length: list[int]


class Pending(NamedTuple):
    """A step that happened but was not learnt from yet."""

    observation: jax.Array
    draw: Draw
    exchange: Exchange


class HostCollector:
    """Steps seeds x environments together. A turn is one step of each; its updates run during the next turn."""

    def __init__(
        self, task: Task, programs: Programs, keys: jax.Array, seeds: list[int], warm_up: int, threads: int
    ) -> None:
        """Build the environments; `start` or `restore` comes next."""
        if task.host is None:
            raise ValueError(f"{task.name} has no host environments")
        self.task, self.programs, self.keys, self.seeds, self.warm_up = task, programs, keys, seeds, warm_up
        self.count = programs.environments
        self.is_on_cpu = {device.platform for device in keys.devices()} == {"cpu"}
        self.environments: HostEnvironments = task.host(len(seeds) * self.count, threads)
        self.settling = Settling(task)
        self.turn = 0
        self.pending: Pending | None = None
        self.exact_resume = True
        self.lowest_reward = np.inf
        """Lowest training reward of the last `run`: Proposition 1 needs it not to be negative."""

    def start(self) -> None:
        """Begin the first episodes."""
        observation = self.reset()
        ones = np.ones(observation.shape[:2])
        self.exchange = self.to_exchange(observation, ones > 0, 0 * ones, ones, observation)
        self.context = self.programs.new_contexts(self.keys)
        self.returns, self.lengths = np.zeros(ones.shape), np.zeros(ones.shape, np.int64)

    def reset(self, salt: int = 0) -> NDArray[Any]:
        """Start an episode in every environment, from a seed of its own, and return the observations."""
        seeds = [seed * 100_003 + salt + index for seed in self.seeds for index in range(self.count)]
        self.seen = self._shaped(self.environments.reset(seeds))
        return self.seen

    def run(self, state: TrainingState, turns: int) -> tuple[TrainingState, Metrics, Episodes]:
        """Take `turns` steps in every environment and the updates that belong to them."""
        episodes = Episodes([], [], [])
        metrics: Metrics = {}
        self.lowest_reward = np.inf
        for _ in range(turns):
            turn, is_random = np.int32(self.turn), self.turn * self.count < self.warm_up
            self.context, draw = self.programs.act(
                state.learner, self.context, self.exchange, self.keys, turn, is_random=is_random
            )
            if self.pending is not None:
                # Dispatched before the host waits for the actions: the device learns while the host steps.
                state, metrics = self._learn(state, self.pending, self.turn - 1)
            observation = self.exchange.observation
            action = np.asarray(draw.action)
            if not (self.settling.has_margin and np.all(np.isfinite(action))):
                draw, action = self._settled(draw, action)
                if not np.all(np.isfinite(action)):
                    metrics = {**metrics, "action": jnp.full(len(self.seeds), jnp.nan)}
                    break  # the policy has diverged; the NaN metric stops the run
            self.exchange = self._step(action, episodes)
            self.pending = Pending(observation, draw, self.exchange)
            self.turn += 1
        return state, metrics, episodes

    def _learn(self, state: TrainingState, pending: Pending, turn: int) -> tuple[TrainingState, Metrics]:
        is_random = turn * self.count < self.warm_up
        updates = 0 if (turn + 1) * self.count <= self.warm_up else self.programs.updates
        learnt: tuple[TrainingState, Metrics] = self.programs.learn(
            state, *pending, self.keys, np.int32(turn), is_random=is_random, updates=updates
        )
        return learnt

    def _settled(self, draw: Draw, action: NDArray[np.float32]) -> tuple[Draw, NDArray[np.float32]]:
        """Project actions on the host that are NaN or fail the float64 test; the learner stores these."""
        found = self.settling.settle(self.seen, action, np.asarray(draw.proposals)[..., -1, :])
        if not found.is_projected.any():
            return draw, found.actions
        is_projected = draw.is_projected | jnp.asarray(found.is_projected)
        return draw._replace(action=jnp.asarray(found.actions), is_projected=is_projected), found.actions

    def _step(self, actions: NDArray[np.float32], episodes: Episodes) -> Exchange:
        step = self.environments.step(actions.reshape(-1, actions.shape[-1]))
        reward = step.reward.reshape(self.returns.shape)
        ended = (step.terminated | step.truncated).reshape(reward.shape)
        self.returns += reward
        self.lengths += 1
        for seed, index in np.argwhere(ended):
            episodes.seed.append(int(seed))
            episodes.value.append(float(self.returns[seed, index]))
            episodes.length.append(int(self.lengths[seed, index]))
        self.returns[ended], self.lengths[ended] = 0.0, 0
        training_reward = self.task.training_reward(reward)
        self.lowest_reward = min(self.lowest_reward, float(training_reward.min()))
        self.seen = self._shaped(step.observation)
        not_done = 1.0 - step.terminated.reshape(reward.shape)
        following = self._shaped(step.final_observation)
        return self.to_exchange(self.seen, ended, training_reward, not_done, following)

    def _shaped(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(len(self.seeds), self.count, -1)

    def to_exchange(self, *step: NDArray[Any]) -> Exchange:
        """Return one step of all environments, the fields of `Exchange` in order, in float32 and on the device."""
        arrays: Any = [array if array.dtype == bool else array.astype(np.float32) for array in step]
        # Programs on a CPU read these arrays without a copy; they do not change any more. A copy costs 9 % of a step.
        return Exchange(*(arrays if self.is_on_cpu else jax.device_put(arrays)))

    def close(self) -> None:
        """Close the environments; the run is over."""
        self.environments.close()
