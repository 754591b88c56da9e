"""The MuJoCo tasks on MJX against the C simulator: one step from the same state, first states and short episodes."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import MissingDependencyError
from inbounds.tasks import locomotion_mjx, mujoco_batch
from inbounds.tasks.locomotion import SPECS, Bodies
from inbounds.tasks.locomotion_mjx import KeyDraws, MjxLocomotion, MjxState, mjx_environment
from inbounds.tasks.mujoco_batch import MujocoBatch

COUNT = 32
needs_mjx = pytest.mark.skipif(
    importlib.util.find_spec("mujoco.mjx") is None, reason="mujoco-mjx is not installed"
)


# Without MJX ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_a_task_on_mjx_is_the_task_of_the_table_with_another_simulator_to_train_on(name: str) -> None:
    ours, theirs = ib.make(f"{name}-mjx"), ib.make(name)
    differing = {
        "name",
        "source",
        "compiled",
        "is_evaluated_on_host",
        "host",
        "make_environment",
        "constraint",
    }
    for field in {field.name for field in dataclasses.fields(ours)} - differing:
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), err_msg=field)
    assert ours.constraint.to_json() == theirs.constraint.to_json()
    assert ours.compiled is not None and not ours.is_played_compiled


@pytest.mark.parametrize("name", SPECS)
def test_observation_reward_and_health_are_the_same_numbers_in_jax(name: str) -> None:
    spec, rng = SPECS[name], np.random.default_rng(0)
    batch: Any = ib.make(name).host(5, 1)  # type: ignore[misc]
    batch.reset(range(5))
    at_rest, scale = batch.bodies, np.array([0.0, 1e-3, 0.1, 1.0, 100.0])[:, None]
    states = [
        Bodies(*(part + scale * rng.normal(size=part.shape) for part in at_rest)) for _ in ("before", "after")
    ]
    actions = rng.uniform(-1.0, 1.0, (5, batch.model.nu))
    with jax.enable_x64(True):
        compiled = [Bodies(*(jnp.asarray(part) for part in state)) for state in states]
        np.testing.assert_allclose(spec.observe(compiled[1]), spec.observe(states[1]), rtol=0, atol=1e-12)
        rewards = spec.reward(*compiled, jnp.asarray(actions), 0.05), spec.reward(*states, actions, 0.05)
        np.testing.assert_allclose(*rewards, rtol=1e-12)
        if spec.is_healthy is not None:
            healthy = spec.is_healthy(states[1])
            np.testing.assert_array_equal(spec.is_healthy(compiled[1]), healthy)
            assert healthy.any() and not healthy.all()


def test_points_of_the_disc_are_uniform() -> None:
    points = np.asarray(
        jax.vmap(lambda key: KeyDraws(key).in_disc(0.2))(jax.random.split(jax.random.key(0), 4000))
    )
    radii = np.linalg.norm(points, axis=1)
    assert radii.max() <= 0.2
    assert (radii < 0.1).mean() == pytest.approx(0.25, abs=0.03)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=0.01)


def test_without_mjx_the_task_is_described_and_training_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    monkeypatch.delattr(mujoco, "mjx", raising=False)
    task = dataclasses.replace(ib.make("hopper-mjx"), compiled=MjxLocomotion(SPECS["hopper"]).ready)  # type: ignore[type-var]
    assert task.make_environment().reset(seed=0)[0].shape == (11,)
    with pytest.raises(MissingDependencyError, match=r'Install mujoco-mjx .*pip install "\.\[mjx\]"'):
        ib.train(task, steps=100)


# With MJX ------------------------------------------------------------------------------------------------------------


class Programs(NamedTuple):
    """The compiled functions of one task, for a batch of `COUNT`."""

    reset: Any
    step: Any


def programs_of(environment: MjxLocomotion) -> Programs:
    environment.ready()
    return Programs(jax.jit(jax.vmap(environment.reset)), jax.jit(jax.vmap(environment.step)))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Programs]:
    """Programs by the name of the task, compiled once."""
    return {name: programs_of(mjx_environment(name)) for name in SPECS}


@pytest.fixture
def elliptic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Load models with elliptic friction cones, on which no choice of axes leaves a trace."""

    def load(model_file: str) -> Any:
        model = original(model_file)
        model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        return model

    original = mujoco_batch.load_model
    monkeypatch.setattr(mujoco_batch, "load_model", load)
    yield


