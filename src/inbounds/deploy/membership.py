"""Membership tests that are made once for many states: what a policy asks about every one of its proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import Array, all_finite
from inbounds.constraints.ball import Ball
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.level_set import LevelSet
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Situation
from inbounds.constraints.weighted_sum import PowerBudget, WeightedL1

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
    if level is not None and isinstance(constraint, LevelSet) and not isinstance(constraint.bound, Reference):
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
