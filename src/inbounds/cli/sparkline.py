"""A curve in one line of text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return a line of bars; more values than `width` are averaged in groups, what is not finite is blank."""
    if not values:
        return ""
    groups = min(width, len(values))
    edges = [round(index * len(values) / groups) for index in range(groups + 1)]
    means = [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return " " * groups
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    top = len(BARS) - 1
    return "".join(BARS[round(top * (mean - low) / span)] if math.isfinite(mean) else " " for mean in means)


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
