"""Searching settings: what may be asked, and a study that survives failures and interruptions."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from inbounds.errors import ConfigurationError
from inbounds.experiments.experiment import Cell, pairs
from inbounds.experiments.runner import Planned, State, run_locally
from inbounds.experiments.tuning import Range, default_space, parse_range, tune
from inbounds.experiments.worker import CELL, prepare
from inbounds.learners.aram import Aram
from inbounds.learners.registry import make_learner
from inbounds.tasks.named_tasks import OWN_TASK, named_task
from inbounds.training.record import as_recorded, described_task, own_reward_scale
from tests.experiments.synthetic_runs import write_run

BASE = Cell("reacher", "aram", "default", 300, seeds=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("penalty=0.05:0.5", Range("penalty", 0.05, 0.5)),
        ("learning_rate=1e-4:1e-3:log", Range("learning_rate", 1e-4, 1e-3, is_log=True)),
        ("batch_size=64:512", Range("batch_size", 64, 512, is_whole=True)),
        ("batch_size=64,128", Range("batch_size", choices=(64, 128))),
        ("dual_replay=true,false", Range("dual_replay", choices=(True, False))),
        ("alpha=none,0.2", Range("alpha", choices=(None, 0.2))),
        ("preset=default,paper", Range("preset", choices=("default", "paper"))),
    ],
)
def test_a_range_is_read_as_the_setting_is(text: str, expected: Range) -> None:
    assert parse_range(text, Aram()) == expected


@pytest.mark.parametrize(
    "text", ["penalty", "penalti=0:1", "penalty=1:0", "penalty=a:b", "penalty=0:1:log", "tau=1:2:x"]
)
def test_a_range_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="name=low:high"):
        parse_range(text, Aram())


@pytest.mark.parametrize("name", ["aram", "td3"])
def test_the_default_space_has_only_settings_of_the_learner(name: str) -> None:
    learner = make_learner(name)
    assert all(hasattr(learner, one.name) for one in default_space(learner))


def test_the_default_space_of_aram_surrounds_its_default_and_follows_whether_the_penalty_is_tuned() -> None:
    for preset, expected in (
        ("default", {"target_acceptance", "entropy_ramp"}),
        ("paper", {"penalty", "eta"}),
    ):
        learner = Aram(preset)
        space = default_space(learner)
        assert {one.name for one in space} - {"learning_rate", "tau", "gamma", "batch_size"} == expected
        for one in space:
            value = getattr(learner, one.name)
            assert value is None or value in one.choices or one.low < value < one.high, one


class Scripted:
    """Pretends to run cells: the return is the penalty; chosen trials fail or are left unfinished."""

    def __init__(self, failing: Sequence[int] = (), unfinished: Sequence[int] = ()) -> None:
        self.failing, self.unfinished, self.ran = failing, list(unfinished), list[str]()

    def __call__(self, cells: Sequence[Planned]) -> dict[str, State]:
        states = {}
        for one in cells:
            prepare(one.folder, one.cell)
            number = int(one.cell.variant.removeprefix("trial-"))
            self.ran.append(one.cell.variant)
            if number in self.failing:
                states[one.cell.name] = State.FAILED
            elif number in self.unfinished:
                self.unfinished.remove(number)
                states[one.cell.name] = State.BEGUN
            else:
                final = {"final": {"return": [dict(one.cell.settings)["penalty"]] * 2}}
                (one.folder / "final.json").write_text(json.dumps(final))
                states[one.cell.name] = State.FINISHED
        return states


def search(
    folder: Path,
    run: Scripted,
    trials: int = 6,
    base: Cell = BASE,
    ranges: Sequence[str] = ("penalty=0.05:0.5",),
) -> list[float]:
    pytest.importorskip("optuna")
    space = [parse_range(text, Aram()) for text in ranges]
    study = tune(base, space, trials, 2, folder, run, lambda line: None)
    return [trial.value for trial in study.trials if trial.state.name == "COMPLETE"]


def test_a_search_runs_until_enough_trials_are_finished(tmp_path: Path) -> None:
    assert len(search(tmp_path, Scripted())) == 6


def test_a_failed_trial_is_replaced_and_stops_nobody(tmp_path: Path) -> None:
    run = Scripted(failing=(1,))
    assert len(search(tmp_path, run)) == 6 and len(run.ran) == 7


def test_an_interrupted_trial_is_finished_by_the_next_call(tmp_path: Path) -> None:
    first = Scripted(unfinished=(1,))
    assert len(search(tmp_path, first)) == 1
    second = Scripted()
    assert len(search(tmp_path, second)) == 6
    assert second.ran[0] == "trial-0001" and len(second.ran) == 5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": 200}, "steps 300 instead of 200"),
        ({"seeds": 1}, "seeds 2 instead of 1"),
        ({"final_episodes": 3}, "final_episodes 100 instead of 3"),
        ({"settings": pairs({"eta": 0.1})}, "settings"),
    ],
)
def test_trials_of_another_budget_are_not_put_into_one_study(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    search(tmp_path, Scripted(), trials=2)
    with pytest.raises(ConfigurationError, match=rf"{told}.* Choose another --out") as refused:
        search(tmp_path, other := Scripted(), base=dataclasses.replace(BASE, **change))
    assert str(tmp_path) in str(refused.value) and not other.ran
    assert len(search(tmp_path, Scripted(), trials=3)) == 3


FILE = """
import inbounds as ib

