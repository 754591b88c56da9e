"""Runs: what is written, that evaluating changes nothing, and that a resumed run is the run that never stopped."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import inbounds as ib
from inbounds.errors import CheckpointError, ConfigurationError, DivergenceError
from inbounds.learners.aram import Aram
from inbounds.learners.focops import Focops
from inbounds.storage import files
from inbounds.training import checkpoint as checkpoints
from inbounds.training.api import train
from inbounds.training.checkpoint import newest_checkpoint, read_checkpoint
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Training, available_threads, resolved
from inbounds.training.record import EVALUATIONS, METRICS, POLICY, RunFolder
from tests.learners import probes

TINY = Aram(hidden=(8, 8), batch_size=16, proposals=4)
SHORT = {
    **{"warm_up": 20, "capacity": 300, "episodes": 1, "checkpoint_every": 40, "environments": 2},
    **{"scale_observations": False, "scale_rewards": False},
}


def moving_task():
    return probes.moving_optimum().task


def final_arrays(folder):
    return newest_checkpoint(folder / "checkpoints", pytest.fail).arrays


def rows(folder, name):
    timeless = ("seconds", "steps_per_second", "evaluation_seconds")
    return [
        {key: value for key, value in row.items() if key not in timeless}
        for row in RunFolder(folder).rows(name)
    ]


def assert_same_run(first, second):
    one, other = final_arrays(first), final_arrays(second)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    for name in (METRICS, EVALUATIONS):
        assert rows(first, name) == rows(second, name)
    assert (first / POLICY).read_bytes() == (second / POLICY).read_bytes()


@pytest.fixture(scope="module")
def compiled_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled") / "run"
    summary = train(moving_task(), TINY, out=folder, steps=120, seeds=2, evaluate_every=40, **SHORT)
    return folder, summary


@pytest.mark.slow
def test_all_evaluations_of_a_run_play_the_same_episodes(tmp_path):
    """During the warm-up the policy does not change, so that only other episodes could change what it earns."""
    train(
        moving_task(),
        TINY,
        out=tmp_path / "run",
        **{**SHORT, "steps": 50, "warm_up": 40, "evaluate_every": 10, "episodes": 3},
    )
    found = RunFolder(tmp_path / "run").rows(EVALUATIONS)
    returns = [row["return"] for row in found if row["step"] <= 40]
    assert len(returns) == 4 and len(set(returns)) == 1


@pytest.mark.slow
def test_a_run_folder_explains_itself(compiled_run):
    folder, summary = compiled_run
    config = json.loads((folder / "config.json").read_text())
    assert config["training"]["warm_up"] == 20 and config["learner"]["penalty"] == 3.0
    assert config["learner"]["gamma"] is None
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["packages"]["jax"]
    first = next(RunFolder(folder).rows(EVALUATIONS))
    assert 0 < provenance["preparation_seconds"] < first["seconds"]  # what is trained beforehand counts
    assert [row["step"] for row in rows(folder, EVALUATIONS)] == [40, 40, 80, 80, 120, 120]
    assert summary.worst_violation == 0.0
    assert "valid action rate" in str(summary)
    assert f"{provenance['preparation_seconds']:.1f} s of it before the first step" in str(summary)


@pytest.mark.slow
def test_a_resumed_run_equals_the_run_that_was_never_interrupted(compiled_run, tmp_path):
    train(moving_task(), TINY, out=tmp_path / "run", steps=80, seeds=2, evaluate_every=40, **SHORT)
    train(
        moving_task(), TINY, out=tmp_path / "run", steps=120, seeds=2, evaluate_every=40, resume=True, **SHORT
    )
    assert_same_run(compiled_run[0], tmp_path / "run")


@pytest.mark.slow
def test_evaluating_more_often_changes_no_parameter(compiled_run, tmp_path):
    train(moving_task(), TINY, out=tmp_path / "run", steps=120, seeds=2, evaluate_every=20, **SHORT)
    one, other = final_arrays(compiled_run[0]), final_arrays(tmp_path / "run")
    for name, array in one.items():
        if not name.startswith("best/"):  # of more evaluations another one may be the best
            np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.slow
def test_a_mujoco_run_resumes_bit_by_bit(tmp_path):
    settings = {**SHORT, "evaluate_every": 80, "seeds": 2}
    train("reacher", TINY, out=tmp_path / "whole", steps=160, **settings)
    train("reacher", TINY, out=tmp_path / "parts", steps=80, **settings)
    train("reacher", TINY, out=tmp_path / "parts", steps=160, resume=True, **settings)
    one, other = final_arrays(tmp_path / "whole"), final_arrays(tmp_path / "parts")
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


KILLED = """
import sys
sys.path.insert(0, {root!r})
from tests.training.test_loop import SHORT, TINY, moving_task, train
train(moving_task(), TINY, out={out!r}, steps={steps}, seeds=2, evaluate_every=40, resume={resume}, **SHORT)
"""


@pytest.mark.slow
def test_a_killed_run_loses_only_what_came_after_its_last_checkpoint(compiled_run, tmp_path):
    out = tmp_path / "run"
    root = str(os.getcwd())
    started = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(root=root, out=str(out), steps=100_000, resume=False)]
    )
    deadline = time.monotonic() + 300
    while not list((out / "checkpoints").glob("step-*40")) and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGKILL)
    started.wait()
    stopped_at = newest_checkpoint(out / "checkpoints", pytest.fail).notes["step"]
    steps = max(120, stopped_at + 40)
    subprocess.run(
        [sys.executable, "-c", KILLED.format(root=root, out=str(out), steps=steps, resume=True)], check=True
    )
    train(moving_task(), TINY, out=tmp_path / "whole", steps=steps, seeds=2, evaluate_every=40, **SHORT)
    assert_same_run(tmp_path / "whole", out)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_whole(compiled_run, tmp_path):
    newest = newest_checkpoint(compiled_run[0] / "checkpoints", pytest.fail).path
    copy = tmp_path / newest.name
    copy.mkdir()
    (copy / "notes.json").write_bytes((newest / "notes.json").read_bytes())
    content = (newest / "state.safetensors").read_bytes()
    (copy / "state.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="truncated"):
        read_checkpoint(copy)


@pytest.mark.sweep
def test_another_learner_does_not_go_on_with_a_run(compiled_run):
    with pytest.raises(ConfigurationError, match=r"penalty 3\.0, not 1\.0\. Resume with the same"):
        train(
            moving_task(), dataclasses.replace(TINY, penalty=1.0), out=compiled_run[0], resume=True, **SHORT
        )


@pytest.mark.slow
def test_a_foreign_checkpoint_is_refused(compiled_run, tmp_path):
    folder = shutil.copytree(compiled_run[0], tmp_path / "run")
    config = RunFolder(folder).config()
    assert config["learner"]["hidden"] == [8, 8]
    config["learner"]["hidden"] = [9, 9]  # whose checkpoint this is not
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="another learner"):
        train(
            moving_task(),
            Aram(hidden=(9, 9), batch_size=16, proposals=4),
            out=folder,
            steps=200,
            seeds=2,
            evaluate_every=40,
            resume=True,
            **SHORT,
        )


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    tree = {"weights": np.arange(3.0)}
    checkpoints.write_checkpoint(folder, 10, tree, {}, keep=1)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(CheckpointError, match=r"Free some disk space\. Then resume the run in") as told:
        checkpoints.write_checkpoint(folder, 20, tree, {}, keep=1)
    assert str(tmp_path) in str(told.value) and "again" not in str(told.value)
    _, arrays, notes = newest_checkpoint(folder, pytest.fail)
    assert notes["step"] == 10 and arrays["weights"].tolist() == [0, 1, 2]
    assert [path.name for path in folder.iterdir()] == ["step-000000000010"]


@pytest.mark.slow
def test_a_run_that_diverges_stops_and_leaves_what_it_saw(tmp_path):
    with pytest.raises(DivergenceError, match=r"divergence\.safetensors"):
        train(
            moving_task(),
            Aram(hidden=(8, 8), batch_size=16, proposals=4, learning_rate=1e38),
            out=tmp_path / "run",
            steps=60,
            evaluate_every=0,
            **SHORT,
        )
    dumped = load_file(tmp_path / "run" / "divergence.safetensors")
    assert dumped["batch"].shape[-2] == 16


@pytest.mark.slow
def test_a_callback_can_stop_a_run_after_a_checkpoint(tmp_path):
    train(
        moving_task(),
        TINY,
        out=tmp_path / "run",
        steps=10_000,
        evaluate_every=40,
        callbacks=[lambda row: row["kind"] == "evaluation"],
        **SHORT,
    )
    assert newest_checkpoint(tmp_path / "run" / "checkpoints", pytest.fail).path.name.endswith("40")


def test_an_existing_run_is_never_overwritten(compiled_run):
    with pytest.raises(ConfigurationError, match="resume"):
        train(moving_task(), TINY, out=compiled_run[0], steps=120, **SHORT)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"steps": 100, "warm_up": 100}, "Lower warm_up"),
        ({"steps": 100, "capacity": 10}, "Raise capacity"),
        ({"steps": 0}, "at least 1"),
        ({"stepps": 5}, "steps"),
    ],
)
def test_impossible_settings_are_refused_before_anything_starts(settings, remedy, tmp_path):
    with pytest.raises(ConfigurationError, match=remedy):
        train(moving_task(), TINY, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_warm_up_defaults_to_a_tenth_of_the_steps_but_at_most_ten_thousand():
    assert TrainingConfig(steps=50_000).warm_up_steps(TINY) == 5_000
    assert TrainingConfig(steps=1_000_000).warm_up_steps(TINY) == 10_000


def test_an_on_policy_learner_has_no_random_phase_unless_one_is_asked_for(tmp_path):
    learner = Focops(hidden=(4,), rollout=8, batch_size=8, epochs=1)
    for asked, expected in ((None, 0), (5, 5)):
        config = TrainingConfig(steps=100, environments=2, warm_up=asked)
        training = Training(moving_task(), learner, config, RunFolder(tmp_path / "run"))
        assert training.collector.warm_up == expected
        written = resolved(moving_task(), learner, "focops", config, environments=2)
        assert written["training"]["warm_up"] == expected


def test_a_learner_with_a_replay_needs_a_first_step_to_learn_from(tmp_path):
    with pytest.raises(ConfigurationError, match="Raise warm_up"):
        train(moving_task(), TINY, out=tmp_path / "run", steps=100, warm_up=0)


def test_a_loaded_policy_acts_feasibly_and_repeatably(compiled_run):
    policy, again = (ib.load(compiled_run[0], seed=1) for _ in range(2))
    constraint = moving_task().constraint
    for weights in ([0.5, 1.5], [1.0, 1.0], [30.0, 50.0]):
        action = policy.act(weights)
        assert float(constraint.violation(np.array(weights), action.astype(np.float64))) <= 0
        np.testing.assert_array_equal(action, again.act(weights))
        centred = policy.act(weights, deterministic=True)
        assert float(constraint.violation(np.array(weights), centred.astype(np.float64))) <= 0


def test_a_loaded_policy_is_centred_where_the_trained_one_is(compiled_run):
    from inbounds.evaluation.trained import TrainedRun

    run = TrainedRun.open(compiled_run[0], task=moving_task())
    import jax

    state = jax.tree.map(lambda leaf: leaf[0], run.states)
    seen = np.array([0.5, 0.5])
    trained = run.learner.mode(
        state, run.spec, jax.numpy.asarray(seen, jax.numpy.float32), jax.numpy.array([0.9, 0.1])
    )
    raw = np.asarray(trained)
    expected = np.asarray(moving_task().constraint.project(seen, raw))
    np.testing.assert_allclose(ib.load(compiled_run[0]).act(seen, deterministic=True), expected, atol=1e-5)


@pytest.mark.parametrize(("granted", "threads"), [("3", 3), ("0", None), ("", None), ("many", None)])
def test_environments_get_the_threads_that_the_environment_grants_or_every_core(
    monkeypatch, granted, threads
):
    monkeypatch.setenv("OMP_NUM_THREADS", granted)
    assert available_threads() == (threads or len(os.sched_getaffinity(0)))


def test_acceptance_and_rejections_stay_exact_where_counters_begin_again(tmp_path, monkeypatch):
    start = Training.start

    def late(training):
        start(training)
        counters = jax.tree.map(lambda leaf: leaf + np.uint32(2**32 - 20), training.state.counters)
        training.state = training.state._replace(counters=counters)
        training.logged_counters = jax.tree.map(np.asarray, counters)

    train(moving_task(), TINY, out=tmp_path / "fresh", steps=60, **SHORT)
    monkeypatch.setattr(Training, "start", late)
    train(moving_task(), TINY, out=tmp_path / "late", steps=60, **SHORT)
    train(moving_task(), TINY, out=tmp_path / "late", steps=80, resume=True)
    train(moving_task(), TINY, out=tmp_path / "fresh", steps=80, resume=True)
    for name in ("acceptance", "rejections"):
        assert [row[name] for row in rows(tmp_path / "late", METRICS)] == [
            row[name] for row in rows(tmp_path / "fresh", METRICS)
        ]
    last = rows(tmp_path / "late", METRICS)[-1]
    assert last["rejections"] > 20 and 0 < last["acceptance"] < 1
