"""A strong base for off-policy learners: batch normalisation, distributional critics and return normalisation.

The parts are those of FlashSAC and XQC (2025-26); none of them helps alone.

    critic   BN -> linear -> residual blocks x + relu(BN(W2 relu(BN(W1 x)))) -> RMSNorm -> logits
    actor    BN -> hidden layers relu(BN(W x)) -> linear; `folded` turns it into a plain multilayer perceptron

A critic returns the logits of a categorical distribution on evenly spaced bins, learnt by cross-entropy (C51).
Rewards are divided by the scale of the discounted returns that were met (`return_scale`).

Batch normalisation has two modes. In `batch` mode the moments are those of the rows at hand, and running averages of
them are kept. In `running` mode these averages are used; this is the mode of acting, of evaluation, and of the critic
inside a policy loss. A critic and its target see (s, a) and (s', a') in one pass, so that both have the same moments.
After every optimiser step `projected` brings the columns of all weight matrices to norm one: their scale has no effect
before a normalisation, and a growing one would slow learning down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from inbounds.policies.networks import Layer, Network

BINS = 101
RETURN_LIMIT = 5.0
"""The bins of normalised returns lie on [-5, 5]."""
LARGEST_RETURN = 4.0
"""The largest discounted return met is scaled to 4 at most. Distributions spread while they are projected to bins, and
those at 5 would be cut off."""
MOST_RETURNS = 1e6
"""From then on older returns are forgotten: float32 cannot count on for ever."""
EXPANSION = 4
"""Width of the inner layer of a residual block, in widths of the block."""
MOMENTUM = 0.01
EPSILON = 1e-5
INPUT_EPSILON = 1e-3
"""Larger for inputs: an entry of the observation that hardly varies is not amplified without limit."""


class Moments(NamedTuple):
    """Running mean and variance of the inputs of one normalisation."""

    mean: jax.Array
    variance: jax.Array


class Norm(NamedTuple):
    """Learnt scale and shift after a normalisation."""

    scale: jax.Array
    shift: jax.Array


class NormalisedLayer(NamedTuple):
    """A linear map without bias and the normalisation of its outputs."""

    weight: jax.Array
    norm: Norm


class Actor(NamedTuple):
    """Hidden layers, each followed by ReLU, between normalised inputs and a linear output."""

    inputs: Norm
    hidden: tuple[NormalisedLayer, ...]
    head: Layer


class Block(NamedTuple):
    """A residual block."""

    inner: NormalisedLayer
    outer: NormalisedLayer


class Critic(NamedTuple):
    """Residual blocks between an embedding of normalised inputs and the logits."""

    inputs: Norm
    embedding: jax.Array
    blocks: tuple[Block, ...]
    output_scale: jax.Array
    head: Layer


NetworkT = TypeVar("NetworkT", Actor, Critic)
ActorMoments = tuple[Moments, ...]
"""Of the inputs, then of every hidden layer."""
CriticMoments = tuple[Moments, ...]
"""Of the inputs, then of inner and outer layer of every block."""


def init_actor(key: jax.Array, inputs: int, extra: int, hidden: Sequence[int], outputs: int) -> Actor:
    """Return a new actor for `inputs` normalised entries and `extra` ones that are read as they are."""
    keys = jax.random.split(key, len(hidden) + 1)
    sizes = (inputs + extra, *hidden)
    layers = tuple(_layer(one, *pair) for one, *pair in zip(keys, sizes[:-1], sizes[1:], strict=False))
    head = Layer(_matrix(keys[-1], sizes[-1], outputs), jnp.zeros(outputs))
    return Actor(_norm(inputs), layers, head)


def init_critic(key: jax.Array, inputs: int, extra: int, hidden: Sequence[int], outputs: int) -> Critic:
    """Return a new critic with one residual block per entry of `hidden`, whose entries are the same width."""
    width, inner = hidden[0], EXPANSION * hidden[0]
    keys = jax.random.split(key, 2 * len(hidden) + 2)
    pairs = zip(keys[2::2], keys[3::2], strict=True)
    blocks = tuple(
        Block(_layer(first, width, inner), _layer(second, inner, width)) for first, second in pairs
    )
    embedding = _matrix(keys[0], inputs + extra, width)
    head = Layer(_matrix(keys[1], width, outputs), jnp.zeros(outputs))
    return Critic(_norm(inputs), embedding, blocks, jnp.ones(width), head)


def init_moments(network: Actor | Critic) -> tuple[Moments, ...]:
    """Return mean zero and variance one for every normalisation of a network, in order."""
    layers = network.hidden if isinstance(network, Actor) else sum(network.blocks, ())
    norms = (network.inputs, *(layer.norm for layer in layers))
    return tuple(Moments(jnp.zeros_like(norm.shift), jnp.ones_like(norm.scale)) for norm in norms)


def _layer(key: jax.Array, before: int, after: int) -> NormalisedLayer:
    return NormalisedLayer(_matrix(key, before, after), _norm(after))


def _norm(size: int) -> Norm:
    return Norm(jnp.ones(size), jnp.zeros(size))


def _matrix(key: jax.Array, before: int, after: int) -> jax.Array:
    # Not orthogonal: several batched QR decompositions in one program can block one another for ever on the threads of
    # a CPU with few cores. Random columns of norm one are close to orthogonal in these widths.
    return unit_columns(jax.random.normal(key, (before, after)))


# Forward passes ------------------------------------------------------------------------------------------------------


def apply_actor(
    actor: Actor, moments: ActorMoments, rows: jax.Array, extra: jax.Array, is_batch: bool
) -> tuple[jax.Array, ActorMoments]:
    """Return outputs (batch, size) and the moments after this batch; in running mode they do not move."""
    hidden, moved = normalise(rows, actor.inputs, moments[0], is_batch, INPUT_EPSILON)
    hidden, after = jnp.concatenate([hidden, extra], axis=-1), [moved]
    for layer, own in zip(actor.hidden, moments[1:], strict=True):
        hidden, moved = _rectified(layer, own, hidden, is_batch)
        after.append(moved)
    return hidden @ actor.head.weight + actor.head.bias, tuple(after)


def apply_critic(
    critic: Critic, moments: CriticMoments, rows: jax.Array, extra: jax.Array, is_batch: bool
) -> tuple[jax.Array, CriticMoments]:
    """Return logits (batch, outputs) and the moments after this batch, as `apply_actor` does."""
    hidden, moved = normalise(rows, critic.inputs, moments[0], is_batch, INPUT_EPSILON)
    hidden, after = jnp.concatenate([hidden, extra], axis=-1) @ critic.embedding, [moved]
    for block, inner_moments, outer_moments in zip(critic.blocks, moments[1::2], moments[2::2], strict=True):
        inner, moved_inner = _rectified(block.inner, inner_moments, hidden, is_batch)
        outer, moved_outer = _rectified(block.outer, outer_moments, inner, is_batch)
        hidden = hidden + outer
        after += [moved_inner, moved_outer]
    root = jax.lax.rsqrt(jnp.mean(hidden**2, axis=-1, keepdims=True) + 1e-6)
    logits = (critic.output_scale * hidden * root) @ critic.head.weight + critic.head.bias
    return logits, tuple(after)


def _rectified(
    layer: NormalisedLayer, moments: Moments, rows: jax.Array, is_batch: bool
) -> tuple[jax.Array, Moments]:
    output, moved = normalise(rows @ layer.weight, layer.norm, moments, is_batch, EPSILON)
    return jax.nn.relu(output), moved


def normalise(
    rows: jax.Array, norm: Norm, moments: Moments, is_batch: bool, epsilon: float
) -> tuple[jax.Array, Moments]:
    """Return scale (x - mean) / sqrt(variance + epsilon) + shift by column, and the moved running moments."""
    used = moments
    if is_batch:
        mean = jnp.mean(rows, axis=0)
        used = Moments(mean, jnp.mean((rows - mean) ** 2, axis=0))
        moments = jax.tree.map(
            lambda old, new: old + MOMENTUM * (jax.lax.stop_gradient(new) - old), moments, used
        )
    gain = norm.scale * jax.lax.rsqrt(used.variance + epsilon)
    return (rows - used.mean) * gain + norm.shift, moments


# Weights -------------------------------------------------------------------------------------------------------------


def unit_columns(weight: jax.Array) -> jax.Array:
    """Divide every column, the weights of one output, by its norm."""
    return weight / jnp.maximum(jnp.linalg.norm(weight, axis=-2, keepdims=True), 1e-8)


def projected(network: NetworkT) -> NetworkT:
    """Return the network with unit columns in all weight matrices; biases, scales and shifts stay."""
    result: NetworkT = jax.tree_util.tree_map_with_path(
        lambda path, leaf: unit_columns(leaf) if _is_matrix(path) else leaf, network
    )
    return result


def _is_matrix(path: tuple[Any, ...]) -> bool:
    return jax.tree_util.keystr(path[-1:], simple=True) in ("weight", "embedding")


def folded(actor: Actor, moments: ActorMoments) -> Network:
    """Return the plain network that an actor is in running mode.

    A normalisation in running mode is x -> g x + c, which the linear map beside it absorbs.
    """
    gain, shift = _affine(actor.inputs, moments[0], INPUT_EPSILON)
    size, layers = gain.shape[-1], []
    for index, (layer, own) in enumerate(zip(actor.hidden, moments[1:], strict=True)):
        weight, bias = layer.weight, jnp.zeros(layer.weight.shape[-1])
        if index == 0:
            bias = shift @ weight[:size]
            weight = jnp.concatenate([gain[:, None] * weight[:size], weight[size:]])
        own_gain, own_shift = _affine(layer.norm, own, EPSILON)
        layers.append(Layer(weight * own_gain, bias * own_gain + own_shift))
    return (*layers, actor.head)


def _affine(norm: Norm, moments: Moments, epsilon: float) -> tuple[jax.Array, jax.Array]:
    gain = norm.scale * jax.lax.rsqrt(moments.variance + epsilon)
    return gain, norm.shift - gain * moments.mean


# Distributions -------------------------------------------------------------------------------------------------------


def to_bins(probabilities: jax.Array, atoms: jax.Array, bins: jax.Array) -> jax.Array:
    """Project masses at `atoms` (..., bins) to evenly spaced `bins`; atoms beyond them are moved to the nearest.

    target_j = sum_i p_i max(0, 1 - |b_i - j|), with b_i the place of atom i in bins. The mean is kept, and so is the
    order of summation: a scatter would add in any order on a GPU, and runs could not be repeated.
    """
    width = (bins[-1] - bins[0]) / (BINS - 1)
    place = (jnp.clip(atoms, bins[0], bins[-1]) - bins[0]) / width
    share = jnp.maximum(0.0, 1.0 - jnp.abs(place[..., :, None] - jnp.arange(BINS)))
    return jnp.sum(probabilities[..., :, None] * share, axis=-2)


# Returns -------------------------------------------------------------------------------------------------------------


class Returns(NamedTuple):
    """Running discounted sums of rewards, one per environment, and the moments of all that were met."""

    sums: jax.Array
    number: jax.Array
    """How many sums were met, at most `MOST_RETURNS`."""
    mean: jax.Array
    variance: jax.Array
    largest: jax.Array
    """Largest absolute value."""


def init_returns(environments: int) -> Returns:
    """Return sums of zero that no reward was added to."""
    zero = jnp.zeros(())
    return Returns(jnp.zeros(environments), zero, zero, zero, zero)


def observe_rewards(returns: Returns, reward: jax.Array, is_last: jax.Array, gamma: float) -> Returns:
    """Add one step of every environment, G <- r + gamma G; G is zero again after the last step of an episode."""
    sums = reward + gamma * returns.sums
    size, here = float(sums.shape[0]), jnp.mean(sums)
    number, difference = jnp.minimum(returns.number + size, MOST_RETURNS), here - returns.mean
    weight = size / number
    spread = jnp.mean((sums - here) ** 2) + (1.0 - weight) * difference**2
    return Returns(
        sums=jnp.where(is_last, 0.0, sums),
        number=number,
        mean=returns.mean + weight * difference,
        variance=(1.0 - weight) * returns.variance + weight * spread,
        largest=jnp.maximum(returns.largest, jnp.max(jnp.abs(sums))),
    )


def return_scale(returns: Returns) -> jax.Array:
    """Return the divisor of rewards: the std of discounted returns, but at least a quarter of the largest one."""
    std = jnp.sqrt(returns.variance + 1e-8)
    return jnp.maximum(std, returns.largest / LARGEST_RETURN)
