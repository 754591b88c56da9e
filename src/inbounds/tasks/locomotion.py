"""The five MuJoCo tasks as data: model, observation, reward, health, first state, and the torque limit.

Models, frame skips and formulas are those of Gymnasium's v4 environments, which repeat the logic of the v2
and v3 tasks of the paper, with these choices:

- Positions are computed from the state. In v4, Ant and Reacher read body positions that MuJoCo last updated
  before the final integration step, so that they lag 0.01 s behind the state (under random feasible actions
  up to 5e-3 m in Ant and 1.3e-3 m in Reacher). That is the only difference to v4.
- Ant's observation has 27 entries. The paper's 84 contact forces are identically zero in MuJoCo 2 and later,
  and so is the contact cost; they are left out.
- HopperVel is Hopper with the forward reward replaced by 1 - |v - 3|: the target speed is 3 m/s.
- Hopper's velocities are clipped to [-10, 10] in the observation, and its constraint reads them clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from inbounds.constraints import Ball, Box, PowerBudget, WeightedL1, obs
from inbounds.constraints.arrays import Array, namespace_of
from inbounds.tasks.task import AssembledTask, Task

if TYPE_CHECKING:
    import gymnasium

    from inbounds.constraints import Constraint
    from inbounds.tasks.guard import OnViolation
    from inbounds.tasks.mujoco_batch import MujocoBatch


class Bodies(NamedTuple):
    """Generalised positions and velocities of a batch, one row per environment, as arrays of NumPy or JAX."""

    positions: Array
    velocities: Array

    @property
    def xp(self) -> Any:
        """The functions for these arrays: `numpy` or `jax.numpy`."""
        return namespace_of(self.positions)


Draws: TypeAlias = Any
"""What first states are drawn from: a generator of NumPy, or the same methods over a key of JAX, with `in_disc`."""


@dataclass(frozen=True)
class LocomotionSpec:
    """Everything that distinguishes one MuJoCo task from another; functions work on whole batches."""

    name: str
    environment_id: str
    source: str
    model_file: str
    frame_skip: int
    horizon: int
    limit: Constraint
    """The constraint on the torques, without the box [-1, 1]."""
    observe: Callable[[Bodies], Array]
    reward: Callable[[Bodies, Bodies, Array, float], Array]
    """From the state before and after, the actions and the seconds that one step lasts."""
    is_healthy: Callable[[Bodies], Array] | None
    """Where an episode goes on; None if nothing ends it but the horizon."""
    draw_first: Callable[[Draws, Array, Array], tuple[Array, Array]]
    """From random draws and the model's pose at rest, the first positions and velocities of an episode."""
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    camera: tuple[float, float, tuple[float, float, float], int]
    """Distance in metres, elevation in degrees, where to look, and the body to follow (-1: none)."""
    reward_shift: float = 0.0
    evaluation_episodes: int = 10


def _torque_cost(weight: float, actions: Array) -> Array:
    return weight * (actions * actions).sum(axis=-1)


def _joined(bodies: Bodies, *parts: Array) -> Array:
    return bodies.xp.concatenate(parts, axis=-1)


def _speed(before: Bodies, after: Bodies, seconds: float) -> Array:
    return (after.positions[:, 0] - before.positions[:, 0]) / seconds


# Reacher --------------------------------------------------------------------------------------------------

_UPPER_ARM, _FOREARM = 0.1, 0.11  # metres from shoulder to elbow and from elbow to fingertip
_REACHER_DISC = 0.2


def _fingertip_to_target(bodies: Bodies) -> Array:
    shoulder = bodies.positions[:, 0]
    forearm = shoulder + bodies.positions[:, 1]
    xp = bodies.xp
    x = _UPPER_ARM * xp.cos(shoulder) + _FOREARM * xp.cos(forearm) - bodies.positions[:, 2]
    y = _UPPER_ARM * xp.sin(shoulder) + _FOREARM * xp.sin(forearm) - bodies.positions[:, 3]
    return xp.stack([x, y, xp.zeros_like(x)], axis=-1)


