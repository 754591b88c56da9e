"""ApprOpt: allocations without any solver."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.learners.layers import ApprOpt
from inbounds.learners.learner import Spec
from tests.learners.probes import allocation_optimum, boundary_optimum, learn

SMALL = {"hidden": (32, 32), "batch_size": 64, "learning_rate": 3e-3, "tau": 0.02}


@pytest.mark.learning
@pytest.mark.slow
def test_an_allocation_is_learnt_without_a_projection():
    probe = allocation_optimum()
    learnt = learn(probe, ApprOpt(**SMALL), steps=3_200)
    assert int(learnt.counters.projections) == 0
    assert not any(name.endswith("_calls") for name in learnt.metrics)
    # The layer meets the total itself; the best action uses the tolerance of the band, worth 0.06 here.
    assert learnt.regret(probe) < 0.1
    np.testing.assert_allclose(learnt.raw_actions(probe).sum(axis=-1), 0.5, atol=1e-5)


def test_sets_that_are_no_allocation_are_refused():
    task = boundary_optimum().task
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    with pytest.raises(ConfigurationError, match="OptLayer"):
        ApprOpt().init(jax.random.key(0), spec)
