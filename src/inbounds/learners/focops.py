"""FOCOPS plus projection: the constraint as a cost of a constrained MDP, the control for hard constraints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.learners.costs import hinge_cost, published_cost
from inbounds.learners.learner import Learner, Memory, Metrics, Outcome, Spec
from inbounds.learners.networks import init_network
from inbounds.learners.on_policy import Rewarded, advantages, discounted_from_starts
from inbounds.learners.settings import NetworkSettings, with_presets
from inbounds.policies.acceptance import Draw
from inbounds.policies.gaussian import Gaussian, sample
from inbounds.policies.heads import DiagonalGaussian
from inbounds.policies.networks import Network, apply_network
from inbounds.replay import Transition

ROLLOUT = "rollout"
METRICS = ("policy_loss", "critic_loss", "value", "divergence", "multiplier", "cost", "entropy")

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"hidden": (64, 64), "cost": "published"},
}


class Trained(NamedTuple):
    """What gradients change, under one optimiser."""

    actor: Network
    log_std: jax.Array
    value: Network
    cost_value: Network


class FocopsState(NamedTuple):
    """Everything that changes while learning, and nothing else."""

    trained: Trained
    optimiser: optax.OptState
    multiplier: jax.Array
    """nu, the price of the cost."""
    cost: jax.Array
    """The last estimate of an episode's discounted cost."""
    metrics: Metrics


class Rows(NamedTuple):
    """A rollout, or a part of it, as the losses see it."""

    observation: jax.Array
    action: jax.Array
    """In [-1, 1] where it lies in the box; it may lie outside."""
    mean: jax.Array
    """Of the policy that acted."""
    log_std: jax.Array
    advantage: jax.Array
    """A_r - nu A_c, each standardised."""
    returns: jax.Array
    cost_returns: jax.Array


LARGEST_LOG_RATIO = 30.0
"""Beyond it the squared norm of the gradient overflows float32, and clipping the norm would divide by infinity."""


def log_density(proposal: Gaussian, action: jax.Array) -> jax.Array:
    """Return log N(a; mean, std) of independent entries."""
    noise = (action - proposal.mean) * jnp.exp(-proposal.log_std)
    return jnp.sum(-0.5 * (noise**2 + math.log(2 * math.pi)) - proposal.log_std, axis=-1)


def divergence(new: Gaussian, old: Gaussian) -> jax.Array:
    """Return KL(new || old) of two Gaussians with independent entries."""
    ratio = jnp.exp(2.0 * (new.log_std - old.log_std))
    shift = ((new.mean - old.mean) * jnp.exp(-old.log_std)) ** 2
    return jnp.sum(0.5 * (ratio + shift - 1.0) - (new.log_std - old.log_std), axis=-1)


def focops_loss(
    new_divergence: jax.Array, log_ratio: jax.Array, advantage: jax.Array, width: float, trust: float
) -> jax.Array:
    """Return 1[KL <= eta] (KL(pi || pi_old) - (1 / lambda) (pi / pi_old) A) (FOCOPS, arXiv:2002.06506).

    Args:
        new_divergence: KL(pi || pi_old) at the state.
        log_ratio: log pi(a|s) - log pi_old(a|s).
        advantage: A_r - nu A_c.
        width: lambda, the temperature of the step.
        trust: eta, the divergence beyond which a state no longer counts.
    """
    is_near = jax.lax.stop_gradient(new_divergence) <= trust
    # The ratio is masked before the exponential: the gradient of a branch that `where` discards is 0 * inf = NaN
    # where the exponential overflows, which projected actions many standard deviations from the mean bring about.
    ratio = jnp.exp(jnp.minimum(jnp.where(is_near, log_ratio, 0.0), LARGEST_LOG_RATIO))
    return jnp.where(is_near, new_divergence - ratio * advantage / width, 0.0)