def _reacher_observation(bodies: Bodies) -> Array:
    angles = bodies.positions[:, :2]
    target, rates = bodies.positions[:, 2:], bodies.velocities[:, :2]
    directions = bodies.xp.cos(angles), bodies.xp.sin(angles)
    return _joined(bodies, *directions, target, rates, _fingertip_to_target(bodies))


def _reacher_reward(before: Bodies, after: Bodies, actions: Array, seconds: float) -> Array:
    # The distance is that before the step, as in the v2 and v4 tasks (v5 takes the one after it).
    distance = before.xp.linalg.norm(_fingertip_to_target(before), axis=-1)
    return -distance - _torque_cost(1.0, actions)


def _reacher_first(draws: Draws, pose: Array, rest: Array) -> tuple[Array, Array]:
    positions = draws.uniform(-0.1, 0.1, pose.shape) + pose
    target = _in_disc(draws, _REACHER_DISC)
    velocities = rest + draws.uniform(-0.005, 0.005, rest.shape)
    xp = namespace_of(positions)
    return xp.concatenate([positions[:-2], target]), xp.concatenate([velocities[:-2], xp.zeros(2)])


def _in_disc(draws: Draws, radius: float) -> Array:
    """Draw a point uniformly: compiled code by its own method, NumPy by rejection, as the original does."""
    if not isinstance(draws, np.random.Generator):
        return draws.in_disc(radius)
    while True:
        point = draws.uniform(-radius, radius, 2)
        if np.linalg.norm(point) < radius:
            return point


# HalfCheetah ----------------------------------------------------------------------------------------------


def _without_x(bodies: Bodies) -> Array:
    return _joined(bodies, bodies.positions[:, 1:], bodies.velocities)


def _cheetah_reward(before: Bodies, after: Bodies, actions: Array, seconds: float) -> Array:
    return _speed(before, after, seconds) - _torque_cost(0.1, actions)


def _first_with_normal_velocities(draws: Draws, pose: Array, rest: Array) -> tuple[Array, Array]:
    positions = pose + draws.uniform(-0.1, 0.1, pose.shape)
    return positions, rest + 0.1 * draws.standard_normal(rest.shape)


# Hopper and HopperVel -------------------------------------------------------------------------------------

_TARGET_SPEED = 3.0


def hopper_observation(bodies: Bodies) -> Array:
    """Return positions without the first one, and velocities clipped to [-10, 10]."""
    return _joined(bodies, bodies.positions[:, 1:], bodies.xp.clip(bodies.velocities, -10.0, 10.0))


def hopper_reward(before: Bodies, after: Bodies, actions: Array, seconds: float) -> Array:
    """Return the forward speed plus 1, less a small cost of torques."""
    return _speed(before, after, seconds) + 1.0 - _torque_cost(1e-3, actions)


def _hopper_speed_reward(before: Bodies, after: Bodies, actions: Array, seconds: float) -> Array:
    missed = abs(_speed(before, after, seconds) - _TARGET_SPEED)
    return (1.0 - missed) + 1.0 - _torque_cost(1e-3, actions)


def _hopper_stands(bodies: Bodies) -> Array:
    height, angle = bodies.positions[:, 1], bodies.positions[:, 2]
    moderate = (abs(bodies.positions[:, 2:]) < 100.0).all(axis=-1)
    moderate &= (abs(bodies.velocities) < 100.0).all(axis=-1)
    return moderate & (height > 0.7) & (abs(angle) < 0.2)


def hopper_first(draws: Draws, pose: Array, rest: Array) -> tuple[Array, Array]:
    """Draw a state near the pose at rest."""
    positions = pose + draws.uniform(-5e-3, 5e-3, pose.shape)
    return positions, rest + draws.uniform(-5e-3, 5e-3, rest.shape)


# Ant ------------------------------------------------------------------------------------------------------


def _ant_observation(bodies: Bodies) -> Array:
    return _joined(bodies, bodies.positions[:, 2:], bodies.velocities)


def _ant_reward(before: Bodies, after: Bodies, actions: Array, seconds: float) -> Array:
    return _speed(before, after, seconds) + 1.0 - _torque_cost(0.5, actions)


