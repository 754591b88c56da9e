"""Integer actions: levels of each entry, counted from the lower end of its range."""

from __future__ import annotations

import numpy as np

from inbounds.constraints.arrays import namespace_of
from inbounds.errors import ConfigurationError
from inbounds.policies.box import ActionBox, ArrayT


def level_count(box: ActionBox) -> int:
    """Return how many levels each entry has; ranges that are not whole or differ are refused."""
    widths = np.asarray(box.high - box.low)
    if np.any(box.low != np.round(box.low)) or np.any(widths != np.round(widths)) or np.ptp(widths) != 0:
        raise ConfigurationError(
            f"a discrete learner needs the same whole number of levels for every entry, but the box goes from "
            f"{box.low.tolist()} to {box.high.tolist()}. Give whole bounds, equally far apart."
        )
    return int(widths.flat[0]) + 1


def to_levels(box: ActionBox, action: ArrayT) -> ArrayT:
    """Return the level of each entry of an action in the environment's units."""
    xp = namespace_of(action)
    level: ArrayT = xp.astype(xp.round(action - xp.asarray(box.low)), xp.int32)
    return level


def from_levels(box: ActionBox, level: ArrayT) -> ArrayT:
    """Return the action in the environment's units."""
    xp = namespace_of(level)
    action: ArrayT = xp.asarray(box.low) + xp.astype(level, xp.float32)
    return action
