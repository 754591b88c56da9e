"""Between Gymnasium and batches, with the guard inside: environments as a batch, and a batch of one as an environment.

Where the environments of a batch are slow, several cores step them.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, InvalidInputError, SimulationError, told_by_python
from inbounds.tasks.action_guard import ActionGuard, OnViolation
from inbounds.tasks.environment import HostEnvironments, Step, require_render_mode
from inbounds.tasks.gymnasium_group import Group, GroupPlan
from inbounds.tasks.gymnasium_processes import GroupProcesses
from inbounds.tasks.spaces import ConstrainedBox

Picture = Callable[[bool], NDArray[np.uint8]]
"""Draw (height, width, 3): the first state of an episode if the argument is True, else where the last action led."""

LEAST_SAVING = 2e-4
"""Seconds that processes must save at each step of a batch to be tried; actions and answers take longer than that."""
TRIAL_STEPS = 32
"""Steps of a batch after which it is known whether they might."""
TRIAL_SECONDS = 1.0
"""Seconds of stepping after which processes are tried; to start them takes about as long."""
LEAST_SPEED_UP = 1.1
"""How much faster processes must be in their trial."""
SECONDS_TO_START = 60.0
"""Seconds that processes may take to start and make their environments, besides ten times the time of the trial."""


class GymnasiumBatch:
    """The environments of a plan, stepped one after another or by up to `processes` processes.

    Once steps have been slow for a second, processes repeat all episodes since the last `reset`. They take over if
    they are faster and every bit is the same: results do not depend on where environments are stepped. If something
    differs or fails, a warning says what. One environment and fast ones stay in this process without a trial.

    The states of environments cannot be saved, so that a resumed run begins anew the episodes that were open.
    """

    def __init__(
        self,
        plan: GroupPlan,
        constraint: Constraint,
        *,
        processes: int = 1,
        on_violation: OnViolation = "refuse",
    ) -> None:
        """Make the environments; nothing moves before `reset`."""
        if plan.count < 1:
            raise ConfigurationError(
                f"{plan.task_name}: a batch of {plan.count} environments is empty; ask for 1 or more."
            )
        self.count = plan.count
        self.plan = plan
        actions = plan.interface.actions
        self.guard = ActionGuard(
            constraint,
            actions.size,
            task_name=plan.task_name,
            on_violation=on_violation,
            # Of several types the shortest: its numbers are those of the longer ones as well, so that no part is
            # rounded after it was checked.
            executed_as=min((part.dtype for part in actions.parts), key=lambda kind: kind.itemsize),
        )
        self.group: Group | GroupProcesses = Group(plan, range(plan.count))
        """The environments, here or in processes."""
        self._trial = Trial(processes, plan.count) if min(processes, plan.count) > 1 else None
        self._observation: NDArray[np.float64] | None = None

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed."""
        if len(seeds) != self.count:
            raise InvalidInputError(
                f"{self.guard.task_name}: {len(seeds)} seeds for {self.count} environments; give one seed each."
            )
        self._observation = None
        if isinstance(self.group, GroupProcesses) and self.group.is_closed:  # something broke them off
            self.group = Group(self.plan, range(self.count))
        first = self.group.reset(seeds)
        if self._trial is not None:
            self._trial.begin(seeds, first)
        self._observation = first
        return first.copy()

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one feasible action to each environment; an infeasible one raises before anything moves."""
        if self._observation is None:
            raise InvalidInputError(
                f"{self.guard.task_name}: step came before reset, or after a step or reset that failed, so that it is "
                f"unknown where the environments stand; call reset first."
            )
        executed = self.guard.admit(self._observation, actions)
        self._observation = None  # until all have answered: one that raises may have moved
        began = time.perf_counter()
        step = self.group.step(executed)
        if self._trial is not None:
            self._trial.note(executed, step, time.perf_counter() - began)
            self._consider_processes(self._trial)
        self._observation = step.observation
        return step._replace(observation=step.observation.copy())

    def save(self) -> None:
        """Return nothing: what an arbitrary environment holds cannot be written down."""

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse: `save` never returned anything to go back to."""
        raise InvalidInputError(
            f"{self.guard.task_name}: its environments cannot be restored; call reset(seeds) instead."
        )

    def close(self) -> None:
        """Close the environments, and end their processes."""
        self.group.close()

    def _consider_processes(self, trial: Trial) -> None:
        """Let processes take over, keep the environments here, or wait until it is known which is faster."""
        is_slow = trial.is_slow()
        if is_slow is None:
            return
        self._trial = None
        if not is_slow:
            return
        try:
            there = trial.repeated_by_processes(self.plan)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            told_by_python(
                f"{self.plan.task_name}: its {self.count} environments are stepped one after another, because other "
                f"processes cannot do it ({reason}). This may be slower, and the results are the same. Let the "
                f"task's function make equal environments in whatever process it is called, and let reset(seed=...) "
                f"decide on all that follows; or train with threads=1, and nothing is tried."
            )
            return
        if there is not None:
            self.group.close()
            self.group = there


