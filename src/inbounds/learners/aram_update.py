"""One update of ARAM: targets, critic loss, policy loss with its supremum, temperature and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners import losses
from inbounds.learners.aram_acting import law
from inbounds.learners.aram_settings import held_acceptance, moves_share, wanted_entropy
from inbounds.learners.batch_normalisation import Moments, values_now_and_next, values_relative_to
from inbounds.learners.critics import critic_rows, critic_values
from inbounds.learners.learner import Metrics, Spec
from inbounds.learners.truncated_law import truncated
from inbounds.learners.value_bins import categorical_critic_loss, expected_values, split
from inbounds.learners.value_scale import ValueScale, scaled
from inbounds.policies.acceptance import Draw
from inbounds.policies.networks import Network, after_first_layer, first_layer
from inbounds.policies.proposal import Squashed, squash
from inbounds.replay.ring import Transition

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram


class Trained(NamedTuple):
    """What gradients change, under one optimiser."""

    actor: Network
    critic: Network
    """Twin critics, stacked on a leading axis of two."""
    log_temperature: jax.Array


class AramState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    trained: Trained
    target_critic: Network
    snapshots: Network
    """Frozen critics (snapshots, twins, ...): the Q replay buffer."""
    snapshots_taken: jax.Array
    """How many critics were frozen so far; the oldest have been dropped again."""
    optimiser: optax.OptState
    updates: jax.Array
    augmented_share: jax.Array
    """The share eta of a batch taken from the augmented ring, where a controller moves it."""
    feasible_share: jax.Array
    """Sum and count of the feasible share of uniform proposals, for an entropy target relative to C(s)."""
    entropy_drop: jax.Array
    """How far below the box's the entropy target is, in nats, where a controller moves it."""
    scale: ValueScale
    """What the critics' outputs are relative to."""
    averaged: Network
    """The actor averaged over its last updates, where that is what is judged and kept; otherwise no layers."""

    @property
    def judged_actor(self) -> Network:
        """Return the network that is evaluated and exported."""
        return self.averaged or self.trained.actor


class UpdateNoise(NamedTuple):
    """The randomness of one update."""

    preference: jax.Array
    candidates: jax.Array
    action: jax.Array
    """Standard normal (batch, dimension), or (draws, batch, dimension) where the truncated law is asked."""
    next_action: jax.Array


def total_loss(
    settings: Aram,
    trained: Trained,
    state: AramState,
    spec: Spec,
    batch: Transition,
    noise: UpdateNoise,
    preference: jax.Array,
) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
    """Return the sum of critic, policy and temperature losses; stop-gradients keep them apart."""
    temperature = jax.lax.stop_gradient(jnp.exp(trained.log_temperature))
    frozen = jax.lax.stop_gradient(trained.actor)
    if settings.entropy_of == "truncated":
        now = truncated(settings, trained.actor, spec, batch.observation, preference, noise.action)
        drawn = Squashed(now.raw, now.acting.log_density)
        following = truncated(
            settings, frozen, spec, batch.next_observation, preference, noise.next_action
        ).acting
    else:
        drawn = squashed(settings, trained.actor, spec, batch.observation, preference, noise.action)
        following = squashed(settings, frozen, spec, batch.next_observation, preference, noise.next_action)

    believed = beliefs(settings, trained.critic, state, spec, batch, following, preference)
    critic_loss, values, target = critic_loss_of_batch(
        settings, believed, state, spec, batch, following, preference, temperature
    )
    worth = policy_worth(
        settings,
        trained.critic,
        state,
        batch.observation,
        drawn.value,
        preference,
        noise.candidates,
        believed.moments,
    )
    policy_loss = jnp.mean(temperature * drawn.log_density - worth)
    temperature_loss = jnp.mean(
        jax.vmap(losses.temperature_loss, (None, 0, None))(
            trained.log_temperature, drawn.log_density, target_entropy(settings, state, spec)
        )
    )
    metrics = {
        "critic_loss": critic_loss,
        "policy_loss": policy_loss,
        "value": values,
        "entropy": -jnp.mean(drawn.log_density),
        "temperature": temperature,
    }
    if moves_share(settings, spec):  # what a controller moves belongs into the record
        metrics["augmented_share"] = state.augmented_share
    return critic_loss + policy_loss + temperature_loss, (metrics, target)


def squashed(
    settings: Aram,
    actor: Network,
    spec: Spec,
    observation: jax.Array,
    preference: jax.Array,
    noise: jax.Array,
) -> Squashed:
    """Draw one squashed action per observation by reparameterisation."""
    return squash(law(settings, actor, spec, observation, preference), noise)


class Beliefs(NamedTuple):
    """What the critics say of a batch."""

    now: jax.Array
    """(batch, twins, outputs) of the last layers."""
    following: jax.Array
    """Of the next observations and the policy's actions there, for the targets."""
    moments: tuple[Moments, ...] | None
    """What the hidden layers were relative to, where they are normalised over the batch."""


