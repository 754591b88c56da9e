"""What counts as a number where a setting is asked for: True and False do not, and neither does what is not finite."""

from __future__ import annotations

import math
import numbers
from typing import Any


def is_number(value: Any) -> bool:
    """Tell whether a setting is a finite number."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def is_whole(value: Any, least: int) -> bool:
    """Tell whether a setting is a whole number that is large enough."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= least
