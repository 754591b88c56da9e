"""What a setting may be: a finite number, which True and False are not, or whatever the type of its field says."""

from __future__ import annotations

import dataclasses
import math
import numbers
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def is_number(value: Any) -> bool:
    """Tell whether a setting is a finite number."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def is_whole(value: Any, least: int) -> bool:
    """Tell whether a setting is a whole number that is large enough."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= least


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
