"""The compiled programs of a run: act for all seeds, remember what happened, update; the state they pass on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from inbounds.learners.on_policy import update_on_rollout
from inbounds.learners.step import Metrics, Outcome, Spec, StepFunctions
from inbounds.policies.acceptance import Draw
from inbounds.replay import Layout, Replay, append, empty_replay, sample_rows


class Counters(NamedTuple):
    """Proposals and projections so far, per seed: whole numbers that begin again at 0 after 2^32 - 1."""

    projections: jax.Array
    """Actions for which every proposal was rejected, so that a fallback was computed."""
    rejections: jax.Array
    """Proposals that were rejected before one was accepted."""
    feasible: jax.Array
    """Proposals that are feasible, of all that were `proposed`."""
    proposed: jax.Array


class TrainingState(NamedTuple):
    """Everything that learning changes; the leading axis of every array is the seed."""

    learner: Any
    replay: Replay
    counters: Counters


class Exchange(NamedTuple):
    """Data that is copied to the device after each step: (seeds, environments, ...)."""

    observation: jax.Array
    """What to act on next."""
    is_first: jax.Array
    """An episode starts with this observation, so that the previous step ended one."""
    reward: jax.Array
    not_done: jax.Array
    next_observation: jax.Array
    """The successor of the previous action, before any reset."""


class Programs:
    """Jitted functions for one learner on one task; shapes are fixed by the numbers of seeds and environments."""

    def __init__(
        self, learner: StepFunctions, spec: Spec, environments: int, updates: int, capacity: int
    ) -> None:
        """Prepare the programs; nothing is compiled before it is first called."""
        self.learner, self.spec = learner, spec._replace(environments=environments)
        self.environments, self.updates = environments, updates
        # An on-policy learner's buffer holds one rollout, and the next one overwrites it.
        self.rollout_turns = max(1, learner.rollout // environments) if learner.rollout else 0
        self.capacity = self.rollout_turns * environments if learner.rollout else capacity
        self.layout = Layout(spec.observation_size, spec.box.size, learner.objectives)
        self.init = jax.jit(self._init)
        self.act = jax.jit(self._act, static_argnames="is_random")
        self.learn = jax.jit(self._learn, static_argnames=("is_random", "updates"), donate_argnums=0)

    def _init(self, keys: jax.Array) -> TrainingState:
        """Return the state of all seeds; the state of each equals that of a separate run."""
        seeds = keys.shape[0]
        init_keys = jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)
        learner = jax.vmap(lambda key: self.learner.init(key, self.spec))(init_keys)
        replay = jax.vmap(
            lambda _: empty_replay(len(self.learner.buffers), self.capacity, self.layout.width)
        )(jnp.arange(seeds))
        return TrainingState(learner, replay, Counters(*[jnp.zeros(seeds, jnp.uint32)] * 4))

    def new_contexts(self, keys: jax.Array) -> jax.Array:
        """Draw what every environment keeps for an episode."""
        return jax.vmap(lambda key: self.learner.new_context(key, (self.environments,)))(keys)

    def _act(
        self,
        learner: Any,
        context: jax.Array,
        exchange: Exchange,
        keys: jax.Array,
        turn: jax.Array,
        is_random: bool,
    ) -> tuple[jax.Array, Draw]:
        """Draw new contexts where episodes start, then choose actions."""
        turn_keys = keys_of_turn(keys, turn, purpose=1)
        context_keys, action_keys = jax.vmap(jax.random.split, out_axes=1)(turn_keys)
        context = jnp.where(exchange.is_first[..., None], self.new_contexts(context_keys), context)
        draw = self.learner.act(learner, self.spec, exchange.observation, context, action_keys, is_random)
        return context, draw

    def _learn(
        self,
        state: TrainingState,
        observation: jax.Array,
        draw: Draw,
        exchange: Exchange,
        keys: jax.Array,
        turn: jax.Array,
        is_random: bool,
        updates: int,
    ) -> tuple[TrainingState, Metrics]:
        """Remember one step of all environments, then take `updates` gradient steps for every seed."""
        outcome = Outcome(
            exchange.reward, exchange.not_done, exchange.next_observation, is_last=exchange.is_first
        )
        replay = jax.vmap(self._remember)(state.replay, observation, draw, outcome)
        step = (turn + 1) * self.environments
        learner = jax.vmap(
            lambda one, drawn, met: self.learner.adapt(one, self.spec, drawn, met, step, is_random)
        )(state.learner, draw, outcome)
        feasible = jnp.rint(draw.acceptance * draw.proposals.shape[-2])
        counters = Counters(
            state.counters.projections + jnp.sum(draw.is_projected, axis=1, dtype=jnp.uint32),
            state.counters.rejections + jnp.sum(draw.is_rejected, axis=(1, 2), dtype=jnp.uint32),
            state.counters.feasible + jnp.sum(feasible.astype(jnp.uint32), axis=1, dtype=jnp.uint32),
            state.counters.proposed + jnp.uint32(self.environments * draw.proposals.shape[-2]),
        )
        metrics: Metrics = {}
        update_keys = keys_of_turn(keys, turn, purpose=2)
        if updates and self.rollout_turns:
            rows = replay.rows[:, 0].reshape(-1, self.rollout_turns, self.environments, self.layout.width)
            is_complete = (turn + 1) % self.rollout_turns == 0
            rollout = self.layout.unpack(rows)
            learner, metrics = update_on_rollout(
                self.learner, self.spec, learner, rollout, update_keys, is_complete
            )
        elif updates:
            update = functools.partial(self._update, step=step, updates=updates)
            learner, metrics = for_every_seed(update, learner, replay, update_keys)
        return TrainingState(learner, replay, counters), metrics

    def _remember(self, replay: Replay, observation: jax.Array, draw: Draw, outcome: Outcome) -> Replay:
        memories = self.learner.remember(self.spec, observation, draw, outcome)
        for buffer, name in enumerate(self.learner.buffers):
            memory = memories[name]
            replay = append(replay, buffer, self.layout.pack(memory.transition), memory.mask)
        return replay

    def sample(
        self, learner: Any, replay: Replay, key: jax.Array, step: jax.Array, updates: int
    ) -> jax.Array:
        """Draw the rows of all batches of one seed's updates."""
        fractions = self.learner.batch_fractions(learner, self.spec, step)
        return sample_rows(replay, key, updates, self.learner.batch_size, fractions)

    def _update(
        self, learner: Any, replay: Replay, key: jax.Array, step: jax.Array, updates: int
    ) -> tuple[Any, Metrics]:
        """Take gradient steps for one seed: all rows and all noise are drawn at once, then scanned over."""
        row_key, noise_key = jax.random.split(key)
        batches = self.layout.unpack(self.sample(learner, replay, row_key, step, updates))
        noise = jax.vmap(lambda one: self.learner.noise(one, self.spec))(jax.random.split(noise_key, updates))

        def one_update(carry: Any, inputs: Any) -> tuple[Any, Metrics]:
            batch, drawn = inputs
            return self.learner.update(carry, self.spec, batch, drawn)

        learner, metrics = jax.lax.scan(one_update, learner, (batches, noise))
        return learner, jax.tree.map(lambda values: values[-1], metrics)


def for_every_seed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Apply a function to all seeds at once; with one seed the leading axis is removed.

    Products of matrices with a leading axis of one are slower on a CPU: an update of SAC takes 7 % longer.
    """
    if jax.tree.leaves(arguments)[0].shape[0] > 1:
        return jax.vmap(function)(*arguments)
    alone = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), arguments)
    return jax.tree.map(lambda leaf: leaf.reshape(1, *leaf.shape), function(*alone))


def keys_of_turn(keys: jax.Array, turn: jax.Array, purpose: int) -> jax.Array:
    """Return one key per seed for a turn (one step of every environment) and a purpose; nothing has to be stored."""
    return jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, purpose), turn))(keys)
