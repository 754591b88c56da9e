"""Tasks by name, for `inbounds.make`, the command line and `gymnasium.make`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from inbounds.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    import gymnasium

    from inbounds.tasks.task import Task


class Entry(NamedTuple):
    """Where a task comes from."""

    environment_id: str
    horizon: int
    """`gymnasium.make` needs it before the task is built."""
    factory: str
    """Module and function that build the task. They are imported only then, because MuJoCo and JAX take their time."""
    arguments: tuple[Any, ...]


VARIANT = "locomotion_variants:variant_task"
ON_MJX = "locomotion_mjx:mjx_task"

TASKS = {
    "reacher": Entry("inbounds/Reacher-v0", 50, "locomotion:locomotion_task", ("reacher",)),
    "halfcheetah": Entry("inbounds/HalfCheetah-v0", 1000, "locomotion:locomotion_task", ("halfcheetah",)),
    "hopper": Entry("inbounds/Hopper-v0", 1000, "locomotion:locomotion_task", ("hopper",)),
    "hoppervel": Entry("inbounds/HopperVel-v0", 1000, "locomotion:locomotion_task", ("hoppervel",)),
    "ant": Entry("inbounds/Ant-v0", 1000, "locomotion:locomotion_task", ("ant",)),
    "nsfnet": Entry("inbounds/NSFnet-v0", 1000, "network:network_task", ("nsfnet",)),
    "nsfnet20d": Entry("inbounds/NSFnet20d-v0", 1000, "network:network_task", ("nsfnet20d",)),
    "bss3z": Entry("inbounds/BSS3z-v0", 100, "bike_sharing:bike_sharing_task", ("bss3z",)),
    "bss5z": Entry("inbounds/BSS5z-v0", 100, "bike_sharing:bike_sharing_task", ("bss5z",)),
    "polytope50": Entry("inbounds/Polytope50-v0", 100, "polytope_tracking:polytope_tracking_task", (50, 30)),
    "allocation": Entry("inbounds/Allocation-v0", 20, "allocation:allocation_task", ()),
    "reachershell": Entry("inbounds/ReacherShell-v0", 50, VARIANT, ("reachershell",)),
    "reachertip": Entry("inbounds/ReacherTip-v0", 50, VARIANT, ("reachertip",)),
    "halfcheetahangular": Entry("inbounds/HalfCheetahAngular-v0", 1000, VARIANT, ("halfcheetahangular",)),
    "hoppersine": Entry("inbounds/HopperSine-v0", 1000, VARIANT, ("hoppersine",)),
    "hopperleast": Entry("inbounds/HopperLeast-v0", 1000, VARIANT, ("hopperleast",)),
    "walker2dpower": Entry("inbounds/Walker2dPower-v0", 1000, VARIANT, ("walker2dpower",)),
    "walker2dsine": Entry("inbounds/Walker2dSine-v0", 1000, VARIANT, ("walker2dsine",)),
    "reacher-mjx": Entry("inbounds/Reacher-v0", 50, ON_MJX, ("reacher",)),
    "halfcheetah-mjx": Entry("inbounds/HalfCheetah-v0", 1000, ON_MJX, ("halfcheetah",)),
    "hopper-mjx": Entry("inbounds/Hopper-v0", 1000, ON_MJX, ("hopper",)),
    "hoppervel-mjx": Entry("inbounds/HopperVel-v0", 1000, ON_MJX, ("hoppervel",)),
    "ant-mjx": Entry("inbounds/Ant-v0", 1000, ON_MJX, ("ant",)),
}
"""The nine tasks of the paper in its order, two synthetic ones, other constraints of the literature, and five of the
paper's that train on MJX; Gymnasium knows these by the id of the task that evaluates them."""


def names() -> tuple[str, ...]:
    """Return the names of all tasks."""
    return tuple(TASKS)


def make(name: str) -> Task:
    """Return a task by its name, whatever the case of the letters."""
    if not isinstance(name, str):
        raise ConfigurationError(
            f"a task is made by its name, not from {name!r}. Pass one of {', '.join(TASKS)}; a problem of your "
            f"own is an ib.Task(environment, constraint)."
        )
    key = name.lower()
    if key not in TASKS:
        raise UnknownNameError("task", name, names(), "Pass one of these to inbounds.make.")
    module, function = TASKS[key].factory.split(":")
    task: Task = getattr(importlib.import_module(f"inbounds.tasks.{module}"), function)(*TASKS[key].arguments)
    return task


def make_environment(task: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the guarded environment of a task; `gymnasium.make` calls this."""
    return make(task).make_environment(**options)


def register_environments() -> None:
    """Register every task with Gymnasium; ids that are registered already stay as they are."""
    from gymnasium.envs.registration import register, registry

    for name, task in TASKS.items():
        if task.environment_id not in registry:
            register(
                task.environment_id,
                entry_point="inbounds.tasks.registry:make_environment",
                max_episode_steps=task.horizon,
                kwargs={"task": name},
            )
