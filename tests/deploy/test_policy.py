"""The numpy runtime: the same actions as the learners' own JAX code, checked folders, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import inbounds as ib
from inbounds.deploy.export import export
from inbounds.deploy.export_check import compare
from inbounds.deploy.policy import load
from inbounds.errors import CheckpointError, InvalidInputError
from inbounds.learners.learner import Spec
from inbounds.learners.registry import LEARNERS, make_learner
from inbounds.policies.heads import SquashedGaussian
from inbounds.training.checkpoint import flatten
from tests.deploy.run_folders import random_network, random_run, write_run

D, SIZE = 3, 7
LOW, HIGH = np.array([-1.0, 0.0, -2.0]), np.array([1.0, 2.0, 2.0])
SET = ib.SumBand(total=ib.obs[0] * 0.2 + 1.0, tolerance=0.3) & ib.Box(LOW, HIGH)
SETTINGS: dict[str, dict[str, Any]] = {
    "flowpg": {
        "flow_steps": 1,
        "flow_samples": 64,
        "flow_batch_size": 8,
        "flow_hidden": (6,),
        "flow_layers": 3,
    },
    "focops": {"rollout": 8, "batch_size": 8},
    "aram normalised": {"preset": "normalised"},
}


def trained_run(folder: Path, name: str) -> tuple[Path, Any, Any, Spec]:
    """Write a run of a freshly initialised learner; return it with the learner, its state and its spec."""
    settings = {"hidden": (8,), **SETTINGS.get(name, {})}
    learner: Any = make_learner(name.partition(" ")[0], **settings)
    spec = Spec.of(SIZE, LOW.astype(np.float32), HIGH.astype(np.float32), SET)
    state = learner.init(jax.random.key(0), spec)
    arrays: dict[str, NDArray[Any]] = {
        key: np.asarray(array)[None] for key, array in flatten(learner.export(state)).items()
    }
    limits = {"observation_size": SIZE, "low": LOW, "high": HIGH}
    run = write_run(folder, SET, arrays, **limits, head=learner.head(spec), learner=name, task=name)
    return run, learner, state, spec


DISCRETE = ("iar", "aram-discrete")
"""Learners of integer actions, which declare no head."""
QUICK = ("aram", "dalpha", "appropt")
"""Three maps: proposals, rays and an allocation; the others differ in their map or in how they learn."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.sweep)
        for name in (*LEARNERS, "aram normalised")
        if name not in DISCRETE
    ],
)
def test_the_deployed_policy_of_every_learner_acts_as_the_learner_does(name: str, tmp_path: Path) -> None:
    run, learner, state, spec = trained_run(tmp_path / "run", name)
    policy = load(run)
    observations = np.random.default_rng(0).standard_normal((20, SIZE)).astype(np.float32)
    preference = np.broadcast_to(np.array([0.9, 0.1], np.float32), (20, 2))
    raw = np.asarray(learner.mode(state, spec, observations, preference))
    wanted = SET.project(observations.astype(np.float64), raw)
    acted = np.stack([policy.act(observation, deterministic=True) for observation in observations])
    np.testing.assert_allclose(acted, wanted, atol=2e-4)
    assert (SET.violation(observations.astype(np.float64), acted) <= 0).all()
    drawn = np.stack([policy.act(observation) for observation in observations])
    assert (SET.violation(observations.astype(np.float64), drawn) <= 0).all()
    # And the graph does what the deployed policy does.
    found = compare(export(run, tmp_path / "exported").path, observations=observations.astype(np.float64))
    assert found.violations == 0 and found.largest_difference < 1e-5 and found.other_choices == 0


@pytest.mark.parametrize("name", DISCRETE)
def test_a_learner_without_a_head_is_refused(name: str, tmp_path: Path) -> None:
    spec = Spec.of(SIZE, LOW.astype(np.float32), HIGH.astype(np.float32), SET)
    head = make_learner(name).head(spec)
    run = random_run(tmp_path / "run", ib.Box(-np.ones(D), np.ones(D)), D, SIZE, head=head, learner=name)
    with pytest.raises(InvalidInputError, match="inbounds evaluate"):
        load(run)


