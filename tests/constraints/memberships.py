"""Membership functions that oracles import by their path."""

from __future__ import annotations

from typing import Any

import numpy as np


def in_ring(observation: Any, action: Any) -> bool:
    """Allow actions between two circles."""
    return bool(0.81 <= np.sum(np.square(action)) <= 1.21)


def in_rings(observation: Any, action: Any) -> Any:
    """Allow the same for a batch of actions."""
    square = np.sum(np.square(action), axis=-1)
    return (square >= 0.81) & (square <= 1.21)


def below_entry(observation: Any, action: Any) -> Any:
    """Allow actions whose sum is at most the first entry of the observation."""
    return np.sum(action, axis=-1) <= observation[..., 0]


def number(observation: Any, action: Any) -> float:
    """Return no boolean."""
    return 0.5
