"""How a trained policy acts in one state: numpy alone, acceptance first, projection as the last resort."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.constraints.arrays import all_finite
from inbounds.constraints.situation import Situation
from inbounds.deploy.membership import membership_test
from inbounds.deploy.noise_store import NoiseStore
from inbounds.deploy.prepared import PreparedGaussian, PreparedNetwork
from inbounds.errors import InvalidInputError
from inbounds.policies.box import ActionBox
from inbounds.policies.heads import Head, Parameters, Query, SquashedGaussian

Single = NDArray[np.float32]
Double = NDArray[np.float64]

PROJECTED, UNANSWERED = -1, -2
"""In place of the number of the accepted proposal: none was, or no action could be found (an empty set, NaN)."""
UNDECIDED = -3


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
                    # What comes after the first feasible draw has decided nothing: it is as good as new.
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
        try:
            seen = np.asarray(observation, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise self._refused(observation, "no numbers") from error
        # A sum of squares that is finite tells fastest that every entry is.
        if seen.shape != self._shape or not (math.isfinite(seen.dot(seen)) or all_finite(seen)):
            raise self._refused(observation, str(seen.shape))
        if previous_action is None:
            return Place(seen, None)
        try:
            before = np.asarray(previous_action, dtype=np.float64)
        except (TypeError, ValueError):
            before = np.empty(0)
        if before.shape != (self.action_size,) or not all_finite(before):
            raise InvalidInputError(
                f"the previous action is {previous_action}, but {self.action_size} finite numbers are expected. "
                f"Pass what was executed last."
            )
        return Place(seen, before)

    def _refused(self, observation: Any, kind: str) -> InvalidInputError:
        return InvalidInputError(
            f"the policy expects one finite observation of {self.observation_size} entries, got {kind}: "
            f"{observation}. Pass all that the task returned, a previous action that it appends included."
        )

    def _refused_noise(self, kind: str) -> InvalidInputError:
        return InvalidInputError(
            f"finite noise of shape (N, {self.action_size}) is expected, got {kind}. Pass one row for each proposal."
        )


def query_of(observation: Any, previous_action: Any, output: Any, noise: Any) -> Query:
    """Return one state as a batch of one, against which rows of noise broadcast; `output` is (1, outputs)."""
    before = None if previous_action is None else previous_action[None, :]
    return Query(observation[None, :], output, noise, before)
