"""Does a policy stay feasible? Replays it on a task and writes a certificate that a stranger can check."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.auditing.audited_policy import AuditedPolicy, open_policy
from inbounds.constraints import Constraint
from inbounds.constraints.arrays import require_no_mask
from inbounds.deploy.interventions import idle_members
from inbounds.deploy.safety_filter import SafetyFilter
from inbounds.errors import ConfigurationError, ConstraintError
from inbounds.limits import is_whole
from inbounds.tasks.environment import rollout
from inbounds.tasks.registry import make
from inbounds.tasks.task import Task

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
STEPS_BEFORE_IDLE = 1000  # a shorter replay says nothing about limits that no action came near


@dataclasses.dataclass(frozen=True)
class Violation:
    """The worst infeasible action that was met."""

    step: int
    episode: int
    excess: float
    reason: str
    action: list[float]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What a replay found; a policy passes if not a single action violated its constraint, with no tolerance."""

    policy: str
    kind: str
    digest: str | None
    """SHA-256 of the policy's files."""
    task: str
    constraint: str
    constraint_digest: str
    """SHA-256 of the constraint's JSON."""
    seed: int
    is_deterministic: bool
    steps: int
    episodes: int
    violations: int
    invalid_actions: int
    """Violations in which the action was not even finite numbers of the right shape."""
    worst_excess: float
    """The largest g(s, a) over all steps, in float64; at most 0 for a policy that passes."""
    worst: Violation | None
    acceptance: float | None
    """Fraction of the policy's raw proposals that were feasible, where that can be known."""
    own_projections: int | None
    """Actions that the policy itself had to project, where it counts them."""
    interventions: int
    """Actions that the audit had to correct before the environment could go on."""
    mean_return: float | None
    """Mean return of the whole episodes."""
    latency: dict[str, float]
    """Percentiles of the seconds per action, and the largest."""
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def is_passed(self) -> bool:
        """Tell whether no action violated the constraint."""
        return self.violations == 0

    @property
    def rate_bound(self) -> float:
        """The violation rate that is refuted with 95 % confidence if steps were independent: 3 / n for none."""
        if self.violations == self.steps:
            return 1.0
        from scipy.stats import beta

        return float(beta.ppf(0.95, self.violations + 1, self.steps - self.violations))

    def __str__(self) -> str:
        """Return the lines that a user wants to see first."""
        verdict = "passed" if self.is_passed else "failed"
        bound = f"at most {self.rate_bound:.3g} with 95 % confidence if steps were independent"
        lines = [
            f"{verdict}: {self.violations:,} violations in {self.steps:,} actions of {self.policy} on {self.task}",
            f"  constraint      {self.constraint}",
            f"  worst excess    {self.worst_excess:.3g}",
            f"  violation rate  {bound}",
        ]
        if self.worst is not None:
            lines.append(
                f"  worst action    step {self.worst.step}, episode {self.worst.episode}: {self.worst.reason}"
            )
        return "\n".join([*lines, *(f"  note            {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return plain data; numbers that JSON cannot hold become None."""
        plain = {"passed": self.is_passed, **dataclasses.asdict(self), "rate_bound_95": self.rate_bound}
        cleaned: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=lambda _: None)
        return cleaned


def audit(
    policy: Any,
    task: Task | str,
    *,
    steps: int = 10_000,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    preference: tuple[float, float] | None = None,
    interpreter: str | None = None,
) -> Certificate:
    """Replay a policy on a task and check every action in float64, with no tolerance.

    Args:
        policy: a policy or a function of an observation; or, as text, a run or exported folder, an ONNX file, a
            stable-baselines3 zip, or "module:callable".
        task: where it acts, or its name; its constraint decides, whatever constraint the policy carries.
        steps: how many actions are checked at most.
        episodes: stop after so many whole episodes.
        seed: of the environment and of the policy's own draws.
        deterministic: ask for the deterministic action, where the policy knows one.
        preference: of a preference-conditioned policy; by default that of the run or export.
        interpreter: Python with stable-baselines3, for zip files; `.peers/bin/python` by default.
    """
    for name, count in (("steps", steps), ("episodes", 1 if episodes is None else episodes)):
        if not is_whole(count, 1):
            raise ConfigurationError(
                f"{name}={count!r} is not a whole number of 1 or more, so that nothing would be checked. Use 1000, say."
            )
    if not is_whole(seed, 0):
        raise ConfigurationError(
            f"seed={seed!r} is not a whole number of 0 or more, from which random numbers start. Use seed=0, say."
        )
    chosen = make(task) if isinstance(task, str) else task
    if not isinstance(chosen, Task):
        raise ConfigurationError(
            f"{task!r} is not a task. Give its name, or ib.Task(environment, constraint)."
        )
    with open_policy(policy, chosen, seed, deterministic, preference, interpreter) as opened:
        return _replay(opened, chosen, steps, episodes, seed, deterministic)


def _replay(
    policy: AuditedPolicy, task: Task, steps: int, episodes: int | None, seed: int, deterministic: bool
) -> Certificate:
    environment = task.make_environment()
    executed_as = np.dtype(environment.action_space.dtype or np.float32)
    start = np.clip(np.zeros(task.action_size), task.action_low, task.action_high)
    # The certificate notes limits that no action came near; a warning would speak of a filter that nobody made.
    safety = SafetyFilter(
        task.constraint, on_invalid_action="interior_point", dtype=executed_as, warn_after=None
    )
    # Lists, since an episode may end long before the largest number of steps.
    seconds, excesses, returns = list[float](), list[float](), [0.0]
    worst: Violation | None = None
    invalid = count = 0
    before: NDArray[np.float64] = start
    safety.reset(start)

    def act(observation: NDArray[np.float64]) -> NDArray[np.floating]:
        nonlocal invalid, worst
        # Copies: a policy that writes into what it is shown must not move the set by which it is evaluated.
        shown = observation.copy(), before.copy()
        began = time.perf_counter()
        proposed = policy.ask(*shown)
        spent = time.perf_counter() - began
        seconds.append(spent if policy.seconds is None else policy.seconds())
        action = _typed(proposed, task.action_size, executed_as)
        executed = safety.correct(observation, action, previous_action=before)
        if np.isfinite(action).all():
            excess = float(task.constraint.violation(observation, action, previous_action=before))
        else:
            invalid, excess = invalid + 1, math.inf
        if not excess <= 0.0 and (worst is None or excess > worst.excess):
            reason = safety.interventions()[-1].reason
            worst = Violation(count, len(returns) - 1, excess, reason, action.tolist())
        excesses.append(excess)
        return executed

    with contextlib.closing(environment):
        observation, _ = environment.reset(seed=seed)
        for step in rollout(environment, act, observation):
            before = step.action.astype(np.float64)
            returns[-1] += step.reward
            count += 1
            if step.is_last:
                returns.append(0.0)
                before = start
                safety.reset(start)
            if count == steps or (episodes is not None and len(returns) > episodes):
                break
    whole = returns[:-1]
    is_violation = ~(np.array(excesses) <= 0.0)
    acceptance = policy.acceptance() if policy.acceptance else 1.0 - float(is_violation.mean())
    return Certificate(
        policy=policy.name,
        kind=policy.kind,
        digest=policy.digest,
        task=task.name,
        constraint=task.constraint.formula(),
        constraint_digest=_digest(task.constraint),
        seed=seed,
        is_deterministic=deterministic,
        steps=count,
        episodes=len(whole),
        violations=int(is_violation.sum()),
        invalid_actions=invalid,
        worst_excess=max(excesses),
        worst=worst,
        acceptance=acceptance,
        own_projections=policy.projections() if policy.projections else None,
        interventions=int(safety.metrics()["interventions"]),
        mean_return=float(np.mean(whole)) if whole else None,
        latency=_latency(np.array(seconds)),
        notes=_notes(policy, task, safety if count >= STEPS_BEFORE_IDLE else None),
        provenance=_provenance(),
    )


def _typed(proposed: Any, size: int, dtype: np.dtype[Any]) -> NDArray[np.floating]:
    """Return what the environment would execute; anything else becomes NaN, which counts as a violation."""
    try:
        require_no_mask("action", proposed)
        array = np.asarray(proposed)
        if array.shape == (size,) and array.dtype.kind in "fiu":
            with np.errstate(over="ignore"):
                typed: NDArray[np.floating] = array.astype(dtype)
            return typed
    except (TypeError, ValueError):  # a refused mask among them
        pass
    return np.full(size, np.nan, dtype=dtype)


def _latency(seconds: NDArray[np.float64]) -> dict[str, float]:
    values = np.percentile(seconds, PERCENTILES)
    shares = {f"p{percent:g}": float(value) for percent, value in zip(PERCENTILES, values, strict=True)}
    return {"mean": float(seconds.mean()), **shares, "max": float(seconds.max())}


def _notes(policy: AuditedPolicy, task: Task, safety: SafetyFilter | None) -> tuple[str, ...]:
    notes = list(policy.notes)
    if policy.constraint is not None and _digest(policy.constraint) != _digest(task.constraint):
        notes.append(
            f"the policy carries another constraint than the task ({policy.constraint.formula()}); it was checked by "
            f"the task's."
        )
    if safety is not None and (idle := idle_members(task.constraint, safety.limits())):
        notes.append(
            f"no action was beyond or near these limits: {'; '.join(member.formula() for member in idle)}. If that is "
            f"unexpected, compare their units with those of the actions."
        )
    return tuple(notes)


def _digest(constraint: Constraint) -> str:
    try:
        plain = json.dumps(constraint.to_json(), sort_keys=True)
    except ConstraintError:  # a set that cannot be written to a file, such as an oracle of a local function
        plain = constraint.formula()
    return hashlib.sha256(plain.encode()).hexdigest()


def _provenance() -> dict[str, Any]:
    from inbounds.training.record import provenance

    return provenance()
