"""Comparisons on common episodes: chance cancels, and the interval says how sure the rest is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.evaluation.protocol import PairedDifference, compare_with_reference
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.learner import Spec
from inbounds.training.config import seed_keys
from inbounds.training.record import RunFolder
from tests.experiments.probe import RejectingPolicy, probe_task, spec_of

TASK = ib.make("bss3z")
RECORDED = RunFolder(Path(__file__).parents[2] / "policies" / "bss3z")


def run_of(warm_start: bool) -> TrainedRun:
    """Return two seeds of a learner that has just begun."""
    learner = ib.Aram(hidden=(4,), warm_start=warm_start)
    spec = Spec.of(
        TASK.observation_size,
        TASK.action_low,
        TASK.action_high,
        TASK.constraint,
        reference_action=TASK.reference_action,
    )
    states = jax.vmap(lambda key: learner.init(key, spec))(seed_keys(0, 2))
    return TrainedRun(RECORDED, TASK, learner, spec, (0, 1), states, 0)


@pytest.mark.slow
def test_a_policy_that_is_the_reference_differs_from_it_in_no_episode() -> None:
    found = compare_with_reference(run_of(True), "never-moving", episodes=6)
    np.testing.assert_array_equal(found.differences, np.zeros((2, 6)))
    assert found.interval == (0.0, 0.0) and found.verdict == "no significant difference"
    assert -1_700 < found.reference_mean < -1_100


@pytest.mark.slow
def test_a_policy_that_moves_bikes_about_is_worse() -> None:
    found = compare_with_reference(run_of(False), "never-moving", episodes=6)
    assert found.verdict == "worse" and found.interval[1] < 0


def test_the_draws_of_a_seed_are_the_same_alone_and_beside_others() -> None:
    task = probe_task(1.0)
    run = TrainedRun(RECORDED, task, RejectingPolicy(), spec_of(task), (0, 1), np.zeros(2), None)
    both = compare_with_reference(run, "uniform", episodes=2).differences
    alone = compare_with_reference(run.only(1), "uniform", episodes=2).differences
    np.testing.assert_array_equal(alone[0], both[1])
    assert not np.array_equal(both[0], both[1])


def test_the_interval_is_students_over_episodes_with_seeds_averaged() -> None:
    differences = np.array([[1.0, 3.0, 5.0], [3.0, 5.0, 7.0]])  # averages 2, 4, 6: mean 4, deviation 2
    found = PairedDifference("other", differences, 0.0)
    half = 4.3026527 * 2 / np.sqrt(3)
    np.testing.assert_allclose(found.interval, (4 - half, 4 + half), rtol=1e-6)
    assert (
        found.as_json()["difference_by_seed"] == [3.0, 5.0] and found.verdict == "no significant difference"
    )
    assert PairedDifference("other", differences + 2, 0.0).verdict == "better"


@pytest.mark.sweep
def test_what_cannot_be_compared_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="some hundred"):
        compare_with_reference(run_of(True), "never-moving", episodes=1)
    with pytest.raises(UnknownNameError, match="never-moving"):
        compare_with_reference(run_of(True), "standing-still", episodes=3)


def test_the_memory_of_a_comparison_does_not_grow_with_the_horizon() -> None:
    task = probe_task(1.0)
    endless = dataclasses.replace(task, horizon=10**12)  # a key per step would take terabytes
    run = TrainedRun(RECORDED, endless, RejectingPolicy(), spec_of(task), (0,), np.zeros(1), None)
    assert compare_with_reference(run, "uniform", episodes=2).differences.shape == (1, 2)
