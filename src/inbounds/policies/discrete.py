"""Actions whose entries are whole numbers: levels of each entry, counted from the lower end of its range."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.errors import ConfigurationError
from inbounds.policies.proposal import ActionBox


def level_count(box: ActionBox) -> int:
    """Return how many levels each entry has; ranges that are not whole or differ are refused."""
    widths = np.asarray(box.high - box.low)
    if np.any(box.low != np.round(box.low)) or np.any(widths != np.round(widths)) or np.ptp(widths) != 0:
        raise ConfigurationError(
            f"a discrete learner needs the same whole number of levels for every entry, but the box goes from "
            f"{box.low.tolist()} to {box.high.tolist()}. Give whole bounds, equally far apart."
        )
    return int(widths.flat[0]) + 1


def to_levels(box: ActionBox, action: jax.Array) -> jax.Array:
    """Return the level of each entry of an action in the environment's units."""
    return jnp.round(action - box.low).astype(jnp.int32)


def from_levels(box: ActionBox, level: jax.Array) -> jax.Array:
    """Return the action in the environment's units."""
    return jnp.asarray(box.low) + level.astype(jnp.float32)
