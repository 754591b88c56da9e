"""Which reading of the paper comes closest to its numbers? A fractional design of sixteen readings.

The paper and its published code leave open, or answer in two ways, what eight factors say:

    factor               first level                         second level
    alpha                fixed at 0.2 (the code)             tuned to -1 per dimension (Q-Pensieve)
    eta_decay            0.9 per 10,000 steps (the table)    0.99 (the code)
    penalty              K = 0.2 (the code's command)        K = 1 (the code's class)
    batch_size           256 (the table)                     1,024 (the code)
    policy loss          supremum (the code)                 lambda^T min Q (the equation)
    scales               raw observations and rewards        both divided by measured scales
    critic loss          by objective (the code)             of the weighted sum (the equation)
    fallback             stored as it was executed           as the proposal, with [r, -K] (the code)

The first four run through all combinations; each of the others is the product of three of them (2^(8-4), resolution
IV): main effects are free of each other and of all pairs. Not varied: the number of actions per state in the policy
loss (1 here, 100 in the code), which changes the variance of a gradient and not its mean.

`inbounds benchmark benchmarks/lab/readings.py:suite` trains every reading on Ant, Reacher and NSFnet: 200,000 steps,
two seeds. `python -m benchmarks.lab.readings` shows the main effects of the finished ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.experiments import Cell, Suite, pairs
from inbounds.experiments.collecting import read_results
from inbounds.experiments.results import Result
from inbounds.learners import losses
from inbounds.learners.aram import PRESETS, REAL, Aram
from inbounds.learners.step import Memory, Metrics, Outcome, Spec
from inbounds.policies.acceptance import Draw
from inbounds.replay import Transition

STEPS = 200_000
TASKS = {"ant": (5_000.0, 1.00), "reacher": (-4.78, 0.98), "nsfnet": (13_200.0, 0.94)}
"""The paper's return and valid action rate of ARAM, by task."""
RESULTS = Path("runs/results/readings")
PREFIX = "levels-"


def weighted_error(values: jax.Array, target: jax.Array, preference: jax.Array) -> jax.Array:
    """Return (lambda^T (Q - y))^2 of one transition."""
    return jnp.sum(preference * (values - target)) ** 2


