"""Gymnasium environments that one process steps one after another, and the sets that they publish."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, InboundsError, SimulationError
from inbounds.tasks.environment import Step
from inbounds.tasks.guard import answer_of_reset, answer_of_step, bounds_of, require_same_space
from inbounds.tasks.named_parts import (
    PREVIOUS_ACTION,
    Flattening,
    flattening_of_value,
    form_of,
    is_same_set,
    numbers_of,
    reading_its_numbers,
)

PUBLISHED = "constraint"
"""The key of `info` under which an environment publishes numbers that its set depends on."""
OWN = "action_constraint"
"""The attribute under which an environment publishes a set that does not change but with the observation."""


@dataclasses.dataclass(frozen=True)
class PublishedNumbers:
    """What `info["constraint"]` held when the task was made, and must hold at every reset and step."""

    numbers: Flattening
    form: tuple[Any, ...] | None
    """What the set was apart from its numbers; None where plain numbers were published."""

    def read(self, info: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the published numbers; other ones than were announced would be limits that nobody keeps."""
        published = info.get(PUBLISHED)
        if published is None:
            raise SimulationError(
                f"the environment published info['{PUBLISHED}'] once and left it out now. Publish it at "
                f"every reset and step."
            )
        is_set = isinstance(published, Constraint)
        if is_set != (self.form is not None) or (is_set and form_of(published) != self.form):
            raise SimulationError(
                f"info['{PUBLISHED}'] is {described(published)} now, another kind than when the task was made: "
                f"{', '.join(part.name for part in self.numbers.parts)}. Publish the same kind of set, with the same "
                f"shapes, at every reset and step; a limit that does not hold now gets a bound that nothing reaches."
            )
        numbers = numbers_of(published) if is_set else published
        found = flattening_of_value(PUBLISHED, numbers)
        if found.named_shapes() != self.numbers.named_shapes():
            raise SimulationError(
                f"info['{PUBLISHED}'] holds {found.listed()} now, but held {self.numbers.listed()} when the task was "
                f"made. Publish the same numbers at every reset and step."
            )
        return self.numbers.flatten(numbers)


def announced(info: Mapping[str, Any]) -> PublishedNumbers | None:
    """Return what an environment publishes at its first reset, if anything."""
    published = info.get(PUBLISHED)
    if published is None:
        return None
    if isinstance(published, Constraint):
        return PublishedNumbers(flattening_of_value(PUBLISHED, numbers_of(published)), form_of(published))
    return PublishedNumbers(flattening_of_value(PUBLISHED, published), None)


def refuse_later_limit(info: Mapping[str, Any]) -> None:
    """Refuse a set that is published although none was when the task was made."""
    if info.get(PUBLISHED) is not None:
        raise SimulationError(
            f"the environment publishes info['{PUBLISHED}'] ({described(info[PUBLISHED])}) now, but did not at its "
            f"first reset, so that the task does not keep it. Publish it at every reset and step."
        )


def moving_set(info: Mapping[str, Any], task_name: str) -> Constraint | None:
    """Return a set that is published, with its numbers read from the observation, where they will stand."""
    moving = info.get(PUBLISHED)
    if not isinstance(moving, Constraint):
        return None
    try:
        return reading_its_numbers(moving, PUBLISHED)
    except InboundsError as error:
        raise ConfigurationError(
            f"{task_name}: the set published as info['{PUBLISHED}'] cannot be followed from step to step "
            f"({error}) Publish the numbers that it depends on, and let a constraint read them by "
            f"ib.obs['{PUBLISHED}']."
        ) from error


def own_set(environment: gymnasium.Env[Any, Any]) -> Any:
    """Return what an environment publishes as its `action_constraint`, or None."""
    return environment.get_wrapper_attr(OWN) if environment.has_wrapper_attr(OWN) else None


def require_same_set(declared: Constraint | None, now: Any, task_name: str) -> None:
    """Refuse an `action_constraint` that is another one than when the task was made."""
    if now is declared or (
        isinstance(now, Constraint) and declared is not None and is_same_set(now, declared)
    ):
        return
    raise SimulationError(
        f"{task_name}: env.{OWN} is {described(now)} now, but was {described(declared)} when the task was made, which "
        f"is the set that it keeps. Publish a set that changes as info['{PUBLISHED}'] at every reset and step."
    )


def described(published: Any) -> str:
    """Write what was published in a few words."""
    if isinstance(published, Constraint):
        return f"the set {published.formula()}"
    text = repr(published)
    return text if len(text) <= 80 else f"{text[:77]}..."


