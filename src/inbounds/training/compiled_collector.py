"""Collecting from compiled environments: acting, stepping, remembering and updating are one program."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.errors import ConstraintError, InfeasibleActionError, SimulationError
from inbounds.learners.step import Metrics
from inbounds.tasks.empty_states import require_an_action
from inbounds.tasks.task import Task
from inbounds.training.host_collector import Episodes
from inbounds.training.program import Exchange, Programs, TrainingState, keys_of_turn

CHUNK = 50
"""Turns that one call of the program takes at most, before what was executed is checked."""


class World(NamedTuple):
    """The environments of all seeds and what the next turn starts from."""

    state: Any
    context: jax.Array
    exchange: Exchange
    returns: jax.Array
    lengths: jax.Array
    turn: jax.Array


class Trace(NamedTuple):
    """What one turn leaves for the host: enough to check every action in float64 and to log episodes."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    ended: jax.Array
    returns: jax.Array
    lengths: jax.Array


class CompiledCollector:
    """Runs chunks of turns as one loop; after each chunk every executed action is checked in float64."""

    def __init__(
        self,
        task: Task,
        programs: Programs,
        keys: jax.Array,
        seeds: list[int],
        warm_up: int,
    ) -> None:
        """Prepare the loop."""
        if task.compiled is None:
            raise ValueError(f"{task.name} has no compiled environment")
        self.task, self.programs, self.keys, self.seeds, self.warm_up = task, programs, keys, seeds, warm_up
        self.environment = task.compiled()
        self.count = programs.environments
        self.exact_resume = True
        self.lowest_reward = np.inf
        """Lowest training reward of the last `run`: Proposition 1 needs it not to be negative."""
        self._start = jax.jit(self._start_world)
        self._run = jax.jit(self._take_turns, static_argnames=("is_random", "updates"), donate_argnums=(0, 1))

    @property
    def turn(self) -> int:
        """Return how many turns were taken."""
        return int(self.world.turn)

    def start(self) -> None:
        """Reset every environment from a key of its own."""
        self.world: World = self._start(self.keys)

    def _start_world(self, keys: jax.Array) -> World:
        shape = (len(self.seeds), self.count)
        state, observation = self._reset(keys_of_turn(keys, jnp.asarray(0), purpose=3))
        ones = jnp.ones(shape)
        exchange = Exchange(observation, ones > 0, 0 * ones, ones, observation)
        return World(
            state,
            self.programs.new_contexts(keys),
            exchange,
            0 * ones,
            jnp.zeros(shape, jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    def _reset(self, keys: jax.Array) -> tuple[Any, jax.Array]:
        each = jax.vmap(lambda key: jax.random.split(key, self.count))(keys)
        reset: tuple[Any, jax.Array] = jax.vmap(jax.vmap(self.environment.reset))(each)
        return reset

    def _turn(
        self, state: TrainingState, world: World, is_random: bool, updates: int
    ) -> tuple[TrainingState, World, Metrics, Trace]:
        """Act, step, remember and update once."""
        turn = world.turn
        context, draw = self.programs._act(
            state.learner, world.context, world.exchange, self.keys, turn, is_random
        )
        step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(
            keys_of_turn(self.keys, turn + 1, purpose=3)
        )
        each = jax.vmap(lambda key: jax.random.split(key, self.count))(step_keys)
        step = jax.vmap(jax.vmap(self.environment.step))(world.state, draw.action, each)
        ended = step.terminated | step.truncated
        returns, lengths = world.returns + step.reward, world.lengths + 1

        def renewed() -> tuple[Any, jax.Array]:
            fresh, first = self._reset(reset_keys)
            chosen = jax.tree.map(lambda new, old: _where(ended, new, old), fresh, step.state)
            return chosen, _where(ended, first, step.observation)

        environments, observation = jax.lax.cond(
            jnp.any(ended), renewed, lambda: (step.state, step.observation)
        )
        exchange = Exchange(
            observation,
            ended,
            self.task.training_reward(step.reward),
            1.0 - step.terminated.astype(jnp.float32),
            step.observation,
        )
        state, metrics = self.programs._learn(
            state, world.exchange.observation, draw, exchange, self.keys, turn, is_random, updates
        )
        trace = Trace(world.exchange.observation, draw.action, step.reward, ended, returns, lengths)
        following = World(
            environments,
            context,
            exchange,
            jnp.where(ended, 0.0, returns),
            jnp.where(ended, 0, lengths),
            turn + 1,
        )
        return state, following, metrics, trace

    def _take_turns(
        self, state: TrainingState, world: World, turns: jax.Array, is_random: bool, updates: int
    ) -> tuple[TrainingState, World, Metrics, Trace]:
        """Take up to `CHUNK` turns and return the last one's metrics and the trace of all, with blank rows at its end.

        Their number is not part of the program: a network takes half a minute to compile, and intervals leave many
        remainders.
        """

        def one(index: jax.Array, carry: Any) -> Any:
            state, world, _, trace = carry
            state, world, metrics, seen = self._turn(state, world, is_random, updates)
            trace = jax.tree.map(lambda rows, row: rows.at[index].set(row), trace, seen)
            return state, world, metrics, trace

        shapes = jax.eval_shape(
            lambda state, world: self._turn(state, world, is_random, updates), state, world
        )
        metrics, trace = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes[2:])
        blank = jax.tree.map(lambda row: jnp.zeros((CHUNK, *row.shape), row.dtype), trace)
        taken: tuple[TrainingState, World, Metrics, Trace] = jax.lax.fori_loop(
            0, turns, one, (state, world, metrics, blank)
        )
        return taken

    def run(self, state: TrainingState, turns: int) -> tuple[TrainingState, Metrics, Episodes]:
        """Take `turns` steps in every environment, in chunks that never straddle the end of warm-up."""
        episodes, metrics = Episodes([], [], []), {}
        self.lowest_reward = np.inf
        random_turns = -(-self.warm_up // self.count)
        turn, end = self.turn, self.turn + turns
        while turn < end:
            is_random = turn < random_turns
            length = min(CHUNK, end - turn, random_turns - turn if is_random else end - turn)
            updates = 0 if is_random else self.programs.updates
            state, self.world, metrics, trace = self._run(
                state, self.world, np.int32(length), is_random=is_random, updates=updates
            )
            seen = jax.tree.map(lambda rows, count=length: np.asarray(rows)[:count], trace)
            self._refuse_broken(seen)
            if not np.all(np.isfinite(seen.action)):
                self._explain_missing_action(seen, state.learner)
                metrics = {**metrics, "action": jnp.full(len(self.seeds), jnp.nan)}
                break  # the policy itself has diverged: the metrics say so, and the loop stops the run
            self._inspect(seen, episodes)
            turn += length
        return state, metrics, episodes

    def _refuse_broken(self, trace: Trace) -> None:
        """Refuse a simulation that breaks while the policy is sound; learners diverge on what follows."""
        turns = len(trace.reward)

        def first(is_finite: np.ndarray[Any, Any]) -> int:
            is_sound = is_finite.reshape(turns, -1).all(axis=1)
            return turns if is_sound.all() else int(np.argmin(is_sound))

        acts = first(np.isfinite(trace.action))
        if first(np.isfinite(trace.reward)) < acts or first(np.isfinite(trace.observation)) < min(
            acts + 1, turns
        ):
            raise SimulationError(
                f"{self.task.name}: a reward or an observation is not a finite number. Correct the environment, or end "
                f"the episode before that happens; or resume from the last checkpoint with another seed."
            )

    def _inspect(self, trace: Trace, episodes: Episodes) -> None:
        """Check every executed action in float64, and collect finished episodes."""
        self.lowest_reward = min(self.lowest_reward, float(np.min(self.task.training_reward(trace.reward))))
        excess = np.asarray(
            self.task.constraint.violation(
                trace.observation.astype(np.float64), trace.action.astype(np.float64)
            )
        )
        is_feasible = excess <= 0.0
        if not is_feasible.all():
            self._require_an_action(trace, is_feasible)
            where = np.unravel_index(int(excess.argmax()), excess.shape)
            told = self.task.constraint.explain(trace.observation[where], trace.action[where])
            raise InfeasibleActionError(
                f"{self.task.name}: an executed action was {told} Report this: acceptance must imply feasibility."
            )
        for turn, seed, index in np.argwhere(trace.ended):
            episodes.seed.append(int(seed))
            episodes.value.append(float(trace.returns[turn, seed, index]))
            episodes.length.append(int(trace.lengths[turn, seed, index]))

    def _explain_missing_action(self, trace: Trace, learner: Any) -> None:
        """Raise where no action was found although the policy is sound: the set is empty, or float32 is too coarse."""
        is_finite = np.asarray(np.isfinite(trace.action).all(axis=-1))
        self._require_an_action(trace, is_finite)
        if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner) if _is_real(leaf)):
            seen = trace.observation[tuple(np.argwhere(~is_finite)[0])]
            raise ConstraintError(
                f"{self.task.name}: no float32 action was found at the observation {seen}, although "
                f"{self.task.constraint.formula()} is not empty there. The set is too thin, or its numbers are too "
                f"large, for float32: widen it, or state actions in other units."
            )

    def _require_an_action(self, trace: Trace, is_good: np.ndarray[Any, Any]) -> None:
        """Raise EmptySetError if no action was allowed where the first one went wrong; later ones follow from it."""
        where = tuple(np.argwhere(~is_good)[0])
        seen = trace.observation[where].astype(np.float64)
        require_an_action(self.task.constraint, seen, trace.action[where], None, self.task.name)


def _is_real(leaf: jax.Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _where(flags: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Choose per environment, whatever the trailing shape."""
    return jnp.where(flags.reshape(flags.shape + (1,) * (new.ndim - flags.ndim)), new, old)
