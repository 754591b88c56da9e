"""A suite on a real Ray cluster of two nodes on this machine, one of which is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from inbounds.experiments import runner
from inbounds.experiments.experiment import Cell, pairs
from inbounds.experiments.runner import Outcome, Speeds, State, pack, plan, unpack
from tests.experiments.synthetic_runs import write_run

TINY = pairs({"hidden": (8,), "batch_size": 8, "proposals": 5})
QUICK = pairs(
    {"evaluate_every": 2_000, "episodes": 2, "environments": 1, "capacity": 5_000, "checkpoint_every": 2_000}
)


def cells_of(count: int) -> list[Cell]:
    return [
        Cell(
            "reacher",
            "aram",
            "default",
            6_000,
            1,
            variant=str(index),
            settings=TINY,
            training=QUICK,
            final_episodes=2,
        )
        for index in range(count)
    ]


def test_a_folder_comes_back_without_its_checkpoints(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "there")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "large").write_text("large")
    unpack(pack(folder), tmp_path / "here")
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert {"config.json", "evaluations.jsonl", "final.json"} <= names and "checkpoints" not in names


def test_a_node_that_does_not_see_the_folder_works_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(folder: Path) -> int:
        (folder / "final.json").write_text("{}")
        return 0

    monkeypatch.setattr(runner, "work", pretend)
    outcome: Outcome = runner.run_there(str(tmp_path / "unseen"), cells_of(1)[0].as_json())
    assert outcome.status == 0 and outcome.archive is not None
    unpack(outcome.archive, tmp_path / "here")
    assert (tmp_path / "here" / "final.json").exists() and not (tmp_path / "unseen").exists()


@pytest.fixture
def cluster() -> Any:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made, second
    made.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # Ray's own, which are many
def test_a_killed_node_costs_time_and_nothing_else(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, second = cluster
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join(filter(None, [str(Path("src").resolve()), os.environ.get("PYTHONPATH")])),
    )
    cells = plan(cells_of(3), tmp_path, Speeds([], ""))
    told: list[str] = []

    def kill_a_node_when_both_work() -> None:
        while sum((one.folder / "metrics.jsonl").exists() for one in cells) < 2:
            time.sleep(0.5)
        told.append("killed")
        made.remove_node(second, allow_graceful=False)

    threading.Thread(target=kill_a_node_when_both_work, daemon=True).start()
    states = runner.run_on_ray(cells, made.address, told.append)
    assert "killed" in told
    assert set(states.values()) == {State.FINISHED}
    assert all((one.folder / "final.json").exists() for one in cells)
    for one in cells:  # what the lost node had written stands there once, and nothing is missing
        lines = (one.folder / "evaluations.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [2_000, 4_000, 6_000]
    left = subprocess.run(
        ["pgrep", "-f", f"inbounds.experiments.worker {tmp_path}"], capture_output=True, text=True
    )
    for number in left.stdout.split():
        os.kill(int(number), signal.SIGKILL)
