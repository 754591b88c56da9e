"""The MuJoCo tasks against Gymnasium's v4 environments: states, observations, rewards and constraints."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium.envs.mujoco.ant_v4
import gymnasium.envs.mujoco.half_cheetah_v4
import gymnasium.envs.mujoco.hopper_v4
import gymnasium.envs.mujoco.reacher_v4
import mujoco
import numpy as np
import pytest

from inbounds.tasks.locomotion import SPECS, Bodies, locomotion_task
from inbounds.tasks.mujoco_batch import MujocoBatch, load_model, mujoco_version

ORIGINALS = {
    "reacher": gymnasium.envs.mujoco.reacher_v4.ReacherEnv,
    "halfcheetah": gymnasium.envs.mujoco.half_cheetah_v4.HalfCheetahEnv,
    "hopper": gymnasium.envs.mujoco.hopper_v4.HopperEnv,
    "ant": gymnasium.envs.mujoco.ant_v4.AntEnv,
}
NAMES = tuple(SPECS)
LAGGING = {"reacher": "fingertip", "ant": "torso"}


@pytest.fixture
def original(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings about the model to a file where it stands
    environment = ORIGINALS[request.param]()
    yield environment
    environment.close()


def batch_of_one(name: str) -> MujocoBatch:
    batch = locomotion_task(name).host(1, 1)
    batch.reset([0])
    return batch


def place(batch: MujocoBatch, positions: np.ndarray, velocities: np.ndarray) -> None:
    state = batch.save()
    state["positions"], state["velocities"] = positions[None].copy(), velocities[None].copy()
    state["elapsed"] = np.zeros(1, dtype=np.int64)
    batch.restore(state)


class Comparison(NamedTuple):
    """The largest differences over 1,000 steps, each begun in the original's own state."""

    state: float
    observation: float
    reward: float
    # The same two with the original's body positions brought up to date with its state.
    current_observation: float
    current_reward: float
    lag: float
    """How far behind its state, in metres, the positions are that the original reads."""
    terminations: int
    different_terminations: int


def caught_up(environment: Any) -> Any:
    """Return a copy of the original's state in which the body positions are those of the state."""
    data = mujoco.MjData(environment.model)
    data.qpos[:], data.qvel[:] = environment.data.qpos, environment.data.qvel
    mujoco.mj_kinematics(environment.model, data)
    return data


def reach(data: Any) -> np.ndarray:
    return data.body("fingertip").xpos - data.body("target").xpos


def current_reward(name: str, environment: Any, x_before: float, before: Any, action: np.ndarray) -> float:
    """Return the original's reward, computed from its states instead of from bodies that lag behind them."""
    if name == "reacher":
        return float(-np.linalg.norm(reach(before)) - np.square(action).sum())
    forward = (environment.data.qpos[0] - x_before) / environment.dt
    return float(forward + 1.0 - environment.control_cost(action))


def compare(name: str, environment: Any, seed: int = 7, steps: int = 1000) -> Comparison:
    task, batch = locomotion_task(name), batch_of_one(name)
    rng = np.random.default_rng(seed)
    worst = dict.fromkeys(Comparison._fields, 0.0)

    def note(what: str, difference: Any) -> None:
        worst[what] = max(worst[what], float(np.max(np.abs(difference))))

    environment.reset(seed=seed)
    for _ in range(steps):
        place(batch, environment.data.qpos, environment.data.qvel)
        observation = batch.spec.observe(batch.bodies)[0]
        action = np.asarray(task.constraint.project(observation, rng.uniform(-1.0, 1.0, task.action_size)))
        before, x_before = caught_up(environment), float(environment.data.qpos[0])

        ours = batch.step(action[None])
        theirs, reward, terminated, _, _ = environment.step(action)

        reached = batch.last_transition.bodies
        note("state", reached.positions[0] - environment.data.qpos)
        note("state", reached.velocities[0] - environment.data.qvel)
        note("observation", ours.final_observation[0] - theirs)
        note("reward", ours.reward[0] - reward)
        if name in LAGGING:
            body, after = LAGGING[name], caught_up(environment)
            behind = after.body(body).xpos - environment.data.body(body).xpos
            note("lag", np.linalg.norm(behind) if name == "reacher" else behind[0])
            note(
                "current_reward", ours.reward[0] - current_reward(name, environment, x_before, before, action)
            )
            current = theirs if name == "ant" else np.concatenate([theirs[:8], reach(after)])
            note("current_observation", ours.final_observation[0] - current)
        worst["terminations"] += terminated
        worst["different_terminations"] += bool(terminated) != bool(ours.terminated[0])
        if terminated:
            environment.reset()
    return Comparison(**worst)


