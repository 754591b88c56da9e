"""Collecting from environments on the host: their step overlaps with the updates on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError
from inbounds.learners.learner import Metrics
from inbounds.policies.acceptance import Draw
from inbounds.tasks.environment import HostEnvironments
from inbounds.tasks.task import Task
from inbounds.training.host_settling import Settling
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
    """Steps seeds x environments together; what happened at one turn is learnt from during the next one."""

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
        """Reset every environment from a seed of its own."""
        reset_seeds = [seed * 100_003 + index for seed in self.seeds for index in range(self.count)]
        observation = self.seen = self._shaped(self.environments.reset(reset_seeds))
        ones = np.ones(observation.shape[:2])
        self.exchange = self._exchange(observation, ones > 0, 0 * ones, ones, observation)
        self.context = self.programs.empty_context(self.keys)
        self._returns, self._lengths = np.zeros(ones.shape), np.zeros(ones.shape, np.int64)

    def run(self, state: TrainingState, turns: int) -> tuple[TrainingState, Metrics, Episodes]:
        """Take `turns` steps in every environment and the updates that belong to them."""
        episodes = Episodes([], [], [])
        metrics: Metrics = {}
        self.lowest_reward = np.inf
        for _ in range(turns):
            is_warm = self.turn * self.count < self.warm_up
            self.context, draw = self.programs.act(
                state.learner, self.context, self.exchange, self.keys, np.int32(self.turn), warm=is_warm
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
                    break  # the policy itself has diverged: the metrics say so, and the loop stops the run
            self.exchange = self._step(action, episodes)
            self.pending = Pending(observation, draw, self.exchange)
            self.turn += 1
        return state, metrics, episodes

    def _learn(self, state: TrainingState, pending: Pending, turn: int) -> tuple[TrainingState, Metrics]:
        is_warm = turn * self.count < self.warm_up
        updates = 0 if (turn + 1) * self.count <= self.warm_up else self.programs.updates
        learnt: tuple[TrainingState, Metrics] = self.programs.learn(
            state,
            pending.observation,
            pending.draw,
            pending.exchange,
            self.keys,
            np.int32(turn),
            warm=is_warm,
            updates=updates,
        )
        return learnt

    def _settled(self, draw: Draw, action: NDArray[np.float32]) -> tuple[Draw, NDArray[np.float32]]:
        """Project on the host what the program left open, and let the learner remember what is executed."""
        found = self.settling.settle(self.seen, action, np.asarray(draw.proposals)[..., -1, :])
        if not found.is_projected.any():
            return draw, found.actions
        is_projected = draw.is_projected | jnp.asarray(found.is_projected)
        return draw._replace(action=jnp.asarray(found.actions), is_projected=is_projected), found.actions

    def _step(self, actions: NDArray[np.float32], episodes: Episodes) -> Exchange:
        step = self.environments.step(actions.reshape(-1, actions.shape[-1]))
        reward = step.reward.reshape(self._returns.shape)
        ended = (step.terminated | step.truncated).reshape(reward.shape)
        self._returns += reward
        self._lengths += 1
        for seed, index in np.argwhere(ended):
            episodes.seed.append(int(seed))
            episodes.value.append(float(self._returns[seed, index]))
            episodes.length.append(int(self._lengths[seed, index]))
        self._returns[ended], self._lengths[ended] = 0.0, 0
        training_reward = self.task.training_reward(reward)
        self.lowest_reward = min(self.lowest_reward, float(training_reward.min()))
        self.seen = self._shaped(step.observation)
        return self._exchange(
            self.seen,
            ended,
            training_reward,
            1.0 - step.terminated.reshape(reward.shape),
            self._shaped(step.final_observation),
        )

    def _shaped(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(len(self.seeds), self.count, -1)

    def _exchange(
        self,
        observation: NDArray[Any],
        is_first: NDArray[Any],
        reward: NDArray[Any],
        discount: NDArray[Any],
        next_observation: NDArray[Any],
    ) -> Exchange:
        numbers = (observation, reward, discount, next_observation)
        seen, paid, kept, following = (array.astype(np.float32) for array in numbers)
        arrays: Any = (seen, is_first, paid, kept, following)
        # Programs on a CPU read numpy's own memory, which nobody writes to again; handing it over costs 9 % of a step.
        return Exchange(*(arrays if self.is_on_cpu else jax.device_put(arrays)))

    # Saving ------------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Return everything that a resumed run needs: environments, the open step, contexts and running returns."""
        environments = self.environments.save()
        saved: dict[str, Any] = {
            "turn": np.asarray(self.turn),
            "exchange": self.exchange._asdict(),
            "context": self.context,
            "returns": self._returns,
            "lengths": self._lengths,
        }
        if self.pending is not None:
            saved["pending"] = {
                "observation": self.pending.observation,
                "draw": self.pending.draw._asdict(),
                "exchange": self.pending.exchange._asdict(),
            }
        if environments is not None:
            saved["environments"] = environments
            saved["seen"] = self.seen
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go back to what `save` returned; environments that cannot be saved start a new episode."""
        try:
            self.turn = int(saved["turn"])
            self.exchange = Exchange(
                **{name: jnp.asarray(value) for name, value in saved["exchange"].items()}
            )
            self.context = jnp.asarray(saved["context"])
            self._returns, self._lengths = np.array(saved["returns"]), np.array(saved["lengths"])
            pending = saved.get("pending")
        except KeyError as error:
            raise CheckpointError(
                f"the checkpoint lacks {error}. It was written by another version."
            ) from error
        if pending is not None:
            self.pending = Pending(
                jnp.asarray(pending["observation"]),
                Draw(**{name: jnp.asarray(value) for name, value in pending["draw"].items()}),
                Exchange(**{name: jnp.asarray(value) for name, value in pending["exchange"].items()}),
            )
        if "environments" in saved:
            self.environments.restore(saved["environments"])
            self.seen = np.array(saved["seen"], np.float64)
            return
        self.exact_resume = False
        last = self.pending
        reset_seeds = [
            seed * 100_003 + self.turn + index for seed in self.seeds for index in range(self.count)
        ]
        observation = self.seen = self._shaped(self.environments.reset(reset_seeds))
        previous = jax.tree.map(np.asarray, self.exchange)
        self.exchange = self._exchange(
            observation,
            np.ones(observation.shape[:2], bool),
            previous.reward,
            previous.discount,
            previous.next_observation,
        )
        self.pending = last
        self._returns[:], self._lengths[:] = 0.0, 0
