"""Critics that say how likely each of many values is, instead of one value: regression as classification."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

LARGEST = 1e4
"""The outermost bins, beyond which values are cut off: far above what scaled rewards sum to, not so with raw ones."""


def bin_values(bins: int) -> NDArray[np.float32]:
    """Return the values of the bins, symexp(x) = sign(x)(exp|x| - 1) of evenly spaced x: fine near 0, wide far out."""
    spaced = np.linspace(-1.0, 1.0, bins) * np.log1p(LARGEST)
    return np.asarray(np.sign(spaced) * np.expm1(np.abs(spaced)), np.float32)


def expected_values(outputs: jax.Array, bins: int) -> jax.Array:
    """Return sum_i p_i v_i with p = softmax(outputs), for outputs (..., objectives * bins).

    Bins of opposite sign are summed in pairs, so that equal probabilities cancel instead of adding up roundings.
    """
    probabilities = jax.nn.softmax(split(outputs, bins), axis=-1)
    positive = bin_values(bins)[(bins + 1) // 2 :]
    upper, lower = probabilities[..., (bins + 1) // 2 :], probabilities[..., : bins // 2][..., ::-1]
    return jnp.sum((upper - lower) * positive, axis=-1)


def split(outputs: jax.Array, bins: int) -> jax.Array:
    """Return outputs as (..., objectives, bins)."""
    return outputs.reshape(*outputs.shape[:-1], -1, bins)


def spread_over_bins(value: jax.Array, bins: int) -> jax.Array:
    """Return the probabilities of the two bins next to a value whose mean is that value."""
    places = jnp.asarray(bin_values(bins))
    value = jnp.clip(value, places[0], places[-1])
    upper = jnp.clip(jnp.searchsorted(places, value), 1, bins - 1)
    share = (value - places[upper - 1]) / (places[upper] - places[upper - 1])
    return (1.0 - share) * jax.nn.one_hot(upper - 1, bins) + share * jax.nn.one_hot(upper, bins)


def categorical_critic_loss(outputs: jax.Array, target: jax.Array, preference: jax.Array) -> jax.Array:
    """Return -sum_k lambda_k sum_i q_i(y_k) log p_k,i for one transition.

    Args:
        outputs: (objectives, bins), the logarithms of probabilities up to a constant.
        target: (objectives,), y.
        preference: (objectives,), lambda.
    """
    wanted = jax.vmap(spread_over_bins, (0, None))(target, outputs.shape[-1])
    return -jnp.sum(preference * jnp.sum(wanted * jax.nn.log_softmax(outputs), axis=-1))