task = ib.Task("Pendulum-v1", ib.Ball(radius=1.0), name="swing")
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("radius=1.0", "radius=0.5"), "under another constraint than swing has now"),
        (('"swing"', '"swing", horizon=20'), "horizon 200, the task has 20"),
    ],
)
def test_trials_of_a_task_that_was_edited_are_not_put_into_one_study(
    change: tuple[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "swinging.py", tmp_path / "study"
    file.write_text(FILE)
    # Compiled, a file of the same length that is written within the same second counts as unchanged.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv(OWN_TASK, f"{file}:task")
    base = dataclasses.replace(BASE, task="own-swing")
    search(folder, Scripted(), trials=2, base=base)
    task = named_task(f"{file}:task")
    described = as_recorded({**described_task(task), "own_reward_scale": own_reward_scale(task)})
    for cell in folder.glob(f"*/{CELL}"):
        run = write_run(tmp_path / "run" / cell.parent.name, task="swing", seeds=1)
        config = json.loads((run / "config.json").read_text())
        config |= {**described, "constraint": task.constraint.to_json()}
        (cell.parent / "config.json").write_text(json.dumps(config))
    assert len(search(folder, Scripted(), trials=3, base=base)) == 3
    file.write_text(FILE.replace(*change))
    with pytest.raises(
        ConfigurationError, match=rf"{told}.* put the earlier one back, or choose another --out"
    ):
        search(folder, other := Scripted(), trials=4, base=base)
    assert not other.ran
    file.write_text(FILE)
    assert len(search(folder, Scripted(), trials=4, base=base)) == 4


def test_choices_that_changed_within_a_study_are_refused(tmp_path: Path) -> None:
    search(tmp_path, Scripted(), trials=1, ranges=("penalty=0.1,0.2",))
    with pytest.raises(ConfigurationError, match=r"other choices of penalty\. Choose another --out"):
        search(tmp_path, Scripted(), trials=2, ranges=("penalty=0.1,0.3",))
    assert len(search(tmp_path, Scripted(), trials=2, ranges=("penalty=0.1,0.2",))) == 2


def test_a_search_whose_trials_all_failed_may_be_begun_again_with_another_budget(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="failed"):
        search(tmp_path, Scripted(failing=range(10)), base=dataclasses.replace(BASE, steps=10))
    assert len(search(tmp_path, Scripted(), trials=2)) == 2


@pytest.mark.slow
def test_a_search_trains_real_trials_in_processes(tmp_path: Path) -> None:
    settings = pairs({"hidden": (8,), "batch_size": 8})
    training = pairs({"evaluate_every": 200, "episodes": 1, "environments": 1, "capacity": 500})
    base = Cell("reacher", "td3", "default", 200, 1, settings=settings, training=training, final_episodes=1)
    space = [parse_range("learning_rate=1e-4:1e-3:log", make_learner("td3"))]
    told: list[str] = []
    study = tune(
        base, space, 2, 2, tmp_path, lambda cells: run_locally(cells, 2, told.append, {}), told.append
    )
    returns = [
        json.loads((folder / "final.json").read_text())["final"]["return"][0]
        for folder in sorted(tmp_path.glob("*-trial-*"))
    ]
    assert [trial.value for trial in study.trials] == returns and study.best_value == max(returns)
    assert len({trial.params["learning_rate"] for trial in study.trials}) == 2
