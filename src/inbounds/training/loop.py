"""Training from the first random step to the last evaluation, for all seeds at once; stopping and resuming."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from inbounds.constraints.serialisation import fingerprints
from inbounds.errors import CheckpointError, ConfigurationError, DivergenceError
from inbounds.learners.learner import Learner, Metrics, Spec
from inbounds.storage.files import write_pieces
from inbounds.storage.sealed_arrays import array_pieces
from inbounds.tasks.task import Task
from inbounds.training.checkpoint import (
    as_device_tree,
    collector_state,
    fill,
    flatten,
    newest_checkpoint,
    restore_collector,
    write_checkpoint,
)
from inbounds.training.compiled_collector import CHUNK, CompiledCollector
from inbounds.training.config import (
    TrainingConfig,
    available_bytes,
    require_learnable,
    require_memory,
    seed_keys,
)
from inbounds.training.evaluate import Evaluation, Evaluator, better_of, or_latest, unevaluated
from inbounds.training.host_collector import Episodes, HostCollector
from inbounds.training.interrupts import deferred_interrupt
from inbounds.training.program import Programs, TrainingState, keys_of_turn
from inbounds.training.record import BEST_POLICY, EVALUATIONS, METRICS, RunFolder, described_task
from inbounds.training.summary import Callback, Row, asks_to_stop

LOG = logging.getLogger("inbounds.training")


class Training:
    """One run in progress: what it trains, where it stands, and how it is written down."""

    def __init__(
        self,
        task: Task,
        learner: Learner,
        config: TrainingConfig,
        folder: RunFolder,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Build programs, environments and the evaluator; nothing has moved yet."""
        require_learnable(config, learner)
        self.task, self.learner, self.config, self.folder, self.callbacks = (
            task,
            learner,
            config,
            folder,
            callbacks,
        )
        self.spec = spec_of(task)
        self.seeds = list(range(int(config.seed), int(config.seed) + config.seeds))
        self.environments = config.environments or default_environments()
        updates = max(1, round(self.environments * config.updates_per_step))
        self.programs = Programs(learner, self.spec, self.environments, updates, config.capacity)
        keys = seed_keys(config.seed, config.seeds)
        require_memory(
            jax.eval_shape(self.programs.init, keys), available_bytes(), jax.default_backend() == "cpu"
        )
        threads = config.threads or available_threads()
        self.collector: HostCollector | CompiledCollector
        if task.compiled is not None:
            self.collector = CompiledCollector(
                task, self.programs, keys, self.seeds, config.warm_up_steps(learner)
            )
        else:
            self.collector = HostCollector(
                task, self.programs, keys, self.seeds, config.warm_up_steps(learner), threads
            )
        self.evaluator = Evaluator(task, learner, self.spec, config.episodes_of(task), threads)
        self.keys = keys
        self.seconds = 0.0
        self.logged_counters: Any = None
        self.rejections = np.zeros(config.seeds, np.int64)
        """Up to the last row of metrics, for every seed."""
        self.export = jax.jit(jax.vmap(learner.export))

    # Life of a run -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin from nothing; what a learner trains beforehand, such as FlowPG's flow, counts as training time."""
        began = time.perf_counter()
        self.state: TrainingState = jax.block_until_ready(self.programs.init(self.keys))
        self.best = unevaluated(self.export(self.state.learner), len(self.seeds))
        self.seconds = time.perf_counter() - began
        self.collector.start()
        self.rejections = np.zeros(len(self.seeds), np.int64)
        self.logged_counters = jax.tree.map(np.asarray, self.state.counters)

    def resume(self, warn: Callable[[str], None]) -> int:
        """Go on from the newest checkpoint that can be read and return its step."""
        path, arrays, notes = newest_checkpoint(self.folder.checkpoints, warn)
        recorded = self.folder.config()
        if (notes.get("run"), notes.get("task")) != (recorded.get("id"), recorded["task"]):
            raise CheckpointError(
                f"{path} is of another run (of {notes.get('task')}) than {self.folder.path}. Put this run's own "
                f"checkpoint in its place, or remove it."
            )
        if notes["seeds"] != self.seeds or notes["environments"] != self.environments:
            raise ConfigurationError(
                f"the checkpoint has seeds {notes['seeds']} and {notes['environments']} environments each, "
                f"the run asks for {self.seeds} and {self.environments}. Resume with the same numbers."
            )
        last = _next_multiple(self.config.steps - 1, self.environments)  # all environments step together
        if last < notes["step"]:
            raise ConfigurationError(
                f"{self.folder.path} has taken {notes['step']} steps already, and steps={self.config.steps} is the "
                f"last one wanted. Pass more."
            )
        template = jax.eval_shape(self.programs.init, self.keys)
        rows = arrays["training/replay/rows"]
        empty = np.zeros(template.replay.rows.shape, np.float32)
        empty[:, :, : rows.shape[2]] = rows
        arrays["training/replay/rows"] = empty
        self.state = as_device_tree(fill(template, arrays, "training"))
        exported = jax.eval_shape(self.export, template.learner)
        self.best = as_device_tree(fill(unevaluated(exported, len(self.seeds)), arrays, "best"))
        restore_collector(self.collector, arrays)
        self.seconds = float(notes["seconds"])
        self.rejections = np.asarray(notes["rejections"], np.int64)
        self.logged_counters = jax.tree.map(np.asarray, self.state.counters)
        self._cut_logs(notes.get("logs", {}), int(notes["step"]), warn)
        return int(notes["step"])

    def _cut_logs(self, written: Mapping[str, str], step: int, warn: Callable[[str], None]) -> None:
        """Bring the logs to where a checkpoint was, and tell where they are not those that it was written with."""
        for dropped in self.folder.cut_logs(step):
            warn(dropped)
        for name, found in self.folder.log_checksums().items():
            if written.get(name, found) != found:
                warn(
                    f"{name} does not hold the rows up to step {step} that the run wrote: it was changed or damaged. "
                    f"The run goes on, and the log keeps what it holds."
                )

    @property
    def step(self) -> int:
        """Return the environment steps that every seed has taken."""
        return self.collector.turn * self.environments

    def run(self) -> None:
        """Train to the last step, evaluating and saving on the way; Ctrl-C saves at the next report, then raises."""
        config = self.config
        with deferred_interrupt() as asked:
            if self.step == 0 and self.learner.starts_warm(self.spec):
                self._evaluate()  # the reference action may stay the best policy
            while self.step < config.steps:
                turns = self._turns_to_next_event()
                began = time.perf_counter()
                self.state, metrics, episodes = self.collector.run(self.state, turns)
                jax.block_until_ready(self.state.counters)
                elapsed = time.perf_counter() - began
                self.seconds += elapsed
                stop = self._log(metrics, episodes, turns * self.environments / elapsed)
                if self._is_due(config.evaluate_every) or self.step >= config.steps:
                    stop = self._evaluate() or stop
                # Read once: a request that came between saving and raising would lose the work.
                is_asked = bool(asked)
                if stop or is_asked or self._is_due(config.checkpoint_every) or self.step >= config.steps:
                    self.save()
                if is_asked:
                    raise KeyboardInterrupt
                if stop:
                    return

    def close(self) -> None:
        """Close the environments, and end their processes."""
        if isinstance(self.collector, HostCollector):
            self.collector.close()
        self.evaluator.close()

    def _turns_to_next_event(self) -> int:
        """Return how many turns may pass before something must be logged, evaluated or saved."""
        log_every = max(LOG_EVERY, CHUNK * self.environments)
        events = [self.config.steps, _next_multiple(self.step, log_every)]
        for interval in (self.config.evaluate_every, self.config.checkpoint_every):
            if interval:
                events.append(_next_multiple(self.step, interval))
        return max(1, -(-(min(events) - self.step) // self.environments))

    def _is_due(self, interval: int) -> bool:
        """Tell whether the last turn crossed a multiple of the interval."""
        return bool(interval) and self.step // interval > (self.step - self.environments) // interval

    # What is written down ------------------------------------------------------------------------------------------

    def _log(self, metrics: Metrics, episodes: Episodes, speed: float) -> bool:
        counters = jax.tree.map(np.asarray, self.state.counters)
        new = self._counted_since(counters)
        self.rejections, self.logged_counters = self.rejections + new.rejections, counters
        values = {name: np.asarray(value) for name, value in metrics.items()}
        for name, value in values.items():
            if not np.all(np.isfinite(value)):
                self._stop_diverged(name)
        rows = []
        for index, seed in enumerate(self.seeds):
            ended = [
                value for which, value in zip(episodes.seed, episodes.value, strict=True) if which == index
            ]
            row = {
                "step": self.step,
                "seed": seed,
                "seconds": round(self.seconds, 3),
                "steps_per_second": round(speed, 1),
                "episodes": len(ended),
                "training_return": float(np.mean(ended)) if ended else None,
                "acceptance": float(new.feasible[index]) / max(int(new.proposed[index]), 1),
                "projections": int(counters.projections[index]),
                "rejections": int(self.rejections[index]),
                "lowest_reward": self.collector.lowest_reward,
                **{name: float(value[index]) for name, value in values.items()},
            }
            rows.append(row)
        return self._report(METRICS, "metrics", rows)

    def _counted_since(self, counters: Any) -> Any:
        """Return how far the counters have moved since the last row; less than 2^32, also where they began again."""
        return jax.tree.map(
            lambda now, then: (now.astype(np.int64) - then.astype(np.int64)) % 2**32,
            counters,
            self.logged_counters,
        )

    def _evaluate(self) -> bool:
        began = time.perf_counter()
        found: Evaluation = self.evaluator.evaluate(
            self.state.learner, self.seeds, self.config.preference, salt=SHARED_EPISODES
        )
        spent = time.perf_counter() - began
        mean_return = np.asarray([np.mean(values) for values in found.returns])
        self.best = better_of(self.best, self.export(self.state.learner), mean_return)
        rows = []
        for index, seed in enumerate(self.seeds):
            row = {
                "step": self.step,
                "seed": seed,
                "return": float(np.mean(found.returns[index])),
                "return_std": float(np.std(found.returns[index])),
                "length": float(np.mean(found.lengths[index])),
                "valid_action_rate": float(found.valid_rate[index]),
                "deterministic_valid_rate": float(found.deterministic_valid_rate[index]),
                "evaluation_projections": int(found.projections[index]),
                "worst_violation": max(found.worst_violation, 0.0),
                "training_projections": int(self.logged_counters.projections[index]),
                "seconds": round(self.seconds, 3),
                "evaluation_seconds": round(spent, 3),
            }
            rows.append(row)
        LOG.info(
            "step %d of %d: return %.4g, valid action rate %.3f, mean of %d seed(s)",
            *(self.step, self.config.steps, mean_return.mean(), found.valid_rate.mean(), len(rows)),
        )
        return self._report(EVALUATIONS, "evaluation", rows)

    def _report(self, name: str, kind: str, rows: list[dict[str, Any]]) -> bool:
        """Log one row per seed and tell the callbacks; return whether one of them wants to stop."""
        self.folder.log(name, rows)
        LOG.debug("%s at step %d: %s", kind, self.step, rows)
        told = [cast(Row, {"kind": kind, **row}) for row in rows]
        return any([asks_to_stop(callback(row)) for row in told for callback in self.callbacks])

    def save(self) -> Path:
        """Write a checkpoint with everything that a bit-identical resume needs."""
        replay = self.state.replay
        filled = int(np.max(np.asarray(replay.size))) or 1
        trimmed = self.state._replace(replay=replay._replace(rows=replay.rows[:, :, :filled]))
        rejected = self._counted_since(jax.tree.map(np.asarray, self.state.counters)).rejections
        notes = {
            "seeds": self.seeds,
            "environments": self.environments,
            "seconds": self.seconds,
            "rejections": (self.rejections + rejected).tolist(),
            "run": self.folder.config().get("id"),
            "task": self.task.name,
            "learner": type(self.learner).__name__,
            "logs": self.folder.log_checksums(),
        }
        tree = {"training": trimmed, "best": self.best, "collector": collector_state(self.collector)}
        latest = self.export(self.state.learner)
        self.folder.write_policy(flatten(latest))
        self.folder.write_policy(flatten(or_latest(self.best, latest)), BEST_POLICY)
        self.folder.sync_logs()
        path = write_checkpoint(self.folder.checkpoints, self.step, tree, notes, self.config.keep)
        LOG.info("wrote the checkpoint %s", path)
        return path

    def _stop_diverged(self, name: str) -> None:
        """Keep the last good checkpoint, dump what the learner saw, and stop."""
        rows = last_batch(self.programs, self.state, self.keys, self.collector.turn - 1)
        seen = flatten({"batch": rows, "learner": self.state.learner})
        write_pieces(self.folder.path / "divergence.safetensors", array_pieces(seen))
        raise DivergenceError(
            f"{name} is not a finite number at step {self.step}. The last batch and the parameters are in "
            f"divergence.safetensors; train again with a smaller learning rate, reward scale or penalty."
        )


def last_batch(programs: Programs, state: TrainingState, keys: jax.Array, turn: int) -> jax.Array:
    """Return the rows that the updates of a turn drew (the first step of each), to see what made a run diverge."""
    step = jax.numpy.asarray((turn + 1) * programs.environments)

    def rows(learner: Any, replay: Any, key: jax.Array) -> jax.Array:
        return programs.sample(learner, replay, jax.random.split(key)[0], step, programs.updates)

    return jax.vmap(rows)(state.learner, state.replay, keys_of_turn(keys, jax.numpy.asarray(turn), purpose=2))


SHARED_EPISODES = 1
"""All evaluations of a run play the same episodes, so that the best policy is the best and not the luckiest one;
final tables evaluate it on others. Not 0: by chance those of Reacher's first seed are easy, and would flatter."""
LOG_EVERY = 2_000
"""Environment steps of a seed between two lines of metrics; with many environments, those of `CHUNK` turns, so that
a compiled loop fills its chunks."""


def default_environments() -> int:
    """Return how many environments a seed gets: one where updates are slow, sixteen where launches are."""
    return 1 if jax.default_backend() == "cpu" else 16


def available_threads() -> int:
    """Return how many threads step host environments: what OMP_NUM_THREADS grants, otherwise every core."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return int(granted) if granted.isdecimal() and int(granted) else len(os.sched_getaffinity(0))


def _next_multiple(step: int, interval: int) -> int:
    return (step // interval + 1) * interval


def spec_of(task: Task) -> Spec:
    """Return the parts of a task that a learner reads."""
    return Spec.of(
        task.observation_size,
        task.action_low,
        task.action_high,
        task.constraint,
        task.observation_shift,
        task.observation_scale,
        task.reference_action,
        task.horizon,
    )


def resolved(
    task: Task, learner: Learner, learner_name: str, config: TrainingConfig, environments: int
) -> dict[str, Any]:
    """Return every value of a run, with nothing left to defaults, so that its folder explains itself."""
    head = learner.head(spec_of(task))
    settings = dataclasses.asdict(learner)  # type: ignore[call-overload]  # every learner is a dataclass
    return {
        **described_task(task),
        "observation_shift": task.observation_shift,
        "observation_scale": task.observation_scale,
        "reward_divisor": task.reward_divisor,
        "reward_shift": task.reward_shift,
        "constraint": task.constraint.to_json(),
        "functions": fingerprints(task.constraint),
        "learner": {"name": learner_name, **settings},
        "head": None if head is None else head.to_json(),
        "training": {
            **dataclasses.asdict(config),
            "environments": environments,
            "episodes": config.episodes_of(task),
            "warm_up": config.warm_up_steps(learner),
        },
    }
