"""The network tasks as users meet them: constraint, units, refusals, seeds, pictures."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from inbounds.errors import InfeasibleActionError, InvalidInputError, SimulationError, UnknownNameError
from inbounds.tasks.compiled_gymnasium import CompiledGymnasium
from inbounds.tasks.network import compiled_network, network_task, snapshot
from inbounds.tasks.network_layout import LAYOUTS

FEASIBLE = {"nsfnet": np.array([17, 6, 6, 0, 12, 20, 5, 23, 6.0]), "nsfnet20d": np.full(20, 7.5)}


@pytest.fixture(scope="module", params=["nsfnet", pytest.param("nsfnet20d", marks=pytest.mark.slow)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def environment(name: str) -> Iterator[gymnasium.Env]:
    made = network_task(name).make_environment(render_mode="rgb_array")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "flows", "rows", "high"), [("nsfnet", 9, 8, 100.0), ("nsfnet20d", 20, 14, 50.0)]
)
def test_the_task_speaks_packets_per_second(name: str, flows: int, rows: int, high: float) -> None:
    task = network_task(name)
    assert task.name == name
    assert task.action_size == flows == len(task.action_names)
    assert task.observation_size == 40 == len(task.observation_names)
    assert (task.action_low == 0).all()
    assert (task.action_high == high).all()
    assert task.horizon == 1000
    assert task.training_reward(13.0) == pytest.approx(1.3)
    assert f"{rows} rows" in task.constraint.formula()


def test_the_constraint_is_the_load_of_every_trunk_and_the_box(name: str) -> None:
    task, layout = network_task(name), LAYOUTS[name]
    rates = np.random.default_rng(0).uniform(-5, 15, (500, layout.flows))
    excess = np.concatenate([rates @ layout.incidence().T - 50, -rates, rates - layout.highest_rate], axis=1)
    is_feasible = task.constraint.violation(None, rates) <= 0
    np.testing.assert_array_equal(is_feasible, excess.max(axis=1) <= 0)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="nsfnet20d"):
        network_task("nsfnet20")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda action: action + 25, InfeasibleActionError, "exceeds its constraint by"),
        (lambda action: np.where(np.arange(action.size) == 1, -0.5, action), InfeasibleActionError, "0.5"),
        (lambda action: action * np.nan, InvalidInputError, "nan"),
        pytest.param(lambda action: action[:-1], InvalidInputError, "shape", marks=pytest.mark.sweep),
        pytest.param(
            lambda action: action.astype(str), InvalidInputError, "real numbers", marks=pytest.mark.sweep
        ),
    ],
)
def test_a_bad_action_names_the_task_and_leaves_the_network_as_it_was(
    environment: gymnasium.Env, name: str, change: object, error: type[Exception], words: str
) -> None:
    environment.reset(seed=0)
    environment.step(FEASIBLE[name].astype(np.float32))
    before = environment.unwrapped.state
    with pytest.raises(error, match=words) as caught:
        environment.step(change(FEASIBLE[name]))  # type: ignore[operator]
    assert name in str(caught.value)
    for one, other in zip(before.queues, environment.unwrapped.state.queues, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_guard_a_flood_of_packets_is_an_error_that_names_the_buffers() -> None:
    task = network_task("nsfnet")
    bare = CompiledGymnasium(
        compiled_network("nsfnet"),
        action_low=task.action_low,
        action_high=task.action_high,
        task_name="nsfnet",
    )
    bare.reset(seed=0)
    with pytest.raises(SimulationError, match=r"nsfnet.*fixed buffers.*159 packets per interval"):
        bare.step(np.full(9, 100.0))
    assert int(bare.state.steps) == 0
    bare.step(np.zeros(9))


@pytest.mark.parametrize("name", ["nsfnet", pytest.param("nsfnet20d", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_single_and_batched_networks_with_one_seed_are_the_same(name: str) -> None:
    task = network_task(name)
    assert task.host is not None
    batch, one = task.host(3, 1), task.make_environment()
    first = batch.reset([4, 5, 6])
    observation, _ = one.reset(seed=5)
    np.testing.assert_array_equal(observation, first[1])
    for factor in (1.0, 0.5, 0.9, 0.1):
        action = (FEASIBLE[name] * factor).astype(np.float32)
        moved = batch.step(np.stack([action] * 3))
        observation, reward, *_ = one.step(action)
        np.testing.assert_array_equal(observation, moved.observation[1])
        # Two programs, for one network and for three, may add up the flows in another order.
        assert reward == pytest.approx(moved.reward[1], rel=3e-7)
    assert len(np.unique(moved.reward)) == 3, "different seeds must differ"


def test_a_snapshot_shows_loads_queues_and_senders(environment: gymnasium.Env, name: str) -> None:
    environment.reset(seed=0)
    action = FEASIBLE[name]
    for _ in range(3):
        environment.step(action.astype(np.float32))
    seen = snapshot(LAYOUTS[name], environment.unwrapped.state, action)
    np.testing.assert_allclose(seen.demanded, LAYOUTS[name].incidence() @ action)
    assert (seen.demanded[seen.is_constrained] <= 50).all()
    assert seen.carried.sum() == pytest.approx(np.ceil(seen.demanded + 1e-9).sum(), rel=0.25)
    assert (seen.queue_lengths >= 0).all()
    assert (seen.queue_lengths < 100).all()
    assert (seen.throughput > 0).all()
    assert (seen.round_trip > 0.15).all()
    assert seen.steps == 3


def test_a_picture_shows_the_first_state_and_later_ones(environment: gymnasium.Env, name: str) -> None:
    environment.reset(seed=0)
    first = environment.render()
    environment.step(FEASIBLE[name].astype(np.float32))
    later = environment.render()
    assert first.dtype == np.uint8
    assert first.shape == later.shape == (620, 1080, 3)
    assert (first != later).any()
    assert np.unique(later.reshape(-1, 3), axis=0).shape[0] > 20


@pytest.mark.slow
def test_gymnasiums_own_checker_finds_nothing(name: str) -> None:
    made = network_task(name).make_environment()
    with warnings.catch_warnings():
        # The checker dislikes observations without bounds and actions that are not scaled to one; both are meant.
        warnings.simplefilter("ignore")
        check_env(made, skip_render_check=True)


def test_a_policy_may_start_well_inside_of_the_set(name: str) -> None:
    task = network_task(name)
    start = np.asarray(task.reference_action, np.float64)
    assert start.shape == (task.action_size,) and task.constraint.contains(None, start)
    assert (
        float(task.constraint.violation(None, start)) < -0.01
    )  # not on the boundary, where half of all draws fail


@pytest.mark.slow
@pytest.mark.parametrize("start", ["nsfnet", "nsfnet20d"])
def test_learners_begin_with_rates_that_earn_more_than_the_interior_point(start: str) -> None:
    task = network_task(start)
    assert isinstance(task.reference_action, np.ndarray)
    interior = np.asarray(task.constraint.interior_point(dimension=task.action_size))
    assert float(task.constraint.violation(None, task.reference_action)) < -0.2  # not at the edge
    earned = []
    for action in (task.reference_action, interior):
        assert task.host is not None
        environments = task.host(16, 1)
        environments.reset(list(range(100, 116)))
        rewards = [
            environments.step(np.tile(np.asarray(action, np.float32), (16, 1))).reward for _ in range(150)
        ]
        earned.append(np.mean(rewards[10:]))
    assert earned[0] > 1.01 * earned[1]
