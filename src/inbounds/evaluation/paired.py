"""Is a policy better than a reference? Both play the same episodes, so that chance weighs on neither."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from inbounds.errors import ConfigurationError
from inbounds.evaluation.baselines import play_episodes, reference_policy
from inbounds.evaluation.trained import TrainedRun
from inbounds.training.evaluate import evaluated_draw
from inbounds.training.host_settling import Settling

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
        """Say in one word how the policies compare."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "not told apart"

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
    preference: tuple[float, float] = (0.9, 0.1),
    search_steps: int = 200_000,
) -> PairedDifference:
    """Play common episodes with every seed's policy and with a reference policy of the task."""
    if episodes < 2:
        raise ConfigurationError(
            f"{episodes} episode tells nothing of chance. Compare some hundred episodes."
        )
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
            jnp.asarray(preference, jnp.float32),
            key[None],
        ).action[0]
    )
    settling = Settling(task)
    found = []
    for index in range(len(run.seeds)):
        state = jax.tree.map(lambda leaf, at=index: leaf[at : at + 1], run.states)
        keys = iter(jax.random.split(jax.random.key(index), task.horizon))

        def choose(observation: NDArray[Any], state: Any = state, keys: Any = keys) -> NDArray[Any]:
            action = np.asarray(act(state, jnp.asarray(observation, jnp.float32), next(keys)))
            return settling.settle(observation, action, action).actions

        found.append(play_episodes(task, choose, seeds).returns)
    differences = np.stack(found) - baseline.returns
    return PairedDifference(reference, differences, float(baseline.returns.mean()))
