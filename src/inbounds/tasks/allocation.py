"""A small allocation of whole bikes with rules between neighbours: a discrete task that a membership test defines.

Five zones stand in a ring and share fifteen bikes, at most six each. Neighbours must not hold the same
number, and may differ by at most three. Of the 7^5 = 16,807 actions 120 are allowed (0.7 %), and they are not
convex.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import Array, convert, is_jax, stack_rows, total
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.situation import Parameter, Situation
from inbounds.errors import ConstraintError
from inbounds.tasks.compiled_gymnasium import task_of_compiled
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import Task

ZONES, BIKES, CAPACITY, LARGEST_STEP = 5, 15, 6, 3
HORIZON = 20
REWARD_DIVISOR, REWARD_SHIFT = 10.0, 1.0


class RingAllocation(Constraint):
    """Whole numbers 0 <= a_i <= capacity with sum_i a_i = bikes and 1 <= |a_i - a_{i+1}| <= largest_step.

    Zone n + 1 is zone 1 again. All numbers are whole and small, so that every comparison is exact and needs
    no margin. The set is finite: the nearest allowed action is looked up.
    """

    def __init__(
        self,
        zones: int = ZONES,
        bikes: int = BIKES,
        capacity: int = CAPACITY,
        largest_step: int = LARGEST_STEP,
    ) -> None:
        """Keep the rules and list the actions that they allow."""
        self.zones, self.bikes, self.capacity, self.largest_step = zones, bikes, capacity, largest_step
        actions = np.array(list(itertools.product(range(capacity + 1), repeat=zones)), dtype=np.float64)
        self.allowed: NDArray[np.float64] = actions[np.asarray(self.contains(None, actions))]

    def restricted_to(self, other: Constraint) -> Constraint:
        """Return this set where it lies in the other one, as it does in the box of its actions."""
        if other.is_constant() and np.all(np.asarray(other.violation(None, self.allowed)) <= 0.0):
            return self
        raise ConstraintError(
            f"{self.formula()} cannot be cut by {other.formula()}. State the tighter rule as another RingAllocation."
        )

    def excess(self, at: Situation, action: Array) -> Array:
        """Return how far entries are from whole numbers and limits, the sum from its total, and steps from theirs."""
        xp = at.xp
        steps = xp.abs(action - xp.roll(action, -1, axis=-1))
        whole = xp.abs(action - xp.round(action))
        sums = xp.abs(total(xp, action) - float(self.bikes))[..., None]
        return stack_rows(
            xp,
            [
                whole,
                -action,
                action - float(self.capacity),
                sums,
                1.0 - steps,
                steps - float(self.largest_step),
            ],
        )

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the excess: whole numbers are compared exactly."""
        return self.excess(at, action)

    def nearest(self, at: Situation, action: Array) -> Array:
        """Look up the nearest allowed action."""
        allowed = convert(self.allowed, at.xp, at.dtype, at.device)
        distance = at.xp.sum((action[..., None, :] - allowed) ** 2, axis=-1)
        return allowed[at.xp.argmin(distance, axis=-1)]

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return one of the allowed actions: a set of single points has no interior."""
        return convert(self.allowed[0], at.xp, at.dtype, at.device)

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return zero: no direction leads to other allowed actions without a gap."""
        return at.xp.zeros(np.broadcast_shapes(point.shape, direction.shape)[:-1], dtype=at.dtype)

    def sample(
        self,
        rng: Any,
        observation: Any = None,
        n: int | None = None,
        dimension: int | None = None,
        *,
        previous_action: Any = None,
    ) -> Array:
        """Draw allowed actions, each with the same probability."""
        at, _ = self.situation_without_action(observation, dimension, previous_action, rng)
        batch = () if at.observation is None else tuple(at.observation.shape[:-1])
        shape = batch if n is None else (n, *batch)
        count = len(self.allowed)
        index = jax.random.randint(rng, shape, 0, count) if is_jax(rng) else rng.integers(count, size=shape)
        return convert(self.allowed, at.xp, at.dtype, at.device)[index]

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the rules in the order of `excess`."""
        zones = range(dimension)
        return [
            *(f"a[{i}] is a whole number" for i in zones),
            *(f"a[{i}] >= 0" for i in zones),
            *(f"a[{i}] <= {self.capacity}" for i in zones),
            f"sum_i a_i = {self.bikes}",
            *(f"a[{i}] differs from a[{(i + 1) % dimension}]" for i in zones),
            *(f"|a[{i}] - a[{(i + 1) % dimension}]| <= {self.largest_step}" for i in zones),
        ]

    def formula(self) -> str:
        """Write the rules."""
        ring = f"1 <= |a_i - a_(i+1)| <= {self.largest_step} in a ring"
        return f"a_i in 0..{self.capacity}, sum_i a_i = {self.bikes}, {ring}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the numbers of the rules."""
        return {
            "zones": self.zones,
            "bikes": self.bikes,
            "capacity": self.capacity,
            "largest_step": self.largest_step,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the rules as plain data."""
        return {"kind": type(self).__name__, **self.parameters()}

    def size(self) -> int | None:
        """Return the number of zones."""
        return self.zones


class AllocationState(NamedTuple):
    """The bikes that each zone will need, and how far the episode is."""

    demand: jax.Array
    epoch: jax.Array


class AllocationEnvironment:
    """Every epoch shows the demand of each zone, uniform on 0..capacity; the reward is -sum_i |a_i - demand_i|.

    Epochs are independent, so that the best allowed action of an observation is known: it is the nearest one.
    """

    observation_size = ZONES
    action_size = ZONES
    horizon = HORIZON

    def reset(self, key: jax.Array) -> tuple[AllocationState, jax.Array]:
        """Draw the first demand."""
        state = AllocationState(self._demand(key), jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, state: AllocationState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Pay for what does not meet the demand, and draw the next one."""
        after = AllocationState(self._demand(key), state.epoch + 1)
        missed = jnp.sum(jnp.abs(action - state.demand))
        return CompiledStep(
            state=after,
            observation=self._observe(after),
            reward=-missed.astype(jnp.float32),
            terminated=jnp.zeros((), bool),
            truncated=after.epoch >= self.horizon,
        )

    def _demand(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (ZONES,), 0, CAPACITY + 1)

    def _observe(self, state: AllocationState) -> jax.Array:
        return state.demand.astype(jnp.float32) / CAPACITY


def best_reward(constraint: RingAllocation, observation: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the largest reward that any allowed action gets at each observation."""
    demand = np.asarray(observation, np.float64)[..., None, :] * CAPACITY
    best: NDArray[np.float64] = -np.min(np.sum(np.abs(constraint.allowed - demand), axis=-1), axis=-1)
    return best


@cache
def allocation_environment() -> AllocationEnvironment:
    """Return the one environment, so that everything that uses it shares what was compiled."""
    return AllocationEnvironment()


def allocation_task() -> Task:
    """Return the discrete task; its actions are whole numbers, in bikes."""
    return task_of_compiled(
        allocation_environment(),
        RingAllocation(),
        name="allocation",
        action_low=np.zeros(ZONES, np.float32),
        action_high=np.full(ZONES, CAPACITY, np.float32),
        reward_divisor=REWARD_DIVISOR,
        reward_shift=REWARD_SHIFT,
        source="made for comparing discrete methods; not in the paper",
        environment_id="inbounds/Allocation-v0",
        ends_only_in_failure=True,
        observation_names=tuple(
            f"share of its capacity that zone {zone + 1} will need" for zone in range(ZONES)
        ),
        action_names=tuple(f"bikes in zone {zone + 1}" for zone in range(ZONES)),
    )
