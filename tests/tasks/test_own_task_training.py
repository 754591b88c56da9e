"""An environment of one's own is trained, resumed, loaded and opened again like any other task."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.learner import Spec
from inbounds.learners.networks import init_network
from inbounds.learners.registry import make_learner
from inbounds.policies.networks import InputLayer, InputScale, apply_network
from inbounds.tasks import gymnasium_batch, gymnasium_processes
from inbounds.tasks.gymnasium_processes import Worker
from inbounds.tasks.task import AssembledTask
from inbounds.training.checkpoint import flatten
from tests.tasks.own_environments import Plant

LEARNER = ib.Aram(hidden=(16,), batch_size=16, proposals=10)
SETTINGS: dict[str, Any] = {"warm_up": 40, "environments": 2, "seeds": 2, "episodes": 2, "evaluate_every": 0}


@pytest.fixture(scope="module")
def task() -> ib.Task:
    limit = ib.WeightedL1(weights=ib.obs["constraint/weights"], bound=ib.obs["constraint/limit", 0])
    make = functools.partial(Plant, publishes=True)
    rate = ib.RateLimit(1.25)  # from the largest limit, 1.5, one can step below the smallest, 0.5
    return ib.Task(make, limit & rate, name="plant", horizon=10).normalised(steps=100)


@pytest.fixture(scope="module")
def run(task: ib.Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "run"
    ib.train(task, LEARNER, steps=120, out=folder, **SETTINGS)
    return folder


@pytest.mark.sweep
def test_every_action_of_training_and_evaluation_was_feasible(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert rows and all(row["worst_violation"] <= 0 for row in rows)


@pytest.mark.sweep
def test_a_run_says_where_the_parts_of_an_observation_lie(task: ib.Task, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert [tuple(part) for part in config["observation_parts"]] == list(task.observation_parts)
    assert config["reward_divisor"] == task.reward_divisor


@pytest.mark.sweep
def test_measured_scales_are_saved_as_they_were_and_never_learnt(task: ib.Task, run: Path) -> None:
    arrays = load_file(run / "policy.safetensors")
    assert task.observation_shift is not None and task.observation_scale is not None
    size = task.observation_size
    for seed in range(2):
        np.testing.assert_array_equal(arrays["actor/0/input_shift"][seed, :size], task.observation_shift)
        np.testing.assert_array_equal(arrays["actor/0/input_scale"][seed, :size], task.observation_scale)
        np.testing.assert_array_equal(arrays["actor/0/input_shift"][seed, size:], 0.0)
        np.testing.assert_array_equal(arrays["actor/0/input_scale"][seed, size:], 1.0)


@pytest.mark.sweep
def test_the_loaded_policy_computes_what_the_learner_computed(task: ib.Task, run: Path) -> None:
    opened = TrainedRun.open(run, task).only(1)
    policy = ib.load(run, seed=1, preference=(0.85, 0.15))
    environment = task.make_environment()
    observation, _ = environment.reset(seed=4)
    state = jax.tree.map(lambda leaf: leaf[0], opened.states)
    raw = opened.learner.mode(state, opened.spec, jnp.asarray(observation), jnp.asarray([0.7, 0.3]))
    expected = task.constraint.project(observation, np.asarray(raw, np.float64))
    np.testing.assert_allclose(policy.act(observation, deterministic=True), expected, atol=1e-5)
    for _ in range(20):
        observation, _, terminated, truncated, _ = environment.step(policy.act(observation))
        if terminated or truncated:
            observation, _ = environment.reset()


@pytest.mark.sweep
def test_a_resumed_run_goes_on_with_new_episodes_and_says_so(
    task: ib.Task, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "resumed"
    shutil.copytree(run, folder)
    ib.train(task, LEARNER, steps=160, out=folder, resume=True, **SETTINGS)
    assert json.loads((folder / "provenance.json").read_text())["resumed_exactly"] is False
    assert json.loads((folder / "evaluations.jsonl").read_text().splitlines()[-1])["step"] == 160


@pytest.mark.sweep
def test_a_run_whose_environments_are_in_processes_is_the_same_and_ends_them(
    task: ib.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ib.train(task, LEARNER, steps=120, out=tmp_path / "one process", threads=1, **SETTINGS)
    for name in ("TRIAL_SECONDS", "LEAST_SAVING", "LEAST_SPEED_UP"):
        monkeypatch.setattr(gymnasium_batch, name, 0.0)
    workers: list[Worker] = []
    start = gymnasium_processes.started
    monkeypatch.setattr(
        gymnasium_processes, "started", lambda places: workers.append(start(places)) or workers[-1]
    )
    ib.train(task, LEARNER, steps=120, out=tmp_path / "run", threads=2, **SETTINGS)
    assert len(workers) == 2, "one for training, one for evaluation"
    assert [worker.process.returncode for worker in workers] == [0, 0]
    expected = load_file(tmp_path / "one process" / "policy.safetensors")
    found = load_file(tmp_path / "run" / "policy.safetensors")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)

    def stop(row: Any) -> None:
        raise RuntimeError("a callback failed")

    with pytest.raises(RuntimeError, match="a callback failed"):
        ib.train(task, LEARNER, steps=120, out=tmp_path / "failed", threads=2, callbacks=(stop,), **SETTINGS)
    assert len(workers) == 3 and workers[2].process.returncode == 0


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("change", "steps", "remedy"),
    [
        ({"constraint": ib.RateLimit(1.5)}, 160, "another constraint"),
        ({}, 60, "taken 120 steps already.*Pass more"),
    ],
    ids=["constraint", "fewer steps"],
)
def test_a_run_is_resumed_only_as_what_it_was_begun(
    task: ib.Task, run: Path, tmp_path: Path, change: dict[str, Any], steps: int, remedy: str
) -> None:
    folder = tmp_path / "resumed"
    shutil.copytree(run, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    values = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    with pytest.raises(ConfigurationError, match=remedy):
        ib.train(AssembledTask(**values | change), LEARNER, steps=steps, out=folder, resume=True, **SETTINGS)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.sweep
def test_a_run_that_ended_within_a_turn_may_be_resumed_for_the_same_steps(
    task: ib.Task, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "resumed"
    shutil.copytree(run, folder)
    ib.train(
        task, LEARNER, steps=119, out=folder, resume=True, **SETTINGS
    )  # two environments: 120 were taken
    assert json.loads((folder / "evaluations.jsonl").read_text().splitlines()[-1])["step"] == 120


def test_a_network_with_measured_inputs_is_the_plain_one_on_relative_inputs() -> None:
    shift, scale = np.array([5.0, -3.0], np.float32), np.array([2.0, 0.1], np.float32)
    key, inputs = jax.random.key(0), jnp.asarray([[6.0, -2.9, 0.3]])
    plain, scaled = init_network(key, (3, 4, 1)), init_network(key, (3, 4, 1), InputScale(shift, scale))
    relative = jnp.asarray([[0.5, 1.0, 0.3]])
    np.testing.assert_allclose(apply_network(scaled, inputs), apply_network(plain, relative), atol=1e-6)


def test_gradients_leave_measured_inputs_alone() -> None:
    network = init_network(
        jax.random.key(0), (1, 4, 1), InputScale(np.ones(1, np.float32), np.ones(1, np.float32))
    )
    slope = jax.grad(lambda net: jnp.sum(apply_network(net, jnp.ones((3, 1)) * 2.0)))(network)
    first = slope[0]
    assert isinstance(first, InputLayer)
    assert float(jnp.abs(first.input_shift).sum() + jnp.abs(first.input_scale).sum()) == 0.0
    assert float(jnp.abs(first.weight).sum()) > 0.0


@pytest.mark.parametrize("name", ["aram", "sosac", "sac", "td3", "spre", "nfwpo", "focops"])
def test_learners_see_observations_relative_to_what_was_measured(name: str) -> None:
    shift, scale = np.array([50.0, -3.0], np.float32), np.array([20.0, 0.5], np.float32)
    low, high = -np.ones(2, np.float32), np.ones(2, np.float32)
    constraint = ib.Ball(radius_squared=1.0) & ib.Box(low, high)
    plain, scaled = Spec.of(2, low, high, constraint), Spec.of(2, low, high, constraint, shift, scale)
    learner, key, preference = make_learner(name, hidden=(8,)), jax.random.key(1), jnp.asarray([0.9, 0.1])
    relative = jnp.asarray([[0.5, -2.0], [1.0, 0.25]])
    seen = relative * scale + shift
    expected = learner.mode(learner.init(key, plain), plain, relative, preference)
    state = learner.init(key, scaled)
    np.testing.assert_allclose(learner.mode(state, scaled, seen, preference), expected, atol=1e-5)
    assert {"actor/0/input_shift", "actor/0/input_scale"} <= set(flatten(learner.export(state)))