def test_what_inputs_are_relative_to_is_folded_into_the_first_layer(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = random_network(rng, (SIZE, 16, 2 * D))
    shift, scale = rng.normal(3.0, 1.0, SIZE), rng.uniform(0.5, 5.0, SIZE)
    scaled = {**arrays, "actor/0/input_shift": shift[None].astype(np.float32)}
    scaled["actor/0/input_scale"] = scale[None].astype(np.float32)
    box = ib.Box(-np.ones(D), np.ones(D))
    limits = {"observation_size": SIZE, "low": -np.ones(D), "high": np.ones(D)}
    plain = load(write_run(tmp_path / "plain", box, arrays, **limits))
    run = write_run(tmp_path / "scaled", box, scaled, **limits)
    for folder in (run, export(run).path):
        policy = load(folder)
        for observation in rng.normal(3.0, 2.0, (5, SIZE)):
            relative = ((observation - shift) / scale).astype(np.float32)
            np.testing.assert_allclose(
                policy.forward(observation.astype(np.float32)), plain.forward(relative), atol=1e-5
            )


def test_a_seed_a_task_or_a_preference_that_is_not_there_is_refused(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", ib.Box(-np.ones(D), np.ones(D)), D, SIZE)
    with pytest.raises(InvalidInputError, match="was not trained"):
        load(run, seed=7)
    with pytest.raises(InvalidInputError, match="not for 'other'"):
        load(run, task="other")
    conditioned = random_network(np.random.default_rng(0), (SIZE + 2, 8, 2 * D))
    aram = write_run(
        tmp_path / "aram",
        ib.Box(-np.ones(D), np.ones(D)),
        conditioned,
        observation_size=SIZE,
        low=-np.ones(D),
        high=np.ones(D),
        head=SquashedGaussian(proposals=3, preference_size=2),
    )
    for wrong in ((np.nan, 0.1), (0.9,), 0.9, "most", ("a", "b"), (), (1.5, -0.5), (0.9, 0.9)):
        for policy in (aram, run):  # one that reads preferences, and one that does not
            with pytest.raises(
                InvalidInputError, match=r"preference=.*two finite numbers.*Pass \(0\.9, 0\.1\)"
            ):
                load(policy, preference=wrong)  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        load(aram, preference=np.array([0.7, 0.3])).preference, np.float32([0.7, 0.3])
    )  # type: ignore[arg-type]


def test_what_is_no_run_no_seed_and_no_set_is_told_apart_from_a_damaged_folder(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", ib.Box(-np.ones(D), np.ones(D)), D, SIZE)
    for path in (tmp_path, tmp_path / "nowhere", run / "config.json"):
        with pytest.raises(InvalidInputError, match=r"not a run.*Give the folder"):
            load(path)
    for path in (None, 3):
        with pytest.raises(InvalidInputError, match=r"not a path\. Give the folder"):
            load(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="seed='0' is not an integer"):
        load(run, seed="0")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"not a constraint.*task\.constraint"):
        load(run, constraint="box")  # type: ignore[arg-type]


def test_a_preference_that_was_not_learnt_is_refused_and_a_fixed_one_needs_none(tmp_path: Path) -> None:
    box, limits = (
        ib.Box(-np.ones(D), np.ones(D)),
        {"observation_size": SIZE, "low": -np.ones(D), "high": np.ones(D)},
    )
    many = random_network(np.random.default_rng(0), (SIZE + 2, 8, 2 * D))
    narrow = SquashedGaussian(proposals=4, preference_size=2, min_return_weight=0.8)
    run = write_run(tmp_path / "narrow", box, many, head=narrow, **limits)
    with pytest.raises(InvalidInputError, match=r"0\.8 to 1"):
        load(run, preference=(0.5, 0.5))
    load(run, preference=(0.8, 0.2))
    one = random_network(np.random.default_rng(0), (SIZE, 8, 2 * D))
    policy = load(write_run(tmp_path / "fixed", box, one, head=SquashedGaussian(proposals=4), **limits))
    assert policy.preference is None and np.abs(policy.act(np.zeros(SIZE))).max() <= 1


def test_a_run_acts_at_the_preference_at_which_it_was_evaluated(tmp_path: Path) -> None:
    many = random_network(np.random.default_rng(0), (SIZE + 2, 8, 2 * D))
    head = SquashedGaussian(proposals=4, preference_size=2, min_return_weight=0.95)
    limits = {"observation_size": SIZE, "low": -np.ones(D), "high": np.ones(D)}
    run = write_run(tmp_path / "run", ib.Box(-np.ones(D), np.ones(D)), many, head=head, **limits)
    config = json.loads((run / "config.json").read_text())
    config["training"]["preference"] = [0.97, 0.03]
    (run / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(load(run).preference, [0.97, 0.03], rtol=1e-6)
    del config["training"]["preference"]
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInputError, match=r"preference=\(0\.9, 0\.1\) weighs the return less"):
        load(run)


@pytest.mark.parametrize(
    "change",
    [
        {"actor/1/weight": np.zeros((1, 15, 2 * D), np.float32)},
        {"actor/0/weight": np.full((1, SIZE, 16), np.nan, np.float32)},
        {"actor/0/weight": np.zeros((1, SIZE, 16), np.float64)},
        {"actor/0/weight": np.zeros((1, SIZE + 1, 16), np.float32)},
        {"actor/0/weight": np.zeros((2, SIZE, 16), np.float32)},
        {"actor/2/weight": np.zeros((1, 2 * D, 4), np.float32)},
        {"actor/0/input_shift": np.zeros((1, SIZE), np.float32)},
    ],
)
def test_networks_that_do_not_fit_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    arrays = {**random_network(np.random.default_rng(0), (SIZE, 16, 2 * D)), **change}
    run = write_run(
        tmp_path / "run",
        ib.Box(-np.ones(D), np.ones(D)),
        arrays,
        observation_size=SIZE,
        low=-np.ones(D),
        high=np.ones(D),
    )
    with pytest.raises(CheckpointError):
        load(run)


def test_a_folder_that_does_not_exist_is_told_with_the_place_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=f"the folder does not exist in {tmp_path}. Give the folder"):
        load("policies/reacher")
