"""What is solved: nine tasks, each an environment with its hard constraint, by name and as Gymnasium ids.

Importing this package registers the ids, so that `gymnasium.make("inbounds.tasks:inbounds/Reacher-v0")` works
without any other import. The names below are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from inbounds.tasks.registry import make, names, register_environments

if TYPE_CHECKING:
    from inbounds.tasks.guard import ActionGuard, Guard, share_of_bound
    from inbounds.tasks.reference_policies import best_constant_action, reference_names, reference_policy
    from inbounds.tasks.spaces import ConstrainedBox
    from inbounds.tasks.task import Task

_HOME = {
    "ActionGuard": "inbounds.tasks.guard",
    "ConstrainedBox": "inbounds.tasks.spaces",
    "Guard": "inbounds.tasks.guard",
    "Task": "inbounds.tasks.task",
    "best_constant_action": "inbounds.tasks.reference_policies",
    "reference_names": "inbounds.tasks.reference_policies",
    "reference_policy": "inbounds.tasks.reference_policies",
    "share_of_bound": "inbounds.tasks.guard",
}

__all__ = [
    "ActionGuard",
    "ConstrainedBox",
    "Guard",
    "Task",
    "best_constant_action",
    "make",
    "names",
    "reference_names",
    "reference_policy",
    "register_environments",
    "share_of_bound",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(
            f"module 'inbounds.tasks' has no attribute '{name}'. Public names: {', '.join(__all__)}."
        )
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


register_environments()