@pytest.mark.parametrize(
    ("name", "original"), [(name, name) for name in ("halfcheetah", "hopper")], indirect=["original"]
)
def test_states_observations_and_rewards_are_those_of_the_original(name: str, original: Any) -> None:
    found = compare(name, original)
    assert found.state <= 1e-10
    assert found.observation <= 1e-10
    assert found.reward <= 1e-10
    assert found.different_terminations == 0
    assert (found.terminations > 0) == (name == "hopper")  # so that the rule for ending was really exercised


@pytest.mark.parametrize(
    ("name", "original", "lag"),
    [("reacher", "reacher", 2e-3), pytest.param("ant", "ant", 1e-2, marks=pytest.mark.sweep)],
    indirect=["original"],
)
def test_only_bodies_that_lag_in_the_original_make_a_difference(name: str, original: Any, lag: float) -> None:
    found = compare(name, original)
    assert found.state <= 1e-10
    assert found.current_observation <= 1e-10
    assert found.current_reward <= 1e-10
    assert found.different_terminations == 0
    assert 1e-5 < found.lag <= lag
    # What remains is what the lag explains: once in a distance, twice in the speed over one step.
    assert found.observation <= found.lag + 1e-10
    assert found.reward <= (found.lag if name == "reacher" else 2 * found.lag / original.dt) + 1e-10


@pytest.mark.parametrize("original", ["hopper"], indirect=True)
def test_hoppervel_is_hopper_with_a_reward_for_three_metres_per_second(original: Any) -> None:
    batch = batch_of_one("hoppervel")
    original.reset(seed=0)
    place(batch, original.data.qpos, original.data.qvel)
    action = np.array([0.3, -0.2, 0.5])
    _, _, _, _, info = original.step(action)
    step = batch.step(action[None])
    expected = 1.0 - abs(info["x_velocity"] - 3.0) + 1.0 - 1e-3 * np.square(action).sum()
    assert step.reward[0] == pytest.approx(expected, abs=1e-10)


def test_hoppervel_pays_two_less_the_torques_at_the_target_speed() -> None:
    before = Bodies(np.zeros((1, 6)), np.zeros((1, 6)))
    after = Bodies(np.array([[3.0 * 0.008, 0, 0, 0, 0, 0]]), np.zeros((1, 6)))
    action = np.array([[0.5, -1.0, 0.25]])
    reward = SPECS["hoppervel"].reward(before, after, action, 0.008)
    assert reward[0] == pytest.approx(2.0 - 1e-3 * np.square(action).sum(), abs=1e-12)


@pytest.mark.parametrize(("name", "original"), [(name, name) for name in ORIGINALS], indirect=["original"])
def test_a_seed_begins_the_same_episode_as_in_the_original(name: str, original: Any) -> None:
    batch = locomotion_task(name).host(2, 1)
    observations = batch.reset([11, 12])
    for row, seed in enumerate((11, 12)):
        first, _ = original.reset(seed=seed)
        np.testing.assert_allclose(observations[row], first, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "original"), [(name, name) for name in ORIGINALS], indirect=["original"])
def test_the_model_is_the_original_model_number_by_number(name: str, original: Any) -> None:
    model = load_model(SPECS[name].model_file)
    compared = 0
    for field in (
        "body_mass",
        "body_inertia",
        "body_pos",
        "dof_damping",
        "dof_armature",
        "jnt_range",
        "geom_size",
        "geom_friction",
        "actuator_gear",
        "jnt_stiffness",
        "geom_solref",
        "geom_solimp",
        "qpos0",
        "dof_invweight0",
        "body_invweight0",
    ):
        np.testing.assert_array_equal(getattr(model, field), getattr(original.model, field), err_msg=field)
        compared += getattr(model, field).size
    assert compared > 100
    assert SPECS[name].frame_skip == original.frame_skip
    assert model.opt.integrator == original.model.opt.integrator


@pytest.mark.parametrize(
    ("name", "entries"),
    [("halfcheetah", slice(11, 17)), ("hopper", slice(8, 11)), ("hoppervel", slice(8, 11))],
)
def test_each_weight_is_the_rate_of_the_joint_that_its_torque_drives(name: str, entries: slice) -> None:
    batch = batch_of_one(name)
    joints = batch.model.actuator_trnid[:, 0]
    rates = batch.bodies.velocities[0, batch.model.jnt_dofadr[joints]]
    np.testing.assert_array_equal(batch.spec.observe(batch.bodies)[0, entries], rates)


@pytest.mark.parametrize(
    ("name", "entries", "bound"),
    [("halfcheetah", range(11, 17), 20.0), ("hopper", range(8, 11), 10.0), ("hoppervel", range(8, 11), 10.0)],
)
def test_the_power_limit_reads_these_entries_and_no_others(name: str, entries: range, bound: float) -> None:
    task = locomotion_task(name)
    rng = np.random.default_rng(0)
    weights = rng.uniform(-10.0, 10.0, len(entries))
    observation = rng.normal(size=task.observation_size) * 50.0
    observation[list(entries)] = weights
    action = rng.uniform(-1.0, 1.0, task.action_size)
    power = weights * action
    used = np.abs(power).sum() if name == "halfcheetah" else np.maximum(power, 0.0).sum()
    within_box = np.abs(action).max() - 1.0
    expected = max(used - bound, within_box)
    assert float(task.constraint.violation(observation, action)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("name", "radius_squared"), [("reacher", 0.05), ("ant", 2.0)])
