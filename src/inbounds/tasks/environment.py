"""What training steps, a batch of environments on the host or one of pure JAX functions, and how policies play them.

Every loop over episodes outside of training is one of the generators below.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError
from inbounds.limits import is_whole

if TYPE_CHECKING:
    import jax


class Step(NamedTuple):
    """One step of a batch; every array has the batch as its leading axis."""

    observation: NDArray[np.float64]
    """What to act on next: where an episode ended, the first observation of the next one."""
    final_observation: NDArray[np.float64]
    """The successor state of this very transition, before any reset."""
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    """The episode ended for good: no value follows."""
    truncated: NDArray[np.bool_]
    """The time limit cut the episode: the value of the successor still counts."""


class HostEnvironments(Protocol):
    """A batch of environments with same-step autoreset and the guard inside."""

    count: int

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed and return the first observations."""
        ...

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action to each environment; an infeasible one raises before anything moves."""
        ...

    def save(self) -> dict[str, NDArray[np.generic]] | None:
        """Return the complete state, generators included, or None where it cannot be had."""
        ...

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Go back to a state that `save` returned."""
        ...

    def close(self) -> None:
        """Release threads, processes and what the environments hold; nothing else may be called afterwards."""
        ...


class CompiledStep(NamedTuple):
    """One step of one compiled environment; the caller adds batches by `vmap`."""

    state: Any
    """What the next step starts from: the same arrays, of the same shapes and types, as those that `reset` returned."""
    observation: jax.Array
    """Where the action led, a vector of float32; also in the last step of an episode."""
    reward: jax.Array
    """One number; one that is not finite reports that the simulation failed, and is refused."""
    terminated: jax.Array
    """The episode ended for good: no value follows."""
    truncated: jax.Array
    """The time limit cut the episode: the value of the successor still counts."""


class CompiledEnvironment(Protocol):
    """An environment of two pure JAX functions over one state; no reset happens inside `step`.

    Any object with these members is one. It describes a single environment: batches and seeds are added by `jax.vmap`,
    resets by the caller. `ib.from_compiled` makes a task of it.
    """

    observation_size: int
    """Entries of an observation, which is a vector of float32."""
    action_size: int
    """Entries of an action, which is a vector of float32."""
    horizon: int
    """Steps after which `step` says that the episode is truncated."""

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Return a fresh state and its observation, drawn from `key` alone."""
        ...

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Advance by one decision; all randomness comes from `key`."""
        ...


@runtime_checkable
class ExplainsFailure(Protocol):
    """A compiled environment that can say why its simulation failed."""

    def explain_failure(self, state: Any) -> str:
        """Return the reason, from the state (numpy arrays) of the step whose reward was not finite."""
        ...


@runtime_checkable
class NamesParts(Protocol):
    """A compiled environment that names the parts of its observation, so that constraints read `ib.obs["name"]`."""

    observation_parts: Sequence[tuple[str, int]]
    """Names and sizes, in their order."""


NOT_FINITE = "its reward or its observation is not a finite number"


class WatchedState(NamedTuple):
    """The state of the environment itself, and how many steps its episode has taken."""

    inner: Any
    steps: jax.Array


class WatchedEnvironment:
    """A user's compiled environment as it is stepped, perhaps with the action executed last behind its observation.

    Its reward is not a number where its observation is not: otherwise nobody would look at the last observation of an
    episode, and learners would diverge on it. Its episodes are cut at the horizon, also where `step` does not say so:
    evaluations play no further, and training must not either.
    """

    def __init__(self, environment: CompiledEnvironment, first: NDArray[np.float64] | None = None) -> None:
        """Watch `environment`; with `first`, every episode begins with it as the action executed last."""
        self.environment, self.first = environment, first
        self.action_size, self.horizon = environment.action_size, environment.horizon
        self.observation_size = environment.observation_size + (0 if first is None else self.action_size)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Begin an episode."""
        import jax.numpy as jnp

        state, observation = require_began(self.environment.reset(key))
        return WatchedState(state, jnp.zeros((), jnp.int32)), self._shown(observation, self.first)

    def step(self, state: WatchedState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Advance by one decision."""
        import jax.numpy as jnp

        step, steps = require_stepped(self.environment.step(state.inner, action, key)), state.steps + 1
        reward = jnp.where(jnp.isfinite(step.observation).all(), step.reward, jnp.nan)
        return CompiledStep(
            WatchedState(step.state, steps),
            self._shown(step.observation, action),
            reward,
            step.terminated,
            step.truncated | ((steps >= self.horizon) & ~step.terminated),
        )

    def explain_failure(self, state: WatchedState) -> str:
        """Return what a reward that is not a number stands for, in the environment's words where it has any."""
        if isinstance(self.environment, ExplainsFailure):
            reason = self.environment.explain_failure(state.inner)
        else:
            reason = NOT_FINITE
        return f"{reason} after {int(state.steps)} steps"

    def _shown(self, observation: jax.Array, action: Any) -> jax.Array:
        import jax.numpy as jnp

        return (
            observation if self.first is None else jnp.append(observation, jnp.asarray(action, jnp.float32))
        )


