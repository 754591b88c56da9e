"""SAC with projection, and SPre+ (Kasaura et al. 2023), which stores its own actions and penalises infeasible ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners import losses
from inbounds.learners.costs import Calls, call_metrics, no_calls, violation_penalty
from inbounds.learners.learner import Learner, project_proposals, real_transitions, uniform_proposals
from inbounds.learners.networks import init_critics, init_network
from inbounds.learners.settings import NetworkSettings, with_presets
from inbounds.learners.step import Memory, Metrics, Outcome, Spec
from inbounds.policies.acceptance import Draw
from inbounds.policies.gaussian import Gaussian, Squashed, gaussian_of, squash
from inbounds.policies.heads import Head, SquashedGaussian
from inbounds.policies.networks import Network, apply_network, q_values
from inbounds.replay import Transition

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 3e-4, "hidden": (256, 256), "batch_size": 256},
}
SPRE_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The paper's table has 1e-3 for all three baselines; the implementation that it used has 3e-4 for SAC.
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"learning_rate": 3e-4, "hidden": (256, 256), "batch_size": 256},
}


class Trained(NamedTuple):
    """Everything that gradients change, under one optimiser."""

    actor: Network
    critic: Network
    """Twin critics, stacked on a leading axis of two."""
    log_alpha: jax.Array


class StochasticState(NamedTuple):
    """Everything that changes during training."""

    trained: Trained
    target_critic: Network
    optimiser: optax.OptState
    calls: Calls


def policy_losses(values: jax.Array, log_density: jax.Array, alpha: jax.Array) -> jax.Array:
    """Return alpha log pi(a|s) - min_j Q_j(s, a) of every sample; `values` is (batch, twins, 1)."""
    return alpha * log_density - jnp.min(values[..., 0], axis=-1)


def after_step(learner: Any, state: Any, gradient: Trained) -> Any:
    """Return the state after Adam's step on actor, critics and a tuned alpha, with the target critics moved."""
    if learner.alpha is not None:
        gradient = gradient._replace(log_alpha=jnp.zeros(()))
    change, optimiser = learner.optimiser().update(gradient, state.optimiser)
    trained = optax.apply_updates(state.trained, change)
    target = optax.incremental_update(trained.critic, state.target_critic, learner.tau)
    return state._replace(trained=trained, target_critic=target, optimiser=optimiser)


