"""The safety filter of vectorised environments: every row of a torch tensor of actions leaves inside its set."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inbounds.constraints import Constraint
from inbounds.constraints.arrays import is_tensor, namespace_of, require_values
from inbounds.deploy.correction import (
    Fallback,
    observed_previous,
    reads_previous_action,
    recalled,
    require_fallbacks,
)
from inbounds.errors import ConfigurationError, InfeasibleActionError, InvalidInputError

Tensor = Any
"""A torch.Tensor; torch is not imported here."""
KINDS = ("projection", "interior_point", "hold")
CAUSES = ("infeasible_action", "invalid_action", "invalid_observation")
BY_KIND, BY_CAUSE = (f"interventions_{kind}" for kind in KINDS), (f"causes_{cause}" for cause in CAUSES)
COUNTERS = ("calls", "actions", "passed", "interventions", *BY_KIND, *BY_CAUSE)


class TorchFilter:
    """Returns a_i in C(s_i) for every row i of a batch of torch actions, on the device of the actions.

    A row that `constraint.contains` accepts passes untouched, bit for bit. Others are replaced by their projection,
    or by an interior point should rounding defeat it, and are checked once more in float64. `contains` keeps a
    margin of 1e-6, so that rows which a GPU accepts are feasible in float64 on the host as well, where sums are
    rounded in another order.

    A row whose observation or action is not finite takes the fallback that was chosen. An error concerns the whole
    batch: nothing is returned, and nothing is remembered.

    Args:
        constraint: the set C(s), in the units that `env.step` receives.
        observation: the group that the constraint reads where observations are a dictionary.
        previous_action: what counts as executed before the first step of an episode, one vector for all rows or
            one row each; only for constraints that read `ib.previous_action`.
        on_invalid_observation: for a row that is not finite: "refuse" raises, "hold" repeats the last action of the
            row, "interior_point" takes the safest point. The last two use the row's last good observation.
        on_invalid_action: the same for an action that is not finite.
    """

    def __init__(
        self,
        constraint: Constraint,
        *,
        observation: str = "policy",
        previous_action: Any = None,
        on_invalid_observation: Fallback = "refuse",
        on_invalid_action: Fallback = "refuse",
    ) -> None:
        """Check the choices; nothing is computed yet."""
        if not isinstance(constraint, Constraint):
            raise ConfigurationError(
                f"a TorchFilter needs a constraint, not {constraint!r}. Pass one, such as ib.Ball(radius_squared=1.0)."
            )
        chosen = {"on_invalid_observation": on_invalid_observation, "on_invalid_action": on_invalid_action}
        require_fallbacks(chosen)
        self.constraint, self.observation = constraint, observation
        self._on_invalid_observation, self._on_invalid_action = on_invalid_observation, on_invalid_action
        self._first = previous_action
        self._reads_previous = reads_previous_action(constraint)
        self._previous_in = observed_previous(constraint, {"on_invalid_observation": on_invalid_observation})
        if self._reads_previous and previous_action is None:
            raise ConfigurationError(
                f"{constraint.formula()} reads the previous action, and an episode begins without one. Pass "
                f"previous_action=, what counts as executed before the first step, such as torch.zeros(6)."
            )
        self._counts = dict.fromkeys(COUNTERS, 0)
        self.is_corrected: Tensor | None = None
        """Which rows of the last batch were replaced."""
        self._executed: Tensor | None = None
        self._seen: Tensor | None = None
        self._has_acted: Tensor | None = None

    def __repr__(self) -> str:
        """Show the set, and how many rows were replaced."""
        counts = self._counts
        replaced = f"{counts['interventions']} of {counts['actions']} actions replaced"
        return f"TorchFilter({self.constraint.formula()}; {replaced})"

    # What a loop calls --------------------------------------------------------------------------------------

    def correct(self, observations: Any, actions: Tensor) -> Tensor:
        """Return the actions with every infeasible row replaced; half precision leaves as float32.

        Args:
            observations: a tensor with one row per environment, or a dictionary that holds one; None for a
                constraint that reads no observation.
            actions: a tensor of shape (num_envs, action_size).
        """
        actions = self._typed(actions)
        seen = self._rows_of(observations, actions)
        xp, count = namespace_of(actions), actions.shape[0]
        if not count:  # nothing is asked for, and nothing is to be remembered
            self._counts["calls"] += 1
            self.is_corrected = actions.new_zeros(0).bool()
            return actions.clone()
        executed, before = self._memory(actions)
        has_acted = self._has_acted if self._has_acted is not None else actions.new_zeros(count).bool()

        is_sound = has_acted | True
        if seen is not None:
            is_sound = xp.isfinite(seen).all(-1)
            seen = self._with_last_good(seen, is_sound, has_acted, executed)
        is_finite = xp.isfinite(actions).all(-1)
        self._refuse_unfit(is_sound, is_finite)
        is_known = is_sound & is_finite

        answer = actions.clone()
        is_held = self._choosing("hold", is_sound, is_finite)
        if bool((is_held & ~has_acted).any()):
            raise InvalidInputError(
                f"{named(is_held & ~has_acted)} cannot hold an action, since the episode has none yet: nothing was "
                f"executed. Choose 'interior_point', or repair the source."
            )
        answer[is_held] = executed[is_held]
        is_central = self._choosing("interior_point", is_sound, is_finite)
        answer[is_central] = 0.0  # any finite number, until the interior point is known
        is_accepted = self._contains(seen, answer, before) & ~is_central
        is_moved = ~is_accepted & ~is_central
        if bool(is_moved.any()):
            answer[is_moved] = self._asked(self.constraint.project, is_moved, seen, before, answer[is_moved])
        if bool(is_central.any()):
            answer[is_central] = self._interior(is_central, seen, before, answer)
        is_replaced = is_moved | is_central
        if bool(is_replaced.any()):
            is_missed = is_replaced & ~self._contains(seen, answer, before)
            if bool(is_missed.any()):
                answer[is_missed] = self._interior(is_missed, seen, before, answer)
                is_central, is_moved = is_central | is_missed, is_moved & ~is_missed
                self._require_feasible(is_missed & ~self._contains(seen, answer, before))

        kinds = dict(zip(KINDS, (is_moved, is_central, is_held & ~is_moved & ~is_central), strict=True))
        broken = (is_known & ~is_accepted, is_sound & ~is_finite, ~is_sound)
        causes = dict(zip(CAUSES, broken, strict=True))
        self.is_corrected = ~(is_known & is_accepted)
        self._count(count, kinds, causes)
        # Copies: an environment may write into the tensors that it shares with its caller.
        self._executed, self._seen = answer.clone(), None if seen is None else seen.clone()
        self._has_acted = has_acted | True
        return answer

    def reset(self, ended: Tensor | None = None) -> None:
        """Begin an episode in the rows where `ended` is true, as in terminated | truncated; in all rows without it."""
        if ended is None:
            self._executed = self._seen = self._has_acted = None
            return
        if self._executed is None or self._has_acted is None:
            return
        ended = ended.bool()
        if ended.shape != self._has_acted.shape:
            raise InvalidInputError(
                f"ended has shape {tuple(ended.shape)}, but there are {self._has_acted.shape[0]} rows. Pass "
                f"terminated | truncated, with one entry per environment."
            )
        start = self._start(self._executed)
        self._executed = namespace_of(ended).where(ended[:, None], start, self._executed)
        self._has_acted = self._has_acted & ~ended

    def marked(self, rows: Any) -> Tensor | None:
        """Mark rows that are named by their numbers or by a mask; None, which is all rows, before the first action."""
        if rows is None or self._has_acted is None:
            return None
        marks = np.zeros(len(self._has_acted), dtype=bool)
        try:
            chosen = np.asarray(rows.cpu() if is_tensor(rows) else rows)
            chosen = chosen.astype(bool) if is_tensor(rows) and chosen.dtype == np.uint8 else chosen
            marks[rows if isinstance(rows, slice) else chosen if chosen.size else []] = True
        except (IndexError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the rows to reset, {rows!r:.80}, do not fit {marks.size} rows ({error}). Nothing was reset. Pass row "
                f"numbers from 0 to {marks.size - 1}, such as env_ids=[0], or a boolean mask with one entry per row."
            ) from error
        return self._has_acted.new_tensor(marks)

    def metrics(self) -> dict[str, int]:
        """Return the counters: calls, actions (rows), those that passed, interventions by kind and cause."""
        return dict(self._counts)

    def wrap(self, environment: Any) -> FilteredEnvironment:
        """Return the environment with this filter before its `step`, for Isaac Lab, mjlab and their likes."""
        return FilteredEnvironment(environment, self)

    # How rows are answered ----------------------------------------------------------------------------------

    def _contains(self, seen: Tensor | None, actions: Tensor, before: Tensor | None) -> Tensor:
        return self.constraint.contains(seen, actions, previous_action=before)

    def _asked(
        self,
        ask: Callable[..., Tensor],
        rows: Tensor,
        seen: Tensor | None,
        before: Tensor | None,
        *what: Tensor,
    ) -> Tensor:
        """Ask the constraint about some rows."""
        here, last = (None if part is None else part[rows] for part in (seen, before))
        return ask(here, *what, previous_action=last)

    def _interior(self, rows: Tensor, seen: Tensor | None, before: Tensor | None, actions: Tensor) -> Tensor:
        ask = functools.partial(self.constraint.interior_point, dimension=actions.shape[-1])
        if seen is None and before is None:  # no tensor tells the device
            return actions.new_tensor(np.asarray(ask(None)))
        return self._asked(ask, rows, seen, before).to(actions.dtype)

    def _choosing(self, fallback: str, is_sound: Tensor, is_finite: Tensor) -> Tensor:
        """Return the rows that are answered by a fallback; a broken observation comes before a broken action."""
        chosen = is_sound & False
        if self._on_invalid_observation == fallback:
            chosen = chosen | ~is_sound
        if self._on_invalid_action == fallback:
            chosen = chosen | (is_sound & ~is_finite)
        return chosen

    def _refuse_unfit(self, is_sound: Tensor, is_finite: Tensor) -> None:
        unfit = self._choosing("refuse", is_sound, is_finite)
        if bool(unfit.any()):
            what = "observation" if bool((unfit & ~is_sound).any()) else "action"
            raise InvalidInputError(
                f"{named(unfit)}: invalid {what}, it holds a value that is not finite. Nothing was executed. Choose "
                f"another behaviour (on_invalid_{what}='hold' or 'interior_point'), or repair the source."
            )

    def _require_feasible(self, is_outside: Tensor) -> None:
        if bool(is_outside.any()):
            raise InfeasibleActionError(
                f"{named(is_outside)}: no feasible action was found for {self.constraint.formula()}. Nothing was "
                f"executed. Widen the constraint, or pass float64 actions."
            )

    # What is read and kept ----------------------------------------------------------------------------------

    def _typed(self, actions: Any) -> Tensor:
        if not is_tensor(actions) or actions.ndim != 2 or not actions.is_floating_point():
            kind = f"{actions.dtype} of shape {tuple(actions.shape)}" if is_tensor(actions) else type(actions)
            raise InvalidInputError(
                f"the actions are {kind}, but a floating torch tensor of shape (num_envs, action_size) is expected. "
                f"Use ib.SafetyFilter for one NumPy vector at a time."
            )
        require_values("actions", actions)
        actions = actions.detach()
        xp = namespace_of(actions)
        return actions if actions.dtype in (xp.float32, xp.float64) else actions.to(xp.float32)

    def selected(self, observations: Any) -> Tensor | None:
        """Return the tensor that the constraint reads."""
        if observations is None:
            return None
        if not is_tensor(observations) and self.observation in getattr(observations, "keys", list)():
            observations = observations[self.observation]
        if not is_tensor(observations):
            raise InvalidInputError(
                f"the observations are neither a tensor nor a dictionary that holds one as {self.observation!r}. Name "
                f"the group that the constraint reads: TorchFilter(constraint, observation=...)."
            )
        require_values("observations", observations)
        return observations.detach()

    def _rows_of(self, observations: Any, actions: Tensor) -> Tensor | None:
        seen = self.selected(observations)
        if seen is not None and (seen.ndim != 2 or seen.shape[0] != actions.shape[0]):
            raise InvalidInputError(
                f"the observations have shape {tuple(seen.shape)}, but there are {actions.shape[0]} actions. Pass one "
                f"row per environment."
            )
        return None if seen is None else seen.to(actions.device)

    def _start(self, like: Tensor) -> Tensor:
        if self._first is None:
            return like.new_zeros(like.shape)
        first = self._first.detach() if is_tensor(self._first) else like.new_tensor(np.asarray(self._first))
        try:
            start: Tensor = first.to(device=like.device, dtype=like.dtype).expand(like.shape).clone()
        except RuntimeError as error:
            raise InvalidInputError(
                f"previous_action has shape {tuple(first.shape)}, but actions have shape {tuple(like.shape)}. Pass one "
                f"vector, or one row per environment."
            ) from error
        return start

    def _memory(self, actions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what each row executed last, and the same where the constraint reads it."""
        executed = self._executed if self._executed is not None else self._start(actions)
        if executed.shape != actions.shape:
            raise InvalidInputError(
                f"the actions have shape {tuple(actions.shape)}, but the last ones had {tuple(executed.shape)}. Call "
                f"reset() before another batch."
            )
        executed = executed.to(device=actions.device, dtype=actions.dtype)
        return executed, executed if self._reads_previous else None

    def _with_last_good(self, seen: Tensor, is_sound: Tensor, has_acted: Tensor, executed: Tensor) -> Tensor:
        """Return the observations with rows that are not finite replaced by the last good ones.

        Where these hold the action before them, they get what was executed since.
        """
        if bool(is_sound.all()) or self._on_invalid_observation == "refuse":
            return namespace_of(seen).where(is_sound[:, None], seen, 0.0)
        is_blind = ~is_sound & ~has_acted
        if self._seen is None or bool(is_blind.any()):
            raise InvalidInputError(
                f"{named(is_blind)}: invalid observation, and the episode has no earlier one to fall back on. Nothing "
                f"was executed. Repair the source."
            )
        if not self._previous_in:
            return namespace_of(seen).where(is_sound[:, None], seen, self._seen)
        # In float64, which holds the numbers of either tensor.
        whole, last = seen.double(), self._seen[~is_sound].double()
        whole[~is_sound] = recalled(self._previous_in, last, executed[~is_sound].double())
        return whole

    def _count(self, rows: int, kinds: dict[str, Tensor], causes: dict[str, Tensor]) -> None:
        counts = self._counts
        counts["calls"] += 1
        counts["actions"] += rows
        for group, masks in (("interventions", kinds), ("causes", causes)):
            for name, mask in masks.items():
                counts[f"{group}_{name}"] += int(mask.sum())
        counts["interventions"] = sum(counts[f"interventions_{kind}"] for kind in kinds)
        counts["passed"] = counts["actions"] - counts["interventions"]


