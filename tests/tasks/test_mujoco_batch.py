"""Batches of MuJoCo environments: the same numbers in any batch, on any thread, after any pause."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest

from inbounds.errors import CheckpointError, ConfigurationError, InfeasibleActionError, InvalidInputError
from inbounds.tasks.environment import Step
from inbounds.tasks.locomotion import SPECS, locomotion_task
from inbounds.tasks.mujoco_batch import MujocoBatch
from tests.slices import quick_slice

NAMES = tuple(SPECS)


def feasible(name: str, rng: np.random.Generator, observations: np.ndarray) -> np.ndarray:
    task = locomotion_task(name)
    wild = rng.uniform(-1.0, 1.0, (len(observations), task.action_size))
    return np.asarray(task.constraint.project(observations, wild))


def walk(name: str, batch: MujocoBatch, observations: np.ndarray, steps: int, seed: int = 0) -> list[Step]:
    rng = np.random.default_rng(seed)
    taken = []
    for _ in range(steps):
        taken.append(batch.step(feasible(name, rng, observations)))
        observations = taken[-1].observation
    return taken


def assert_same(ours: Step, theirs: Step) -> None:
    for field, mine, other in zip(Step._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=field)


def row(step: Step, index: int) -> Step:
    return Step(*(array[index : index + 1] for array in step))


@pytest.mark.parametrize("name", quick_slice(NAMES, NAMES[:2]))
def test_an_environment_is_the_same_alone_and_in_a_batch_to_the_last_bit(name: str) -> None:
    task, count = locomotion_task(name), 5
    together = task.host(count, 1)
    observations = together.reset(range(count))
    rng = np.random.default_rng(1)
    alone = [task.host(1, 1) for _ in range(count)]
    for index, single in enumerate(alone):
        np.testing.assert_array_equal(single.reset([index])[0], observations[index])
    ended = 0
    for _ in range(120):
        actions = feasible(name, rng, observations)
        step = together.step(actions)
        for index, single in enumerate(alone):
            assert_same(row(step, index), single.step(actions[index : index + 1]))
        observations = step.observation
        ended += int((step.terminated | step.truncated).sum())
    assert ended > 0 or name in ("halfcheetah", "ant")  # the next episode was compared too


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    task = locomotion_task(name)
    one, three = task.host(7, 1), task.host(7, 3)
    first = one.reset(range(7))
    np.testing.assert_array_equal(three.reset(range(7)), first)
    for ours, theirs in zip(walk(name, one, first, 60), walk(name, three, first, 60), strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_batch_continues_to_the_last_bit(name: str) -> None:
    task = locomotion_task(name)
    batch = task.host(3, 1)
    walked = walk(name, batch, batch.reset([4, 5, 6]), 40)
    saved, here = batch.save(), walked[-1].observation
    continued = walk(name, batch, here, 80, seed=9)
    elsewhere = task.host(3, 2)
    elsewhere.restore(saved)
    for ours, theirs in zip(continued, walk(name, elsewhere, here, 80, seed=9), strict=True):
        assert_same(ours, theirs)


def test_what_was_saved_does_not_change_afterwards() -> None:
    batch = locomotion_task("hopper").host(2, 1)
    first = batch.reset([0, 1])
    saved = batch.save()
    copies = {name: array.copy() for name, array in saved.items()}
    walk("hopper", batch, first, 50)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, copies[name], err_msg=name)


def test_what_was_saved_consists_of_plain_numbers() -> None:
    batch = locomotion_task("ant").host(2, 1)
    batch.reset([0, 1])
    assert {array.dtype.kind for array in batch.save().values()} <= {"f", "i", "u"}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_walk_and_another_seed_another(name: str) -> None:
    batch = locomotion_task(name).host(3, 1)
    observations = batch.reset([3, 3, 4])
    rng = np.random.default_rng(0)
    for _ in range(60):
        np.testing.assert_array_equal(observations[0], observations[1])
        assert (observations[0] != observations[2]).any()
        action = feasible(name, rng, observations[:1])
        harmless = np.concatenate([action, action, 0.0 * action])
        observations = batch.step(harmless).observation


@pytest.mark.parametrize("name", NAMES)
def test_no_global_random_state_is_read_or_changed(name: str) -> None:
    task = locomotion_task(name)

    def trace(global_seed: int) -> list[Step]:
        np.random.seed(global_seed)
        random.seed(global_seed)
        before = (np.random.get_state()[1].tolist(), random.getstate())
        batch = task.host(2, 1)
        taken = walk(name, batch, batch.reset([0, 1]), 60)
        assert (np.random.get_state()[1].tolist(), random.getstate()) == before
        return taken

    for ours, theirs in zip(trace(1), trace(2), strict=True):
        assert_same(ours, theirs)


def test_an_episode_is_cut_at_the_horizon_and_the_next_begins_in_the_same_step() -> None:
    task = locomotion_task("reacher")
    batch = task.host(2, 1)
    steps = walk("reacher", batch, batch.reset([0, 1]), 101)
    cut = [index for index, step in enumerate(steps) if step.truncated.any()]
    assert cut == [49, 99]
    for index, step in enumerate(steps):
        assert not step.terminated.any()
        assert (step.observation == step.final_observation).all() == (index not in cut)
    # The target stands still within an episode and is drawn anew for the next one.
    assert (steps[49].final_observation[:, 4:6] == steps[0].final_observation[:, 4:6]).all()
    assert (steps[49].observation[:, 4:6] != steps[0].final_observation[:, 4:6]).all()


def test_only_the_environment_that_fell_begins_anew() -> None:
    task = locomotion_task("hopper")
    batch = task.host(2, 1)
    batch.reset([0, 1])
    state = batch.save()
    state["positions"][0, 2] = 0.3  # leaning too far
    batch.restore(state)
    step = batch.step(np.zeros((2, 3)))
    assert step.terminated.tolist() == [True, False] and not step.truncated.any()
    assert (step.observation[0] != step.final_observation[0]).any()
    np.testing.assert_array_equal(step.observation[1], step.final_observation[1])
    assert abs(step.final_observation[0, 1]) > 0.2 > abs(step.observation[0, 1])
    assert batch.save()["elapsed"].tolist() == [0, 1]


BAD = {
    "infeasible": (
        np.array([[0.0, 0.0], [0.2, 0.2]]),
        InfeasibleActionError,
        r"reacher.*environment 1.*by 0\.03",
    ),
    "not a number": (
        np.array([[0.0, np.nan], [0.0, 0.0]]),
        InvalidInputError,
        r"reacher.*entry 1.*environment 0.*nan",
    ),
    "infinite": (
        np.array([[0.0, 0.0], [-np.inf, 0.0]]),
        InvalidInputError,
        r"reacher.*entry 0.*environment 1.*inf",
    ),
    "wrong shape": (np.zeros((2, 3)), InvalidInputError, r"reacher.*shape \(2, 3\), expected \(2, 2\)"),
    "one row short": (np.zeros((1, 2)), InvalidInputError, r"reacher.*shape \(1, 2\), expected \(2, 2\)"),
    "text": (np.array([["a", "b"], ["c", "d"]]), InvalidInputError, r"reacher.*not real numbers"),
    "nothing": (None, InvalidInputError, r"reacher.*not real numbers"),
    "truth values": (np.zeros((2, 2), dtype=bool), InvalidInputError, r"reacher.*bool"),
    "complex": (np.zeros((2, 2), dtype=complex), InvalidInputError, r"reacher.*complex"),
    "ragged": ([[0.0], [0.0, 0.0]], InvalidInputError, r"reacher.*"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_action_is_refused_and_nothing_has_moved(kind: str) -> None:
    actions, error, message = BAD[kind]
    batch = locomotion_task("reacher").host(2, 1)
    first = batch.reset([0, 1])
    walk("reacher", batch, first, 3)
    before = batch.save()
    with pytest.raises(error, match=message):
        batch.step(actions)
    for name, array in batch.save().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    untouched = locomotion_task("reacher").host(2, 1)
    untouched.restore(before)
    assert_same(batch.step(np.zeros((2, 2))), untouched.step(np.zeros((2, 2))))


def test_writing_into_an_observation_does_not_move_the_constraint() -> None:
    batch = locomotion_task("halfcheetah").host(1, 1)
    observation = batch.reset([0])
    state = batch.save()
    state["velocities"][0, 3:] = 20.0
    batch.restore(state)
    step = batch.step(np.full((1, 6), 0.1))
    for array in (observation, step.observation, step.final_observation):
        array[:] = 0.0
    with pytest.raises(InfeasibleActionError):
        batch.step(np.ones((1, 6)))


def test_a_correcting_batch_projects_and_counts() -> None:
    batch = locomotion_task("reacher").host(2, 1, on_violation="correct")
    batch.reset([0, 1])
    step = batch.step(np.array([[1.0, 0.0], [0.1, 0.0]]))
    # The reward shows which action was executed: on the ball's boundary, and unchanged.
    costs = -step.reward - np.linalg.norm(locomotion_task("reacher").host(2, 1).reset([0, 1])[:, 8:], axis=1)
    np.testing.assert_allclose(costs, [0.05, 0.01], rtol=1e-5)
    assert batch.guard.corrections == 1
    assert batch.guard.worst_violation == pytest.approx(0.95)


def test_an_unstable_step_is_undone_and_cuts_the_episode(
    caplog: pytest.LogCaptureFixture, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warning to a file where it stands
    batch = locomotion_task("halfcheetah").host(2, 1)
    batch.reset([0, 1])
    state = batch.save()
    state["velocities"][1, 0] = 1e12
    batch.restore(state)
    with caplog.at_level(logging.WARNING):
        step = batch.step(np.zeros((2, 6)))
    assert step.truncated.tolist() == [False, True] and not step.terminated.any()
    assert step.reward[1] == 0.0 and np.isfinite(step.observation).all()
    assert step.final_observation[1, 8] == 1e12 and abs(step.observation[1, 8]) < 10
    assert batch.unstable_steps == 1
    assert "halfcheetah" in caplog.text


@pytest.mark.parametrize("change", ["drop", "reshape"])
def test_a_foreign_saved_state_is_refused(change: str) -> None:
    batch = locomotion_task("hopper").host(2, 1)
    batch.reset([0, 1])
    saved = batch.save()
    if change == "drop":
        del saved["generators"]
    else:
        saved["generators"] = saved["generators"][:1]
    with pytest.raises(CheckpointError, match="generators"):
        batch.restore(saved)


def test_impossible_requests_name_their_remedy() -> None:
    task = locomotion_task("hopper")
    with pytest.raises(ConfigurationError, match="ask for 1 or more"):
        task.host(0, 1)
    with pytest.raises(ConfigurationError, match="on_violation"):
        task.host(1, 1, on_violation="ignore")
    batch = task.host(2, 1)
    with pytest.raises(InvalidInputError, match="call reset"):
        batch.step(np.zeros((2, 3)))
    with pytest.raises(InvalidInputError, match="call reset"):
        batch.save()
    with pytest.raises(InvalidInputError, match="one seed for each"):
        batch.reset([0])


def test_a_closed_batch_has_stopped_its_threads() -> None:
    batch = locomotion_task("hopper").host(4, 2)
    batch.reset(range(4))
    batch.close()
    with pytest.raises(RuntimeError):
        batch.step(np.zeros((4, 3)))
