"""Membership functions for oracles, by name; the checker calls the very same functions, which are the set."""

from __future__ import annotations

from typing import Any

import numpy as np


def in_disc(observation: Any, action: Any) -> Any:
    """Allow actions of length 1 or less."""
    return bool(np.sum(np.square(action)) <= 1.0)


def in_ring(observation: Any, action: Any) -> Any:
    """Allow what is neither near zero nor far from it; not convex."""
    return bool(0.25 <= np.sum(np.square(action)) <= 1.0)


def in_strip(observation: Any, action: Any) -> Any:
    """Allow a thin strip along the diagonal of the first and the last entry."""
    return bool(abs(action[0] - action[-1]) <= 1e-3 and np.max(np.abs(action)) <= 1.0)