class Differences(NamedTuple):
    """Between one step of MJX and one of C from the same states; every entry is (steps, environments)."""

    positions: np.ndarray
    velocities: np.ndarray
    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    touches: np.ndarray
    """Whether the body touched the floor before or after the step, in C."""


def compare(name: str, programs: Programs, steps: int) -> Differences:
    """Play random feasible actions in C and repeat every step in MJX, from the states rounded to float32."""
    task, rng = ib.make(name), np.random.default_rng(3)
    batch: Any = task.host(COUNT, 1)  # type: ignore[misc]
    batch.reset(range(COUNT))
    found = []
    for _ in range(steps):
        saved = batch.save()
        for part in ("positions", "velocities"):
            saved[part] = saved[part].astype(np.float32).astype(np.float64)
        batch.restore(saved)
        before = batch.bodies
        observation = batch.spec.observe(before)
        drawn = task.constraint.sample(rng, observation, dimension=task.action_size)
        actions = np.asarray(task.constraint.project(observation, drawn.astype(np.float32)), np.float32)
        elapsed = jnp.asarray(saved["elapsed"], jnp.int32)
        state = MjxState(*(jnp.asarray(part, jnp.float32) for part in before), elapsed)
        theirs, ours = (
            batch.step(actions),
            programs.step(state, actions, jax.random.split(jax.random.key(0), COUNT)),
        )
        after = batch.last_transition.bodies
        np.testing.assert_array_equal(ours.truncated, theirs.truncated)
        found.append(
            (
                np.abs(ours.state.positions - after.positions).max(axis=1),
                np.abs(ours.state.velocities - after.velocities).max(axis=1),
                np.abs(ours.observation - theirs.final_observation).max(axis=1),
                np.abs(ours.reward - theirs.reward),
                np.asarray(ours.terminated) != theirs.terminated,
                touches_floor(batch, before) | touches_floor(batch, after),
            )
        )
    batch.close()
    return Differences(*(np.stack(column) for column in zip(*found, strict=True)))


def touches_floor(batch: MujocoBatch, bodies: Bodies) -> np.ndarray:
    data, touching = mujoco.MjData(batch.model), []
    for positions in bodies.positions:
        data.qpos[:] = positions
        mujoco.mj_fwdPosition(batch.model, data)
        touching.append(data.ncon > 0)
    return np.asarray(touching)


@needs_mjx
@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("reacher", 40), ("halfcheetah", 40), ("hopper", 40)])
def test_a_step_of_mjx_is_a_step_of_the_c_simulator_in_float32(
    name: str, steps: int, compiled: dict[str, Programs]
) -> None:
    found = compare(name, compiled[name], steps)
    assert found.positions.max() <= 1e-4
    assert np.median(found.velocities) <= 2e-5
    assert found.velocities.max() <= 2e-2
    assert found.observation.max() <= 2e-2
    assert np.median(found.reward) <= 2e-5
    assert found.reward.max() <= 5e-3
    assert not found.terminated.any()
    if name != "reacher":
        assert found.touches.mean() > 0.3  # so that contacts were really exercised


@needs_mjx
@pytest.mark.slow
def test_ant_agrees_with_the_c_simulator_wherever_it_does_not_touch_the_floor(
    compiled: dict[str, Programs],
) -> None:
    found = compare("ant", compiled["ant"], 20)
    free = ~found.touches
    assert free.any() and found.touches.any()
    # Some bodies touched the floor within the step alone, which the states at both ends do not tell.
    assert np.median(found.velocities[free]) <= 1e-5
    assert not found.terminated.any()
    # On the floor MJX may orient a friction pyramid differently (see the module); no more than that.
    assert 1e-2 < found.velocities.max() <= 10.0


@needs_mjx
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_elliptic_friction_cones_ant_agrees_on_the_floor_as_well(elliptic: None) -> None:
    found = compare("ant", programs_of(MjxLocomotion(SPECS["ant"])), 20)
    assert found.touches.mean() > 0.2
    assert found.positions.max() <= 1e-3
    assert np.median(found.velocities[found.touches]) <= 1e-3
    assert not found.terminated.any()


class Episodes(NamedTuple):
    """Sums of rewards over short episodes, and how long they lasted."""

    returns: np.ndarray
    lengths: np.ndarray


STEPS = 60


