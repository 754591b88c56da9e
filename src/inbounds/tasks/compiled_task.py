"""From an environment of pure JAX functions and a constraint to a task: our protocol, Brax, Playground, gymnax.

Training steps such a task on the device, without copying anything between host and device in a loop. The packages
themselves are never imported here: an adapter only calls `reset` and `step` of the object that it is given.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from inbounds.constraints import Box, Constraint
from inbounds.errors import ConfigurationError
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.environment import (
    CompiledEnvironment,
    CompiledStep,
    WatchedEnvironment,
    refuse_other_shapes,
    refuse_wrapped,
    require_protocol,
    wrapped_layers,
)
from inbounds.tasks.fitting import bounds_of_entries, first_action, named_sizes_of
from inbounds.tasks.gymnasium_group import Interface
from inbounds.tasks.gymnasium_task import (
    CONTINUOUS_ONLY,
    action_bounds,
    declared_limits,
    entry_names,
    is_plain_box,
    refuse_misfit,
    sensible_start,
    with_places,
)
from inbounds.tasks.named_parts import Flattening, Part, flattening_of_space, reads_previous_action
from inbounds.tasks.registry import TASKS
from inbounds.tasks.task import Task, require_reward_scale, require_task_name

if TYPE_CHECKING:
    Observe = Callable[[Any], jax.Array | Mapping[str, jax.Array]]

OBSERVED = "observed"
"""The part of an observation that holds what `observe` returns, unless it returns names."""


def from_compiled(
    environment: CompiledEnvironment,
    constraint: Constraint | None = None,
    *,
    action_low: Any = -1.0,
    action_high: Any = 1.0,
    name: str | None = None,
    reward_divisor: float = 1.0,
    reward_shift: float = 0.0,
    first_previous_action: Any = None,
    ends_only_in_failure: bool = False,
    reference_action: Any = None,
) -> Task:
    """Return the task of an environment that is written as pure JAX functions (`ib.CompiledEnvironment`).

    Acting, stepping, checking by acceptance, remembering and learning are then one compiled program. After every chunk
    of at most 50 steps the host checks each executed action in float64, and `task.make_environment()` refuses
    infeasible ones.

    Args:
        environment: an object with `reset(key)` and `step(state, action, key)`; see `ib.CompiledEnvironment`. An
            attribute `observation_parts`, names and sizes, lets constraints read `ib.obs["name"]`.
        constraint: the set C(s); the box of the actions is added to it.
        action_low: least value of every entry of an action, one number or one for each.
        action_high: largest value of every entry.
        name: what runs are called, not the name of one of our tasks; by default the name of the class.
        reward_divisor: see `ib.Task`.
        reward_shift: see `ib.Task`.
        first_previous_action: see `ib.Task`.
        ends_only_in_failure: see `ib.Task`.
        reference_action: see `ib.Task`.
    """
    task_name = require_task_name(type(environment).__name__ if name is None else name)
    require_reward_scale(reward_divisor, reward_shift, ends_only_in_failure)
    require_protocol(environment, task_name)
    low, high = bounds_of_entries(action_low, action_high, environment.action_size, task_name)
    space = gymnasium.spaces.Box(low, high, dtype=np.float32)
    parts = named_sizes_of(environment, task_name)
    observations = Flattening(
        "observation", tuple(Part(part, (part,), (n,), np.dtype(np.float32)) for part, n in parts)
    )
    actions = flattening_of_space("action", space, CONTINUOUS_ONLY)
    limits = declared_limits(constraint, None, {}, task_name)
    bounds = action_bounds(limits, space, actions, task_name)
    members = () if limits is None else limits.members()
    first = None
    if limits is not None and reads_previous_action(limits):
        first = first_action(first_previous_action, bounds.low, bounds.high, task_name)
    own = environment.own_size if isinstance(environment, Adapted) else None
    interface = Interface(observations, actions, None, first, own)
    box = Box(bounds.low.astype(np.float64), bounds.high.astype(np.float64))
    others = [with_places(member, interface) for member in members if not is_plain_box(member)]
    joint = functools.reduce(operator.and_, [*others, box])
    refuse_misfit(joint, interface, task_name)
    stepped: CompiledEnvironment = WatchedEnvironment(environment, first)
    refuse_other_shapes(stepped, task_name)

    return task_of_compiled(
        stepped,
        joint,
        name=task_name,
        action_low=bounds.low,
        action_high=bounds.high,
        reward_divisor=float(reward_divisor),
        reward_shift=float(reward_shift),
        source="a compiled environment of the user",
        environment_id="",
        observation_names=entry_names(interface.observation_parts),
        action_names=entry_names(actions.named_sizes()),
        observation_parts=interface.observation_parts,
        ends_only_in_failure=ends_only_in_failure,
        is_reward_scaled=(reward_divisor, reward_shift) != (1.0, 0.0),
        reference_action=sensible_start(reference_action, interface, bounds, task_name),
    )


def from_brax(
    env: Any,
    constraint: Constraint | None = None,
    *,
    observe: Observe | None = None,
    observation: str | None = None,
    horizon: int = 1000,
    **options: Any,
) -> Task:
    """Return the task of a Brax environment, `brax.envs.get_environment(name)`, without any wrapper of training.

    Brax's `done` is a termination; the task itself counts steps and cuts episodes at `horizon`, as a truncation. The
    last transition of an episode keeps the observation that its action led to.

    Args:
        env: the bare environment. Actions are those of its `step`, in [-1, 1] by Brax's convention.
        constraint: the set C(s), read from the observation with `ib.obs[...]`.
        observe: from a Brax `State` to numbers that are appended to the observation, where the constraint depends on
            more than it holds: `lambda state: {"speed": state.pipeline_state.qd[1:]}`, read with `ib.obs["speed"]`. An
            array without a name is read with `ib.obs["observed"]`.
        observation: which entry the policy sees, for environments whose observation is a dictionary.
        horizon: steps after which an episode is cut.
        options: the other arguments of `ib.from_compiled`: action_low, action_high, reward_divisor, ..., and name, by
            default that of the class inside all wrappers, "brax-ant" where one of our tasks is called "ant".
    """
    return _from_states("brax", env, constraint, observe, observation, horizon, options)


def from_mjx(
    env: Any,
    constraint: Constraint | None = None,
    *,
    observe: Observe | None = None,
    observation: str | None = None,
    horizon: int | None = None,
    **options: Any,
) -> Task:
    """Return the task of a MuJoCo Playground environment, `mujoco_playground.registry.load(name)`.

    `observe` reads joint velocities from `state.data`: `lambda state: {"speed": state.data.qvel[6:]}`. The arguments
    are those of `ib.from_brax`, with one difference:

    Args:
        env: the environment as it was loaded, not wrapped for training.
        constraint: see `ib.from_brax`.
        observe: see `ib.from_brax`.
        observation: see `ib.from_brax`; often "state".
        horizon: steps after which an episode is cut; by default the `episode_length` of the environment's config.
        options: the other arguments of `ib.from_compiled`; see `ib.from_brax`. Names begin with "playground-" there.
    """
    steps = getattr(getattr(env, "_config", None), "episode_length", None) if horizon is None else horizon
    return _from_states("playground", env, constraint, observe, observation, steps, options)


def from_gymnax(
    env: Any,
    params: Any = None,
    constraint: Constraint | None = None,
    *,
    observe: Observe | None = None,
    horizon: int | None = None,
    **options: Any,
) -> Task:
    """Return the task of a gymnax environment with continuous actions: `from_gymnax(*gymnax.make(name), constraint)`.

    The adapter calls `step_env`, which does not reset, so that the last transition keeps its own observation. An end
    that only `params.max_steps_in_episode` brings about is a truncation.

    Args:
        env: the environment.
        params: its parameters; by default `env.default_params`.
        constraint: the set C(s), read from the observation with `ib.obs[...]`.
        observe: from a state of the environment to numbers that are appended to the observation.
        horizon: steps after which an episode is cut; by default `params.max_steps_in_episode`.
        options: the other arguments of `ib.from_compiled`. The bounds of actions are those of the action space.
    """
    chosen = env.default_params if params is None else params
    space, name = env.action_space(chosen), options.pop("name", None) or _own_name(str(env.name), "gymnax")
    if not (hasattr(space, "low") and hasattr(space, "high")):
        raise ConfigurationError(
            f"{name}: the action space is {type(space).__name__}, and a choice among a few actions has no set of real "
            f"numbers to respect. Use an environment with continuous actions, such as Pendulum-v1."
        )
    shape = tuple(space.shape)
    low, high = (np.ravel(np.broadcast_to(np.asarray(side), shape)) for side in (space.low, space.high))
    limit = getattr(chosen, "max_steps_in_episode", None)
    known = [int(steps) for steps in (horizon, limit) if steps is not None]
    functions = GymnaxFunctions(env, chosen, shape, limit is not None)
    adapted = Adapted(functions, observe, None, len(low), min(known, default=None), name)
    return from_compiled(
        adapted, constraint, **{"action_low": low, "action_high": high, "name": name, **options}
    )


def _own_name(called: str, package: str) -> str:
    """Return the name of a task that its user did not name: never that of one of ours, on which its runs would play."""
    return f"{package}-{called}" if called.lower() in TASKS else called


def _from_states(
    package: str,
    env: Any,
    constraint: Constraint | None,
    observe: Observe | None,
    observation: str | None,
    horizon: int | None,
    options: dict[str, Any],
) -> Task:
    *_, innermost = wrapped_layers(env)
    name = options.pop("name", None) or _own_name(type(innermost).__name__.lower(), package)
    refuse_wrapped(env, name)
    adapted = Adapted(BraxFunctions(env), observe, observation, int(env.action_size), horizon, name)
    return from_compiled(adapted, constraint, name=name, **options)


class Moved(NamedTuple):
    """What another package's environment answers: its state, what it shows, and whether the episode is over."""

    state: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any


