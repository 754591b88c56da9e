"""A batch of MuJoCo environments: physics in C++ threads, everything around it in a few numpy calls.

A step is a pure function of (positions, velocities, action): the solver starts cold at every step, instead
of from the accelerations it found before. It converges to the same solution (against Gymnasium's warm-started
environments the states differ by less than 1e-12), and in return a saved batch continues bit for bit, and an
environment depends neither on the batch it is in nor on the number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError
from inbounds.tasks.action_guard import ActionGuard, OnViolation
from inbounds.tasks.environment import Step
from inbounds.tasks.locomotion import Bodies, LocomotionSpec

if TYPE_CHECKING:
    from inbounds.constraints import Constraint

_LOG = logging.getLogger(__name__)
_WORDS = 6  # of 64 bits each, in the state of numpy's PCG64 generator


def mujoco_version() -> str:
    """Return the version of MuJoCo that computes the physics; results are comparable only within one."""
    return str(mujoco.__version__)


def load_model(model_file: str) -> Any:
    """Return one of the models that come with Gymnasium."""
    import gymnasium.envs

    path = Path(str(gymnasium.envs.__file__)).parent / "mujoco" / "assets" / model_file
    specification = mujoco.MjSpec.from_file(str(path))
    # The attribute that scales the masses is deprecated and warns at every load; the function that replaces
    # it gives the same model, bit for bit.
    total_mass = specification.compiler.settotalmass
    specification.compiler.settotalmass = -1.0
    model = specification.compile()
    if total_mass > 0.0:
        mujoco.mj_setTotalmass(model, total_mass)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


class Transition(NamedTuple):
    """What happened last, before any reset: observations acted on, actions, and where they led."""

    observation: NDArray[np.float64]
    action: NDArray[np.float64]
    bodies: Bodies


class MujocoBatch:
    """`count` environments of one task, stepped together, with the guard inside and same-step autoreset.

    Every environment owns a generator that starts at its seed and draws nothing but the first states of its
    episodes.
    """

    def __init__(
        self,
        spec: LocomotionSpec,
        constraint: Constraint,
        count: int,
        threads: int = 1,
        *,
        on_violation: OnViolation = "refuse",
    ) -> None:
        """Load the model and start `threads` threads; nothing moves before `reset`."""
        if count < 1 or threads < 1:
            raise ConfigurationError(
                f"{spec.name}: {count} environments on {threads} threads cannot run; ask for 1 or more."
            )
        self.spec = spec
        self.count = count
        self.model = load_model(spec.model_file)
        self.guard = ActionGuard(constraint, self.model.nu, task_name=spec.name, on_violation=on_violation)
        self.unstable_steps = 0
        """How many steps were undone because MuJoCo found a value that is not a number or is huge."""
        self._seconds = float(self.model.opt.timestep) * spec.frame_skip
        workers = min(threads, count)
        self._data = [mujoco.MjData(self.model) for _ in range(workers)]
        self._pool = rollout.Rollout(nthread=workers if workers > 1 else 0)
        self._pose, self._rest = self._data[0].qpos.copy(), self._data[0].qvel.copy()
        self._models = [self.model] * count
        self._control = np.empty((count, spec.frame_skip, self.model.nu))
        width = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        self._start = np.zeros((count, width))  # time, positions, velocities
        self._path = np.empty((count, spec.frame_skip, width))
        self._sensors = np.empty((count, spec.frame_skip, self.model.nsensordata))
        self._end_time = float(np.add.accumulate(np.full(spec.frame_skip, self.model.opt.timestep))[-1])
        self.last_transition: Transition | None = None
        self._bodies: Bodies | None = None
        self._elapsed = np.zeros(count, dtype=np.int64)
        self._generators: list[np.random.Generator] = []
        self._observation = np.empty((count, len(spec.observation_names)))
        self._action = np.zeros((count, self.model.nu))

    @property
    def steps_per_second(self) -> int:
        """How many steps make one second of simulated time."""
        return round(1.0 / self._seconds)

    @property
    def bodies(self) -> Bodies:
        """Copies of the current positions and velocities."""
        current = self._require_bodies("no state yet")
        return Bodies(current.positions.copy(), current.velocities.copy())

    def reset(self, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Start every environment from its own seed."""
        if len(seeds) != self.count:
            raise InvalidInputError(
                f"{self.spec.name}: {len(seeds)} seeds for {self.count} environments; give one seed for each."
            )
        self._generators = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed)))) for seed in seeds
        ]
        self._bodies = Bodies(np.empty((self.count, self.model.nq)), np.empty((self.count, self.model.nv)))
        self._begin_episodes(self._bodies, np.arange(self.count))
        self._observation = self.spec.observe(self._bodies)
        return self._observation.copy()

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action to each environment; an infeasible one raises before anything moves."""
        before = self._require_bodies("step came before reset")
        executed = self.guard.admit(self._observation, actions, self._action).astype(np.float64, copy=False)
        after, is_unstable = self._simulate(before, executed)
        reward = self.spec.reward(before, after, executed, self._seconds)
        final_observation = self.spec.observe(after)
        healthy = self.spec.is_healthy
        terminated = np.zeros(self.count, dtype=np.bool_) if healthy is None else ~healthy(after)
        self._elapsed += 1
        truncated = (self._elapsed >= self.spec.horizon) | is_unstable
        ended = np.flatnonzero(terminated | truncated)
        self.last_transition = Transition(self._observation, executed, after)
        self._bodies, self._action = after, executed.copy()
        self._observation = final_observation.copy()
        if ended.size:
            self._bodies = Bodies(after.positions.copy(), after.velocities.copy())
            self._begin_episodes(self._bodies, ended)
            fresh = Bodies(self._bodies.positions[ended], self._bodies.velocities[ended])
            self._observation[ended] = self.spec.observe(fresh)
        return Step(self._observation.copy(), final_observation, reward, terminated, truncated)

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Return positions, velocities, last actions, time counters and the generators' states."""
        bodies = self._require_bodies("there is nothing to save yet")
        return {
            "positions": bodies.positions.copy(),
            "velocities": bodies.velocities.copy(),
            "previous_action": self._action.copy(),
            "elapsed": self._elapsed.copy(),
            "generators": np.stack([_generator_words(generator) for generator in self._generators]),
        }

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Go back to what `save` returned; the continuation is the same to the last bit."""
        shapes = {
            "positions": (self.count, self.model.nq),
            "velocities": (self.count, self.model.nv),
            "previous_action": (self.count, self.model.nu),
            "elapsed": (self.count,),
            "generators": (self.count, _WORDS),
        }
        for name, shape in shapes.items():
            if name not in saved or np.shape(saved[name]) != shape:
                met = f"shape {np.shape(saved[name])}" if name in saved else "nothing"
                raise CheckpointError(
                    f"{self.spec.name}: the saved environments hold {met} for '{name}', expected {shape}; "
                    f"restore into a batch of the same task and the same count ({self.count})."
                )
        self._bodies = Bodies(
            np.array(saved["positions"], dtype=np.float64), np.array(saved["velocities"], dtype=np.float64)
        )
        self._action = np.array(saved["previous_action"], dtype=np.float64)
        self._elapsed = np.array(saved["elapsed"], dtype=np.int64)
        self._generators = [
            _generator_from(words) for words in np.asarray(saved["generators"], dtype=np.uint64)
        ]
        self._observation = self.spec.observe(self._bodies)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()

    def _simulate(self, before: Bodies, actions: NDArray[np.float64]) -> tuple[Bodies, NDArray[np.bool_]]:
        """Hold the actions for one step of the physics; a step that MuJoCo finds unstable is undone."""
        positions = slice(1, 1 + self.model.nq)
        velocities = slice(1 + self.model.nq, 1 + self.model.nq + self.model.nv)
        self._start[:, positions] = before.positions
        self._start[:, velocities] = before.velocities
        self._control[:] = actions[:, None, :]
        self._pool.rollout(
            self._models,
            self._data,
            self._start,
            self._control,
            skip_checks=True,
            nstep=self.spec.frame_skip,
            state=self._path,
            sensordata=self._sensors,
        )
        last = self._path[:, -1]
        after = Bodies(last[:, positions].copy(), last[:, velocities].copy())
        # MuJoCo answers an unstable state by going back to the initial pose: its clock then disagrees.
        is_unstable: NDArray[np.bool_] = np.abs(last[:, 0] - self._end_time) > 1e-9
        if is_unstable.any():
            after.positions[is_unstable] = before.positions[is_unstable]
            after.velocities[is_unstable] = before.velocities[is_unstable]
            self.unstable_steps += int(is_unstable.sum())
            _LOG.warning(
                "%s: MuJoCo diverged in environment(s) %s; the step was undone and the episode cut",
                self.spec.name,
                np.flatnonzero(is_unstable).tolist(),
            )
        return after, is_unstable

    def _begin_episodes(self, bodies: Bodies, which: NDArray[np.intp]) -> None:
        for index in which:
            positions, velocities = self.spec.draw_first(self._generators[index], self._pose, self._rest)
            bodies.positions[index], bodies.velocities[index] = positions, velocities
        self._elapsed[which] = 0
        self._action[which] = 0.0

    def _require_bodies(self, problem: str) -> Bodies:
        if self._bodies is None:
            raise InvalidInputError(f"{self.spec.name}: {problem}; call reset(seeds) first.")
        return self._bodies


def _generator_words(generator: np.random.Generator) -> NDArray[np.uint64]:
    state: Any = generator.bit_generator.state
    numbers = (state["state"]["state"], state["state"]["inc"])
    words = [word for number in numbers for word in (number >> 64, number & 0xFFFFFFFFFFFFFFFF)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def _generator_from(words: NDArray[np.uint64]) -> np.random.Generator:
    high, low, step_high, step_low, has_half, half = (int(word) for word in words)
    source = np.random.PCG64()
    source.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": step_high << 64 | step_low},
        "has_uint32": has_half,
        "uinteger": half,
    }
    return np.random.Generator(source)
