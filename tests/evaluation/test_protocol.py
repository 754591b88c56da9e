"""Metrics of policies with known answers, and the choice of a preference."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.cli.evaluate import final_table
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError
from inbounds.evaluation.inference import compiled_policy
from inbounds.evaluation.protocol import (
    FrontPoint,
    compare_with_reference,
    evaluate_run,
    evaluator_of,
    has_preferences,
    is_on_front,
    rounded,
    suggested_preference,
    sweep_preferences,
)
from inbounds.evaluation.trained import TrainedRun, with_exported
from inbounds.learners.aram import Aram
from inbounds.training import evaluate
from inbounds.training.api import train
from inbounds.training.record import RunFolder
from tests.experiments.probe import (
    HORIZON,
    CountingEnvironments,
    RejectingPolicy,
    UniformPolicy,
    probe_task,
    spec_of,
)
from tests.experiments.synthetic_runs import write_run
from tests.slices import quick_slice


def probe_run(tmp_path: Path, share: float, learner: Any = None) -> TrainedRun:
    task = probe_task(share)
    folder = RunFolder(write_run(tmp_path / "run", task="probe"))
    return TrainedRun(folder, task, learner or UniformPolicy(), spec_of(task), (0, 1), jnp.zeros(2), None)


@pytest.mark.parametrize("share", quick_slice([0.1, 0.5, 0.95], [0.5]))
def test_a_policy_that_is_feasible_with_probability_p_gets_p(share: float, tmp_path: Path) -> None:
    final = evaluate_run(probe_run(tmp_path, share), episodes=20)
    samples = 20 * HORIZON * 100
    error = 5 * np.sqrt(share * (1 - share) / samples)
    assert np.all(np.abs(final.valid_action_rate - share) < error)


class PreferringPolicy(UniformPolicy):
    """The uniform policy, which says that it has learnt some preferences."""

    preference_size, min_return_weight = 2, 0.8  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("preference", "told"),
    [
        ((9, -3), r"sum to 1.*Pass \(0\.9, 0\.1\)"),
        ((0, 1), r"0\.8 to 1.*Pass \(0\.8, 0\.2\)"),
        ((float("nan"), 1.0), r"two finite numbers.*Pass \(0\.9, 0\.1\)"),
        (0.9, r"two finite numbers.*Pass \(0\.9, 0\.1\)"),
        ((0.9, 0.1, 0.3), r"two finite numbers.*Pass \(0\.9, 0\.1\)"),
    ],
)
def test_a_preference_that_was_not_learnt_is_refused_before_an_episode_is_played(
    preference: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = probe_run(tmp_path, 0.5, PreferringPolicy())
    monkeypatch.setattr(CountingEnvironments, "reset", lambda *_: pytest.fail("an episode was played"))
    for door in (
        lambda: evaluate_run(run, 1, preference),
        lambda: compare_with_reference(run, "uniform", 2, preference),
        lambda: compiled_policy(run, preference),
    ):
        with pytest.raises(InvalidInputError, match=rf"preference=.*{told}"):
            door()


def test_learnt_preferences_are_evaluated_and_swept_and_other_policies_need_none(tmp_path: Path) -> None:
    run = probe_run(tmp_path, 0.5, PreferringPolicy())
    assert evaluate_run(run, 1, (0.8, 0.2)).preference == (0.8, 0.2)
    assert [point.weight for point in sweep_preferences(run, 1)] == [0.8, 0.85, 0.9, 0.95, 1.0]
    assert evaluate_run(probe_run(tmp_path / "other", 0.5), 1, (0.5, 0.5)).episodes == 1


@pytest.mark.parametrize(
    ("learner", "changes", "recorded"),
    [
        (PreferringPolicy(), {"training": {"preference": [0.95, 0.05]}}, (0.95, 0.05)),
        (None, {"learner": {"name": "sosac", "preference": [0.5, 0.5]}}, (0.5, 0.5)),
        (None, {}, (0.9, 0.1)),
    ],
)
def test_a_run_is_evaluated_at_its_own_preference_unless_another_one_is_named(
    learner: Any, changes: dict[str, Any], recorded: Any, tmp_path: Path
) -> None:
    folder = RunFolder(write_run(tmp_path / "run", task="probe", changes=changes))
    run = dataclasses.replace(probe_run(tmp_path / "other", 0.5, learner), folder=folder)
    assert evaluate_run(run, 1).preference == recorded
    acts_at = (1, 0) if learner else recorded  # a policy without preferences has no other
    assert evaluate_run(run, 1, (1, 0)).preference == acts_at
    with pytest.raises(InvalidInputError, match="sum to 1"):
        evaluate_run(run, 1, (5, -7))


@pytest.mark.parametrize(("at_once", "expected"), [(2**18, 3 * HORIZON), (3 * 2 * 100 * 2, 3 * 2), (1, 3)])
def test_samples_are_evaluated_in_blocks_that_never_exceed_an_episode(
    at_once: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, widths = probe_run(tmp_path, 0.5), list[int]()
    monkeypatch.setattr(evaluate, "SAMPLES_AT_ONCE", at_once)
    evaluator = evaluator_of(run, 3)
    valid_share = evaluator._valid
    evaluator._valid = lambda *given: (widths.append(given[2].shape[1]), valid_share(*given))[1]
    final = evaluate_run(run, 3, evaluator=evaluator)
    assert set(widths) == {expected} and np.all(np.abs(final.valid_action_rate - 0.5) < 0.05)


def test_projections_of_the_evaluation_are_those_counted_by_hand(tmp_path: Path) -> None:
    final = evaluate_run(probe_run(tmp_path, 0.5), episodes=7)
    infeasible = sum(step % 3 == 0 for step in range(HORIZON))
    assert final.solver_calls.evaluation == (7 * infeasible, 7 * infeasible)
    assert final.deterministic_valid_rate == pytest.approx(1 - infeasible / HORIZON)


def test_the_return_is_that_of_the_projected_action_without_scale_or_discount(tmp_path: Path) -> None:
    final = evaluate_run(probe_run(tmp_path, 0.75), episodes=3)
    infeasible = sum(step % 3 == 0 for step in range(HORIZON))
    expected = 0.5 * infeasible - (HORIZON - infeasible)
    assert final.returns == pytest.approx(np.full((2, 3), expected), abs=1e-5)
    assert final.worst_violation <= 0


def test_a_policy_that_evaluates_samples_executes_the_first_feasible_one(tmp_path: Path) -> None:
    # The half [-1, 0] is feasible. 15 of 16 states have a feasible one among 4 draws, which is uniform there; in the
    # others the last draw, uniform in [0, 1], is projected to 0.
    final = evaluate_run(probe_run(tmp_path, 0.5, RejectingPolicy()), episodes=400)
    assert final.returns.mean() == pytest.approx(-0.5 * 15 / 16 * HORIZON, abs=0.15)  # 5 errors
    assert final.deterministic_valid_rate == pytest.approx(np.full(2, 15 / 16), abs=0.02)
    assert np.array(final.solver_calls.evaluation) == pytest.approx(np.full(2, 400 * HORIZON / 16), rel=0.3)
    assert final.worst_violation <= 0


def test_draws_differ_between_steps_seeds_and_evaluations_but_not_between_repetitions(tmp_path: Path) -> None:
    run = probe_run(tmp_path, 1.0, RejectingPolicy())
    first, again = evaluate_run(run, episodes=2), evaluate_run(run, episodes=2)
    np.testing.assert_array_equal(first.returns, again.returns)
    other = evaluate_run(run, episodes=2, salt=1)
    assert len(np.unique(np.concatenate([first.returns, other.returns]))) == 8
    alone = evaluate_run(dataclasses.replace(run, seeds=(1,), states=jnp.zeros(1)), episodes=2)
    np.testing.assert_array_equal(alone.returns[0], first.returns[1])


def test_the_policy_for_single_observations_is_the_one_that_is_evaluated(tmp_path: Path) -> None:
    act = compiled_policy(probe_run(tmp_path, 0.75), (0.9, 0.1))
    np.testing.assert_allclose([act(np.array([float(step)]))[0] for step in range(4)], [0.5, -1.0, -1.0, 0.5])
    drawing = compiled_policy(probe_run(tmp_path / "other", 0.5, RejectingPolicy()), (0.9, 0.1))
    drawn = np.array([drawing(np.zeros(1))[0] for _ in range(40)])
    assert len(np.unique(drawn)) > 30 and drawn.max() <= 0


def test_solver_calls_of_training_come_from_the_metrics_by_cause(tmp_path: Path) -> None:
    calls = evaluate_run(probe_run(tmp_path, 0.5), episodes=1).solver_calls
    assert calls.acting == (30, 30) and calls.updates == {"layer": (600, 600)}
    assert calls.training_total() == [630, 630]


def test_solver_calls_of_training_are_those_of_the_seeds_that_are_evaluated(tmp_path: Path) -> None:
    run = probe_run(tmp_path, 0.5)
    log = tmp_path / "run" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        row["projections"] += row["seed"]
        row["layer_calls"] += row["seed"]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alone = evaluate_run(dataclasses.replace(run, seeds=(1,), states=jnp.zeros(1)), episodes=1)
    assert alone.solver_calls.acting == (31,) and alone.solver_calls.updates == {"layer": (601,)}
    assert final_table(run, alone).columns[-1]._cells[0] == "632"


@pytest.mark.parametrize("at_once", [2**18, 3 * 2 * 100 * 2])
def test_the_valid_rate_of_a_seed_is_the_same_alone_and_beside_others(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = probe_run(tmp_path, 0.5)
    both = evaluate_run(run, episodes=3).valid_action_rate
    monkeypatch.setattr(evaluate, "SAMPLES_AT_ONCE", at_once)
    for index, seed in enumerate(run.seeds):
        alone = evaluate_run(dataclasses.replace(run, seeds=(seed,), states=jnp.zeros(1)), episodes=3)
        assert alone.valid_action_rate[0] == both[index]
    assert both[0] != both[1]


def test_a_deterministic_policy_has_a_noisy_rate_beside_its_raw_one(tmp_path: Path) -> None:
    # The raw output -1 is feasible; with noise of scale 1, cut at -1, it stays below 0 with probability Phi(1).
    final = evaluate_run(probe_run(tmp_path, 0.5, UniformPolicy(exploration=1.0)), episodes=10)
    assert np.all(final.valid_action_rate == 1.0)
    assert final.noisy_valid_rate == pytest.approx(np.full(2, 0.8413), abs=0.02)


def test_a_stochastic_policy_has_no_noisy_rate(tmp_path: Path) -> None:
    final = evaluate_run(probe_run(tmp_path, 0.5), episodes=1)
    assert final.noisy_valid_rate is None and "noisy_valid_rate" not in final.as_json()


def test_only_policies_for_all_preferences_are_swept(tmp_path: Path) -> None:
    run = probe_run(tmp_path, 0.5)
    assert not has_preferences(run)
    points = sweep_preferences(run, episodes=2, weights=(0.0, 1.0))
    assert [point.weight for point in points] == [0.0, 1.0]
    assert (
        points[0].mean_return == points[1].mean_return
    )  # the same episodes, a policy that ignores preferences


def point(weight: float, value: float, valid: float, error: float = 0.1) -> FrontPoint:
    return FrontPoint(weight, value, error, valid, 0)


def test_the_suggested_preference_is_the_most_valid_of_those_as_good_as_the_best() -> None:
    points = [point(0.1, 1.0, 0.99), point(0.5, 9.9, 0.9), point(0.9, 10.0, 0.6)]
    assert suggested_preference(points).weight == 0.5


def test_a_better_return_is_not_given_up_for_validity() -> None:
    points = [point(0.1, 1.0, 0.99), point(0.9, 10.0, 0.6)]
    assert suggested_preference(points).preference == (0.9, 0.1)


def test_the_front_has_no_dominated_point() -> None:
    points = [point(0.1, 1.0, 0.9), point(0.5, 2.0, 0.95), point(0.9, 3.0, 0.5)]
    assert [is_on_front(one, points) for one in points] == [False, True, True]


def test_numbers_are_rounded_to_significant_digits() -> None:
    assert (rounded(1234567.0, 3), rounded(-0.00012345, 2), rounded(0.0)) == (1230000.0, -0.00012, 0.0)


def test_a_run_of_an_unknown_task_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ib\.evaluate"):
        TrainedRun.open(write_run(tmp_path / "run", task="mine"))


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no config\.json"):
        TrainedRun.open(tmp_path)


@pytest.mark.parametrize("preset", Aram.presets)
def test_a_run_of_every_preset_is_evaluated_as_its_policy_is_deployed(preset: str, tmp_path: Path) -> None:
    learner = Aram(preset=preset, hidden=(8, 8), batch_size=16, proposals=4)
    sizes = {"steps": 60, "warm_up": 40, "evaluate_every": 0, "episodes": 1, "capacity": 100, "seeds": 2}
    train("reacher", learner, out=tmp_path / "run", environments=2, warn=lambda _: None, **sizes)
    trained = TrainedRun.open(tmp_path / "run")
    assert evaluate_run(trained, 1).worst_violation <= 0
    seen = np.linspace(-1.0, 1.0, trained.task.observation_size, dtype=np.float32)
    second = jax.tree.map(lambda leaf: leaf[1], trained.states)
    proposed = learner.mode(second, trained.spec, jnp.asarray(seen)[None], jnp.array([[0.9, 0.1]]))[0]
    executed = trained.task.constraint.project(seen, np.asarray(trained.spec.box.rescale(proposed)))
    deployed = ib.load(tmp_path / "run", seed=1).act(seen, deterministic=True)
    np.testing.assert_allclose(deployed, executed, atol=1e-5)


def test_an_exported_policy_finds_its_place_in_the_state_and_a_foreign_one_does_not() -> None:
    from inbounds.training.checkpoint import flatten

    learner = Aram(hidden=(4,))
    task = probe_task(0.5)
    states = jax.vmap(lambda key: learner.init(key, spec_of(task)))(jax.random.split(jax.random.key(0)))
    exported = flatten(learner.export(states))
    doubled = {name: 2 * array for name, array in exported.items()}
    restored = with_exported(learner, states, doubled)
    assert np.array_equal(restored.params.actor[0].weight, 2 * np.asarray(states.params.actor[0].weight))
    assert restored.params.critic is states.params.critic or np.array_equal(
        restored.params.critic[0].weight, states.params.critic[0].weight
    )
    with pytest.raises(CheckpointError, match="disagree"):
        with_exported(learner, states, {**doubled, "other": np.zeros(1)})
    with pytest.raises(CheckpointError, match="is expected"):
        with_exported(learner, states, {name: array[:1] for name, array in doubled.items()})