@dataclasses.dataclass(frozen=True, eq=False)
class BraxFunctions:
    """`reset` and `step` of Brax and MuJoCo Playground: randomness and rewards are part of the state."""

    env: Any

    def reset(self, key: jax.Array) -> Moved:
        """Begin an episode."""
        return self._moved(self.env.reset(key))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Moved:
        """Advance; `key` is not used, because what is random follows from the state."""
        return self._moved(self.env.step(state, action))

    def _moved(self, state: Any) -> Moved:
        return Moved(state, state.obs, state.reward, state.done, False)


@dataclasses.dataclass(frozen=True, eq=False)
class GymnaxFunctions:
    """`reset_env` and `step_env` of gymnax, with the end of time told apart from other ends."""

    env: Any
    params: Any
    action_shape: tuple[int, ...]
    has_limit: bool

    def reset(self, key: jax.Array) -> Moved:
        """Begin an episode."""
        observation, state = self.env.reset_env(key, self.params)
        return Moved(state, observation, 0.0, False, False)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Moved:
        """Advance without the reset that gymnax's own `step` adds."""
        observation, after, reward, done, _ = self.env.step_env(
            key, state, action.reshape(self.action_shape), self.params
        )
        terminated = done
        if self.has_limit:
            endless = self.params.replace(max_steps_in_episode=np.iinfo(np.int32).max)
            terminated = self.env.is_terminal(after, endless)
        return Moved(after, observation, reward, terminated, done)