@dataclasses.dataclass(frozen=True)
class StochasticActorCritic(NetworkSettings, Learner):
    """SAC: y = r + gamma (1 - done) (min_j Q_bar_j(s', a') - alpha log pi(a'|s')), a' drawn from pi.

    The actor descends E[alpha log pi(a|s) - min_j Q_j(s, a)], and alpha moves the entropy to its target. A method
    overrides what it does differently: the distribution of its actions (`sample`), further terms of the actor's loss
    (`actor_penalty`), or which action is stored (`stored_action`).
    """

    tau: float = 0.005
    """Polyak coefficient of the target critics."""
    alpha: float | None = None
    """Entropy coefficient; None tunes it towards the target entropy."""
    init_alpha: float = 1.0
    """Initial value of a tuned alpha."""
    target_entropy: float | None = None
    """Target entropy in [-1, 1], per dimension; None is -1, the usual one."""

    causes: ClassVar[tuple[str, ...]] = ()
    """Why this learner calls a solver, apart from projecting executed actions."""

    # Shapes -----------------------------------------------------------------------------------------------

    def init(self, key: jax.Array, spec: Spec) -> StochasticState:
        """Return new networks, target critics and optimiser state."""
        actor_key, critic_key = jax.random.split(key)
        start = self.alpha if self.alpha is not None else self.init_alpha
        trained = Trained(
            actor=init_network(
                actor_key, (spec.observation_size, *self.hidden, 2 * spec.box.size), spec.inputs
            ),
            critic=init_critics(
                jax.random.split(critic_key),
                spec.observation_size + spec.box.size,
                self.hidden,
                1,
                spec.inputs,
            ),
            log_alpha=jnp.asarray(math.log(start), jnp.float32),
        )
        return StochasticState(trained, trained.critic, self.optimiser().init(trained), no_calls(self.causes))

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over actor, critics and alpha together."""
        return optax.adam(self.learning_rate)

    # What a method changes --------------------------------------------------------------------------------

    def sample(self, spec: Spec, observation: jax.Array, proposal: Gaussian, noise: jax.Array) -> Squashed:
        """Return an action in [-1, 1] and its log-density: by default a Gaussian squashed by tanh."""
        return squash(proposal, noise)

    def draw(self, spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Turn drawn actions of all seeds into executed ones: by default the projection."""
        return project_proposals(spec.constraint, observation, spec.box.rescale(squashed)[..., None, :])

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the action to store: by default the executed one."""
        return draw.action

    def actor_penalty(self, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Return what each drawn action adds to the actor's loss: by default nothing."""
        return jnp.zeros(action.shape[:-1])

    # Acting -----------------------------------------------------------------------------------------------

    def proposal(self, actor: Network, observation: jax.Array) -> Gaussian:
        """Return mean and scale of the Gaussian."""
        return gaussian_of(apply_network(actor, observation))

    def head(self, spec: Spec) -> Head:
        """Return the policy head."""
        return SquashedGaussian()

    def act(
        self,
        state: StochasticState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Draw one action from the policy, or uniformly at first, and let the projection correct it."""
        shape = (observation.shape[1], spec.box.size)
        if is_random:
            return self.draw(spec, observation, uniform_proposals(keys, shape))
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        proposal = jax.vmap(self.proposal)(state.trained.actor, observation)
        return self.draw(spec, observation, self.sample(spec, observation, proposal, noise).value)

    def export(self, state: StochasticState) -> dict[str, Any]:
        """Return the actor: projection needs nothing else that was learnt."""
        return {"actor": state.trained.actor}

    # Remembering ------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return one transition per environment."""
        return real_transitions(observation, self.stored_action(draw), outcome)

    # Learning ---------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> jax.Array:
        """Draw the noise of the actions at s and at s'."""
        return jax.random.normal(key, (2, self.batch_size, spec.box.size))

    def update(
        self, state: StochasticState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[StochasticState, Metrics]:
        """Take one step of actor, critics and alpha on one minibatch, then move the target critics."""
        gradient, metrics = jax.grad(self.total_loss, has_aux=True)(state.trained, state, spec, batch, noise)
        return after_step(self, state, gradient), metrics | call_metrics(state.calls)

    def total_loss(
        self, trained: Trained, state: StochasticState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of critic, policy and alpha losses; stop-gradients keep them apart."""
        alpha = jax.lax.stop_gradient(jnp.exp(trained.log_alpha))
        drawn = self.sample(
            spec, batch.observation, self.proposal(trained.actor, batch.observation), noise[0]
        )
        following = jax.lax.stop_gradient(
            self.sample(
                spec, batch.next_observation, self.proposal(trained.actor, batch.next_observation), noise[1]
            )
        )
        next_values = q_values(state.target_critic, batch.next_observation, following.value)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            batch.reward,
            batch.not_done,
            next_values,
            jnp.ones(1),
            following.log_density,
            alpha,
            self.gamma,
        )
        values = q_values(trained.critic, batch.observation, spec.box.normalise(batch.action))
        per_twin = jax.vmap(jax.vmap(losses.critic_loss, (0, None, None)), (0, 0, None))(
            values, target, jnp.ones(1)
        )
        critic_loss = jnp.mean(jnp.sum(per_twin, axis=1))

        of_policy = q_values(jax.lax.stop_gradient(trained.critic), batch.observation, drawn.value)
        policy_loss = jnp.mean(
            policy_losses(of_policy, drawn.log_density, alpha)
            + self.actor_penalty(spec, batch.observation, drawn.value)
        )
        wanted = jnp.asarray(spec.box.size * (-1.0 if self.target_entropy is None else self.target_entropy))
        alpha_loss = jnp.mean(losses.alpha_loss(trained.log_alpha, drawn.log_density, wanted))
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": jnp.mean(values),
            "entropy": -jnp.mean(drawn.log_density),
            "alpha": alpha,
        }
        return critic_loss + policy_loss + alpha_loss, metrics


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Sac(StochasticActorCritic):
    """SAC that executes the projection of the drawn action, and whose losses do not know of the constraint.

    Two settings span a family (Kasaura et al. 2023): which action is stored, and a penalty c g(s, a) on the drawn
    action's distance to the set. SAC and SPro store projected actions, SPre stores the drawn ones; a plus means c = 1.
    """

    stored: Literal["projected", "raw"] = "projected"
    """Which action is stored: the executed one, or the drawn one before projection."""
    penalty: float = 0.0
    """c, the penalty on a drawn action's distance to the set."""

    def stored_action(self, draw: Draw) -> jax.Array:
        """Return the executed or the raw action."""
        return draw.action if self.stored == "projected" else draw.proposals[:, 0]

    def actor_penalty(self, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Return c g(s, a)."""
        if self.penalty == 0:
            return super().actor_penalty(spec, observation, action)
        return self.penalty * violation_penalty(spec, observation, action)


@with_presets(SPRE_PRESETS)
@dataclasses.dataclass(frozen=True)
class Spre(Sac):
    """SPre+ (Kasaura et al. 2023): alpha log pi - min_j Q_j(s, a) + g(s, a), a drawn before the projection.

    `penalty=0` is SPre, `stored="projected"` SPro+.
    """

    stored: Literal["projected", "raw"] = "raw"
    penalty: float = 1.0
