"""How a trained policy acts in one state: NumPy alone, acceptance first, projection as the last resort.

The numbers are those of `inbounds.policies.networks` and `inbounds.policies.heads.SquashedGaussian`, in fewer passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.constraints.arrays import Array, all_finite, as_numpy
from inbounds.constraints.ellipsoid import Ball
from inbounds.constraints.expressions import Expression
from inbounds.constraints.level_set import LevelSet, PowerBudget, WeightedL1
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Situation
from inbounds.errors import InvalidInputError
from inbounds.policies.box import ActionBox, FloatArray
from inbounds.policies.gaussian import LOG_STD_MAX, LOG_STD_MIN, MOST_OUT
from inbounds.policies.heads import Head, Layers, Parameters, SquashedGaussian, query_of

Vector = NDArray[np.float64]
Membership = Callable[[Vector, Vector | None, Array], Array]
"""Tells of one action, (d,), or of many, (N, d), which ones a set accepts for an observation and a previous action.

All are float64 arrays of numpy, checked before: finite, and of the sizes that the test was made for.
"""
Level = Callable[[Vector, Array], Array]
Read = Callable[[Vector], Any]

NOTHING = np.zeros(())


def membership_test(constraint: Constraint, observation_size: int, dimension: int) -> Membership:
    """Return a constraint's `accepts` for one state at a time, with all that no state changes put in.

    Where weights are read as they are and the bound is a number, the test is a product of two arrays; every
    other set is asked itself. Sums may round differently than the set's own, by far less than its margin.
    """
    level = _level(constraint, observation_size, dimension)
    if level and isinstance(constraint, LevelSet) and not isinstance(constraint.bound, Expression):
        nowhere = Situation(np, np.float64, None, None)
        bound = float(constraint.inner_bound(nowhere, dimension))
        return lambda observation, previous_action, action: level(observation, action) <= bound

    def ask(observation: Vector, previous_action: Vector | None, action: Array) -> Array:
        return constraint.accepts(Situation(np, np.float64, observation, previous_action), action)

    return ask


def _level(constraint: Constraint, observation_size: int, dimension: int) -> Level | None:
    """Return the level of a set of a known kind as few operations; a kind derived from one may be another set."""
    ones = np.ones(dimension)
    if type(constraint) is Ball:
        return lambda observation, action: (action * action).dot(ones)
    if type(constraint) not in (WeightedL1, PowerBudget):
        return None
    read = _reader(constraint.parameters()["weights"], observation_size, dimension)
    if read is None:
        return None
    if type(constraint) is PowerBudget:
        return lambda observation, action: np.maximum(read(observation) * action, NOTHING).dot(ones)
    return lambda observation, action: np.abs(action).dot(np.abs(read(observation)))


def _reader(weights: Any, observation_size: int, dimension: int) -> Read | None:
    """Return how to read weights that are constant, or entries side by side of an observation, unshifted."""
    if isinstance(weights, Expression) and not isinstance(weights, Reference):
        return None
    if not isinstance(weights, Reference):
        if weights.shape not in ((), (dimension,)):
            return None
        fixed = np.broadcast_to(weights, (dimension,)).copy()
        return lambda observation: fixed
    is_plain = weights.source == "observation" and weights.part is None and weights.offset == 0.0
    if not is_plain or weights.least_size > observation_size:
        return None
    places = weights.read_unscaled(np.arange(observation_size))
    if places.shape != (dimension,) or not (np.diff(places) == 1).all():
        return None
    start, scale = int(places[0]), weights.scale
    entries = slice(start, start + dimension)
    if scale == 1.0:
        return lambda observation: observation[entries]

    def read(observation: Vector) -> Any:
        found = observation[entries] * scale
        # As for the set itself, weights that overflow are NaN, so that nothing is accepted.
        return found if all_finite(found) else np.where(np.isfinite(found), found, np.nan)

    return read


LEAST = 256
"""Rows that are drawn at once; more would keep the action that has to wait for them too long."""


class NoiseStore:
    """Hands out rows of standard normal or Student's noise in the order in which the generator draws them."""

    def __init__(self, rng: np.random.Generator, size: int, degrees: float | None) -> None:
        """Draw rows of `size` numbers; `degrees` of freedom make them Student's."""
        self.rng, self._size, self._degrees = rng, size, degrees
        self._rows, self._used = np.empty((0, size), np.float32), 0

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the next rows; they are not to be written into."""
        # Threads that meet here may get the same rows, but never fewer than they asked for.
        rows, used = self._rows, self._used
        end = used + count
        if end > len(rows):
            shape = (max(LEAST, count), self._size)
            fresh = (
                self.rng.standard_normal(shape, dtype=np.float32)
                if self._degrees is None
                else self.rng.standard_t(self._degrees, shape).astype(np.float32)
            )
            rows, used, end = np.concatenate([rows[used:], fresh]), 0, count
            self._rows = rows
        self._used = end
        return rows[used:end]

    def take_back(self, count: int) -> None:
        """Hand out the last rows once more; nothing may have depended on them."""
        self._used = max(self._used - count, 0)


class PreparedNetwork:
    """A network for one observation at a time, with a constant preference put in."""

    def __init__(self, layers: Layers, preference: FloatArray | None) -> None:
        """Add the preference's part to the first bias, and keep zeros to compare with, faster than a number."""
        (weight, bias), *others = layers
        if preference is not None:
            inputs = len(weight) - len(preference)
            weight, bias = np.ascontiguousarray(weight[:inputs]), bias + preference @ weight[inputs:]
        *inner, self._last = [(weight, bias), *others]
        self._inner = [(weight, bias, np.zeros_like(bias)) for weight, bias in inner]

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return the output."""
        hidden = observation
        for weight, bias, zeros in self._inner:
            hidden = hidden.dot(weight)  # the method, which is looked up faster than the function
            hidden += bias
            np.maximum(hidden, zeros, out=hidden)
        weight, bias = self._last
        output: FloatArray = hidden.dot(weight)
        output += bias
        return output


class PreparedGaussian:
    """A squashed Gaussian for one observation at a time."""

    def __init__(self, network: PreparedNetwork, head: SquashedGaussian, box: ActionBox) -> None:
        """Keep limits as arrays, with which NumPy compares faster than with numbers."""
        self._network, self._reference, self._box, self._size = network, head.reference, box, box.size
        self._log_std = [np.full(box.size, end, np.float32) for end in (LOG_STD_MIN, LOG_STD_MAX)]
        self._most_out = [np.full(box.size, end, np.float32) for end in (-MOST_OUT, MOST_OUT)]
        self._is_unit = bool((box.low == -1).all() and (box.high == 1).all())
        is_alike = box.size > 0 and bool((box.low == box.low[0]).all() and (box.high == box.high[0]).all())
        # Many rows are compared faster with numbers that have no axis.
        self._limits = (np.asarray(box.low[0]), np.asarray(box.high[0])) if is_alike else (box.low, box.high)

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return mean and log-std; the mean is around the observed reference action where the head has one."""
        output = self._network(observation)
        if self._reference is not None:
            squashed = (self._reference.read(observation) - self._box.middle) / self._box.divisor
            lowest, highest = self._most_out
            output[: self._size] += np.arctanh(np.minimum(np.maximum(squashed, lowest), highest))
        return output

    def drawn(self, output: FloatArray, noise: FloatArray) -> FloatArray:
        """Return rescale(tanh(mean + std * noise)) of one row of noise or of several."""
        size = self._size
        lowest, highest = self._log_std
        std = np.maximum(output[size:], lowest)
        np.minimum(std, highest, out=std)
        drawn: FloatArray = noise * np.exp(std, out=std)
        drawn += output[:size]
        np.tanh(drawn, out=drawn)
        if not self._is_unit:
            drawn *= self._box.half
            drawn += self._box.middle
        lowest, highest = self._limits
        np.maximum(drawn, lowest, out=drawn)
        return np.minimum(drawn, highest, out=drawn)


