"""Seeds trained at once are the seeds trained alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.aram import Aram
from inbounds.learners.learner import Spec
from inbounds.training.config import seed_keys
from inbounds.training.program import Exchange, Programs, for_every_seed
from tests.learners import probes
from tests.slices import quick_slice

TASK = probes.moving_optimum().task
SPEC = Spec.of(TASK.observation_size, TASK.action_low, TASK.action_high, TASK.constraint)
LEARNER = Aram(hidden=(16, 16), batch_size=32, proposals=4)


def programs():
    return Programs(LEARNER, SPEC, environments=2, updates=2, capacity=200)


def exchange(seeds):
    seen = jnp.broadcast_to(jnp.array([[0.7, 1.2], [1.1, 0.6]]), (seeds, 2, 2))
    ones = jnp.ones((seeds, 2))
    return Exchange(seen, ones > 0, ones, ones, seen)


@pytest.fixture(scope="module")
def together():
    made, keys = programs(), seed_keys(3, 3)
    return made, keys, made.init(keys)


def alone(seed):
    made, keys = programs(), seed_keys(seed, 1)
    return made, keys, made.init(keys)


@pytest.mark.parametrize("index", quick_slice([0, 2], [2]))
def test_parameters_and_first_proposals_are_those_of_a_seed_alone(together, index):
    made, keys, state = together
    other, own_keys, own = alone(3 + index)
    for many, one in zip(jax.tree.leaves(state.learner), jax.tree.leaves(own.learner), strict=True):
        np.testing.assert_array_equal(many[index], one[0])
    _, draws = made.act(
        state.learner, made.new_contexts(keys), exchange(3), keys, np.int32(0), is_random=False
    )
    _, draw = other.act(
        own.learner, other.new_contexts(own_keys), exchange(1), own_keys, np.int32(0), is_random=False
    )
    np.testing.assert_array_equal(draws.proposals[index], draw.proposals[0])


@pytest.mark.slow
def test_fifty_updates_on_the_same_batches_agree_with_a_seed_alone(together):
    made, keys, _ = together
    rng = np.random.default_rng(0)
    layout = made.layout
    rows = jnp.asarray(rng.normal(size=(50, 32, layout.width)), jnp.float32)
    noise = jax.vmap(lambda key: LEARNER.noise(key, SPEC))(jax.random.split(jax.random.key(1), 50))

    def trained(state):
        def step(carry, inputs):
            batch, drawn = inputs
            return LEARNER.update(carry, SPEC, layout.unpack(batch), drawn)[0], None

        return jax.lax.scan(step, state, (rows, noise))[0]

    learners = made.init(keys).learner
    many = jax.jit(jax.vmap(trained))(learners)
    one = jax.jit(trained)(jax.tree.map(lambda leaf: leaf[1], learners))
    for batched, single in zip(jax.tree.leaves(many.params), jax.tree.leaves(one.params), strict=True):
        scale = np.max(np.abs(single)) + 1e-12
        np.testing.assert_allclose(np.asarray(batched[1]) / scale, np.asarray(single) / scale, atol=1e-5)


def test_different_seeds_start_differently(together):
    weights = np.asarray(together[2].learner.params.actor[0].weight)
    assert not np.array_equal(weights[0], weights[1])


def test_a_single_seed_is_computed_like_one_of_several():
    def scaled(rows, factor):
        return {"rows": factor * rows, "sum": jnp.sum(rows)}

    rows, factors = jnp.arange(12.0).reshape(2, 2, 3), jnp.array([2.0, 3.0])
    both = for_every_seed(scaled, rows, factors)
    for seed in range(2):
        own = for_every_seed(scaled, rows[seed : seed + 1], factors[seed : seed + 1])
        expected = jax.tree.map(lambda leaf, seed=seed: leaf[seed : seed + 1], both)
        jax.tree.map(np.testing.assert_array_equal, own, expected)
