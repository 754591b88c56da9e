"""One Gymnasium environment that is a batch of one: single and batched trajectories are the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import InvalidInputError
from inbounds.tasks.action_guard import ActionGuard
from inbounds.tasks.environment import HostEnvironments, require_render_mode
from inbounds.tasks.spaces import ConstrainedBox

Picture = Callable[[bool], NDArray[np.uint8]]
"""Draw (height, width, 3): the first state of an episode if the argument is True, else where the last action led."""


class SingleEnvironment(gymnasium.Env[NDArray[np.float64], Any]):
    """A batch of one behind Gymnasium's interface; the guard is the one inside the batch.

    The batch begins the next episode in the step that ends one; `reset()` without a seed then hands out that
    episode, so that a member of a large batch and this environment live through the same episodes.
    """

    def __init__(
        self,
        batch: HostEnvironments,
        guard: ActionGuard,
        *,
        observation_size: int,
        action_low: NDArray[np.float32],
        action_high: NDArray[np.float32],
        frames_per_second: int,
        render_mode: str | None = None,
        picture: Picture | None = None,
        release_picture: Callable[[], None] | None = None,
    ) -> None:
        """Wrap `batch`, whose guard is `guard`; `picture` draws for `render_mode="rgb_array"`.

        `release_picture` frees what `picture` draws with; `close` calls it.
        """
        require_render_mode(render_mode, guard.task_name)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": frames_per_second}
        self.render_mode = render_mode
        self.guard = guard
        self._space = ConstrainedBox(guard.constraint, action_low, action_high)
        self.action_space = self._space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), dtype=np.float64)
        self._batch = batch
        self._picture, self._release_picture = picture, release_picture
        self._steps: int | None = None
        self._next_first: NDArray[np.float64] | None = None

    def __str__(self) -> str:
        """Show the task and its set."""
        return f"<{self.guard.task_name}: {self.guard.constraint.formula()}>"

    __repr__ = __str__

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode: from `seed`, or the next one that this environment's own stream holds."""
        super().reset(seed=seed)
        if seed is None and self._next_first is not None:
            observation = self._next_first
        else:
            start = int(self.np_random.integers(2**63)) if seed is None else seed
            observation = self._batch.reset([start])[0]
        self._steps, self._next_first = 0, None
        self._space.move_to(observation, np.zeros(self._space.shape))
        return observation, {}

    def step(self, action: Any) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Advance by one action; an infeasible one raises and leaves everything as it was."""
        if self._steps is None or self._next_first is not None:
            when = "step came before reset" if self._steps is None else "the episode is over"
            raise InvalidInputError(f"{self.guard.task_name}: {when}; call env.reset() first.")
        step = self._batch.step(cast(NDArray[np.floating], [action]))
        self._steps += 1
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._next_first = step.observation[0] if terminated or truncated else None
        observation = step.final_observation[0]
        self._space.move_to(observation, None if self.guard.admitted is None else self.guard.admitted[0])
        return observation, float(step.reward[0]), terminated, truncated, {}

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture of the state and of the constraint's use, or None without a render mode."""
        if self._picture is None:
            return None
        if self._steps is None:
            raise InvalidInputError(
                f"{self.guard.task_name}: there is nothing to draw yet; call env.reset() first."
            )
        return self._picture(self._steps == 0)

    def close(self) -> None:
        """Release threads and drawing contexts."""
        self._batch.close()
        if self._release_picture is not None:
            self._release_picture()
