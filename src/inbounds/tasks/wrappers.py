"""Gymnasium wrappers that make the agent of any library action-constrained: project, reject, or propose again.

The agent sees the plain box and may send anything in it; what reaches the environment is feasible. `info` says
what happened: `raw_action`, `executed_action`, `action_outcome` ("accepted", "projected", "rejected" or
"resampled") and `action_excess`, the violation of the raw action (at most 0 if it was feasible).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError
from inbounds.tasks.empty_states import observation_shown
from inbounds.tasks.fitting import WithPreviousAction
from inbounds.tasks.guard import (
    EpisodeGuard,
    Stepped,
    as_numbers,
    innermost_changer,
    require_known_past,
    require_no_autoreset,
    require_one_length,
)
from inbounds.tasks.named_parts import reads_previous_action
from inbounds.tasks.spaces import ConstrainedBox

Outcome = Literal["accepted", "projected", "rejected", "resampled"]

NO_POLICY = (
    "AcceptReject has no policy to ask for another proposal, so that it only projects. Set env.policy, or in a vector "
    'environment envs.set_attr("policy", policy); or use ProjectAction.'
)


class ConstrainedWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What the wrappers share: which set holds now, which action came before, and what `info` says.

    Args:
        env: an environment whose actions are a `Box` with one axis.
        constraint: the set C(s); by default what the environment publishes as `action_constraint`,
            `constraint` or as a `ConstrainedBox`, asked again after every step. `info["constraint"]` replaces it
            for the next action alone. The box of the action space always holds besides.
        first_previous_action: what constraints on the previous action see at the first step of an episode; by
            default zero, moved into the box.

    The constraint reads the observation of `env`; `ib.obs["key"]` names a part of one that is a dictionary. Where it
    depends on `ib.previous_action`, the agent observes that as well: behind the last entry of a vector, or as the key
    `previous_action` of a dictionary.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraint: Constraint | None = None,
        *,
        first_previous_action: NDArray[np.floating] | None = None,
    ) -> None:
        """Wrap `env`; a constraint that does not fit its actions and observations is refused here."""
        super().__init__(env)
        require_no_autoreset(self)
        self._given = constraint
        self._stated = published_constraint(env) if constraint is None else constraint
        require_known_past(env, self._stated, type(self).__name__)
        if constraint is None:
            require_one_length(env, self._stated, type(self).__name__)
        self._guard = EpisodeGuard(
            self._stated,
            env.action_space,
            env.observation_space,
            task_name=type(self).__name__,
            on_violation="correct",
            first_previous_action=first_previous_action,
        )
        # The agent's own space is the box: what it may propose, not what is carried out.
        box = self._guard.box
        self.action_space = self._box = gymnasium.spaces.Box(box.low, box.high, dtype=box.dtype.type)
        self._joined = self._stated
        self._seen: WithPreviousAction | None = None
        if reads_previous_action(self._stated):
            self._seen = WithPreviousAction(env.observation_space, box, type(self).__name__)
            self.observation_space = self._seen.space

    @property
    def constraint(self) -> Constraint:
        """The set that holds for the next action, together with the box of the action space."""
        if self._joined is not self._stated:
            # Joined when it is asked for: an episode may end in a state whose set is empty.
            self._guard.actions.constraint = self._guard.fitted(self._stated)
            self._joined = self._stated
        return self._guard.actions.constraint

    @property
    def projections(self) -> int:
        """How many actions were replaced by their projection."""
        return self._guard.actions.corrections

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and remember its first observation."""
        observation, info = self._guard.reset_of(self.env, seed, options)
        self._remember(observation, info, None)
        return self._shown(observation), info

    def _excess(self, action: Any) -> float:
        """Return the violation of an action as it would be executed, in float64."""
        if self._joined is not self._stated:
            with observation_shown(self._stated, self._guard.observation, type(self).__name__):
                self._guard.actions.constraint = self.constraint
        return self._guard.violation(action)

    def _execute(self, raw: Any, proposed: Any, outcome: Outcome, excess: float) -> Stepped:
        """Send an action, projected if it must be, and say in `info` what became of the raw one."""
        before = self.projections
        executed, answer = self._guard.step_of(self.env, proposed)
        observation, reward, terminated, truncated, info = answer
        self._remember(observation, info, executed)
        ran = executed_inside(self.env, info, executed)
        became: Outcome = "projected" if self.projections > before else outcome
        told = describe(raw, ran, "rejected" if ran is None else became, excess)
        return self._shown(observation), reward, terminated, truncated, {**info, **told}

    def _shown(self, observation: Any) -> Any:
        """Return what the agent sees of the observation that was returned last."""
        return (
            observation if self._seen is None else self._seen.show(observation, self._guard.previous_action)
        )

    def _remember(
        self, observation: Any, info: dict[str, Any], executed: NDArray[np.floating] | None
    ) -> None:
        announced, before = info.get("constraint"), self._stated
        if isinstance(announced, Constraint):
            self._stated = announced
        else:
            self._stated = published_constraint(self.env) if self._given is None else self._given
        if self._stated is not before:
            require_known_past(self.env, self._stated, type(self).__name__)
            if self._stated is not self._given:
                require_one_length(self.env, self._stated, type(self).__name__)
        self._guard.stand_at(as_numbers(self.env.observation_space, observation), executed)


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
        is_infeasible = not excess <= 0.0
        price = self.preference[1] * self.penalty if is_infeasible else 0.0
        if is_infeasible and self._in_a_row < self.rejections:
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
    that is being trained, which exists only after its environment: set it later, `env.policy = ...`, or for every
    member of a vector environment `envs.set_attr("policy", policy)`. Without a policy there is a single proposal, and
    the first one that has to be projected raises a warning.
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
                f"proposals={proposals}, but the first one is always checked. Use 1 or more."
            )
        self.policy, self.proposals = policy, proposals
        self._is_warned = False
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
        while not excess <= 0.0 and self.policy is not None and count < self.proposals:
            proposal = np.clip(self.policy(self._last_observation), self._box.low, self._box.high)
            excess, count = self._excess(proposal), count + 1
        if self.policy is None and not excess <= 0.0 and not self._is_warned:
            self._is_warned = True
            warnings.warn(NO_POLICY, stacklevel=2)
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


def executed_inside(env: gymnasium.Env[Any, Any], info: dict[str, Any], sent: Any) -> Any:
    """Return what was executed of an action that was sent, as the layer nearest to the simulator tells; or None."""
    changer = innermost_changer(env)
    if "executed_action" in info or changer is None:
        return info.get("executed_action", sent)
    admitted = changer.actions.admitted
    return None if info.get("action_outcome") == "rejected" or admitted is None else admitted[0]


def describe(raw: Any, executed: Any, outcome: Outcome, excess: float) -> dict[str, Any]:
    """Return what `info` tells about one action; a rejected one has executed nothing."""
    told: dict[str, Any] = {
        "raw_action": np.array(raw),
        "action_outcome": outcome,
        "action_excess": excess,
    }
    return told if executed is None else {**told, "executed_action": np.array(executed)}
