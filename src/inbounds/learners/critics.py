"""Critics in parallel: several networks stacked on a leading axis, valued at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from inbounds.policies.networks import InputScale, Network, apply_network, init_network


def init_critics(
    key: jax.Array,
    count: int,
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int = 1,
    scale: InputScale | None = None,
) -> Network:
    """Return `count` fresh critics of (observation, action), stacked."""
    sizes = (inputs, *hidden, outputs)
    critics = [init_network(one, sizes, scale) for one in jax.random.split(key, count)]
    stacked: Network = jax.tree.map(lambda *layers: jnp.stack(layers), *critics)
    return stacked


def critic_values(critic: Network, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return (batch, critics, outputs) for observations and actions in the range [-1, 1]."""
    return jnp.moveaxis(jax.vmap(apply_network, (0, None))(critic, critic_rows(observation, action)), 0, 1)


def critic_rows(observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return what a critic sees: the observation, then the action."""
    return jnp.concatenate([observation, action], axis=-1)