def test_the_ball_limits_the_squares_of_all_torques(name: str, radius_squared: float) -> None:
    task = locomotion_task(name)
    direction = np.random.default_rng(1).normal(size=task.action_size)
    boundary = direction / np.linalg.norm(direction) * np.sqrt(radius_squared)
    observation = np.zeros(task.observation_size)
    assert float(task.constraint.violation(observation, 0.999 * boundary)) < 0
    assert float(task.constraint.violation(observation, 1.001 * boundary)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_box_belongs_to_the_constraint(name: str) -> None:
    task = locomotion_task(name)
    outside = np.zeros(task.action_size)
    outside[0] = 1.0 + 1e-9
    assert float(task.constraint.violation(np.zeros(task.observation_size), outside)) > 0


def test_hopper_shows_and_constrains_velocities_clipped_to_ten() -> None:
    batch = batch_of_one("hopper")
    velocities = np.array([0.0, 11.0, -12.0, 30.0, -30.0, 5.0])
    place(batch, np.array([0.0, 1.25, 0.0, 0.0, 0.0, 0.0]), velocities)
    np.testing.assert_array_equal(
        batch.spec.observe(batch.bodies)[0, 5:], [0.0, 10.0, -10.0, 10.0, -10.0, 5.0]
    )
    # With the true rates this action would take 0.9 * 30 > 10; with the clipped ones it takes 9.
    batch.step(np.array([[0.9, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("name", "size", "action_size", "horizon"),
    [
        ("reacher", 11, 2, 50),
        ("halfcheetah", 17, 6, 1000),
        ("hopper", 11, 3, 1000),
        ("hoppervel", 11, 3, 1000),
        ("ant", 27, 8, 1000),
    ],
)
def test_sizes_and_horizons_are_those_of_the_paper(
    name: str, size: int, action_size: int, horizon: int
) -> None:
    task = locomotion_task(name)
    assert (task.observation_size, task.action_size, task.horizon) == (size, action_size, horizon)
    assert len(task.observation_names) == size and len(task.action_names) == action_size
    assert task.host(3, 1).reset([0, 1, 2]).shape == (3, size)


def test_reacher_observes_angles_target_rates_and_what_is_missing() -> None:
    positions, velocities = np.array([0.3, -0.7, 0.05, -0.12]), np.array([1.5, -2.5, 0.0, 0.0])
    observation = SPECS["reacher"].observe(Bodies(positions[None], velocities[None]))[0]
    elbow = 0.1 * np.array([np.cos(0.3), np.sin(0.3)])
    fingertip = elbow + 0.11 * np.array([np.cos(0.3 - 0.7), np.sin(0.3 - 0.7)])
    expected = [np.cos(0.3), np.cos(-0.7), np.sin(0.3), np.sin(-0.7), 0.05, -0.12, 1.5, -2.5]
    np.testing.assert_allclose(observation, [*expected, *(fingertip - positions[2:]), 0.0], atol=1e-15)


def test_reacher_pays_for_the_distance_before_the_step() -> None:
    batch = batch_of_one("reacher")
    place(batch, np.array([0.0, 0.0, 0.21, 0.0]), np.array([40.0, 0.0, 0.0, 0.0]))
    step = batch.step(np.array([[0.1, 0.1]]))  # the fingertip sits on the target and is about to leave it
    assert step.reward[0] == pytest.approx(-0.02, abs=1e-12)
    assert np.linalg.norm(step.final_observation[0, 8:]) > 0.01


@pytest.mark.parametrize(
    ("name", "index", "value", "stands"),
    [
        ("hopper", 1, 0.7001, True),
        ("hopper", 1, 0.7, False),
        ("hopper", 2, 0.1999, True),
        ("hopper", 2, 0.2, False),
        ("hopper", 2, -0.2, False),
        ("hopper", 5, 100.0, False),
        ("hopper", 5, np.nan, False),
        ("ant", 2, 0.2, True),
        ("ant", 2, 0.1999, False),
        ("ant", 2, 1.0, True),
        ("ant", 2, 1.0001, False),
        ("ant", 9, np.inf, False),
    ],
)
def test_an_episode_ends_where_the_body_has_fallen(name: str, index: int, value: float, stands: bool) -> None:
    batch = batch_of_one(name)
    positions = batch.bodies.positions
    positions[0, index] = value
    assert bool(SPECS[name].is_healthy(Bodies(positions, np.zeros((1, batch.model.nv))))[0]) == stands


def test_the_version_of_mujoco_can_be_stored_with_a_result() -> None:
    assert mujoco_version() == mujoco.__version__
