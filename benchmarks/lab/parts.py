"""What might still be added to the default, or left out of it: a suite of variants that differ in one thing each.

`inbounds benchmark benchmarks/lab/parts.py:suite` trains the default and its variants: seeds 0 to 4, 200,000 steps, the
most informative experiments first. `--variants` and `--tasks` narrow it down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import optax

from benchmarks.strangers import lunar_lander
from inbounds.experiments import Cell, Suite, pairs
from inbounds.learners import aram
from inbounds.learners.aram import Aram
from inbounds.learners.step import Metrics, Spec
from inbounds.policies.networks import Network, affine, first_layer
from inbounds.replay import Transition

STEPS = 200_000
TASKS = ("halfcheetah", "ant", "hopper", "nsfnet", "bss5z", "lunarlander")


@dataclasses.dataclass(frozen=True)
class FallingAram(Aram):
    """The default with steps that fall in a straight line to a tenth, so that the last policy is a settled one."""

    planned_updates: int = STEPS
    """Updates over which the learning rate falls."""

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam with a learning rate that falls."""
        rate = self.learning_rate
        return optax.adam(optax.linear_schedule(rate, 0.1 * rate, self.planned_updates))


def normalised_q_values(critic: Network, observation: jax.Array, action: jax.Array) -> jax.Array:
    """Return the values of stacked critics whose hidden layers are normalised (mean 0, deviation 1) and rectified."""

    def values(network: Network, inputs: jax.Array) -> jax.Array:
        hidden = first_layer(network, inputs)
        for layer in network[1:]:
            centred = hidden - jnp.mean(hidden, axis=-1, keepdims=True)
            deviation = jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
            hidden = affine(layer, jax.nn.relu(centred / deviation))
        return hidden

    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.moveaxis(jax.vmap(values, (0, None))(critic, inputs), 0, 1)


@dataclasses.dataclass(frozen=True)
class LayerNormAram(Aram):
    """The default with normalised hidden layers in its critics."""

    def loss(
        self, params: Any, state: Any, spec: Spec, batch: Transition, noise: Any
    ) -> tuple[jax.Array, Metrics]:
        """Return ARAM's loss with such critics."""
        with mock.patch.object(aram, "q_values", normalised_q_values):  # while it is traced
            return super().loss(params, state, spec, batch, noise)


VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "layer-norm": ("layer-norm", {}, {}),
    "falling-steps": ("falling", {}, {}),
    "two-updates": ("aram", {}, {"updates_per_step": 2}),
    "one-preference": ("aram", {"preference": (0.9, 0.1)}, {}),
    "gamma-0.97": ("aram", {"gamma": 0.97}, {}),
    "penalty-from-20": ("aram", {"penalty": 20.0}, {}),
    "acceptance-0.95": ("aram", {"target_acceptance": 0.95}, {}),
    "entropy-at-once": ("aram", {"entropy_ramp": 1}, {}),
    "one-nat": ("aram", {"target_entropy": -1.0}, {}),
    "normalised": (
        "aram",
        {"backbone": "normalised", "entropy_ramp": 1, "penalty": 0.1, "target_acceptance": 0.95},
        {},
    ),
}
"""Learner, its settings and those of training, by the name of the variant."""


def cells() -> Iterator[Cell]:
    """Return the default, then every variant, on every task."""
    training = {"evaluate_every": 10_000, "capacity": STEPS}
    for variant, (learner, settings, changed) in {"": ("aram", {}, {}), **VARIANTS}.items():
        for task in TASKS:
            own = pairs(settings)
            more = pairs({**training, **changed})
            yield Cell(task, learner, "default", STEPS, variant=variant, settings=own, training=more)


suite = Suite(
    "parts",
    "What might still be added to the default, or left out of it?",
    cells,
    tasks={"lunarlander": lunar_lander},
    learners={"falling": FallingAram, "layer-norm": LayerNormAram},
)
