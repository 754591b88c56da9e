"""An audit passes what is feasible, fails what is not by however little, and never runs what it was not told to."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.auditing.audit import audit
from inbounds.cli.audit import page
from inbounds.cli.main import main
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, MissingDependencyError
from inbounds.policies.heads import SquashedGaussian
from tests.deploy.run_folders import random_network, write_run

PUBLISHED = Path(__file__).parents[2] / "policies" / "reacher"
TASK = ib.make("reacher")  # sum of squares <= 0.05
EDGE = float(np.nextafter(np.float32(np.sqrt(0.05)), np.float32(0)))
BEYOND = float(np.nextafter(np.float32(np.sqrt(0.05)), np.float32(1)))


def resting(observation: Any) -> Any:
    return np.zeros(2, np.float32)


def test_a_feasible_policy_passes_with_its_numbers() -> None:
    certificate = audit(resting, TASK, steps=120)
    assert certificate.is_passed and certificate.worst_excess == pytest.approx(-0.05)
    assert (certificate.steps, certificate.episodes, certificate.interventions) == (120, 2, 0)
    assert certificate.acceptance == 1.0 and certificate.mean_return is not None
    assert list(certificate.latency) == ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"]
    assert certificate.rate_bound == pytest.approx(3 / 120, rel=0.02)


def test_a_task_may_be_named_as_in_training() -> None:
    assert audit(resting, "reacher", steps=3).constraint == audit(resting, TASK, steps=3).constraint


@pytest.mark.parametrize(("value", "is_passed"), [(EDGE, True), (BEYOND, False)])
def test_one_unit_of_the_last_place_decides(value: float, is_passed: bool) -> None:
    certificate = audit(lambda observation: np.array([value, 0.0], np.float32), TASK, steps=10)
    assert certificate.is_passed is is_passed and certificate.violations == (0 if is_passed else 10)
    assert 0 < certificate.worst_excess < 1e-7 or is_passed


def test_what_rounds_to_an_infeasible_action_when_it_is_executed_is_a_violation() -> None:
    inside = np.sqrt(0.05) - 1e-12
    assert TASK.constraint.violation(None, np.array([inside, 0.0])) <= 0 < BEYOND
    executed = np.float32(inside)
    certificate = audit(lambda observation: np.array([inside, 0.0]), TASK, steps=3)
    assert certificate.is_passed is bool(float(executed) ** 2 <= 0.05)


def test_rare_violations_are_found_corrected_and_the_worst_one_is_explained() -> None:
    calls = iter(range(1000))

    def policy(observation: Any) -> Any:
        turn = next(calls)
        return np.array([0.5 if turn == 7 else 0.3 if turn == 3 else 0.0, 0.0])

    certificate = audit(policy, TASK, steps=20)
    assert (certificate.violations, certificate.interventions, certificate.steps) == (2, 2, 20)
    assert certificate.worst is not None and certificate.worst.step == 7
    assert "exceeded by 0.2" in certificate.worst.reason and certificate.acceptance == pytest.approx(0.9)


MASKED = np.ma.array(np.zeros(2), mask=[True, False])


@pytest.mark.parametrize("answer", [np.full(2, np.nan), np.zeros(3), "left", None, np.full(2, 1e300), MASKED])
def test_what_is_no_action_counts_as_a_violation_and_the_replay_goes_on(answer: Any) -> None:
    certificate = audit(lambda observation: answer, TASK, steps=5)
    assert (certificate.violations, certificate.invalid_actions, certificate.steps) == (5, 5, 5)
    assert certificate.as_json()["worst_excess"] is None


class Steady(gymnasium.Env[Any, Any]):
    """Shows the same number in every step."""

    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([0.25]), {}

    def step(self, action: Any) -> Any:
        return np.array([0.25]), 0.0, False, False, {}


def test_a_policy_cannot_move_the_set_by_writing_into_what_it_is_shown() -> None:
    class Writing:
        def __init__(self, factor: float, length: float) -> None:
            self.factor, self.action = factor, np.array([length, 0.0])

        def act(self, observation: Any, *, previous_action: Any) -> Any:
            observation *= self.factor
            previous_action += self.factor
            return self.action

    task = ib.Task(Steady, ib.Ball(radius_squared=ib.obs[0]) & ib.RateLimit(0.9), horizon=10)
    assert audit(Writing(0.1, 0.4), task, steps=20).is_passed
    assert audit(Writing(100.0, 0.9), task, steps=20).violations == 20


def test_a_published_policy_passes_and_says_what_it_projected() -> None:
    certificate = audit(str(PUBLISHED), TASK, episodes=1)
    assert certificate.is_passed and certificate.steps == 50 and certificate.own_projections == 0
    assert certificate.digest is not None and 0.5 < (certificate.acceptance or 0.0) <= 1.0
    again = audit(str(PUBLISHED), TASK, episodes=1)
    assert again.mean_return == certificate.mean_return and again.digest == certificate.digest


def test_a_policy_with_another_constraint_is_checked_by_the_tasks_and_the_certificate_says_so() -> None:
    policy = ib.load(PUBLISHED)
    policy.constraint = ib.Ball(radius_squared=0.04) & ib.Box(-np.ones(2), np.ones(2))
    assert "another constraint" in audit(policy, TASK, steps=3).notes[0]


def test_a_long_audit_notes_limits_that_no_action_came_near_and_warns_of_nothing() -> None:
    assert not audit(resting, TASK, steps=999).notes
    (note,) = audit(resting, TASK, steps=1000).notes  # warnings are errors here
    assert "sum_i a_i^2 <= 0.05" in note and "units" in note


def test_an_onnx_file_is_replayed_with_the_noise_it_asks_for(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("observation", float32, [11]),
        helper.make_tensor_value_info("noise", float32, ["N", 2]),
    ]
    output = helper.make_tensor_value_info("action", float32, [2])
    scale = helper.make_tensor("scale", float32, [], [0.05])
    nodes = [
        helper.make_node("ReduceMean", ["noise"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("Mul", ["mean", "scale"], ["action"]),
    ]
    graph = helper.make_graph(nodes, "policy", inputs, [output], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "policy.onnx"
    path.write_bytes(model.SerializeToString())
    certificate = audit(path, TASK, steps=30)
    assert certificate.is_passed and certificate.kind.startswith("ONNX") and certificate.acceptance is None
    assert certificate.worst_excess > -0.05  # the noise was not zero
    with pytest.raises(CheckpointError, match="Audit it on its own task"):
        audit(path, ib.make("halfcheetah"), steps=1)
    path.write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match="Export it again"):
        audit(path, TASK, steps=1)


def test_an_exported_policy_passes_as_a_folder_and_as_a_graph(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    exported = ib.export(PUBLISHED, tmp_path / "exported", proposals=10).path
    folder, graph = (audit(path, TASK, steps=60) for path in (exported, exported / "policy.onnx"))
    assert folder.is_passed and graph.is_passed
    assert folder.acceptance == pytest.approx(graph.acceptance, abs=0.2)
    assert graph.own_projections == folder.own_projections == 0


def test_a_policy_is_audited_at_its_own_preference_and_a_graph_that_knows_none_asks_for_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("onnx")
    size, many = TASK.observation_size, SquashedGaussian(4, preference_size=2, min_return_weight=0.95)
    run = write_run(
        tmp_path / "run",
        TASK.constraint,
        random_network(np.random.default_rng(0), (size + 2, 8, 4)),
        observation_size=size,
        low=TASK.action_low,
        high=TASK.action_high,
        head=many,
    )
    config = json.loads((run / "config.json").read_text())
    config["training"]["preference"] = [0.97, 0.03]
    (run / "config.json").write_text(json.dumps(config))
    assert audit(run, TASK, steps=3).is_passed  # (0.9, 0.1) was not learnt
    graph = ib.export(run, tmp_path / "exported").path / "policy.onnx"
    returns = [
        audit(graph, TASK, episodes=1, preference=at).mean_return for at in (None, (0.97, 0.03), (1.0, 0.0))
    ]
    assert returns[0] == returns[1] != returns[2]
    (graph.parent / "policy.json").unlink()
    with pytest.raises(ConfigurationError, match=r"no policy\.json beside it .* --preference 0\.9 0\.1"):
        audit(graph, TASK, steps=1)
    assert audit(graph, TASK, steps=1, preference=(0.97, 0.03)).is_passed


def test_a_zip_is_opened_in_a_process_of_its_own_and_nothing_of_it_runs(tmp_path: Path) -> None:
    import pickle

    target = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> Any:
            return (Path.touch, (target,))

    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", pickle.dumps(Payload()))
        archive.writestr("policy.pth", pickle.dumps(Payload()))
    with pytest.raises((CheckpointError, MissingDependencyError)):
        audit(path, TASK, steps=1)
    assert not target.exists()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("nothing.txt", "not a policy that can be audited"),
        ("nothing.zip", "'nothing.zip' is not a policy .* because it does not exist"),
        ("nothing.onnx", "'nothing.onnx' is not a policy .* because it does not exist"),
        ("no_folder/nothing", "'no_folder/nothing' is not a policy .* because it does not exist"),
        ("no_module_of_ours:act", "cannot be imported"),
    ],
)
def test_what_cannot_be_opened_is_refused_with_the_remedy(policy: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        audit(policy, TASK, steps=1)


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing would be checked"):
        audit(resting, TASK, steps=0)


def test_the_command_writes_both_files_and_its_exit_status_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "import inbounds as ib, numpy as np\n"
        "def good(observation): return np.zeros(2)\n"
        "def bad(observation): return np.ones(2)\n"
        "def task(): return ib.make('reacher')\n"
    )
    out = tmp_path / "out"
    assert main(["audit", f"{code}:good", "reacher", "--steps", "5", "--out", str(out)]) == 0
    written = json.loads((out / "certificate.json").read_text())
    assert written["passed"] is True and written["steps"] == 5 and written["provenance"]["python"]
    assert "passed" in (out / "certificate.html").read_text()
    assert main(["audit", f"{code}:bad", f"{code}:task", "--steps", "5"]) == 1
    assert "5 of 5 actions violate" in capsys.readouterr().out
    assert main(["audit", f"{code}:good", f"{code}:good", "--steps", "5"]) == 2


def test_a_page_stands_alone_and_escapes_what_others_wrote() -> None:
    certificate = audit(resting, TASK, steps=2)
    hostile = type(certificate)(**{**vars(certificate), "policy": "<script>alert(1)</script>"})
    text = page(hostile)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "http" not in text and text.count("<table>") == 1
    assert "<th>constraint</th><td><code>sum_i a_i^2 ≤ " in text and "viewport" in text


def test_numbers_and_tasks_that_are_none_are_refused_with_the_remedy() -> None:
    for steps in (2.5, 1000.0, "x", 0):
        with pytest.raises(ConfigurationError, match="is not a whole number of 1 or more"):
            audit(resting, TASK, steps=steps)  # type: ignore[arg-type]
    for seed in (-1, None, 1.5):
        with pytest.raises(ConfigurationError, match=r"seed=.* is not a whole number of 0 or more"):
            audit(resting, TASK, steps=2, seed=seed)  # type: ignore[arg-type]
    assert audit(resting, TASK, steps=10**11, episodes=1).steps == 50
    with pytest.raises(ConfigurationError, match=r"ib\.Task"):
        audit(resting, 3, steps=2)  # type: ignore[arg-type]


def test_a_certificate_prints_its_verdict_first_and_what_was_worst() -> None:
    passed, failed = audit(resting, TASK, steps=5), audit(lambda observation: [1.0, 1.0], TASK, steps=5)
    assert str(passed).startswith("passed: 0 violations in 5 actions of ") and "worst action" not in str(
        passed
    )
    assert str(failed).startswith("failed: 5 violations in 5 actions of ")
    assert failed.worst is not None and failed.worst.reason in str(failed)
