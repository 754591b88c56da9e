"""Gymnasium wrappers that make the agent of any library action-constrained: project, reject, or propose again.

The agent sees the plain box and may send anything in it; what reaches the environment is feasible. `info` says
what happened: `raw_action`, `executed_action`, `action_outcome` ("accepted", "projected", "rejected" or
"resampled") and `action_excess`, the violation of the raw action (at most 0 if it was feasible).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, InvalidInputError
from inbounds.tasks.guard import ActionGuard
from inbounds.tasks.spaces import ConstrainedBox

Outcome = Literal["accepted", "projected", "rejected", "resampled"]
Stepped = tuple[Any, Any, bool, bool, dict[str, Any]]


class ConstrainedWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What the wrappers share: which set holds now, which action came before, and what `info` says.

    Args:
        env: an environment whose actions are a `Box` with one axis.
        constraint: the set C(s); by default what the environment publishes as `action_constraint`,
            `constraint` or as a `ConstrainedBox`, asked again after every step. `info["constraint"]` replaces it
            for the next action.
        first_previous_action: what constraints on the previous action see at the first step of an episode; by
            default zero, moved into the box.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraint: Constraint | None = None,
        *,
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Wrap `env`; nothing is computed before the first reset."""
        super().__init__(env)
        box = env.action_space
        name = type(self).__name__
        if not isinstance(box, gymnasium.spaces.Box) or len(box.shape) != 1:
            raise ConfigurationError(
                f"{name} needs an action space that is a Box with one axis, not {box}; flatten the actions first "
                "(gymnasium.wrappers.TransformAction)."
            )
        self._is_published = constraint is None
        self.constraint = published_constraint(env) if constraint is None else constraint
        # The agent's own space is the box: what it may propose, not what is carried out.
        self.action_space = self._box = gymnasium.spaces.Box(box.low, box.high, dtype=box.dtype.type)
        self._door = ActionGuard(
            self.constraint, box.shape[0], task_name=name, on_violation="correct", executed_as=box.dtype
        )
        start = np.zeros(box.shape) if first_previous_action is None else first_previous_action
        self._first_previous_action = np.clip(np.asarray(start, dtype=np.float64), box.low, box.high)
        self._previous_action = self._first_previous_action
        self._observation: NDArray[np.float64] | None = None

    @property
    def projections(self) -> int:
        """How many actions were replaced by their projection."""
        return self._door.corrections

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and remember its first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._remember(observation, info, self._first_previous_action)
        return observation, info

    def _excess(self, action: Any) -> float:
        """Return the violation of an action as it would be executed, in float64."""
        executed = np.asarray(action).astype(self._door.executed_as)
        return float(
            self.constraint.violation(
                self._standpoint(), executed.astype(np.float64), previous_action=self._previous_action
            )
        )

    def _execute(self, raw: Any, proposed: Any, outcome: Outcome, excess: float) -> Stepped:
        """Send an action, projected if it must be, and say in `info` what became of the raw one."""
        before = self._door.corrections
        executed = self._door.admit(self._standpoint()[None], [proposed], self._previous_action[None])[0]
        is_projected = self._door.corrections > before
        observation, reward, terminated, truncated, info = self.env.step(executed)
        self._remember(observation, info, executed.astype(np.float64))
        told = describe(raw, executed, "projected" if is_projected else outcome, excess)
        return observation, reward, terminated, truncated, {**info, **told}

    def _standpoint(self) -> NDArray[np.float64]:
        if self._observation is None:
            raise InvalidInputError(
                f"{self._door.task_name}: step came before reset; call env.reset() first."
            )
        return self._observation

    def _remember(self, observation: Any, info: dict[str, Any], previous_action: NDArray[np.float64]) -> None:
        # Copies: the caller may write into the observation, and must not move the constraint by that.
        flat = gymnasium.spaces.flatten(self.env.observation_space, observation)
        self._observation = np.array(flat, dtype=np.float64)
        self._previous_action = previous_action
        if isinstance(info.get("constraint"), Constraint):
            self.constraint = info["constraint"]
        elif self._is_published:
            self.constraint = published_constraint(self.env)
        self._door.constraint = self.constraint


class ProjectAction(ConstrainedWrapper):
    """The projected environment: a step with the action a executes the nearest action of C(s)."""

    def step(self, action: Any) -> Stepped:
        """Execute the projection of `action`, which is the action itself if it is feasible."""
        return self._execute(action, action, "accepted", self._excess(action))


