"""A last instance before the actuator: whatever proposes an action, what leaves is feasible, in bounded time."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike

from inbounds.constraints import Constraint
from inbounds.constraints.arrays import all_finite, worst_row
from inbounds.constraints.situation import Situation
from inbounds.deploy.correction import (
    Action,
    Choice,
    Correction,
    Fallback,
    Place,
    Vector,
    leaving_type,
    observed_previous,
    proposer,
    recalled,
    require_fallbacks,
    vector,
)
from inbounds.deploy.interventions import (
    Cause,
    Intervention,
    InterventionLog,
    Kind,
    LimitCounts,
    LimitUse,
    Locked,
    idle_members,
    told,
)
from inbounds.errors import ConfigurationError, EmptySetError, InfeasibleActionError, InvalidInputError

FLOAT64 = np.dtype(np.float64)


class Checked(NamedTuple):
    """What became of the proposals of one call."""

    action: Action | None
    """The first feasible one, or else the last finite one, or nothing."""
    excess: float
    worst_excess: float
    """The largest one among all that were proposed."""
    proposals: int
    rejected: int


class SafetyFilter(Locked):
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
        warn_after: after so many calls a warning names the limits that no proposal has come near, since a bound in
            wrong units does not bind; None for no warning.
        clock: what `stamp` is compared with.
    """

    def __init__(
        self,
        constraint: Constraint,
        policy: Any = None,
        *,
        proposals: int = 20,
        time_limit: float | None = None,
        correction: Choice = "quickest",
        on_invalid_observation: Fallback = "refuse",
        on_stale_observation: Fallback = "refuse",
        on_invalid_action: Fallback = "refuse",
        stale_after: float | None = None,
        previous_action: Any = None,
        dtype: DTypeLike | None = None,
        log_size: int = 1000,
        warn_after: int | None = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the choices; nothing is computed yet."""
        super().__init__()
        if not isinstance(constraint, Constraint):
            raise ConfigurationError(
                f"a SafetyFilter needs a constraint, not {constraint!r}. Pass one, such as task.constraint."
            )
        chosen: Mapping[str, str] = {
            "on_invalid_observation": on_invalid_observation,
            "on_stale_observation": on_stale_observation,
            "on_invalid_action": on_invalid_action,
        }
        require_fallbacks(chosen)
        if correction not in ("quickest", "ray", "projection"):
            raise ConfigurationError(
                f"correction={correction!r} is unknown. Choose 'quickest', 'ray' or 'projection'."
            )
        if not isinstance(proposals, int | np.integer) or proposals < 1:
            raise ConfigurationError(
                f"proposals={proposals}, but the policy must be asked once. Use 1 or more."
            )
        for name, seconds in (("time_limit", time_limit), ("stale_after", stale_after)):
            if seconds is not None and not (isinstance(seconds, int | float | np.number) and seconds > 0):
                raise ConfigurationError(
                    f"{name}={seconds}, but seconds above 0 are expected. Or leave it out."
                )
        if warn_after is not None and (not isinstance(warn_after, int | np.integer) or warn_after < 1):
            raise ConfigurationError(
                f"warn_after={warn_after!r}, but a number of calls is expected. Use 1000, or None for no warning."
            )
        if not callable(clock):
            raise ConfigurationError(
                f"clock={clock!r} cannot be asked for the time. Pass a function, such as time.monotonic."
            )
        self.constraint = constraint
        self._correction = Correction(constraint, correction)
        self.proposals, self.time_limit, self.stale_after = proposals, time_limit, stale_after
        self._ask = None if policy is None else proposer(policy)
        self._fallbacks: dict[Cause, Fallback] = {
            "invalid observation": on_invalid_observation,
            "stale observation": on_stale_observation,
            "invalid action": on_invalid_action,
        }
        self._dtype = None if dtype is None else leaving_type(dtype)
        answering = {name: value for name, value in chosen.items() if name != "on_invalid_action"}
        self._previous_in = observed_previous(constraint, answering)
        self._clock = clock
        self._log = InterventionLog(log_size)
        self._limits, self.warn_after = LimitCounts(), warn_after
        self.reset(previous_action)

    def __repr__(self) -> str:
        """Show whether a policy is asked, the set, and how many proposals broke each of its members."""
        asked = "corrects only" if self._ask is None else f"asks a policy up to {self.proposals} times"
        return f"SafetyFilter({asked}: {self.constraint.formula()}{told(self.constraint, self.limits())})"

    # What a control loop calls ------------------------------------------------------------------------------

    def reset(self, previous_action: Any = None) -> None:
        """Begin anew: forget the last observation and action; `previous_action` is what was executed last."""
        with self._lock:
            self._observation: Vector | None = None
            self._executed: Action | None = None
            self._before: Vector | None = None
            before, size = self._before_of(previous_action), self.constraint.size()
            if size is not None:
                Situation(np, np.float64, None, before).require_fitting(size)
            self._before = before

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
        with self._lock:
            before = self._before_of(previous_action)
            # A copy: a policy may write into what it is told, and must not move the limit on changes.
            shown = None if before is None else before.copy()
            return self._filtered(observation, stamp, before, lambda: ask(observation, shown))

    def correct(
        self, observation: Any, action: Any, *, stamp: float | None = None, previous_action: Any = None
    ) -> Action:
        """Return the action itself if it is feasible, and otherwise one that is; see `act` for the rest."""
        with self._lock:
            before = self._before_of(previous_action)
            return self._filtered(observation, stamp, before, lambda: action, asks=1)

    def interventions(self) -> list[Intervention]:
        """Return the last interventions, oldest first, each with its reason."""
        return self._log.entries()

    def metrics(self) -> dict[str, float]:
        """Return the counters: calls, passed, proposals, interventions by kind and cause, times."""
        return self._log.metrics()

    def limits(self) -> list[LimitUse]:
        """Return, limit by limit, how many proposals were beyond it or near it; empty before the first one."""
        like = self._before if self._before is not None else self._executed
        size = self.constraint.size() or (None if like is None else like.size)
        if size is None:
            return []
        return self._limits.uses(self.constraint, Situation(np, np.float64, None, None), size)

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
        checked = Checked(None, -math.inf, -math.inf, 0, 0)
        try:
            # A copy: the caller may write into the observation, and must not move what is held on to.
            seen = None if observation is None else vector("observation", observation).copy()
            problem = self._problem(seen, stamp)
            if problem is not None:
                return self._stand_in(problem, Place(self._recalled(before), before))
            self._observation, place = seen, Place(seen, before)
            checked = self._check(place, propose, asks or self.proposals, began)
            if checked.action is None:
                return self._stand_in("invalid action", place)
            if checked.excess <= 0.0:
                return self._remembered(checked.action)
            return self._moved(checked.action, checked.excess, place)
        finally:
            spent = time.perf_counter() - began
            self._log.count(checked.proposals, checked.rejected, checked.worst_excess, spent)
            if self._log.calls == self.warn_after:
                self._warn_of_idle_limits()

    def _check(self, place: Place, propose: Callable[[], Any], asks: int, began: float) -> Checked:
        last: Action | None = None
        excess = worst = -math.inf
        count = 0
        while count < asks:
            proposal = self._typed(propose())
            count += 1
            if all_finite(proposal):
                if last is not None and np.array_equal(proposal, last):
                    break  # a deterministic policy has nothing else to offer
                rows = self._correction.rows(place, proposal)
                self._limits.add(rows)
                last, excess = proposal, float(worst_row(np, rows))
                worst = max(worst, excess)
                if excess <= 0.0:
                    return Checked(proposal, excess, worst, count, count - 1)
            if self.time_limit is not None and time.perf_counter() - began > self.time_limit:
                break
        return Checked(last, excess, worst, count, count)

    def _moved(self, action: Action, excess: float, place: Place) -> Action:
        """Return a feasible action near an infeasible one, and log how it was found."""
        try:
            point, kind = self._correction.moved(place, action)
        except (EmptySetError, InfeasibleActionError) as error:
            cause: Cause = "empty set" if isinstance(error, EmptySetError) else "infeasible action"
            self._note("refused", cause, action, None, excess, place)
            raise
        self._note(kind, "infeasible action", action, point, excess, place)
        return self._remembered(point)

    def _warn_of_idle_limits(self) -> None:
        """Name the members of the set that no proposal was beyond or near."""
        idle = idle_members(self.constraint, self.limits())
        if not idle:
            return
        listed = "; ".join(member.formula() for member in idle)
        warnings.warn(
            f"in {self.warn_after} calls no action was beyond or near these limits: {listed}. If that is unexpected, "
            f"compare their units with those of the actions; limits() shows how much room was left. Pass "
            f"warn_after=None to silence this.",
            stacklevel=4,
        )

    # What to do without an observation or an action ---------------------------------------------------------

    def _problem(self, seen: Vector | None, stamp: float | None) -> Cause | None:
        if seen is not None and not all_finite(seen):
            return "invalid observation"
        if self.stale_after is None:
            return None
        if stamp is None:
            raise InvalidInputError(
                f"stale_after={self.stale_after} was set, but the age of this observation is unknown. Pass "
                f"stamp=, the time by the filter's clock when it was measured."
            )
        now = self._clock()
        for name, value in (("stamp", stamp), ("clock()", now)):
            if not isinstance(value, int | float | np.floating | np.integer):
                raise InvalidInputError(
                    f"{name}={value!r} is not a time. Pass seconds by the filter's clock."
                )
        age = now - stamp
        if age < -self.stale_after:
            raise InvalidInputError(
                f"stamp={stamp} lies {-age:.3g} s ahead of the filter's clock, so that the age is unknown. Take stamps "
                f"by that clock (time.monotonic by default), or pass clock= the one that stamps are taken by."
            )
        # An age that is not a number is not known to be small.
        return None if age <= self.stale_after else "stale observation"

    def _recalled(self, before: Vector | None) -> Vector | None:
        """Return the last good observation; where it holds the action before it, what was executed since."""
        last = self._observation
        is_kept = last is None or before is None or not self._previous_in
        return last if is_kept else cast(Vector, recalled(self._previous_in, last, before))

    def _stand_in(self, cause: Cause, place: Place) -> Action:
        """Return the action that the user chose for want of a better one, feasible where we stood last."""
        fallback, held = self._fallbacks[cause], self._executed
        is_blind = place.observation is None and self._correction.reads_observation
        if fallback == "refuse" or is_blind or (fallback == "hold" and held is None):
            self._note("refused", cause, None, None, math.nan, place)
            lacking = "" if fallback == "refuse" else " and there is no earlier one to fall back on"
            raise InvalidInputError(
                f"{cause}{lacking}: nothing was executed. Choose another behaviour "
                f"(on_{cause.replace(' ', '_')}='hold' or 'interior_point'), or repair the source."
            )
        if fallback == "hold" and held is not None:
            excess = self._correction.excess(place, held)
            if not excess <= 0.0:  # the set moves with the last action, and has left it behind
                return self._moved(held, excess, place)
            self._note("hold", cause, None, held, math.nan, place)
            return self._remembered(held)
        like = held if held is not None else place.previous_action
        dtype = self._dtype or (np.dtype(np.float32) if held is None else held.dtype)
        centre = self._correction.centre(place, None if like is None else like.size).astype(dtype)
        if not self._correction.excess(place, centre) <= 0.0:
            centre = self._correction.moved(place, centre).action
        self._note("interior_point", cause, None, centre, math.nan, place)
        return self._remembered(centre)

    # What is kept -------------------------------------------------------------------------------------------

    def _typed(self, proposal: Any) -> Action:
        """Return a copy in the type that leaves, so that what is checked is what is executed."""
        array = vector("action", proposal, dtype=None)
        wanted = self._dtype or (array.dtype if array.dtype.char in "fd" else FLOAT64)
        if array.dtype == wanted:
            return array.copy()
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is not taken
            typed: Action = array.astype(wanted)
        return typed

    def _before_of(self, previous_action: Any) -> Vector | None:
        if previous_action is None:
            return self._before
        before = vector("previous action", previous_action).copy()
        if not all_finite(before):
            raise InvalidInputError(f"the previous action is {before}. Pass what was really executed.")
        return before

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
        place: Place,
    ) -> None:
        given = None if proposed is None else proposed.copy()
        taken = None if executed is None else executed.copy()
        call, now = self._log.calls + 1, time.time()
        self._log.add(Intervention(call, now, kind, cause, *place, given, taken, excess, self.constraint))
