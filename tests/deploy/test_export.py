"""Exported folders: what they hold, that they agree with the policy, run anywhere, and are refused when changed."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import inbounds as ib
from inbounds.cli.main import main
from inbounds.deploy.export_check import compare, session
from inbounds.deploy.policy import ARRAYS, GRAPH, MANIFEST, sealed
from inbounds.errors import CheckpointError, ConfigurationError, InvalidInputError, MissingDependencyError
from inbounds.policies.heads import Deterministic
from tests.deploy.oracles import is_on_the_right
from tests.deploy.run_folders import random_network, random_run, write_run

POLICIES = Path(__file__).parents[2] / "policies"
BOX = ib.Box(-np.ones(2), np.ones(2))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    return ib.export(POLICIES / "halfcheetah", folder / "halfcheetah").path


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


@pytest.mark.parametrize("states", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", ["halfcheetah", "bss3z"])
def test_graph_and_policy_agree_in_thousands_of_states_without_a_violation(
    task: str, states: int, tmp_path: Path
) -> None:
    found = compare(ib.export(POLICIES / task, tmp_path / task).path, states)
    assert found.states == states and found.empty == 0
    assert found.violations == 0 and found.worst_violation <= 0
    # Far from what training saw, float32 networks round at more than the last digit.
    assert found.other_choices <= 5 and found.largest_difference < 1e-3


def test_the_graph_runs_where_neither_jax_nor_this_library_can_be_imported(exported: Path) -> None:
    script = """
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("jax", "jaxlib", "inbounds", "safetensors", "scipy", "daqp"):
                    raise ImportError(f"{name} is blocked")

        sys.meta_path.insert(0, Blocked())
        import numpy, onnxruntime
        graph = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
        rng = numpy.random.default_rng(0)
        worst = -1.0
        for _ in range(300):
            observation = 3.0 * rng.standard_normal(17)
            action, accepted = graph.run(None, {
                "observation": observation,
                "noise": rng.standard_normal((100, 6)).astype(numpy.float32),
                "preference": numpy.array([0.9, 0.1], numpy.float32),
            })
            assert action.dtype == numpy.float32 and -1 <= accepted < 100
            # The set of HalfCheetah, by hand: sum_i |w_i a_i| <= 20 and |a_i| <= 1.
            exact = action.astype(numpy.float64)
            worst = max(worst, numpy.abs(observation[11:17] * exact).sum() - 20.0, numpy.abs(exact).max() - 1.0)
        assert worst <= 0.0, worst
        assert not {"jax", "inbounds"} & set(sys.modules)
        print("feasible")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(exported / "policy.onnx")],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert ran.stdout == "feasible\n", ran.stderr


def test_the_manifest_describes_the_graph(exported: Path) -> None:
    manifest = json.loads((exported / "policy.json").read_text())
    graph = session(exported)
    inputs = {entry.name: entry.shape for entry in graph.get_inputs()}
    assert inputs == {"observation": [17], "noise": [100, 6], "preference": [2]}
    assert {entry["name"]: entry["shape"] for entry in manifest["graph"]["inputs"]} == inputs
    assert [entry["name"] for entry in manifest["graph"]["outputs"]] == ["action", "accepted"]
    assert manifest["noise"] == {"distribution": "standard normal", "deterministic": "zeros"}
    assert manifest["task"] == "halfcheetah" and manifest["preference"] == pytest.approx([0.9, 0.1])


def test_an_exported_folder_is_loaded_like_its_run(exported: Path) -> None:
    original, loaded = ib.load(POLICIES / "halfcheetah"), ib.load(exported)
    for observation in np.random.default_rng(0).standard_normal((20, 17)):
        np.testing.assert_array_equal(original.act(observation), loaded.act(observation))


def test_exporting_twice_writes_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    again = ib.export(POLICIES / "halfcheetah", tmp_path / "again").path
    for path in exported.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def header_of(card: str) -> str:
    opening, header, text = card.split("---\n", 2)
    assert opening == "" and text.startswith("# ")
    return header