class FilteredEnvironment:
    """A vectorised environment that executes only what a TorchFilter returns; all else is the environment's own."""

    def __init__(self, environment: Any, safety: TorchFilter) -> None:
        """Wait for the first reset, which tells the observations."""
        self.env, self.safety = environment, safety
        self._observations: Tensor | None = None
        self._is_begun = False

    def reset(self, *arguments: Any, **named: Any) -> Any:
        """Reset the environment and begin an episode in every row, or in those that `env_ids` names.

        The environment gets what it is given: a seed, `env_ids`, and `options`, in which a `reset_mask` marks rows.
        """
        self._require_known(arguments, named)
        rows = named.get("env_ids")
        if rows is None and isinstance(named.get("options"), Mapping):
            rows = named["options"].get("reset_mask")
        ended = self.safety.marked(rows)  # before the environment moves
        self._is_begun = False
        answer = self.env.reset(*arguments, **named)
        self.safety.reset(ended)
        return self._stand_at(answer)

    def step(self, actions: Tensor) -> Any:
        """Step with feasible actions; rows whose episode ended begin another one, as the environment resets them."""
        if not self._is_begun:
            raise InvalidInputError(
                "the environment was not reset, or raised an error, so that no set is known. Call reset() first."
            )
        executed = self.safety.correct(self._observations, actions)
        self._is_begun = False  # until it answers: one that raises may have moved
        answer = self.env.step(executed)
        if len(answer) != 5:
            raise ConfigurationError(
                f"step() returned {len(answer)} values instead of observations, rewards, terminated, truncated and "
                f"extras. Wrap the environment itself, and put the wrapper of your learning library around it."
            )
        self.safety.reset(answer[2].bool() | answer[3].bool())
        return self._stand_at(answer)

    def _stand_at(self, answer: Any) -> Any:
        seen = self.safety.selected(answer[0])
        # A copy: who writes into what is returned must not move the set.
        self._observations, self._is_begun = None if seen is None else seen.clone(), True
        return answer

    @staticmethod
    def _require_known(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Refuse arguments that may mean that an episode begins in some rows alone."""
        others = (name for name in named if name not in ("seed", "env_ids", "options"))
        unknown = [*map(repr, arguments), *others]
        if unknown:
            raise ConfigurationError(
                f"reset({', '.join(unknown):.80}) does not tell in which rows an episode begins, and so which forget "
                f"what they executed. Name them: reset(seed=..., env_ids=..., options=...)."
            )

    def __getattr__(self, name: str) -> Any:
        """Return everything else from the environment, `unwrapped` too, which executes anything."""
        return getattr(self.__dict__["env"], name)


def named(rows: Tensor) -> str:
    """Name the first of the rows that are marked."""
    places = rows.nonzero().flatten().tolist()
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return f"row {', '.join(map(str, places[:3]))}{more}"
