"""How good and how valid a policy is: the paper's protocol, for all seeds of a run at once.

Return: undiscounted, unscaled reward of episodes in which the deterministic action, projected where it must be, is
executed. Learners with `evaluates_samples` execute the first feasible of their samples instead.

Valid action rate: fraction of raw policy samples, 100 at every visited state, with violation <= 0 in float64; averaged
over the states of an episode, then over episodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import SimulationError
from inbounds.learners.learner import Learner, Spec
from inbounds.limits import require_whole
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.tasks.empty_states import Settling, require_an_action
from inbounds.tasks.environment import batch_rollout
from inbounds.tasks.task import Task
from inbounds.training.config import folded

SAMPLES = 100
"""Policy samples per visited state, as in the paper."""
SAMPLES_AT_ONCE = 2**18
"""Policy samples that are drawn and checked together."""
NO_STEP = 2**32 - 1
"""What is folded into a key instead of a time step, since no episode is as long."""


class Evaluation(NamedTuple):
    """What one evaluation found, per seed (leading axis) and episode."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    valid_rate: NDArray[np.float64]
    """(seeds,): fraction of raw policy samples that are feasible."""
    deterministic_valid_rate: NDArray[np.float64]
    """(seeds,): fraction of visited states whose raw deterministic action, or one of the draws, is feasible."""
    projections: NDArray[np.int64]
    """(seeds,): actions that had to be projected before they were executed."""
    worst_violation: float
    """Largest violation of an executed action, in float64; at most 0."""


class Rollout(NamedTuple):
    """Episodes played side by side: (time, seeds, episodes, ...); entries after an episode's end do not count."""

    observation: NDArray[np.float64]
    action: NDArray[np.float32]
    is_feasible: NDArray[np.bool_]
    reward: NDArray[np.float64]
    alive: NDArray[np.bool_]


def evaluated_draw(
    learner: Learner, spec: Spec, states: Any, observation: jax.Array, preference: jax.Array, keys: jax.Array
) -> Draw:
    """Return what a policy does when it is evaluated, at observations (seeds, rows, observation size).

    It proposes its deterministic action; a learner with `evaluates_samples` proposes as many samples as it does while
    learning. The first feasible proposal is executed, or else the projection of the last.
    """

    def one_seed(state: Any, seen: jax.Array, key: jax.Array) -> jax.Array:
        if learner.evaluates_samples:
            return learner.samples(state, spec, seen, preference, key, learner.proposals)
        return learner.mode(state, spec, seen, preference)[..., None, :]

    return accept_first(spec.constraint, observation, jax.vmap(one_seed)(states, observation, keys))


