"""ARAM's multi-objective SAC on the normalised backbone (backbone.py): rewards of any sign and scale.

Differences from the paper's form in aram.py:

Q_r is the return divided by `return_scale`, predicted as a distribution. -Q_c is a probability, predicted by one more
output, whose loss is the cross-entropy. The policy maximises

    min_j lambda_r Q_r,j + lambda_c K Q_c,j.

The target entropy is that of the
feasible set from the first update on: a larger one and the target acceptance rate would exclude each other.
Every row of a batch has a preference of its own; one for the whole batch would vanish in batch normalisation.
Entropy enters the policy loss alone, not the targets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from inbounds.learners import losses
from inbounds.learners.backbone import (
    BINS,
    RETURN_LIMIT,
    Actor,
    ActorMoments,
    Critic,
    CriticMoments,
    Returns,
    apply_actor,
    apply_critic,
    folded,
    init_actor,
    init_critic,
    init_moments,
    init_returns,
    observe_rewards,
    projected,
    return_scale,
    to_bins,
)
from inbounds.learners.learner import Metrics, Outcome, Spec
from inbounds.policies.gaussian import gaussian_of, squash
from inbounds.policies.networks import Network
from inbounds.replay import Transition

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram

PRESET: dict[str, Any] = {
    "backbone": "normalised",
    "penalty": 0.1,
    "target_acceptance": 0.95,
    "entropy_ramp": 1,
}
INIT_ALPHA = 0.01
"""Normalised values are of order one."""
ACTOR_DELAY = 2
"""Updates of the critics per step of actor and alpha."""
RETURN_BINS = np.linspace(-RETURN_LIMIT, RETURN_LIMIT, BINS, dtype=np.float32)
"""Normalised returns that a critic gives probabilities to; an array of NumPy, since JAX must not start on import."""


class Params(NamedTuple):
    """Everything that gradients change."""

    actor: Actor
    critic: Critic
    """Twin critics, stacked on a leading axis of two."""
    log_alpha: jax.Array


class NormalisedState(NamedTuple):
    """Everything that changes during training."""

    params: Params
    actor_moments: ActorMoments
    critic_moments: CriticMoments
    target_critic: Critic
    """Without moments of its own: it is only called in batch mode."""
    optimiser: optax.OptState
    updates: jax.Array
    eta: jax.Array
    """Fraction of the next batch that comes from the augmented buffer."""
    penalty: jax.Array
    """K."""
    feasible_fraction: jax.Array
    """Sum and count of the feasible fraction of uniform proposals, measured during warm-up."""
    returns: Returns


class UpdateNoise(NamedTuple):
    """The randomness of one update."""

    preference: jax.Array
    """(batch,), one number in each of `batch` equal parts of [0, 1], in random order."""
    action: jax.Array
    """(batch, action size), standard normal."""
    next_action: jax.Array


def init(learner: Aram, key: jax.Array, spec: Spec) -> NormalisedState:
    """Return new networks."""
    actor_key, critic_key = jax.random.split(key)
    extra, size = min(learner.preference_size, 1), spec.box.size
    actor = init_actor(actor_key, spec.observation_size, extra, learner.hidden, 2 * size)
    critic = jax.vmap(
        lambda one: init_critic(one, spec.observation_size + size, extra, learner.hidden, BINS + 1)
    )(jax.random.split(critic_key))
    alpha = INIT_ALPHA if learner.alpha is None else learner.alpha
    params = Params(actor, critic, jnp.asarray(math.log(alpha), jnp.float32))
    return NormalisedState(
        params=params,
        actor_moments=init_moments(actor),
        critic_moments=jax.vmap(init_moments)(critic),
        target_critic=critic,
        optimiser=learner.optimiser().init(params),
        updates=jnp.zeros((), jnp.int32),
        eta=jnp.asarray(learner.eta, jnp.float32),
        penalty=jnp.asarray(learner.penalty, jnp.float32),
        feasible_fraction=jnp.zeros(2, jnp.float32),
        returns=init_returns(spec.environments),
    )


def noise(learner: Aram, key: jax.Array, spec: Spec) -> UpdateNoise:
    """Draw a preference for every row, and the noise of both actions."""
    preference_key, action_key = jax.random.split(key)
    order_key, uniform_key = jax.random.split(preference_key)
    rows = learner.batch_size
    place = jax.random.permutation(order_key, rows) + jax.random.uniform(uniform_key, (rows,))
    normal = jax.random.normal(action_key, (2, rows, spec.box.size))
    return UpdateNoise(place / rows, normal[0], normal[1])


def observed(learner: Aram, state: NormalisedState, spec: Spec, outcome: Outcome) -> NormalisedState:
    """Add the rewards to the running returns."""
    is_last = jnp.zeros_like(outcome.reward, bool) if outcome.is_last is None else outcome.is_last
    returns = observe_rewards(state.returns, outcome.reward, is_last, learner.gamma_of(spec))
    return state._replace(returns=returns)


# The preference as an input ------------------------------------------------------------------------------------------


def preference_input(learner: Aram, preference: jax.Array) -> jax.Array:
    """Return the one number that the networks read of a preference: mean zero and variance one over those learnt."""
    if not learner.preference_size:
        return preference[..., :0]
    scale, shift = _preference_map(learner)
    return scale * preference[..., :1] + shift


def _preference_map(learner: Aram) -> tuple[float, float]:
    least = learner.min_return_weight
    scale = math.sqrt(12.0) / (1.0 - least)
    return scale, -scale * (1.0 + least) / 2.0


def plain_actor(learner: Aram, state: NormalisedState) -> Network:
    """Return the actor as a plain network of (observation, lambda_r, lambda_c), which an exported one already is."""
    actor: Any = state.params.actor
    if not isinstance(actor, Actor):
        network: Network = actor
        return network
    first, *others = folded(actor, state.actor_moments)
    if not learner.preference_size:
        return (first, *others)
    scale, shift = _preference_map(learner)
    *rest, last = jnp.split(first.weight, [first.weight.shape[0] - 1])
    weight = jnp.concatenate([*rest, scale * last, jnp.zeros_like(last)])
    return (first._replace(weight=weight, bias=first.bias + shift * last[0]), *others)


# Learning ------------------------------------------------------------------------------------------------------------


def update(
    learner: Aram, state: NormalisedState, spec: Spec, batch: Transition, noise: UpdateNoise
) -> tuple[NormalisedState, Metrics]:
    """Take one gradient step of the critics, and every second time of actor and alpha; then move the target."""
    gradient, (metrics, actor_moments, critic_moments) = jax.grad(
        lambda params: loss(learner, params, state, spec, batch, noise), has_aux=True
    )(state.params)
    if learner.alpha is not None:
        gradient = gradient._replace(log_alpha=jnp.zeros(()))
    steps, optimiser = learner.optimiser().update(gradient, state.optimiser)
    moves = (state.updates % ACTOR_DELAY == 0).astype(jnp.float32)
    actor, log_alpha = jax.tree.map(lambda leaf: moves * leaf, (steps.actor, steps.log_alpha))
    params = optax.apply_updates(state.params, steps._replace(actor=actor, log_alpha=log_alpha))
    params = params._replace(actor=projected(params.actor), critic=projected(params.critic))
    state = state._replace(
        params=params,
        actor_moments=actor_moments,
        critic_moments=critic_moments,
        target_critic=optax.incremental_update(params.critic, state.target_critic, learner.tau),
        optimiser=optimiser,
        updates=state.updates + 1,
    )
    return state, metrics


def loss(
    learner: Aram,
    params: Params,
    state: NormalisedState,
    spec: Spec,
    batch: Transition,
    noise: UpdateNoise,
) -> tuple[jax.Array, tuple[Metrics, ActorMoments, CriticMoments]]:
    """Return the sum of critic, policy and alpha losses; stop-gradients keep them apart."""
    preference = learner.preferences(noise.preference)
    extra = preference_input(learner, preference)
    alpha = jax.lax.stop_gradient(jnp.exp(params.log_alpha))
    frozen_actor, frozen_critic = jax.lax.stop_gradient((params.actor, params.critic))
    output, actor_moments = apply_actor(params.actor, state.actor_moments, batch.observation, extra, True)
    now = squash(gaussian_of(output), noise.action)
    output, _ = apply_actor(frozen_actor, state.actor_moments, batch.next_observation, extra, False)
    after = squash(gaussian_of(output), noise.next_action)

    here = jnp.concatenate([batch.observation, spec.box.normalise(batch.action)], axis=-1)
    there = jnp.concatenate([batch.next_observation, after.value], axis=-1)
    rows, both = jnp.concatenate([here, there]), jnp.concatenate([extra, extra])
    following, _ = twins(state.target_critic, state.critic_moments, rows, both, True)
    target = target_distribution(learner, state, spec, batch, following[:, len(here) :])
    logits, critic_moments = twins(params.critic, state.critic_moments, rows, both, True)
    critic_loss = critic_loss_of(logits[:, : len(here)], target, batch.reward[:, 1] < 0)

    own = jnp.concatenate([batch.observation, now.value], axis=-1)
    logits, _ = twins(frozen_critic, state.critic_moments, own, extra, False)
    value, rejection = mean_return(logits), jax.nn.sigmoid(logits[..., -1])
    penalty = preference[:, 1] * state.penalty
    worth = jnp.min(preference[:, 0] * value - penalty * rejection, axis=0)
    policy_loss = jnp.mean(alpha * now.log_density - worth)
    target_entropy = learner.entropy_target(state, spec)
    alpha_loss = jnp.mean(losses.alpha_loss(params.log_alpha, now.log_density, target_entropy))
    metrics = {
        "critic_loss": critic_loss,
        "policy_loss": policy_loss,
        "value": jnp.mean(value),
        "rejection": jnp.mean(rejection),
        "entropy": -jnp.mean(now.log_density),
        "alpha": alpha,
        "penalty": state.penalty,
        "return_scale": return_scale(state.returns),
    }
    if len(learner.buffers) == 2:
        metrics["eta"] = state.eta
    return critic_loss + policy_loss + alpha_loss, (metrics, actor_moments, critic_moments)


def twins(
    critic: Critic, moments: CriticMoments, rows: jax.Array, extra: jax.Array, is_batch: bool
) -> tuple[jax.Array, Any]:
    """Return logits (twins, batch, bins + 1) and the moved moments; the last logit is that of a rejection."""
    return jax.vmap(lambda one, own: apply_critic(one, own, rows, extra, is_batch))(critic, moments)


def mean_return(logits: jax.Array) -> jax.Array:
    """Return Q_r: the mean of the distribution of the normalised return."""
    return jnp.sum(jax.nn.softmax(logits[..., :-1]) * RETURN_BINS, axis=-1)


def target_distribution(
    learner: Aram, state: NormalisedState, spec: Spec, batch: Transition, following: jax.Array
) -> jax.Array:
    """Return (batch, bins): r + gamma (1 - done) Z_j*(s', a'), projected to the bins.

    Z_j are the distributions of the target twins, whose logits are `following`, and j* = argmin_j of their means for
    each row.
    """
    smaller = jnp.argmin(mean_return(following), axis=0)
    chosen = jnp.take_along_axis(following, smaller[None, :, None], axis=0)[0]
    gamma = learner.gamma_of(spec) * batch.not_done
    reward = batch.reward[:, 0] / return_scale(state.returns)
    atoms = reward[:, None] + gamma[:, None] * RETURN_BINS
    return jax.lax.stop_gradient(to_bins(jax.nn.softmax(chosen[:, :-1]), atoms, jnp.asarray(RETURN_BINS)))


def critic_loss_of(logits: jax.Array, target: jax.Array, is_rejected: jax.Array) -> jax.Array:
    """Return the mean over twins and rows of both cross-entropies: of the return, and of being rejected."""
    of_return = -jnp.sum(target * jax.nn.log_softmax(logits[..., :-1]), axis=-1)
    label = jnp.broadcast_to(is_rejected.astype(jnp.float32), logits.shape[:-1])
    return jnp.mean(of_return + optax.sigmoid_binary_cross_entropy(logits[..., -1], label))
