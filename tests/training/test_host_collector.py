"""Collecting on the host: the ring keeps the order in which environments were stepped."""

import jax
import numpy as np

from inbounds.learners.aram import Aram
from inbounds.learners.learner import Spec
from inbounds.tasks.registry import make
from inbounds.training.config import seed_keys
from inbounds.training.host_collector import HostCollector
from inbounds.training.program import Programs


def test_the_next_row_of_an_environment_begins_where_its_last_one_led_until_the_episode_ends():
    task, environments, turns = make("reacher"), 3, 60
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    programs = Programs(Aram(hidden=(8, 8), batch_size=8, proposals=4), spec, environments, 1, 1_000)
    keys = seed_keys(0, 2)
    collector = HostCollector(task, programs, keys, [0, 1], warm_up=10_000, threads=1)
    collector.start()
    state, _, _ = collector.run(programs.init(keys), turns)
    learnt = turns - 1  # the last turn is learnt from during the next one
    assert np.all(np.asarray(state.replay.size)[:, 0] == learnt * environments)
    rows = jax.tree.map(np.asarray, programs.layout.unpack(state.replay.rows[:, 0, : learnt * environments]))
    leads_on = np.all(rows.observation[:, environments:] == rows.next_observation[:, :-environments], axis=-1)
    ends = np.arange(leads_on.shape[1]) // environments == 49  # Reacher's time limit
    np.testing.assert_array_equal(leads_on, np.broadcast_to(~ends, leads_on.shape))
