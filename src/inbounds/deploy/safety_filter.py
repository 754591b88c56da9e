"""A last instance before the actuator: whatever proposes an action, what leaves is feasible, in bounded time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from inbounds.constraints import Constraint, Ellipsoid, Polytope
from inbounds.constraints.intersection import BoxLike, JointWithBox
from inbounds.constraints.situation import Situation
from inbounds.deploy.interventions import Cause, Intervention, InterventionLog, Kind
from inbounds.deploy.proposer import proposer, vector
from inbounds.errors import ConfigurationError, ConstraintError, InfeasibleActionError, InvalidInputError

Fallback = Literal["refuse", "hold", "interior_point"]
"""What to do without an observation or an action that can be trusted."""
Vector = NDArray[np.float64]
Action = NDArray[np.floating]
"""float32 or float64, as it leaves."""
FALLBACKS = ("refuse", "hold", "interior_point")
SHRINKAGE = (1.0, 1.0 - 1e-6, 1.0 - 1e-4, 1.0 - 1e-2)
"""Shares of the way to the boundary that are tried in turn, since rounding may carry a point over it."""


class Judged(NamedTuple):
    """What became of the proposals of one call."""

    action: Action | None
    """The first feasible one, or else the last finite one, or nothing."""
    excess: float
    worst_excess: float
    """The largest one among all that were proposed."""
    proposals: int
    rejected: int


class SafetyFilter:
    """Returns a in C(s) for every observation s: the first feasible proposal, or else one that is moved inside.

    An action passes untouched if g(s, a) <= 0 in float64, with no tolerance. Otherwise the policy may propose
    again, up to `proposals` times; then the last proposal is moved to c + t (a - c) along the ray from an
    interior point c, as far as the set reaches; should rounding defeat that, it is projected; and at last the
    interior point itself is taken. None of these steps iterates for an unknown time on the sets of this
    library, and what leaves is checked once more.

    One filter may be used by several threads: actions are filtered one after the other, since constraints may
    depend on the previous one, and counters can be read at any time without waiting for an action.

    Args:
        constraint: the set C(s), in the units of the actuator.
        policy: something with `act(observation)` or `predict(observation)`, or a function; None for a filter
            that only corrects.
        proposals: how often the policy is asked for one action; a policy that repeats itself is asked twice.
        time_limit: seconds after which the policy is not asked again.
        correction: "ray" keeps the direction from the interior point; "projection" takes the nearest feasible
            action first; "quickest" is the ray, but for sets that move with the state and have no closed form of
            an interior point (polytopes), whose projection costs less.
        on_invalid_observation: for an observation that is not finite: "refuse" raises, "hold" repeats the last
            action, "interior_point" takes the safest point. The last two use the last good observation.
        on_stale_observation: the same for an observation that is older than `stale_after`.
        on_invalid_action: the same where every proposal holds a value that is not finite.
        stale_after: age in seconds, by `clock`, beyond which an observation is stale; needs `stamp` at each call.
        previous_action: what was executed before the first call, for constraints that read it.
        dtype: the number type of what leaves, np.float32 or np.float64; by default that of the proposal.
        log_size: how many interventions are kept.
        clock: what `stamp` is compared with.
    """

    def __init__(
        self,
        constraint: Constraint,
        policy: Any = None,
        *,
        proposals: int = 20,
        time_limit: float | None = None,
        correction: Literal["quickest", "ray", "projection"] = "quickest",
        on_invalid_observation: Fallback = "refuse",
        on_stale_observation: Fallback = "refuse",
        on_invalid_action: Fallback = "refuse",
        stale_after: float | None = None,
        previous_action: Any = None,
        dtype: DTypeLike | None = None,
        log_size: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the choices; nothing is computed yet."""
        if not isinstance(constraint, Constraint):
            raise ConfigurationError(
                f"a SafetyFilter needs a constraint, not {constraint!r}. Pass one, such as task.constraint."
            )
        chosen: Mapping[str, str] = {
            "on_invalid_observation": on_invalid_observation,
            "on_stale_observation": on_stale_observation,
            "on_invalid_action": on_invalid_action,
        }
        for name, value in chosen.items():
            if value not in FALLBACKS:
                raise ConfigurationError(f"{name}={value!r} is unknown. Choose from {', '.join(FALLBACKS)}.")
        if correction not in ("quickest", "ray", "projection"):
            raise ConfigurationError(
                f"correction={correction!r} is unknown. Choose 'quickest', 'ray' or 'projection'."
            )
        if proposals < 1:
            raise ConfigurationError(
                f"proposals={proposals}, but the policy must be asked once. Use 1 or more."
            )
        for name, seconds in (("time_limit", time_limit), ("stale_after", stale_after)):
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(
                    f"{name}={seconds}, but seconds above 0 are expected. Or leave it out."
                )
        if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
            raise ConfigurationError(
                f"dtype={dtype!r} is neither np.float32 nor np.float64. Use one of them."
            )
        self.constraint = constraint
        is_ray_first = correction == "ray" or (correction == "quickest" and has_quick_interior(constraint))
        first: tuple[Kind, ...] = ("ray", "projection") if is_ray_first else ("projection", "ray")
        self._order: tuple[Kind, ...] = (*first, "interior_point")
        self.proposals, self.time_limit, self.stale_after = proposals, time_limit, stale_after
        self._ask = None if policy is None else proposer(policy)
        self._fallbacks: dict[Cause, Fallback] = {
            "invalid observation": on_invalid_observation,
            "stale observation": on_stale_observation,
            "invalid action": on_invalid_action,
        }
        self._dtype = None if dtype is None else np.dtype(dtype)
        self._clock = clock
        self._log = InterventionLog(log_size)
        self._acting = threading.RLock()
        self._constant_centre: Vector | None = None
        self.reset(previous_action)

    # What a control loop calls ------------------------------------------------------------------------------

    def reset(self, previous_action: Any = None) -> None:
        """Begin anew: forget the last observation and action; `previous_action` is what was executed last."""
        with self._acting:
            self._observation: Vector | None = None
            self._executed: Action | None = None
            self._before = None if previous_action is None else vector("previous action", previous_action)

    def act(self, observation: Any, *, stamp: float | None = None, previous_action: Any = None) -> Action:
        """Ask the policy and return a feasible action.

        Args:
            observation: one observation, as the policy and the constraint expect it.
            stamp: when it was measured, by the filter's clock.
            previous_action: what was really executed last, where that is not what the filter returned.
        """
        ask = self._ask
        if ask is None:
            raise ConfigurationError("this filter has no policy. Pass one: SafetyFilter(constraint, policy).")
        with self._acting:
            before = self._before_of(previous_action)
            return self._filtered(observation, stamp, before, lambda: ask(observation, before))

    def correct(
        self, observation: Any, action: Any, *, stamp: float | None = None, previous_action: Any = None
    ) -> Action:
        """Return the action itself if it is feasible, and otherwise one that is; see `act` for the rest."""
        with self._acting:
            before = self._before_of(previous_action)
            return self._filtered(observation, stamp, before, lambda: action, asks=1)

    def interventions(self) -> list[Intervention]:
        """Return the last interventions, oldest first, each with its reason."""
        return self._log.entries()

    def metrics(self) -> dict[str, float]:
        """Return the counters: calls, passed, proposals, interventions by kind and cause, times."""
        return self._log.metrics()

    def prometheus(self, prefix: str = "inbounds_filter", **labels: str) -> str:
        """Return the counters as the text that a Prometheus exporter serves."""
        return self._log.prometheus(prefix, labels)

    # How an action is found ---------------------------------------------------------------------------------

    def _filtered(
        self,
        observation: Any,
        stamp: float | None,
        before: Vector | None,
        propose: Callable[[], Any],
        asks: int | None = None,
    ) -> Action:
        began = time.perf_counter()
        judged = Judged(None, -math.inf, -math.inf, 0, 0)
        try:
            seen = None if observation is None else vector("observation", observation)
            problem = self._problem(seen, stamp)
            if problem is not None:
                return self._stand_in(problem, before)
            self._observation = seen
            judged = self._judge(seen, before, propose, asks or self.proposals, began)
            if judged.action is None:
                return self._stand_in("invalid action", before)
            if judged.excess <= 0.0:
                self._log.count_passed()
                return self._remembered(judged.action)
            return self._moved(judged.action, judged.excess, before)
        finally:
            self._log.count(
                judged.proposals, judged.rejected, judged.worst_excess, time.perf_counter() - began
            )

    def _judge(
        self,
        seen: Vector | None,
        before: Vector | None,
        propose: Callable[[], Any],
        asks: int,
        began: float,
    ) -> Judged:
        last: Action | None = None
        excess = worst = -math.inf
        count = 0
        while count < asks:
            proposal = self._typed(propose())
            count += 1
            if np.isfinite(proposal).all():
                if last is not None and np.array_equal(proposal, last):
                    break  # a deterministic policy has nothing else to offer
                last, excess = proposal, self._excess(seen, proposal, before)
                worst = max(worst, excess)
                if excess <= 0.0:
                    return Judged(proposal, excess, worst, count, count - 1)
            if self.time_limit is not None and time.perf_counter() - began > self.time_limit:
                break
        return Judged(last, excess, worst, count, count)

    def _moved(self, action: Action, excess: float, before: Vector | None) -> Action:
        """Return a feasible action near an infeasible one, and log how it was found."""
        seen = self._observation
        steps = {"ray": self._on_ray, "projection": self._projected, "interior_point": self._central}
        problem: ConstraintError | None = None
        for kind in self._order:
            try:
                with np.errstate(all="ignore"):  # a point that overflowed is not feasible, and is not taken
                    point = steps[kind](seen, action, before)
            except ConstraintError as error:
                problem = error
                continue
            if point is not None:
                self._note(kind, "infeasible action", action, point, excess, before)
                return self._remembered(point)
        self._note("refused", "empty set" if problem else "infeasible action", action, None, excess, before)
        raise InfeasibleActionError(
            f"no feasible action was found: {problem or 'rounding leaves none inside'} Nothing was executed. "
            f"Widen the constraint, or look at the observation: {_short(seen)}."
        ) from problem

    def _on_ray(self, seen: Vector | None, action: Action, before: Vector | None) -> Action | None:
        # The parts of `distance`, asked in one situation: checking the inputs costs more than the geometry.
        at, target, _ = self.constraint.situation(seen, action, before)
        centre = self._constant_centre
        if centre is None:
            centre = self._centre_at(at, target.size)
        direction = target - centre
        reach = min(float(self.constraint.reach(at, centre, direction)), 1.0)
        for share in SHRINKAGE:
            point: Action = (centre + share * reach * direction).astype(action.dtype)
            if np.isfinite(point).all() and self.constraint.excess(at, point.astype(np.float64)).max() <= 0.0:
                return point
        return None

    def _projected(self, seen: Vector | None, action: Action, before: Vector | None) -> Action | None:
        point = self.constraint.project(seen, action, previous_action=before)
        return self._checked(seen, np.asarray(point, dtype=action.dtype), before)

    def _central(self, seen: Vector | None, action: Action, before: Vector | None) -> Action | None:
        return self._checked(seen, self._centre(seen, action.size, before).astype(action.dtype), before)

    def _centre(self, seen: Vector | None, size: int | None, before: Vector | None) -> Vector:
        if self._constant_centre is not None:
            return self._constant_centre
        return self._centre_at(*self.constraint.situation_without_action(seen, size, before))

    def _centre_at(self, at: Situation, size: int) -> Vector:
        centre = self.constraint.interior(at, size)
        self.constraint.require_nonempty(at, self.constraint.tightened_excess(at, centre), size)
        if self.constraint.is_constant():
            self._constant_centre = centre
        result: Vector = centre
        return result

    def _checked(self, seen: Vector | None, point: Action, before: Vector | None) -> Action | None:
        is_feasible = bool(np.isfinite(point).all()) and self._excess(seen, point, before) <= 0.0
        return point if is_feasible else None

    def _excess(self, seen: Vector | None, action: Action, before: Vector | None) -> float:
        return float(self.constraint.violation(seen, action, previous_action=before))

    # What to do without an observation or an action ---------------------------------------------------------

    def _problem(self, seen: Vector | None, stamp: float | None) -> Cause | None:
        if seen is not None and not np.isfinite(seen).all():
            return "invalid observation"
        if self.stale_after is None:
            return None
        if stamp is None:
            raise InvalidInputError(
                f"stale_after={self.stale_after} was set, but the age of this observation is unknown. Pass "
                f"stamp=, the time by the filter's clock when it was measured."
            )
        # An age that is not a number is not known to be small.
        return None if self._clock() - stamp <= self.stale_after else "stale observation"

    def _stand_in(self, cause: Cause, before: Vector | None) -> Action:
        fallback, seen = self._fallbacks[cause], self._observation
        is_blind = seen is None and not self.constraint.is_constant()
        if fallback == "refuse" or is_blind or (fallback == "hold" and self._executed is None):
            self._note("refused", cause, None, None, math.nan, before)
            lacking = "" if fallback == "refuse" else " and there is no earlier one to fall back on"
            raise InvalidInputError(
                f"{cause}{lacking}: nothing was executed. Choose another behaviour "
                f"(on_{cause.replace(' ', '_')}='hold' or 'interior_point'), or repair the source."
            )
        if fallback == "hold" and self._executed is not None:
            held = self._executed
            if (
                self._excess(seen, held, before) > 0.0
            ):  # it has left the set, which may move with the last action
                return self._moved(held, self._excess(seen, held, before), before)
            self._note("hold", cause, None, held, math.nan, before)
            return self._remembered(held)
        size = None if before is None else before.size
        like = np.empty(0, self._dtype or np.float32) if self._executed is None else self._executed
        centre = self._centre(seen, size if like.size == 0 else like.size, before)
        point = self._checked(seen, centre.astype(like.dtype), before)
        if point is None:
            point = self._projected(seen, centre.astype(like.dtype), before)
        if point is None:
            raise InfeasibleActionError(
                f"the interior point of {self.constraint.formula()} cannot be written as {like.dtype}. Nothing was "
                f"executed. Use dtype=np.float64."
            )
        self._note("interior_point", cause, None, point, math.nan, before)
        return self._remembered(point)

    # What is kept -------------------------------------------------------------------------------------------

    def _typed(self, proposal: Any) -> Action:
        """Return a copy in the type that leaves, so that what is judged is what is executed."""
        array = vector("action", proposal, dtype=None)
        own = array.dtype if array.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is not taken
            typed: Action = array.astype(self._dtype or own)
        return typed

    def _before_of(self, previous_action: Any) -> Vector | None:
        return self._before if previous_action is None else vector("previous action", previous_action)

    def _remembered(self, action: Action) -> Action:
        self._executed = action.copy()  # the caller may write into what it was given
        self._before = action.astype(np.float64)
        return action

    def _note(
        self,
        kind: Kind,
        cause: Cause,
        proposed: Action | None,
        executed: Action | None,
        excess: float,
        before: Vector | None,
    ) -> None:
        seen = None if self._observation is None else self._observation.copy()
        given = None if proposed is None else proposed.copy()
        taken = None if executed is None else executed.copy()
        call, now = self._log.calls + 1, time.time()
        self._log.add(
            Intervention(call, now, kind, cause, seen, given, taken, before, excess, self.constraint)
        )


def has_quick_interior(constraint: Constraint) -> bool:
    """Tell whether an interior point costs next to nothing: it is always the same, or has a closed form."""
    if constraint.is_constant():
        return True
    members = constraint.members()
    others = [member for member in members if not isinstance(member, BoxLike)]
    if len(others) > 1 or any(isinstance(member, Polytope) for member in others):
        return False
    return not others or isinstance(others[0], JointWithBox) or isinstance(constraint, Ellipsoid)


def _short(array: Vector | None) -> str:
    return "none" if array is None else np.array2string(array, precision=4, threshold=8)
