"""Tasks by name, for `inbounds.make` and for `gymnasium.make`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    import gymnasium

    from inbounds.tasks.task import Task

# Per task: its Gymnasium id, and the horizon, which `gymnasium.make` wants before the task is built.
_REGISTERED = {
    "reacher": ("inbounds/Reacher-v0", 50),
    "halfcheetah": ("inbounds/HalfCheetah-v0", 1000),
    "hopper": ("inbounds/Hopper-v0", 1000),
    "hoppervel": ("inbounds/HopperVel-v0", 1000),
    "ant": ("inbounds/Ant-v0", 1000),
    "nsfnet": ("inbounds/NSFnet-v0", 1000),
    "nsfnet20d": ("inbounds/NSFnet20d-v0", 1000),
    "bss3z": ("inbounds/BSS3z-v0", 100),
    "bss5z": ("inbounds/BSS5z-v0", 100),
}


def names() -> tuple[str, ...]:
    """Return the names of all tasks, in the order of the paper's groups."""
    return tuple(_REGISTERED)


def make(name: str) -> Task:
    """Return a task by its name, whatever the case of the letters."""
    if not isinstance(name, str):
        raise ConfigurationError(
            f"a task is made by its name, not from {name!r}. Pass one of {', '.join(names())}; a problem of your "
            f"own is an ib.Task(environment, constraint)."
        )
    key = name.lower()
    if key not in _REGISTERED:
        raise UnknownNameError("task", name, names(), "Pass one of these to inbounds.make.")
    # Imported here: MuJoCo, JAX and the network's tables are loaded only by whom they serve.
    if key.startswith("nsfnet"):
        from inbounds.tasks.network import network_task

        return network_task(key)
    if key.startswith("bss"):
        from inbounds.tasks.bike_sharing import bike_sharing_task

        return bike_sharing_task(key)
    from inbounds.tasks.locomotion import locomotion_task

    return locomotion_task(key)


def make_environment(task: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the guarded environment of a task; this is what `gymnasium.make` calls."""
    return make(task).make_environment(**options)


def register_environments() -> None:
    """Make every task known to `gymnasium.make`; doing it twice is harmless."""
    from gymnasium.envs.registration import register, registry

    for name, (environment_id, horizon) in _REGISTERED.items():
        if environment_id not in registry:
            register(
                environment_id,
                entry_point="inbounds.tasks.registry:make_environment",
                max_episode_steps=horizon,
                kwargs={"task": name},
            )
