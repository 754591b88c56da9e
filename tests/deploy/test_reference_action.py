"""Means that are residuals around an observed reference action: deployed as they were learnt, and checked when read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import inbounds as ib
from inbounds.auditing.audited_policy import open_policy
from inbounds.deploy.export import export
from inbounds.deploy.export_check import compare
from inbounds.deploy.policy import load, sealed
from inbounds.errors import CheckpointError, InvalidInputError
from inbounds.learners.learner import Spec
from inbounds.policies.heads import SquashedGaussian
from inbounds.tasks.task import Task
from inbounds.training.checkpoint import flatten
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import resolved
from inbounds.training.record import RunFolder
from tests.deploy.run_folders import random_network, write_run
from tests.slices import quick_slice

PREFERENCE = (0.85, 0.15)


class Trained(NamedTuple):
    """A run as training writes it, what the learner knows, and states."""

    path: Path
    exported: Path
    task: Task
    learner: Any
    state: Any
    spec: Spec
    observations: NDArray[np.float64]


def states_of(task: Task, count: int) -> NDArray[np.float64]:
    """Return observations with entries of the size of actions, some beyond their box."""
    span = task.action_high.max() - task.action_low.min()
    entries = np.random.default_rng(0).uniform(-0.2, 1.1, (count, task.observation_size))
    return task.action_low.min() + span * entries


def run_of(folder: Path, name: str, is_moved: bool = True, warm_start: bool = True) -> Trained:
    """Write the run of a learner that has just begun, with a last layer that already says something."""
    task, learner = ib.make(name), ib.Aram(hidden=(8, 8), proposals=20, warm_start=warm_start)
    observations = states_of(task, 25)
    shift, scale = (observations.mean(axis=0), observations.std(axis=0) + 0.5)
    spec = Spec.of(
        task.observation_size,
        task.action_low,
        task.action_high,
        task.constraint,
        shift.astype(np.float32),
        scale.astype(np.float32),
        task.reference_action,
    )
    state = learner.init(jax.random.key(0), spec)
    if is_moved:
        *first, last = state.params.actor
        moved = 0.3 * jax.random.normal(jax.random.key(1), last.weight.shape)
        actor = (*first, last._replace(weight=moved))
        state = state._replace(params=state.params._replace(actor=actor))
    run = RunFolder(folder)
    run.create(resolved(task, learner, "aram", TrainingConfig(steps=300), 1), {})
    run.write_policy({key: np.asarray(array)[None] for key, array in flatten(learner.export(state)).items()})
    written = export(folder, preference=PREFERENCE).path
    return Trained(folder, written, task, learner, state, spec, observations)


@pytest.fixture(scope="module", params=quick_slice(["bss3z", "nsfnet"], ["bss3z"]))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A start that is observed, and one that is the same in all states."""
    return run_of(tmp_path_factory.mktemp("run") / request.param, request.param)


@pytest.mark.parametrize("kind", ["path", "exported"])
def test_the_deployed_distribution_is_that_of_the_learner(trained: Trained, kind: str) -> None:
    policy = load(getattr(trained, kind), preference=PREFERENCE)
    head: Any = policy.head
    assert (head.reference is not None) == (trained.task.name == "bss3z")
    seen, weights = trained.observations.astype(np.float32), jnp.asarray(PREFERENCE)
    proposal = trained.learner.policy(trained.state.params.actor, trained.spec, jnp.asarray(seen), weights)
    assert np.std(proposal.mean, axis=0).min() > 0.01, "all states are alike to this network"
    outputs = np.stack([policy.forward(observation) for observation in seen])
    np.testing.assert_allclose(outputs, np.concatenate(proposal, axis=-1), atol=2e-5)