Maker = Callable[[str | None], gymnasium.Env[Any, Any]]
"""From a render mode, or None, to a new environment."""


def maker_of(environment: Any) -> tuple[Maker, str]:
    """Return a function that makes environments for a render mode, and what they are called."""
    if isinstance(environment, str):
        return functools.partial(made_by_name, environment), environment.rsplit(":", 1)[-1].replace("/", "-")
    if isinstance(environment, gymnasium.Env) or not callable(environment):
        raise ConfigurationError(
            f"a task makes environments of its own, so it needs a Gymnasium id or a function that makes one, not "
            f"{environment!r}. Pass for example: lambda: MyEnvironment(...)."
        )
    called = getattr(environment, "__name__", type(environment).__name__)
    name = "environment" if called == "<lambda>" else called.replace("_", "-")
    return functools.partial(_made_by_function, environment), name


def _made_by_function(
    function: Callable[..., gymnasium.Env[Any, Any]], render_mode: str | None
) -> gymnasium.Env[Any, Any]:
    if render_mode is None:
        made = function()
    else:
        require_render_mode(function)
        made = function(render_mode=render_mode)
    if not isinstance(made, gymnasium.Env):
        raise ConfigurationError(
            f"the function returned {made!r}, not a Gymnasium environment. Let it return one (subclass "
            f"gymnasium.Env, or wrap another interface)."
        )
    return made


