"""The guard of one environment: is an action feasible where the environment stands, and what came before it?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.constraints.arrays import require_no_mask
from inbounds.errors import (
    ConfigurationError,
    EmptySetError,
    InfeasibleActionError,
    InvalidInputError,
    SimulationError,
)
from inbounds.tasks.action_guard import ActionGuard as ActionGuard
from inbounds.tasks.action_guard import OnViolation as OnViolation
from inbounds.tasks.fitting import first_action, fitted
from inbounds.tasks.named_parts import reads_previous_action, references_of, vector_of_part
from inbounds.tasks.spaces import ConstrainedBox

Began = tuple[Any, dict[str, Any]]
"""What `reset` returns: observation and info."""
Stepped = tuple[Any, Any, bool, bool, dict[str, Any]]
"""What `step` returns: observation, reward, terminated, truncated and info."""


class EpisodeGuard:
    """The guard of one environment: an `ActionGuard`, and where the environment stands in its episode.

    The set is the constraint together with the box of the action space. It is evaluated at the observation that was
    returned last, with the action that was executed last; both are copies, so that nobody can move the set by
    writing into an array.
    """

    def __init__(
        self,
        constraint: Constraint,
        space: gymnasium.Space[Any],
        observations: gymnasium.Space[Any],
        *,
        task_name: str,
        on_violation: OnViolation = "refuse",
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Guard actions of `space`; an episode begins with `first_previous_action`, or else with zero."""
        self.box, self._observations = require_box(space, task_name), observations
        self.actions = ActionGuard(
            fitted(constraint, self.box, observations, task_name),
            self.box.shape[0],
            task_name=task_name,
            on_violation=on_violation,
            executed_as=self.box.dtype,
        )
        self._first_previous_action = first_action(
            first_previous_action, self.box.low, self.box.high, task_name
        )
        self.previous_action = self._first_previous_action
        self.departures = 0
        """How often the environment was let go: how many steps and resets began."""
        self._bounds = bounds_of(self.box)
        self._observation: NDArray[np.float64] | None = None
        self._problem = "step came before reset"

    def fitted(self, constraint: Constraint) -> Constraint:
        """Return another set together with the box, as that of the guard is; nothing is replaced."""
        return fitted(constraint, self.box, self._observations, self.actions.task_name)

    @property
    def observation(self) -> NDArray[np.float64]:
        """Where the environment stands; an error before it was reset, and after it failed."""
        if self._observation is None:
            raise InvalidInputError(f"{self.actions.task_name}: {self._problem}; call env.reset() first.")
        return self._observation

    def violation(self, action: Any) -> float:
        """Return by how much an action would miss the set if it were executed now."""
        seen, before = self.observation[None], self.previous_action[None]
        executed = self.actions.as_executed(seen, [action], before)
        return float(self.actions.violations(seen, executed, before)[0])

    def step(
        self, execute: Callable[[Any], Any], action: Any, inside: EpisodeGuard | None = None
    ) -> tuple[NDArray[np.floating], Any]:
        """Let an environment execute an action that may pass; return what was executed, and its answer.

        `inside` is the innermost guard further inside. Where that one refuses before it let anything go, such as at
        the first of several repetitions, the environment still stands where it stood.
        """
        standpoint = self.observation
        executed = self.actions.admit(standpoint[None], [action], self.previous_action[None])[0]
        self.leave()
        departures = -1 if inside is None else inside.departures
        try:
            # A copy: what the environment does with its array must not change what counts as executed.
            answer = execute(executed.copy())
        except InfeasibleActionError:
            if inside is not None and inside.departures == departures:
                self._observation = standpoint
            raise
        return executed, answer

    def step_of(self, env: gymnasium.Env[Any, Any], action: Any) -> tuple[NDArray[np.floating], Stepped]:
        """Let a Gymnasium environment execute an action that may pass, if its action space is what it was."""
        name = self.actions.task_name
        require_same_space(env.action_space, self._bounds, name)
        executed, answer = self.step(env.step, action, innermost_guard(env))
        return executed, answer_of_step(answer, name)

    def reset_of(self, env: gymnasium.Env[Any, Any], seed: Any, options: Any) -> Began:
        """Let a Gymnasium environment begin an episode."""
        self.leave()
        return answer_of_reset(env.reset(seed=seed, options=options), self.actions.task_name)

    def stand_at(
        self, observation: NDArray[np.float64], executed: NDArray[np.floating] | None = None
    ) -> None:
        """Remember the observation that was returned last, and the action before it; without one, a beginning."""
        self._observation = np.array(observation, dtype=np.float64)
        self.previous_action = (
            self._first_previous_action if executed is None else executed.astype(np.float64)
        )

    def leave(self) -> None:
        """Forget where the environment stands until it answers: one that raises may have moved."""
        self.departures += 1
        self._observation = None
        self._problem = "the environment raised an error, so that it is unknown where it stands"


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium wrapper that lets only feasible actions through; put it innermost, at the simulator.

    Feasible actions lie in the constraint and in the box of the action space. The constraint is evaluated at the
    observation that was returned last, and with the action that was executed last where it reads that. A constraint
    that the environment publishes as `info["constraint"]` replaces it for the next action alone. The
    action space draws feasible actions at that observation. An environment that raises in `step` must be reset, and
    one whose action space has changed is refused. `gymnasium.wrappers.Autoreset` goes outside.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraint: Constraint,
        *,
        task_name: str = "environment",
        on_violation: OnViolation = "refuse",
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Guard `env`; before the first step of an episode the previous action is `first_previous_action`.

        Where that is not given it is zero, moved into the box of the action space.
        """
        super().__init__(env)
        require_no_autoreset(self)
        require_known_past(env, constraint, type(self).__name__)
        self._guard = EpisodeGuard(
            constraint,
            env.action_space,
            env.observation_space,
            task_name=task_name,
            on_violation=on_violation,
            first_previous_action=first_previous_action,
        )
        box = self._guard.box
        self.constraint = self._guard.actions.constraint
        self._problem: EmptySetError | None = None
        self._space = ConstrainedBox(self.constraint, box.low, box.high, dtype=box.dtype)
        self.action_space = self._space

    @property
    def corrections(self) -> int:
        """How many actions were replaced by their projection."""
        return self._guard.actions.corrections

    @property
    def worst_violation(self) -> float:
        """The largest violation among all actions that arrived."""
        return self._guard.actions.worst_violation

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and remember its first observation."""
        observation, info = self._guard.reset_of(self.env, seed, options)
        self._stand_at(observation, info, None)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute a feasible action; another one is refused or corrected before the environment moves."""
        if self._problem is not None:
            raise self._problem
        executed, answer = self._guard.step_of(self.env, action)
        observation, reward, terminated, truncated, info = answer
        self._stand_at(observation, info, executed)
        return observation, reward, terminated, truncated, info

    def _stand_at(
        self, observation: Any, info: dict[str, Any], executed: NDArray[np.floating] | None
    ) -> None:
        announced, stated = info.get("constraint"), self.constraint
        self._problem = None
        if isinstance(announced, Constraint):
            require_known_past(self.env, announced, type(self).__name__)
            require_one_length(self.env, announced, type(self).__name__)
            try:
                stated = self._guard.fitted(announced)
            except EmptySetError as error:  # an episode may end here, and then nobody asks for an action
                self._problem = error
        self._guard.actions.constraint = self._space.constraint = stated
        self._guard.stand_at(as_numbers(self.env.observation_space, observation), executed)
        self._space.move_to(self._guard.observation, self._guard.previous_action)


def require_box(space: Any, task_name: str) -> Any:
    """Return an action space that can be guarded; refuse others."""
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or space.dtype.kind not in "fiu":
        raise ConfigurationError(
            f"{task_name} needs an action space that is a Box with one axis of real numbers, not {space}; flatten the "
            "actions first (gymnasium.wrappers.TransformAction)."
        )
    return space


def layers_of(env: Any) -> Iterator[Any]:
    """Yield an environment and, if it is a wrapper, all that is inside it."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def innermost_guard(env: gymnasium.Env[Any, Any]) -> EpisodeGuard | None:
    """Return the guard that is nearest to the simulator, through which every step and reset must go."""
    found = None
    for layer in layers_of(env):
        guard = layer.__dict__.get("_guard")
        found = guard if isinstance(guard, EpisodeGuard) else found
    return found


