"""How a compiled environment is used from the host: one at a time through Gymnasium, or as a batch.

Every environment owns one stream of randomness that starts at its seed: each reset and each step splits one
key off it. A single environment therefore draws what the member of a batch with the same seed draws, episode after
episode, and nothing outside the stream is ever read. Sums may differ by their rounding, since one environment and a
batch are two compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, SimulationError
from inbounds.tasks.action_guard import ActionGuard
from inbounds.tasks.environment import (
    NOT_FINITE,
    CompiledEnvironment,
    CompiledStep,
    ExplainsFailure,
    HostEnvironments,
    Step,
    require_render_mode,
)
from inbounds.tasks.guard import EpisodeGuard
from inbounds.tasks.spaces import ConstrainedBox
from inbounds.tasks.task import AssembledTask, Task

if TYPE_CHECKING:
    from inbounds.constraints import Constraint

Draw = Callable[[Any, NDArray[np.float64]], NDArray[np.uint8]]
"""From one environment's state and its last action to a picture (height, width, 3)."""


class Stream(NamedTuple):
    """The state of a batch of environments together with the key each will draw from next."""

    key: jax.Array
    state: Any


def wrap(words: Any) -> jax.Array:
    """Return the keys whose raw words are given; the generator is named so that no setting can change it."""
    keys: jax.Array = jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")
    return keys