def in_c(name: str) -> Episodes:
    task, rng = ib.make(name), np.random.default_rng(0)
    batch: Any = task.host(COUNT, 1)  # type: ignore[misc]
    observation, alive = batch.reset(range(COUNT)), np.ones(COUNT, bool)
    returns, lengths = np.zeros(COUNT), np.zeros(COUNT)
    for _ in range(STEPS):
        actions = task.constraint.sample(rng, observation, dimension=task.action_size)
        step = batch.step(np.asarray(actions, np.float64))
        returns, lengths = returns + alive * step.reward, lengths + alive
        alive &= ~(step.terminated | step.truncated)
        observation = step.observation
    return Episodes(returns, lengths)


def on_mjx(name: str, programs: Programs) -> Episodes:
    task, rng = ib.make(name), np.random.default_rng(1)
    keys = jax.random.split(jax.random.key(1), COUNT)
    state, seen = programs.reset(keys)
    alive, returns, lengths = np.ones(COUNT, bool), np.zeros(COUNT), np.zeros(COUNT)
    for _ in range(STEPS):
        actions = task.constraint.sample(rng, np.asarray(seen, np.float64), dimension=task.action_size)
        step = programs.step(state, np.asarray(actions, np.float32), keys)
        returns, lengths = returns + alive * np.asarray(step.reward), lengths + alive
        alive &= ~np.asarray(step.terminated | step.truncated)
        state, seen = step.state, step.observation
    return Episodes(returns, lengths)


@needs_mjx
@pytest.mark.slow
@pytest.mark.parametrize("name", ["reacher", "halfcheetah", "hopper", "ant"])
def test_short_episodes_have_the_same_returns_and_lengths_on_average(
    name: str, compiled: dict[str, Programs]
) -> None:
    ours, theirs = on_mjx(name, compiled[name]), in_c(name)
    for mine, other in zip(ours, theirs, strict=True):
        error = np.hypot(mine.std(), other.std()) / np.sqrt(COUNT)
        assert abs(mine.mean() - other.mean()) <= 4.0 * error + 1e-9
    if SPECS[name].horizon < STEPS:
        assert (ours.lengths == SPECS[name].horizon).all()
    elif name == "hopper":
        assert ours.lengths.min() < STEPS  # it fell


@needs_mjx
@pytest.mark.slow
def test_first_states_have_the_ranges_of_those_in_c(compiled: dict[str, Programs]) -> None:
    keys = jax.random.split(jax.random.key(5), COUNT)
    for name, programs in compiled.items():
        state, seen = (jax.tree.map(np.asarray, part) for part in programs.reset(keys))
        batch: Any = ib.make(name).host(COUNT, 1)  # type: ignore[misc]
        theirs = batch.reset(range(COUNT))
        assert seen.dtype == np.float32 and seen.shape == theirs.shape
        spread = np.maximum(np.abs(theirs - theirs.mean(axis=0)).max(axis=0), 1e-6)
        assert (np.abs(seen - theirs.mean(axis=0)) <= 3.0 * spread).all(), name
        assert (state.steps == 0).all() and len(np.unique(seen[:, 1])) == COUNT


@needs_mjx
@pytest.mark.slow
def test_a_step_that_diverges_is_undone_and_its_episode_cut(compiled: dict[str, Programs]) -> None:
    state, _ = compiled["reacher"].reset(jax.random.split(jax.random.key(0), COUNT))
    broken = state._replace(velocities=state.velocities.at[0, 0].set(jnp.float32(3e38)))
    step = compiled["reacher"].step(broken, jnp.zeros((COUNT, 2)), jax.random.split(jax.random.key(0), COUNT))
    assert bool(step.truncated[0]) and not bool(step.truncated[1:].any())
    np.testing.assert_array_equal(step.state.velocities[0], broken.velocities[0])
    np.testing.assert_array_equal(step.state.positions[0], broken.positions[0])


@needs_mjx
@pytest.mark.slow
def test_the_model_on_the_device_is_that_of_the_table() -> None:
    physics = mjx_environment("halfcheetah").physics
    model = mujoco_batch.load_model(SPECS["halfcheetah"].model_file)
    for field in ("body_mass", "dof_damping", "jnt_range", "geom_size", "geom_friction", "actuator_gear"):
        np.testing.assert_allclose(getattr(physics.model, field), getattr(model, field), rtol=1e-6)
    assert physics.seconds == pytest.approx(0.05)
    assert model.opt.iterations > locomotion_mjx.SOLVER_ITERATIONS
