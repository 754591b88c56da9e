"""Limits of settings and files: their types, and the largest numbers that can be built in reasonable time and memory.

A short file can request a great deal, such as a flow of a billion layers. Settings have the same limits, because a run
that cannot be loaded again should not be trained.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from inbounds.errors import ConfigurationError


def is_number(value: Any) -> bool:
    """Tell whether a setting is a finite number."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def is_whole(value: Any, least: int) -> bool:
    """Tell whether a setting is a whole number that is large enough."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= least


def require_whole(least: int, **settings: Any) -> None:
    """Refuse settings that are not whole numbers of `least` or more, or larger than can be built."""
    for name, value in settings.items():
        if not is_whole(value, least):
            raise ConfigurationError(f"{name}={value!r} must be at least {least}, a whole number. Change it.")
    require_moderate(settings)


def misfit(settings: Any) -> str | None:
    """Return the first field of a dataclass whose value is not of the declared type, or None if all are."""
    hints = get_type_hints(type(settings))
    names = (field.name for field in dataclasses.fields(settings))
    return next((name for name in names if not fits(getattr(settings, name), hints[name])), None)


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is what an annotation says: a number, a word, a choice, a tuple of these, or None."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        kinds = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(fits, value, kinds))
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    return isinstance(value, hint)


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
MOST_OPERATIONS = 1_000
"""Operations in one expression of the observation: each is computed for every action."""
DEEPEST_EXPRESSION = 100
"""How deep the operations of an expression are nested."""

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