def require_began(answer: Any) -> tuple[Any, Any]:
    """Return what `reset` answered, if it is a state and a vector of real numbers."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise ConfigurationError(
            f"reset of a compiled environment returned {type(answer).__name__}, but a state and its observation are "
            f"expected. Let it end with: return state, observation."
        )
    _require_kinds("reset", ("observation", answer[1], "fiub", "real numbers"))
    return answer


def require_stepped(step: Any) -> CompiledStep:
    """Return what `step` answered, if it is an `ib.CompiledStep` of real numbers and flags."""
    if not isinstance(step, CompiledStep):
        raise ConfigurationError(
            f"step of a compiled environment returned {type(step).__name__}, but an ib.CompiledStep is expected. Let "
            f"it end with: return ib.CompiledStep(state, observation, reward, terminated, truncated)."
        )
    numbers = ((name, getattr(step, name), "fiub", "real numbers") for name in ("observation", "reward"))
    flags = ((name, getattr(step, name), "b", "True or False") for name in ("terminated", "truncated"))
    _require_kinds("step", *numbers, *flags)
    return step


def _require_kinds(function: str, *fields: tuple[str, Any, str, str]) -> None:
    import jax.numpy as jnp

    for name, value, kinds, expected in fields:
        met = type(value).__name__
        if hasattr(value, "dtype") or isinstance(value, bool | int | float | complex):
            met = str(jnp.result_type(value))
            if jnp.zeros((), met).dtype.kind in kinds:
                continue
        raise ConfigurationError(
            f"{function} of a compiled environment returned {met} as {name}, but an array of {expected} is expected. "
            f"Convert it there, with jnp.asarray(..., {'bool' if kinds == 'b' else 'jnp.float32'})."
        )


BATCHING = ("VmapWrapper", "DomainRandomizationVmapWrapper", "BraxDomainRandomizationVmapWrapper")
CUTTING = ("EpisodeWrapper", "AutoResetWrapper", "BraxAutoResetWrapper")
"""Wrappers of Brax and MuJoCo Playground, by the names of their classes: neither package is imported."""


def refuse_wrapped(env: Any, task_name: str) -> None:
    """Refuse an environment that resets, cuts or batches itself: final observations would be lost."""
    for layer in wrapped_layers(env):
        kind = type(layer).__name__
        if kind in (*BATCHING, *CUTTING):
            does = "steps a batch" if kind in BATCHING else "cuts or resets episodes"
            raise ConfigurationError(
                f"{task_name}: {kind} {does}, which the task does itself, so that no final observation is lost. Pass "
                f"the bare environment, brax.envs.get_environment(name) or mujoco_playground.registry.load(name), and "
                f"horizon=..."
            )


def wrapped_layers(env: Any) -> Iterator[Any]:
    """Yield an environment of another package and all that is inside its wrappers."""
    yield env
    while (env := getattr(env, "__dict__", {}).get("env")) is not None:
        yield env


def require_horizon(horizon: Any, task_name: str) -> None:
    """Refuse what is not a number of steps."""
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or horizon < 1:
        raise ConfigurationError(
            f"{task_name}: horizon={horizon!r} is not a number of steps. Pass a whole number, such as horizon=200."
        )


def require_render_mode(render_mode: str | None, task_name: str) -> None:
    """Refuse a render mode that tasks do not have."""
    if render_mode not in (None, "rgb_array"):
        raise ConfigurationError(
            f"{task_name}: render_mode={render_mode!r} is unknown; use 'rgb_array', or None for no pictures."
        )


def require_protocol(environment: Any, task_name: str) -> None:
    """Refuse an object that does not have the members of a `CompiledEnvironment`."""
    missing = [
        name
        for name in ("observation_size", "action_size", "horizon", "reset", "step")
        if not hasattr(environment, name)
    ]
    if missing:
        raise ConfigurationError(
            f"{task_name}: the environment has no {' and no '.join(missing)}. Pass an object with the members of "
            f"ib.CompiledEnvironment; ib.Task takes Gymnasium environments."
        )
    require_horizon(environment.horizon, task_name)
    for name in ("observation_size", "action_size"):
        size = getattr(environment, name)
        if not is_whole(size, 1):
            raise ConfigurationError(
                f"{task_name}: {name}={size!r} is not a number of entries. Set a whole number of 1 or more."
            )


def refuse_other_shapes(environment: CompiledEnvironment, task_name: str) -> None:
    """Trace one reset and one step, without running them, and refuse what a compiled loop could not carry."""
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    state, seen = jax.eval_shape(environment.reset, key)
    action = jax.ShapeDtypeStruct((environment.action_size,), jnp.float32)
    step = jax.eval_shape(environment.step, state, action, key)
    expected = {
        "observation": (environment.observation_size,),
        "reward": (),
        "terminated": (),
        "truncated": (),
    }
    for where, shape, met in (
        ("reset's observation", expected["observation"], seen.shape),
        *((f"step's {field}", shape, getattr(step, field).shape) for field, shape in expected.items()),
    ):
        if met != shape:
            raise ConfigurationError(
                f"{task_name}: {where} has shape {met}, expected {shape}. Return arrays of one environment: "
                f"batches are added by jax.vmap."
            )
    before, after = (
        [
            (jax.tree_util.keystr(path), leaf.shape, leaf.dtype)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        ]
        for tree in (state, step.state)
    )
    changed = sorted(set(before) ^ set(after), key=str)
    if changed:
        raise ConfigurationError(
            f"{task_name}: step's state differs from reset's in {changed[0]}. Let both return the same arrays, of the "
            f"same shapes and types."
        )


# Playing -------------------------------------------------------------------------------------------------------------

Act = Callable[[NDArray[Any]], Any]
"""From an observation, or a batch of them, to an action, or one for each."""


class RolloutStep(NamedTuple):
    """One step of one environment."""

    observation: NDArray[np.float64]
    """What the policy saw."""
    action: Any
    next_observation: NDArray[np.float64]
    """Where the action led, also at the end of an episode."""
    reward: float
    terminated: bool
    truncated: bool

    @property
    def is_last(self) -> bool:
        """Tell whether the episode ended with this step."""
        return self.terminated or self.truncated


def rollout(
    environment: gymnasium.Env[Any, Any], act: Act, observation: NDArray[np.float64]
) -> Iterator[RolloutStep]:
    """Play from the observation that `reset` returned, episode after episode, for as long as the caller takes steps.

    Nothing happens ahead: the next episode begins, and the policy acts, when the caller takes the next step.
    """
    while True:
        action = act(observation)
        following, reward, terminated, truncated, _ = environment.step(action)
        step = RolloutStep(observation, action, following, float(reward), bool(terminated), bool(truncated))
        yield step
        observation = environment.reset()[0] if step.is_last else following


def episode(
    environment: gymnasium.Env[Any, Any], act: Act, observation: NDArray[np.float64]
) -> Iterator[RolloutStep]:
    """Play from the observation that `reset` returned to the end of the episode."""
    for step in rollout(environment, act, observation):
        yield step
        if step.is_last:
            return


class BatchRolloutStep(NamedTuple):
    """One step of a batch; every array has the batch as its leading axis."""

    observation: NDArray[np.float64]
    """What the policy saw."""
    action: Any
    step: Step
    is_first: NDArray[np.bool_]
    """Whether this was a step of the first episode since `reset`."""


def batch_rollout(
    environments: HostEnvironments, act: Act, observation: NDArray[np.float64], steps: int | None = None
) -> Iterator[BatchRolloutStep]:
    """Play from the observations that `reset` returned: so many steps, or until all first episodes have ended."""
    is_first = np.ones(environments.count, np.bool_)
    for _ in itertools.count() if steps is None else range(steps):
        action = act(observation)
        step = environments.step(action)
        yield BatchRolloutStep(observation, action, step, is_first)
        is_first = is_first & ~(step.terminated | step.truncated)
        if steps is None and not is_first.any():
            return
        observation = step.observation