def test_deployed_actions_and_draws_are_those_of_the_learner(trained: Trained) -> None:
    policy, task = load(trained.path, preference=PREFERENCE), trained.task
    about = (trained.state, trained.spec, jnp.asarray(trained.observations, jnp.float32))
    width = task.action_high - task.action_low
    centre = np.asarray(trained.learner.mode(*about, jnp.asarray(PREFERENCE)))
    wanted = task.constraint.project(trained.observations, centre)
    acted = np.stack([policy.act(seen, deterministic=True) for seen in trained.observations])
    np.testing.assert_allclose(acted / width, wanted / width, atol=1e-5)
    key, count = jax.random.key(3), 4
    samples = trained.learner.samples(*about, jnp.asarray(PREFERENCE), key, count)
    noise = np.asarray(jax.random.normal(key, samples.shape))
    for seen, rows, expected in zip(trained.observations, noise, np.asarray(samples), strict=True):
        forward: Any = policy.forward
        drawn = forward.drawn(forward(seen.astype(np.float32)), rows)
        np.testing.assert_allclose(drawn / width, expected / width, atol=1e-5)


def test_the_graph_acts_around_the_same_reference_action(trained: Trained) -> None:
    found = compare(trained.exported, observations=trained.observations)
    assert found.violations == 0 and found.other_choices == 0 and found.largest_difference < 1e-5


def test_an_audit_asks_the_same_policy_whatever_it_is_given(trained: Trained) -> None:
    answers = []
    for given in (trained.path, trained.exported, trained.exported / "policy.onnx", load(trained.path)):
        with open_policy(given, trained.task, 0, True, (0.9, 0.1), None) as policy:
            answers.append([policy.ask(seen, None) for seen in trained.observations[:5]])
    width = trained.task.action_high - trained.task.action_low
    for others in answers[1:]:
        np.testing.assert_allclose(others / width, answers[0] / width, atol=1e-5)


def test_a_policy_that_has_learnt_nothing_leaves_every_bike_where_it_stands(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "bss3z", is_moved=False)
    policy, box = load(run.path), run.task
    half = 0.5 * (box.action_high - box.action_low)
    nearly = np.clip(run.observations[:, 3:6], box.action_low + 0.01 * half, box.action_high - 0.01 * half)
    wanted = run.task.constraint.project(run.observations, nearly)
    acted = np.stack([policy.act(seen, deterministic=True) for seen in run.observations])
    np.testing.assert_allclose(acted, wanted, atol=1e-3)


def test_a_policy_that_begins_in_the_box_ignores_the_task_s_reference_action(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "bss3z", warm_start=False)
    for folder in (run.path, run.exported):
        head: Any = load(folder).head
        assert head.reference is None


# Readings of all kinds, and hostile ones

D, SIZE = 3, 5
LOW, HIGH = np.array([-1.0, 0.0, -2.0]), np.array([1.0, 2.0, 3.0])
SET = ib.SumBand(total=1.0, tolerance=0.8) & ib.Box(LOW, HIGH)
AROUND = SquashedGaussian(proposals=10, preference_size=2, min_return_weight=0.5)


def synthetic(folder: Path, reference: Any) -> Path:
    """Write a run of a random network around a reference action, given as JSON."""
    arrays = random_network(np.random.default_rng(0), (SIZE + 2, 8, 2 * D))
    limits = {"observation_size": SIZE, "low": LOW, "high": HIGH}
    return write_run(folder, SET, arrays, **limits, head={**AROUND.to_json(), "reference": reference})


@pytest.mark.parametrize(
    "reference",
    [
        ib.obs[[4, 1, -2]] * 2.0 + 0.5,
        ib.obs[-3:] * -1e6,
        ib.obs[::2],
        ib.obs[1:4].reshape(3),
        ib.obs[4:1:-1] / 3.0,
    ],
    ids=str,
)
def test_every_reading_of_an_action_is_deployed_and_exported(reference: Any, tmp_path: Path) -> None:
    run = synthetic(tmp_path / "run", reference.to_json())
    policy, plain = load(run), load(synthetic(tmp_path / "plain", None))
    seen = np.random.default_rng(1).standard_normal((100, SIZE))
    for observation in seen.astype(np.float32):
        relative = np.clip(
            (reference.read(observation) - 0.5 * (LOW + HIGH)) / (0.5 * (HIGH - LOW)), -0.99, 0.99
        )
        shift = policy.forward(observation) - plain.forward(observation)
        np.testing.assert_allclose(shift[:D], np.arctanh(relative), atol=2e-5)
        assert not shift[D:].any()
    folder = export(run).path
    found = compare(folder, observations=seen)
    assert found.violations == 0 and found.other_choices <= 1 and found.largest_difference < 1e-5
    again = load(folder)
    for observation in seen[:5]:
        np.testing.assert_array_equal(again.act(observation), policy.act(observation))


