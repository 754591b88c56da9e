"""A discrete problem with a known answer: three zones share four bikes, and two situations want opposite shares."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.constraints import Ball
from inbounds.tasks.allocation import RingAllocation
from tests.learners.probes import Probe, ProbeEnvironment, probe_task

BEST = np.array([[0.0, 1.0, 3.0], [3.0, 1.0, 0.0]])


def ring_optimum() -> Probe:
    """Return one step that pays 1 less the missed bikes, of which only 6 of 64 allocations are allowed."""
    wanted = jnp.asarray(BEST)
    environment = ProbeEnvironment(
        1,
        3,
        1,
        lambda key, time: jax.random.rademacher(key, (1,), jnp.float32),
        lambda observation, action: (
            1.0 - jnp.sum(jnp.abs(action - jnp.where(observation > 0, wanted[1], wanted[0]))) / 6
        ),
    )
    task = dataclasses.replace(
        probe_task("ring", environment, Ball(radius_squared=9.0)),
        constraint=RingAllocation(zones=3, bikes=4, capacity=3, largest_step=3),
        action_low=np.zeros(3, np.float32),
        action_high=np.full(3, 3.0, np.float32),
    )
    return Probe(task, np.array([[-1.0], [1.0]], np.float32), BEST, lambda gamma: np.ones(2))
