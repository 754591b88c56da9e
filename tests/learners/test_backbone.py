"""The normalised backbone: moments, unit columns, folding, bins and the scale of returns."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners import backbone
from inbounds.policies.networks import apply_network

ROWS = jnp.asarray(np.random.default_rng(0).normal(3.0, 2.0, size=(64, 5)), jnp.float32)
EXTRA = jnp.asarray(np.random.default_rng(1).uniform(-1.7, 1.7, size=(64, 1)), jnp.float32)


@functools.cache
def new_actor(seed=0):
    return jax.jit(lambda key: backbone.init_actor(key, 5, 1, (16, 16), 4))(jax.random.key(seed))


@functools.cache
def new_critic(seed=0):
    return jax.jit(lambda key: backbone.init_critic(key, 5, 1, (8, 8), outputs=7))(jax.random.key(seed))


def test_in_batch_mode_every_column_has_the_shift_as_its_mean_and_the_scale_as_its_std():
    norm = backbone.Norm(jnp.arange(1.0, 6.0), jnp.arange(5.0))
    moments = backbone.Moments(jnp.zeros(5), jnp.ones(5))
    output, _ = backbone.normalise(ROWS, norm, moments, True, 0.0)
    np.testing.assert_allclose(output.mean(axis=0), norm.shift, atol=1e-5)
    np.testing.assert_allclose(output.std(axis=0), norm.scale, rtol=1e-5)


def test_running_moments_approach_those_of_the_batches_and_then_both_modes_agree():
    critic = new_critic()
    moments = backbone.init_moments(critic)
    move = jax.jit(lambda now: backbone.apply_critic(critic, now, ROWS, EXTRA, True)[1])
    for _ in range(2_000):
        moments = move(moments)
    batch, _ = backbone.apply_critic(critic, moments, ROWS, EXTRA, True)
    running, unmoved = backbone.apply_critic(critic, moments, ROWS, EXTRA, False)
    np.testing.assert_allclose(batch, running, atol=1e-3)
    jax.tree.map(np.testing.assert_array_equal, unmoved, moments)


def test_offset_observations_do_not_cancel_in_the_variance():
    moments = backbone.Moments(jnp.zeros(5), jnp.ones(5))
    norm = backbone.Norm(jnp.ones(5), jnp.zeros(5))
    output, _ = backbone.normalise(ROWS + 3_000.0, norm, moments, True, 0.0)
    assert np.all(np.abs(output.std(axis=0) - 1.0) < 1e-2)


def test_permuted_rows_give_permuted_outputs():
    critic = new_critic()
    moments = backbone.init_moments(critic)
    order = np.random.default_rng(2).permutation(64)
    plain, _ = backbone.apply_critic(critic, moments, ROWS, EXTRA, True)
    permuted, _ = backbone.apply_critic(critic, moments, ROWS[order], EXTRA[order], True)
    np.testing.assert_allclose(permuted, plain[order], atol=2e-5)


@pytest.mark.parametrize("make", [new_actor, new_critic], ids=["actor", "critic"])
def test_new_and_projected_networks_have_unit_columns_and_other_parameters_are_free(make):
    network = make()
    moved = backbone.projected(jax.tree.map(lambda leaf: 3.0 * leaf + 0.1, network))
    for one in (network, moved):
        for path, leaf in jax.tree_util.tree_leaves_with_path(one):
            if leaf.ndim == 2:
                np.testing.assert_allclose(np.linalg.norm(leaf, axis=0), 1.0, rtol=1e-5, err_msg=str(path))
    np.testing.assert_allclose(moved.head.bias, 0.1)
    np.testing.assert_allclose(moved.inputs.scale, 3.1, rtol=1e-6)


@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_a_folded_actor_is_a_plain_network_with_the_same_outputs(spread):
    rng = np.random.default_rng(3)
    actor = jax.tree.map(lambda leaf: leaf + 0.3 * jnp.asarray(rng.normal(size=leaf.shape)), new_actor())
    moments = backbone.init_moments(actor)
    for _ in range(50):
        _, moments = backbone.apply_actor(actor, moments, ROWS, EXTRA, True)
    rows = jnp.asarray(rng.normal(3.0, 2.0 * spread, size=(1_000, 5)), jnp.float32)
    extra = jnp.asarray(rng.uniform(-1.7, 1.7, size=(1_000, 1)), jnp.float32)
    expected, _ = backbone.apply_actor(actor, moments, rows, extra, False)
    found = apply_network(backbone.folded(actor, moments), jnp.concatenate([rows, extra], axis=-1))
    np.testing.assert_allclose(found, expected, atol=1e-5 * spread)


def test_an_entry_that_never_varies_is_not_amplified_without_limit():
    actor = new_actor()
    moments = backbone.init_moments(actor)
    constant = ROWS.at[:, 2].set(7.0)
    move = jax.jit(lambda now: backbone.apply_actor(actor, now, constant, EXTRA, True)[1])
    for _ in range(1_000):
        moments = move(moments)
    network = backbone.folded(actor, moments)
    row = jnp.concatenate([constant[:1], EXTRA[:1]], axis=-1)
    moved = apply_network(network, row.at[0, 2].add(0.01)) - apply_network(network, row)
    assert np.max(np.abs(moved)) < 1.0


# Bins ------------------------------------------------------------------------------------------------------------

BINS = jnp.linspace(-5.0, 5.0, backbone.BINS)


def masses(seed=0, rows=7):
    drawn = np.random.default_rng(seed).dirichlet(np.ones(backbone.BINS), size=rows)
    return jnp.asarray(drawn, jnp.float32)


@pytest.mark.parametrize("reward", [-3.0, 0.0, 0.37, 6.0])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1.0])
def test_projected_masses_sum_to_one_and_keep_the_mean_of_the_clipped_atoms(reward, gamma):
    given, atoms = masses(), reward + gamma * BINS
    found = backbone.to_bins(given, jnp.broadcast_to(atoms, given.shape), BINS)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-5)
    assert np.all(found >= 0)
    np.testing.assert_allclose(found @ BINS, given @ jnp.clip(atoms, -5.0, 5.0), atol=1e-4)


def test_a_shift_by_whole_bins_shifts_the_masses():
    given = jnp.zeros((1, backbone.BINS)).at[0, 50].set(0.25).at[0, 60].set(0.75)
    found = backbone.to_bins(given, (BINS + 3 * (BINS[1] - BINS[0]))[None], BINS)
    np.testing.assert_allclose(found[0, [53, 63]], [0.25, 0.75], atol=1e-4)


# Returns ---------------------------------------------------------------------------------------------------------


def test_moments_of_returns_are_those_of_all_discounted_sums_met():
    rng = np.random.default_rng(4)
    rewards, ends = rng.normal(2.0, 3.0, size=(200, 3)), rng.random((200, 3)) < 0.05
    returns, sums, met = backbone.init_returns(3), np.zeros(3), []
    for reward, is_last in zip(rewards, ends, strict=True):
        returns = backbone.observe_rewards(
            returns, jnp.asarray(reward, jnp.float32), jnp.asarray(is_last), 0.9
        )
        sums = reward + 0.9 * sums
        met.append(sums.copy())
        sums[is_last] = 0.0
    assert float(returns.mean) == pytest.approx(np.mean(met), rel=1e-4)
    assert float(returns.variance) == pytest.approx(np.var(met), rel=1e-4)
    assert float(returns.largest) == pytest.approx(np.max(np.abs(met)), rel=1e-5)
    np.testing.assert_allclose(returns.sums, sums, rtol=1e-4)


def test_no_return_met_is_scaled_beyond_four_and_a_rare_fall_is_not_the_unit():
    returns = backbone.init_returns(1)
    for reward in [*[0.08] * 500, -100.0]:
        returns = backbone.observe_rewards(returns, jnp.asarray([reward]), jnp.asarray([reward < 0]), 0.99)
    scale = float(backbone.return_scale(returns))
    assert float(returns.largest) / scale <= 4.0 + 1e-6
    assert 100.0 / scale < 5.0


def test_rewards_of_zero_leave_a_finite_scale():
    returns = backbone.observe_rewards(backbone.init_returns(2), jnp.zeros(2), jnp.zeros(2, bool), 0.99)
    assert 0 < float(backbone.return_scale(returns)) < np.inf


def test_new_networks_need_no_decomposition_that_can_block_a_small_cpu():
    """Two batched LAPACK calls in one program wait for each other's threads where a CPU has two cores."""
    critics = jax.vmap(lambda key: backbone.init_critic(key, 3, 1, (8, 8), backbone.BINS))
    program = jax.jit(critics).lower(jax.random.split(jax.random.key(0), 2)).as_text()
    assert "custom_call" not in program


def test_the_scale_of_returns_stays_right_after_many_more_than_float32_can_count():
    returns = backbone.init_returns(1)._replace(
        number=jnp.asarray(backbone.MOST_RETURNS), variance=jnp.ones(()), mean=jnp.zeros(())
    )
    rewards = jax.random.normal(jax.random.key(0), (1_000_000, 1))
    step = lambda now, reward: (backbone.observe_rewards(now, reward, jnp.zeros(1, bool), 0.0), None)  # noqa: E731
    moved, _ = jax.jit(lambda now: jax.lax.scan(step, now, rewards))(returns)
    assert float(moved.number) == backbone.MOST_RETURNS
    assert float(jnp.sqrt(moved.variance)) == pytest.approx(1.0, abs=0.01)