def require_render_mode(function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be told to draw; one whose arguments Python does not know is tried."""
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if not any(one.name == "render_mode" or one.kind is one.VAR_KEYWORD for one in arguments):
        called = getattr(function, "__name__", repr(function))
        raise ConfigurationError(
            f"{called} takes no render_mode, so that its environments cannot be filmed. Give it that argument and pass "
            f"it on: def {called if called.isidentifier() else 'make'}(render_mode=None): return "
            f"gymnasium.make(..., render_mode=render_mode)."
        )


def made_by_name(
    environment: str, render_mode: str | None, registered: gymnasium.envs.registration.EnvSpec | None = None
) -> gymnasium.Env[Any, Any]:
    """Make an environment by its id, and register it first where only another process did so."""
    if registered is not None and registered.id not in gymnasium.registry:
        if isinstance(registered.entry_point, str):
            # Its package may register the id itself, and Gymnasium warns of an id that is registered twice.
            with contextlib.suppress(ImportError):
                importlib.import_module(registered.entry_point.partition(":")[0])
        gymnasium.registry.setdefault(registered.id, registered)
    try:
        # The checker of Gymnasium warns about what is refused or reported here already.
        # Without a render mode the environment's own default holds: some refuse None, such as those of panda-gym.
        drawing: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        return gymnasium.make(environment, disable_env_checker=True, **drawing)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ConfigurationError(
            f"Gymnasium cannot make '{environment}': {error} Correct the id, install or import the package that "
            f"registers it (as in 'package:Name-v0'), or pass a function that makes the environment."
        ) from error


@dataclasses.dataclass(frozen=True)
class Interface:
    """Between an environment and its task: [flattened observation, published numbers, previous action] <-> parts."""

    observations: Flattening
    actions: Flattening
    published: PublishedNumbers | None
    first_previous_action: NDArray[np.float64] | None
    """None where the constraint does not read the previous action, and the observation does not hold it."""
    own_entries: int | None = None
    """How many of the observations are the environment's own, where an adapter appended others."""

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
    return Began(*answer_of_reset(environment.reset(seed=seed), task_name))


class Moved(NamedTuple):
    """What `step` returned."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


def moved(environment: gymnasium.Env[Any, Any], action: Any, task_name: str) -> Moved:
    """Take one step, in the same way."""
    seen, paid, terminated, truncated, info = answer_of_step(environment.step(action), task_name)
    try:
        reward = float(paid)
    except (TypeError, ValueError) as error:
        raise SimulationError(
            f"{task_name}: the reward {paid!r} is not a number. Let step return float(reward)."
        ) from error
    return Moved(
        seen,
        reward,
        _flag("terminated", terminated, task_name),
        _flag("truncated", truncated, task_name),
        info,
    )


def _flag(name: str, value: Any, task_name: str) -> bool:
    """Return whether an episode ended; text and several flags do not tell."""
    if np.size(value) != 1 or isinstance(value, str | bytes):
        raise SimulationError(
            f"{task_name}: {name} is {value!r}, which is not one flag. Let step return bool({name})."
        )
    return bool(value)


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """All that is needed to make the environments of a batch, in this process or in another one."""

    make: Maker
    interface: Interface
    horizon: int
    """An episode is truncated after this many steps."""
    count: int
    """Environments of the whole batch."""
    task_name: str
    own_limit: Constraint | None = None
    """The set that each environment publishes as its `action_constraint`."""
    render_mode: str | None = None


class Group:
    """The environments `places` of a batch. Actions have passed the guard before they come here.

    Each environment draws its randomness from its own seed: `reset(seeds)` passes it on once, and the episodes that
    follow continue the environment's own generator. An error of an environment has a note with its place in the batch.
    After an error, the environments stand anywhere, and `reset` comes next.
    """

    def __init__(self, plan: GroupPlan, places: Sequence[int]) -> None:
        """Make the environments; nothing moves before `reset`."""
        self.plan = plan
        self.places = places
        self.environments = [plan.make(plan.render_mode) for _ in places]
        self.frame: Any = None
        """Where the last action of the first environment led, if pictures were asked for."""
        self._own_limits: list[Any] = [plan.own_limit] * len(places)
        self._bounds = [bounds_of(environment.action_space) for environment in self.environments]
        self._elapsed = np.zeros(len(places), dtype=np.int64)

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Begin an episode in each environment, from its own seed."""
        return np.stack([self._begin(index, int(seed) % 2**31) for index, seed in enumerate(seeds)])

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action to each environment; those whose episode ended begin the next one."""
        terminated, truncated = np.zeros((2, len(self.environments)), np.bool_)
        reward = np.zeros(len(self.environments))
        seen = []
        for index, environment in enumerate(self.environments):
            try:
                require_same_space(environment.action_space, self._bounds[index], self.plan.task_name)
                action = self.plan.interface.actions.unflatten(actions[index])
                step = moved(environment, action, self.plan.task_name)
                reward[index], terminated[index], truncated[index] = step[1:4]
                seen.append(self._seen(index, step.observation, step.info, actions[index]))
            except Exception as error:
                self._name(error, index)
                raise
        final = np.stack(seen)
        self._require_numbers(final, reward)
        self._elapsed += 1
        truncated |= self._elapsed >= self.plan.horizon
        if self.plan.render_mode is not None:
            self.frame = self.render()
        following = final.copy()
        for ended in np.flatnonzero(terminated | truncated):
            following[ended] = self._begin(int(ended), None)
        return Step(following, final, reward, terminated, truncated)

    def render(self) -> Any:
        """Return the picture that the first environment draws."""
        return self.environments[0].render()

    def close(self) -> None:
        """Close the environments."""
        for environment in self.environments:
            environment.close()

    def _begin(self, index: int, seed: int | None) -> NDArray[np.float64]:
        try:
            episode = begun(self.environments[index], seed, self.plan.task_name)
            self._elapsed[index] = 0
            first = self._seen(index, episode.observation, episode.info)
        except Exception as error:
            self._name(error, index)
            raise
        self._require_numbers(first[None], np.zeros(1), index)
        return first

    def _seen(
        self, index: int, seen: Any, info: Mapping[str, Any], executed: NDArray[np.floating] | None = None
    ) -> NDArray[np.float64]:
        """Return the task's observation; the set that an environment publishes must still be the task's."""
        now = own_set(self.environments[index])
        if now is not self._own_limits[index]:
            require_same_set(self._own_limits[index], now, self.plan.task_name)
            self._own_limits[index] = now
        return self.plan.interface.observe(seen, info, executed)

    def _require_numbers(
        self, observation: NDArray[np.float64], reward: NDArray[np.float64], first: int = 0
    ) -> None:
        """Refuse what is not finite in rows that belong to the environments from `first` on."""
        if np.isfinite(observation).all() and np.isfinite(reward).all():
            return
        is_broken = ~np.isfinite(np.column_stack([observation, reward]))
        row, entry = np.argwhere(is_broken)[0]
        what = f"entry {entry} of the observation" if entry < observation.shape[1] else "the reward"
        error = SimulationError(
            f"{self.plan.task_name}: {what} is not a finite number. Correct the environment, or end the episode "
            f"before that happens."
        )
        self._name(error, first + int(row))
        raise error

    def _name(self, error: Exception, index: int) -> None:
        """Note on an error which environment of several it came from."""
        if self.plan.count > 1:
            error.add_note(f"This is environment {self.places[index]} of {self.plan.count}, counted from 0.")