def keys_of(seeds: Sequence[int]) -> jax.Array:
    """Return one random key per seed, the same that `jax.random.key(seed)` gives, for all 64 bits."""
    values = np.asarray([int(seed) & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    words = np.stack([values >> np.uint64(32), values & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
    return wrap(words)


@partial(jax.jit, static_argnums=0)
def begin(environment: CompiledEnvironment, keys: jax.Array) -> tuple[Stream, jax.Array]:
    """Reset every environment of a batch from its own key."""

    def one(key: jax.Array) -> tuple[Stream, jax.Array]:
        following, now = jax.random.split(key)
        state, observation = environment.reset(now)
        return Stream(following, state), observation

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=0)
def advance(environment: CompiledEnvironment, stream: Stream, actions: jax.Array) -> CompiledStep:
    """Step every environment of a batch; `state` of the result is the next `Stream`."""

    def one(member: Stream, action: jax.Array) -> CompiledStep:
        following, now = jax.random.split(member.key)
        step = environment.step(member.state, action, now)
        return step._replace(state=Stream(following, step.state))

    return jax.vmap(one)(stream, actions)


@partial(jax.jit, static_argnums=0)
def renew(environment: CompiledEnvironment, stream: Stream, ended: jax.Array) -> tuple[Stream, jax.Array]:
    """Reset the environments whose episode ended and leave the others as they are."""
    fresh, observations = begin(environment, stream.key)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jax.vmap(lambda flag, a, b: jax.lax.select(flag, a, b))(ended, new, old)

    key = wrap(choose(jax.random.key_data(fresh.key), jax.random.key_data(stream.key)))
    return Stream(key, jax.tree.map(choose, fresh.state, stream.state)), observations


def is_key(leaf: Any) -> bool:
    """Tell whether a leaf of a state is a typed key of JAX."""
    return hasattr(leaf, "dtype") and bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def stored(leaf: Any) -> NDArray[Any]:
    """Return a leaf of a state as an array of NumPy; of a typed key its data."""
    return np.array(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def refuse_broken(environment: CompiledEnvironment, step: CompiledStep, task_name: str) -> None:
    """Raise where a reward is not a number: the only way in which compiled code can report a failure."""
    broken = np.flatnonzero(~np.isfinite(np.asarray(step.reward)))
    if broken.size:
        member = jax.tree.map(lambda leaf: stored(leaf)[broken[0]], step.state.state)
        reason = NOT_FINITE
        if isinstance(environment, ExplainsFailure):
            reason = environment.explain_failure(member)
        raise SimulationError(
            f"{task_name}: environment {broken[0]} of {len(np.asarray(step.reward))} failed: {reason}. "
            "Nothing was advanced; correct the environment, or reset it, and report the action if it was feasible."
        )


def refuse_unreadable(observations: NDArray[np.floating], task_name: str) -> None:
    """Raise where an episode begins with an observation that is not a number."""
    broken = np.flatnonzero(~np.isfinite(observations).all(axis=-1))
    if broken.size:
        raise SimulationError(
            f"{task_name}: the first observation of environment {broken[0]} of {len(observations)} holds a value that "
            f"is not a finite number. Correct the environment's reset."
        )


class CompiledGymnasium(gymnasium.Env[NDArray[np.float64], Any]):
    """One compiled environment behind Gymnasium's interface, still without its guard (see `GuardedGymnasium`)."""

    def __init__(
        self,
        environment: CompiledEnvironment,
        *,
        action_low: NDArray[np.float32],
        action_high: NDArray[np.float32],
        task_name: str,
        draw: Draw | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Wrap `environment`; `draw` makes the pictures of `render_mode="rgb_array"`."""
        require_render_mode(render_mode, task_name)
        if render_mode is not None and draw is None:
            raise ConfigurationError(f"{task_name} has no drawing; make it with render_mode=None.")
        self.metadata = {"render_modes": ["rgb_array"] if draw else [], "render_fps": 10}
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Box(action_low, action_high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, (environment.observation_size,), dtype=np.float64
        )
        self._environment = environment
        self._task_name = task_name
        self._draw = draw
        self._stream: Stream | None = None
        self._last_action = np.zeros(environment.action_size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode: from `seed`, or from where this environment's own stream has arrived."""
        super().reset(seed=seed)
        if seed is None and self._stream is None:
            seed = int(self.np_random.integers(2**63))
        keys = self._stream.key if seed is None and self._stream is not None else keys_of([cast(int, seed)])
        self._stream, observations = begin(self._environment, keys)
        refuse_unreadable(np.asarray(observations), self._task_name)
        self._last_action = np.zeros(self._environment.action_size)
        return np.asarray(observations[0], dtype=np.float64), {}

    def step(
        self, action: NDArray[np.floating]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one decision."""
        if self._stream is None:
            raise InvalidInputError(f"{self._task_name}: step came before reset; call reset(seed=...) first.")
        step = advance(self._environment, self._stream, jax.numpy.asarray(action, dtype=np.float32)[None])
        refuse_broken(self._environment, step, self._task_name)
        self._stream = step.state
        self._last_action = np.asarray(action, dtype=np.float64)
        observation = np.asarray(step.observation[0], dtype=np.float64)
        return observation, float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), {}

    @property
    def state(self) -> Any:
        """The compiled state of this one environment, as numpy arrays."""
        if self._stream is None:
            raise InvalidInputError(f"{self._task_name} has no state yet; call reset(seed=...) first.")
        return jax.tree.map(lambda leaf: stored(leaf)[0], self._stream.state)

    def render(self) -> NDArray[np.uint8] | None:
        """Return the picture of the current state, or None without a render mode."""
        if self.render_mode is None or self._draw is None:
            return None
        return self._draw(self.state, self._last_action)


class GuardedGymnasium(CompiledGymnasium):
    """A compiled environment with the guard inside, so that `env.unwrapped` refuses what `env` refuses."""

    def __init__(
        self,
        environment: CompiledEnvironment,
        constraint: Constraint,
        *,
        action_low: NDArray[np.float32],
        action_high: NDArray[np.float32],
        task_name: str,
        draw: Draw | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Wrap `environment`; only actions in `constraint` and in the box pass."""
        super().__init__(
            environment,
            action_low=action_low,
            action_high=action_high,
            task_name=task_name,
            draw=draw,
            render_mode=render_mode,
        )
        self._episode = EpisodeGuard(
            constraint, self.action_space, self.observation_space, task_name=task_name
        )
        self.guard = self._episode.actions
        self._space = ConstrainedBox(self.guard.constraint, action_low, action_high)
        self.action_space = self._space

    def __str__(self) -> str:
        """Show the task and its set."""
        return f"<{self.guard.task_name}: {self.guard.constraint.formula()}>"

    __repr__ = __str__

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode: from `seed`, or from where this environment's own stream has arrived."""
        self._episode.leave()
        observation, info = super().reset(seed=seed, options=options)
        self._stand_at(observation, None)
        return observation, info

    def step(
        self, action: NDArray[np.floating]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one decision; an infeasible one raises before anything moves."""
        executed, answer = self._episode.step(super().step, action)
        observation, reward, terminated, truncated, info = answer
        self._stand_at(observation, executed)
        return observation, reward, terminated, truncated, info

    def _stand_at(self, observation: NDArray[np.float64], executed: NDArray[np.floating] | None) -> None:
        self._episode.stand_at(observation, executed)
        self._space.move_to(observation, self._episode.previous_action)


class CompiledBatch:
    """A batch of one compiled environment on the host, with the guard inside and same-step autoreset."""

    def __init__(
        self, environment: CompiledEnvironment, constraint: Constraint, count: int, *, task_name: str
    ) -> None:
        """Hold `count` copies of `environment`; nothing runs before `reset`."""
        if count < 1:
            raise ConfigurationError(
                f"{task_name}: a batch of {count} environments is empty; ask for 1 or more."
            )
        self.count = count
        self._environment = environment
        self.guard = ActionGuard(
            constraint, environment.action_size, task_name=task_name, executed_as=np.float32
        )
        self._task_name = task_name
        self._stream: Stream | None = None
        self._observation = np.zeros((count, environment.observation_size))
        self._previous_action = np.zeros((count, environment.action_size))

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed."""
        if len(seeds) != self.count:
            raise InvalidInputError(
                f"{self._task_name}: {len(seeds)} seeds for {self.count} environments; give one seed each."
            )
        self._stream, observations = begin(self._environment, keys_of(seeds))
        refuse_unreadable(np.asarray(observations), self._task_name)
        self._observation = np.array(observations, dtype=np.float64)
        self._previous_action = np.zeros_like(self._previous_action)
        return self._observation.copy()

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one feasible action to each environment."""
        if self._stream is None:
            raise InvalidInputError(f"{self._task_name}: step came before reset; call reset(seeds) first.")
        executed = self.guard.admit(self._observation, actions, self._previous_action)
        step = advance(self._environment, self._stream, jax.numpy.asarray(executed))
        refuse_broken(self._environment, step, self._task_name)
        final = np.array(step.observation, dtype=np.float64)
        terminated, truncated = np.array(step.terminated), np.array(step.truncated)
        ended = terminated | truncated
        self._stream, following = step.state, final
        self._previous_action = np.where(ended[:, None], 0.0, executed.astype(np.float64))
        if ended.any():
            self._stream, first = renew(self._environment, self._stream, jax.numpy.asarray(ended))
            following = np.where(ended[:, None], np.asarray(first, dtype=np.float64), final)
            refuse_unreadable(following, self._task_name)
        self._observation = following
        return Step(following.copy(), final, np.array(step.reward, dtype=np.float64), terminated, truncated)

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Return states, keys, last observations and last actions under the names of their fields."""
        if self._stream is None:
            raise InvalidInputError(f"{self._task_name}: nothing to save yet; call reset(seeds) first.")
        paths, _ = jax.tree_util.tree_flatten_with_path(self._stream.state)
        saved: dict[str, NDArray[np.generic]] = {
            "state" + jax.tree_util.keystr(path): stored(leaf) for path, leaf in paths
        }
        saved["key"] = np.array(jax.random.key_data(self._stream.key))
        saved["observation"] = self._observation.copy()
        saved["previous_action"] = self._previous_action.copy()
        return saved

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Go back to what `save` returned; the continuation is the same to the last bit."""
        template, _ = jax.eval_shape(partial(begin, self._environment), keys_of([0] * self.count))
        paths, structure = jax.tree_util.tree_flatten_with_path(template.state)
        leaves = []
        for path, leaf in paths:
            name = "state" + jax.tree_util.keystr(path)
            wanted = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
            if name not in saved or np.shape(saved[name]) != wanted.shape:
                met = f"shape {np.shape(saved[name])}" if name in saved else "nothing"
                raise CheckpointError(
                    f"{self._task_name}: the saved environments hold {met} for {name}, expected shape "
                    f"{wanted.shape}; restore into a batch of the same task and the same count ({self.count})."
                )
            array = jax.numpy.asarray(saved[name], dtype=wanted.dtype)
            leaves.append(wrap(array) if is_key(leaf) else array)
        key = wrap(np.asarray(saved["key"], dtype=np.uint32))
        self._stream = Stream(key, jax.tree_util.tree_unflatten(structure, leaves))
        self._observation = np.array(saved["observation"], dtype=np.float64)
        self._previous_action = np.array(saved["previous_action"], dtype=np.float64)

    def close(self) -> None:
        """Release nothing: compiled environments hold no threads and no files."""


def task_of_compiled(
    environment: CompiledEnvironment,
    constraint: Constraint,
    *,
    name: str,
    action_low: NDArray[np.float32],
    action_high: NDArray[np.float32],
    draw: Draw | None = None,
    **others: Any,
) -> Task:
    """Return the task of a compiled environment; `others` are the fields of `Task` that do not follow from it."""

    def host(count: int, threads: int) -> HostEnvironments:
        """Make a batch; `threads` is not used, because XLA decides how many it takes."""
        return CompiledBatch(environment, constraint, count, task_name=name)

    return AssembledTask(
        name=name,
        constraint=constraint,
        observation_size=environment.observation_size,
        action_low=action_low,
        action_high=action_high,
        horizon=environment.horizon,
        host=host,
        compiled=lambda: environment,
        make_environment=partial(
            GuardedGymnasium,
            environment,
            constraint,
            action_low=action_low,
            action_high=action_high,
            task_name=name,
            draw=draw,
        ),
        **others,
    )