def next_multiplier(multiplier: jax.Array, cost: jax.Array, rate: float, largest: float) -> jax.Array:
    """Return nu + rate (J_c - limit), kept in [0, largest]; costs are counted from their limit, which is 0."""
    return jnp.clip(multiplier + rate * cost, 0.0, largest)


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Focops(NetworkSettings, Learner):
    """FOCOPS (Zhang et al. 2020), whose drawn actions are projected before they are executed.

    The constraint enters as the cost of a constrained MDP: E[sum_t gamma^t c_t] <= 0 with c_t the excess of
    the drawn action (`cost`). It binds on average over time, never for a single action, which is why each one is
    projected.
    """

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the settings of the method's own code."""
    trace: float = 0.95
    """The lambda of generalised advantages, for reward and cost."""
    rollout: int = 2_048
    """Environment steps of a seed between two updates."""
    batch_size: int = 64
    """Steps per gradient step."""
    epochs: int = 10
    """How often each step is used."""
    width: float = 1.5
    """lambda, the temperature of the policy step."""
    trust: float = 0.02
    """eta, the divergence beyond which a state no longer counts, and after which epochs end."""
    multiplier_rate: float = 0.01
    """Step size of nu."""
    largest_multiplier: float = 2.0
    """Where nu stops."""
    initial_log_std: float = -0.5
    """Logarithm of the scale at first, the same in every state."""
    value_decay: float = 1e-3
    """Price of the squared weights of both values."""
    gradient_limit: float = 40.0
    """Largest norm of the policy's gradient."""
    cost: Literal["hinge", "published"] = "hinge"
    """What an action is charged, in the units of the set's rows. `hinge`: what it breaks of each row, box included,
    added up. `published`: where one row stands beside the box (Reacher, HalfCheetah, Hopper, Ant), its left-hand side
    less the bound, negative inside; where several do (NSFnet, BSS), for which nothing is published, their hinges."""
    stored: Literal["raw", "projected"] = "raw"
    """Whose likelihood is compared: the drawn action's, or as published that of its projection."""

    # Shapes -----------------------------------------------------------------------------------------------

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the only buffer, which holds one rollout."""
        return (ROLLOUT,)

    @property
    def objectives(self) -> int:
        """Return three: reward, cost, and whether the episode ended, which a rollout has to know."""
        return 3

    def init(self, key: jax.Array, spec: Spec) -> FocopsState:
        """Return fresh networks, whose last layers are a tenth of the usual, and a multiplier of 0."""
        keys = jax.random.split(key, 3)

        def network(one: jax.Array, outputs: int) -> Network:
            *inner, last = init_network(one, (spec.observation_size, *self.hidden, outputs), spec.inputs)
            return (*inner, last._replace(weight=0.1 * last.weight))

        trained = Trained(
            actor=network(keys[0], spec.box.size),
            log_std=jnp.full(spec.box.size, self.initial_log_std, jnp.float32),
            value=network(keys[1], 1),
            cost_value=network(keys[2], 1),
        )
        nothing = jnp.zeros((), jnp.float32)
        return FocopsState(
            trained, self.optimiser().init(trained), nothing, nothing, dict.fromkeys(METRICS, nothing)
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over policy and values together: one pass over all parameters."""
        return optax.adam(self.learning_rate)

    # Acting -----------------------------------------------------------------------------------------------

    def head(self, spec: Spec) -> DiagonalGaussian:
        """Return the policy head."""
        return DiagonalGaussian()

    def proposal(self, trained: Trained, observation: jax.Array) -> Gaussian:
        """Return the Gaussian at each state: a mean inside the box, a scale that is the same everywhere."""
        mean = jnp.tanh(apply_network(trained.actor, observation))
        return Gaussian(mean, jnp.broadcast_to(trained.log_std, mean.shape))

    def act(
        self,
        state: FocopsState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Draw from the Gaussian, from the first step on, and project every draw."""
        shape = (observation.shape[1], spec.box.size)
        proposal = jax.vmap(self.proposal)(state.trained, observation)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        raw = spec.box.rescale_unbounded(sample(proposal, noise))
        is_feasible = spec.constraint.contains(observation, raw)
        return Draw(
            action=spec.constraint.project(observation, raw),
            proposals=raw[..., None, :],
            is_rejected=~is_feasible[..., None],
            is_projected=jnp.ones(is_feasible.shape, bool),
            acceptance=is_feasible.astype(jnp.float32),
        )

    def export(self, state: FocopsState) -> dict[str, Any]:
        """Return what the Gaussian needs."""
        return {"actor": state.trained.actor, "log_std": state.trained.log_std}

    # Remembering ------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return one transition per environment, with the cost of the drawn action beside its reward."""
        raw = draw.proposals[:, 0]
        is_last = jnp.zeros_like(outcome.reward) if outcome.is_last is None else outcome.is_last
        entries = [outcome.reward, self.cost_of(spec, observation, raw), is_last.astype(jnp.float32)]
        transition = Transition(
            observation,
            raw if self.stored == "raw" else draw.action,
            jnp.stack(entries, axis=-1),
            outcome.not_done,
            outcome.next_observation,
        )
        return {ROLLOUT: Memory(transition, None)}

    def cost_of(self, spec: Spec, observation: jax.Array, action: jax.Array) -> jax.Array:
        """Return the cost that the settings name."""
        return (hinge_cost if self.cost == "hinge" else published_cost)(spec, observation, action)

    # Learning ---------------------------------------------------------------------------------------------

    def update(
        self, state: FocopsState, spec: Spec, batch: Transition, noise: jax.Array
    ) -> tuple[FocopsState, Metrics]:
        """Move the multiplier, then policy and values over several epochs of one rollout (time, environments)."""
        trained = state.trained
        seen = {
            name: tuple(
                apply_network(network, where)[..., 0] for where in (batch.observation, batch.next_observation)
            )
            for name, network in (("reward", trained.value), ("cost", trained.cost_value))
        }
        is_last = batch.reward[..., 2] > 0
        rewards = Rewarded(batch.reward[..., 0], batch.not_done, is_last, *seen["reward"])
        costs = Rewarded(batch.reward[..., 1], batch.not_done, is_last, *seen["cost"])
        cost = discounted_from_starts(costs, self.gamma, state.cost)
        multiplier = next_multiplier(state.multiplier, cost, self.multiplier_rate, self.largest_multiplier)
        gain, loss = (advantages(one, self.gamma, self.trace) for one in (rewards, costs))
        old = self.proposal(trained, batch.observation)
        rows = Rows(
            batch.observation,
            spec.box.normalise(batch.action),
            old.mean,
            old.log_std,
            standardised(gain) - multiplier * standardised(loss),
            gain + rewards.value,
            loss + costs.value,
        )
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)
        trained, optimiser, metrics = self.epochs_over(trained, state.optimiser, flat, noise)
        metrics = metrics | {"multiplier": multiplier, "cost": cost, "value": jnp.mean(rewards.value)}
        return FocopsState(trained, optimiser, multiplier, cost, metrics), metrics

    def epochs_over(
        self, trained: Trained, optimiser: optax.OptState, rows: Rows, key: jax.Array
    ) -> tuple[Trained, optax.OptState, Metrics]:
        """Take gradient steps on shuffled parts of the rollout until the policy has moved far enough."""
        count = rows.advantage.shape[0]
        size = min(self.batch_size, count)
        parts = count // size

        def one_step(carry: Any, part: Rows) -> tuple[Any, Metrics]:
            trained, optimiser = carry
            gradient, metrics = jax.grad(self.total_loss, has_aux=True)(trained, part)
            policy = {"actor": gradient.actor, "log_std": gradient.log_std}
            length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(policy)))
            scale = jnp.minimum(1.0, self.gradient_limit / jnp.maximum(length, 1e-12))
            policy = jax.tree.map(lambda leaf: scale * leaf, policy)
            change, optimiser = self.optimiser().update(gradient._replace(**policy), optimiser)
            return (optax.apply_updates(trained, change), optimiser), metrics

        def one_epoch(carry: Any, epoch_key: jax.Array) -> tuple[Any, Metrics]:
            before, is_over = carry
            order = jax.random.permutation(epoch_key, count)[: parts * size].reshape(parts, size)
            shuffled = jax.tree.map(lambda leaf: leaf[order], rows)
            moved, metrics = jax.lax.scan(one_step, before, shuffled)
            after = jax.tree.map(lambda new, old: jnp.where(is_over, old, new), moved, before)
            new = self.proposal(after[0], rows.observation)
            far = jnp.mean(divergence(new, Gaussian(rows.mean, rows.log_std)))
            last = {name: values[-1] for name, values in metrics.items()} | {"divergence": far}
            return (after, is_over | (far > self.trust)), last

        start = ((trained, optimiser), jnp.zeros((), bool))
        ((trained, optimiser), _), metrics = jax.lax.scan(
            one_epoch, start, jax.random.split(key, self.epochs)
        )
        return trained, optimiser, {name: values[-1] for name, values in metrics.items()}

    def total_loss(self, trained: Trained, rows: Rows) -> tuple[jax.Array, Metrics]:
        """Return the losses of policy, value and cost value; they share no parameter."""
        new, old = self.proposal(trained, rows.observation), Gaussian(rows.mean, rows.log_std)
        log_ratio = log_density(new, rows.action) - log_density(old, rows.action)
        policy_loss = jnp.mean(
            focops_loss(divergence(new, old), log_ratio, rows.advantage, self.width, self.trust)
        )
        critic_loss = jnp.zeros(())
        for network, returns in ((trained.value, rows.returns), (trained.cost_value, rows.cost_returns)):
            missed = apply_network(network, rows.observation)[..., 0] - returns
            weights = sum(jnp.sum(layer.weight**2) for layer in network)
            critic_loss = critic_loss + jnp.mean(missed**2) + self.value_decay * weights
        entropy = jnp.sum(trained.log_std) + 0.5 * trained.log_std.size * math.log(2 * math.pi * math.e)
        metrics = {"policy_loss": policy_loss, "critic_loss": critic_loss, "entropy": entropy}
        return policy_loss + critic_loss, metrics


def standardised(values: jax.Array) -> jax.Array:
    """Return values with mean 0 and deviation 1."""
    return (values - jnp.mean(values)) / (jnp.std(values) + 1e-8)