Single = NDArray[np.float32]
Double = NDArray[np.float64]

PROJECTED, UNANSWERED = -1, -2
"""In place of the number of the accepted proposal: none was, or no action could be found (an empty set, NaN)."""
UNDECIDED = -3

MOST, SQUARE = float(np.finfo(np.float32).max), 1e76
"""The largest entry that a network can read, and a number below the square of it."""


class Decision(NamedTuple):
    """An action, and the number of the proposal that it is."""

    action: Single
    accepted: int


class Place(NamedTuple):
    """What the policy is told, checked."""

    observation: Double
    previous_action: Double | None


class Policy:
    """Acts with a network, a box and a constraint; every action is feasible, with no tolerance.

    A stochastic action is the first feasible of up to `proposals` draws, tested in blocks, since one matrix of
    candidates costs little more than one candidate; if none is feasible the last one is projected.
    """

    block = 100
    """How many draws are tested together where the first one alone was not feasible."""

    def __init__(
        self,
        head: Head,
        parameters: Parameters,
        box: ActionBox,
        constraint: Constraint,
        *,
        preference: Single | None,
        rng: np.random.Generator,
    ) -> None:
        """Keep what acting needs: the head, its arrays, and the task's box and constraint."""
        self.head, self.parameters, self.box, self.constraint = head, parameters, box, constraint
        self.preference, self.proposals, self.rng = preference, head.proposals, rng
        layers = parameters["actor"]
        self.observation_size = layers[0].weight.shape[0] - (0 if preference is None else len(preference))
        self.action_size = box.size
        network = PreparedNetwork(layers, preference)
        self._fast = PreparedGaussian(network, head, box) if type(head) is SquashedGaussian else None
        self.forward = network if self._fast is None else self._fast
        """The network's output for one observation in float32; a mean is around the reference action, if any."""
        self._shape = (self.observation_size,)
        # Proposals that are clipped to the policy's own box need not be compared with a box that contains it.
        self._first_will_do = self._fast is not None
        members = constraint.members()
        others = tuple(member for member in members if self._fast is None or not box.lies_within(member))
        self._asked = others or members
        self._tests = [
            membership_test(member, self.observation_size, self.action_size) for member in self._asked
        ]
        self._store = NoiseStore(rng, self.action_size, head.student_df)
        self.projections = 0
        """How often no proposal was feasible."""
        self.proposals_checked = 0
        self.proposals_accepted = 0
        """Of the proposals up to the first feasible one of every action, how many were feasible."""

    def __repr__(self) -> str:
        """Show sizes, how an action is found, and the set."""
        weights = (
            "" if self.preference is None else f", preference {' '.join(f'{w:g}' for w in self.preference)}"
        )
        return (
            f"Policy({self.observation_size} observed numbers -> {self.action_size} of an action, first feasible of "
            f"{self.proposals}{weights}: {self.constraint.formula()})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make the policy again, in a copy or another process: what was prepared are functions."""
        prepared = ("forward", "_fast", "_tests")
        state = {name: value for name, value in self.__dict__.items() if name not in prepared}
        make = functools.partial(type(self), preference=self.preference, rng=self.rng)
        return make, (self.head, self.parameters, self.box, self.constraint), state

    def act(self, observation: Any, deterministic: bool = False, *, previous_action: Any = None) -> Single:
        """Return a feasible action in the units that `env.step` receives."""
        place = self._place(observation, previous_action)
        output = self.forward(place.observation.astype(np.float32))
        if deterministic or not self.head.takes_noise:
            centre = np.zeros((1, self.action_size), np.float32)
            return self._decided(place, output, centre, is_last=True).action
        left = self.proposals
        if self._first_will_do and self._fast is not None and left > 1:
            # Mostly the first one will do, and vectors are faster than matrices.
            first = self._fast.drawn(output, self.noise(1)[0])
            self.proposals_checked, left = self.proposals_checked + 1, left - 1
            if self._are_feasible(place, first.astype(np.float64)):
                self.proposals_accepted += 1
                return first
            self._first_will_do = False
        while True:
            count = min(self.block, left)
            left -= count
            decision = self._decided(place, output, self.noise(count), is_last=left <= 0)
            if decision.accepted != UNDECIDED:
                if decision.accepted >= 0:
                    # The noise after the accepted draw was not used, so it goes back.
                    self._store.take_back(count - decision.accepted - 1)
                    self._first_will_do = self._fast is not None and decision.accepted == 0
                return decision.action

    def decide(self, observation: Any, noise: Any, *, previous_action: Any = None) -> Decision:
        """Return what the policy makes of given noise, (N, d), and which row was accepted: what a graph returns."""
        place = self._place(observation, previous_action)
        try:
            rows = np.asarray(noise, np.float32)
        except (TypeError, ValueError) as error:
            raise self._refused_noise("no numbers") from error
        if rows.ndim != 2 or len(rows) < 1 or rows.shape[1] != self.action_size:
            raise self._refused_noise(str(rows.shape))
        if not all_finite(rows):
            raise self._refused_noise("values that are not finite")
        output = self.forward(place.observation.astype(np.float32))
        return self._decided(place, output, rows, is_last=True)

    def _decided(self, place: Place, output: Single, noise: Single, *, is_last: bool) -> Decision:
        candidates: Single = (
            self.head.actions(self, self.parameters, query_of(*place, output[None, :], noise))
            if self._fast is None
            else self._fast.drawn(output, noise)
        )
        are_feasible = self._are_feasible(place, candidates.astype(np.float64))
        first = int(are_feasible.argmax())
        if are_feasible[first]:
            # What follows the first feasible one decides nothing, however many are checked at once.
            self.proposals_checked += first + 1
            self.proposals_accepted += 1
            # A copy, which does not keep the whole block.
            return Decision(candidates[first].copy(), first)
        self.proposals_checked += len(candidates)
        if not is_last:
            return Decision(candidates[-1], UNDECIDED)
        self.projections += 1
        moved = self.constraint.project(
            place.observation, candidates[-1], previous_action=place.previous_action
        )
        return Decision(np.asarray(moved, np.float32), PROJECTED)

    def _are_feasible(self, place: Place, candidates: Double) -> Any:
        """Tell which proposals lie in the set; what the policy's own box grants is not asked."""
        first, *others = self._tests
        are_feasible = first(*place, candidates)
        for test in others:
            are_feasible = are_feasible & test(*place, candidates)
        return are_feasible

    def accepted(self, at: Situation, candidates: Any) -> Any:
        """Tell the same in any array library."""
        accepted = self._asked[0].accepts(at, candidates)
        for member in self._asked[1:]:
            accepted = accepted & member.accepts(at, candidates)
        return accepted

    def noise(self, count: int) -> Single:
        """Draw the noise of some proposals."""
        if self._store.rng is not self.rng:
            self._store = NoiseStore(self.rng, self.action_size, self.head.student_df)
        return self._store.rows(count)

    def _place(self, observation: Any, previous_action: Any) -> Place:
        """Check what the policy is told; the constraint is then asked without checking it again."""
        seen = np.asarray(as_numpy("observation", observation), dtype=np.float64)
        # A sum of squares that is small tells fastest that every entry is.
        if seen.shape != self._shape or not (
            seen.dot(seen) < SQUARE or np.abs(seen).max(initial=0.0) <= MOST
        ):
            raise self._refused(observation, str(seen.shape))
        if previous_action is None:
            return Place(seen, None)
        before = np.asarray(as_numpy("previous action", previous_action), dtype=np.float64)
        if before.shape != (self.action_size,) or not all_finite(before):
            raise InvalidInputError(
                f"the previous action is {previous_action}, but {self.action_size} finite numbers are expected. "
                f"Pass what was executed last."
            )
        return Place(seen, before)

    def _refused(self, observation: Any, kind: str) -> InvalidInputError:
        return InvalidInputError(
            f"the policy expects one observation of {self.observation_size} finite entries that float32 can hold, got "
            f"{kind}: {observation}. Pass all that the task returned, a previous action that it appends included."
        )

    def _refused_noise(self, kind: str) -> InvalidInputError:
        return InvalidInputError(
            f"finite noise of shape (N, {self.action_size}) is expected, got {kind}. Pass one row for each proposal."
        )