class Trial:
    """How fast environments are in this process, and what they did since `begin`: enough to do it again elsewhere."""

    def __init__(self, processes: int, count: int) -> None:
        """Find out whether `processes` processes would step `count` environments faster."""
        self.processes = min(processes, count)
        self._saved_share = 1.0 - -(-count // self.processes) / count
        self._seconds: list[float] = []
        self._total = 0.0

    def begin(self, seeds: Sequence[int], first: NDArray[np.float64]) -> None:
        """Note a reset; what came before it need not be repeated."""
        self._seeds, self._actions, self._digest = list(seeds), list[NDArray[np.floating]](), hashlib.sha256()
        self._digest.update(first.tobytes())

    def note(self, actions: NDArray[np.floating], step: Step, seconds: float) -> None:
        """Note a step of the batch and the time it took."""
        self._seconds.append(seconds)
        self._total += seconds
        self._actions.append(actions.copy())
        self._update(step)

    def is_slow(self) -> bool | None:
        """Tell whether processes are worth being tried; None until it is known."""
        steps = len(self._seconds)
        # The first step of an episode may have prepared something.
        is_long = len(self._actions) > 1 and self._total >= TRIAL_SECONDS
        if not (is_long or steps == TRIAL_STEPS):
            return None
        saving = statistics.median_low(self._seconds) * self._saved_share
        if saving >= LEAST_SAVING:
            return True if is_long else None
        return False if steps >= TRIAL_STEPS else None

    def repeated_by_processes(self, plan: GroupPlan) -> GroupProcesses | None:
        """Return processes whose environments stand where those in this process stand; None where they are not faster.

        Raises the error that a process met, and SimulationError where anything differs in one bit.
        """
        there = GroupProcesses(plan, self.processes, SECONDS_TO_START + 10.0 * self._total)
        try:
            expected, self._digest = self._digest.digest(), hashlib.sha256()
            self._digest.update(there.reset(self._seeds).tobytes())
            seconds = []
            for actions in self._actions:
                began = time.perf_counter()
                step = there.step(actions)
                seconds.append(time.perf_counter() - began)
                self._update(step)
            if self._digest.digest() != expected:
                raise SimulationError(
                    "the same seeds and actions led to other observations or rewards in another process"
                )
        except BaseException:
            there.close()
            raise
        here = statistics.median_low(self._seconds[-len(seconds) :])
        if here < LEAST_SPEED_UP * statistics.median_low(seconds):
            there.close()
            return None
        there.deadline = None
        return there

    def _update(self, step: Step) -> None:
        for column in step:
            self._digest.update(np.ascontiguousarray(column).tobytes())


class SingleEnvironment(gymnasium.Env[NDArray[np.float64], Any]):
    """A batch of one behind Gymnasium's interface; the guard is the one inside the batch.

    The batch begins the next episode in the step that ends one; `reset()` without a seed then hands out that
    episode, so that a member of a large batch and this environment live through the same episodes.
    """

    def __init__(
        self,
        batch: HostEnvironments,
        guard: ActionGuard,
        *,
        observation_size: int,
        action_low: NDArray[np.float32],
        action_high: NDArray[np.float32],
        frames_per_second: int,
        render_mode: str | None = None,
        picture: Picture | None = None,
        release_picture: Callable[[], None] | None = None,
    ) -> None:
        """Wrap `batch`, whose guard is `guard`; `picture` draws for `render_mode="rgb_array"`.

        `release_picture` frees what `picture` draws with; `close` calls it.
        """
        require_render_mode(render_mode, guard.task_name)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": frames_per_second}
        self.render_mode = render_mode
        self.guard = guard
        self._space = ConstrainedBox(guard.constraint, action_low, action_high)
        self.action_space = self._space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), dtype=np.float64)
        self._batch = batch
        self._picture, self._release_picture = picture, release_picture
        self._steps: int | None = None
        self._next_first: NDArray[np.float64] | None = None

    def __str__(self) -> str:
        """Show the task and its set."""
        return f"<{self.guard.task_name}: {self.guard.constraint.formula()}>"

    __repr__ = __str__

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode: from `seed`, or the next one that this environment's own stream holds."""
        super().reset(seed=seed)
        if seed is None and self._next_first is not None:
            observation = self._next_first
        else:
            start = int(self.np_random.integers(2**63)) if seed is None else seed
            observation = self._batch.reset([start])[0]
        self._steps, self._next_first = 0, None
        self._space.move_to(observation, np.zeros(self._space.shape))
        return observation, {}

    def step(self, action: Any) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one action; an infeasible one raises and leaves everything as it was."""
        if self._steps is None or self._next_first is not None:
            when = "step came before reset" if self._steps is None else "the episode is over"
            raise InvalidInputError(f"{self.guard.task_name}: {when}; call env.reset() first.")
        step = self._batch.step(cast(NDArray[np.floating], [action]))
        self._steps += 1
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._next_first = step.observation[0] if terminated or truncated else None
        observation = step.final_observation[0]
        self._space.move_to(observation, None if self.guard.admitted is None else self.guard.admitted[0])
        return observation, float(step.reward[0]), terminated, truncated, {}

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture of the state and of the constraint's use, or None without a render mode."""
        if self._picture is None:
            return None
        if self._steps is None:
            raise InvalidInputError(
                f"{self.guard.task_name}: there is nothing to draw yet; call env.reset() first."
            )
        return self._picture(self._steps == 0)

    def close(self) -> None:
        """Release threads and drawing contexts."""
        self._batch.close()
        if self._release_picture is not None:
            self._release_picture()
