"""What learners with a deterministic actor share: TD3, with gaps where a method says what is its own.

Notation: mu is the actor (tanh output in [-1, 1]), L a layer that may follow it, bar a target network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.errors import ConfigurationError
from inbounds.learners import losses
from inbounds.learners.critics import critic_values, init_critics
from inbounds.learners.learner import Memory, Metrics, Outcome, Spec
from inbounds.learners.solver_calls import Calls, add_calls, call_metrics, no_calls
from inbounds.policies.acceptance import Draw, project_proposals
from inbounds.policies.networks import Network, apply_network, export_network, init_network
from inbounds.replay.ring import Transition

REAL = "real"


class DeterministicState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    actor: Network
    critic: Network
    """The critics, stacked on a leading axis."""
    target_actor: Network
    target_critic: Network
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    updates: jax.Array
    calls: Calls
    layer: Any
    """What a layer after the actor knows and no longer learns, such as a flow; else an empty tuple."""


class ActorStep(NamedTuple):
    """The actor's loss on a batch, and which solver calls it took to compute."""

    loss: jax.Array
    calls: dict[str, jax.Array | int]


class TargetAction(NamedTuple):
    """The action at which target critics are asked, in [-1, 1], and which solver calls it took."""

    value: jax.Array
    calls: dict[str, jax.Array | int]


