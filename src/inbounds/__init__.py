"""Reinforcement learning whose every action satisfies a hard constraint: the public names of the library.

Names are imported on first use (PEP 562), so `import inbounds` itself costs almost nothing and needs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from inbounds.registration import register_with_gymnasium

if TYPE_CHECKING:
    from inbounds import constraints as constraints
    from inbounds import errors as errors
    from inbounds import tasks as tasks
    from inbounds.benchmark.audit import audit as audit
    from inbounds.constraints import Ball as Ball
    from inbounds.constraints import Box as Box
    from inbounds.constraints import Constraint as Constraint
    from inbounds.constraints import Ellipsoid as Ellipsoid
    from inbounds.constraints import Intersection as Intersection
    from inbounds.constraints import Oracle as Oracle
    from inbounds.constraints import Polytope as Polytope
    from inbounds.constraints import PowerBudget as PowerBudget
    from inbounds.constraints import RateLimit as RateLimit
    from inbounds.constraints import Simplex as Simplex
    from inbounds.constraints import SumBand as SumBand
    from inbounds.constraints import Union as Union
    from inbounds.constraints import WeightedL1 as WeightedL1
    from inbounds.constraints import check_constraint as check_constraint
    from inbounds.constraints import obs as obs
    from inbounds.constraints import previous_action as previous_action
    from inbounds.deploy.export import export as export
    from inbounds.deploy.policy import load as load
    from inbounds.deploy.safety_filter import SafetyFilter as SafetyFilter
    from inbounds.learners.appropt import ApprOpt as ApprOpt
    from inbounds.learners.aram import Aram as Aram
    from inbounds.learners.artd3 import ArTd3 as ArTd3
    from inbounds.learners.discrete_aram import DiscreteAram as DiscreteAram
    from inbounds.learners.flowpg import FlowPg as FlowPg
    from inbounds.learners.focops import Focops as Focops
    from inbounds.learners.iar import Iar as Iar
    from inbounds.learners.learner import Learner as Learner
    from inbounds.learners.nfwpo import Nfwpo as Nfwpo
    from inbounds.learners.optlayer import OptLayer as OptLayer
    from inbounds.learners.radial import Dalpha as Dalpha
    from inbounds.learners.radial import Drad as Drad
    from inbounds.learners.radial import Srad as Srad
    from inbounds.learners.sac import Sac as Sac
    from inbounds.learners.sac import Spre as Spre
    from inbounds.learners.td3 import Dpre as Dpre
    from inbounds.learners.td3 import Td3 as Td3
    from inbounds.tasks.check_task import check_task as check_task
    from inbounds.tasks.guard import Guard as Guard
    from inbounds.tasks.registry import make as make
    from inbounds.tasks.spaces import ConstrainedBox as ConstrainedBox
    from inbounds.tasks.task import Task as Task
    from inbounds.tasks.wrappers import AcceptReject as AcceptReject
    from inbounds.tasks.wrappers import AugmentedMDP as AugmentedMDP
    from inbounds.tasks.wrappers import ProjectAction as ProjectAction
    from inbounds.training.api import train as train

__version__ = "0.1.0"

# The same names once more, for the interpreter: which module to import when a name is first used.
_PUBLIC = {
    "inbounds": ("constraints", "errors", "tasks"),
    "inbounds.benchmark.audit": ("audit",),
    "inbounds.constraints": (
        "Ball",
        "Box",
        "Constraint",
        "Ellipsoid",
        "Intersection",
        "Oracle",
        "Polytope",
        "PowerBudget",
        "RateLimit",
        "Simplex",
        "SumBand",
        "Union",
        "WeightedL1",
        "check_constraint",
        "obs",
        "previous_action",
    ),
    "inbounds.deploy.export": ("export",),
    "inbounds.deploy.policy": ("load",),
    "inbounds.deploy.safety_filter": ("SafetyFilter",),
    "inbounds.learners.appropt": ("ApprOpt",),
    "inbounds.learners.aram": ("Aram",),
    "inbounds.learners.artd3": ("ArTd3",),
    "inbounds.learners.discrete_aram": ("DiscreteAram",),
    "inbounds.learners.flowpg": ("FlowPg",),
    "inbounds.learners.focops": ("Focops",),
    "inbounds.learners.iar": ("Iar",),
    "inbounds.learners.learner": ("Learner",),
    "inbounds.learners.nfwpo": ("Nfwpo",),
    "inbounds.learners.optlayer": ("OptLayer",),
    "inbounds.learners.radial": ("Dalpha", "Drad", "Srad"),
    "inbounds.learners.sac": ("Sac", "Spre"),
    "inbounds.learners.td3": ("Dpre", "Td3"),
    "inbounds.tasks.check_task": ("check_task",),
    "inbounds.tasks.guard": ("Guard",),
    "inbounds.tasks.registry": ("make",),
    "inbounds.tasks.spaces": ("ConstrainedBox",),
    "inbounds.tasks.task": ("Task",),
    "inbounds.tasks.wrappers": ("AcceptReject", "AugmentedMDP", "ProjectAction"),
    "inbounds.training.api": ("train",),
}
_HOME = {name: home for home, names in _PUBLIC.items() for name in names}

__all__ = [
    "AcceptReject",
    "ApprOpt",
    "ArTd3",
    "Aram",
    "AugmentedMDP",
    "Ball",
    "Box",
    "ConstrainedBox",
    "Constraint",
    "Dalpha",
    "DiscreteAram",
    "Dpre",
    "Drad",
    "Ellipsoid",
    "FlowPg",
    "Focops",
    "Guard",
    "Iar",
    "Intersection",
    "Learner",
    "Nfwpo",
    "OptLayer",
    "Oracle",
    "Polytope",
    "PowerBudget",
    "ProjectAction",
    "RateLimit",
    "Sac",
    "SafetyFilter",
    "Simplex",
    "Spre",
    "Srad",
    "SumBand",
    "Task",
    "Td3",
    "Union",
    "WeightedL1",
    "__version__",
    "audit",
    "check_constraint",
    "check_task",
    "constraints",
    "errors",
    "export",
    "load",
    "make",
    "obs",
    "previous_action",
    "tasks",
    "train",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    home = _HOME.get(name)
    if home is None:
        known = ", ".join(__all__)
        raise AttributeError(f"module 'inbounds' has no attribute '{name}'. Public names: {known}.")
    if home == "inbounds":
        return importlib.import_module(f"inbounds.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(set(globals()) | set(__all__))


register_with_gymnasium()
