"""ApprOpt's clamp: feasible, the identity on allocations, and the Jacobian that it promises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbounds.policies.layers import clamp_rounds, clamped_allocation

LOW, HIGH = jnp.zeros(5), jnp.full(5, 40.0)
entries = st.lists(st.floats(0.0, 40.0, width=32), min_size=5, max_size=5)


def by_bisection(target, total):
    """Return the exact projection: the same shift for all entries, clipped, found by halving an interval."""
    low, high = -200.0, 200.0
    for _ in range(100):
        shift = 0.5 * (low + high)
        low, high = (shift, high) if np.clip(target + shift, 0.0, 40.0).sum() < total else (low, shift)
    return np.clip(target + shift, 0.0, 40.0)


allocate = jax.jit(lambda target, total: clamped_allocation(target, LOW, HIGH, total))


@given(entries, st.floats(10.0, 190.0, width=32))
def test_from_within_the_limits_the_result_is_the_nearest_allocation(target, total):
    found = np.asarray(allocate(jnp.asarray(target, jnp.float32), jnp.asarray(total, jnp.float32)))
    np.testing.assert_allclose(found, by_bisection(np.asarray(target), total), atol=1e-3)
    assert found.sum() == pytest.approx(total, abs=1e-2)


def test_an_allocation_stays_as_it_is():
    target = jnp.asarray([40.0, 30.0, 30.0, 20.0, 30.0])
    np.testing.assert_allclose(clamped_allocation(target, LOW, HIGH, jnp.asarray(150.0)), target, atol=1e-5)


def test_from_outside_the_limits_the_rounds_may_leave_the_total():
    """The small entries are clamped first; when the large ones are too, nobody is left to make up for it."""
    found = np.asarray(allocate(jnp.asarray([0.0, 0.0, 0.0, 51.0, 100.0]), jnp.asarray(150.0)))
    assert found.sum() == pytest.approx(80.0)


def test_gradients_pass_between_free_entries_only_unless_the_layer_leaks():
    target = jnp.asarray([40.0, 30.0, 30.0, 20.0, 10.0])
    clamps = clamp_rounds(target, LOW, HIGH, jnp.asarray(150.0))
    is_free = np.asarray(~(clamps.is_low | clamps.is_high))
    assert is_free.tolist() == [False, True, True, True, True]
    expected = np.where(np.outer(is_free, is_free), np.eye(5) - 1 / 4, 0.0)
    jacobian = jax.jacrev(lambda y: clamped_allocation(y, LOW, HIGH, jnp.asarray(150.0)))(target)
    np.testing.assert_allclose(jacobian, expected, atol=1e-6)
    leaky = jax.jacrev(lambda y: clamped_allocation(y, LOW, HIGH, jnp.asarray(150.0), leaky=True))(target)
    np.testing.assert_allclose(leaky, np.eye(5) - 1 / 5, atol=1e-6)
