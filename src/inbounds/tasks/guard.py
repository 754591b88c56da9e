"""The last check before a simulator: is this very action feasible at the observation that was given last?

Whatever a policy, a learner or a user does, an infeasible action does not pass unseen: it is refused, or
corrected and counted, and the environment does not move before that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from numpy.typing import DTypeLike, NDArray

from inbounds.errors import ConfigurationError, InfeasibleActionError, InvalidInputError
from inbounds.tasks.spaces import ConstrainedBox

if TYPE_CHECKING:
    from inbounds.constraints import Constraint

OnViolation = Literal["refuse", "correct"]


class ActionGuard:
    """The rule {pass if g(s, a) <= 0, else refuse or project}, evaluated in float64 for a batch of actions.

    Single environments, batches and the Gymnasium wrapper all ask this one object. The action is first
    rounded to the number type that the environment executes, so that what is checked is what is carried out.
    """

    def __init__(
        self,
        constraint: Constraint,
        action_size: int,
        *,
        task_name: str,
        on_violation: OnViolation = "refuse",
        executed_as: DTypeLike = np.float64,
    ) -> None:
        """Guard actions with `action_size` entries, executed as numbers of type `executed_as`."""
        if on_violation not in ("refuse", "correct"):
            raise ConfigurationError(
                f"{task_name}: on_violation={on_violation!r} is unknown; use 'refuse' to raise an error, or "
                "'correct' to project and count."
            )
        self.constraint = constraint
        self.action_size = action_size
        self.task_name = task_name
        self.on_violation = on_violation
        self.executed_as = np.dtype(executed_as)
        self.admitted: NDArray[np.floating] | None = None
        """The actions that passed last."""
        self.corrections = 0
        """How many actions were replaced by their projection."""
        self.worst_violation = -math.inf
        """The largest violation among all actions that arrived; at most 0 if every one was feasible."""

    def admit(
        self,
        observations: NDArray[np.floating],
        actions: Any,
        previous_actions: NDArray[np.floating] | None = None,
    ) -> NDArray[np.floating]:
        """Return the actions to execute, one row per observation, or raise before anything moves."""
        executed = self._as_numbers(actions, len(observations))
        violations = self._violations(observations, executed, previous_actions)
        self.worst_violation = max(self.worst_violation, float(violations.max()))
        infeasible = np.flatnonzero(violations > 0.0)
        if not infeasible.size:
            self.admitted = executed.copy()
            return executed
        if self.on_violation == "refuse":
            self._refuse(int(violations.argmax()), violations, observations, executed, previous_actions)
        before = None if previous_actions is None else previous_actions[infeasible]
        projected = self.constraint.project(
            observations[infeasible], executed[infeasible].astype(np.float64), previous_action=before
        )
        corrected = executed.copy()
        corrected[infeasible] = projected
        left = self._violations(observations, corrected, previous_actions)
        if left.max() > 0.0:
            self._refuse(int(left.argmax()), left, observations, corrected, previous_actions)
        self.corrections += int(infeasible.size)
        self.admitted = corrected.copy()
        return corrected

    def _as_numbers(self, actions: Any, count: int) -> NDArray[np.floating]:
        """Check kind, shape and finiteness, and round to the number type that is executed."""
        wanted = f"one row of {self.action_size} finite numbers for each of {count} environment(s)"
        try:
            array = np.asarray(actions)
        except (TypeError, ValueError) as problem:
            raise InvalidInputError(
                f"{self.task_name}: the action is no array ({problem}); give {wanted}."
            ) from problem
        if array.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{self.task_name}: the action holds {array.dtype} values, not real numbers; give {wanted}."
            )
        expected = (count, self.action_size)
        if array.shape != expected:
            # Who steps one environment never saw the leading axis.
            axes = slice(1 if count == 1 and array.shape[:1] == (1,) else 0, None)
            raise InvalidInputError(
                f"{self.task_name}: the action has shape {array.shape[axes]}, expected {expected[axes]}; "
                f"give {wanted}."
            )
        # A copy, so that nobody can change the action between the check and its execution.
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            executed: NDArray[np.floating] = array.astype(self.executed_as)
        if not np.isfinite(executed).all():
            row, entry = np.argwhere(~np.isfinite(executed))[0]
            raise InvalidInputError(
                f"{self.task_name}: entry {entry} of the action for environment {row} is "
                f"{executed[row, entry]}; give {wanted}."
            )
        return executed

    def _violations(
        self,
        observations: NDArray[np.floating],
        actions: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
    ) -> NDArray[np.float64]:
        return np.asarray(
            self.constraint.violation(
                observations, actions.astype(np.float64), previous_action=previous_actions
            )
        )

    def _refuse(
        self,
        row: int,
        violations: NDArray[np.float64],
        observations: NDArray[np.floating],
        actions: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
    ) -> None:
        before = None if previous_actions is None else previous_actions[row]
        reason = self.constraint.explain(
            observations[row], actions[row].astype(np.float64), previous_action=before
        )
        which = f" for environment {row} of {len(actions)}" if len(actions) > 1 else ""
        raise InfeasibleActionError(
            f"{self.task_name}: the action{which} exceeds its constraint by {violations[row]:.6g}: {reason} "
            "Nothing has moved. Project it (constraint.project) or draw it inside (constraint.sample)."
        )


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium wrapper that lets only feasible actions through; put it innermost, at the simulator.

    It evaluates the constraint at the observation it returned last, and keeps the last executed action for
    constraints that read it. Its action space draws feasible actions at that observation.
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
        box = env.action_space
        if not isinstance(box, gymnasium.spaces.Box) or len(box.shape) != 1:
            raise ConfigurationError(
                f"{task_name}: the guard needs an action space that is a Box with one axis, not {box}; "
                "flatten the actions first (gymnasium.wrappers.TransformAction)."
            )
        self.constraint = constraint
        self._space = ConstrainedBox(constraint, box.low, box.high, dtype=box.dtype)
        self.action_space = self._space
        self._door = ActionGuard(
            constraint, box.shape[0], task_name=task_name, on_violation=on_violation, executed_as=box.dtype
        )
        start = np.zeros(box.shape) if first_previous_action is None else first_previous_action
        self._first_previous_action = np.clip(np.asarray(start, dtype=np.float64), box.low, box.high)
        self._previous_action = self._first_previous_action
        self._observation: NDArray[np.float64] | None = None

    @property
    def corrections(self) -> int:
        """How many actions were replaced by their projection."""
        return self._door.corrections

    @property
    def worst_violation(self) -> float:
        """The largest violation among all actions that arrived."""
        return self._door.worst_violation

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and remember its first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._remember(observation, self._first_previous_action)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Execute a feasible action; another one is refused or corrected before the environment moves."""
        if self._observation is None:
            raise InvalidInputError(
                f"{self._door.task_name}: step came before reset; call env.reset(seed=...) first."
            )
        executed = self._door.admit(self._observation[None], [action], self._previous_action[None])[0]
        observation, reward, terminated, truncated, info = self.env.step(executed)
        self._remember(observation, executed.astype(np.float64))
        return observation, reward, terminated, truncated, info

    def _remember(self, observation: Any, previous_action: NDArray[np.float64]) -> None:
        # Copies: the caller may write into the observation, and must not move the constraint by that.
        self._observation = np.array(observation, dtype=np.float64)
        self._previous_action = previous_action
        self._space.move_to(self._observation, previous_action)


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