class Adapted:
    """Another package's environment by our protocol; `WatchedEnvironment` counts its time limit."""

    def __init__(
        self,
        functions: BraxFunctions | GymnaxFunctions,
        observe: Observe | None,
        entry: str | None,
        action_size: int,
        horizon: int | None,
        name: str,
    ) -> None:
        """Ask for one reset without running it, and lay out the observation."""
        if horizon is None:
            raise ConfigurationError(
                f"{name}: the environment does not say after how many steps an episode is cut. Pass horizon=..."
            )
        self.action_size, self.horizon = action_size, horizon
        self._functions, self._observe, self._entry, self._name = functions, observe, entry, name
        began = jax.eval_shape(
            lambda key: self._seen(self._functions.reset(jax.random.key_data(key))), jax.random.key(0)
        )
        self.observation_parts = tuple((part, int(np.prod(seen.shape))) for part, seen in began.items())
        self.own_size = self.observation_parts[0][1]  # `observe` appends the rest
        self.observation_size = sum(size for _, size in self.observation_parts)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Begin an episode; packages keep keys in their states, and files hold them only as words."""
        began = self._functions.reset(jax.random.key_data(key))
        inner = jax.tree.map(jnp.asarray, began.state)  # gymnax counts time from a Python number
        return inner, self._vector(began)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Advance by one decision."""
        moved = self._functions.step(state, action, jax.random.key_data(key))
        structure, before = (str(jax.tree.structure(tree)) for tree in (moved.state, state))
        if structure != before:
            raise ConfigurationError(
                f"{self._name}: step returns a state of other parts ({structure}) than reset ({before}), which no "
                f"compiled loop can carry. Let reset return the same entries of info and metrics."
            )
        inner = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), moved.state, state)
        reward = jnp.asarray(moved.reward, jnp.float32).reshape(())
        terminated = jnp.asarray(moved.terminated).astype(bool).reshape(())
        is_cut = jnp.asarray(moved.truncated).astype(bool).reshape(())
        return CompiledStep(inner, self._vector(moved), reward, terminated, is_cut & ~terminated)

    def explain_failure(self, state: Any) -> str:
        """Say what a reward that is not a number stands for."""
        return "the simulation holds values that are not finite numbers"

    def _seen(self, moved: Moved) -> OrderedDict[str, jax.Array]:
        whole = moved.observation
        if isinstance(whole, Mapping):
            if self._entry not in whole:
                raise ConfigurationError(
                    f"{self._name}: an observation is a dictionary of {', '.join(map(str, whole))}, but a policy sees "
                    f"one vector. Name the entry that it sees, observation='{next(iter(whole))}', and append others "
                    f"with observe=lambda state: ..."
                )
            whole = whole[self._entry]
        elif self._entry is not None:
            raise ConfigurationError(
                f"{self._name}: observation={self._entry!r} names an entry, but observations are one array. Omit it."
            )
        parts = {"observation": whole}
        if self._observe is not None:
            more = self._observe(moved.state)
            parts |= dict(more) if isinstance(more, Mapping) else {OBSERVED: more}
        return OrderedDict((part, jnp.asarray(seen)) for part, seen in parts.items())  # JAX sorts plain ones

    def _vector(self, moved: Moved) -> jax.Array:
        return jnp.concatenate([jnp.ravel(seen).astype(jnp.float32) for seen in self._seen(moved).values()])
