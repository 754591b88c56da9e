"""IAR-A2C: integer actions from an argmax flow, invalid ones rejected by a membership test alone.

An argmax flow (arXiv:2102.05379) is a distribution over integers. Each of d entries with K levels gets K real numbers
v, drawn from a conditional flow; the level of the largest is the action. pi(a|s) is the integral of p(v|s) over all v
with that argmax, which only bounds can give.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners.learner import Learner, Memory, Metrics, Outcome, Spec
from inbounds.learners.networks import init_flow, init_network
from inbounds.learners.on_policy import Rewarded, advantages
from inbounds.learners.settings import require_valid, with_presets
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.box import from_levels, level_count, to_levels
from inbounds.policies.gaussian import Gaussian, gaussian_of
from inbounds.policies.layers import Flow, to_action, to_action_with_slope, to_latent
from inbounds.policies.networks import Network, apply_network
from inbounds.replay import Transition


class ArgmaxFlow(NamedTuple):
    """p(v|s): a conditional Gaussian and a flow behind it; q(v|a,s): where v may have come from."""

    base: Network
    flow: Flow
    posterior: Flow


class Bounds(NamedTuple):
    """Estimates of log pi(a|s): the lower bound E_q[log w] and the upper bound log E_q[w^2] / 2, w = p / q."""

    lower: jax.Array
    upper: jax.Array

    @property
    def middle(self) -> jax.Array:
        """Return the mean of both bounds."""
        return 0.5 * (self.lower + self.upper)


def init_argmax_flow(
    key: jax.Array,
    observation: int,
    entries: int,
    levels: int,
    hidden: tuple[int, ...],
    layers: int,
    posterior_layers: int,
) -> ArgmaxFlow:
    """Return a fresh policy: nearly uniform, since all numbers of an entry start with the same base."""
    base_key, flow_key, posterior_key = jax.random.split(key, 3)
    size = entries * levels
    *inner, last = init_network(base_key, (observation, *hidden, 2 * size))
    return ArgmaxFlow(
        base=(*inner, last._replace(weight=0.1 * last.weight)),
        flow=init_flow(flow_key, size, observation, layers, hidden),
        posterior=init_flow(posterior_key, size, observation + size, posterior_layers, hidden),
    )


def base_distribution(policy: ArgmaxFlow, observation: jax.Array) -> Gaussian:
    """Return the conditional Gaussian."""
    return gaussian_of(apply_network(policy.base, observation))


def log_normal(noise: jax.Array) -> jax.Array:
    """Return the log-density of standard normal entries."""
    return jnp.sum(-0.5 * (noise**2 + math.log(2 * math.pi)), axis=-1)


def drawn_levels(policy: ArgmaxFlow, observation: jax.Array, noise: jax.Array, levels: int) -> jax.Array:
    """Return the levels (..., entries) that noise (..., entries * levels) leads to."""
    base = base_distribution(policy, observation)
    numbers = to_action(policy.flow, base.mean + jnp.exp(base.log_std) * noise, observation)
    return jnp.argmax(numbers.reshape(*numbers.shape[:-1], -1, levels), axis=-1)


def log_numbers(policy: ArgmaxFlow, observation: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return log p(v|s)."""
    base = base_distribution(policy, observation)
    latent = to_latent(policy.flow, numbers, observation)
    noise = (latent.value - base.mean) * jnp.exp(-base.log_std)
    return log_normal(noise) - jnp.sum(base.log_std, axis=-1) + jnp.asarray(latent.log_slope)


class Explained(NamedTuple):
    """Numbers v whose argmax is a given action, and log q(v|a,s)."""

    numbers: jax.Array
    log_density: jax.Array


def explained(
    policy: ArgmaxFlow, observation: jax.Array, level: jax.Array, noise: jax.Array, levels: int
) -> Explained:
    """Draw v from q(v|a,s): a flow makes u, and what exceeds the number T of the chosen level is pressed below it.

    v_k = T - softplus(T - u_k) for all other levels k of an entry, whose slope is sigmoid(T - u_k).
    """
    chosen = jax.nn.one_hot(level, levels)
    condition = jnp.concatenate([observation, chosen.reshape(*level.shape[:-1], -1)], axis=-1)
    made = to_action_with_slope(policy.posterior, noise, condition)
    free = made.value.reshape(*level.shape, levels)
    top = jnp.sum(chosen * free, axis=-1, keepdims=True)
    below = top - free
    numbers = jnp.where(chosen > 0, free, top - jax.nn.softplus(below))
    slope = jnp.sum(jnp.where(chosen > 0, 0.0, jax.nn.log_sigmoid(below)), axis=(-2, -1))
    return Explained(numbers.reshape(*level.shape[:-1], -1), log_normal(noise) - made.log_slope - slope)


