"""Where a policy's mean is counted from, in tasks whose observation holds an action that is sensible already."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from inbounds.constraints.arrays import clip
from inbounds.constraints.references import Reference, reference_from_json
from inbounds.deploy.policy_network import FloatArray, PreparedNetwork
from inbounds.deploy.policy_proposals import Range
from inbounds.errors import CheckpointError
from inbounds.storage.sealed_arrays import DAMAGE

INSIDE = 0.99
"""How far out a start may lie on [-1, 1], since the corners of the box are at infinity; the same as in training."""


@dataclasses.dataclass(frozen=True)
class ObservedStart:
    """Adds arctanh(clip((a - middle) / half)) to a mean, where a is read from the observation; all in float32.

    A network that says zero then acts as the observation suggests: tanh and the stretch over the box undo this.
    """

    reference: Reference
    box: Range

    @functools.cached_property
    def _half(self) -> FloatArray:
        """Half the widths; an entry without any is its middle wherever it is counted from."""
        return np.where(self.box.half > 0, self.box.half, np.float32(1.0))

    @functools.cached_property
    def _limits(self) -> tuple[FloatArray, FloatArray]:
        """Both ends as arrays, with which numpy compares faster than with numbers."""
        return np.full_like(self.box.half, -INSIDE), np.full_like(self.box.half, INSIDE)

    def before_squashing(self, xp: Any, observation: Any) -> Any:
        """Return what the mean is counted from, for one float32 observation of any array library."""
        middle, half, (low, high) = self.box.middle, self._half, self._limits
        if xp is not np:
            middle, half, low, high = (xp.asarray(side) for side in (middle, half, low, high))
        return xp.atanh(clip(xp, (self.reference.read(observation) - middle) / half, low, high))

    def counted_from(self, xp: Any, observation: Any, output: Any) -> Any:
        """Return a network's output, mean and log-deviation, with the mean counted from the start."""
        size = len(self.box.low)
        return xp.concat([output[:size] + self.before_squashing(xp, observation), output[size:]])


class NetworkFromStart:
    """The prepared network whose mean is counted from what is observed: numpy alone."""

    def __init__(self, network: PreparedNetwork, start: ObservedStart) -> None:
        """Keep both."""
        self._network, self._start, self._size = network, start, len(start.box.low)

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return mean and log-deviation."""
        output = self._network(observation)
        output[: self._size] += self._start.before_squashing(np, observation)
        return output


def read_start(described: Mapping[str, Any], learner: Mapping[str, Any]) -> Reference | None:
    """Return what a file says that means are counted from: the task's start, if it is observed and was wanted.

    A start that is the same in all states is part of the network: its last bias. Older files name none.
    """
    start = described.get("starting_action")
    if start is not None and not isinstance(start, list | dict):
        raise CheckpointError(
            f"'starting_action' is {start!r}, but a reference to the observation, a list of numbers or nothing is "
            f"expected. Restore the folder."
        )
    return reference_from_json(start) if isinstance(start, dict) and learner.get("warm_start") else None


def require_fit(start: ObservedStart, observation_size: int) -> None:
    """Refuse a start that reads what an observation does not have, or is no action."""
    reference, size = start.reference, len(start.box.low)
    nothing = np.zeros(observation_size, np.float32)
    why: Exception | None = None
    is_action = False
    try:
        with np.errstate(all="ignore"):
            is_action = reference.read(nothing).shape == (size,) and reference.source == "observation"
            is_action = is_action and bool(np.isfinite(start.before_squashing(np, nothing)).all())
    except DAMAGE as error:
        why = error
    if not is_action:
        raise CheckpointError(
            f"the policy counts from {reference}, which is no action of {size} entries out of an observation of "
            f"{observation_size}. Restore the folder, or train and export again."
        ) from why
