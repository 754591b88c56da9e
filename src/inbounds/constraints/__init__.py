"""What is allowed: sets of actions that are declared once and then answer every question about themselves.

Names are imported on first use, so that a single constraint costs only its own module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbounds.constraints.ball import Ball as Ball
    from inbounds.constraints.box import Box as Box
    from inbounds.constraints.check import check_constraint as check_constraint
    from inbounds.constraints.constraint import Constraint as Constraint
    from inbounds.constraints.ellipsoid import Ellipsoid as Ellipsoid
    from inbounds.constraints.intersection import Intersection as Intersection
    from inbounds.constraints.intersection import intersect as intersect
    from inbounds.constraints.oracle import Oracle as Oracle
    from inbounds.constraints.polytope import Polytope as Polytope
    from inbounds.constraints.power_budget import PowerBudget as PowerBudget
    from inbounds.constraints.rate_limit import RateLimit as RateLimit
    from inbounds.constraints.references import Reference as Reference
    from inbounds.constraints.references import obs as obs
    from inbounds.constraints.references import previous_action as previous_action
    from inbounds.constraints.serialisation import constraint_from_json as constraint_from_json
    from inbounds.constraints.serialisation import constraint_to_json as constraint_to_json
    from inbounds.constraints.simplex import Simplex as Simplex
    from inbounds.constraints.sum_band import SumBand as SumBand
    from inbounds.constraints.union import Union as Union
    from inbounds.constraints.weighted_l1 import WeightedL1 as WeightedL1

# Where each public name lives, once more for the interpreter.
_HOMES = {
    "Ball": "ball",
    "Box": "box",
    "Constraint": "constraint",
    "Ellipsoid": "ellipsoid",
    "Intersection": "intersection",
    "Oracle": "oracle",
    "Polytope": "polytope",
    "PowerBudget": "power_budget",
    "RateLimit": "rate_limit",
    "Reference": "references",
    "Simplex": "simplex",
    "SumBand": "sum_band",
    "Union": "union",
    "WeightedL1": "weighted_l1",
    "check_constraint": "check",
    "constraint_from_json": "serialisation",
    "constraint_to_json": "serialisation",
    "intersect": "intersection",
    "obs": "references",
    "previous_action": "references",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(
            f"module '{__name__}' has no attribute '{name}'. Public names: {', '.join(_HOMES)}."
        )
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(set(globals()) | set(_HOMES))
