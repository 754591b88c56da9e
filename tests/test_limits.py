"""Short files that ask for a great deal are refused at once, by every way that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.cli.options import parse
from inbounds.constraints import constraint_from_json
from inbounds.errors import CheckpointError, ConfigurationError, ConstraintError, InboundsError
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners.flowpg import FlowPg
from inbounds.learners.registry import make_learner
from inbounds.policies.heads import read_flow
from inbounds.training.api import train
from inbounds.training.config import TrainingConfig
from tests.deploy.test_hostile_files import forge_run

pytestmark = pytest.mark.timeout(60)

BOX = ib.Box(-np.ones(2), np.ones(2))
BALL = {"constraint": ib.Ball(radius_squared=1.0).to_json()}


def run_folder(
    folder: Path, learner: dict[str, Any], constraint: Any = None, seeds: int = 1, head: Any = None
) -> Path:
    """Write a run of Reacher with small networks, and with checksums that are right."""
    weight, bias = np.zeros((1, 11, 4), np.float32), np.zeros((1, 4), np.float32)
    arrays = {"actor/0/weight": weight[..., :2], "actor/0/bias": bias[..., :2]}
    config = {
        "task": "reacher",
        "observation_size": 11,
        "action_low": [-1.0, -1.0],
        "action_high": [1.0, 1.0],
        "constraint": ib.make("reacher").constraint.to_json() if constraint is None else constraint,
        "learner": learner,
        "head": {"kind": "deterministic"} if head is None else head,
        "training": {**SETTINGS, "seeds": seeds},
    }
    forge_run(folder, config, arrays)
    (folder / "provenance.json").write_text("{}")
    return folder


SETTINGS: dict[str, Any] = {
    **{"steps": 100, "seed": 0, "environments": 1, "updates_per_step": 1.0, "episodes": 1},
    "preference": [0.9, 0.1],
}
FLOW = {"name": "flowpg", "flow_layers": 6, "condition_range": [-10.0, 10.0]}
GREEDY_HEADS: list[dict[str, Any]] = [
    {"kind": "deterministic", "proposals": 10**9},
    {"kind": "deterministic", "preference_size": 10**9},
    {"kind": "through_flow", "condition_range": [0.0] * 10**5},
]
GREEDY: list[dict[str, Any]] = [
    {**FLOW, "flow_layers": 10**9},
    {"name": "td3", "critics": 10**9},
    {"name": "td3", "hidden": [4] * 100_000},
    {"name": "aram", "proposals": 10**9},
    {"name": "aram", "preference_samples": 10**9},
    {"name": "iar", "posterior_layers": 10**9},
]


@pytest.mark.parametrize("learner", GREEDY, ids=lambda learner: list(learner)[1])
def test_a_run_that_asks_for_too_much_is_neither_opened_nor_resumed(
    learner: dict[str, Any], tmp_path: Path
) -> None:
    folder = run_folder(tmp_path, learner)
    with pytest.raises(InboundsError, match="at most"):
        TrainedRun.open(folder, ib.make("reacher"))
    with pytest.raises(InboundsError, match="at most"):
        parse(["--resume", str(folder)])


def test_a_run_whose_state_no_memory_holds_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, {"name": "aram", "q_snapshots": 10**8})
    with pytest.raises(ConfigurationError, match=r"GiB, and .* GiB are free"):
        TrainedRun.open(folder, ib.make("reacher"))


@pytest.mark.parametrize("head", GREEDY_HEADS, ids=str)
def test_a_head_that_asks_for_too_much_is_refused(head: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="head"):
        ib.load(run_folder(tmp_path, {"name": "mine"}, head=head))


def test_a_deployed_flow_has_as_many_couplings_as_can_be_built() -> None:
    arrays = {f"flow/{index}/scale/0/weight": np.zeros((1, 1), np.float32) for index in range(101)}
    with pytest.raises(CheckpointError, match="1 to 100"):
        read_flow(arrays, "flow")


def test_a_million_seeds_are_refused_before_any_of_them_is_built(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, {"name": "td3"}, seeds=10**9)
    with pytest.raises(InboundsError):
        TrainedRun.open(folder, ib.make("reacher"))
    with pytest.raises(InboundsError, match="seeds"):
        ib.load(folder)
    with pytest.raises(InboundsError, match="seeds"):
        parse(["--resume", str(folder)])


@pytest.mark.parametrize(
    ("name", "value"), [("episodes", 10**12), ("environments", 10**9), ("updates_per_step", 1e9)]
)
def test_a_run_that_asks_for_endless_episodes_environments_or_updates_is_not_resumed(
    name: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, name, value)
    folder = run_folder(tmp_path, {"name": "td3"})
    with pytest.raises(InboundsError, match=name):
        parse(["--resume", str(folder)])
    with pytest.raises(ConfigurationError, match=rf"{name}=.*, but at most [\d,]+ are possible"):
        TrainingConfig(**{name: value})


TWO_BALLS = {"kind": "Union", "constraints": [BALL, BALL]}


def deep(levels: int) -> Any:
    data = BALL
    for _ in range(levels):
        data = {"constraint": {"kind": "Union", "constraints": [data]}}
    return data["constraint"]


@pytest.mark.parametrize(
    "constraint",
    [
        {"kind": "Union", "constraints": [BALL] * 2**17},
        {"kind": "Intersection", "constraints": [BALL] * 2**17},
        {"kind": "Intersection", "constraints": [{"constraint": deep(10)}] * 20},
        {"kind": "Intersection", "constraints": [{"constraint": TWO_BALLS}] * 17},
        {
            "kind": "Intersection",
            "constraints": [{"constraint": {**TWO_BALLS, "constraints": [BALL] * 60}}, BALL],
        },
        deep(50),
        {"kind": "Polytope", "A": [[1.0] * 1100] * 1000, "b": [1.0] * 1000},
    ],
    ids=["union", "intersection", "tree", "2^17 members", "60 members of two sets", "depth", "numbers"],
)
def test_a_constraint_that_takes_hours_to_build_is_refused(constraint: Any) -> None:
    with pytest.raises(ConstraintError, match=r"more than [\d,]+ (sets|deep|numbers)"):
        constraint_from_json(constraint)


def test_a_policy_with_such_a_constraint_is_not_loaded(tmp_path: Path) -> None:
    union = {"kind": "Union", "constraints": [BALL] * 101}
    with pytest.raises(InboundsError, match="more than 100 sets"):
        ib.load(run_folder(tmp_path, {"name": "td3"}, union))


def test_unions_grow_to_what_can_be_asked_and_no_further() -> None:
    both: Any = BOX
    with pytest.raises(ConstraintError, match="128 members, but every one of them is asked"):
        for width in range(1, 18):
            both = both & (ib.Box(-width, width) | ib.Box(-width - 0.5, width + 0.5))
    assert len(both.constraints) == 64
    with pytest.raises(ConstraintError, match=r"at most 100 are possible\. Join fewer"):
        ib.Union([BOX] * 101)
    assert len(ib.Union([BOX] * 100).constraints) == 100


def test_what_could_not_be_loaded_again_is_not_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="flow_layers=101, but at most 100"):
        make_learner("flowpg", flow_layers=101)
    with pytest.raises(ConfigurationError, match="flow_layers=101, but at most 100"):
        train("reacher", FlowPg(flow_layers=101), out=tmp_path / "run")
    with pytest.raises(ConfigurationError, match="seeds=10001, but at most 10,000"):
        TrainingConfig(seeds=10_001)
    many = np.ones(600_000)
    with pytest.raises(ConstraintError, match="1,000,000 numbers"):
        ib.Box(-many, many).to_json()


def test_ordinary_files_are_far_below_the_limits() -> None:
    for path in (Path(__file__).parent.parent / "policies").glob("*/config.json"):
        config = json.loads(path.read_text())
        constraint_from_json(config["constraint"])
