"""ARAM's two ideas, acceptance-rejection and the augmented MDP, on other learners: TD3, and SAC for integer actions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners import losses, td3
from inbounds.learners.aram import AUGMENTED, REAL, Aram, per_proposal
from inbounds.learners.learner import Learner, real_transitions, uniform_proposals
from inbounds.learners.networks import init_critics, init_network
from inbounds.learners.sac import Trained, after_step
from inbounds.learners.settings import NetworkSettings, require_valid, with_presets
from inbounds.learners.step import Memory, Metrics, Outcome, Spec
from inbounds.learners.td3 import DeterministicActorCritic, DeterministicState
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.box import from_levels, level_count, to_levels
from inbounds.policies.heads import Deterministic, Query
from inbounds.policies.networks import Network, apply_network, q_values
from inbounds.replay import Transition

ARTD3_PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": td3.PRESETS["paper"]}


@with_presets(ARTD3_PRESETS)
@dataclasses.dataclass(frozen=True)
class ArTd3(DeterministicActorCritic):
    """TD3 on the augmented MDP at one preference (lambda_r, lambda_c).

    Proposals mu(s) + noise are drawn until one is feasible; the accepted one earns lambda_r r, and each rejected
    one is remembered as a self-loop (s, a, -lambda_c K, s). The critics thus price infeasible actions, and the
    actor needs neither a projection nor a penalty of its own.
    """

    proposals: int = 100
    """Proposals per action; projection is computed only if none is feasible."""
    penalty: float = 0.2
    """K, the penalty of a rejected proposal."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Weights of the return and of the constraint."""
    eta: float = 0.2
    """Fraction of a batch that comes from the self-loops."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained."""
        require_valid(self, excluded={"penalty": 0.0})

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the replay buffers of real transitions and of self-loops."""
        return (REAL, AUGMENTED)

    @property
    def needs_positive_rewards(self) -> bool:
        """Return True: rejected proposals are stored as self-loops."""
        return True

    def act(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Take the first feasible proposal: noise around the actor's output, or uniform at first."""
        shape = (observation.shape[1], self.proposals, spec.box.size)
        if is_random:
            proposals = spec.box.rescale(uniform_proposals(keys, shape))
            return accept_first(spec.constraint, observation, proposals)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        output = jax.vmap(apply_network)(state.actor, observation)
        query = Query(observation[..., None, :], output[..., None, :], noise)
        proposals = jnp.broadcast_to(self.head(spec).actions(spec, state.layer, query), noise.shape)
        return accept_first(spec.constraint, observation, proposals)

    def head(self, spec: Spec) -> Deterministic:
        """Return the policy head: noise around the actor's output."""
        return Deterministic(proposals=self.proposals, std=self.exploration)

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions with lambda_r r, and one self-loop per rejected proposal."""
        weight, cost = self.preference
        real = real_transitions(observation, draw.action, outcome._replace(reward=weight * outcome.reward))
        one = jnp.ones_like(outcome.reward)
        loop = Transition(observation, draw.action, -cost * self.penalty * one[:, None], one, observation)
        return {**real, AUGMENTED: Memory(per_proposal(loop, draw), draw.is_rejected.reshape(-1))}

    def batch_fractions(self, state: DeterministicState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta."""
        return jnp.full(1, self.eta)


DISCRETE_PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": {"eta": 0.2, "penalty": 0.2}}


class DiscreteAramState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    trained: Trained
    target_critic: Network
    optimiser: optax.OptState


class UpdateNoise(NamedTuple):
    """The randomness of one update: a preference, and Gumbel noise of the actions at s and at s'."""

    preference: jax.Array
    action: jax.Array
    next_action: jax.Array


def negative_entropy(logits: jax.Array) -> jax.Array:
    """Return E[log pi(a|s)] of independent categorical entries (..., entries, levels), exactly."""
    log_probability = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(log_probability) * log_probability, axis=(-2, -1))


