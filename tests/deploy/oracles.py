"""Functions that an Oracle may ask; a file can name them, but loading never runs them."""

from __future__ import annotations

from typing import Any


def is_on_the_right(observation: Any, action: Any) -> bool:
    """Allow what does not go left."""
    del observation
    return bool(action[0] >= 0.0)
