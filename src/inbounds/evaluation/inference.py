"""How long one action takes: alone and together with the environment's step, one observation at a time."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.evaluation.protocol import chosen_preference, rounded
from inbounds.evaluation.trained import TrainedRun
from inbounds.limits import require_whole
from inbounds.tasks.empty_states import Settling
from inbounds.tasks.environment import Act, episode, rollout
from inbounds.tasks.guard import share_of_bound
from inbounds.training.evaluate import evaluated_draw


class InferenceTime(NamedTuple):
    """Seconds per action, at which the paper's "seconds per million" is a million times larger."""

    path: str
    """What computed the action."""
    actions: int
    mean: float
    median: float
    slowest_percent: float
    """The 99th percentile."""
    with_step: float
    """Mean of action and environment step together."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, in microseconds."""
        micro = {
            name: float(f"{getattr(self, name) * 1e6:.4g}")
            for name in ("mean", "median", "slowest_percent", "with_step")
        }
        return {"path": self.path, "actions": self.actions, "unit": "microseconds", **micro}


def compiled_policy(run: TrainedRun, preference: tuple[float, float] | None = None) -> Act:
    """Return the evaluation's policy for single observations, of the first seed."""
    weights = jnp.asarray(chosen_preference(run, preference), jnp.float32)
    state = jax.tree.map(lambda leaf: leaf[:1], run.states)
    times = itertools.count()

    # The state is an argument and not a constant of the program, so that seeds and runs share what was compiled.
    @jax.jit
    def chosen(state: Any, observation: jax.Array, time: jax.Array) -> jax.Array:
        keys = jax.random.fold_in(jax.random.key(0), time)[None]
        draw = evaluated_draw(run.learner, run.spec, state, observation[None, None], weights, keys)
        return draw.action[0, 0]

    settling = Settling(run.task)

    def act(observation: NDArray[Any]) -> NDArray[np.float32]:
        action = np.asarray(chosen(state, jnp.asarray(observation, jnp.float32), np.int32(next(times))))
        return action if settling.has_margin else settling.settle(observation, action, action).actions

    return act


def deployed_policy(run: TrainedRun, preference: tuple[float, float] | None) -> Act | None:
    """Return the policy as it is deployed, numpy alone, or nothing for learners that it does not hold."""
    from inbounds.deploy.policy import load
    from inbounds.errors import InvalidInputError

    try:
        policy = load(run.folder.path, run.seeds[0], preference)
    except InvalidInputError:
        return None
    return lambda observation: policy.act(observation, deterministic=True)


def time_inference(
    run: TrainedRun, preference: tuple[float, float] | None = None, actions: int = 2_000
) -> InferenceTime:
    """Drive one environment with the first seed's policy and time every action and every step.

    Learners that can be deployed are timed as they are deployed, with numpy; the others as JAX evaluates them.
    """
    require_whole(1, actions=actions)
    deployed = deployed_policy(run, preference)
    act = deployed or compiled_policy(run, preference)
    asked: list[float] = []
    decided: list[float] = []
    stepped: list[float] = []

    def timed(observation: NDArray[Any]) -> Any:
        asked.append(time.perf_counter())
        action = act(observation)
        decided.append(time.perf_counter())
        return action

    with contextlib.closing(run.task.make_environment()) as environment:
        observation, _ = environment.reset(seed=0)
        act(observation)  # compiles
        for _ in itertools.islice(rollout(environment, timed, observation), actions):
            stepped.append(time.perf_counter())
    spent = np.subtract(decided, asked)
    return InferenceTime(
        path="deployed, numpy" if deployed else f"JAX on {jax.default_backend()}",
        actions=actions,
        mean=float(spent.mean()),
        median=float(np.median(spent)),
        slowest_percent=float(np.percentile(spent, 99)),
        with_step=float(np.subtract(stepped, asked).mean()),
    )


POINTS = 200


class EpisodeTrace(NamedTuple):
    """The fraction of the bound that each action used, and the reward it earned; thinned to a few hundred points."""

    step: list[int]
    share: list[float]
    reward: list[float]
    total: float

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()


def trace_episode(
    run: TrainedRun, preference: tuple[float, float] | None = None, seed: int = 0
) -> EpisodeTrace:
    """Play one episode with the first seed's evaluation policy and measure every action it executes."""
    act = compiled_policy(run, preference)
    with contextlib.closing(run.task.make_environment()) as environment:
        observation, _ = environment.reset(seed=seed)
        steps = list(episode(environment, act, observation))
    shares = [share_of_bound(run.task.constraint, step.observation, step.action) for step in steps]
    rewards = [step.reward for step in steps]
    stride = -(-len(shares) // POINTS)
    kept = range(0, len(shares), stride)
    return EpisodeTrace(
        step=list(kept),
        share=[rounded(float(np.max(shares[start : start + stride])), 4) for start in kept],
        reward=[rounded(float(np.mean(rewards[start : start + stride])), 4) for start in kept],
        total=rounded(sum(rewards)),
    )
