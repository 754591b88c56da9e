"""What is solved: an environment paired with the constraint that every action sent to it must satisfy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.tasks.registry import TASKS

if TYPE_CHECKING:
    import gymnasium

    from inbounds.constraints import Constraint
    from inbounds.constraints.references import Reference
    from inbounds.tasks.environment import CompiledEnvironment, HostEnvironments


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Task:
    """A Markov decision process (S, A, P, r) with a set C(s) of allowed actions: max E[sum r], a in C(s).

    Actions, `constraint` and the box [`action_low`, `action_high`] speak the units that `env.step` receives.
    `Task(environment, constraint)` makes one from any Gymnasium environment with continuous actions; the nine
    built-in ones come from `inbounds.make`.
    """

    name: str
    constraint: Constraint
    """The set C(s), always together with the box of the actions."""
    observation_size: int
    action_low: NDArray[np.float32]
    action_high: NDArray[np.float32]
    horizon: int
    """An episode is truncated after this many steps."""
    reward_divisor: float
    reward_shift: float
    source: str
    """Where the task is defined."""
    environment_id: str
    """The name under which `gymnasium.make` knows the task."""
    host: Callable[[int, int], HostEnvironments] | None
    """`host(count, threads)` makes a batch that is stepped on the host."""
    compiled: Callable[[], CompiledEnvironment] | None
    """`compiled()` makes the pure functions of an environment that is stepped on the device."""
    make_environment: Callable[..., gymnasium.Env[Any, Any]]
    """Make one guarded Gymnasium environment; takes `render_mode`."""
    observation_names: tuple[str, ...] = ()
    """What each entry of an observation is, with its unit."""
    action_names: tuple[str, ...] = ()
    """What each entry of an action is, with its unit."""
    observation_parts: tuple[tuple[str, int], ...] = ()
    """Names and sizes of the parts that an observation is put together from, in their order."""
    observation_shift: NDArray[np.float32] | None = None
    """Networks see (observation - shift) / scale; constraints always read the observation itself."""
    observation_scale: NDArray[np.float32] | None = None
    ends_only_in_failure: bool = False
    """Episodes never end before the horizon, or only in failure: lifting all rewards does not change what is best."""
    evaluation_episodes: int = 10
    """Episodes that evaluate a policy while it learns, unless a run passes `episodes`; many where they are short."""
    is_evaluated_on_host: bool = False
    """Policies are evaluated by stepping `host`, although training steps `compiled`."""
    is_reward_scaled: bool = False
    """The scale of rewards was chosen for training, and learners measure no other."""
    is_reward_measured: bool = False
    """The scale of rewards was measured by `normalised`, so that another machine may give it other last digits."""
    reference_action: Reference | NDArray[np.float32] | None = None
    """An action that is sensible before anything is learnt: entries of the observation (the present allocation), or one
    for all states; learners may begin there."""

    def __init__(
        self,
        environment: str | Callable[..., gymnasium.Env[Any, Any]],
        constraint: Constraint | None = None,
        *,
        name: str | None = None,
        horizon: int | None = None,
        reward_divisor: float = 1.0,
        reward_shift: float = 0.0,
        first_previous_action: Any = None,
        ends_only_in_failure: bool = False,
        reference_action: Any = None,
    ) -> None:
        """Pair an environment with its constraint.

        An observation that is a Dict or a Tuple is laid out as one vector, part after part in the order of
        its space; `ib.obs["key"]` names a part. Two more parts follow where they are needed: `constraint`,
        the numbers that the environment publishes as `info["constraint"]` (or those of the set that it publishes
        there), and `previous_action`, where the constraint reads `ib.previous_action`.

        Several environments whose steps are slow are stepped by several processes, each with environments of its own,
        if they then do exactly the same, only faster. Objects that they share with the rest of the program are copied;
        `threads=1` in training keeps all environments in its process.

        Args:
            environment: a Gymnasium id, or a function (or class) that makes a new environment when called.
            constraint: the set C(s). The set that the environment publishes as `action_constraint`, where it
                does, and the box of its action space are added to it; None if those are all.
            name: what runs are called, not the name of one of ours; by default the id or the name of the function.
            horizon: steps after which an episode is cut; by default what the environment registered.
            reward_divisor: learners see reward / divisor + shift. Where neither is given, some measure their own.
            reward_shift: see `reward_divisor`; learners that pay for infeasible proposals want no negative reward.
            first_previous_action: what counts as the previous action at the beginning of an episode; zero,
                moved into the box, by default.
            ends_only_in_failure: whether episodes never end before the horizon, or only by failing (a robot has
                fallen), and not by success: then learners may lift all rewards above zero, as they would like.
            reference_action: an action that is known to be sensible, or `ib.obs[...]` where the observation holds one
                (the present allocation, say); policies begin narrowly around it.
        """
        from inbounds.tasks.gymnasium_task import parts_from_gymnasium

        require_reward_scale(reward_divisor, reward_shift, ends_only_in_failure)
        parts = parts_from_gymnasium(
            environment,
            constraint,
            name=name,
            horizon=horizon,
            first_previous_action=first_previous_action,
            reference_action=reference_action,
        )
        defaults = {
            field.name: field.default
            for field in dataclasses.fields(self)
            if field.default is not dataclasses.MISSING
        }
        rewards = {
            "reward_divisor": float(reward_divisor),
            "reward_shift": float(reward_shift),
            "is_reward_scaled": (reward_divisor, reward_shift) != (1.0, 0.0),
            "ends_only_in_failure": ends_only_in_failure,
        }
        for field, value in {**defaults, **parts, **rewards}.items():
            object.__setattr__(self, field, value)

    @property
    def action_size(self) -> int:
        """The number of entries of an action."""
        return int(self.action_low.shape[0])

    @property
    def is_played_compiled(self) -> bool:
        """Whether evaluations step the compiled environment, as training does."""
        return self.compiled is not None and not self.is_evaluated_on_host

    def training_reward(self, reward: Any) -> Any:
        """Return the reward that learners are trained on, r / divisor + shift; reports never use it."""
        return reward / self.reward_divisor + self.reward_shift

    def observation_slice(self, part: str) -> slice:
        """Return where a named part lies in an observation: `observation[task.observation_slice("power")]`."""
        start = 0
        for name, size in self.observation_parts:
            if name == part:
                return slice(start, start + size)
            start += size
        known = [name for name, _ in self.observation_parts]
        raise UnknownNameError("part of the observation", part, known, "Name one of these.")

    def normalised(
        self, *, observations: bool = True, rewards: bool = True, steps: int = 2_000, seed: int = 0
    ) -> Task:
        """Return the same task with scales measured over `steps` uniformly feasible actions, then frozen.

        Networks then see observations relative to the mean and deviation met; the numbers are saved and exported
        with the policy, and constraints go on reading raw observations. Rewards are divided by their deviation,
        for training alone: reports keep the plain reward. Where episodes end only in failure they are also lifted so
        that an average step pays one deviation; elsewhere that would make the way to the goal worth more than the goal.
        """
        from inbounds.tasks.normalisation import measured_scales

        changes = measured_scales(self, observations=observations, rewards=rewards, steps=steps, seed=seed)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return AssembledTask(**{**values, **changes})

    def __repr__(self) -> str:
        """Show the name and the constraint as a formula."""
        return f"Task({self.name!r}: {self.constraint.formula()}, horizon {self.horizon})"


def require_reward_scale(divisor: Any, shift: Any, ends_only_in_failure: Any) -> None:
    """Refuse a scale that makes no reward of a reward."""
    for name, value in (("reward_divisor", divisor), ("reward_shift", shift)):
        if not (isinstance(value, int | float | np.number) and np.isfinite(value)):
            raise ConfigurationError(f"{name}={value!r} is not a finite number. Pass one, or leave it out.")
    if divisor <= 0:
        raise ConfigurationError(
            f"reward_divisor={divisor} would turn rewards around or lose them. Pass a number above 0."
        )
    if not isinstance(ends_only_in_failure, bool | np.bool_):
        raise ConfigurationError(
            f"ends_only_in_failure={ends_only_in_failure!r} is neither True nor False. Pass one of them."
        )


LONGEST_NAME = 150
"""Bytes of a task's name: what follows in the name of a folder, and of files beside it, fits into 255."""


def require_task_name(name: Any) -> str:
    """Return the name of a user's task if it can begin the name of a run folder and is not that of one of ours.

    It has to be in one line, visible, and not too long.
    """
    is_text = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= LONGEST_NAME
    if not is_text or "/" in name or name.startswith("."):
        raise ConfigurationError(
            f"name={name!r:.80} cannot be part of a run folder's name. Pass a word of visible characters, without "
            f"slashes, without a dot in front and of {LONGEST_NAME} bytes at most, such as 'arm'."
        )
    if name.lower() in TASKS:
        # A run records its task by name, and whoever opens it without the task would be given ours.
        raise ConfigurationError(
            f"name={name!r} is the name of one of our tasks, which runs would be evaluated on instead. Pass "
            f'another one, such as name="my-{name.lower()}".'
        )
    return str(name)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AssembledTask(Task):
    """A task whose every part is given: how the built-in ones are made."""
