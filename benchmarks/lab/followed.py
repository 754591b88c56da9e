"""ARAM on the scaled backbone with self-loops that are followed to their end: is it the better default?

A rejected proposal is stored with the reward and the successor of the executed action, (s, a_i, [r, -1], s'), and Q_c
has a discount of 0: only the rejection at hand costs K, which is tuned to an acceptance rate. Rewards need no sign
then. The rest is `ib.Aram()`, here from scratch and with a discount of 0.99.

`inbounds benchmark benchmarks/lab/followed.py:suite` trains it with one, twenty and a hundred proposals, with the
default's learning rate and with a fixed penalty, beside the default from scratch: seeds 0 to 4, 200,000 steps.
`--variants` and `--tasks` narrow it down. Before them, "one-proposal-long" follows the first variant over a million steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.strangers import lunar_lander
from inbounds.experiments import Cell, Suite, pairs
from inbounds.learners import normalised_aram
from inbounds.learners.aram import AUGMENTED, Aram
from inbounds.learners.step import Memory, Outcome, Spec
from inbounds.policies.acceptance import Draw
from inbounds.replay import Transition

STEPS, LONG = 200_000, 1_000_000
TASKS = ("halfcheetah", "ant", "reacher", "nsfnet", "bss5z", "lunarlander")
VARIANTS: dict[str, dict[str, Any]] = {
    "one-proposal": {"proposals": 1},
    "hundred-proposals": {"proposals": 100},
    "twenty-proposals": {"proposals": 20},
    "one-proposal-learning-rate-0.0003": {"proposals": 1, "learning_rate": 3e-4},
    "one-proposal-penalty-20": {"proposals": 1, "penalty": 20.0, "tunes_penalty": False},
    "one-proposal-no-self-loops": {"proposals": 1, "augmented": False, "tunes_penalty": False},
}
"""Settings of `FollowedAram` by the name of the variant."""
LONG_TASKS = ("ant", "halfcheetah", "hopper", "hoppervel")
RATE, LARGEST_ERROR, RANGE = 0.001, 0.1, (0.1, 100.0)
"""How fast log K follows the acceptance rate, the largest error that counts, and the range of K. K grows by 0.01 % per
step at most: ten times faster, it is large before a young policy has moved, and then keeps it where it is."""


class FollowedState(NamedTuple):
    """The fields of `AramState`, in its order, and log K."""

    params: Any
    target_critic: Any
    optimiser: Any
    updates: jax.Array
    eta: jax.Array
    feasible_fraction: jax.Array
    snapshots: Any
    log_penalty: jax.Array


@dataclasses.dataclass(frozen=True)
class FollowedAram(Aram):
    """The default with self-loops that are followed to their end and a tuned K."""

    penalty: float = 3.0
    learning_rate: float = 1e-3
    accepted: float = 0.97
    """The acceptance rate that K is tuned to."""
    tunes_penalty: bool = True

    @property
    def needs_positive_rewards(self) -> bool:
        """Return False: a rejected proposal earns what the executed action earns."""
        return False

    def gamma_of(self, spec: Spec) -> Any:
        """Return the discounts of both objectives; the penalty is that of the action at hand."""
        return jnp.asarray([super().gamma_of(spec), 0.0])

    def init(self, key: jax.Array, spec: Spec) -> FollowedState:
        """Add the first K to ARAM's state."""
        return FollowedState(*super().init(key, spec), jnp.asarray(math.log(self.penalty), jnp.float32))

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Store rejected proposals with the reward and the successor of the executed action."""
        stored = dict(super().remember(spec, observation, draw, outcome))
        if AUGMENTED in stored:
            rows = normalised_aram.rejected_rows(observation, draw, outcome)
            stored[AUGMENTED] = Memory(rows, stored[AUGMENTED].mask)
        return stored

    def adapt(
        self, state: Any, spec: Spec, draw: Draw, outcome: Outcome, step: jax.Array, is_random: bool
    ) -> Any:
        """Adapt eta as ARAM does, and K to the acceptance rate."""
        state = super().adapt(state, spec, draw, outcome, step, is_random)
        if is_random or not self.tunes_penalty:
            return state
        error = jnp.minimum(self.accepted - jnp.mean(draw.acceptance), LARGEST_ERROR)
        moved = state.log_penalty + RATE * draw.acceptance.size * error
        return state._replace(log_penalty=jnp.clip(moved, math.log(RANGE[0]), math.log(RANGE[1])))

    def loss(self, params: Any, state: Any, spec: Spec, batch: Transition, noise: Any) -> Any:
        """Return ARAM's loss at the present K."""
        units = jnp.stack([jnp.ones(()), jnp.exp(state.log_penalty)])
        loss, metrics = super().loss(params, state, spec, batch._replace(reward=batch.reward * units), noise)
        return loss, {**metrics, "penalty": jnp.exp(state.log_penalty)}


def cells() -> Iterator[Cell]:
    """Return every variant on every task, the most informative first."""
    training = pairs({"evaluate_every": 10_000, "capacity": STEPS})
    scratch = {"gamma": 0.99, "warm_start": False}
    for task in LONG_TASKS:
        own = pairs({**scratch, **VARIANTS["one-proposal"]})
        longer = pairs({"evaluate_every": 50_000, "capacity": LONG})
        yield Cell(task, "followed", "default", LONG, variant="one-proposal-long", settings=own, training=longer)
    for variant, settings in VARIANTS.items():
        for task in TASKS:
            own = pairs({**scratch, **settings})
            yield Cell(task, "followed", "default", STEPS, variant=variant, settings=own, training=training)
    for variant, settings in (("from-scratch", {}), ("from-scratch-one-proposal", {"proposals": 1})):
        for task in TASKS:
            own = pairs({**scratch, **settings})
            yield Cell(task, "aram", "default", STEPS, variant=variant, settings=own, training=training)


suite = Suite(
    "followed",
    "Are self-loops that are followed to their end, and one proposal, the better default?",
    cells,
    tasks={"lunarlander": lunar_lander},
    learners={"followed": FollowedAram},
)
