"""Initial networks: Xavier's initialisation, critics stacked side by side, narrow Gaussians and flows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.references import Reference
from inbounds.policies.box import ActionBox
from inbounds.policies.gaussian import before_squashing
from inbounds.policies.layers import Coupling, Flow
from inbounds.policies.networks import InputLayer, InputScale, Layer, Network

TARGET_LOG_STD = -1.0 - 0.5 * math.log(2.0 * math.pi * math.e)
"""The log-std at which every entry of an unsquashed Gaussian has entropy -1, the target of a tuned alpha."""


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


def narrow_around(
    network: Network, box: ActionBox, action: Reference | NDArray[np.float32] | None
) -> Network:
    """Return the network of a Gaussian with a constant output: the mean gives this action, the std has entropy -1.

    Around an action that the observation holds the mean is zero: it is a residual (`gaussian.around_reference`).
    """
    is_fixed = action is not None and not isinstance(action, Reference)
    mean = before_squashing(box, jnp.asarray(action)) if is_fixed else jnp.zeros(())
    last = network[-1]
    size = last.bias.shape[-1] // 2
    bias = jnp.concatenate(
        [jnp.broadcast_to(mean.astype(jnp.float32), (size,)), jnp.full(size, TARGET_LOG_STD)]
    )
    return (*network[:-1], last._replace(weight=jnp.zeros_like(last.weight), bias=bias))


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


def init_flow(key: jax.Array, size: int, condition: int, layers: int, hidden: Sequence[int]) -> Flow:
    """Return a new flow that is nearly the identity: its last weights are a hundredth of the usual ones."""
    sizes = (size + condition, *hidden, size)

    def network(one: jax.Array) -> Network:
        *inner, last = init_network(one, sizes)
        return (*inner, last._replace(weight=0.01 * last.weight))

    keys = jax.random.split(key, 2 * layers)
    return tuple(Coupling(network(keys[2 * i]), network(keys[2 * i + 1])) for i in range(layers))
