"""Multilayer perceptrons as plain arrays, and critics stacked side by side; a network is a tuple of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


class Layer(NamedTuple):
    """An affine map: `inputs @ weight + bias`."""

    weight: jax.Array
    bias: jax.Array


class InputLayer(NamedTuple):
    """A first layer that sees `(inputs - input_shift) / input_scale`; shift and scale are frozen, not learnt."""

    weight: jax.Array
    bias: jax.Array
    input_shift: jax.Array
    input_scale: jax.Array


Network = tuple[Layer | InputLayer, ...]


class InputScale(NamedTuple):
    """What the entries of an observation are relative to inside the networks; constraints read them raw."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]


def init_network(key: jax.Array, sizes: Sequence[int], inputs: InputScale | None = None) -> Network:
    """Draw weights from Xavier's uniform distribution and set biases to zero, as the published code does.

    With `inputs`, the first entries of the input are shifted and scaled; those that follow (a preference, an
    action) are left as they are.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    initialise = jax.nn.initializers.glorot_uniform()
    layers: list[Layer | InputLayer] = [
        Layer(initialise(layer_key, (before, after), jnp.float32), jnp.zeros(after, jnp.float32))
        for layer_key, before, after in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    if inputs is not None:
        others = sizes[0] - len(inputs.shift)
        shift = jnp.concatenate([jnp.asarray(inputs.shift, jnp.float32), jnp.zeros(others, jnp.float32)])
        scale = jnp.concatenate([jnp.asarray(inputs.scale, jnp.float32), jnp.ones(others, jnp.float32)])
        layers[0] = InputLayer(layers[0].weight, layers[0].bias, shift, scale)
    return tuple(layers)


def apply_network(network: Network, inputs: jax.Array) -> jax.Array:
    """Return the outputs for a batch of inputs; hidden layers are rectified, the last one is linear."""
    return after_first_layer(network, first_layer(network, inputs))


def first_layer(network: Network, inputs: jax.Array) -> jax.Array:
    """Return the first layer's output before it is rectified."""
    first = network[0]
    if isinstance(first, InputLayer):
        # Without a gradient Adam does not move them: what was measured beforehand stays as it is.
        shift, scale = jax.lax.stop_gradient((first.input_shift, first.input_scale))
        inputs = (inputs - shift) / scale
    return inputs @ first.weight + first.bias


def after_first_layer(network: Network, hidden: jax.Array) -> jax.Array:
    """Return the network's outputs, given that of its first layer before it is rectified."""
    for layer in network[1:]:
        hidden = jax.nn.relu(hidden) @ layer.weight + layer.bias
    return hidden


def init_critics(
    keys: Sequence[jax.Array] | jax.Array,
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int = 1,
    scale: InputScale | None = None,
) -> Network:
    """Return one new critic of (observation, action) per key, stacked on a leading axis."""
    critics = [init_network(key, (inputs, *hidden, outputs), scale) for key in keys]
    stacked: Network = jax.tree.map(lambda *layers: jnp.stack(layers), *critics)
    return stacked


def q_values(critic: Network, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return (batch, critics, outputs) for observations and actions in [-1, 1]."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.moveaxis(jax.vmap(apply_network, (0, None))(critic, inputs), 0, 1)


def export_network(name: str, network: Network) -> dict[str, Any]:
    """Return a network under the names that deployment reads: its layers, and apart what its inputs are relative to."""
    first = network[0]
    if not isinstance(first, InputLayer):
        return {name: network}
    return {
        name: (Layer(first.weight, first.bias), *network[1:]),
        f"{name}/input_shift": first.input_shift,
        f"{name}/input_scale": first.input_scale,
    }