def require_no_autoreset(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
    """Refuse a wrapper inside that resets instead of executing: the action would count as executed all the same."""
    if any(isinstance(layer, gymnasium.wrappers.Autoreset) for layer in layers_of(wrapper)):
        name = type(wrapper).__name__
        raise ConfigurationError(
            f"{name}: Autoreset, further inside, resets where it is told to step, so that it is unknown what was "
            f"executed. Put it outside: gymnasium.wrappers.Autoreset({name}(env, ...))."
        )


class Changer(NamedTuple):
    """A layer that may execute another action than it is sent."""

    name: str
    actions: ActionGuard


def innermost_changer(env: gymnasium.Env[Any, Any]) -> Changer | None:
    """Return the layer nearest to the simulator that corrects or rejects actions, if there is one."""
    found = None
    for layer in layers_of(env):
        own = getattr(layer, "__dict__", {})
        guard = own.get("_guard", own.get("guard"))
        actions = guard.actions if isinstance(guard, EpisodeGuard) else guard
        if isinstance(actions, ActionGuard) and actions.on_violation == "correct":
            found = Changer(type(layer).__name__, actions)
    return found


def require_known_past(env: gymnasium.Env[Any, Any], constraint: Any, name: str) -> None:
    """Refuse a set that reads the previous action where a layer inside may execute another one than it is sent."""
    changer = innermost_changer(env)
    if changer is None or not (isinstance(constraint, Constraint) and reads_previous_action(constraint)):
        return
    raise ConfigurationError(
        f"{name}: the set {constraint.formula()} reads the previous action, but {changer.name}, further inside, may "
        f"execute another one than it is sent, so that the limit would not hold at the simulator. Leave {changer.name} "
        f"out, and join both sets with & in one place: outer_set & inner_set."
    )


def require_one_length(env: gymnasium.Env[Any, Any], published: Any, name: str) -> None:
    """Refuse a published set that counts from the end of observations which a wrapper makes longer or shorter."""
    spaces = [getattr(layer, "observation_space", None) for layer in layers_of(env)]
    sizes = {
        gymnasium.spaces.flatdim(space) for space in spaces if space is not None and space.is_np_flattenable
    }
    references = references_of(published) if isinstance(published, Constraint) and len(sizes) > 1 else ()
    for kind, argument, reference in references:
        if reference.counts_from_the_end:
            raise ConfigurationError(
                f"{name}: {argument} of the published {kind} reads {reference}, counted from the end, but layers of "
                f"the environment show {' or '.join(map(str, sorted(sizes)))} entries, and the set would read the "
                f"outermost. Count from the start of that one, or publish the numbers themselves."
            )


def bounds_of(space: Any) -> Any:
    """Return what tells the box of an action space from another one, quickly; parts are looked at one by one."""
    if isinstance(space, gymnasium.spaces.Box):
        # Without the sign of zero; bytes are compared faster than arrays, and nobody can write into them.
        return space.dtype, space.shape, (space.low + 0.0).tobytes(), (space.high + 0.0).tobytes()
    if isinstance(space, gymnasium.spaces.Dict):
        return [(key, bounds_of(part)) for key, part in space.spaces.items()]
    return [bounds_of(part) for part in space.spaces] if isinstance(space, gymnasium.spaces.Tuple) else space


def require_same_space(space: Any, bounds: Any, task_name: str) -> None:
    """Refuse an action space that has changed since it was read, whose limits nobody would keep."""
    if bounds_of(space) != bounds:
        raise SimulationError(
            f"{task_name}: the action space is {space} now, another one than the guard was made for. Keep it as it is, "
            f"and state limits that change as a constraint that reads them, ib.Box(ib.obs[...], ib.obs[...]), or as "
            f"info['constraint'] at every reset and step."
        )


def answer_of_reset(answer: Any, task_name: str) -> Began:
    """Return what `reset` returned; what does not answer as Gymnasium's environments do is refused."""
    if not (isinstance(answer, tuple | list) and len(answer) == 2 and isinstance(answer[1], Mapping)):
        raise SimulationError(
            f"{task_name}: reset returned {_kind(answer)}, but (observation, info) is expected, info a dictionary. "
            f"Let it return both, as Gymnasium's environments do: return observation, {{}}."
        )
    return tuple(answer)


def answer_of_step(answer: Any, task_name: str) -> Stepped:
    """Return what `step` returned, in the same way."""
    if not (isinstance(answer, tuple | list) and len(answer) == 5 and isinstance(answer[4], Mapping)):
        raise SimulationError(
            f"{task_name}: step returned {_kind(answer)}, but (observation, reward, terminated, truncated, info) is "
            f"expected, info a dictionary. Return all five, as Gymnasium's environments do; a single 'done' means "
            f"terminated."
        )
    return tuple(answer)


def _kind(answer: Any) -> str:
    several = isinstance(answer, tuple | list)
    return f"a {type(answer).__name__} of {len(answer)}" if several else f"one {type(answer).__name__}"


def as_numbers(space: gymnasium.Space[Any], observation: Any, name: str = "") -> NDArray[np.float64]:
    """Return an observation as one vector, in the order of `gymnasium.spaces.flatten`.

    That function would round to the type that the space declares; the set depends on what was returned. Parts that
    have other numbers of entries than the space announces are refused, since what is read behind them would move.
    """
    if isinstance(space, gymnasium.spaces.Box):
        return vector_of_part("observation", name or "observation", observation, space.shape)
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        parts = [
            as_numbers(part, part_at(observation, key), f"{name}/{key}".lstrip("/")) for key, part in inner
        ]
        return np.concatenate([np.empty(0), *parts])
    require_no_mask("observation", observation)
    flat: Any = gymnasium.spaces.flatten(space, observation)
    announced = (gymnasium.spaces.flatdim(space),) if space.is_np_flattenable else np.shape(flat)
    return vector_of_part("observation", name or "observation", flat, announced)


def part_at(observation: Any, key: Any) -> Any:
    """Return one part of an observation; one that is not there is refused."""
    try:
        return observation[key]
    except (KeyError, IndexError, TypeError) as error:
        raise SimulationError(
            f"the observation has no part {key!r} ({error!r}). Let the environment return the parts that it announced, "
            f"at every reset and step."
        ) from error


def share_of_bound(
    constraint: Constraint,
    observation: NDArray[np.floating],
    action: NDArray[np.floating],
    previous_action: NDArray[np.floating] | None = None,
) -> float:
    """Return how much of its bound an action uses: 0 at the interior point, 1 on the boundary.

    This is the Minkowski gauge of the set seen from its interior point c: 1 / max {t: c + t (a - c) in C(s)}.
    """
    target = np.asarray(action, dtype=np.float64)
    centre = np.asarray(
        constraint.interior_point(observation, dimension=target.shape[-1], previous_action=previous_action)
    )
    if np.array_equal(centre, target):
        return 0.0
    reach = float(constraint.distance(observation, centre, target - centre, previous_action=previous_action))
    return 0.0 if math.isinf(reach) else 1.0 / max(reach, 1e-12)
