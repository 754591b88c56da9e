"""Host environments: updates launched from a thread of their own are the updates that the stepping thread launches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training
from inbounds.training.record import RunFolder


def trained(folder, launcher):
    learner = Aram(hidden=(8, 8), batch_size=16, proposals=4)
    config = TrainingConfig(steps=80, seeds=2, environments=2, warm_up=20, capacity=100)
    training = Training(ib.make("reacher"), learner, config, RunFolder(folder))
    training.collector.launcher = launcher
    training.start()
    state, metrics, _ = training.collector.run(training.state, 40)
    return jax.tree.map(np.asarray, (state, metrics))


class CountingThread(ThreadPoolExecutor):
    """One thread that counts what it was given to do."""

    def __init__(self):
        super().__init__(max_workers=1)
        self.count = 0

    def submit(self, *arguments, **named):
        self.count += 1
        return super().submit(*arguments, **named)


class Broken:
    """What a learner that fails looks like from the collector."""

    def __call__(self, *arguments, **named):
        raise FloatingPointError("the update failed")


@pytest.mark.slow
def test_a_failure_in_the_thread_arrives_where_environments_are_stepped(tmp_path, monkeypatch):
    with CountingThread() as launcher, pytest.raises(FloatingPointError, match="the update failed"):
        monkeypatch.setattr("inbounds.training.host_collector.HostCollector._learn", Broken())
        trained(tmp_path / "run", launcher)


@pytest.mark.slow
def test_a_thread_that_launches_updates_changes_nothing_but_time(tmp_path):
    with CountingThread() as launcher:
        beside = trained(tmp_path / "beside", launcher)
    assert launcher.count == 39  # every turn but the first, which has nothing to learn from yet
    alone = trained(tmp_path / "alone", None)
    assert alone[1], "no update was taken"
    jax.tree.map(np.testing.assert_array_equal, beside, alone)
