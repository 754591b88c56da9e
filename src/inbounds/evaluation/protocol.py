"""How good a trained run is: the paper's protocol on fresh episodes, a sweep over preferences, what it cost.

Definitions (docs/metrics.md has them at length):

- return: undiscounted, unscaled reward of an episode of deterministic actions, projected where they must be;
- valid action rate: share of 100 raw policy samples per visited state with violation <= 0 in float64;
- front: return and valid action rate of one trained policy over a grid of preferences, on the same episodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.evaluation.solver_calls import SolverCalls, count_solver_calls
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.learner import Learner, Spec
from inbounds.training.evaluate import Evaluation, Evaluator
from inbounds.training.loop import available_threads

FRESH = 1_000_000_007
"""Salt of the final evaluation: not the one of evaluations while learning, so that its episodes are new to the run."""
EPISODES = 100
"""Episodes per seed behind every number of a final table."""
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Weights of the return that a sweep tries, of those that were learnt."""


class FrontPoint(NamedTuple):
    """One preference of a sweep, averaged over seeds and episodes."""

    weight: float
    """Weight of the return; the constraint's penalty has the rest."""
    mean_return: float
    standard_error: float
    valid_action_rate: float
    projections: int

    @property
    def preference(self) -> tuple[float, float]:
        """Return the pair that `--preference` takes."""
        return (self.weight, round(1.0 - self.weight, 10))


@dataclasses.dataclass(frozen=True)
class FinalEvaluation:
    """What one final evaluation found; one entry per seed where an array is."""

    seeds: tuple[int, ...]
    episodes: int
    preference: tuple[float, float]
    returns: NDArray[np.float64]
    """(seeds, episodes)"""
    lengths: NDArray[np.float64]
    valid_action_rate: NDArray[np.float64]
    deterministic_valid_rate: NDArray[np.float64]
    noisy_valid_rate: NDArray[np.float64] | None
    """For deterministic policies: the rate with the exploration noise of training, beside the raw one."""
    worst_violation: float
    solver_calls: SolverCalls

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, rounded to what the last digit is worth."""
        means = self.returns.mean(axis=1)
        return {
            "seeds": list(self.seeds),
            "episodes": self.episodes,
            "preference": list(self.preference),
            "return": [rounded(value) for value in means],
            "return_std": [rounded(value) for value in self.returns.std(axis=1)],
            "length": [rounded(value) for value in self.lengths],
            "valid_action_rate": [rounded(value) for value in self.valid_action_rate],
            "deterministic_valid_rate": [rounded(value) for value in self.deterministic_valid_rate],
            **(
                {}
                if self.noisy_valid_rate is None
                else {"noisy_valid_rate": [rounded(value) for value in self.noisy_valid_rate]}
            ),
            "worst_violation": max(self.worst_violation, 0.0),
            "solver_calls": self.solver_calls.as_json(),
        }


def evaluator_of(run: TrainedRun, episodes: int) -> Evaluator:
    """Return the evaluator that training itself uses; it compiles once and then serves every preference."""
    return Evaluator(run.task, run.learner, run.spec, episodes, available_threads())


def evaluate_run(
    run: TrainedRun,
    episodes: int = EPISODES,
    preference: tuple[float, float] = (0.9, 0.1),
    salt: int = FRESH,
    evaluator: Evaluator | None = None,
) -> FinalEvaluation:
    """Evaluate all seeds of a run on episodes that neither training nor its evaluations have seen."""
    chosen = evaluator or evaluator_of(run, episodes)
    found: Evaluation = chosen.evaluate(run.states, list(run.seeds), preference, salt)
    return FinalEvaluation(
        seeds=run.seeds,
        episodes=found.returns.shape[1],
        preference=preference,
        returns=found.returns,
        lengths=found.lengths.mean(axis=1),
        valid_action_rate=found.valid_rate,
        deterministic_valid_rate=found.deterministic_valid_rate,
        noisy_valid_rate=noisy_valid_rate(run, found.returns.shape[1], preference, salt),
        worst_violation=found.worst_violation,
        solver_calls=count_solver_calls(run.folder, found.projections.tolist()),
    )


def with_noise(learner: Learner) -> Callable[..., jax.Array]:
    """Return the learner's `samples` with the exploration noise of training, clipped to the box."""

    def samples(
        state: Any, spec: Spec, observation: jax.Array, preference: jax.Array, key: jax.Array, count: int
    ) -> jax.Array:
        raw = learner.samples(state, spec, observation, preference, key, count)
        noise = learner.exploration * jax.random.normal(key, raw.shape, jnp.float32)
        return spec.box.rescale(jnp.clip(spec.box.normalise(raw) + noise, -1.0, 1.0))

    return samples


def noisy_valid_rate(
    run: TrainedRun, episodes: int, preference: tuple[float, float], salt: int
) -> NDArray[np.float64] | None:
    """Return the valid action rate with exploration noise, or nothing for policies that are random anyway."""
    if not run.learner.exploration:
        return None
    evaluator = Evaluator(run.task, run.learner, run.spec, min(episodes, 10), 1, with_noise(run.learner))
    return evaluator.evaluate(run.states, list(run.seeds), preference, salt).valid_rate


def has_preferences(run: TrainedRun) -> bool:
    """Tell whether the policy was trained for many preferences, so that a sweep means something."""
    return run.learner.preference_size > 0


def sweep_preferences(
    run: TrainedRun,
    episodes: int = 20,
    weights: Sequence[float] = WEIGHTS,
    evaluator: Evaluator | None = None,
) -> list[FrontPoint]:
    """Evaluate one policy at many preferences, each on the same episodes."""
    chosen = evaluator or evaluator_of(run, episodes)
    least = run.learner.min_return_weight
    points = []
    for weight in (weight for weight in weights if weight >= least):
        found = chosen.evaluate(run.states, list(run.seeds), (weight, 1.0 - weight), FRESH)
        points.append(
            FrontPoint(
                weight=weight,
                mean_return=float(found.returns.mean()),
                standard_error=float(found.returns.std() / np.sqrt(found.returns.size)),
                valid_action_rate=float(found.valid_rate.mean()),
                projections=int(found.projections.sum()),
            )
        )
    return points


def is_on_front(point: FrontPoint, points: Sequence[FrontPoint]) -> bool:
    """Tell whether no other preference is at least as good in both and better in one."""
    return not any(
        other.mean_return >= point.mean_return
        and other.valid_action_rate >= point.valid_action_rate
        and (other.mean_return > point.mean_return or other.valid_action_rate > point.valid_action_rate)
        for other in points
    )


def suggested_preference(points: Sequence[FrontPoint]) -> FrontPoint:
    """Return the preference to deploy: the most valid one whose return is as good as the best.

    Whatever the preference, the executed action is feasible; validity only saves tries and projections. So
    the return decides first, up to two standard errors of the difference, and the valid action rate second.
    """
    best = max(points, key=lambda point: point.mean_return)
    equals = [
        point
        for point in points
        if best.mean_return - point.mean_return <= 2.0 * np.hypot(best.standard_error, point.standard_error)
    ]
    return max(equals, key=lambda point: (round(point.valid_action_rate, 3), point.mean_return))


def rounded(value: float, digits: int = 6) -> float:
    """Return a number with so many significant digits: files stay small, and no reader needs more."""
    return float(f"{value:.{digits}g}")