def _ant_stands(bodies: Bodies) -> Array:
    finite = bodies.xp.isfinite(_joined(bodies, *bodies)).all(axis=-1)
    height = bodies.positions[:, 2]
    return finite & (height >= 0.2) & (height <= 1.0)


# Names and units ------------------------------------------------------------------------------------------


def with_unit(unit: str, *names: str) -> tuple[str, ...]:
    """Return names with a unit behind each."""
    return tuple(f"{name} [{unit}]" for name in names)


_CHEETAH_JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_HOPPER_JOINTS = ("thigh", "leg", "foot")
_ANT_LEGS = ("front left", "front right", "back left", "back right")
_ANT_JOINTS = tuple(f"{joint} {leg}" for leg in _ANT_LEGS for joint in ("hip", "ankle"))
_ANT_MOTORS = _ANT_JOINTS[6:] + _ANT_JOINTS[:6]

_REACHER_NAMES = (
    *with_unit("1", "cos shoulder", "cos elbow", "sin shoulder", "sin elbow"),
    *with_unit("m", "target x", "target y"),
    *with_unit("rad/s", "shoulder rate", "elbow rate"),
    *with_unit("m", "fingertip - target x", "fingertip - target y", "fingertip - target z"),
)
_CHEETAH_NAMES = (
    *with_unit("m", "height"),
    *with_unit("rad", "pitch", *_CHEETAH_JOINTS),
    *with_unit("m/s", "forward velocity", "vertical velocity"),
    *with_unit("rad/s", "pitch rate", *(f"{joint} rate" for joint in _CHEETAH_JOINTS)),
)
_HOPPER_NAMES = (
    *with_unit("m", "height"),
    *with_unit("rad", "torso angle", *_HOPPER_JOINTS),
    *with_unit("m/s", "forward velocity", "vertical velocity"),
    *with_unit("rad/s", "torso rate", *(f"{joint} rate" for joint in _HOPPER_JOINTS)),
)
_ANT_NAMES = (
    *with_unit("m", "height"),
    *with_unit("1", "quaternion w", "quaternion x", "quaternion y", "quaternion z"),
    *with_unit("rad", *_ANT_JOINTS),
    *with_unit("m/s", "velocity x", "velocity y", "velocity z"),
    *with_unit("rad/s", "angular velocity x", "angular velocity y", "angular velocity z"),
    *with_unit("rad/s", *(f"{joint} rate" for joint in _ANT_JOINTS)),
)


