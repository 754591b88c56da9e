"""Our MuJoCo tasks on MJX: the physics as JAX functions, so that thousands of environments train in one program.

`halfcheetah-mjx` is the row `halfcheetah` of `locomotion.SPECS` with another simulator under it: model file, frame
skip, observation, reward, termination, first states, time limit and constraint are those of the row. Training steps
MJX; whatever is stepped from the host (evaluations, films, measured scales, `task.make_environment()`) steps the C
simulator, so that a policy trained here is evaluated there. Differences to the C task:

- MJX computes in float32, and its solver stops after `SOLVER_ITERATIONS` instead of 100, as more change nothing then.
- Ant's friction: where a capsule stands steeper than 30 degrees on the floor, MJX turns the pyramid that approximates
  the friction cone another way than C does. With elliptic cones, or without contacts, both agree.
- A step that leaves the finite numbers is undone and its episode cut, as in C, but nobody counts or logs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import MissingDependencyError
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.locomotion import SPECS, Bodies, LocomotionSpec, locomotion_task
from inbounds.tasks.task import Task

SOLVER_ITERATIONS, LINE_SEARCHES = 8, 16
"""Newton steps of a contact problem, and evaluations of each line search, at most."""
HUGE = 1e10
"""Positions and velocities beyond it count as diverged, as in the C simulator."""


class MjxState(NamedTuple):
    """All that the next step depends on: the solver starts cold at every step, as in `MujocoBatch`."""

    positions: jax.Array
    velocities: jax.Array
    steps: jax.Array


class Physics(NamedTuple):
    """A model on the device, data to fill in, and where the body rests."""

    step: Any
    model: Any
    blank: Any
    pose: NDArray[np.float32]
    rest: NDArray[np.float32]
    seconds: float


class KeyDraws:
    """The methods of NumPy's generator that first states are drawn with, over a key of JAX."""

    def __init__(self, key: jax.Array) -> None:
        """Begin with `key`; every draw takes a new one."""
        self._key = key

    def uniform(self, low: float, high: float, shape: Any) -> jax.Array:
        """Draw numbers between two bounds."""
        return jax.random.uniform(self._next(), shape, jnp.float32, low, high)

    def standard_normal(self, shape: Any) -> jax.Array:
        """Draw normal numbers."""
        return jax.random.normal(self._next(), shape, jnp.float32)

    def in_disc(self, radius: float) -> jax.Array:
        """Draw a point of a disc: the square of its distance to the centre is uniform."""
        distance = radius * jnp.sqrt(self.uniform(0.0, 1.0, ()))
        angle = self.uniform(0.0, 2.0 * np.pi, ())
        point: jax.Array = distance * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return point

    def _next(self) -> jax.Array:
        keys: jax.Array = jax.random.split(self._key)
        self._key = keys[0]
        return keys[1]


class MjxLocomotion:
    """A row of the table as a compiled environment (`ib.CompiledEnvironment`); its model is loaded when needed."""

    def __init__(self, spec: LocomotionSpec) -> None:
        """Describe the environment."""
        self.spec = spec
        self.observation_size, self.action_size = len(spec.observation_names), len(spec.action_names)
        self.horizon = spec.horizon

    @functools.cached_property
    def physics(self) -> Physics:
        """The model on the device; an error where MJX is not installed."""
        mjx = imported_mjx(self.spec.name)
        from inbounds.tasks.mujoco_batch import load_model

        model = load_model(self.spec.model_file)
        model.opt.iterations, model.opt.ls_iterations = SOLVER_ITERATIONS, LINE_SEARCHES
        with jax.ensure_compile_time_eval():  # so that a program may be the first to ask
            on_device = mjx.put_model(model, impl="jax")
            blank = mjx.make_data(on_device)
        pose, rest = model.qpos0.astype(np.float32), np.zeros(model.nv, np.float32)
        seconds = float(model.opt.timestep) * self.spec.frame_skip
        return Physics(mjx.step, on_device, blank, pose, rest, seconds)

    def ready(self) -> MjxLocomotion:
        """Return the environment with its model loaded."""
        _ = self.physics
        return self

    def reset(self, key: jax.Array) -> tuple[MjxState, jax.Array]:
        """Draw the first state of an episode, from the same distribution as on the host."""
        first = self.spec.draw_first(KeyDraws(key), self.physics.pose, self.physics.rest)
        state = MjxState(*first, jnp.zeros((), jnp.int32))
        return state, self.spec.observe(bodies_of(state))[0]

    def step(self, state: MjxState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Hold the action for one step of the task; `key` is not used, because nothing in it is random."""
        before, healthy = bodies_of(state), self.spec.is_healthy
        reached = self.simulated(state.positions, state.velocities, action)
        # Comparisons with what is not a number are false.
        is_sound = (jnp.abs(jnp.concatenate(reached)) <= HUGE).all()
        positions, velocities = (
            jnp.where(is_sound, new, old) for new, old in zip(reached, state[:2], strict=True)
        )
        following = MjxState(positions, velocities, state.steps + 1)
        after = bodies_of(following)
        return CompiledStep(
            following,
            self.spec.observe(after)[0],
            self.spec.reward(before, after, action[None], self.physics.seconds)[0],
            jnp.asarray(False) if healthy is None else ~healthy(after)[0],
            (following.steps >= self.horizon) | ~is_sound,
        )

    def simulated(
        self, positions: jax.Array, velocities: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return where an action leads that is held for one step of the task."""
        physics = self.physics

        def one(_: Any, moving: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            # The rest of MJX's data follows from these, and need not travel from one step to the next.
            data = physics.blank.replace(
                qpos=moving[0], qvel=moving[1], qacc_warmstart=moving[2], ctrl=action
            )
            data = physics.step(physics.model, data)
            return data.qpos, data.qvel, data.qacc_warmstart

        start = positions, velocities, jnp.zeros_like(velocities)
        with jax.default_matmul_precision("highest"):  # GPUs would round factors to ten bits
            reached = jax.lax.fori_loop(0, self.spec.frame_skip, one, start)
        return reached[0], reached[1]


def bodies_of(state: MjxState) -> Bodies:
    """Return a batch of one, which the functions of the table take."""
    return Bodies(state.positions[None], state.velocities[None])


def imported_mjx(name: str) -> Any:
    """Import MJX, which prints about an optional engine; or say how to install it."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from mujoco import mjx
    except ImportError as error:
        raise MissingDependencyError(
            f"{name}-mjx is trained on MJX, which cannot be imported here ({error}). Install mujoco-mjx at the version "
            f'of MuJoCo, pip install ".[mjx]" in the clone; or train {name}, which needs no MJX.'
        ) from error
    return mjx


@functools.cache
def mjx_environment(name: str) -> MjxLocomotion:
    """Return the one environment of a row, so that everything that uses it shares what was compiled."""
    return MjxLocomotion(SPECS[name])


def mjx_task(name: str) -> Task:
    """Return a task of the table that is trained on MJX and evaluated on the C simulator."""
    evaluated_on: Any = locomotion_task(name)
    trained: Task = dataclasses.replace(
        evaluated_on,
        name=f"{name}-mjx",
        source=f"{evaluated_on.source}; trained on MJX",
        compiled=mjx_environment(name).ready,
        is_evaluated_on_host=True,
    )
    return trained
