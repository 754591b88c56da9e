"""`train`: which scales a run has, and that they stay with it when it is read back or resumed."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import nullcontext

import numpy as np
import pytest
from safetensors.numpy import load_file

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.aram import Aram
from inbounds.learners.registry import make_learner
from inbounds.tasks.task import AssembledTask
from inbounds.training import api
from inbounds.training.api import require_same_learner, scaled_task, train
from inbounds.training.checkpoint import newest_checkpoint
from inbounds.training.config import TrainingConfig
from inbounds.training.evaluate import Evaluator
from inbounds.training.loop import SHARED_EPISODES, resolved
from inbounds.training.record import EVALUATIONS, RunFolder
from tests.learners import probes
from tests.tasks.own_environments import Line

LEARNER = Aram(hidden=(4,), batch_size=16, proposals=4)
SETTINGS = {
    **{"warm_up": 20, "capacity": 300, "episodes": 2, "checkpoint_every": 40, "environments": 2},
    **{"seeds": 2, "evaluate_every": 40},
}


@pytest.fixture(scope="module")
def task():
    return probes.moving_optimum().task


@pytest.fixture(scope="module")
def run(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled") / "run"
    train(task, LEARNER, out=folder, steps=80, **SETTINGS)
    return folder


@pytest.mark.slow
def test_a_run_records_the_scales_that_its_networks_see(task, run):
    config, expected = json.loads((run / "config.json").read_text()), task.normalised()
    np.testing.assert_array_equal(np.float32(config["observation_shift"]), expected.observation_shift)
    np.testing.assert_array_equal(np.float32(config["observation_scale"]), expected.observation_scale)
    assert (config["reward_divisor"], config["reward_shift"]) == (
        expected.reward_divisor,
        expected.reward_shift,
    )
    kept = load_file(run / "policy.safetensors")
    for seed in range(2):
        np.testing.assert_array_equal(kept["actor/0/input_shift"][seed, :2], expected.observation_shift)


@pytest.mark.slow
def test_a_scaled_run_that_is_read_back_evaluates_as_it_did_in_training(task, run):
    opened = TrainedRun.open(run, task)
    found = Evaluator(task, opened.learner, opened.spec, 2).evaluate(
        opened.states, list(opened.seeds), (0.9, 0.1), salt=SHARED_EPISODES
    )
    rows = [row for row in RunFolder(run).rows(EVALUATIONS) if row["step"] == 80]
    np.testing.assert_array_equal(found.returns.mean(axis=1), [row["return"] for row in rows])
    assert [float(rate) for rate in found.valid_rate] == [row["valid_action_rate"] for row in rows]


@pytest.mark.slow
def test_a_scaled_run_resumes_exactly_without_measuring_again(task, run, tmp_path, monkeypatch):
    train(task, LEARNER, out=tmp_path / "run", steps=40, **SETTINGS)

    def refuse(*arguments, **settings):
        raise AssertionError("a resumed run measured its scales again")

    monkeypatch.setattr("inbounds.tasks.normalisation.measured_scales", refuse)
    train(task, LEARNER, out=tmp_path / "run", steps=80, resume=True, **SETTINGS)
    one, other = (
        newest_checkpoint(path / "checkpoints", pytest.fail).arrays for path in (run, tmp_path / "run")
    )
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"penalty": 1.0}, r"penalty 3\.0, not 1\.0\. Resume with the same"),
        ({"hidden": (4, 4)}, r"hidden \[4\], not \[4, 4\]"),
        ({"preference": (0.9, 0.1)}, r"preference None, not \[0\.9, 0\.1\]"),
    ],
    ids=["the same", "a number", "networks", "what critics mean"],
)
def test_a_run_is_resumed_only_by_the_learner_that_its_folder_describes(task, changes, told, tmp_path):
    folder = RunFolder(tmp_path)
    folder.create(resolved(task, LEARNER, "aram", TrainingConfig(**SETTINGS), 2), {})
    other = dataclasses.replace(LEARNER, **changes)
    with nullcontext() if told is None else pytest.raises(ConfigurationError, match=told):
        require_same_learner(other, "aram", folder.config(), tmp_path)
    with pytest.raises(ConfigurationError, match="name aram, not mine"):
        require_same_learner(LEARNER, "mine", folder.config(), tmp_path)


ALREADY = {"observation_shift": None, "observation_scale": None, "reward_divisor": 1.0, "reward_shift": 0.0}


@pytest.mark.parametrize(
    ("learner", "settings", "observations", "rewards"),
    [
        (Aram(), {}, True, True),
        (Aram(preset="paper"), {}, False, False),
        (Aram(), {"scale_observations": False}, False, True),
        (Aram(), {"scale_observations": False, "scale_rewards": False}, False, False),
        (make_learner("td3"), {}, False, False),
        (make_learner("td3"), {"scale_observations": True, "scale_rewards": True}, True, True),
    ],
    ids=["default", "paper", "rewards alone", "not wanted", "another learner", "wanted of another learner"],
)
def test_scales_are_measured_as_the_learner_says_unless_the_training_says_otherwise(
    learner, settings, observations, rewards, task
):
    chosen = scaled_task(task, learner, TrainingConfig(**settings), None)
    assert (chosen.observation_scale is not None) == observations
    assert (chosen.reward_divisor != task.reward_divisor) == rewards
    if not observations and not rewards:
        assert chosen is task


def test_what_the_task_measured_itself_is_not_measured_again_unless_asked(task):
    own = task.normalised(steps=50)
    assert scaled_task(own, Aram(), TrainingConfig(), None) is own
    again = scaled_task(own, Aram(), TrainingConfig(scale_observations=True), None)
    np.testing.assert_array_equal(again.observation_scale, task.normalised().observation_scale)
    assert again.reward_divisor == own.reward_divisor


def test_a_scale_of_rewards_that_the_user_chose_is_left_alone():
    chosen = ib.Task(Line, horizon=20, reward_divisor=3.0)
    assert scaled_task(chosen, Aram(), TrainingConfig(), None).reward_divisor == 3.0
    assert scaled_task(ib.Task(Line, horizon=20), Aram(), TrainingConfig(), None).reward_divisor != 1.0


def test_a_resumed_run_goes_on_with_the_scales_it_began_with(task):
    shift, scale = [1.0, 2.0], [3.0, 4.0]
    recorded = {
        "observation_shift": shift,
        "observation_scale": scale,
        "reward_divisor": 7.0,
        "reward_shift": 9.0,
    }
    for learner in (LEARNER, make_learner("td3")):  # which measures none: the task brought them along
        chosen = scaled_task(task, learner, TrainingConfig(), recorded)
        np.testing.assert_array_equal(chosen.observation_shift, shift)
        np.testing.assert_array_equal(chosen.observation_scale, scale)
        assert (chosen.reward_divisor, chosen.reward_shift) == (7.0, 9.0)
    raw = scaled_task(task, LEARNER, TrainingConfig(), ALREADY)  # of a version that measured nothing
    assert raw.observation_shift is None and raw.reward_divisor == 1.0


def test_the_device_is_chosen_before_anything_is_measured_on_it(task, tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(api.jax.config, "update", lambda name, value: order.append((name, value)))

    def stop(*arguments):
        order.append("measured")
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "scaled_task", stop)
    with pytest.raises(KeyboardInterrupt):
        train(task, LEARNER, out=tmp_path / "run", steps=80, device="cpu", **SETTINGS)
    assert order == [("jax_platforms", "cpu"), "measured"]


@pytest.mark.slow
def test_a_run_is_evaluated_by_as_many_episodes_as_its_task_asks_for_even_when_resumed(task, tmp_path):
    settings = {name: value for name, value in SETTINGS.items() if name != "episodes"}
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    asking = AssembledTask(**{**fields, "evaluation_episodes": 3})
    train(asking, LEARNER, out=tmp_path / "run", steps=40, **settings)
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["training"]["episodes"]
    assert recorded == 3
    with pytest.raises(ConfigurationError, match=f"Resume with episodes={recorded}"):
        train(asking, LEARNER, out=tmp_path / "run", steps=80, resume=True, **{**settings, "episodes": 7})


@pytest.mark.slow
def test_a_run_stays_in_its_folder_when_a_callback_goes_elsewhere_and_returns_what_it_logged(
    task, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def leave(row):
        os.chdir(tmp_path / "elsewhere")
        return np.ones(3)

    summary = train(task, LEARNER, out="run", steps=80, callbacks=(leave,), **SETTINGS)
    assert (summary.path, summary.step) == (tmp_path / "run", 80)
    assert newest_checkpoint(tmp_path / "run" / "checkpoints", pytest.fail).notes["step"] == 80
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_empty_name_is_no_run_folder(task):
    with pytest.raises(ConfigurationError, match="out='' names no folder"):
        train(task, LEARNER, out="", steps=80, **SETTINGS)
