"""Add a method in one file: TD3 whose reward is lowered by the distance that each action had to be projected.

Run it with `python examples/add_a_learner.py`; it trains on Reacher for a minute, writes runs/shaped-reacher, exports
the policy, acts with it in NumPy and audits it.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Memory, Outcome, Spec
from inbounds.learners.registry import LEARNERS
from inbounds.learners.settings import with_presets
from inbounds.learners.td3 import Td3
from inbounds.policies.acceptance import Draw

PRESETS = {"default": {}, "gentle": {"weight": 1 / 7}}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class ShapedTd3(Td3):
    """TD3 on the reward r - k |a - Pi_C(a)|: every correction costs (Lin et al. 2021)."""

    weight: float = 1.0
    """k, the price of a unit of correction."""

    def __post_init__(self) -> None:
        """Refuse a price that would reward corrections."""
        super().__post_init__()
        if self.weight < 0:
            raise ConfigurationError(f"weight={self.weight} rewards them. Use 0 or more.")

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Store the executed action with the reward less the price of its correction."""
        moved = jnp.linalg.norm(draw.proposals[:, 0] - draw.action, axis=-1)
        charged = outcome._replace(reward=outcome.reward - self.weight * moved)
        return super().remember(spec, observation, draw, charged)


LEARNERS["shaped"] = ShapedTd3  # in the library: a line in learners/registry.py


def main() -> None:
    """Train, export, act in NumPy and audit."""
    folder = Path("runs") / "shaped-reacher"
    shutil.rmtree(folder, ignore_errors=True)
    learner = ShapedTd3(preset="gentle", hidden=(64, 64), batch_size=64)
    run = ib.train(
        "reacher", learner, out=folder, steps=2_000, warm_up=500, environments=4, episodes=2, capacity=10_000
    )
    print(run)
    assert run.worst_violation <= 0.0, "no action may ever leave its set"
    exported = ib.export(run)  # the head that TD3 declares says how the network becomes actions
    policy = ib.load(exported.path, task="reacher")
    observation, _ = ib.make("reacher").make_environment().reset(seed=0)
    print(policy.act(observation))
    certificate = ib.audit(exported.path / "policy.onnx", "reacher", steps=200)
    print(certificate)
    assert certificate.violations == 0, "nor may it leave in the exported graph"


if __name__ == "__main__":
    main()