def beliefs(
    settings: Aram,
    critic: Network,
    state: AramState,
    spec: Spec,
    batch: Transition,
    following: Squashed,
    preference: jax.Array,
) -> Beliefs:
    """Ask the critics about the stored actions, and the target critics about what the policy does next.

    Critics that are normalised over the batch are asked about both at once, and are their own targets.
    """
    inputs = settings.with_preference(batch.observation, preference)
    next_inputs = settings.with_preference(batch.next_observation, preference)
    action = spec.box.normalise(batch.action)
    if settings.batch_normalised:
        rows, next_rows = critic_rows(inputs, action), critic_rows(next_inputs, following.value)
        return Beliefs(*values_now_and_next(critic, rows, next_rows))
    next_outputs = critic_values(state.target_critic, next_inputs, following.value)
    return Beliefs(critic_values(critic, inputs, action), next_outputs, None)


def critic_loss_of_batch(
    settings: Aram,
    believed: Beliefs,
    state: AramState,
    spec: Spec,
    batch: Transition,
    following: Squashed,
    preference: jax.Array,
    temperature: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the mean critic loss, summed over the twins, the mean value for the record, and the targets."""
    weights = objective_weights(settings, preference)
    reward = (
        batch.reward
        if settings.preference is None
        else jnp.sum(batch.reward * preference, axis=-1, keepdims=True)
    )
    next_values = values_of(settings, state.scale, believed.following)
    gamma = spec.discount if settings.gamma is None else settings.gamma
    target = jax.vmap(losses.bellman_target, (0, 0, 0, 0, 0, None, None))(
        reward, batch.discount, next_values, weights, following.log_density, temperature, gamma
    )
    values = values_of(settings, state.scale, believed.now)
    worth = jnp.mean(jnp.sum(values * weights[:, None], axis=-1))
    if settings.value_bins:
        told = split(believed.now, settings.value_bins)
        per_twin = jax.vmap(jax.vmap(categorical_critic_loss, (0, None, None)))(told, target, weights)
        return jnp.mean(jnp.sum(per_twin, axis=1)), worth, target
    unit = state.scale.deviation if settings.critic_loss == "componentwise" else jnp.ones(())
    loss = (
        losses.componentwise_critic_loss
        if settings.critic_loss == "componentwise"
        else losses.scalarised_critic_loss
    )
    per_twin = jax.vmap(jax.vmap(loss, (0, None, None)))(values / unit, target / unit, weights)
    return jnp.mean(jnp.sum(per_twin, axis=1)), worth, target


def values_of(settings: Aram, scale: ValueScale, outputs: jax.Array) -> jax.Array:
    """Return values in the units of the reward, one per objective, from what a critic's last layer says."""
    if settings.value_bins:
        return expected_values(outputs, settings.value_bins)
    return scaled(scale, outputs)


def objective_weights(settings: Aram, preference: jax.Array) -> jax.Array:
    """Return the weights of the critics' objectives: the preference, or one where critics are scalar already."""
    return preference if settings.preference is None else jnp.ones((*preference.shape[:-1], 1))


def policy_worth(
    settings: Aram,
    critic: Network,
    state: AramState,
    observation: jax.Array,
    action: jax.Array,
    preference: jax.Array,
    candidates: jax.Array,
    moments: tuple[Moments, ...] | None,
) -> jax.Array:
    """Return what the critics say of each action: min_j lambda^T Q_j, or its supremum over candidates.

    The supremum over preferences and snapshots is found by a forward pass without gradient; only the winning
    preference of each critic is then differentiated, which gives the same gradient for a fraction of the work.
    """
    weights = objective_weights(settings, preference)
    critic = jax.lax.stop_gradient(critic)
    if settings.policy_preferences == 1 and settings.snapshots == 0:
        inputs = settings.with_preference(observation, preference)
        if moments is None:
            outputs = critic_values(critic, inputs, action)
        else:
            moments = jax.lax.stop_gradient(moments)
            outputs = values_relative_to(critic, moments, critic_rows(inputs, action))
        values = values_of(settings, state.scale, outputs)
        return jnp.min(jnp.sum(values * weights[:, None], axis=-1), axis=-1)
    ensemble = jax.tree.map(lambda now, then: jnp.concatenate([now[None], then]), critic, state.snapshots)
    is_filled = jnp.arange(settings.snapshots + 1) <= state.snapshots_taken
    others = jnp.broadcast_to(settings.preferences(candidates), (candidates.shape[0], *preference.shape))
    options = jnp.concatenate([preference[None], others])
    frozen = jax.lax.stop_gradient(action)
    winner = winning_preference(settings, ensemble, state.scale, observation, frozen, options, weights)
    inputs = jax.vmap(settings.with_preference, (None, 0))(observation, winner)
    outputs = jax.vmap(critic_values, (0, 0, None))(ensemble, inputs, action)
    values = values_of(settings, state.scale, outputs)
    return jax.vmap(losses.best_candidate, (1, 0, None))(values, weights, is_filled)


def winning_preference(
    settings: Aram,
    ensemble: Network,
    scale: ValueScale,
    observation: jax.Array,
    action: jax.Array,
    options: jax.Array,
    weights: jax.Array,
) -> jax.Array:
    """Return, for every critic and row, the preference at which the critic values the action most."""
    critics, rows = ensemble[0].weight.shape[0], observation.shape[0]
    if options.shape[0] == 1:
        return jnp.broadcast_to(options[0], (critics, rows, 2))
    outputs = outputs_at_all(settings, ensemble, observation, action, options)
    worth = jnp.sum(values_of(settings, scale, outputs) * weights, axis=-1)
    best = jnp.argmax(jnp.min(worth, axis=1), axis=1)
    return options[best, jnp.arange(rows)]


def outputs_at_all(
    settings: Aram, ensemble: Network, observation: jax.Array, action: jax.Array, options: jax.Array
) -> jax.Array:
    """Return (critics, twins, options, rows, outputs): what every critic says of every row at every preference.

    A preference enters the first layer as a sum of its own, so that the rest of that layer is computed once for all.
    Without `preference_per_sample` all rows of an option hold the same preference, and that sum is one vector.
    """
    dtype = jnp.bfloat16 if settings.half_precision_search else jnp.float32
    common = options if settings.preference_per_sample else options[:, :1]
    ensemble, observation, action, common = jax.tree.map(
        lambda leaf: leaf.astype(dtype), (ensemble, observation, action, common)
    )
    size = observation.shape[-1]
    blank = jnp.zeros((*observation.shape[:-1], 2), dtype)
    inputs = jnp.concatenate([observation, blank, action], axis=-1)

    def of_one(critic: Network) -> jax.Array:
        weight = critic[0].weight[size : size + 2]
        preferred = common[..., :1] * weight[0] + common[..., 1:] * weight[1]
        return after_first_layer(critic, first_layer(critic, inputs) + preferred)

    return jax.vmap(jax.vmap(of_one))(ensemble).astype(jnp.float32)


def with_snapshot(settings: Aram, state: AramState) -> AramState:
    """Store the critic as the newest snapshot when its time has come.

    For once a turn, not for every update: with seeds side by side nothing can be skipped, so that to ask costs as much
    as to store.
    """
    if settings.snapshots == 0:
        return state
    due = (state.updates - settings.snapshot_start) // settings.snapshot_interval
    is_due = due > state.snapshots_taken
    shifted = jax.tree.map(
        lambda then, now: jnp.where(is_due, jnp.concatenate([now[None], then[:-1]]), then),
        state.snapshots,
        state.trained.critic,
    )
    return state._replace(snapshots=shifted, snapshots_taken=state.snapshots_taken + is_due)


def target_entropy(settings: Aram, state: AramState, spec: Spec) -> jax.Array:
    """Return the entropy wanted in the squashed box: so much per dimension, lowered by the log of C(s)'s share.

    With `entropy_ramp` the target falls there in a straight line, so that a set is explored widely at first; a
    controller on the acceptance rate lets it fall only as long as too many proposals are infeasible.
    """
    dimension = float(spec.box.size)
    wanted = jnp.asarray(dimension * wanted_entropy(settings, spec))
    if settings.acceptance_lever == "entropy" and held_acceptance(settings, spec) is not None:
        return wanted - state.entropy_drop
    first = wanted if settings.entropy_at_first is None else dimension * settings.entropy_at_first
    last = wanted if settings.entropy_reference == "box" else wanted + log_feasible_share(state)
    done = jnp.minimum(state.updates / max(settings.entropy_ramp, 1), 1.0) if settings.entropy_ramp else 1.0
    return first + done * (last - first)


def log_feasible_share(state: AramState) -> jax.Array:
    """Return the log of the share of the box that is feasible, as measured during warm-up."""
    total, count = state.feasible_share
    return jnp.log(jnp.clip((total + 1e-6) / jnp.maximum(count, 1.0), 1e-6, 1.0))


def moved_drop(settings: Aram, state: AramState, draw: Draw, error: jax.Array) -> jax.Array:
    """Return the controller's next entropy drop, given by how much too few proposals were accepted.

    It lies between 0 and one nat per dimension below the feasible set's target, and takes `entropy_ramp` environment
    steps for the whole way; within 0.02 of the acceptance that is wanted it slows down.
    """
    steps, dimension = draw.action.shape
    deepest = dimension - log_feasible_share(state)
    speed = deepest * steps / max(settings.entropy_ramp, 1)
    return jnp.clip(state.entropy_drop + speed * jnp.clip(error / 0.02, -1.0, 1.0), 0.0, deepest)