class Evaluator:
    """Plays episodes with environments and keys of its own, so that evaluating more often changes no training."""

    def __init__(
        self,
        task: Task,
        learner: Learner,
        spec: Spec,
        episodes: int,
        threads: int = 0,
        samples: Callable[..., jax.Array] | None = None,
    ) -> None:
        """Prepare the programs; environments are built on the first evaluation.

        `samples` replaces the learner's function of that name in the valid action rate.
        """
        require_whole(1, episodes=episodes)
        self.task, self.learner, self.spec, self.episodes, self.threads = (
            task,
            learner,
            spec,
            episodes,
            threads,
        )
        self._samples = samples or learner.samples
        self._environments: Any = None
        self._settling = Settling(task)
        self._act = jax.jit(self._act_evaluated)
        self._valid = jax.jit(self._valid_rate)
        self._play = jax.jit(self._play_compiled)

    def evaluate(
        self, states: Any, seeds: list[int], preference: tuple[float, float], salt: int
    ) -> Evaluation:
        """Play the episodes of every seed; another `salt` is another set of episodes."""
        weights = jnp.asarray(preference, jnp.float32)
        episode_seeds = [
            [
                (2_000_000_011 + 1_000_003 * seed + 7_919 * salt + index) % (2**31)
                for index in range(self.episodes)
            ]
            for seed in seeds
        ]
        draw_keys = jnp.stack([folded(jax.random.key(salt), seed) for seed in seeds])
        if self.task.is_played_compiled:
            keys = jnp.stack([jnp.stack([jax.random.key(value) for value in row]) for row in episode_seeds])
            played = jax.tree.map(np.asarray, self._play(states, weights, keys, draw_keys))
            observation, action, is_feasible, reward, ended = played
            rollout = Rollout(observation, action, is_feasible, reward, _alive(ended))
            self._require_actions(rollout)
        else:
            rollout = self._play_host(states, weights, episode_seeds, draw_keys)
        return self._summarise(states, weights, rollout, draw_keys)

    def close(self) -> None:
        """Close the environments of the last evaluation; the next one makes others."""
        if self._environments is not None:
            self._environments.close()
            self._environments = None

    def _act_evaluated(
        self, states: Any, observation: jax.Array, preference: jax.Array, keys: jax.Array, time: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        now = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
        draw = evaluated_draw(self.learner, self.spec, states, observation, preference, now)
        return draw.action, ~draw.is_projected

    def _play_host(
        self, states: Any, preference: jax.Array, seeds: list[list[int]], draw_keys: jax.Array
    ) -> Rollout:
        shape = (len(seeds), self.episodes)
        if self._environments is None or self._environments.count != shape[0] * shape[1]:
            if self.task.host is None:
                raise ValueError(f"{self.task.name} has neither host nor compiled environments")
            self.close()
            self._environments = self.task.host(shape[0] * shape[1], self.threads)
        feasible: list[NDArray[np.bool_]] = []

        def act(observation: NDArray[np.float64]) -> NDArray[np.float32]:
            shaped = observation.reshape(*shape, -1)
            # Converted here and fetched together: every further call of the device counts, a thousand times an episode.
            seen, time = shaped.astype(np.float32), np.int32(len(feasible))
            executed, is_feasible = jax.device_get(self._act(states, seen, preference, draw_keys, time))
            if not self._settling.has_margin:
                executed, is_projected = self._settling.settle(shaped, executed, executed)
                is_feasible = is_feasible & ~is_projected
            feasible.append(is_feasible)
            return executed.reshape(shape[0] * shape[1], -1)  # type: ignore[no-any-return]

        first = self._environments.reset([value for row in seeds for value in row])
        steps = [
            (played.observation, played.action, played.step.reward, played.is_first)
            for played in batch_rollout(self._environments, act, first)
        ]
        observation, action, reward, alive = (np.stack(column) for column in zip(*steps, strict=True))
        return Rollout(
            observation.reshape(len(steps), *shape, -1),
            action.reshape(len(steps), *shape, -1),
            np.stack(feasible),
            reward.reshape(len(steps), *shape),
            alive.reshape(len(steps), *shape),
        )

    def _play_compiled(
        self, states: Any, preference: jax.Array, keys: jax.Array, draw_keys: jax.Array
    ) -> tuple[jax.Array, ...]:
        assert self.task.compiled is not None
        environment = self.task.compiled()
        begin = jax.vmap(jax.vmap(environment.reset))
        advance = jax.vmap(jax.vmap(environment.step))

        def one_step(carry: Any, time: jax.Array) -> Any:
            state, observation = carry
            action, is_feasible = self._act_evaluated(states, observation, preference, draw_keys, time)
            step_keys = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, time)))(keys)
            step = advance(state, action, step_keys)
            ended = step.terminated | step.truncated
            return (step.state, step.observation), (observation, action, is_feasible, step.reward, ended)

        _, columns = jax.lax.scan(one_step, begin(keys), jnp.arange(self.task.horizon))
        played: tuple[jax.Array, ...] = columns
        return played

    def _require_actions(self, rollout: Rollout) -> None:
        """Raise EmptySetError if an episode reached a state in which no action is allowed."""
        missing = np.argwhere(rollout.alive & ~np.isfinite(rollout.action).all(axis=-1))
        if len(missing):
            where = tuple(missing[0])
            seen, action = rollout.observation[where].astype(np.float64), rollout.action[where]
            require_an_action(self.task.constraint, seen, action, None, self.task.name)
        elif not np.isfinite(rollout.reward[rollout.alive]).all():
            raise SimulationError(
                f"{self.task.name}: a reward or an observation is not a finite number in an evaluation. Correct the "
                f"environment, or end the episode before that happens."
            )

    def _valid_rate(
        self, states: Any, preference: jax.Array, observation: jax.Array, keys: jax.Array, start: jax.Array
    ) -> jax.Array:
        """Return the feasible fraction of raw samples at (seeds, states, observation) in float64.

        Time steps from `start` on follow each other, each with the states of all episodes. Every seed and step has a
        key of its own: the draws depend neither on the other seeds nor on how many steps are evaluated together.
        """
        seen = observation.astype(jnp.float32).reshape(len(keys), -1, self.episodes, observation.shape[-1])

        def one_step(state: Any, rows: jax.Array, key: jax.Array, time: jax.Array) -> jax.Array:
            now = jax.random.fold_in(key, time)
            return self._samples(state, self.spec, rows, preference, now, SAMPLES)

        all_steps = jax.vmap(one_step, in_axes=(None, 0, None, 0))
        times = start + jnp.arange(seen.shape[1])
        raw = jax.vmap(all_steps, in_axes=(0, 0, 0, None))(states, seen, keys, times)
        drawn = raw.reshape(*observation.shape[:-1], SAMPLES, raw.shape[-1])
        excess = self.spec.constraint.violation(observation[..., None, :], drawn.astype(observation.dtype))
        return jnp.mean(excess <= 0, axis=-1)

    def _summarise(
        self, states: Any, preference: jax.Array, rollout: Rollout, draw_keys: jax.Array
    ) -> Evaluation:
        time, seeds, episodes = rollout.alive.shape
        keys = jax.vmap(lambda key: jax.random.fold_in(key, NO_STEP))(draw_keys)
        shares = np.zeros(rollout.alive.shape)
        # Some samples at a time bound the memory, which a flow over many levels multiplies by hundreds; never more
        # than an episode has, because the last block is filled up to keep one shape for all.
        block = max(1, min(self.task.horizon, SAMPLES_AT_ONCE // (seeds * episodes * SAMPLES)))
        with float64():
            for start in range(0, time, block):
                part = rollout.observation[start : start + block].astype(np.float64)
                padded = np.concatenate([part, np.repeat(part[-1:], block - len(part), axis=0)])
                rows = np.moveaxis(padded, 0, 1).reshape(seeds, block * episodes, -1)
                share = self._valid(states, preference, jnp.asarray(rows), keys, np.int32(start))
                moved = np.moveaxis(np.asarray(share).reshape(seeds, block, episodes), 1, 0)
                shares[start : start + block] = moved[: len(part)]
        alive = rollout.alive
        lengths = alive.sum(axis=0)
        executed = np.asarray(
            self.task.constraint.violation(
                rollout.observation.astype(np.float64)[alive], rollout.action.astype(np.float64)[alive]
            )
        )
        return Evaluation(
            returns=np.sum(rollout.reward, axis=0, where=alive),  # what follows an end need not be a number
            lengths=lengths,
            valid_rate=np.mean(np.sum(shares * alive, axis=0) / lengths, axis=1),
            deterministic_valid_rate=np.mean(np.sum(rollout.is_feasible * alive, axis=0) / lengths, axis=1),
            projections=np.sum(~rollout.is_feasible & alive, axis=(0, 2)),
            worst_violation=float(executed.max()),
        )


def _alive(ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which steps belong to the first episode: all up to and including the one that ends it."""
    is_first: NDArray[np.bool_] = np.cumsum(ended, axis=0) - ended == 0
    return is_first


def float64() -> contextlib.AbstractContextManager[Any]:
    """Let JAX compute in float64 within a block; everything outside keeps its own types."""
    block: contextlib.AbstractContextManager[Any] = jax.enable_x64(True)
    return block


class BestPolicy(NamedTuple):
    """What acting needs, all seeds on a leading axis, as it was when each seed's evaluation was best."""

    arrays: Any
    mean_return: jax.Array
    """Of that evaluation, (seeds,); minus infinity before the first one."""


def unevaluated(arrays: Any, seeds: int) -> BestPolicy:
    """Return the policies of a run that has not been evaluated yet."""
    return BestPolicy(arrays, jnp.full(seeds, -jnp.inf))


def or_latest(best: BestPolicy, arrays: Any) -> Any:
    """Return, seed by seed, the best policy; the latest one where none was evaluated yet."""
    return _chosen(jnp.isneginf(best.mean_return), best.arrays, arrays)


def better_of(best: BestPolicy, arrays: Any, mean_return: NDArray[np.floating]) -> BestPolicy:
    """Return, seed by seed, the policy with the larger mean return; the older one where they are equal."""
    found = jnp.asarray(mean_return, jnp.float32)
    is_better = found > best.mean_return
    return BestPolicy(_chosen(is_better, best.arrays, arrays), jnp.where(is_better, found, best.mean_return))


def _chosen(is_new: jax.Array, old: Any, new: Any) -> Any:
    return jax.tree.map(
        lambda before, now: jnp.where(is_new.reshape(-1, *(1,) * (before.ndim - 1)), now, before), old, new
    )
