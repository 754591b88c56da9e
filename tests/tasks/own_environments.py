"""Small environments as a user would write them: parts, published limits, and the usual mistakes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

import inbounds as ib


class Plant(gymnasium.Env[Any, Any]):
    """Two machines that share a cap; the state wanders, whatever is done."""

    def __init__(self, publishes: bool = False, render_mode: str | None = None) -> None:
        self.observation_space = Dict(
            {"load": Box(-np.inf, np.inf, (2,)), "cap": Box(0.0, 9.0, (1,)), "matrix": Box(-1.0, 1.0, (2, 2))}
        )
        self.action_space = Box(0.0, 2.0, (2,), dtype=np.float64)
        self.publishes = publishes
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 7}
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(action)
        self.time += 1
        seen, info = self._seen()
        return seen, 1.0 - float(np.sum(action)), self.time >= 6, False, info

    def render(self) -> Any:
        return np.full((2, 2, 3), self.time, np.uint8)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        cap = self.np_random.uniform(1.0, 3.0)
        seen = {
            "load": self.np_random.normal(size=2),
            "cap": np.array([cap], np.float32),
            "matrix": np.eye(2),
        }
        return seen, {
            "constraint": {"limit": 0.5 * cap, "weights": np.array([1.0, 2.0])}
        } if self.publishes else {}


class Published(Plant):
    """A plant that knows its own set."""

    action_constraint = ib.WeightedL1(weights=[1.0, 1.0], bound=ib.obs["cap", 0])


class Shapes(gymnasium.Env[Any, Any]):
    """An environment whose actions have parts, one of them a matrix and one a number."""

    def __init__(self) -> None:
        self.observation_space = Box(-1.0, 1.0, (2, 2))
        self.action_space = Dict({"valve": Box(-1.0, 1.0, ()), "grid": Box(-2.0, 2.0, (2, 2))})
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, (2, 2)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(action)
        return self.np_random.uniform(-1, 1, (2, 2)), 0.5, False, False, {}


class Line(gymnasium.Env[Any, Any]):
    """One number that the action moves; `flaw` breaks it in one of the usual ways."""

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw
        self.observation_space = Box(-np.inf, np.inf, (3,))
        self.action_space = Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=None if self.flaw == "unseeded" else seed)
        self.position, self.time = self.np_random.uniform(-1, 1), 0
        if self.flaw == "old reset":
            return self._seen()  # type: ignore[no-any-return]
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.position += 0.1 * float(action[0])
        if self.flaw == "random step":
            self.position += np.random.default_rng().normal()
        reward = (
            -1.0
            if self.flaw in ("negative", "race")
            else 2.0
            if self.flaw == "flat"
            else 1.0 + abs(float(action[0]))
        )
        if self.flaw == "old step":
            return self._seen(), reward, False, {}  # type: ignore[return-value]
        paid: Any = {"nan reward": float("nan"), "reward in a list": [reward]}.get(self.flaw, reward)
        return self._seen(), paid, self.flaw == "race" and self.time == 7, False, {}

    def _seen(self) -> Any:
        size = 1e6 if self.flaw == "large" else 1.0
        shrinking = 1.0 - 0.2 * self.time if self.flaw == "empties" else 1.0 + 0.01 * self.time
        first = float("nan") if self.flaw == "nan" and self.time == 3 else self.position
        return np.array([first, shrinking, 0.25 if size == 1.0 else size])


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps and keeps copies of the actions; two entries each, in [-1, 1] unless told otherwise."""

    def __init__(self, action_space: gymnasium.Space[Any] | None = None) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), dtype=np.float64)
        self.action_space = action_space or Box(-1.0, 1.0, (2,))
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.received = []
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(np.array(action))
        return self._answer()

    def _answer(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([float(len(self.received)), 0.0]), 1.0, False, False, {}