def log_density_bounds(
    policy: ArgmaxFlow, observation: jax.Array, level: jax.Array, noise: jax.Array, levels: int
) -> Bounds:
    """Return bounds of log pi(a|s) from several draws of q.

    Args:
        policy: the flow and its posterior.
        observation: (..., observation size).
        level: (..., entries).
        noise: (draws, ..., entries * levels), standard normal.
        levels: K.
    """
    spread = (noise.shape[0], *level.shape[:-1])
    seen = jnp.broadcast_to(observation, (*spread, observation.shape[-1]))
    chosen = jnp.broadcast_to(level, (*spread, level.shape[-1]))
    where = explained(policy, seen, chosen, noise, levels)
    log_weight = log_numbers(policy, seen, where.numbers) - where.log_density
    largest = jax.nn.logsumexp(2.0 * log_weight, axis=0) - math.log(noise.shape[0])
    return Bounds(jnp.mean(log_weight, axis=0), 0.5 * largest)


ROLLOUT = "rollout"
METRICS = ("policy_loss", "critic_loss", "value", "entropy_bound", "valid_fraction")

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"hidden": (128,), "learning_rate": 3e-4, "rollout": 64, "layers": 4, "posterior_layers": 2},
}


class Trained(NamedTuple):
    """What gradients change, under one optimiser."""

    policy: ArgmaxFlow
    value: Network


class IarState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    trained: Trained
    optimiser: optax.OptState
    metrics: Metrics


class Rows(NamedTuple):
    """A rollout as the losses see it."""

    observation: jax.Array
    level: jax.Array
    advantage: jax.Array
    returns: jax.Array


def relative(spec: Spec, observation: jax.Array) -> jax.Array:
    """Return scaled observations; the first layers of these networks do not scale them themselves."""
    if spec.inputs is None:
        return observation
    return (observation - spec.inputs.shift) / spec.inputs.scale