@dataclasses.dataclass(frozen=True)
class ReadingAram(Aram):
    """ARAM with the choices of the published code that `ib.Aram` has no setting for."""

    weighs_errors: bool = False
    """The critics minimise (lambda^T (Q - y))^2, the paper's equation, instead of sum_k lambda_k (Q_k - y_k)^2."""
    stores_proposals: bool = False
    """After N rejections the transition holds the last proposal and the reward [r, -K], as in the published code."""

    def loss(
        self, params: Any, state: Any, spec: Spec, batch: Transition, noise: Any
    ) -> tuple[jax.Array, Metrics]:
        """Return ARAM's loss, with the error of the weighted sum if it is that which the critics minimise."""
        chosen = weighted_error if self.weighs_errors else losses.critic_loss
        with mock.patch.object(losses, "critic_loss", chosen):  # while it is traced
            return super().loss(params, state, spec, batch, noise)

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Replace executed projections by the proposals that they are projections of."""
        stored = dict(super().remember(spec, observation, draw, outcome))
        if not self.stores_proposals:
            return stored
        real, mask = stored[REAL]
        last = draw.proposals[..., -1, :]
        action = jnp.where(draw.is_projected[..., None], last, real.action)
        penalty = jnp.where(draw.is_projected, -self.penalty, 0.0)
        reward = jnp.stack([real.reward[..., 0], penalty], axis=-1)
        stored[REAL] = Memory(real._replace(action=action, reward=reward), mask)
        return stored


FACTORS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "alpha": ({"alpha": 0.2}, {"alpha": None, "target_entropy": -1.0}),
    "eta-decay": ({"eta_decay": 0.9}, {"eta_decay": 0.99}),
    "penalty": ({"penalty": 0.2}, {"penalty": 1.0}),
    "batch": ({"batch_size": 256}, {"batch_size": 1024}),
    "policy-loss": (
        {"preference_samples": 4, "q_snapshots": 4},
        {"preference_samples": 1, "q_snapshots": 0},
    ),
    "scales": ({"backbone": "plain"}, {"backbone": "scaled"}),
    "critic-loss": ({"weighs_errors": False}, {"weighs_errors": True}),
    "fallback": ({"stores_proposals": False}, {"stores_proposals": True}),
}
"""The settings of both levels."""


def design() -> list[tuple[int, ...]]:
    """Return the levels, 0 or 1, of all factors in each of the sixteen readings."""
    readings = []
    for a, b, c, d in itertools.product((0, 1), repeat=4):
        # Sums modulo 2 are products of levels -1 and 1.
        readings.append((a, b, c, d, (b + c + d) % 2, (a + c + d) % 2, (a + b + c) % 2, (a + b + d) % 2))
    return readings


def name_of(levels: Sequence[int]) -> str:
    """Return the variant of a reading, one digit for each factor."""
    return PREFIX + "".join(map(str, levels))


def cells() -> Iterator[Cell]:
    """Return every reading on every task."""
    training = pairs({"evaluate_every": 20_000, "capacity": STEPS})
    for levels in design():
        settings = dict(PRESETS["paper"])
        for level, choices in zip(levels, FACTORS.values(), strict=True):
            settings.update(choices[level])
        for task in TASKS:
            own, variant = pairs(settings), name_of(levels)
            yield Cell(task, "reading", "default", STEPS, 2, 0, variant, own, training)


suite = Suite(
    "readings",
    "Which reading of the paper comes closest to its numbers?",
    cells,
    learners={"reading": ReadingAram},
)


def main_effects(responses: Mapping[tuple[int, ...], float]) -> dict[str, float]:
    """Return by factor the mean response at its second level minus that at its first."""
    effects = {}
    for place, factor in enumerate(FACTORS):
        by_level: tuple[list[float], list[float]] = ([], [])
        for levels, response in responses.items():
            by_level[levels[place]].append(response)
        effects[factor] = sum(by_level[1]) / len(by_level[1]) - sum(by_level[0]) / len(by_level[0])
    return effects


def responses_of(results: Iterable[Result], task: str) -> dict[str, dict[tuple[int, ...], float]]:
    """Return by reading the mean return, relative to the paper's, and the mean valid action rate of a task."""
    target, _ = TASKS[task]
    found: dict[str, dict[tuple[int, ...], float]] = {"return": {}, "valid action rate": {}}
    for result in results:
        if result.suite != suite.name or result.task != task:
            continue
        levels = tuple(int(digit) for digit in result.variant.removeprefix(PREFIX))
        found["return"][levels] = float(np.mean(result.final["return"])) - target
        found["valid action rate"][levels] = float(np.mean(result.final["valid_action_rate"]))
    return found


def main() -> None:
    """Print, by task, the readings closest to the paper and the main effects of the factors."""
    results = read_results([Path(path) for path in sys.argv[1:]] or [RESULTS])
    for task, (target, valid) in TASKS.items():
        responses = responses_of(results, task)
        returns, rates = responses["return"], responses["valid action rate"]
        print(f"\n{task}: the paper has {target:,g} at {valid}")
        for levels in sorted(rates, key=lambda one: -rates[one])[:4]:
            print(f"  {name_of(levels)}  {target + returns[levels]:,.1f} at {rates[levels]:.3f}")
        if len(rates) < len(design()):
            print(f"  effects need all {len(design())} readings; {len(rates)} are finished")
            continue
        of_return, of_rate = main_effects(returns), main_effects(rates)
        for factor in FACTORS:
            print(f"  {factor:12} return {of_return[factor]:+,.1f}  valid action rate {of_rate[factor]:+.3f}")


if __name__ == "__main__":
    main()
