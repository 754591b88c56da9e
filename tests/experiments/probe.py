"""A one-dimensional world and policies in it whose every metric is known beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box
from inbounds.learners.learner import Learner, Memory, Metrics, Outcome, Spec
from inbounds.policies.acceptance import Draw
from inbounds.replay import Transition
from inbounds.tasks.environment import Step
from inbounds.tasks.task import AssembledTask, Task

HORIZON = 8


class CountingEnvironments:
    """The observation counts the steps of the episode; the reward is the action; an episode has eight steps."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        self.time = 0
        return self._observation()

    def _observation(self) -> NDArray[np.float64]:
        return np.full((self.count, 1), float(self.time))

    def step(self, actions: NDArray[np.floating]) -> Step:
        self.time += 1
        final = self._observation()
        ended = np.full(self.count, self.time == HORIZON)
        if self.time == HORIZON:
            self.time = 0
        return Step(
            self._observation(), final, actions[:, 0].astype(float), np.zeros(self.count, bool), ended
        )

    def save(self) -> dict[str, NDArray[np.generic]] | None:
        return None

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        raise AssertionError("nothing was saved")

    def close(self) -> None:
        pass


def probe_task(share: float) -> Task:
    """Return a task in which the share `share` of the box [-1, 1] is feasible."""
    return AssembledTask(
        name="probe",
        constraint=Box(np.array([-1.0]), np.array([2 * share - 1])),
        observation_size=1,
        action_low=np.array([-1.0], np.float32),
        action_high=np.array([1.0], np.float32),
        horizon=HORIZON,
        reward_divisor=1.0,
        reward_shift=0.0,
        source="a test",
        environment_id="none",
        host=CountingEnvironments,
        compiled=None,
        make_environment=lambda **options: None,  # type: ignore[arg-type, return-value]
    )


@dataclasses.dataclass(frozen=True)
class UniformPolicy(Learner):
    """Samples uniformly from the box; its deterministic action is 1 at every third step and -1 elsewhere."""

    exploration: float = 0.0
    batch_size: int = 1

    def init(self, key: jax.Array, spec: Spec) -> Any:
        raise NotImplementedError

    def act(
        self, state: Any, spec: Spec, observation: jax.Array, context: jax.Array, keys: jax.Array, warm: bool
    ) -> Draw:
        raise NotImplementedError

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        raise NotImplementedError

    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        raise NotImplementedError

    def mode(self, state: Any, spec: Spec, observation: jax.Array, preference: jax.Array) -> jax.Array:
        return jnp.where(observation % 3 == 0, 1.0, -1.0)

    def samples(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        shape = (*observation.shape[:-1], count, 1)
        if self.exploration:
            return jnp.full(shape, -1.0)
        return jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class RejectingPolicy(UniformPolicy):
    """The uniform policy, evaluated by the first feasible of its samples."""

    proposals: int = 4

    @property
    def evaluates_samples(self) -> bool:
        return True


def spec_of(task: Task) -> Spec:
    return Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
