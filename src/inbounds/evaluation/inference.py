"""How long one action takes: alone and together with the environment's step, one observation at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.evaluation.protocol import rounded
from inbounds.evaluation.trained import TrainedRun
from inbounds.tasks.guard import share_of_bound
from inbounds.training.evaluate import evaluated_draw
from inbounds.training.host_settling import Settling

Act = Callable[[NDArray[np.floating]], NDArray[np.floating]]


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


def compiled_policy(run: TrainedRun, preference: tuple[float, float]) -> Act:
    """Return the evaluation's policy for single observations, of the first seed."""
    state = jax.tree.map(lambda leaf: leaf[:1], run.states)
    weights = jnp.asarray(preference, jnp.float32)
    turns = itertools.count()

    # The state is an argument and not a constant of the program, so that seeds and runs share what was compiled.
    @jax.jit
    def chosen(state: Any, observation: jax.Array, turn: jax.Array) -> jax.Array:
        keys = jax.random.fold_in(jax.random.key(0), turn)[None]
        draw = evaluated_draw(run.learner, run.spec, state, observation[None, None], weights, keys)
        return draw.action[0, 0]

    settling = Settling(run.task)

    def act(observation: NDArray[Any]) -> NDArray[np.float32]:
        action = np.asarray(chosen(state, jnp.asarray(observation, jnp.float32), np.int32(next(turns))))
        return action if settling.has_margin else settling.settle(observation, action, action).actions

    return act


def deployed_policy(run: TrainedRun, preference: tuple[float, float]) -> Act | None:
    """Return the policy as it is deployed, numpy alone, or nothing for learners that it does not hold."""
    from inbounds.deploy.policy import load
    from inbounds.errors import InvalidInputError

    try:
        policy = load(run.folder.path, run.seeds[0], preference)
    except InvalidInputError:
        return None
    return lambda observation: policy.act(observation, deterministic=True)


def time_inference(
    run: TrainedRun, preference: tuple[float, float] = (0.9, 0.1), actions: int = 2_000
) -> InferenceTime:
    """Drive one environment with the first seed's policy and time every action and every step.

    Learners that can be deployed are timed as they are deployed, with numpy; the others as JAX evaluates them.
    """
    deployed = deployed_policy(run, preference)
    act = deployed or compiled_policy(run, preference)
    environment = run.task.make_environment()
    observation, _ = environment.reset(seed=0)
    act(observation)  # compiles
    spent, steps = np.zeros(actions), np.zeros(actions)
    for index in range(actions):
        began = time.perf_counter()
        action = act(observation)
        decided = time.perf_counter()
        observation, _, terminated, truncated, _ = environment.step(action)
        steps[index], spent[index] = time.perf_counter() - decided, decided - began
        if terminated or truncated:
            observation, _ = environment.reset()
    environment.close()
    return InferenceTime(
        path="deployed, numpy" if deployed else f"JAX on {jax.default_backend()}",
        actions=actions,
        mean=float(spent.mean()),
        median=float(np.median(spent)),
        slowest_percent=float(np.percentile(spent, 99)),
        with_step=float((spent + steps).mean()),
    )


POINTS = 200


class EpisodeTrace(NamedTuple):
    """The share of the bound that each action used, and the reward it earned; thinned to a few hundred points."""

    step: list[int]
    share: list[float]
    reward: list[float]
    total: float

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()


def trace_episode(
    run: TrainedRun, preference: tuple[float, float] = (0.9, 0.1), seed: int = 0
) -> EpisodeTrace:
    """Play one episode with the first seed's evaluation policy and measure every action it executes."""
    act = compiled_policy(run, preference)
    environment = run.task.make_environment()
    observation, _ = environment.reset(seed=seed)
    shares, rewards = [], []
    is_over = False
    while not is_over:
        action = act(observation)
        shares.append(share_of_bound(run.task.constraint, observation, action))
        observation, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(float(reward))
        is_over = bool(terminated or truncated)
    environment.close()
    stride = -(-len(shares) // POINTS)
    kept = range(0, len(shares), stride)
    return EpisodeTrace(
        step=list(kept),
        share=[rounded(float(np.max(shares[start : start + stride])), 4) for start in kept],
        reward=[rounded(float(np.mean(rewards[start : start + stride])), 4) for start in kept],
        total=rounded(sum(rewards)),
    )
