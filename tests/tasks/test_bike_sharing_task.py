"""What bike sharing is as a task: its set, its units, its guard and its place in Gymnasium."""

from __future__ import annotations

import gymnasium.utils.env_checker
import numpy as np
import pytest

from inbounds.errors import InfeasibleActionError, InvalidInputError, UnknownNameError
from inbounds.tasks.bike_sharing import SYSTEMS, allocation_slice, bike_sharing_task
from tests.slices import quick_slice

NAMES = quick_slice(SYSTEMS, ["bss3z"])


@pytest.mark.parametrize(("name", "bikes", "least"), [("bss3z", 90, 10), ("bss5z", 150, 0)])
def test_the_task_speaks_bikes_and_states_the_papers_set(name, bikes, least):
    task = bike_sharing_task(name)
    zones = task.action_size
    assert task.horizon == 100 and task.observation_size == 2 * zones + 1
    assert task.action_low.tolist() == [least] * zones and task.action_high.tolist() == [40] * zones
    assert len(task.observation_names) == task.observation_size and len(task.action_names) == zones
    share = np.full(zones, 30.0)
    for added, is_feasible in [(0, True), (5, True), (-5, True), (5.01, False), (-5.01, False)]:
        assert (task.constraint.violation(None, share + added / zones) <= 0) == is_feasible
    over_full = share.copy()
    over_full[:2] += [10.5, -10.5]
    assert task.constraint.violation(None, over_full) == pytest.approx(0.5)
    assert abs(share.sum() - bikes) < 1e-9


def test_the_narrower_band_of_the_published_code_is_a_parameter():
    narrow = bike_sharing_task("bss3z", tolerance=1.5)
    assert narrow.constraint.violation(None, np.array([31.4, 30.0, 30.0])) <= 0
    assert narrow.constraint.violation(None, np.array([31.6, 30.0, 30.0])) == pytest.approx(0.1)


def test_an_unknown_system_is_refused_with_the_known_names():
    with pytest.raises(UnknownNameError, match="bss3z"):
        bike_sharing_task("bss4z")


@pytest.mark.parametrize("name", NAMES)
def test_never_moving_is_feasible_in_every_state_it_visits(name):
    task = bike_sharing_task(name)
    batch = task.host(32, 1)
    observation = batch.reset(range(32))
    for _ in range(task.horizon):
        kept = observation[:, allocation_slice(task.action_size)]
        assert task.constraint.violation(observation, kept).max() <= 0
        observation = batch.step(kept).observation


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:.*WARN")  # what is wrong raises; it also advises other units, no wrapper
def test_gymnasiums_own_checker_is_content(name):
    environment = bike_sharing_task(name).make_environment(render_mode="rgb_array")
    gymnasium.utils.env_checker.check_env(environment, skip_render_check=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_single_environment_is_the_member_of_a_batch_with_its_seed(name):
    task = bike_sharing_task(name)
    batch, single = task.host(3, 1), task.make_environment()
    observations = batch.reset([5, 6, 7])
    observation, _ = single.reset(seed=6)
    rng = np.random.default_rng(18)
    for epoch in range(task.horizon):
        assert np.array_equal(observation, observations[1])
        action = np.asarray(task.constraint.project(None, rng.uniform(20, 40, task.action_size)), np.float32)
        step = batch.step(np.stack([action] * 3))
        observations = step.observation
        observation, reward, _, truncated, _ = single.step(action)
        assert reward == step.reward[1]
        assert truncated == (epoch == task.horizon - 1)
    first, _ = single.reset()
    assert np.array_equal(first, observations[1])


def test_no_global_random_state_is_read_or_changed():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    environment = bike_sharing_task("bss3z").make_environment()
    runs = []
    for _ in range(2):
        environment.reset(seed=3)
        runs.append([environment.step(np.full(3, 30, np.float32))[0].tolist() for _ in range(5)])
        np.random.get_state()
    assert runs[0] == runs[1]
    assert np.array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ([36.0, 36.0, 36.0], InfeasibleActionError),
        ([45.0, 25.0, 20.0], InfeasibleActionError),
        ([np.nan, 30.0, 30.0], InvalidInputError),
        ([45.0, 45.0], InvalidInputError),
        (["many", "few", "none"], InvalidInputError),
    ],
)
def test_a_bad_action_is_refused_and_nothing_moves(action, error):
    environment = bike_sharing_task("bss3z").make_environment()
    environment.reset(seed=4)
    environment.step(np.full(3, 30, np.float32))
    before = environment.unwrapped.state
    with pytest.raises(error, match="bss3z"):
        environment.step(np.array(action))
    after = environment.unwrapped.state
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("environment_id", ["inbounds/BSS3z-v0", "inbounds/Reacher-v0"])
def test_the_unwrapped_environment_refuses_what_the_environment_refuses(environment_id):
    inner = gymnasium.make(environment_id).unwrapped
    inner.reset(seed=0)
    with pytest.raises(InfeasibleActionError):
        inner.step(np.full(inner.action_space.shape, 1000.0, np.float32))
    inner.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_may_start_with_leaving_every_bike_where_it_stands(name):
    task = bike_sharing_task(name)
    observation, _ = task.make_environment().reset(seed=3)
    start = task.reference_action.read(observation)
    standing = [entry.startswith("bikes standing") for entry in task.observation_names]
    np.testing.assert_array_equal(start, observation[standing])
    assert task.constraint.contains(observation, start)
