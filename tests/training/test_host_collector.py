"""Host environments: updates launched from a thread of their own are the updates that the stepping thread launches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

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


def test_a_thread_that_launches_updates_changes_nothing_but_time(tmp_path):
    with ThreadPoolExecutor(max_workers=1) as launcher:
        beside = trained(tmp_path / "beside", launcher)
    alone = trained(tmp_path / "alone", None)
    assert alone[1], "no update was taken"
    jax.tree.map(np.testing.assert_array_equal, beside, alone)
