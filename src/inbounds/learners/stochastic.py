"""What learners with a stochastic actor share: SAC, with gaps where a method says what is its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.errors import ConfigurationError
from inbounds.learners import losses
from inbounds.learners.critics import critic_values, init_critics
from inbounds.learners.learner import Memory, Metrics, Outcome, Spec
from inbounds.learners.solver_calls import Calls, call_metrics, no_calls
from inbounds.policies.acceptance import Draw, project_proposals
from inbounds.policies.networks import Network, apply_network, export_network, init_network
from inbounds.policies.proposal import Proposal, Squashed, proposal_from_output, squash
from inbounds.replay.ring import Transition
from inbounds.settings import is_number

REAL = "real"


class Trained(NamedTuple):
    """What gradients change, under one optimiser."""

    actor: Network
    critic: Network
    """Twin critics, stacked on a leading axis of two."""
    log_temperature: jax.Array


class StochasticState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    trained: Trained
    target_critic: Network
    optimiser: optax.OptState
    calls: Calls


@dataclasses.dataclass(frozen=True)
class StochasticActorCritic:
    """SAC: y = r + gamma (1 - done) (min_j Q_bar_j(s', a') - alpha log pi(a'|s')), a' drawn from pi.

    The actor descends E[alpha log pi(a|s) - min_j Q_j(s, a)], and alpha moves the entropy to its target. A
    method overrides what it does differently: the law of its actions, the actor's further losses, or what is
    stored.
    """

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the table of the ARAM paper."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size for actor, critics and temperature."""
    gamma: float = 0.99
    """Discount factor."""
    tau: float = 0.005
    """Share of the critics that moves into their targets after every update."""
    batch_size: int = 256
    """Transitions per update."""
    temperature: float | None = None
    """alpha; None tunes it towards the target entropy."""
    initial_temperature: float = 1.0
    """Where a tuned temperature starts."""
    entropy_target: float | None = None
    """Target entropy in [-1, 1], per dimension; None is -1, the usual one."""

    presets: ClassVar[dict[str, dict[str, Any]]]
    proposals: ClassVar[int] = 1
    causes: ClassVar[tuple[str, ...]] = ()
    """Why this learner asks a solver, apart from projecting what it executes."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot learn."""
        for name in ("temperature", "initial_temperature"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationError(
                    f"{name}={value} must be positive. Lower it towards 0 for less entropy."
                )
        target = self.entropy_target
        if target is not None and not (is_number(target) and target <= math.log(2)):
            raise ConfigurationError(
                f"entropy_target={target!r} must be a number of at most ln 2, a uniform law's, or None."
            )

    # Shapes -----------------------------------------------------------------------------------------------

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the only ring."""
        return (REAL,)

    @property
    def objectives(self) -> int:
        """Return one: the reward."""
        return 1

    def init(self, key: jax.Array, spec: Spec) -> StochasticState:
        """Return fresh networks, the critics' target and a fresh optimiser."""
        actor_key, critic_key = jax.random.split(key)
        start = self.temperature if self.temperature is not None else self.initial_temperature
        trained = Trained(
            actor=init_network(
                actor_key, (spec.observation_size, *self.hidden, 2 * spec.box.size), spec.inputs
            ),
            critic=init_critics(
                critic_key, 2, spec.observation_size + spec.box.size, self.hidden, scale=spec.inputs
            ),
            log_temperature=jnp.asarray(math.log(start), jnp.float32),
        )
        return StochasticState(trained, trained.critic, self.optimiser().init(trained), no_calls(self.causes))

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over actor, critics and temperature together: one pass over all parameters."""
        return optax.adam(self.learning_rate)

    # What a method changes --------------------------------------------------------------------------------

    def law(self, spec: Spec, observation: jax.Array, proposal: Proposal, noise: jax.Array) -> Squashed:
        """Return an action in [-1, 1] and its log-density: by default a Gaussian squashed by tanh."""
        del spec, observation
        return squash(proposal, noise)

    def draw(self, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Turn drawn actions of all seeds into executed ones: by default the projection."""
        return project_proposals(spec.constraint, observation, spec.box.stretch(squashed)[..., None, :])

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the action that is remembered: by default the executed one."""
        return draw.action

    def price(self, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Return what is added to the actor's loss for each drawn action: by default nothing."""
        del spec, observation
        return jnp.zeros(action.shape[:-1])

    # Acting -----------------------------------------------------------------------------------------------

    def proposal(self, actor: Network, observation: jax.Array) -> Proposal:
        """Return mean and scale of the Gaussian."""
        return proposal_from_output(apply_network(actor, observation))

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return nothing: an episode has no context."""
        del key
        return jnp.zeros((*shape, 0))

    def act(
        self,
        state: StochasticState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        warm: bool,
    ) -> Draw:
        """Draw one action from the policy, or uniformly at first, and let the projection correct it."""
        del context
        shape = (observation.shape[1], spec.box.size)
        if warm:
            squashed = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
        else:
            noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
            proposal = jax.vmap(self.proposal)(state.trained.actor, observation)
            squashed = self.law(spec, observation, proposal, noise).value
        return self.draw(spec, observation, squashed)

    def export(self, state: StochasticState) -> dict[str, Any]:
        """Return the actor: projection needs nothing else that was learnt."""
        return export_network("actor", state.trained.actor)

    def deterministic(
        self, state: StochasticState, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return the action of the Gaussian's mean in the environment's units, before any projection."""
        del preference
        proposal = self.proposal(state.trained.actor, observation)
        return spec.box.stretch(self.law(spec, observation, proposal, jnp.zeros_like(proposal.mean)).value)

    def samples(
        self,
        state: StochasticState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw raw actions of the policy network, before projection."""
        del preference
        proposal = self.proposal(state.trained.actor, observation)
        spread = jax.tree.map(lambda leaf: leaf[..., None, :], proposal)
        noise = jax.random.normal(key, (*observation.shape[:-1], count, spec.box.size), jnp.float32)
        return spec.box.stretch(squash(spread, noise).value)

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
        self, state: StochasticState, spec: Spec, draw: Draw, step: jax.Array, warm: bool
    ) -> StochasticState:
        """Count nothing: projections of executed actions are counted by the loop."""
        del spec, draw, step, warm
        return state

    def shares(self, state: StochasticState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return nothing: there is only one ring."""
        del state, spec, step
        return jnp.zeros(0)

    # Learning ---------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> jax.Array:
        """Draw the noise of the actions at s and at s'."""
        return jax.random.normal(key, (2, self.batch_size, spec.box.size))

    def update(
        self, state: StochasticState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[StochasticState, Metrics]:
        """Take one step of actor, critics and temperature on one minibatch, then move the target critics."""
        gradient, metrics = jax.grad(self.total_loss, has_aux=True)(state.trained, state, spec, batch, noise)
        if self.temperature is not None:
            gradient = gradient._replace(log_temperature=jnp.zeros(()))
        change, optimiser = self.optimiser().update(gradient, state.optimiser)
        trained = optax.apply_updates(state.trained, change)
        target = optax.incremental_update(trained.critic, state.target_critic, self.tau)
        state = state._replace(trained=trained, target_critic=target, optimiser=optimiser)
        return state, metrics | call_metrics(state.calls)

    def total_loss(
        self, trained: Trained, state: StochasticState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of critic, policy and temperature losses; stop-gradients keep them apart."""
        temperature = jax.lax.stop_gradient(jnp.exp(trained.log_temperature))
        drawn = self.law(spec, batch.observation, self.proposal(trained.actor, batch.observation), noise[0])
        following = jax.lax.stop_gradient(
            self.law(
                spec, batch.next_observation, self.proposal(trained.actor, batch.next_observation), noise[1]
            )
        )
        next_values = critic_values(state.target_critic, batch.next_observation, following.value)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            batch.reward,
            batch.discount,
            next_values,
            jnp.ones(1),
            following.log_density,
            temperature,
            self.gamma,
        )
        values = critic_values(trained.critic, batch.observation, spec.box.normalise(batch.action))
        per_twin = jax.vmap(jax.vmap(losses.componentwise_critic_loss, (0, None, None)), (0, 0, None))(
            values, target, jnp.ones(1)
        )
        critic_loss = jnp.mean(jnp.sum(per_twin, axis=1))

        believed = critic_values(jax.lax.stop_gradient(trained.critic), batch.observation, drawn.value)
        policy_loss = jnp.mean(
            jax.vmap(losses.policy_loss, (0, None, 0, None))(
                believed, jnp.ones(1), drawn.log_density, temperature
            )
            + self.price(spec, batch.observation, drawn.value)
        )
        wanted = jnp.asarray(spec.box.size * (-1.0 if self.entropy_target is None else self.entropy_target))
        temperature_loss = jnp.mean(
            jax.vmap(losses.temperature_loss, (None, 0, None))(
                trained.log_temperature, drawn.log_density, wanted
            )
        )
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": jnp.mean(values),
            "entropy": -jnp.mean(drawn.log_density),
            "temperature": temperature,
        }
        return critic_loss + policy_loss + temperature_loss, metrics