@dataclasses.dataclass(frozen=True)
class DeterministicActorCritic:
    """TD3: twin critics, smoothed target actions and a delayed actor.

    y = r + gamma (1 - done) min_j Q_bar_j(s', L(mu_bar(s')) + clipped noise), and the actor ascends Q_1(s,
    L(mu(s))). A method overrides what it does differently: the layer, the target action, the actor's loss, or
    what is stored.
    """

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the table of the ARAM paper."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of the hidden layers."""
    learning_rate: float = 1e-3
    """Adam's step size for actor and critics."""
    gamma: float = 0.99
    """Discount factor."""
    tau: float = 0.005
    """Share of the networks that moves into their targets."""
    batch_size: int = 256
    """Transitions per update."""
    exploration: float = 0.1
    """Standard deviation of the behaviour's noise, in [-1, 1]."""
    smoothing: float = 0.2
    """Standard deviation of the target action's noise; 0 with `policy_delay=1` and `critics=1` is DDPG."""
    smoothing_limit: float = 0.5
    """Where that noise is cut off."""
    policy_delay: int = 2
    """Critic updates per update of actor and targets."""
    critics: int = 2
    """Critics whose minimum is believed."""

    presets: ClassVar[dict[str, dict[str, Any]]]
    proposals: ClassVar[int] = 1
    causes: ClassVar[tuple[str, ...]] = ()
    """Why this learner asks a solver, apart from projecting what it executes."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot learn."""
        if self.policy_delay < 1 or self.critics < 1 or self.batch_size < 1:
            raise ConfigurationError("policy_delay, critics and batch_size must be at least 1.")
        if min(self.exploration, self.smoothing, self.smoothing_limit) < 0:
            raise ConfigurationError("exploration, smoothing and smoothing_limit must not be negative.")

    # Shapes -----------------------------------------------------------------------------------------------

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the only ring."""
        return (REAL,)

    @property
    def objectives(self) -> int:
        """Return one: the reward."""
        return 1

    def init(self, key: jax.Array, spec: Spec) -> DeterministicState:
        """Return fresh networks, their targets and fresh optimisers."""
        actor_key, critic_key, layer_key = jax.random.split(key, 3)
        inputs, outputs = spec.observation_size, spec.box.size
        actor = init_network(actor_key, (inputs, *self.hidden, outputs), spec.inputs)
        critic = init_critics(critic_key, self.critics, inputs + outputs, self.hidden, scale=spec.inputs)
        return DeterministicState(
            actor=actor,
            critic=critic,
            target_actor=actor,
            target_critic=critic,
            actor_optimiser=self.optimiser().init(actor),
            critic_optimiser=self.optimiser().init(critic),
            updates=jnp.zeros((), jnp.int32),
            calls=no_calls(self.causes),
            layer=self.init_layer(layer_key, spec),
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam."""
        return optax.adam(self.learning_rate)

    # What a method changes --------------------------------------------------------------------------------

    def init_layer(self, key: jax.Array, spec: Spec) -> Any:
        """Return what the layer knows before learning starts."""
        del key, spec
        return ()

    def layer_metrics(self, layer: Any) -> Metrics:
        """Return what is worth logging about the layer."""
        del layer
        return {}

    def bounded(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> jax.Array:
        """Apply the layer L to the actor's output; both are in [-1, 1]. Without a layer nothing happens."""
        del layer, spec, observation
        return squashed

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Turn noisy outputs of all seeds into executed actions: by default the projection."""
        del layer
        return project_proposals(spec.constraint, observation, spec.box.stretch(squashed)[..., None, :])

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the action that is remembered: by default the executed one."""
        return draw.action

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return clip(mu_bar(s') + noise), without projection."""
        del spec
        return TargetAction(jnp.clip(self.squashed(state.target_actor, observation) + noise, -1.0, 1.0), {})

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1(s, L(mu(s)))."""
        action = self.bounded(state.layer, spec, observation, self.squashed(actor, observation))
        return ActorStep(-jnp.mean(critic_values(state.critic, observation, action)[:, 0, 0]), {})

    # Acting -----------------------------------------------------------------------------------------------

    def squashed(self, actor: Network, observation: jax.Array) -> jax.Array:
        """Return mu(s) = tanh of the network's output."""
        return jnp.tanh(apply_network(actor, observation))

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return nothing: an episode has no context."""
        del key
        return jnp.zeros((*shape, 0))

    def act(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        warm: bool,
    ) -> Draw:
        """Add noise to the actor's output, or draw uniformly at first, before any layer and projection."""
        del context
        shape = (observation.shape[1], spec.box.size)
        if warm:
            squashed = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
        else:
            noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
            centre = jax.vmap(self.squashed)(state.actor, observation)
            squashed = jnp.clip(centre + self.exploration * noise, -1.0, 1.0)
        return self.draw(state.layer, spec, observation, squashed)

    def export(self, state: DeterministicState) -> dict[str, Any]:
        """Return the actor, and the layer where it knows something."""
        actor = export_network("actor", state.actor)
        return actor if state.layer == () else {**actor, "layer": state.layer}

    def deterministic(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return L(mu(s)) in the environment's units, before any projection."""
        del preference
        squashed = self.squashed(state.actor, observation)
        return spec.box.stretch(self.bounded(state.layer, spec, observation, squashed))

    def samples(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Return the actor's output as often as asked, without noise and before any layer or projection."""
        del preference, key
        raw = spec.box.stretch(self.squashed(state.actor, observation))
        return jnp.broadcast_to(raw[..., None, :], (*raw.shape[:-1], count, raw.shape[-1]))

    # Remembering ------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return one transition per environment."""
        del spec
        transition = Transition(
            observation,
            self.stored_action(draw),
            outcome.reward[:, None],
            outcome.discount,
            outcome.next_observation,
        )
        return {REAL: Memory(transition, None)}

    def adapt(
        self, state: DeterministicState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> DeterministicState:
        """Count nothing: projections of executed actions are counted by the loop."""
        del spec, draw, step, warm
        return state

    def shares(self, state: DeterministicState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return nothing: there is only one ring."""
        del state, spec, step
        return jnp.zeros(0)

    # Learning ---------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> jax.Array:
        """Draw the noise of the target actions, cut off on both sides."""
        drawn = self.smoothing * jax.random.normal(key, (self.batch_size, spec.box.size))
        return jnp.clip(drawn, -self.smoothing_limit, self.smoothing_limit)

    def update(
        self, state: DeterministicState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[DeterministicState, Metrics]:
        """Step the critics; every `policy_delay` updates also the actor, then the targets."""
        target = self.target_action(state, spec, batch.next_observation, noise)
        gradient, (critic_loss, value) = jax.grad(self.critic_loss, has_aux=True)(
            state.critic, state, spec, batch, target.value
        )
        change, critic_optimiser = self.optimiser().update(gradient, state.critic_optimiser)
        state = state._replace(
            critic=optax.apply_updates(state.critic, change),
            critic_optimiser=critic_optimiser,
            updates=state.updates + 1,
            calls=add_calls(state.calls, target.calls),
        )
        (policy_loss, calls), gradient = jax.value_and_grad(
            lambda actor: self.actor_step(actor, state, spec, batch.observation), has_aux=True
        )(state.actor)
        change, actor_optimiser = self.optimiser().update(gradient, state.actor_optimiser)
        actor = optax.apply_updates(state.actor, change)
        moved = state._replace(
            actor=actor,
            target_actor=optax.incremental_update(actor, state.target_actor, self.tau),
            target_critic=optax.incremental_update(state.critic, state.target_critic, self.tau),
            actor_optimiser=actor_optimiser,
            calls=add_calls(state.calls, calls),
        )
        is_due = state.updates % self.policy_delay == 0
        state = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), moved, state)
        metrics = {"critic_loss": critic_loss, "policy_loss": policy_loss, "value": value}
        return state, metrics | call_metrics(state.calls) | self.layer_metrics(state.layer)

    def critic_loss(
        self, critic: Network, state: DeterministicState, spec: Spec, batch: Transition, following: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Return the squared Bellman error, summed over critics; once more for the record, with the value."""
        next_values = critic_values(state.target_critic, batch.next_observation, following)
        nothing = jnp.zeros(batch.discount.shape)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            batch.reward, batch.discount, next_values, jnp.ones(1), nothing, jnp.zeros(()), self.gamma
        )
        values = critic_values(critic, batch.observation, spec.box.normalise(batch.action))
        per_critic = jax.vmap(jax.vmap(losses.componentwise_critic_loss, (0, None, None)), (0, 0, None))(
            values, target, jnp.ones(1)
        )
        loss = jnp.mean(jnp.sum(per_critic, axis=1))
        return loss, (loss, jnp.mean(values))
