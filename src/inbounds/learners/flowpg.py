"""FlowPG: DDPG in the latent cube of a flow that was trained beforehand to fill the feasible set."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Metrics, Spec, project_proposals
from inbounds.learners.networks import init_flow
from inbounds.learners.settings import with_presets
from inbounds.learners.td3 import DeterministicActorCritic, DeterministicState, TargetAction
from inbounds.policies.acceptance import Draw
from inbounds.policies.heads import ThroughFlow
from inbounds.policies.layers import Flow, condition_of, entries_read, flow_loss, to_action, to_latent

JUDGED = 2_048
"""Samples on which a trained flow is evaluated."""

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "learning_rate": 1e-3,
        "hidden": (400, 300),
        "batch_size": 100,
        "flow_learning_rate": 1e-5,
        "flow_rate_left": 1.0,
        "flow_steps": 195_000,
        "flow_samples": 500_000,
        "flow_width": 1e-4,
        "flow_gradient_limit": 0.1,
    },
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class FlowPg(DeterministicActorCritic):
    """FlowPG (Brahmanage et al. 2023): a = g(mu(s), y(s)), g a conditional flow that is frozen while learning.

    Before the first step the flow learns, by maximum likelihood, to map the cube [-1, 1]^d onto C(s), from
    feasible samples; y(s) are the entries of the observation that the constraint reads. Then DDPG learns in
    the cube: noise is added to the latent, gradients pass through the flow, and what the flow leaves
    infeasible is projected.
    """

    smoothing: float = 0.0
    policy_delay: int = 1
    critics: int = 1
    flow_layers: int = 6
    """Coupling layers."""
    flow_hidden: tuple[int, ...] = (256, 256)
    """Width of the networks inside a coupling layer."""
    flow_steps: int = 10_000
    """Gradient steps of the flow's training."""
    flow_samples: int = 65_536
    """Feasible samples to train on."""
    flow_batch_size: int = 256
    """Samples per gradient step."""
    flow_learning_rate: float = 1e-3
    """Adam's step size at the beginning."""
    flow_rate_left: float = 0.01
    """Fraction of it that is left at the end, along a cosine; 1 keeps it as it is."""
    flow_gradient_limit: float = 1.0
    """Largest norm of a gradient."""
    flow_width: float = 0.02
    """Width of the soft walls of the cube."""
    condition_range: tuple[float, float] = (-10.0, 10.0)
    """Values of the observed entries for which the flow is trained; others are extrapolated. The published code has
    (-20, 20) for HalfCheetah's velocities and (-10, 10) for Hopper's."""

    def __post_init__(self) -> None:
        """Refuse a flow that cannot be trained."""
        super().__post_init__()
        if self.condition_range[0] >= self.condition_range[1]:
            raise ConfigurationError(
                f"condition_range={self.condition_range} is empty. Put the lower end first."
            )

    # The flow ---------------------------------------------------------------------------------------------

    def head(self, spec: Spec) -> ThroughFlow:
        """Return the head that maps the latent through the flow."""
        return ThroughFlow(condition_range=self.condition_range)

    def condition(self, spec: Spec, observation: jax.Array) -> jax.Array:
        """Return y(s)."""
        return jnp.asarray(condition_of(spec.constraint, observation, self.condition_range))

    def feasible_samples(self, key: jax.Array, spec: Spec, count: int) -> tuple[jax.Array, jax.Array]:
        """Draw observations whose entries are uniform where the constraint reads them, and an action for each."""
        observation_key, action_key = jax.random.split(key)
        places = entries_read(spec.constraint, spec.observation_size)
        low, high = self.condition_range
        read = jax.random.uniform(observation_key, (count, len(places)), minval=low, maxval=high)
        observation = jnp.zeros((count, spec.observation_size)).at[:, places].set(read)
        action = spec.constraint.sample(action_key, observation, dimension=spec.box.size)
        # Entries drawn at random may describe states without any allowed action: others are repeated instead.
        has_action = jnp.all(jnp.isfinite(action), axis=-1)
        rows = jnp.argsort(~has_action)[jnp.arange(count) % jnp.maximum(jnp.sum(has_action), 1)]
        return observation[rows], action[rows]

    def init_layer(self, key: jax.Array, spec: Spec) -> dict[str, Any]:
        """Train the flow on feasible samples; every seed has samples and a flow of its own."""
        flow_key, sample_key, batch_key, evaluation_key = jax.random.split(key, 4)
        observation, action = self.feasible_samples(sample_key, spec, self.flow_samples)
        condition, squashed = self.condition(spec, observation), spec.box.normalise(action)
        flow = init_flow(flow_key, spec.box.size, condition.shape[-1], self.flow_layers, self.flow_hidden)
        schedule = optax.cosine_decay_schedule(
            self.flow_learning_rate, self.flow_steps, alpha=self.flow_rate_left
        )
        optimiser = optax.chain(optax.clip_by_global_norm(self.flow_gradient_limit), optax.adam(schedule))

        def step(
            carry: tuple[Flow, optax.OptState], one: jax.Array
        ) -> tuple[tuple[Flow, optax.OptState], None]:
            flow, memory = carry
            rows = jax.random.randint(one, (self.flow_batch_size,), 0, self.flow_samples)
            gradient = jax.grad(flow_loss)(flow, squashed[rows], condition[rows], self.flow_width)
            change, memory = optimiser.update(gradient, memory)
            return (optax.apply_updates(flow, change), memory), None

        (flow, _), _ = jax.lax.scan(
            step, (flow, optimiser.init(flow)), jax.random.split(batch_key, self.flow_steps)
        )
        return self.evaluated(flow, evaluation_key, spec)

    def evaluated(self, flow: Flow, key: jax.Array, spec: Spec) -> dict[str, Any]:
        """Return the flow, the feasible fraction of what it makes of the cube, and of the set that it reaches."""
        sample_key, latent_key = jax.random.split(key)
        observation, action = self.feasible_samples(sample_key, spec, JUDGED)
        condition = self.condition(spec, observation)
        latent = jax.random.uniform(latent_key, action.shape, minval=-1.0, maxval=1.0)
        made = spec.box.rescale(to_action(flow, latent, condition))
        found = to_latent(flow, spec.box.normalise(action), condition).value
        return {
            "flow": flow,
            "accuracy": jnp.mean(spec.constraint.contains(observation, made), dtype=jnp.float32),
            "recall": jnp.mean(jnp.all(jnp.abs(found) <= 1.0, axis=-1), dtype=jnp.float32),
        }

    def layer_metrics(self, layer: dict[str, Any]) -> Metrics:
        """Report how well the flow fits the set."""
        return {"flow_accuracy": layer["accuracy"], "flow_recall": layer["recall"]}

    # Acting and learning ----------------------------------------------------------------------------------

    def draw(self, layer: dict[str, Any], spec: Spec, observation: jax.Array, squashed: jax.Array) -> Draw:
        """Send the noisy latents of all seeds through their flows and project what is still infeasible."""

        def one_seed(own: dict[str, Any], seen: jax.Array, latent: jax.Array) -> jax.Array:
            return spec.box.rescale(self.bounded(own, spec, seen, latent))

        action = jax.vmap(one_seed)(layer, observation, squashed)
        return project_proposals(spec.constraint, observation, action[..., None, :])

    def target_action(
        self, state: DeterministicState, spec: Spec, observation: jax.Array, noise: jax.Array
    ) -> TargetAction:
        """Return g(mu_bar(s') + noise), not projected; DDPG has no noise here."""
        latent = jnp.clip(self.squashed(state.target_actor, observation) + noise, -1.0, 1.0)
        return TargetAction(self.bounded(state.layer, spec, observation, latent), {})

    def samples(
        self,
        state: DeterministicState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Return the flow's action `count` times, without noise and before any projection."""
        action = self.mode(state, spec, observation, preference)
        return jnp.broadcast_to(action[..., None, :], (*action.shape[:-1], count, action.shape[-1]))
