"""ARAM: acceptance-rejection on an augmented two-objective MDP, learnt for all preferences by multi-objective SAC."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.errors import ConfigurationError
from inbounds.learners import losses
from inbounds.learners.learner import Memory, Metrics, Outcome, Spec, with_presets
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.networks import Network, apply_network, init_network
from inbounds.policies.proposal import (
    Squashed,
    gaussian_acceptance_of_student_noise,
    proposal_from_output,
    squash,
    student_noise,
)
from inbounds.replay.ring import Transition

REAL, AUGMENTED = "real", "augmented"


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
    optimiser: optax.OptState
    updates: jax.Array
    augmented_share: jax.Array
    """The share eta of a batch taken from the augmented ring, where a controller moves it."""
    feasible_share: jax.Array
    """Sum and count of the feasible share of uniform proposals, for an entropy target relative to C(s)."""


class UpdateNoise(NamedTuple):
    """The randomness of one update."""

    preference: jax.Array
    candidates: jax.Array
    action: jax.Array
    next_action: jax.Array


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "augmented_share": 0.2,
        "share_decay": 0.9,
        "acceptance_target": None,
        "temperature": 0.2,
        "policy_preferences": 4,
        "snapshots": 4,
        "entropy_reference": "box",
    },
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Aram:
    """Multi-objective SAC on the augmented MDP; every ingredient of the paper is a switch."""

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the paper's table."""
    proposals: int = 100
    """Proposals per action; projection happens only if none is feasible. 1 switches acceptance-rejection off."""
    augmented: bool = True
    """Turn rejected proposals into self-loops with reward [0, -penalty]."""
    dual_replay: bool = True
    """Keep self-loops in a ring of their own; otherwise they share the ring of real transitions."""
    penalty: float = 0.2
    """K, the price of a rejected proposal."""
    augmented_share: float = 0.2
    """eta, the share of a batch that comes from the augmented ring (its start, where it changes)."""
    share_decay: float = 1.0
    """Factor on eta every `share_interval` environment steps of a seed."""
    share_interval: int = 10_000
    """Environment steps between two decays of eta."""
    acceptance_target: float | None = None
    """Hold the acceptance rate here by moving eta instead of following a schedule."""
    preference: tuple[float, float] | None = None
    """None learns for all preferences; a fixed pair gives SOSAC: scalar critics for this pair alone."""
    policy_preferences: int = 1
    """Preferences over which the policy loss takes the supremum; 1 is the plain loss."""
    snapshots: int = 0
    """Critic snapshots over which the policy loss takes the supremum; 0 is the plain loss."""
    snapshot_interval: int = 1_000
    """Updates between two snapshots."""
    snapshot_start: int = 20_000
    """Updates before the first snapshot."""
    half_precision_search: bool = False
    """Search the supremum over preferences in bfloat16; the winner is then evaluated in full precision."""
    critic_loss: Literal["componentwise", "scalarised"] = "componentwise"
    """`componentwise` is the published code's form, `scalarised` the paper's equation."""
    temperature: float | None = None
    """alpha; None tunes it towards the target entropy."""
    initial_temperature: float = 1.0
    """Where a tuned temperature starts."""
    entropy_target: float | None = None
    """Target entropy in the squashed box; None is minus the dimension (see `entropy_reference`)."""
    entropy_reference: Literal["box", "feasible"] = "box"
    """`feasible` shifts the target by the log of the feasible share of the box, measured during warm-up."""
    target: Literal["proportional", "student", "gaussian-from-student"] = "proportional"
    """Law of accepted draws: the policy on C(s), a Student-t on C(s), or the policy by way of Student-t proposals."""
    degrees: float = 5.0
    """Degrees of freedom of the Student-t."""
    fallback: Literal["projected", "published"] = "projected"
    """What is stored after a projection: the projected action with [r, 0], or the raw one with [r, -K]."""
    warm_up: Literal["feasible", "box"] = "feasible"
    """First random steps: uniform on C(s), or uniform in the box with projection if every proposal fails."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size, the same for actor, critics and temperature."""
    gamma: float = 0.99
    """Discount factor."""
    tau: float = 0.005
    """Share of the critic that moves into its target after every update."""
    batch_size: int = 256
    """Transitions per update."""

    presets: ClassVar[dict[str, dict[str, Any]]]

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if not self.augmented and self.share_decay != 1.0:
            raise ConfigurationError(
                "share_decay changes the augmented share, but augmented=False stores no self-loop. "
                "Drop share_decay or set augmented=True."
            )
        if not self.augmented and self.acceptance_target is not None:
            raise ConfigurationError(
                "acceptance_target moves the augmented share, but augmented=False stores no self-loop. "
                "Drop acceptance_target or set augmented=True."
            )
        if not self.dual_replay and self.acceptance_target is not None:
            raise ConfigurationError(
                "acceptance_target moves the share of the augmented ring, but dual_replay=False has none. "
                "Drop acceptance_target or set dual_replay=True."
            )
        if self.proposals < 1 or self.policy_preferences < 1 or self.snapshots < 0:
            raise ConfigurationError("proposals and policy_preferences must be at least 1, snapshots at least 0.")
        if not 0 <= self.augmented_share < 1:
            raise ConfigurationError(f"augmented_share={self.augmented_share} leaves no real transition: use [0, 1).")
        if self.preference is not None and (self.policy_preferences > 1 or self.snapshots > 0):
            raise ConfigurationError(
                "a fixed preference has nothing to take a supremum over. Set policy_preferences=1 and snapshots=0."
            )
        if self.penalty <= 0 and self.augmented:
            raise ConfigurationError(f"penalty={self.penalty} would reward rejections. Use a positive number.")

    # Shapes ------------------------------------------------------------------------------------------------------

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the rings: real, and augmented where it is kept apart."""
        return (REAL, AUGMENTED) if self.augmented and self.dual_replay else (REAL,)

    @property
    def objectives(self) -> int:
        """Return two: the task's reward and the constraint's penalty are always stored apart."""
        return 2

    @property
    def conditions(self) -> int:
        """Return how many entries of a preference the networks see."""
        return 0 if self.preference is not None else 2

    def init(self, key: jax.Array, spec: Spec) -> AramState:
        """Return fresh networks, their target, empty snapshots and a fresh optimiser."""
        actor_key, *critic_keys = jax.random.split(key, 3)
        inputs = spec.observation_size + self.conditions
        outputs = 1 if self.preference is not None else 2
        twins = [init_network(twin, (inputs + spec.box.size, *self.hidden, outputs)) for twin in critic_keys]
        critic = jax.tree.map(lambda *layers: jnp.stack(layers), *twins)
        start = self.temperature if self.temperature is not None else self.initial_temperature
        trained = Trained(
            init_network(actor_key, (inputs, *self.hidden, 2 * spec.box.size)), critic, jnp.asarray(math.log(start), jnp.float32)
        )
        return AramState(
            trained=trained,
            target_critic=critic,
            snapshots=jax.tree.map(lambda leaf: jnp.zeros((self.snapshots, *leaf.shape)), critic),
            optimiser=self.optimiser().init(trained),
            updates=jnp.zeros((), jnp.int32),
            augmented_share=jnp.asarray(self.augmented_share, jnp.float32),
            feasible_share=jnp.zeros(2, jnp.float32),
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over actor, critics and temperature together: one pass over all parameters."""
        return optax.adam(self.learning_rate)

    # Acting ------------------------------------------------------------------------------------------------------

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw one preference per episode from Dirichlet(1, 1): (x, 1 - x) with x uniform is the same law."""
        return self.preferences(jax.random.uniform(key, shape))

    def preferences(self, uniform: jax.Array) -> jax.Array:
        """Turn uniform numbers into preferences, or into the fixed one."""
        if self.preference is not None:
            return jnp.broadcast_to(jnp.asarray(self.preference, jnp.float32), (*uniform.shape, 2))
        return jnp.stack([uniform, 1.0 - uniform], axis=-1)

    def act(self, state: AramState, spec: Spec, observation: jax.Array, context: jax.Array, keys: jax.Array, warm: bool) -> Draw:
        """Draw all proposals in one forward pass and take the first feasible one."""
        environments = observation.shape[1]
        shape = (environments, self.proposals, spec.box.size)
        if warm:
            uniform = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
            proposals = spec.box.stretch(uniform)
            if self.warm_up == "box":
                return accept_first(spec.constraint, observation, proposals)
            sample_key = jax.random.fold_in(keys[0], 1)
            return accept_first(
                spec.constraint, observation, proposals, lambda seen, _: spec.constraint.sample(sample_key, seen)
            )
        noise_keys, keep_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        proposal = proposal_from_output(jax.vmap(apply_network)(state.trained.actor, self.with_preference(observation, context)))
        spread = jax.tree.map(lambda leaf: leaf[..., None, :], proposal)
        if self.target == "proportional":
            noise = jax.vmap(lambda key: jax.random.normal(key, shape))(noise_keys)
        else:
            noise = jax.vmap(lambda key: student_noise(key, shape, self.degrees))(noise_keys)
        is_kept = None
        if self.target == "gaussian-from-student":
            coin = jax.vmap(lambda key: jax.random.uniform(key, shape[:-1]))(keep_keys)
            is_kept = coin < gaussian_acceptance_of_student_noise(noise, self.degrees)
        return accept_first(
            spec.constraint, observation, spec.box.stretch(squash(spread, noise).value), is_kept=is_kept
        )

    def with_preference(self, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Append the preference to the observation, unless it is fixed."""
        if self.preference is not None:
            return observation
        spread = jnp.broadcast_to(preference, (*observation.shape[:-1], 2))
        return jnp.concatenate([observation, spread], axis=-1)

    def export(self, state: AramState) -> dict[str, Any]:
        """Return the actor: acceptance and projection need nothing else that was learnt."""
        return {"actor": state.trained.actor}

    def deterministic(self, state: AramState, spec: Spec, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Return tanh of the mean in the environment's units, before any projection."""
        output = apply_network(state.trained.actor, self.with_preference(observation, preference))
        return spec.box.stretch(jnp.tanh(proposal_from_output(output).mean))

    def samples(
        self, state: AramState, spec: Spec, observation: jax.Array, preference: jax.Array, key: jax.Array, count: int
    ) -> jax.Array:
        """Draw raw actions of the policy network, before acceptance."""
        output = apply_network(state.trained.actor, self.with_preference(observation, preference))
        proposal = jax.tree.map(lambda leaf: leaf[..., None, :], proposal_from_output(output))
        noise = jax.random.normal(key, (*observation.shape[:-1], count, spec.box.size), jnp.float32)
        return spec.box.stretch(squash(proposal, noise).value)

    # Remembering -------------------------------------------------------------------------------------------------

    def remember(self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome) -> Mapping[str, Memory]:
        """Return the real transitions with [r, 0] and one self-loop (s, a, [0, -K], s) per rejected proposal."""
        action, cost = draw.action, jnp.zeros_like(outcome.reward)
        if self.fallback == "published":
            action = jnp.where(draw.is_projected[:, None], draw.proposals[:, -1], action)
            cost = jnp.where(draw.is_projected, -self.penalty, cost)
        real = Transition(
            observation, action, jnp.stack([outcome.reward, cost], axis=-1), outcome.discount, outcome.next_observation
        )
        if not self.augmented:
            return {REAL: Memory(real, None)}
        environments, count, size = draw.proposals.shape
        rows = environments * count
        repeated = jnp.repeat(observation, count, axis=0)
        loops = Transition(
            observation=repeated,
            action=draw.proposals.reshape(rows, size),
            reward=jnp.broadcast_to(jnp.asarray([0.0, -self.penalty], jnp.float32), (rows, 2)),
            discount=jnp.ones(rows),
            next_observation=repeated,
        )
        memory = Memory(loops, draw.is_rejected.reshape(rows))
        if self.dual_replay:
            return {REAL: Memory(real, None), AUGMENTED: memory}
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), real, loops)
        return {REAL: Memory(together, jnp.concatenate([jnp.ones(environments, bool), draw.is_rejected.reshape(rows)]))}

    def adapt(self, state: AramState, draw: Draw, step: jax.Array, warm: bool) -> AramState:
        """Measure the feasible share of the box during warm-up; afterwards hold acceptance at its target.

        The controller is an integrator on eta: too many rejections raise the share of self-loops that the critics
        see, too few lower it. A step of 1e-4 per environment step moves eta by its whole range in about 10^4 steps.
        """
        del step
        if warm:
            measured = jnp.stack([jnp.sum(draw.acceptance), jnp.asarray(draw.acceptance.size, jnp.float32)])
            return state._replace(feasible_share=state.feasible_share + measured)
        if self.acceptance_target is None:
            return state
        error = self.acceptance_target - jnp.mean(draw.acceptance)
        moved = state.augmented_share + 1e-3 * draw.acceptance.size * error
        return state._replace(augmented_share=jnp.clip(moved, 0.02, 0.5))

    def shares(self, state: AramState, step: jax.Array) -> jax.Array:
        """Return eta: scheduled by the environment steps of this seed, or where the controller has put it."""
        if len(self.rings) == 1:
            return jnp.zeros(0)
        if self.acceptance_target is not None:
            return state.augmented_share[None]
        periods = (step // self.share_interval).astype(jnp.float32)
        return (self.augmented_share * self.share_decay**periods)[None]

    # Learning ----------------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> UpdateNoise:
        """Draw lambda, the further candidates of the supremum, and the noise of both action samples."""
        preference_key, action_key = jax.random.split(key)
        uniform = jax.random.uniform(preference_key, (self.policy_preferences,))
        normal = jax.random.normal(action_key, (2, self.batch_size, spec.box.size))
        return UpdateNoise(uniform[0], uniform[1:], normal[0], normal[1])

    def update(self, state: AramState, spec: Spec, batch: Transition, noise: UpdateNoise) -> tuple[AramState, Metrics]:
        """Take one step of actor, critics and temperature on the same minibatch, then move the target critic."""
        preference = self.preferences(noise.preference)
        gradient, metrics = jax.grad(self.total_loss, has_aux=True)(state.trained, state, spec, batch, noise, preference)
        if self.temperature is not None:
            gradient = gradient._replace(log_temperature=jnp.zeros(()))
        steps, optimiser = self.optimiser().update(gradient, state.optimiser)
        trained = optax.apply_updates(state.trained, steps)
        target = optax.incremental_update(trained.critic, state.target_critic, self.tau)
        updates = state.updates + 1
        following = state._replace(trained=trained, target_critic=target, optimiser=optimiser, updates=updates)
        return self.with_snapshot(following), metrics

    def total_loss(
        self, trained: Trained, state: AramState, spec: Spec, batch: Transition, noise: UpdateNoise, preference: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of critic, policy and temperature losses; stop-gradients keep them apart."""
        temperature = jax.lax.stop_gradient(jnp.exp(trained.log_temperature))
        frozen = jax.lax.stop_gradient(trained.actor)
        drawn = self.squashed(trained.actor, batch.observation, preference, noise.action)
        following = self.squashed(frozen, batch.next_observation, preference, noise.next_action)

        critic_loss, values = self.critic_loss_of_batch(
            trained.critic, state.target_critic, spec, batch, following, preference, temperature
        )
        worth = self.policy_worth(trained.critic, state, batch.observation, drawn.value, preference, noise.candidates)
        policy_loss = jnp.mean(temperature * drawn.log_density - worth)
        temperature_loss = jnp.mean(
            jax.vmap(losses.temperature_loss, (None, 0, None))(
                trained.log_temperature, drawn.log_density, self.target_entropy(state, spec)
            )
        )
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": values,
            "entropy": -jnp.mean(drawn.log_density),
            "temperature": temperature,
        }
        return critic_loss + policy_loss + temperature_loss, metrics

    def squashed(self, actor: Network, observation: jax.Array, preference: jax.Array, noise: jax.Array) -> Squashed:
        """Draw one squashed action per observation by reparameterisation."""
        output = apply_network(actor, self.with_preference(observation, preference))
        return squash(proposal_from_output(output), noise)

    def critic_loss_of_batch(
        self, critic: Network, target_critic: Network, spec: Spec, batch: Transition, following: Squashed,
        preference: jax.Array, temperature: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the mean critic loss, summed over the twins, and the mean value for the record."""
        weights = preference if self.preference is None else jnp.ones(1)
        reward = batch.reward if self.preference is None else (batch.reward @ preference)[:, None]
        next_values = critic_values(target_critic, self.with_preference(batch.next_observation, preference), following.value)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            reward, batch.discount, next_values, weights, following.log_density, temperature, self.gamma
        )
        values = critic_values(critic, self.with_preference(batch.observation, preference), spec.box.normalise(batch.action))
        loss = losses.componentwise_critic_loss if self.critic_loss == "componentwise" else losses.scalarised_critic_loss
        per_twin = jax.vmap(jax.vmap(loss, (0, None, None)), (0, 0, None))(values, target, weights)
        return jnp.mean(jnp.sum(per_twin, axis=1)), jnp.mean(values @ weights)

    def policy_worth(
        self, critic: Network, state: AramState, observation: jax.Array, action: jax.Array, preference: jax.Array,
        candidates: jax.Array,
    ) -> jax.Array:
        """Return what the critics say of each action: min_j lambda^T Q_j, or its supremum over candidates.

        The supremum over preferences and snapshots is found by a forward pass without gradient; only the winning
        preference of each critic is then differentiated, which gives the same gradient for a fraction of the work.
        """
        weights = preference if self.preference is None else jnp.ones(1)
        critic = jax.lax.stop_gradient(critic)
        if self.policy_preferences == 1 and self.snapshots == 0:
            values = critic_values(critic, self.with_preference(observation, preference), action)
            return jnp.min(values @ weights, axis=-1)
        ensemble = jax.tree.map(lambda now, then: jnp.concatenate([now[None], then]), critic, state.snapshots)
        taken = (state.updates - self.snapshot_start) // self.snapshot_interval
        is_filled = jnp.arange(self.snapshots + 1) <= taken
        is_filled = is_filled.at[0].set(True)
        options = jnp.concatenate([preference[None], self.preferences(candidates)])
        winner = self.winning_preference(ensemble, observation, jax.lax.stop_gradient(action), options, weights)
        inputs = jax.vmap(self.with_preference, (None, 0))(observation, winner)
        values = jax.vmap(critic_values, (0, 0, None))(ensemble, inputs, action)
        return jax.vmap(losses.best_candidate, (1, None, None))(values, weights, is_filled)

    def winning_preference(
        self, ensemble: Network, observation: jax.Array, action: jax.Array, options: jax.Array, weights: jax.Array
    ) -> jax.Array:
        """Return, for every critic and row, the preference at which the critic values the action most."""
        if options.shape[0] == 1:
            return jnp.broadcast_to(options[0], (*ensemble[0].weight.shape[:1], observation.shape[0], 2))
        dtype = jnp.bfloat16 if self.half_precision_search else jnp.float32
        ensemble, observation, action = jax.tree.map(lambda leaf: leaf.astype(dtype), (ensemble, observation, action))
        inputs = jax.vmap(lambda option: self.with_preference(observation, option))(options.astype(dtype))
        values = jax.vmap(jax.vmap(critic_values, (None, 0, None)), (0, None, None))(ensemble, inputs, action)
        best = jnp.argmax(jnp.min(values.astype(jnp.float32) @ weights, axis=-1), axis=1)
        return options[best]

    def with_snapshot(self, state: AramState) -> AramState:
        """Store the critic as the newest snapshot when its turn has come."""
        if self.snapshots == 0:
            return state
        since = state.updates - self.snapshot_start
        is_due = (since >= self.snapshot_interval) & (since % self.snapshot_interval == 0)
        shifted = jax.tree.map(
            lambda then, now: jnp.where(is_due, jnp.concatenate([now[None], then[:-1]]), then),
            state.snapshots,
            state.trained.critic,
        )
        return state._replace(snapshots=shifted)

    def target_entropy(self, state: AramState, spec: Spec) -> jax.Array:
        """Return the entropy wanted in the squashed box: minus the dimension, lowered by the log of C(s)'s share."""
        wanted = jnp.asarray(-float(spec.box.size) if self.entropy_target is None else self.entropy_target)
        if self.entropy_reference == "box":
            return wanted
        total, count = state.feasible_share
        share = (total + 1e-6) / jnp.maximum(count, 1.0)
        return wanted + jnp.log(jnp.clip(share, 1e-6, 1.0))


def critic_values(critic: Network, inputs: jax.Array, action: jax.Array) -> jax.Array:
    """Return (batch, twins, objectives) for inputs that hold observation and preference, and squashed actions."""
    rows = jnp.concatenate([inputs, action], axis=-1)
    return jnp.moveaxis(jax.vmap(apply_network, (0, None))(critic, rows), 0, 1)
