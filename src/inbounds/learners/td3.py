"""TD3 with projection, and DPre+ (Kasaura et al. 2023): TD3 that stores its own actions and penalises infeasible ones.

Notation: mu is the actor (tanh output in [-1, 1]), L a layer that may follow it, bar a target network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners import losses
from inbounds.learners.costs import Calls, add_calls, call_metrics, no_calls, violation_penalty
from inbounds.learners.learner import Learner, project_proposals, real_transitions, uniform_proposals
from inbounds.learners.networks import init_critics, init_network
from inbounds.learners.settings import NetworkSettings, with_presets
from inbounds.learners.step import Memory, Metrics, Outcome, Spec
from inbounds.policies.acceptance import Draw
from inbounds.policies.heads import Deterministic, Query
from inbounds.policies.networks import Network, apply_network, q_values
from inbounds.replay import Transition

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"hidden": (400, 300), "batch_size": 100},
}


class DeterministicState(NamedTuple):
    """Everything that changes during training."""

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
    """Frozen parameters of the head by name, such as a flow; mostly none."""


class ActorStep(NamedTuple):
    """The actor's loss on a batch, and which solver calls it took to compute."""

    loss: jax.Array
    calls: dict[str, jax.Array | int]


class TargetAction(NamedTuple):
    """The action at which the target critics are evaluated, in [-1, 1], and which solver calls it took."""

    value: jax.Array
    calls: dict[str, jax.Array | int]