def log_density(logits: jax.Array, level: jax.Array) -> jax.Array:
    """Return log pi(a|s) of levels (..., entries)."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), level[..., None], axis=-1)
    return jnp.sum(chosen[..., 0], axis=-1)


def score_loss(values: jax.Array, log_densities: jax.Array) -> jax.Array:
    """Return what has the gradient of -E[Q(a)], from several draws a_j of the policy.

    -mean_j (Q_j - mean of the others) log pi(a_j): what the other draws got is a baseline that does not
    depend on a_j, so that the gradient stays unbiased.

    Args:
        values: (draws,), the value of each draw; no gradient passes.
        log_densities: (draws,).
    """
    draws = values.shape[0]
    others = (jnp.sum(values) - values) / (draws - 1)
    return -jnp.mean(jax.lax.stop_gradient(values - others) * log_densities)


@with_presets(DISCRETE_PRESETS)
@dataclasses.dataclass(frozen=True)
class DiscreteAram(NetworkSettings, Learner):
    """Multi-objective SAC on the augmented MDP with one categorical distribution per entry of a MultiDiscrete action.

    Proposals are drawn until the membership test accepts one, and every rejected one becomes a self-loop with reward
    [0, -K], exactly as with continuous actions. Only the gradient differs: it is that of the scores of several draws
    instead of a reparameterised one.
    """

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the paper's table, where it applies."""
    proposals: int = 100
    """Proposals per action; the nearest feasible action is looked up only if none is feasible."""
    penalty: float = 0.2
    """K, the penalty of a rejected proposal."""
    eta: float = 0.5
    """Fraction of a batch that comes from the augmented buffer."""
    policy_draws: int = 16
    """Actions per state in the policy loss."""
    alpha: float | None = None
    """Entropy coefficient; None tunes it towards the target entropy."""
    init_alpha: float = 0.1
    """Initial value of a tuned alpha."""
    entropy_fraction: float = 0.05
    """Target entropy, as a fraction of the largest one."""
    tau: float = 0.005
    """Polyak coefficient of the target critics."""

    @property
    def mdp(self) -> Aram:
        """Return the continuous learner, whose augmented MDP and preferences this one shares."""
        return Aram(proposals=self.proposals, penalty=self.penalty, self_loops="discounted", eta=self.eta)

    @property
    def needs_positive_rewards(self) -> bool:
        """Return True: rejected proposals are stored as self-loops."""
        return True

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the replay buffers of real transitions and of self-loops."""
        return self.mdp.buffers

    @property
    def objectives(self) -> int:
        """Return two: the task's reward and the constraint's penalty."""
        return 2

    def init(self, key: jax.Array, spec: Spec) -> DiscreteAramState:
        """Return fresh networks; the first policy is nearly uniform, and ranges that are not whole are refused."""
        actor_key, critic_key = jax.random.split(key)
        size, inputs = spec.box.size * level_count(spec.box), spec.observation_size + 2
        *inner, last = init_network(actor_key, (inputs, *self.hidden, size), spec.inputs)
        start = self.alpha if self.alpha is not None else self.init_alpha
        trained = Trained(
            actor=(*inner, last._replace(weight=0.1 * last.weight)),
            critic=init_critics(jax.random.split(critic_key), inputs + size, self.hidden, 2, spec.inputs),
            log_alpha=jnp.asarray(math.log(start), jnp.float32),
        )
        return DiscreteAramState(trained, trained.critic, self.optimiser().init(trained))

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over actor, critics and alpha together."""
        return optax.adam(self.learning_rate)

    # Acting ------------------------------------------------------------------------------------------------

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw one preference per episode."""
        return self.mdp.new_context(key, shape)

    def logits(self, actor: Network, spec: Spec, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Return (..., entries, levels)."""
        output = apply_network(actor, self.mdp.with_preference(observation, preference))
        return output.reshape(*output.shape[:-1], spec.box.size, level_count(spec.box))

    def act(
        self,
        state: DiscreteAramState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Draw all proposals in one forward pass and take the first feasible one; at first they are uniform."""
        logits = jax.vmap(lambda actor, seen, context: self.logits(actor, spec, seen, context))(
            state.trained.actor, observation, context
        )
        logits = 0.0 * logits if is_random else logits
        shape = (observation.shape[1], self.proposals, *logits.shape[-2:])
        noise = jax.vmap(lambda key: jax.random.gumbel(key, shape))(keys)
        level = jnp.argmax(logits[..., None, :, :] + noise, axis=-1)
        return accept_first(spec.constraint, observation, from_levels(spec.box, level))

    def export(self, state: DiscreteAramState) -> dict[str, Any]:
        """Return the actor: acceptance needs nothing else that was learnt."""
        return {"actor": state.trained.actor}

    def mode(
        self, state: DiscreteAramState, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return the most probable level of each entry."""
        logits = self.logits(state.trained.actor, spec, observation, preference)
        return from_levels(spec.box, jnp.argmax(logits, axis=-1))

    def samples(
        self,
        state: DiscreteAramState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw raw actions of the policy network, before acceptance."""
        logits = self.logits(state.trained.actor, spec, observation, preference)[..., None, :, :]
        shape = (*observation.shape[:-1], count, *logits.shape[-2:])
        noise = jax.random.gumbel(key, shape, jnp.float32)
        return from_levels(spec.box, jnp.argmax(logits + noise, axis=-1))

    # Remembering -------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions and one self-loop per rejected proposal, as ARAM does."""
        return self.mdp.remember(spec, observation, draw, outcome)

    def batch_fractions(self, state: DiscreteAramState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta."""
        return jnp.asarray([self.eta])

    # Learning ----------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> UpdateNoise:
        """Draw lambda and the Gumbel noise of all action samples."""
        preference_key, action_key, next_key = jax.random.split(key, 3)
        shape = (self.batch_size, spec.box.size, level_count(spec.box))
        return UpdateNoise(
            preference=jax.random.uniform(preference_key),
            action=jax.random.gumbel(action_key, (self.policy_draws, *shape)),
            next_action=jax.random.gumbel(next_key, shape),
        )

    def update(
        self, state: DiscreteAramState, spec: Spec, batch: Transition, noise: UpdateNoise
    ) -> tuple[DiscreteAramState, Metrics]:
        """Take one step of actor, critics and alpha on one minibatch, then move the target critic."""
        gradient, metrics = jax.grad(self.total_loss, has_aux=True)(state.trained, state, spec, batch, noise)
        return after_step(self, state, gradient), metrics

    def values(
        self, critic: Network, spec: Spec, observation: jax.Array, preference: jax.Array, level: jax.Array
    ) -> jax.Array:
        """Return (batch, twins, objectives); critics see each level as an entry of its own."""
        chosen = jax.nn.one_hot(level, level_count(spec.box)).reshape(*level.shape[:-1], -1)
        return q_values(critic, self.mdp.with_preference(observation, preference), chosen)

    def total_loss(
        self, trained: Trained, state: DiscreteAramState, spec: Spec, batch: Transition, noise: UpdateNoise
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of critic, policy and alpha losses; stop-gradients keep them apart."""
        preference = self.mdp.preferences(noise.preference)
        alpha = jax.lax.stop_gradient(jnp.exp(trained.log_alpha))
        next_logits = self.logits(
            jax.lax.stop_gradient(trained.actor), spec, batch.next_observation, preference
        )
        next_level = jnp.argmax(next_logits + noise.next_action, axis=-1)
        next_values = self.values(state.target_critic, spec, batch.next_observation, preference, next_level)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, None, 0, None, None))(
            batch.reward,
            batch.not_done,
            next_values,
            preference,
            negative_entropy(next_logits),
            alpha,
            self.gamma,
        )
        level = to_levels(spec.box, batch.action)
        values = self.values(trained.critic, spec, batch.observation, preference, level)
        per_twin = jax.vmap(jax.vmap(losses.critic_loss, (0, None, None)), (0, 0, None))(
            values, target, preference
        )
        critic_loss = jnp.mean(jnp.sum(per_twin, axis=1))

        logits = self.logits(trained.actor, spec, batch.observation, preference)
        drawn = jnp.argmax(jax.lax.stop_gradient(logits) + noise.action, axis=-1)
        frozen = jax.lax.stop_gradient(trained.critic)
        of_policy = jax.vmap(
            lambda one: jnp.min(
                self.values(frozen, spec, batch.observation, preference, one) @ preference, axis=-1
            )
        )(drawn)
        densities = jax.vmap(log_density, (None, 0))(logits, drawn)
        entropy = -negative_entropy(logits)
        policy_loss = jnp.mean(jax.vmap(score_loss, (1, 1))(of_policy, densities) - alpha * entropy)
        wanted = jnp.asarray(self.entropy_fraction * spec.box.size * math.log(level_count(spec.box)))
        alpha_loss = jnp.mean(
            jax.vmap(losses.alpha_loss, (None, 0, None))(trained.log_alpha, -entropy, wanted)
        )
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": jnp.mean(values @ preference),
            "entropy": jnp.mean(entropy),
            "alpha": alpha,
        }
        return critic_loss + policy_loss + alpha_loss, metrics
