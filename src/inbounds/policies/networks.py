"""Multilayer perceptrons as plain arrays: what is trained, saved and deployed is a list of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Layer(NamedTuple):
    """An affine map: `inputs @ weight + bias`."""

    weight: jax.Array
    bias: jax.Array


Network = tuple[Layer, ...]


def init_network(key: jax.Array, sizes: Sequence[int]) -> Network:
    """Draw weights from Xavier's uniform law and set biases to zero, as the published learner does."""
    keys = jax.random.split(key, len(sizes) - 1)
    initialise = jax.nn.initializers.glorot_uniform()
    return tuple(
        Layer(initialise(layer_key, (inputs, outputs), jnp.float32), jnp.zeros(outputs, jnp.float32))
        for layer_key, inputs, outputs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    )


def apply_network(network: Network, inputs: jax.Array) -> jax.Array:
    """Return the outputs for a batch of inputs; hidden layers are rectified, the last one is linear."""
    hidden = inputs
    for layer in network[:-1]:
        hidden = jax.nn.relu(hidden @ layer.weight + layer.bias)
    return hidden @ network[-1].weight + network[-1].bias
