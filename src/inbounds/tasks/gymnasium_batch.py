"""Any Gymnasium environments as a batch: one vector per observation, the guard inside, same-step autoreset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, InvalidInputError, SimulationError
from inbounds.tasks.action_guard import ActionGuard, OnViolation
from inbounds.tasks.environment import Step
from inbounds.tasks.flattening import Flattening
from inbounds.tasks.named_parts import PREVIOUS_ACTION
from inbounds.tasks.published_sets import PublishedNumbers, own_set, refuse_later_limit, require_same_set

Maker = Callable[[str | None], gymnasium.Env[Any, Any]]
"""From a render mode, or None, to a new environment."""


@dataclasses.dataclass(frozen=True)
class Interface:
    """Between an environment and its task: [flattened observation, published numbers, previous action] <-> parts."""

    observations: Flattening
    actions: Flattening
    published: PublishedNumbers | None
    first_previous_action: NDArray[np.float64] | None
    """None where the constraint does not read the previous action, and the observation does not hold it."""

    @property
    def observation_parts(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the parts of the task's observation, in their order."""
        parts = self.observations.named_sizes()
        parts += () if self.published is None else self.published.numbers.named_sizes()
        previous = self.first_previous_action
        return parts if previous is None else (*parts, (PREVIOUS_ACTION, len(previous)))

    def observe(
        self, seen: Any, info: Mapping[str, Any], previous_action: NDArray[np.floating] | None = None
    ) -> NDArray[np.float64]:
        """Return the task's observation; without a previous action, that of the beginning of an episode."""
        pieces = [self.observations.flatten(seen)]
        if self.published is not None:
            pieces.append(self.published.read(info))
        else:
            refuse_later_limit(info)
        if self.first_previous_action is not None:
            before = self.first_previous_action if previous_action is None else previous_action
            pieces.append(before.astype(np.float64))
        return pieces[0].copy() if len(pieces) == 1 else np.concatenate(pieces)


class Began(NamedTuple):
    """What `reset` returned."""

    observation: Any
    info: Mapping[str, Any]


def begun(environment: gymnasium.Env[Any, Any], seed: int | None, task_name: str) -> Began:
    """Begin an episode; what does not answer as Gymnasium's environments do is refused."""
    answer = environment.reset(seed=seed)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)):
        raise SimulationError(
            f"{task_name}: reset returned {_kind(answer)}, but (observation, info) is expected, info a dictionary. "
            f"Let it return both, as Gymnasium's environments do: return observation, {{}}."
        )
    return Began(*answer)


