"""What is solved: an environment paired with the constraint that every action sent to it must satisfy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import gymnasium

    from inbounds.constraints import Constraint
    from inbounds.tasks.compiled import CompiledEnvironment
    from inbounds.tasks.vector import HostEnvironments


@dataclass(frozen=True, eq=False)
class Task:
    """A Markov decision process (S, A, P, r) with a set C(s) of allowed actions: max E[sum r], a in C(s).

    Actions, `constraint` and the box [`action_low`, `action_high`] speak the units that `env.step` receives.
    """

    name: str
    constraint: Constraint
    """The set C(s), always together with the box of the actions."""
    observation_size: int
    action_low: NDArray[np.float32]
    action_high: NDArray[np.float32]
    horizon: int
    """An episode is truncated after this many steps."""
    reward_divisor: float
    reward_shift: float
    source: str
    """Where the paper defines the task."""
    environment_id: str
    """The name under which `gymnasium.make` knows the task."""
    host: Callable[[int, int], HostEnvironments] | None
    """`host(count, threads)` makes a batch that is stepped on the host."""
    compiled: Callable[[], CompiledEnvironment] | None
    """`compiled()` makes the pure functions of an environment that is stepped on the device."""
    make_environment: Callable[..., gymnasium.Env[Any, Any]]
    """Make one guarded Gymnasium environment; takes `render_mode`."""
    observation_names: tuple[str, ...] = ()
    """What each entry of an observation is, with its unit."""
    action_names: tuple[str, ...] = ()
    """What each entry of an action is, with its unit."""

    @property
    def action_size(self) -> int:
        """The number of entries of an action."""
        return int(self.action_low.shape[0])

    def training_reward(self, reward: Any) -> Any:
        """Return the reward that learners are trained on, r / divisor + shift; reports never use it."""
        return reward / self.reward_divisor + self.reward_shift

    def __repr__(self) -> str:
        """Show the name and the constraint as a formula."""
        return f"Task({self.name!r}: {self.constraint.formula()}, horizon {self.horizon})"
