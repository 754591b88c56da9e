"""Multilayer perceptrons as plain arrays of any array library; a network is a tuple of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import is_jax, namespace_of, without_gradient
from inbounds.policies.box import ArrayT

if TYPE_CHECKING:
    import jax


class Layer(NamedTuple):
    """An affine map: `inputs @ weight + bias`."""

    weight: Any
    bias: Any


class InputLayer(NamedTuple):
    """A first layer that sees `(inputs - input_shift) / input_scale`; shift and scale are frozen, not learnt."""

    weight: Any
    bias: Any
    input_shift: Any
    input_scale: Any


Network = tuple[Layer | InputLayer, ...]


class InputScale(NamedTuple):
    """Shift and scale of the entries of an observation inside the networks; constraints read them raw."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]


def apply_network(network: Network, inputs: ArrayT) -> ArrayT:
    """Return the outputs for inputs (..., size); hidden layers are rectified, the last one is linear."""
    return after_first_layer(network, first_layer(network, inputs))


def first_layer(network: Network, inputs: ArrayT) -> ArrayT:
    """Return the first layer's output before it is rectified."""
    first = network[0]
    if isinstance(first, InputLayer):
        # Without a gradient Adam does not move them.
        shift, scale = without_gradient(first.input_shift), without_gradient(first.input_scale)
        inputs = (inputs - shift) / scale
    return affine(first, inputs)


def after_first_layer(network: Network, hidden: ArrayT) -> ArrayT:
    """Return the network's outputs, given that of its first layer before it is rectified."""
    for layer in network[1:]:
        hidden = affine(layer, rectified(hidden))
    return hidden


def affine(layer: Layer | InputLayer, inputs: ArrayT) -> ArrayT:
    """Return `inputs @ weight + bias`."""
    xp = namespace_of(inputs)
    weight, bias = layer.weight, layer.bias
    if isinstance(weight, np.ndarray) and xp is not np:  # the constants of a graph
        weight, bias = xp.asarray(weight), xp.asarray(bias)
    output: ArrayT = xp.matmul(inputs, weight) + bias
    return output


def rectified(values: Any) -> Any:
    """Return max(x, 0), with the derivative 0 at 0."""
    if is_jax(values):
        import jax

        return jax.nn.relu(values)
    return namespace_of(values).maximum(values, 0.0)


def with_preference(observation: ArrayT, preference: Any) -> ArrayT:
    """Append a preference (..., 2) to observations (..., size), whose leading axes it is repeated along."""
    xp = namespace_of(observation)
    shape = (*observation.shape[:-1], preference.shape[-1])  # type: ignore[attr-defined]  # ArrayT is any array
    spread = xp.broadcast_to(preference, shape)
    joined: ArrayT = xp.concat([observation, spread], axis=-1)
    return joined


def q_values(critic: Network, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return (batch, critics, outputs) of stacked critics for observations and actions in [-1, 1]; JAX only."""
    import jax
    import jax.numpy as jnp

    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.moveaxis(jax.vmap(apply_network, (0, None))(critic, inputs), 0, 1)
