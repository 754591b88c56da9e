"""The last check before a simulator: may these very numbers be executed at these observations?

Whatever a policy, a learner or a user does, an infeasible action does not pass unseen: it is refused, or
corrected and counted, and the environment does not move before that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from inbounds.constraints.arrays import require_no_mask
from inbounds.errors import ConfigurationError, EmptySetError, InfeasibleActionError, InvalidInputError
from inbounds.tasks.empty_states import require_an_action

if TYPE_CHECKING:
    from inbounds.constraints import Constraint

OnViolation = Literal["refuse", "correct"]

ROUNDINGS = 60
"""How many points between a projection and the interior are tried where actions are integers or half precision."""


class ActionGuard:
    """The rule {pass if g(s, a) <= 0, else refuse or project}, evaluated in float64 for a batch of actions.

    Single environments, batches and the Gymnasium wrappers all ask this one object. The action is first
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
        executed = self.as_executed(observations, actions, previous_actions)
        violations = self.violations(observations, executed, previous_actions)
        self.worst_violation = max(self.worst_violation, float(violations.max()))
        is_feasible = violations <= 0.0
        if is_feasible.all():
            self.admitted = executed.copy()
            return executed
        if self.on_violation == "refuse":
            self._refuse(int(violations.argmax()), violations, observations, executed, previous_actions)
        corrected = executed.copy()
        corrected[~is_feasible] = self._projected(observations, executed, previous_actions, ~is_feasible)
        left = self.violations(observations, corrected, previous_actions)
        if not (left <= 0.0).all():
            self._refuse(int(left.argmax()), left, observations, corrected, previous_actions)
        self.corrections += int(np.count_nonzero(~is_feasible))
        self.admitted = corrected.copy()
        return corrected

    def as_executed(
        self,
        observations: NDArray[np.floating],
        actions: Any,
        previous_actions: NDArray[np.floating] | None = None,
    ) -> NDArray[np.floating]:
        """Return a copy in the number type that is executed; refuse other kinds, shapes and what is not finite."""
        count = len(observations)
        wanted = f"one row of {self.action_size} finite numbers for each of {count} environment(s)"
        for action in actions if isinstance(actions, list) else (actions,):
            require_no_mask(f"action for {self.task_name}", action)
        try:
            array = np.asarray(actions)
        except (TypeError, ValueError) as problem:
            raise InvalidInputError(
                f"{self.task_name}: the action is not an array ({problem}); give {wanted}."
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
        if self.executed_as.kind != "f":
            self._require_whole_numbers(array)
        elif self.executed_as.itemsize > 8:
            array = array.astype(np.float64)  # more digits would be executed than are checked
        # A copy, so that nobody can change the action between the check and its execution.
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            executed: NDArray[np.floating] = array.astype(self.executed_as)
        is_finite = np.isfinite(executed)
        if not is_finite.all():
            row, entry = (int(place) for place in np.argwhere(~is_finite)[0])
            # A compiled policy sends NaN where no action is allowed: then that is the error.
            self._require_an_action(row, observations, executed, previous_actions)
            raise InvalidInputError(
                f"{self.task_name}: entry {entry} of the action for environment {row} is "
                f"{executed[row, entry]}; give {wanted}."
            )
        return executed

    def violations(
        self,
        observations: NDArray[np.floating],
        executed: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
    ) -> NDArray[np.float64]:
        """Return by how much actions miss their set, in float64; infinitely, where that is not a number."""
        try:
            violation = self.constraint.violation(
                observations, executed.astype(np.float64), previous_action=previous_actions
            )
        except EmptySetError:  # an expression that has no value in a state: say in which
            for row in range(len(observations)):
                self._require_an_action(row, observations, executed, previous_actions)
            raise
        excess = np.asarray(violation)
        return excess if (excess <= 0.0).all() else np.where(np.isnan(excess), np.inf, excess)

    def _require_whole_numbers(self, array: NDArray[Any]) -> None:
        """Refuse what a conversion to integers would silently change: fractions, NaN, and what does not fit."""
        limits = np.iinfo(self.executed_as)
        # Beyond 2^53 two integers can be the same float64, and only one of them would be checked.
        least, most = max(limits.min, -(2**53)), min(limits.max, 2**53)
        with np.errstate(invalid="ignore"):
            is_kept = (array >= least) & (array <= most) & (np.floor(array) == array)
        if not is_kept.all():
            row, entry = np.argwhere(~is_kept)[0]
            raise InvalidInputError(
                f"{self.task_name}: entry {entry} of the action for environment {row} is {array[row, entry]}, but "
                f"the environment executes {self.executed_as}; give whole numbers from {least} to {most}."
            )

    def _projected(
        self,
        observations: NDArray[np.floating],
        executed: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
        chosen: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the nearest feasible actions for the rows that are chosen."""
        before = None if previous_actions is None else previous_actions[chosen]
        is_coarse = self.executed_as.kind != "f" or self.executed_as.itemsize < 4
        raw = executed[chosen].astype(np.float64) if is_coarse else executed[chosen]
        try:
            projected = np.asarray(
                self.constraint.project(observations[chosen], raw, previous_action=before), np.float64
            )
        except EmptySetError:
            for row in np.flatnonzero(chosen):
                self._require_an_action(int(row), observations, executed, previous_actions)
            raise
        if is_coarse:
            for place, row in enumerate(np.flatnonzero(chosen)):
                last = None if previous_actions is None else previous_actions[row]
                projected[place] = self._rounded_inside(projected[place], observations[row], last)
        return projected

    def _rounded_inside(
        self, point: NDArray[np.float64], observation: NDArray[np.floating], before: Any
    ) -> NDArray[np.float64]:
        """Round a projection to integers or half precision, on its way to the interior as far as it must go."""
        centre = np.asarray(
            self.constraint.interior_point(observation, dimension=self.action_size, previous_action=before)
        )
        shares = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, ROUNDINGS)])[:, None]
        way = point + shares * (centre - point)
        if self.executed_as.kind == "f":
            nearest = way.astype(self.executed_as)
            inward = np.nextafter(nearest, centre.astype(self.executed_as))
        else:
            nearest, inward = np.rint(way), np.where(centre > way, np.ceil(way), np.floor(way))
        found = np.stack([nearest, inward], axis=1).reshape(-1, self.action_size).astype(np.float64)
        excess = np.asarray(self.constraint.violation(observation, found, previous_action=before))
        is_feasible = np.broadcast_to(excess <= 0.0, len(found))
        if not is_feasible.any():
            raise InfeasibleActionError(
                f"{self.task_name}: no action of type {self.executed_as} was found in {self.constraint.formula()} near "
                f"{point}. Nothing has moved. Widen the set, or give the action space the type float32."
            )
        return np.asarray(found[int(is_feasible.argmax())])

    def _require_an_action(
        self,
        row: int,
        observations: NDArray[np.floating],
        actions: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
    ) -> None:
        before = None if previous_actions is None else previous_actions[row]
        require_an_action(self.constraint, observations[row], actions[row], before, self.task_name)

    def _refuse(
        self,
        row: int,
        violations: NDArray[np.float64],
        observations: NDArray[np.floating],
        actions: NDArray[np.floating],
        previous_actions: NDArray[np.floating] | None,
    ) -> None:
        self._require_an_action(row, observations, actions, previous_actions)
        before = None if previous_actions is None else previous_actions[row]
        reason = self.constraint.explain(
            observations[row], actions[row].astype(np.float64), previous_action=before
        )
        which = f" for environment {row} of {len(actions)}" if len(actions) > 1 else ""
        raise InfeasibleActionError(
            f"{self.task_name}: the action{which} exceeds its constraint by {violations[row]:.6g}: {reason} "
            "Nothing has moved. Project it (constraint.project) or draw it inside (constraint.sample)."
        )
