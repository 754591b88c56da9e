"""A state in which no action is allowed stops training at once, with the observation and the remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConstraintError, DivergenceError, EmptySetError
from inbounds.learners.learner import Spec
from inbounds.learners.registry import LEARNERS, make_learner
from inbounds.tasks.compiled_gymnasium import CompiledBatch, GuardedGymnasium
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.task import AssembledTask
from inbounds.training.compiled_collector import CompiledCollector
from inbounds.training.config import seed_keys
from inbounds.training.evaluate import Evaluator
from inbounds.training.host_collector import HostCollector
from inbounds.training.program import Programs
from tests.tasks.own_environments import Counter

LIMIT = ib.Box(-0.2, 0.5 - 0.2 * ib.obs[0])
"""Nothing is allowed from the fourth step on. Boxes compile fast."""
SHARED = ib.SumBand(0.5 + 0.45 * ib.obs[0], 0.1)
"""Empty from the fourth step on, and of the kind that ApprOpt needs."""
CURVED = ib.WeightedL1([1.0, 1.0], bound=1.0 - 0.325 * ib.obs[0])
SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 8}
SHOWN = r"observation \[4, 0\].*= -0\.3.*floor"


class CountState(NamedTuple):
    time: jax.Array


class CompiledCounter:
    """Counts its steps, as `Counter` does."""

    observation_size, action_size, horizon = 2, 2, 20

    def reset(self, key: jax.Array) -> tuple[CountState, jax.Array]:
        state = CountState(jnp.zeros(()))
        return state, self._observe(state)

    def step(self, state: CountState, action: jax.Array, key: jax.Array) -> CompiledStep:
        after = CountState(state.time + 1.0)
        return CompiledStep(
            after, self._observe(after), jnp.ones(()), jnp.asarray(False), after.time >= self.horizon
        )

    def _observe(self, state: CountState) -> jax.Array:
        return jnp.stack([state.time, jnp.zeros(())])


COUNTER = CompiledCounter()


def host_task(limit: Any = LIMIT) -> ib.Task:
    return ib.Task(Counter, limit, horizon=20, name="counter")


def compiled_task(limit: Any = LIMIT) -> ib.Task:
    base = host_task(limit)
    low, high = base.action_low, base.action_high
    fields = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    return AssembledTask(
        **{
            **fields,
            "host": lambda count, threads: CompiledBatch(
                COUNTER, base.constraint, count, task_name="counter"
            ),
            "compiled": lambda: COUNTER,
            "make_environment": lambda **options: GuardedGymnasium(
                COUNTER, base.constraint, action_low=low, action_high=high, task_name="counter", **options
            ),
        }
    )


def small(name: str) -> Any:
    learner = make_learner(name)
    known = {field.name for field in dataclasses.fields(learner)}
    few = {**SMALL, "proposals": 4, "rollout": 16, "flow_samples": 64, "flow_epochs": 1, "flow_steps": 2}
    return dataclasses.replace(learner, **{key: value for key, value in few.items() if key in known})


def collected(task: ib.Task, learner: Any, warm_up: int, turns: int = 10) -> tuple[Any, Any, Any]:
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    programs = Programs(learner, spec, 2, 1, 100)
    keys = seed_keys(0, 1)
    kind: Any = HostCollector if task.compiled is None else CompiledCollector
    collector = kind(task, programs, keys, [0], warm_up, *([1] if task.compiled is None else []))
    collector.start()
    return collector, *collector.run(programs.init(keys), turns)[:2]


QUICK = [("spre", "host", 100), ("aram", "compiled", 100)]
SWEEP = [(name, ("host", "compiled")[index % 2]) for index, name in enumerate(LEARNERS)]
"""The collectors know no learner, so that each one is tried in one of them."""


def task_on(place: str, limit: Any = LIMIT) -> ib.Task:
    return host_task(limit) if place == "host" else compiled_task(limit)


@pytest.mark.parametrize(("name", "place", "warm_up"), QUICK)
def test_a_learner_stops_with_the_observation_where_no_action_is_allowed(
    name: str, place: str, warm_up: int
) -> None:
    with pytest.raises(EmptySetError, match=SHOWN):
        collected(task_on(place), small(name), warm_up)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), SWEEP)
def test_every_learner_stops_where_no_action_is_allowed(name: str, place: str) -> None:
    limit, shown = (SHARED, r"observation \[4, 0\]") if name == "appropt" else (LIMIT, SHOWN)
    with pytest.raises(EmptySetError, match=shown):
        collected(task_on(place, limit), small(name), warm_up=4)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["host", "compiled"])
def test_a_curved_set_without_an_action_stops_a_learner_as_well(place: str) -> None:
    with pytest.raises(EmptySetError, match=SHOWN):
        collected(task_on(place, CURVED), small("aram"), warm_up=4)


def test_training_stops_before_it_logs_the_same_step_again(tmp_path: Path) -> None:
    rows: list[Any] = []
    with pytest.raises(EmptySetError, match=rf"counter: .*{SHOWN}"):
        ib.train(
            host_task(),
            small("spre"),
            out=tmp_path / "run",
            steps=40,
            warm_up=20,
            environments=1,
            episodes=1,
            callbacks=[lambda row: rows.append(row) or len(rows) > 20],
        )
    assert rows == []


@pytest.mark.parametrize("place", ["host", "compiled"])
def test_measuring_scales_stops_as_well(place: str) -> None:
    task = task_on(place)
    with pytest.raises(EmptySetError, match=SHOWN):
        task.normalised()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["host", "compiled"])
def test_an_evaluation_stops_as_well(place: str) -> None:
    task = task_on(place)
    learner = small("spre")
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    states = jax.vmap(lambda key: learner.init(key, spec))(seed_keys(0, 1))
    with pytest.raises(EmptySetError, match=SHOWN):
        Evaluator(task, learner, spec, episodes=2).evaluate(states, [0], (0.9, 0.1), salt=1)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["host", "compiled"])
def test_a_policy_that_has_diverged_stops_the_run_though_no_metric_tells(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small("spre")
    true = type(learner).proposal

    def broken(self: Any, actor: Any, observation: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: leaf * jnp.nan, true(self, actor, observation))

    monkeypatch.setattr(type(learner), "proposal", broken)
    monkeypatch.setattr(type(learner), "update", lambda self, state, *others: (state, {}))
    monkeypatch.setattr("inbounds.training.compiled_collector._is_real", lambda leaf: False)
    wide = ib.Box(-0.5, 0.5)
    task = task_on(place, wide)
    with pytest.raises((DivergenceError, ConstraintError)) as caught:
        ib.train(
            task,
            learner,
            out=tmp_path / "run",
            steps=40,
            warm_up=4,
            environments=1,
            episodes=1,
            evaluate_every=0,
        )
    assert "no float32 action" in str(caught.value) or "action is not a finite number" in str(caught.value)


def test_what_float32_does_not_find_is_found_in_float64_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ib.Ball(radius_squared=0.25)
    task = host_task(wide)
    true = type(task.constraint).settled

    def coarse(self: Any, at: Any, point: Any, dtype: Any, *, refuses: bool = False) -> Any:
        found = true(self, at, point, dtype, refuses=refuses)
        return found * jnp.nan if at.is_single_precision and refuses else found

    monkeypatch.setattr(type(task.constraint), "settled", coarse)
    collector, state, _ = collected(task, small("spre"), warm_up=100)
    assert collector.turn == 10
    remembered = np.asarray(collector.pending.draw.action, np.float64)
    assert np.all(np.isfinite(remembered)) and np.max(wide.violation(None, remembered)) <= 0.0
    assert int(np.asarray(state.counters.projections)[0]) > 0