def torques(gears: tuple[int, ...], joints: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of torques, with what an action of 1 means."""
    return tuple(f"{joint} torque [{gear} N m]" for joint, gear in zip(joints, gears, strict=True))


# The table ------------------------------------------------------------------------------------------------


def _hopper(name: str, environment_id: str, source: str, reward: Callable[..., Array]) -> LocomotionSpec:
    return LocomotionSpec(
        name=name,
        environment_id=environment_id,
        source=source,
        model_file="hopper.xml",
        frame_skip=4,
        horizon=1000,
        limit=PowerBudget(weights=obs[8:11], bound=10.0),
        observe=hopper_observation,
        reward=reward,
        is_healthy=_hopper_stands,
        draw_first=hopper_first,
        observation_names=_HOPPER_NAMES,
        action_names=torques((200, 200, 200), _HOPPER_JOINTS),
        camera=(3.0, -20.0, (0.0, 0.0, 1.15), 1),
    )


SPECS = {
    spec.name: spec
    for spec in (
        LocomotionSpec(
            name="reacher",
            environment_id="inbounds/Reacher-v0",
            source="ARAM paper, Reacher: a1^2 + a2^2 <= 0.05",
            model_file="reacher.xml",
            frame_skip=2,
            horizon=50,
            limit=Ball(radius_squared=0.05),
            observe=_reacher_observation,
            reward=_reacher_reward,
            is_healthy=None,
            draw_first=_reacher_first,
            observation_names=_REACHER_NAMES,
            action_names=torques((200, 200), ("shoulder", "elbow")),
            camera=(0.85, -90.0, (0.0, 0.0, 0.0), -1),
            reward_shift=1.0,
            evaluation_episodes=100,
        ),
        LocomotionSpec(
            name="halfcheetah",
            environment_id="inbounds/HalfCheetah-v0",
            source="ARAM paper, HalfCheetah: sum |w_i a_i| <= 20, w the six joint rates",
            model_file="half_cheetah.xml",
            frame_skip=5,
            horizon=1000,
            limit=WeightedL1(weights=obs[11:17], bound=20.0),
            observe=_without_x,
            reward=_cheetah_reward,
            is_healthy=None,
            draw_first=_first_with_normal_velocities,
            observation_names=_CHEETAH_NAMES,
            action_names=torques((120, 90, 60, 120, 60, 30), _CHEETAH_JOINTS),
            camera=(4.0, -20.0, (0.0, 0.0, 0.5), 1),
        ),
        _hopper(
            "hopper",
            "inbounds/Hopper-v0",
            "ARAM paper, Hopper: sum max(w_i a_i, 0) <= 10, w the three joint rates clipped to +-10",
            hopper_reward,
        ),
        _hopper(
            "hoppervel",
            "inbounds/HopperVel-v0",
            "ARAM paper, HopperVel: Hopper's limit, target speed 3 m/s",
            _hopper_speed_reward,
        ),
        LocomotionSpec(
            name="ant",
            environment_id="inbounds/Ant-v0",
            source="ARAM paper, Ant: sum a_i^2 <= 2",
            model_file="ant.xml",
            frame_skip=5,
            horizon=1000,
            limit=Ball(radius_squared=2.0),
            observe=_ant_observation,
            reward=_ant_reward,
            is_healthy=_ant_stands,
            draw_first=_first_with_normal_velocities,
            observation_names=_ANT_NAMES,
            action_names=torques((150,) * 8, _ANT_MOTORS),
            camera=(4.0, -25.0, (0.0, 0.0, 0.5), 1),
        ),
    )
}


def locomotion_task(name: str) -> Task:
    """Return one of the MuJoCo tasks: 'reacher', 'halfcheetah', 'hopper', 'hoppervel' or 'ant'."""
    return task_of(SPECS[name])


def task_of(spec: LocomotionSpec) -> Task:
    """Return the task that a row of the table describes."""
    size = len(spec.action_names)
    low, high = np.full(size, -1.0, np.float32), np.full(size, 1.0, np.float32)
    constraint = spec.limit & Box(low.astype(np.float64), high.astype(np.float64))

    def host(count: int, threads: int = 1, on_violation: OnViolation = "refuse") -> MujocoBatch:
        from inbounds.tasks.mujoco_batch import MujocoBatch

        return MujocoBatch(spec, constraint, count, threads, on_violation=on_violation)

    def make_environment(
        render_mode: str | None = None, on_violation: OnViolation = "refuse"
    ) -> gymnasium.Env[Any, Any]:
        from inbounds.tasks.drawing import MujocoPicture
        from inbounds.tasks.gymnasium_batch import SingleEnvironment

        batch = host(1, 1, on_violation)
        picture = MujocoPicture(batch) if render_mode is not None else None
        return SingleEnvironment(
            batch,
            batch.guard,
            observation_size=len(spec.observation_names),
            action_low=low,
            action_high=high,
            frames_per_second=batch.steps_per_second,
            render_mode=render_mode,
            picture=picture,
            release_picture=None if picture is None else picture.close,
        )

    return AssembledTask(
        name=spec.name,
        constraint=constraint,
        observation_size=len(spec.observation_names),
        action_low=low,
        action_high=high,
        horizon=spec.horizon,
        reward_divisor=1.0,
        reward_shift=spec.reward_shift,
        source=spec.source,
        environment_id=spec.environment_id,
        host=host,
        compiled=None,
        ends_only_in_failure=True,
        evaluation_episodes=spec.evaluation_episodes,
        make_environment=make_environment,
        observation_names=spec.observation_names,
        action_names=spec.action_names,
    )
