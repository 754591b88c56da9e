"""A run folder holds the last policy and the best evaluated one of each seed, through stops and resumes."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from inbounds.deploy.policy import load
from inbounds.errors import InvalidInputError
from inbounds.learners.aram import Aram
from inbounds.training.api import train
from inbounds.training.checkpoint import flatten
from inbounds.training.config import TrainingConfig
from inbounds.training.evaluate import Evaluator, better_of, or_latest, unevaluated
from inbounds.training.loop import Training, resolved
from inbounds.training.record import EVALUATIONS, RunFolder
from tests.learners import probes

TINY = Aram(hidden=(4,), batch_size=16, proposals=4)
SHORT = {"warm_up": 20, "capacity": 300, "episodes": 1, "checkpoint_every": 40, "environments": 2, "seeds": 2}
RAW = {"scale_observations": False, "scale_rewards": False}
SCRIPT = {40: (1.0, 5.0), 80: (3.0, 5.0), 120: (2.0, 4.0)}
"""What the two seeds are told to have earned: seed 0 is best in the middle, seed 1 ties and then falls."""
KEPT = (80, 40)
"""The step of the evaluation whose policy each seed has to keep."""


def policy_of(step):
    """Return a policy of two seeds that says when it was evaluated."""
    return {"weight": jnp.full((2, 3), float(step)), "bias": jnp.full(2, float(step))}


def test_every_seed_keeps_its_best_policy_and_of_equal_ones_the_first():
    best = unevaluated(policy_of(0), 2)
    for step, returns in SCRIPT.items():
        best = better_of(best, policy_of(step), np.array(returns))
    np.testing.assert_array_equal(best.arrays["bias"], KEPT)
    np.testing.assert_array_equal(best.arrays["weight"], np.repeat(np.array(KEPT)[:, None], 3, axis=1))
    np.testing.assert_array_equal(best.mean_return, [3.0, 5.0])


def test_a_return_that_is_no_number_is_never_the_best():
    best = better_of(unevaluated(policy_of(0), 2), policy_of(40), np.array([np.nan, -1e9]))
    np.testing.assert_array_equal(best.arrays["bias"], [0, 40])


def test_before_its_first_evaluation_a_seed_keeps_the_latest_policy():
    best = unevaluated(policy_of(0), 2)
    np.testing.assert_array_equal(or_latest(best, policy_of(20))["bias"], [20, 20])
    best = better_of(best, policy_of(40), np.array([np.nan, -7.0]))
    np.testing.assert_array_equal(or_latest(best, policy_of(60))["bias"], [60, 40])


class Scripted:
    """Evaluations whose returns are written down beforehand, and the policies that were evaluated."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.policies: dict[int, dict[str, np.ndarray]] = {}
        real = Evaluator.evaluate

        def evaluate(evaluator, states, seeds, preference, salt):
            exported = flatten(jax.vmap(TINY.export)(states))
            learnt = SHORT["warm_up"] + int(states.updates[0])  # one update per step after the warm-up
            step = min(SCRIPT, key=lambda one: abs(one - learnt))
            assert abs(step - learnt) <= SHORT["environments"]
            self.policies[step] = {name: np.array(array) for name, array in exported.items()}
            found = real(evaluator, states, seeds, preference, salt)
            return found._replace(returns=np.array(SCRIPT[step])[:, None])

        patch.setattr(Evaluator, "evaluate", evaluate)


def trained(folder: Path, **settings):
    task = probes.moving_optimum().task
    return train(task, TINY, out=folder, **{"steps": 120, "evaluate_every": 40, **RAW, **SHORT, **settings})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run under the script: its folder, its summary, and the policies that were evaluated."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    with pytest.MonkeyPatch.context() as patch:
        script = Scripted(patch)
        summary = trained(folder)
    return folder, summary, script.policies


@pytest.mark.slow
def test_the_run_folder_holds_the_best_policy_of_every_seed(whole):
    folder, _, evaluated = whole
    kept = load_file(folder / "best.safetensors")
    assert kept.keys() == evaluated[40].keys()
    for name, array in kept.items():
        for seed, step in enumerate(KEPT):
            np.testing.assert_array_equal(array[seed], evaluated[step][name][seed], err_msg=name)
    weights = next(name for name in kept if name.endswith("weight"))
    assert len({evaluated[step][weights].tobytes() for step in SCRIPT}) == 3  # or all would be the best one


@pytest.mark.slow
def test_the_summary_says_when_the_best_policies_were_evaluated(whole):
    _, summary, _ = whole
    assert [(row["step"], row["return"]) for row in summary.best] == [(80, 3.0), (40, 5.0)]
    assert "best return        4, evaluated at steps 40 to 80" in str(summary)


@pytest.mark.slow
def test_a_resumed_run_still_knows_its_best_policy(whole, tmp_path, monkeypatch):
    Scripted(monkeypatch)
    trained(tmp_path / "run", steps=80)
    trained(tmp_path / "run", resume=True)
    for name in ("policy.safetensors", "best.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole[0] / name).read_bytes()


@pytest.mark.slow
def test_the_run_folder_holds_the_last_policy_which_load_takes_unless_told_otherwise(whole):
    folder, _, evaluated = whole
    for name, array in load_file(folder / "policy.safetensors").items():
        np.testing.assert_array_equal(array, evaluated[120][name], err_msg=name)
    observation = np.zeros(load(folder).observation_size)
    actions = [
        load(folder, policy=policy).act(observation, deterministic=True) for policy in ("last", "best")
    ]
    np.testing.assert_array_equal(load(folder).act(observation, deterministic=True), actions[0])
    assert np.any(actions[0] != actions[1])
    with pytest.raises(InvalidInputError, match="'last' or 'best'"):
        load(folder, policy="first")


@pytest.mark.slow
def test_a_run_saved_before_its_first_evaluation_holds_what_it_has_learnt_so_far(tmp_path):
    task, folder = probes.moving_optimum().task, RunFolder(tmp_path / "run")
    config = TrainingConfig(steps=120, evaluate_every=0, **SHORT)
    training = Training(task, TINY, config, folder)
    folder.create(resolved(task, TINY, "aram", config, 2), {})
    training.start()
    first = {name: np.array(array) for name, array in flatten(training.best.arrays).items()}
    training.state, _, _ = training.collector.run(training.state, 20)
    training.save()
    latest = flatten(training.export(training.state.learner))
    for name, array in load_file(folder.path / "policy.safetensors").items():
        np.testing.assert_array_equal(array, latest[name], err_msg=name)
        assert not np.array_equal(array, first[name])


@pytest.mark.slow
def test_a_policy_that_begins_at_the_tasks_start_is_evaluated_before_it_learns(tmp_path):
    learner = Aram(hidden=(4,), batch_size=16, proposals=4, warm_start=True, critic_warmup=0)
    train(
        "bss3z",
        learner,
        out=tmp_path / "run",
        **{**SHORT, "steps": 400, "evaluate_every": 400, "episodes": 20, "scale_observations": False},
    )
    folder = RunFolder(tmp_path / "run")
    rows = [row for row in folder.rows(EVALUATIONS) if row["seed"] == 0]
    assert [row["step"] for row in rows] == [0, 400]
    assert rows[0]["return"] > rows[1]["return"]  # never moving a bike is the best there is
    bikes = np.array([20.0, 31.0, 39.0])
    observation = np.concatenate([[5.0, 5.0, 5.0], bikes, [10.0]])
    np.testing.assert_allclose(
        load(tmp_path / "run", policy="best").act(observation, deterministic=True), bikes, atol=1e-3
    )
