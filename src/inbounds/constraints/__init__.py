"""What is allowed: sets of actions that are declared once and then answer every question about themselves.

Names are imported on first use, so that a single constraint costs only its own module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbounds.constraints.ball import Ball as Ball
    from inbounds.constraints.box import Box as Box
    from inbounds.constraints.constraint import Constraint as Constraint
    from inbounds.constraints.intersection import Intersection as Intersection
    from inbounds.constraints.power_budget import PowerBudget as PowerBudget
    from inbounds.constraints.rate_limit import RateLimit as RateLimit
    from inbounds.constraints.references import obs as obs
    from inbounds.constraints.references import previous_action as previous_action
    from inbounds.constraints.sum_band import SumBand as SumBand
    from inbounds.constraints.weighted_l1 import WeightedL1 as WeightedL1

_HOME = {
    "Ball": "ball",
    "Box": "box",
    "Constraint": "constraint",
    "Ellipsoid": "ellipsoid",
    "Intersection": "intersection",
    "Oracle": "oracle",
    "Polytope": "polytope",
    "PowerBudget": "power_budget",
    "RateLimit": "rate_limit",
    "Simplex": "simplex",
    "SumBand": "sum_band",
    "Union": "union",
    "WeightedL1": "weighted_l1",
    "check_constraint": "check",
    "constraint_from_json": "serialisation",
    "obs": "references",
    "previous_action": "references",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    """Import a constraint when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'inbounds.constraints' has no attribute '{name}'. It has: {', '.join(__all__)}.")
    value = getattr(importlib.import_module(f"inbounds.constraints.{_HOME[name]}"), name)
    globals()[name] = value
    return value
