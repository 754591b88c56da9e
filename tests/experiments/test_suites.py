"""Suites as data, cells, plans and their price."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import tyro

from inbounds.cli.benchmark import MANY, Options, is_wanted, show_plan
from inbounds.cli.options import parse
from inbounds.cli.terminal import Terminal
from inbounds.errors import ConfigurationError, InvalidInputError, UnknownNameError
from inbounds.experiments.experiment import Cell, pairs
from inbounds.experiments.runner import Speeds, State, plan, total_seconds
from inbounds.experiments.suites import (
    PAPER_TASKS,
    STEPS,
    SUITES,
    available_cells,
    missing_learners,
    suite_by_name,
)
from inbounds.learners.registry import LEARNERS
from tests.experiments.synthetic_runs import make_result, write_run

CELL = Cell("reacher", "aram", "default", 300, seeds=2)
NOTHING = Speeds([], "cpu: cpu")
RUNNABLE = [cell for suite in SUITES.values() for cell in available_cells(suite)]


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_the_cells_of_a_suite_have_names_of_their_own(suite: object) -> None:
    names = [cell.name for cell in suite.cells()]  # type: ignore[attr-defined]
    assert len(set(names)) == len(names) > 0


def test_the_paper_suite_has_every_task_with_its_steps_and_five_seeds() -> None:
    cells = SUITES["paper"].cells()
    assert {cell.task for cell in cells} == set(PAPER_TASKS)
    assert all(
        cell.steps == STEPS[cell.task] and cell.seeds == 5 and cell.final_episodes == 100 for cell in cells
    )
    assert STEPS["ant"] == 1_000_000 and STEPS["reacher"] == 300_000 and STEPS["nsfnet"] == 500_000
    assert {cell.preset for cell in cells if cell.learner == "aram"} == {"default", "paper"}


@pytest.mark.parametrize("cell", RUNNABLE[::7], ids=lambda cell: cell.name)
def test_a_cell_can_be_built_and_repeated_by_its_command(cell: Cell) -> None:
    learner = cell.make_learner()
    words = cell.command("runs/x").split()
    assert words[:2] == ["inbounds", "train"]
    request = parse(words[2:])
    assert request.learner == learner and request.task == cell.task
    assert (request.training.steps, request.training.seeds) == (cell.steps, cell.seeds)


def test_every_cell_whose_learner_exists_can_be_built() -> None:
    for cell in RUNNABLE:
        cell.make_learner()


def test_a_cell_survives_its_file() -> None:
    for cell in SUITES["ablation-morl"].cells():
        assert Cell.from_json(json.loads(json.dumps(cell.as_json()))) == cell
    with pytest.raises(InvalidInputError, match="'learner' is missing"):
        Cell.from_json({"task": "reacher"})


def test_the_ablation_has_one_cell_per_preference() -> None:
    cells = [cell for cell in SUITES["ablation-morl"].cells() if cell.learner == "sosac"]
    assert {dict(cell.settings)["preference"] for cell in cells} == {(0.9, 0.1), (0.5, 0.5), (0.1, 0.9)}


def test_discrete_learners_are_compared_after_equally_many_steps_on_both_tasks() -> None:
    assert {(cell.task, cell.steps) for cell in SUITES["discrete"].cells()} == {
        ("allocation", 100_000),
        ("bss3z", 100_000),
    }


def test_the_smoke_suite_is_long_enough_for_every_on_policy_learner_to_learn_once() -> None:
    for cell in available_cells(SUITES["smoke"]):
        rollout = getattr(cell.make_learner(), "rollout", 0)
        assert rollout <= cell.steps, cell.name


def test_learners_that_do_not_exist_are_left_out_and_named() -> None:
    suite = SUITES["paper"]
    assert {cell.learner for cell in available_cells(suite)} <= set(LEARNERS)
    assert not set(missing_learners(suite)) & set(LEARNERS)


def test_a_suite_is_narrowed_to_tasks_and_learners_and_refuses_others() -> None:
    cells = available_cells(SUITES["paper"], tasks=("reacher",), learners=("aram",))
    assert {cell.name for cell in cells} == {"reacher-aram-default", "reacher-aram-paper"}
    cells = available_cells(SUITES["paper"], tasks=("reacher",), presets=("default",))
    assert [cell.name for cell in cells] == ["reacher-aram-default"]
    with pytest.raises(UnknownNameError, match="default, paper"):
        available_cells(SUITES["paper"], presets=("lin",))
    with pytest.raises(ConfigurationError, match="--presets"):
        available_cells(SUITES["paper"], learners=("td3",), presets=("default",))
    with pytest.raises(UnknownNameError, match="reacher"):
        available_cells(SUITES["paper"], tasks=("reecher",))
    with pytest.raises(UnknownNameError, match="smoke"):
        suite_by_name("smok")


def test_a_suite_is_narrowed_to_variants_and_says_where_there_are_none() -> None:
    cells = available_cells(SUITES["reviewers"], tasks=("reacher",), variants=("eta-constant",))
    assert [cell.name for cell in cells] == ["reacher-aram-paper-eta-constant"]
    with pytest.raises(UnknownNameError, match=r"Did you mean 'eta-constant'"):
        available_cells(SUITES["reviewers"], variants=("eta-constent",))
    with pytest.raises(ConfigurationError, match="Leave --variants out"):
        available_cells(SUITES["paper"], variants=("eta-constant",))
    with pytest.raises(ConfigurationError, match="no experiment that is all of it"):
        available_cells(SUITES["reviewers"], tasks=("polytope50",), variants=("eta-constant",))


def test_a_plan_reads_from_folders_what_is_finished_begun_failed_and_to_do(tmp_path: Path) -> None:
    cells = [Cell("reacher", "aram", "default", 300, seeds=2, variant=name) for name in "abcd"]
    write_run(tmp_path / cells[0].name, cell=cells[0])
    begun = write_run(tmp_path / cells[1].name, cell=cells[1], is_final=False)
    (begun / "checkpoints" / "step-000000000200").mkdir(parents=True)
    failed = write_run(tmp_path / cells[2].name, cell=cells[2], is_final=False)
    (failed / "failure.json").write_text(json.dumps({"error": "Boom: it broke\nbadly", "trace": ""}))
    found = plan(cells, tmp_path, NOTHING)
    assert [one.state for one in found] == [State.FINISHED, State.BEGUN, State.FAILED, State.WAITING]
    assert [one.steps_left for one in found] == [0, 100, 300, 300]
    assert found[1].seconds_left == pytest.approx(100 / 50.0) and found[2].note == "Boom: it broke"


@pytest.mark.parametrize(
    ("words", "worked_on"),
    [
        ([], "bcd"),
        (["--retry"], "bcdef"),
        (["--only", "train"], "bd"),
        (["--only", "evaluate"], "c"),
        (["--only", "evaluate", "--retry"], "cf"),
    ],
)
def test_a_call_works_on_what_is_left_or_on_the_part_that_it_was_asked_for(
    tmp_path: Path, words: list[str], worked_on: str
) -> None:
    cells = [Cell("reacher", "aram", "default", 300, seeds=2, variant=name) for name in "abcdef"]
    folders = [write_run(tmp_path / cell.name, cell=cell, is_final=cell.variant == "a") for cell in cells]
    (folders[1] / "checkpoints" / "step-000000000200").mkdir(parents=True)
    for index in (2, 5):
        (folders[index] / "trained.json").write_text("{}")
    for index in (4, 5):
        (folders[index] / "failure.json").write_text(json.dumps({"error": "Boom", "trace": ""}))
    options = tyro.cli(Options, args=words)
    found = [one.cell.variant for one in plan(cells, tmp_path, NOTHING) if is_wanted(one, options)]
    assert "".join(found) == worked_on


def test_a_folder_of_another_experiment_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_run(tmp_path / CELL.name, cell=CELL)
    other = Cell("reacher", "aram", "default", 900, seeds=2)
    with pytest.raises(ConfigurationError, match="steps 300 instead of 900"):
        plan([other], tmp_path, NOTHING)


def test_time_is_estimated_from_the_most_similar_measurement_on_the_same_kind_of_device() -> None:
    results = [make_result(), make_result(task="ant", name="ant-aram-default")]
    speeds = Speeds(results, "cpu: cpu")
    assert speeds.of(CELL) == 50.0
    assert Speeds(results, "gpu: other").of(CELL) is None


def test_an_estimate_says_what_it_does_not_know(tmp_path: Path) -> None:
    cells = plan([CELL, Cell("bss3z", "td3", "paper", 100)], tmp_path, Speeds([make_result()], "cpu: cpu"))
    seconds, unknown = total_seconds(cells, jobs=2)
    assert seconds == pytest.approx(300 / 50.0 / 2) and unknown == 1


@pytest.mark.parametrize(
    ("words", "is_listed"), [([], False), (["--plan"], True)], ids=["to run", "to look at"]
)
def test_a_long_plan_is_counted_before_it_runs_and_listed_where_it_is_asked_for(
    tmp_path: Path, words: list[str], is_listed: bool
) -> None:
    cells, written = SUITES["paper"].cells(), io.StringIO()
    assert len(cells) > MANY
    options = tyro.cli(Options, args=["paper", *words])
    show_plan(Terminal(file=written, width=200), SUITES["paper"], plan(cells, tmp_path, NOTHING), options)
    assert f"{len(cells)} to do" in written.getvalue()
    assert all((f" {cell.name} " in written.getvalue()) == is_listed for cell in cells)


def test_settings_keep_their_order_and_turn_lists_into_tuples() -> None:
    assert pairs({"hidden": [8, 9], "tau": 0.1}) == (("hidden", (8, 9)), ("tau", 0.1))