def test_the_model_card_shows_the_constraint_and_the_evaluation_of_this_policy(tmp_path: Path) -> None:
    run = Path(shutil.copytree(POLICIES / "reacher", tmp_path / "run"))
    (run / "evaluation.json").unlink(missing_ok=True)
    card = (ib.export(run).path / "README.md").read_text()
    assert "sum_i a_i^2 <= 0.05" in card and "library_name: inbounds" in header_of(card)
    assert "Not evaluated" in card and "mean_reward" not in card
    assert main(["evaluate", str(run), "--episodes", "2", "--no-sweep", "--no-timing"]) == 0
    evaluated = json.loads((run / "evaluation.json").read_text())["final"]
    card = (ib.export(run).path / "README.md").read_text()
    assert f"value: {evaluated['return'][0]:.6g} +/- " in header_of(card)
    assert f"| {evaluated['valid_action_rate'][0]:.4f} | 0 |" in card


def test_an_evaluation_of_another_policy_is_not_on_the_card(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", ib.Ball(radius_squared=0.5) & BOX, 2, 5)
    found = {
        "seeds": [0, 2**62],
        "episodes": 1,
        "preference": [0.9, 0.1],
        "return": [7.0, 7.0],
        "return_std": [0.0, 0.0],
        "valid_action_rate": [1.0, 1.0],
        "worst_violation": 0.0,
    }
    digest = hashlib.sha256((run / "policy.safetensors").read_bytes()).hexdigest()
    for recorded, is_shown in ((digest, True), ("0" * 64, False)):
        (run / "evaluation.json").write_text(json.dumps({"final": found, "policy_sha256": recorded}))
        assert ("mean_reward" in (ib.export(run).path / "README.md").read_text()) == is_shown
    (run / "evaluation.json").write_text('{"final": []}')
    with pytest.raises(InvalidInputError, match=r"evaluation\.json is damaged .*inbounds evaluate"):
        ib.export(run)


def test_an_evaluation_at_another_preference_is_not_on_the_card(tmp_path: Path) -> None:
    run = Path(shutil.copytree(POLICIES / "reacher", tmp_path / "run"))
    assert ib.load(run).preference is not None
    options = ["--episodes", "1", "--no-sweep", "--no-timing", "--preference", "0.95", "0.05"]
    assert main(["evaluate", str(run), *options]) == 0
    card = (ib.export(run).path / "README.md").read_text()
    assert "mean_reward" not in card and "`inbounds evaluate RUN --preference 0.9 0.1`" in card
    card = (ib.export(run, preference=(0.95, 0.05)).path / "README.md").read_text()
    assert "mean_reward" in header_of(card)


def test_published_policies_have_a_card_with_their_constraint_and_return() -> None:
    for folder in sorted(path.parent for path in POLICIES.glob("*/config.json")):
        card = (folder / "README.md").read_text()
        assert f"# aram on {folder.name}\n" in card and ib.load(folder).constraint.formula() in card
        assert "mean_reward" in header_of(card)


def test_the_command_says_what_was_written_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = random_run(tmp_path / "run", ib.Ball(radius_squared=0.5) & BOX, 2, 5)
    assert main(["export", str(run), "--proposals", "7", "--check", "50"]) == 0
    told = capsys.readouterr().out
    assert "0 violations in float64" in told and "policy.onnx" in told
    assert [entry.shape for entry in session(run / "exported").get_inputs()] == [[5], [7, 2]]
    assert main(["export", str(run), "--out", str(tmp_path / "run")]) == 2
    assert "Choose a new folder with --out (out=...), or remove this one" in capsys.readouterr().err


def test_the_command_explains_random_observations_that_leave_no_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capped = ib.Ball(radius_squared=ib.obs[0]) & BOX  # half of all random numbers are negative
    run = random_run(tmp_path / "run", capped, 2, 5)
    assert main(["export", str(run), "--check", "50"]) == 0
    told = capsys.readouterr().out.replace("\n", " ")
    assert (
        "no action is allowed, and both refuse; such numbers" in told and "need not occur in the task" in told
    )


def test_a_policy_without_noise_has_no_input_for_it(tmp_path: Path) -> None:
    arrays = random_network(np.random.default_rng(0), (5, 8, 2))
    run = write_run(
        tmp_path / "run",
        BOX,
        arrays,
        observation_size=5,
        low=[-1, -1],
        high=[1, 1],
        head=Deterministic(),
    )
    assert [entry.name for entry in session(ib.export(run).path).get_inputs()] == ["observation"]


def test_the_previous_action_is_an_input_where_the_set_reads_it(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", ib.RateLimit(0.1) & BOX, 2, 5)
    graph = session(ib.export(run).path)
    assert {entry.name for entry in graph.get_inputs()} == {"observation", "noise", "previous_action"}
    action = np.zeros(2)
    for _ in range(20):
        question = {
            "observation": np.ones(5),
            "noise": np.ones((10, 2), np.float32),
            "previous_action": action,
        }
        following = graph.run(None, question)[0].astype(np.float64)
        assert np.abs(following - action).max() <= 0.1
        action = following


def test_an_oracle_is_exported_as_proposals_that_the_caller_must_filter(tmp_path: Path) -> None:
    oracle = ib.Oracle(is_on_the_right, within=BOX)
    written = ib.export(random_run(tmp_path / "run", oracle, 2, 5))
    assert not written.is_feasible_by_construction and "SafetyFilter" in str(written)
    manifest = json.loads((written.path / "policy.json").read_text())
    assert not manifest["is_feasible_by_construction"] and "must pass a filter" in manifest["caller"]
    (proposals,) = session(written.path).run(
        None,
        {"observation": np.ones(5), "noise": np.random.default_rng(0).standard_normal((10, 2)).astype("f4")},
    )
    filtered = ib.SafetyFilter(oracle).correct(np.ones(5), proposals[0])
    assert proposals.shape == (10, 2) and oracle.violation(np.ones(5), filtered) <= 0
    assert "must pass a filter" in " ".join((written.path / "README.md").read_text().split())
    with pytest.raises(InvalidInputError, match="constraint=task"):
        ib.load(written.path)
    acted = ib.load(written.path, constraint=oracle).act(np.ones(5))
    assert oracle.violation(np.ones(5), acted) <= 0
    with pytest.raises(ConfigurationError, match="unfiltered"):
        compare(written.path)


def test_without_onnx_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "inbounds\[export\]"'):
        ib.export(random_run(tmp_path / "run", BOX, 2, 5))


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", BOX, 2, 5)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigurationError, match=r"letter\.txt"):
        ib.export(run, tmp_path / "mine")
    ib.export(run, tmp_path / "new")
    ib.export(run, tmp_path / "new")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("name", [GRAPH, ARRAYS, MANIFEST, "README.md"])
def test_a_file_or_a_folder_is_not_taken_for_an_earlier_export_by_its_names_alone(
    name: str, tmp_path: Path
) -> None:
    run, folder, file = random_run(tmp_path / "run", BOX, 2, 5), tmp_path / "mine", tmp_path / name
    folder.mkdir()
    for mine in (file, folder / name):
        mine.write_text('{"format": "of mine"}')
    for target in (file, folder):
        with pytest.raises(
            ConfigurationError, match=f"{target} .*Only an earlier export is replaced.* with --out"
        ):
            ib.export(run, target)
    assert file.read_text() == (folder / name).read_text() == '{"format": "of mine"}'


def test_a_folder_inside_an_earlier_export_is_not_replaced(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", BOX, 2, 5)
    ib.export(run, tmp_path / "new")
    (tmp_path / "new" / "README.md").unlink()
    (tmp_path / "new" / "README.md").mkdir()
    with pytest.raises(ConfigurationError, match=r"README\.md"):
        ib.export(run, tmp_path / "new")


@pytest.mark.parametrize("change", ["nothing in it", "of an older version", "without its graph"])
def test_an_empty_folder_is_filled_and_an_earlier_export_replaced(change: str, tmp_path: Path) -> None:
    run, target = random_run(tmp_path / "run", BOX, 2, 5), tmp_path / "new"
    target.mkdir()
    if change != "nothing in it":
        ib.export(run, target)
        (target / GRAPH).unlink()
    if change == "of an older version":
        manifest = json.loads((target / MANIFEST).read_text())
        (target / MANIFEST).write_text(json.dumps({**manifest, "version": 1}))
    assert set(ib.export(run, target).sizes) == {path.name for path in target.iterdir()}


@pytest.mark.parametrize("count", [0, 10_001])
def test_a_number_of_proposals_that_makes_no_sense_is_refused(count: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="proposals"):
        ib.export(random_run(tmp_path / "run", BOX, 2, 5), proposals=count)


# Folders that cannot be trusted ------------------------------------------------------------------------------


class Malice:
    """A pickle that would leave a file behind if it were ever loaded."""

    def __reduce__(self) -> tuple[Callable[..., int], tuple[str]]:
        import os

        return os.system, ("touch executed",)


def rewritten(folder: Path, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    """Change a manifest and seal it again, as a forger would."""
    manifest = json.loads((folder / "policy.json").read_text())
    change(manifest)
    (folder / "policy.json").write_text(json.dumps(sealed(manifest)))


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors", "policy.onnx"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: data[:-1] + bytes([data[-1] ^ 0x80]),
        lambda data: pickle.dumps(Malice()),
        lambda data: data + b"\0",
    ],
    ids=["truncated", "empty", "bit flipped early", "bit flipped late", "pickled", "longer"],
)
def test_a_changed_file_is_refused(
    name: str, spoil: Callable[[bytes], bytes], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    (copy / name).write_bytes(spoil((copy / name).read_bytes()))
    for open_folder in (ib.load, session):
        with pytest.raises(CheckpointError):
            open_folder(copy)
    assert not (copy / "executed").exists()


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors", "policy.onnx"])
def test_a_file_of_another_task_is_refused(name: str, copy: Path, tmp_path: Path) -> None:
    other = ib.export(POLICIES / "bss3z", tmp_path / "other").path
    shutil.copy(other / name, copy / name)
    with pytest.raises(CheckpointError, match="cannot be trusted"):
        ib.load(copy)


def test_arrays_of_another_task_are_refused_even_with_a_forged_manifest(copy: Path, tmp_path: Path) -> None:
    other = ib.export(POLICIES / "bss3z", tmp_path / "other").path
    shutil.copy(other / "policy.safetensors", copy)
    listed = json.loads((other / "policy.json").read_text())["files"]["policy.safetensors"]
    rewritten(copy, lambda manifest: manifest["files"].update({"policy.safetensors": listed}))
    with pytest.raises(CheckpointError, match="another export"):
        ib.load(copy)


def test_a_whole_folder_of_another_task_is_refused_where_the_task_is_named(exported: Path) -> None:
    with pytest.raises(InvalidInputError, match="not for 'reacher'"):
        ib.load(exported, task="reacher")


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(version=2),
        lambda manifest: manifest.update(format="something else"),
        lambda manifest: manifest["head"].update(proposals=10**12),
        lambda manifest: manifest["head"].update(kind="os.system"),
        lambda manifest: manifest["head"].update(kind="deterministic"),
        lambda manifest: manifest["head"].update(preference_size=0),
        lambda manifest: manifest.update(head=None),
        lambda manifest: manifest.update(observation_size=10**15),
        lambda manifest: manifest.update(action_low=[[[]]]),
        lambda manifest: manifest.update(action_high=[float("nan")] * 6),
        lambda manifest: manifest["arrays"].update({"actor/0/weight": [10**9, 10**9]}),
        lambda manifest: manifest["files"].update({"../../secret": {"bytes": 1, "sha256": ""}}),
        lambda manifest: manifest.update(constraint={"kind": "Box", "low": 0, "high": 1}),
        lambda manifest: manifest.pop("learner"),
        lambda manifest: manifest["learner"].update(name=["aram"]),
    ],
)
def test_a_forged_manifest_is_refused(change: Callable[..., None], copy: Path) -> None:
    rewritten(copy, change)
    with pytest.raises((CheckpointError, InvalidInputError)):
        ib.load(copy)


def test_the_numpy_runtime_does_without_the_graph(copy: Path) -> None:
    (copy / "policy.onnx").unlink()
    assert ib.load(copy).act(np.zeros(17)).shape == (6,)
    with pytest.raises(CheckpointError, match="missing"):
        session(copy)
