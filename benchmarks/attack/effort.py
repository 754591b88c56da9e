"""How long a set takes to ask, and draws that are mostly quick: slow sets would take all of a door's time."""

from __future__ import annotations

import numpy as np

from benchmarks.attack.anchored_sets import Style
from benchmarks.attack.plain_sets import Plain, has_union, leaves
from benchmarks.attack.sets import Drawn, draw

CURVED = ("Ball", "Ellipsoid", "WeightedL1", "PowerBudget")
BOXES = ("Box", "RateLimit")
QUICK = 1000.0
"""Microseconds that a projection on a quick set takes at most."""


def cost(plain: Plain, dimension: int) -> float:
    """Return about how many microseconds a projection takes, from the kinds of the members alone."""
    kinds = [leaf.kind for leaf in leaves(plain)]
    others = [kind for kind in kinds if kind not in BOXES]
    curved = [kind for kind in others if kind in CURVED]
    if "Oracle" in kinds:
        return 100_000.0
    if (len(others) >= 2 and curved) or ("Ellipsoid" in kinds and len(kinds) > 1):
        spent = 15_000.0
    elif "Polytope" in kinds or len(others) >= 2:
        spent = 60.0
    elif "Ellipsoid" in kinds:
        spent = 20.0
    else:
        spent = 6.0
    spent *= max(1.0, dimension / 6.0) ** (2.0 if spent > 15.0 else 1.0)
    return spent * (3.0 if has_union(plain) else 1.0)


def draw_mostly_quick(rng: np.random.Generator, style: Style, share: float) -> Drawn:
    """Draw a set: with this probability a quick one, and otherwise any."""
    drawn, is_quick = draw(rng, style), rng.random() < share
    while is_quick and cost(drawn.plain, drawn.dimension) > QUICK:
        drawn = draw(rng, style)
    return drawn
