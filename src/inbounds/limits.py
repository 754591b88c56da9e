"""How much a file or a setting may ask for: beyond these numbers, building it would take hours or all memory.

A short file can ask for a great deal, such as a flow of a billion layers. What cannot be loaded again is not trained
either, so that the same limits hold for settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inbounds.errors import ConfigurationError

MOST_SEEDS = 10_000
MOST_PROPOSALS = 10_000
"""Proposals, and other samples that are drawn for one action or one state of a batch."""
MOST_ENVIRONMENTS = 100_000
"""Environments of a seed: each is built, and all of them step together."""
MOST_EPISODES = 100_000
"""Episodes of one evaluation."""
MOST_UPDATES = 1_000
"""Gradient steps per environment step."""
MOST_LAYERS = 100
"""Layers, critics and entries of a list: each is compiled by itself."""
MOST_CONSTRAINTS = 100
"""Sets that one constraint is made of, and members of a union: each is asked for every action."""
MOST_NUMBERS = 1_000_000
"""Numbers that a constraint is made of."""

MOST = {
    "seeds": MOST_SEEDS,
    "environments": MOST_ENVIRONMENTS,
    "episodes": MOST_EPISODES,
    "updates_per_step": MOST_UPDATES,
    **dict.fromkeys(("proposals", "preference_samples", "density_draws", "correction_draws"), MOST_PROPOSALS),
}


def most_of(setting: str) -> int | None:
    """Return how large a whole number may be, by the name of its setting."""
    if setting == "critics" or setting.endswith("layers"):
        return MOST_LAYERS
    return MOST.get(setting)


def require_moderate(settings: Mapping[str, Any]) -> None:
    """Refuse settings that ask for more than can be built."""
    for name, value in settings.items():
        most = most_of(name)
        if most is not None and isinstance(value, int | float) and value > most:
            raise ConfigurationError(f"{name}={value}, but at most {most:,} are possible. Lower it.")
        if isinstance(value, list | tuple) and len(value) > MOST_LAYERS:
            raise ConfigurationError(
                f"{name} has {len(value):,} entries, but at most {MOST_LAYERS} are possible. Shorten it."
            )
