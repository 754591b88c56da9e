"""Critics in parallel: several networks stacked on a leading axis, valued at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds.policies.networks import Network, apply_network, init_network


def init_critics(
    key: jax.Array, count: int, inputs: int, hidden: tuple[int, ...], outputs: int = 1
) -> Network:
    """Return `count` fresh critics of (observation, action), stacked."""
    critics = [init_network(one, (inputs, *hidden, outputs)) for one in jax.random.split(key, count)]
    stacked: Network = jax.tree.map(lambda *layers: jnp.stack(layers), *critics)
    return stacked


def critic_values(critic: Network, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return (batch, critics, outputs) for observations and actions in the range [-1, 1]."""
    rows = jnp.concatenate([observation, action], axis=-1)
    return jnp.moveaxis(jax.vmap(apply_network, (0, None))(critic, rows), 0, 1)