@dataclasses.dataclass(frozen=True)
class DeterministicActorCritic(NetworkSettings, Learner):
    """TD3: twin critics, smoothed target actions and a delayed actor.

    y = r + gamma (1 - done) min_j Q_bar_j(s', L(mu_bar(s')) + clipped noise), and the actor ascends Q_1(s,
    L(mu(s))). A method overrides what it does differently: the layer, the target action, the actor's loss, or
    what is stored.
    """

    learning_rate: float = 1e-3
    tau: float = 0.005
    """Polyak coefficient of the target networks."""
    exploration: float = 0.1
    """Standard deviation of the exploration noise, in [-1, 1]."""
    smoothing: float = 0.2
    """Standard deviation of the target action's noise; 0 with `policy_delay=1` and `critics=1` is DDPG."""
    smoothing_limit: float = 0.5
    """Where that noise is cut off."""
    policy_delay: int = 2
    """Critic updates per update of actor and targets."""
    critics: int = 2
    """Critics, of which the smallest value counts."""

    causes: ClassVar[tuple[str, ...]] = ()
    """Why this learner calls a solver, apart from projecting executed actions."""

    # Shapes -----------------------------------------------------------------------------------------------

    def init(self, key: jax.Array, spec: Spec) -> DeterministicState:
        """Return new networks, target networks and optimiser states."""
        actor_key, critic_key, layer_key = jax.random.split(key, 3)
        inputs, outputs = spec.observation_size, spec.box.size
        actor = init_network(actor_key, (inputs, *self.hidden, outputs), spec.inputs)
        critic = init_critics(
            jax.random.split(critic_key, self.critics), inputs + outputs, self.hidden, 1, spec.inputs
        )
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
        """Return frozen parameters of the head."""
        return {}

    def layer_metrics(self, layer: Any) -> Metrics:
        """Return what to log about the layer."""
        return {}

    def bounded(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> jax.Array:
        """Apply the head's layer L to the actor's output; both are in [-1, 1]."""
        return jnp.asarray(self.head(spec).bounded(spec, layer, Query(observation), squashed))

    def draw(self, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Turn noisy outputs of all seeds into executed actions: by default the projection."""
        return project_proposals(spec.constraint, observation, spec.box.rescale(squashed)[..., None, :])

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the action to store: by default the executed one."""
        return draw.action

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return clip(mu_bar(s') + noise), without projection."""
        return TargetAction(jnp.clip(self.squashed(state.target_actor, observation) + noise, -1.0, 1.0), {})

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1(s, L(mu(s)))."""
        action = self.bounded(state.layer, spec, observation, self.squashed(actor, observation))
        return ActorStep(-jnp.mean(q_values(state.critic, observation, action)[:, 0, 0]), {})

    # Acting -----------------------------------------------------------------------------------------------

    def head(self, spec: Spec) -> Deterministic:
        """Return the policy head."""
        return Deterministic()

    def squashed(self, actor: Network, observation: jax.Array) -> jax.Array:
        """Return mu(s) = tanh of the network's output."""
        return jnp.tanh(apply_network(actor, observation))

    def act(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Add noise to the actor's output, or draw uniformly at first, before any layer and projection."""
        shape = (observation.shape[1], spec.box.size)
        if is_random:
            return self.draw(state.layer, spec, observation, uniform_proposals(keys, shape))
        centre = jax.vmap(self.squashed)(state.actor, observation)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        noisy = jnp.clip(centre + self.exploration * noise, -1.0, 1.0)
        return self.draw(state.layer, spec, observation, noisy)

    def export(self, state: DeterministicState) -> dict[str, Any]:
        """Return the actor and the frozen parameters of the head."""
        return {"actor": state.actor, **state.layer}

    def samples(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Return the actor's output `count` times, without noise and before any layer or projection."""
        raw = spec.box.rescale(self.squashed(state.actor, observation))
        return jnp.broadcast_to(raw[..., None, :], (*raw.shape[:-1], count, raw.shape[-1]))

    # Remembering ------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return one transition per environment."""
        return real_transitions(observation, self.stored_action(draw), outcome)

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
        next_values = q_values(state.target_critic, batch.next_observation, following)
        nothing = jnp.zeros(batch.not_done.shape)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            batch.reward, batch.not_done, next_values, jnp.ones(1), nothing, jnp.zeros(()), self.gamma
        )
        values = q_values(critic, batch.observation, spec.box.normalise(batch.action))
        per_critic = jax.vmap(jax.vmap(losses.critic_loss, (0, None, None)), (0, 0, None))(
            values, target, jnp.ones(1)
        )
        loss = jnp.mean(jnp.sum(per_critic, axis=1))
        return loss, (loss, jnp.mean(values))


def penalised(
    step: ActorStep, weight: float, spec: Spec, observation: jax.Array, squashed: jax.Array
) -> ActorStep:
    """Add c mean g(s, mu(s)), the weighted distance of the actor's output to the set; nothing is computed for c = 0."""
    if weight == 0:
        return step
    return step._replace(loss=step.loss + weight * jnp.mean(violation_penalty(spec, observation, squashed)))


def draw_through_layer(
    learner: DeterministicActorCritic, layer: Any, spec: Spec, observation: jax.Array, squashed: jax.Array
) -> Draw:
    """Execute the layer's action; validity is reported for the actor's own, which the layer corrects.

    It takes the place of `DeterministicActorCritic.draw`. A projection stands behind the layer: it is only ever
    computed, and counted, if rounding left the set.
    """
    bounded = learner.bounded(layer, spec, observation, squashed)
    draw = project_proposals(spec.constraint, observation, spec.box.rescale(bounded)[..., None, :])
    proposal = spec.box.rescale(squashed)
    is_feasible = spec.constraint.contains(observation, proposal)
    return draw._replace(
        proposals=proposal[..., None, :],
        is_rejected=~is_feasible[..., None],
        acceptance=is_feasible.astype(jnp.float32),
    )


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Td3(DeterministicActorCritic):
    """TD3 that executes the projection of the actor's action, and whose losses do not know of the constraint.

    Two settings span a family (Kasaura et al. 2023): which action is stored, and a penalty c g(s, mu(s)) on the
    actor's distance to the set. TD3 and DPro store projected actions, DPre stores those of the actor; a plus means
    c = 1.
    """

    stored: Literal["projected", "raw"] = "projected"
    """Which action is stored: the executed one, or the actor's before projection."""
    penalty: float = 0.0
    """c, the penalty on the actor's distance to the set."""

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the executed or the raw action."""
        return draw.action if self.stored == "projected" else draw.proposals[:, 0]

    def actor_step(
        self, actor: Network, state: DeterministicState, spec: Spec, observation: jax.Array
    ) -> ActorStep:
        """Return -mean Q_1(s, mu(s)) + c mean g(s, mu(s))."""
        step = super().actor_step(actor, state, spec, observation)
        return penalised(step, self.penalty, spec, observation, self.squashed(actor, observation))


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Dpre(Td3):
    """DPre+ (Kasaura et al. 2023), on TD3 although the ARAM paper calls it DDPG-based, as its code is on TD3.

    The projection belongs to the environment: the critics value the action before it, and the actor's loss
    -Q_1(s, mu(s)) + g(s, mu(s)) pulls the actor towards the set. `penalty=0` is DPre, `stored="projected"`
    DPro+.
    """

    stored: Literal["projected", "raw"] = "raw"
    penalty: float = 1.0