class Moved(NamedTuple):
    """What `step` returned."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


def moved(environment: gymnasium.Env[Any, Any], action: Any, task_name: str) -> Moved:
    """Take one step, in the same way."""
    answer = environment.step(action)
    if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], Mapping)):
        raise SimulationError(
            f"{task_name}: step returned {_kind(answer)}, but (observation, reward, terminated, truncated, info) is "
            f"expected, info a dictionary. Return all five, as Gymnasium's environments do; a single 'done' means "
            f"terminated."
        )
    seen, paid, terminated, truncated, info = answer
    try:
        reward = float(paid)
    except (TypeError, ValueError) as error:
        raise SimulationError(
            f"{task_name}: the reward {paid!r} is not a number. Let step return float(reward)."
        ) from error
    return Moved(seen, reward, bool(terminated), bool(truncated), info)


def _kind(answer: Any) -> str:
    return f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"one {type(answer).__name__}"


class GymnasiumBatch:
    """`count` environments made by one function, stepped one after another.

    Each draws its randomness from its own seed: `reset(seeds)` passes it on once, and the episodes that follow
    continue the environment's own generator. Their states cannot be saved, so that a resumed run begins anew
    the episodes that were open.
    """

    def __init__(
        self,
        make: Maker,
        interface: Interface,
        constraint: Constraint,
        horizon: int,
        count: int,
        *,
        task_name: str,
        own_limit: Constraint | None = None,
        on_violation: OnViolation = "refuse",
        render_mode: str | None = None,
    ) -> None:
        """Make the environments; nothing moves before `reset`. `own_limit` is the set that each of them publishes."""
        if count < 1:
            raise ConfigurationError(
                f"{task_name}: a batch of {count} environments is empty; ask for 1 or more."
            )
        self.count = count
        self.horizon = horizon
        self.interface = interface
        self.environments = [make(render_mode) for _ in range(count)]
        self.guard = ActionGuard(
            constraint,
            interface.actions.size,
            task_name=task_name,
            on_violation=on_violation,
            # Of several types the shortest: its numbers are those of the longer ones as well, so that no part is
            # rounded after it was checked.
            executed_as=min((part.dtype for part in interface.actions.parts), key=lambda kind: kind.itemsize),
        )
        self.frame: Any = None
        """Where the last action of the first environment led, if pictures were asked for."""
        self._draws = render_mode is not None
        self._own_limits: list[Any] = [own_limit] * count
        self._elapsed = np.zeros(count, dtype=np.int64)
        self._observation: NDArray[np.float64] | None = None

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed."""
        if len(seeds) != self.count:
            raise InvalidInputError(
                f"{self.guard.task_name}: {len(seeds)} seeds for {self.count} environments; give one seed each."
            )
        self._observation = None
        first = [self._begin(index, int(seed) % 2**31) for index, seed in enumerate(seeds)]
        self._observation = np.stack(first)
        return self._observation.copy()

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one feasible action to each environment; an infeasible one raises before anything moves."""
        if self._observation is None:
            raise InvalidInputError(
                f"{self.guard.task_name}: step came before reset, or after a step or reset that failed, so that it is "
                f"unknown where the environments stand; call reset first."
            )
        executed = self.guard.admit(self._observation, actions)
        final = np.empty_like(self._observation)
        self._observation = None  # until all have answered: one that raises may have moved
        reward = np.zeros(self.count)
        terminated, truncated = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        for index, environment in enumerate(self.environments):
            action = self.interface.actions.unflatten(executed[index])
            step = moved(environment, action, self.guard.task_name)
            reward[index], terminated[index], truncated[index] = step.reward, step.terminated, step.truncated
            final[index] = self._seen(index, step.observation, step.info, executed[index])
        self._require_numbers(final, reward)
        self._elapsed += 1
        truncated |= self._elapsed >= self.horizon
        if self._draws:
            self.frame = self.render()
        following = final.copy()
        for ended in np.flatnonzero(terminated | truncated):
            following[ended] = self._begin(int(ended), None)
        self._observation = following
        return Step(following.copy(), final, reward, terminated, truncated)

    def save(self) -> None:
        """Return nothing: what an arbitrary environment holds cannot be written down."""

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse: `save` never returned anything to go back to."""
        raise InvalidInputError(
            f"{self.guard.task_name}: its environments cannot be restored; call reset(seeds) instead."
        )

    def render(self) -> Any:
        """Return the picture that the first environment draws."""
        return self.environments[0].render()

    def close(self) -> None:
        """Close the environments."""
        for environment in self.environments:
            environment.close()

    def _begin(self, index: int, seed: int | None) -> NDArray[np.float64]:
        episode = begun(self.environments[index], seed, self.guard.task_name)
        self._elapsed[index] = 0
        first = self._seen(index, episode.observation, episode.info)
        self._require_numbers(first[None], np.zeros(1))
        return first

    def _seen(
        self, index: int, seen: Any, info: Mapping[str, Any], executed: NDArray[np.floating] | None = None
    ) -> NDArray[np.float64]:
        """Return the task's observation; the set that an environment publishes must still be the task's."""
        now = own_set(self.environments[index])
        if now is not self._own_limits[index]:
            require_same_set(self._own_limits[index], now, self.guard.task_name)
            self._own_limits[index] = now
        return self.interface.observe(seen, info, executed)

    def _require_numbers(self, observation: NDArray[np.float64], reward: NDArray[np.float64]) -> None:
        if np.isfinite(observation).all() and np.isfinite(reward).all():
            return
        places = np.argwhere(~np.isfinite(observation))
        what = f"entry {places[0, 1]} of the observation" if len(places) else "the reward"
        raise SimulationError(
            f"{self.guard.task_name}: {what} is not a finite number. Correct the environment, or end the episode "
            f"before that happens."
        )