HOSTILE: dict[str, Any] = {
    "beyond the observation": ib.obs[3:6].to_json(),
    "too many entries": ib.obs[0:4].to_json(),
    "one entry": ib.obs[0:1].to_json(),
    "a number": ib.obs[2].to_json(),
    "a matrix": ib.obs[0:3].reshape(1, 3).to_json(),
    "a shape that does not fit": ib.obs[0:3].reshape(10**9).to_json(),
    "no entries": {"source": "observation", "indices": []},
    "everything": {"source": "observation", "indices": None},
    "the previous action": ib.previous_action.to_json(),
    "another source": {"source": "file", "indices": [0, 1, 2]},
    "an endless scale": {**ib.obs[0:3].to_json(), "scale": float("inf")},
    "a scale beyond float32": {**ib.obs[0:3].to_json(), "scale": 1e300},
    "no reference": {},
    "an index that is none": {"source": "observation", "indices": [0, 1, "2"]},
}


@pytest.mark.parametrize("start", HOSTILE.values(), ids=HOSTILE)
def test_a_reference_that_is_no_action_of_the_observation_is_refused(start: Any, tmp_path: Path) -> None:
    run = synthetic(tmp_path / "run", start)
    for opened in (load, export):
        with pytest.raises(CheckpointError, match=r"(Restore|restore)"):
            opened(run)
    folder = export(synthetic(tmp_path / "sound", ib.obs[0:3].to_json())).path
    rewritten(folder, lambda manifest: manifest["head"].update(reference=start))
    with pytest.raises(CheckpointError, match=r"(Restore|restore)"):
        load(folder)


@pytest.mark.parametrize("start", [True, 3, "obs[0:3]", 1e300, [0.0, 1.0, 0.0]])
def test_a_reference_of_another_type_is_refused(start: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="reference"):
        load(synthetic(tmp_path / "run", start))
    folder = export(synthetic(tmp_path / "sound", ib.obs[0:3].to_json())).path
    rewritten(folder, lambda manifest: manifest["head"].update(reference=start))
    with pytest.raises(CheckpointError, match="reference"):
        load(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and seal it again, as a forger would."""
    manifest = json.loads((folder / "policy.json").read_text())
    change(manifest)
    (folder / "policy.json").write_text(json.dumps(sealed(manifest)))


@pytest.mark.parametrize("changed", [ib.obs[1:4].to_json(), None])
def test_a_reference_that_was_changed_after_training_is_noticed(changed: Any, tmp_path: Path) -> None:
    run = synthetic(tmp_path / "run", ib.obs[0:3].to_json())
    config = json.loads((run / "config.json").read_text())
    config["head"]["reference"] = changed
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="another run"):
        load(run)


def test_an_entry_without_width_stays_at_its_value(tmp_path: Path) -> None:
    low = np.array([-1.0, 1.0, -1.0])
    high = np.array([1.0, 1.0, 1.0])
    run = write_run(
        tmp_path / "run",
        ib.Box(low, high),
        random_network(np.random.default_rng(0), (SIZE + 2, 8, 2 * D)),
        observation_size=SIZE,
        low=low,
        high=high,
        head=dataclasses.replace(AROUND, reference=ib.obs[0:3]),
    )
    action = load(run).act(np.array([0.2, 1.0, -0.4, 0.0, 0.0]))
    assert action[1] == 1.0 and np.isfinite(action).all()


def test_an_observation_that_float32_cannot_hold_leads_to_no_action(tmp_path: Path) -> None:
    policy = load(synthetic(tmp_path / "run", (ib.obs[0:3] * 0.0).to_json()))
    with np.errstate(all="ignore"), pytest.raises(InvalidInputError, match="float32 can hold"):
        policy.act(np.full(SIZE, 1e300))
