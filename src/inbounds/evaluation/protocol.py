"""How good a trained run is: the paper's protocol on fresh episodes, a sweep over preferences, a reference, its cost.

Definitions (docs/metrics.md has them at length):

- return: undiscounted, unscaled reward of an episode of deterministic actions, projected where they must be;
- valid action rate: fraction of 100 raw policy samples per visited state with violation <= 0 in float64;
- front: return and valid action rate of one trained policy over a grid of preferences, on the same episodes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from inbounds.deploy.policy import learnt_weights, recorded_preference, weights_of
from inbounds.errors import ConfigurationError, InvalidInputError
from inbounds.evaluation.baselines import play_episodes, reference_policy
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.learner import Learner, Spec
from inbounds.tasks.empty_states import Settling
from inbounds.training.config import seed_keys
from inbounds.training.evaluate import Evaluation, Evaluator, evaluated_draw
from inbounds.training.loop import available_threads
from inbounds.training.record import EVALUATIONS, METRICS, RunFolder
from inbounds.training.summary import plural, spread_over_seeds

SUFFIX = "_calls"
"""Learners whose updates ask a solver log running counts under `CAUSE_calls`."""


class SolverCalls(NamedTuple):
    """Calls of every seed, by cause; the paper's figure counts what happens in training."""

    acting: tuple[int, ...]
    """Training: actions that had to be projected before they were executed."""
    updates: dict[str, tuple[int, ...]]
    """Training: what updates solved, by cause (layers, linear programs of Frank and Wolfe)."""
    evaluation: tuple[int, ...]
    """The final evaluation: deterministic actions that had to be projected."""
    rounding: int
    """Bike sharing: integer allocations, one per environment step, made by the environment."""

    def training_total(self) -> list[int]:
        """Return what the paper counts: all solver calls of training, per seed."""
        columns = (self.acting, *self.updates.values())
        return [sum(counts) for counts in zip(*columns, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "acting": list(self.acting),
            "updates": {cause: list(counts) for cause, counts in self.updates.items()},
            "evaluation": list(self.evaluation),
            "rounding": self.rounding,
        }


def count_solver_calls(folder: RunFolder, seeds: Sequence[int], evaluation: Sequence[int]) -> SolverCalls:
    """Return the calls of some seeds of a run up to its last metrics, and those of their evaluation made now.

    Folders of published policies have no metrics: their training counts are empty, which is not zero.
    """
    last: dict[int, dict[str, Any]] = {row["seed"]: row for row in folder.rows(METRICS)}
    evaluated: dict[int, dict[str, Any]] = {row["seed"]: row for row in folder.rows(EVALUATIONS)}
    for row in last.values():
        for name, count in row.items():
            if name.endswith(SUFFIX) and not (count is not None and 0 <= count < float("inf")):
                raise InvalidInputError(
                    f"{folder.path / METRICS} has {count} for '{name}' of seed {row['seed']}, which is not a count. "
                    f"Leave the run out, or train it again."
                )
    causes = sorted(
        {name.removesuffix(SUFFIX) for row in last.values() for name in row if name.endswith(SUFFIX)}
    )
    steps = max((row["step"] for row in (*last.values(), *evaluated.values())), default=0)
    rows = [last[seed] for seed in seeds] if all(seed in last for seed in seeds) else []
    return SolverCalls(
        acting=tuple(int(row["projections"]) for row in rows),
        updates={cause: tuple(int(row.get(cause + SUFFIX, 0)) for row in rows) for cause in causes},
        evaluation=tuple(int(count) for count in evaluation),
        rounding=steps if str(folder.config()["task"]).startswith("bss") else 0,
    )


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

    def __str__(self) -> str:
        """Return the lines that a user wants to see first."""
        means, calls = self.returns.mean(axis=1), self.solver_calls.evaluation
        return "\n".join(
            [
                f"{plural(self.episodes, 'episode')} per seed, {plural(len(self.seeds), 'seed')}",
                f"  return             {means.mean():.4g}{spread_over_seeds(means)}",
                f"  valid action rate  {self.valid_action_rate.mean():.3f}",
                f"  projections        {np.mean(calls):,.0f} per seed",
                f"  worst violation    {max(self.worst_violation, 0.0):g}",
            ]
        )

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


@contextlib.contextmanager
def given_or_own(evaluator: Evaluator | None, run: TrainedRun, episodes: int) -> Iterator[Evaluator]:
    """Lend the evaluator that was given, or one of its own that is closed at the end."""
    if evaluator is not None:
        yield evaluator
    else:
        with contextlib.closing(evaluator_of(run, episodes)) as own:
            yield own


def evaluate_run(
    run: TrainedRun,
    episodes: int = EPISODES,
    preference: tuple[float, float] | None = None,
    salt: int = FRESH,
    evaluator: Evaluator | None = None,
) -> FinalEvaluation:
    """Evaluate all seeds of a run on episodes that neither training nor its evaluations have seen."""
    preference = chosen_preference(run, preference)
    with given_or_own(evaluator, run, episodes) as chosen:
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
        solver_calls=count_solver_calls(run.folder, run.seeds, found.projections.tolist()),
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
    with contextlib.closing(evaluator):
        return evaluator.evaluate(run.states, list(run.seeds), preference, salt).valid_rate


def chosen_preference(run: TrainedRun, preference: tuple[float, float] | None = None) -> tuple[float, float]:
    """Return the preference to act at: the one that is given, or else that of the run.

    One that the policy has not learnt is refused; policies without preferences ignore it.
    """
    recorded = recorded_preference(run.folder.config())
    if preference is None or not has_preferences(run):
        if preference is not None:
            weights_of(preference)
        return recorded
    learnt_weights(preference, run.learner.min_return_weight)
    return preference


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
    least = run.learner.min_return_weight
    points = []
    with given_or_own(evaluator, run, episodes) as chosen:
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


COMMON_SEED = 1_800_000_000
"""Episodes of comparisons start here, apart from those of training, evaluation and references."""


class PairedDifference(NamedTuple):
    """Return of the policies less that of a reference, episode by episode."""

    reference: str
    differences: NDArray[np.float64]
    """(seeds, episodes)"""
    reference_mean: float

    @property
    def mean(self) -> float:
        """Return the mean over seeds and episodes."""
        return float(self.differences.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the mean for these policies: Student's t over episodes, seeds averaged."""
        episodes = self.differences.mean(axis=0)
        error = float(episodes.std(ddof=1) / np.sqrt(len(episodes)))
        half = float(stats.t.ppf(0.975, len(episodes) - 1)) * error
        return self.mean - half, self.mean + half

    @property
    def verdict(self) -> str:
        """Say in a few words how the policies compare."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "no significant difference"

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "reference": self.reference,
            "episodes": int(self.differences.shape[1]),
            "reference_mean": self.reference_mean,
            "difference": self.mean,
            "interval_95": list(self.interval),
            "difference_by_seed": self.differences.mean(axis=1).tolist(),
            "verdict": self.verdict,
        }


def compare_with_reference(
    run: TrainedRun,
    reference: str,
    episodes: int = 1_000,
    preference: tuple[float, float] | None = None,
    search_steps: int = 200_000,
) -> PairedDifference:
    """Play common episodes with every seed's policy and with a reference policy of the task."""
    if episodes < 2:
        raise ConfigurationError(
            f"{episodes} episode gives no confidence interval. Compare some hundred episodes."
        )
    weights = jnp.asarray(chosen_preference(run, preference), jnp.float32)
    task = run.task
    other = reference_policy(task, reference, search_steps=search_steps)
    seeds = [COMMON_SEED + index for index in range(episodes)]
    generator = np.random.default_rng(COMMON_SEED)
    baseline = play_episodes(task, lambda observation: other(observation, generator), seeds)
    act = jax.jit(
        lambda state, observation, key: evaluated_draw(
            run.learner,
            run.spec,
            state,
            observation[None],
            weights,
            key[None],
        ).action[0]
    )
    settling = Settling(task)
    found = []
    for index, seed in enumerate(run.seeds):
        state = jax.tree.map(lambda leaf, at=index: leaf[at : at + 1], run.states)
        key, times = seed_keys(seed, 1)[0], itertools.count()

        def choose(
            observation: NDArray[Any], state: Any = state, key: Any = key, times: Any = times
        ) -> NDArray[Any]:
            drawn = jax.random.fold_in(key, next(times))
            action = np.asarray(act(state, jnp.asarray(observation, jnp.float32), drawn))
            return settling.settle(observation, action, action).actions

        found.append(play_episodes(task, choose, seeds).returns)
    differences = np.stack(found) - baseline.returns
    return PairedDifference(reference, differences, float(baseline.returns.mean()))