def valid_score(log_density: jax.Array, others: jax.Array, is_valid: jax.Array) -> jax.Array:
    """Return what has the gradient of log pi'(a|s), pi' = pi restricted to valid actions.

    grad log pi'(a) = grad log pi(a) - E_{pi'}[grad log pi], and the expectation is the mean over the n valid ones
    of N further draws from pi. The published code divides by n^2 / N instead, which is right only where every draw
    is valid. Where no draw is valid there is nothing to correct with, and the score is log pi(a).

    Args:
        log_density: log pi(a|s) of the executed action.
        others: (..., N), log pi of further draws.
        is_valid: (..., N), which of them the oracle accepts.
    """
    count = jnp.sum(is_valid, axis=-1)
    mean = jnp.sum(jnp.where(is_valid, others, 0.0), axis=-1) / jnp.maximum(count, 1)
    return log_density - mean


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Iar(Learner):
    """IAR-A2C (Chen et al. 2023): advantage actor-critic on pi'(a|s) = pi(a|s) / Z(s) for valid a.

    Proposals are drawn together and tested by the oracle; the first valid one acts. Of the set the learner needs
    membership alone, except that a state without a single valid proposal takes the constraint's nearest valid action.
    """

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the settings of the method's own code."""
    proposals: int = 128
    """Actions that are drawn and tested at each state."""
    hidden: tuple[int, ...] = (128,)
    """Width of the hidden layers, of the flow's networks too."""
    layers: int = 4
    """Coupling layers of the policy."""
    posterior_layers: int = 2
    """Coupling layers of the posterior that bounds its density."""
    density_draws: int = 4
    """Draws of the posterior per density."""
    correction_draws: int = 16
    """Further actions per state that estimate the gradient of Z(s)."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    gradient_limit: float = 0.5
    """Largest norm of a gradient."""
    gamma: float = 0.99
    """Discount factor."""
    trace: float = 1.0
    """The lambda of generalised advantages."""
    rollout: int = 64
    """Environment steps of a seed between two updates."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot learn."""
        require_valid(self)

    # Shapes ------------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Return the steps of one update: the whole rollout."""
        return self.rollout

    @property
    def evaluates_samples(self) -> bool:
        """Return True: the policy is pi', which only rejection samples; the flow at its mean is rarely valid."""
        return True

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the only buffer, which holds one rollout."""
        return (ROLLOUT,)

    @property
    def objectives(self) -> int:
        """Return two: the reward, and whether the episode ended, which a rollout has to know."""
        return 2

    def init(self, key: jax.Array, spec: Spec) -> IarState:
        """Return a fresh flow, value and optimiser; ranges that are not whole are refused."""
        policy_key, value_key = jax.random.split(key)
        trained = Trained(
            policy=init_argmax_flow(
                policy_key,
                spec.observation_size,
                spec.box.size,
                level_count(spec.box),
                self.hidden,
                self.layers,
                self.posterior_layers,
            ),
            value=init_network(value_key, (spec.observation_size, *self.hidden, 1)),
        )
        nothing = jnp.zeros((), jnp.float32)
        return IarState(trained, self.optimiser().init(trained), dict.fromkeys(METRICS, nothing))

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam on bounded gradients."""
        return optax.chain(optax.clip_by_global_norm(self.gradient_limit), optax.adam(self.learning_rate))

    # Acting ------------------------------------------------------------------------------------------------

    def drawn(
        self, policy: ArgmaxFlow, spec: Spec, observation: jax.Array, key: jax.Array, count: int
    ) -> jax.Array:
        """Draw levels (..., count, entries) from the policy."""
        levels = level_count(spec.box)
        seen = jnp.broadcast_to(
            relative(spec, observation)[..., None, :],
            (*observation.shape[:-1], count, observation.shape[-1]),
        )
        noise = jax.random.normal(key, (*seen.shape[:-1], spec.box.size * levels), jnp.float32)
        return drawn_levels(policy, seen, noise, levels)

    def act(
        self,
        state: IarState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Draw all proposals at once, from the first step on, and take the first valid one."""

        def one_seed(policy: ArgmaxFlow, seen: jax.Array, key: jax.Array) -> jax.Array:
            return from_levels(spec.box, self.drawn(policy, spec, seen, key, self.proposals))

        proposals = jax.vmap(one_seed)(state.trained.policy, observation, keys)
        return accept_first(spec.constraint, observation, proposals)

    def export(self, state: IarState) -> dict[str, Any]:
        """Return the flow; the posterior is only needed for learning."""
        return {"base": state.trained.policy.base, "flow": state.trained.policy.flow}

    def mode(self, state: IarState, spec: Spec, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Return the action at the Gaussian's mean, before it is tested."""
        seen = relative(spec, observation)
        noise = jnp.zeros_like(base_distribution(state.trained.policy, seen).mean)
        return from_levels(spec.box, drawn_levels(state.trained.policy, seen, noise, level_count(spec.box)))

    def samples(
        self,
        state: IarState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw raw actions of the flow, before they are tested."""
        return from_levels(spec.box, self.drawn(state.trained.policy, spec, observation, key, count))

    # Remembering -------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return one transition per environment."""
        is_last = jnp.zeros_like(outcome.reward) if outcome.is_last is None else outcome.is_last
        transition = Transition(
            observation,
            draw.action,
            jnp.stack([outcome.reward, is_last.astype(jnp.float32)], axis=-1),
            outcome.not_done,
            outcome.next_observation,
        )
        return {ROLLOUT: Memory(transition, None)}

    # Learning ----------------------------------------------------------------------------------------------

    def update(
        self, state: IarState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[IarState, Metrics]:
        """Take one step of flow, posterior and value on a rollout (time, environments)."""
        value, next_value = (
            apply_network(state.trained.value, relative(spec, seen))[..., 0]
            for seen in (batch.observation, batch.next_observation)
        )
        rollout = Rewarded(batch.reward[..., 0], batch.not_done, batch.reward[..., 1] > 0, value, next_value)
        gain = advantages(rollout, self.gamma, self.trace)
        rows = Rows(batch.observation, to_levels(spec.box, batch.action), gain, gain + value)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        gradient, metrics = jax.grad(self.total_loss, has_aux=True)(state.trained, spec, flat, noise)
        change, optimiser = self.optimiser().update(gradient, state.optimiser)
        return IarState(optax.apply_updates(state.trained, change), optimiser, metrics), metrics

    def total_loss(
        self, trained: Trained, spec: Spec, rows: Rows, key: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the losses of the policy, of the value, and of the posterior on the policy's own draws."""
        draw_key, own_key, other_key = jax.random.split(key, 3)
        levels = level_count(spec.box)
        width = spec.box.size * levels
        frozen = jax.lax.stop_gradient(trained.policy)
        drawn = self.drawn(frozen, spec, rows.observation, draw_key, self.correction_draws)
        seen = jnp.broadcast_to(rows.observation[:, None], (*drawn.shape[:-1], rows.observation.shape[-1]))
        is_valid = spec.constraint.contains(seen, from_levels(spec.box, drawn))
        own_noise = jax.random.normal(own_key, (self.density_draws, *rows.advantage.shape, width))
        other_noise = jax.random.normal(other_key, (self.density_draws, *drawn.shape[:-1], width))
        # The policy's gradient must not reach the posterior: it could lower a density by explaining it badly.
        policy = trained.policy._replace(posterior=frozen.posterior)
        observation, seen = relative(spec, rows.observation), relative(spec, seen)
        own = log_density_bounds(policy, observation, rows.level, own_noise, levels).middle
        others = log_density_bounds(policy, seen, drawn, other_noise, levels).middle
        bounds = log_density_bounds(trained.policy, seen[:, 0], drawn[:, 0], other_noise[:, :, 0], levels)
        gain = (rows.advantage - jnp.mean(rows.advantage)) / (jnp.std(rows.advantage) + 1e-8)
        policy_loss = -jnp.mean(gain * valid_score(own, others, is_valid))
        critic_loss = 0.5 * jnp.mean((apply_network(trained.value, observation)[:, 0] - rows.returns) ** 2)
        explanation = -jnp.mean(bounds.lower)
        metrics = {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "value": jnp.mean(rows.returns - rows.advantage),
            "entropy_bound": explanation,
            "valid_fraction": jnp.mean(is_valid, dtype=jnp.float32),
        }
        return policy_loss + critic_loss + explanation, metrics