class AugmentedMDP(ConstrainedWrapper):
    """The augmented MDP with a scalarised penalty: an infeasible action is a self-loop that costs K.

    With the preference (lambda_r, lambda_c), a feasible action earns lambda_r r. An infeasible one is not
    executed: the environment stands still, the observation stays, and the reward is -lambda_c K. After
    `rejections` of them in a row the next one is projected and executed, for lambda_r r - lambda_c K, so that an
    untrained agent cannot stand still for ever. `info["reward"]` is the environment's own reward.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraint: Constraint | None = None,
        *,
        penalty: float = 0.2,
        preference: tuple[float, float] = (0.9, 0.1),
        rejections: int = 20,
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Wrap `env`; K is `penalty`, and `preference` weighs the reward and the penalty."""
        super().__init__(env, constraint, first_previous_action=first_previous_action)
        if penalty <= 0 or min(preference) < 0 or rejections < 0:
            raise ConfigurationError(
                f"penalty must be positive, preference and rejections not negative; got {penalty}, {preference} and "
                f"{rejections}. The defaults are 0.2, (0.9, 0.1) and 20."
            )
        self.penalty, self.preference, self.rejections = penalty, preference, rejections
        self._in_a_row = 0
        self._last_observation: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._in_a_row = 0
        self._last_observation, info = super().reset(seed=seed, options=options)
        return self._last_observation, info

    def step(self, action: Any) -> Stepped:
        """Execute a feasible action, or stay where we are and pay."""
        excess = self._excess(action)
        price = self.preference[1] * self.penalty if excess > 0 else 0.0
        if excess > 0 and self._in_a_row < self.rejections:
            self._in_a_row += 1
            info = {**describe(action, None, "rejected", excess), "reward": 0.0}
            return self._last_observation, -price, False, False, info
        observation, reward, terminated, truncated, info = self._execute(action, action, "accepted", excess)
        self._in_a_row, self._last_observation = 0, observation
        scalarised = self.preference[0] * float(reward) - price
        return observation, scalarised, terminated, truncated, {**info, "reward": float(reward)}


class AcceptReject(ConstrainedWrapper):
    """Acceptance-rejection around a policy: the first feasible of up to N proposals, or else a projection.

    The action given to `step` is the first proposal. While proposals are infeasible, `policy(observation)` is
    asked for another one; after `proposals` of them the last is projected. The policy is usually the agent
    that is being trained, which exists only after its environment: set it later, `env.policy = ...`. Without
    one there is a single proposal.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraint: Constraint | None = None,
        policy: Callable[[Any], Any] | None = None,
        *,
        proposals: int = 20,
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Wrap `env`; `policy` draws a new proposal for an observation each time it is called."""
        super().__init__(env, constraint, first_previous_action=first_previous_action)
        if proposals < 1:
            raise ConfigurationError(
                f"proposals={proposals}, but the first one is always judged. Use 1 or more."
            )
        self.policy, self.proposals = policy, proposals
        self._last_observation: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._last_observation, info = super().reset(seed=seed, options=options)
        return self._last_observation, info

    def step(self, action: Any) -> Stepped:
        """Execute the first feasible proposal; `info["action_proposals"]` says how many were drawn."""
        first = excess = self._excess(action)
        proposal, count = action, 1
        while excess > 0 and self.policy is not None and count < self.proposals:
            proposal = np.clip(self.policy(self._last_observation), self._box.low, self._box.high)
            excess, count = self._excess(proposal), count + 1
        outcome: Outcome = "accepted" if count == 1 else "resampled"
        observation, reward, terminated, truncated, info = self._execute(action, proposal, outcome, first)
        self._last_observation = observation
        return observation, reward, terminated, truncated, {**info, "action_proposals": count}


def published_constraint(env: gymnasium.Env[Any, Any]) -> Constraint:
    """Return the set that an environment publishes: `action_constraint`, `constraint`, or its action space."""
    for name in ("action_constraint", "constraint"):
        if env.has_wrapper_attr(name):
            value = env.get_wrapper_attr(name)
            if isinstance(value, Constraint):
                return value
    if isinstance(env.action_space, ConstrainedBox):
        return env.action_space.constraint
    raise ConfigurationError(
        f"{env} publishes no constraint. Pass one as the second argument, or give the environment an attribute "
        f"`action_constraint`."
    )


def describe(
    raw: Any, executed: NDArray[np.floating] | None, outcome: Outcome, excess: float
) -> dict[str, Any]:
    """Return what `info` tells about one action; a rejected one has executed nothing."""
    told: dict[str, Any] = {
        "raw_action": np.array(raw),
        "action_outcome": outcome,
        "action_excess": excess,
    }
    return told if executed is None else {**told, "executed_action": executed.copy()}
