"""What a policy must beat: the returns of a task's reference policies, on episodes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.tasks.environment import batch_rollout
from inbounds.tasks.task import Task

if TYPE_CHECKING:
    from inbounds.tasks.environment import CompiledEnvironment

FIRST_SEED = 1_500_000_000
"""Episodes of references start here, apart from those of training and of evaluation."""


class ReferenceReturn(NamedTuple):
    """Undiscounted, unscaled returns of one reference policy."""

    name: str
    returns: NDArray[np.float64]
    worst_violation: float


def quick_references(task: Task) -> tuple[str, ...]:
    """Return the references that need no search: those that a summary can afford."""
    return tuple(name for name in reference_names(task) if name != "constant")


def play_reference(
    task: Task, name: str, episodes: int = 10, seed: int = 0, threads: int = 1, search_steps: int = 200_000
) -> ReferenceReturn:
    """Play whole episodes side by side with a reference policy."""
    policy = reference_policy(task, name, search_steps=search_steps)
    generator = np.random.default_rng(FIRST_SEED + seed)
    seeds = [FIRST_SEED + seed * episodes + index for index in range(episodes)]
    played = play_episodes(task, lambda observation: policy(observation, generator), seeds, threads)
    return ReferenceReturn(name, played.returns, played.worst_violation)


class Played(NamedTuple):
    """Undiscounted, unscaled returns of episodes, and the worst violation of an executed action."""

    returns: NDArray[np.float64]
    worst_violation: float


def play_episodes(
    task: Task, act: Callable[[NDArray[Any]], NDArray[Any]], seeds: Sequence[int], threads: int = 1
) -> Played:
    """Play the first episode of each seed, all side by side; `act` sees all observations at once."""
    if task.host is None:
        raise ConfigurationError(
            f"{task.name} has no host environments to play episodes in. Give the task `host=`."
        )
    total, worst = np.zeros(len(seeds)), -np.inf
    with contextlib.closing(task.host(len(seeds), threads)) as batch:
        for played in batch_rollout(batch, act, batch.reset(list(seeds))):
            worst = max(worst, float(np.max(task.constraint.violation(played.observation, played.action))))
            total += np.where(played.is_first, played.step.reward, 0.0)
    return Played(total, max(worst, 0.0))


def measure_references(
    tasks: Sequence[str], episodes: int, search_steps: int, report: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return, per task and reference policy, mean and deviation over episodes.

    The best constant action is searched with `search_steps` environment steps of other seeds; 0 leaves it out.
    """
    from inbounds.tasks.registry import make

    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in tasks:
        task = make(name)
        found[name] = {}
        for reference in reference_names(task) if search_steps else quick_references(task):
            played = play_reference(task, reference, episodes, search_steps=search_steps)
            mean, deviation = float(played.returns.mean()), float(played.returns.std(ddof=1))
            found[name][reference] = {
                "mean": float(f"{mean:.6g}"),
                "deviation": float(f"{deviation:.6g}"),
                "episodes": episodes,
                "worst_violation": played.worst_violation,
            }
            report(f"{name:12} {reference:14} {mean:.5g} ± {deviation:.3g}")
    return found


ReferencePolicy = Callable[[NDArray[np.floating], np.random.Generator], NDArray[np.float64]]
"""From observations (any leading axes) and a generator to feasible actions."""

_SCREENING_STEPS = 100
_FINALISTS = 8


class ConstantAction(NamedTuple):
    """The outcome of the search for the best constant action."""

    action: NDArray[np.float64]
    mean_reward: float
    """Per step of the finalists' whole episodes; being their best it is a little optimistic: measure it anew."""
    steps: int
    """How many environment steps the search took."""


def reference_names(task: Task) -> tuple[str, ...]:
    """Return which reference policies a task has."""
    names = ["uniform", "interior"]
    if task.name.startswith("bss"):
        names.append("never-moving")
    if task.constraint.is_constant():
        names.append("constant")
    return tuple(names)


def reference_policy(task: Task, name: str, *, search_steps: int = 200_000, seed: int = 0) -> ReferencePolicy:
    """Return a reference policy; `search_steps` and `seed` matter to `constant` only."""
    if name not in reference_names(task):
        raise UnknownNameError(
            "reference policy",
            name,
            reference_names(task),
            f"These are the reference policies of {task.name}.",
        )
    if name == "uniform":
        return lambda observation, rng: np.asarray(
            task.constraint.sample(rng, observation, dimension=task.action_size), dtype=np.float64
        )
    if name == "interior":
        return lambda observation, rng: _repeated(
            np.asarray(task.constraint.interior_point(observation, dimension=task.action_size)), observation
        )
    if name == "never-moving":
        zones = slice(task.action_size, 2 * task.action_size)
        return lambda observation, rng: np.asarray(observation, dtype=np.float64)[..., zones]
    best = best_constant_action(task, steps=search_steps, seed=seed).action
    return lambda observation, rng: _repeated(best, observation)


