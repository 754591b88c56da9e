"""A Gymnasium space whose samples are feasible: the box of the actions, cut by a constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import EmptySetError, InvalidInputError

if TYPE_CHECKING:
    from inbounds.constraints import Constraint


DRAWS, ROUNDINGS = 64, 32
"""Draws, and ways of rounding each, that are tried where the nearest number of the space's type is outside."""


class ConstrainedBox(gymnasium.spaces.Box):
    """The set {a : low <= a <= high, a in C(s)} at the observation s where the environment stands.

    The environment moves the space along with `move_to`; `sample` draws uniformly from the set with the
    space's own generator, and `x in space` means that the guard would let x pass. To every other library it
    is a plain `Box`: two of them are equal where their boxes are.
    """

    def __init__(
        self,
        constraint: Constraint,
        low: NDArray[np.floating],
        high: NDArray[np.floating],
        *,
        dtype: np.dtype[np.floating] | type[np.floating] = np.float32,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        """Cut the box [`low`, `high`] by `constraint`; both speak the units that `env.step` receives."""
        super().__init__(
            np.asarray(low, dtype=dtype), np.asarray(high, dtype=dtype), dtype=np.dtype(dtype).type, seed=seed
        )
        from inbounds.tasks.fitting import within_box

        self.constraint = within_box(constraint, self)
        self._observation: NDArray[np.float64] | None = None
        self._previous_action: NDArray[np.float64] | None = None

    def move_to(
        self, observation: NDArray[np.floating], previous_action: NDArray[np.floating] | None = None
    ) -> None:
        """Let the set be that of `observation` from now on."""
        self._observation = np.array(observation, dtype=np.float64)
        self._previous_action = (
            None if previous_action is None else np.array(previous_action, dtype=np.float64)
        )

    def sample(self, mask: None = None, probability: None = None) -> NDArray[Any]:
        """Draw a feasible action uniformly from the set at the current observation."""
        if mask is not None or probability is not None:
            raise InvalidInputError(
                "a ConstrainedBox is sampled uniformly; call sample() without mask or probability."
            )
        with np.errstate(over="ignore"):  # what half precision cannot hold is infinite, and not contained
            action = self._draw(self.constraint).astype(self.dtype)
        return action if self.contains(action) else self._rounded_inside()

    def _draw(self, constraint: Constraint, n: int | None = None) -> NDArray[np.float64]:
        return np.asarray(
            constraint.sample(
                self.np_random, self._standpoint(), n, self.shape[0], previous_action=self._previous_action
            ),
            dtype=np.float64,
        )

    def _rounded_inside(self) -> NDArray[Any]:
        """Return a draw that is inside after its entries are rounded up or down, as chance has it.

        Rounding to the type of the space can carry a point over the boundary, and in a thin set nearly always does.
        """
        drawn = self._draw(self.constraint, DRAWS)
        with np.errstate(over="ignore"):
            nearest = drawn.astype(self.dtype)
            lowest, highest = (np.array(end, self.dtype) for end in (-np.inf, np.inf))
            below = np.where(nearest > drawn, np.nextafter(nearest, lowest), nearest)
            above = np.where(nearest < drawn, np.nextafter(nearest, highest), nearest)
        is_up = self.np_random.random((ROUNDINGS, *drawn.shape)) < 0.5
        candidates = np.clip(np.where(is_up, above, below), self.low, self.high).reshape(-1, drawn.shape[-1])
        excess = self.constraint.violation(
            self._standpoint(), candidates.astype(np.float64), previous_action=self._previous_action
        )
        is_inside = np.asarray(excess) <= 0.0
        if not is_inside.any():
            raise EmptySetError(
                f"none of {len(candidates)} draws from {self.constraint.formula()} is feasible after it is rounded to "
                f"{self.dtype}: the set is thinner than the numbers of this type are apart. Widen the constraint, or "
                f"give the action space the type float64."
            )
        return np.asarray(candidates[int(np.argmax(is_inside))])

    def contains(self, x: Any) -> bool:
        """Tell whether the guard would let `x` pass at the current observation."""
        if not super().contains(x):
            return False
        candidate = np.asarray(x, dtype=np.float64)
        excess = self.constraint.violation(
            self._standpoint(), candidate, previous_action=self._previous_action
        )
        return bool(excess <= 0.0)

    def _standpoint(self) -> NDArray[np.float64] | None:
        if self._observation is None and not self.constraint.is_constant():
            raise InvalidInputError(
                f"{self.constraint.formula()} depends on the observation and there is none yet; "
                "call env.reset(seed=...) first, or space.move_to(observation)."
            )
        return self._observation

    def __repr__(self) -> str:
        """Show the constraint and the size of an action."""
        return f"ConstrainedBox({self.constraint.formula()}, {self.shape}, {self.dtype})"