def best_constant_action(
    task: Task, *, steps: int = 200_000, seed: int = 0, candidates: int = 64, threads: int = 1
) -> ConstantAction:
    """Search for the constant action with the largest mean reward, within a budget of environment steps.

    Rounds of candidates are screened on short episodes with the same randomness for all: the first round is
    uniform in the feasible set, each later one is scattered around the best actions seen so far. The
    finalists then meet on whole episodes, since what diverges slowly looks good on short ones.
    """
    if not task.constraint.is_constant():
        raise ConfigurationError(
            f"{task.name}: the feasible set depends on the observation, so that no constant action is always "
            "allowed; use the reference policy 'interior'."
        )
    screening_steps = min(_SCREENING_STEPS, task.horizon)
    rounds = int(0.7 * steps) // (candidates * screening_steps)
    episodes = (steps - rounds * candidates * screening_steps) // (_FINALISTS * task.horizon)
    if rounds < 1 or episodes < 1:
        needed = int(max(candidates * screening_steps / 0.7, _FINALISTS * task.horizon / 0.3)) + 1
        raise ConfigurationError(
            f"{task.name}: {steps} steps are too few to compare {candidates} constant actions; give at least "
            f"{needed}."
        )
    generator = np.random.default_rng(seed)
    if task.compiled is not None and task.is_played_compiled:
        evaluate = _compiled_evaluation(task.compiled())
    else:
        evaluate = _host_evaluation(task, threads)
    seen = np.empty((0, task.action_size))
    scores = np.empty(0)
    for _ in range(rounds):
        proposed = _propose(task, generator, seen, scores, candidates)
        found = evaluate(proposed, int(generator.integers(2**31)), screening_steps)
        seen, scores = np.concatenate([seen, proposed]), np.concatenate([scores, found])
    finalists = seen[np.argsort(-scores)[:_FINALISTS]]
    results = [evaluate(finalists, int(generator.integers(2**31)), task.horizon) for _ in range(episodes)]
    means = np.mean(results, axis=0)
    spent = rounds * candidates * screening_steps + episodes * len(finalists) * task.horizon
    return ConstantAction(finalists[means.argmax()], float(means.max()), spent)


def _propose(
    task: Task,
    generator: np.random.Generator,
    seen: NDArray[np.float64],
    scores: NDArray[np.float64],
    candidates: int,
) -> NDArray[np.float64]:
    constraint, size = task.constraint, task.action_size
    if not len(seen):
        drawn = constraint.sample(generator, None, n=candidates, dimension=size)
        return np.asarray(drawn, dtype=np.float64)
    better = seen[np.argsort(-scores)[: max(candidates // 4, 2)]]
    centres = better[generator.integers(len(better), size=candidates)]
    spread = better.std(axis=0) + 1e-3 * (task.action_high - task.action_low)
    scattered = centres + spread * generator.standard_normal(centres.shape)
    return np.asarray(constraint.project(None, scattered), dtype=np.float64)


Evaluation = Callable[[NDArray[np.float64], int, int], NDArray[np.float64]]
"""From candidates, a seed that they share and a number of steps to the mean reward of each first episode."""


def _compiled_evaluation(environment: CompiledEnvironment) -> Evaluation:
    import jax
    import jax.numpy as jnp

    def mean_reward(action: Any, key: Any, steps: int) -> Any:
        first, later = jax.random.split(key)
        state, _ = environment.reset(first)

        def advance(carry: Any, step_key: Any) -> Any:
            state, total, is_running = carry
            step = environment.step(state, action, step_key)
            total = total + jnp.where(is_running, step.reward, 0.0)
            return (step.state, total, is_running & ~(step.terminated | step.truncated)), None

        (_, total, _), _ = jax.lax.scan(
            advance, (state, jnp.float32(0.0), True), jax.random.split(later, steps)
        )
        return total / steps

    batched = jax.jit(jax.vmap(mean_reward, in_axes=(0, None, None)), static_argnums=2)

    def evaluate(actions: NDArray[np.float64], seed: int, steps: int) -> NDArray[np.float64]:
        rewards = batched(jnp.asarray(actions, dtype=jnp.float32), jax.random.key(seed), steps)
        return np.asarray(rewards, dtype=np.float64)

    return evaluate


def _host_evaluation(task: Task, threads: int) -> Evaluation:
    if task.host is None:
        raise ConfigurationError(
            f"{task.name} has neither a compiled nor a host environment; give it one of them."
        )
    make_batch = task.host

    def evaluate(actions: NDArray[np.float64], seed: int, steps: int) -> NDArray[np.float64]:
        total = np.zeros(len(actions))
        with contextlib.closing(make_batch(len(actions), threads)) as batch:
            first = batch.reset([seed] * len(actions))
            for played in batch_rollout(batch, lambda _: actions, first, steps):
                total += np.where(played.is_first, played.step.reward, 0.0)
        return total / steps

    return evaluate


def _repeated(point: NDArray[np.floating], observation: NDArray[np.floating]) -> NDArray[np.float64]:
    shape = (*np.shape(observation)[:-1], point.shape[-1])
    return np.array(np.broadcast_to(point, shape), dtype=np.float64)
