"""Results: what is read from folders, merged, refused, and kept small."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from inbounds.errors import InvalidInputError
from inbounds.experiments.collecting import (
    finished_cells,
    merged,
    read_named_folders,
    read_results,
    require_same_origin,
)
from inbounds.experiments.experiment import Cell
from inbounds.experiments.results import (
    FRESH_EPISODES,
    LAST_EVALUATION,
    collect_run,
    formula_of,
    load_result,
    save_result,
    thinned,
)
from inbounds.experiments.suites import suite_by_name
from inbounds.training.record import RunFolder
from tests.experiments.synthetic_runs import make_result, write_run

CELL = Cell("reacher", "aram", "default", 300, seeds=2)


def test_a_result_holds_the_curves_of_every_seed(tmp_path: Path) -> None:
    result = collect_run(write_run(tmp_path / "run"))
    assert result.curve["step"] == [100, 200, 300]
    assert result.curve["return"] == [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    assert result.curve["seconds"] == [2.0, 4.0, 6.0]
    assert result.environment_steps == 600


def test_a_result_says_whether_its_final_numbers_come_from_fresh_episodes(tmp_path: Path) -> None:
    finished = collect_run(write_run(tmp_path / "finished"))
    unfinished = collect_run(write_run(tmp_path / "unfinished", is_final=False), "paper")
    assert finished.final["source"] == FRESH_EPISODES and finished.is_complete
    assert unfinished.final["source"] == LAST_EVALUATION and not unfinished.is_complete
    assert unfinished.final["return"] == [3.0, 4.0]


def test_a_result_holds_the_best_policy_beside_the_last_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    final = json.loads((folder / "final.json").read_text())
    better = {**final["final"], "return": [value + 1 for value in final["final"]["return"]]}
    (folder / "final.json").write_text(json.dumps({**final, "best": better}))
    result = collect_run(folder)
    assert result.best is not None and result.best["return"] == better["return"]
    assert result.final["return"] == final["final"]["return"]
    assert load_result(save_result(result, tmp_path)).best == result.best
    other = dataclasses.replace(result, seeds=(5, 6), final={**result.final, "seeds": [5, 6]})
    (both,) = merged([result, other])
    assert both.best is not None and both.best["return"] == 2 * better["return"]


def test_a_result_without_a_best_policy_still_loads(tmp_path: Path) -> None:
    path = save_result(collect_run(write_run(tmp_path / "run")), tmp_path)
    data = json.loads(path.read_text())
    del data["best"]
    path.write_text(json.dumps(data))
    assert load_result(path).best is None


def test_solver_calls_are_counted_by_cause(tmp_path: Path) -> None:
    calls = collect_run(write_run(tmp_path / "run", is_final=False)).final["solver_calls"]
    assert calls == {
        "acting": [30, 30],
        "updates": {"layer": [600, 600]},
        "evaluation": [2, 2],
        "rounding": 0,
    }


def test_integer_rounding_is_counted_apart_and_only_in_bike_sharing(tmp_path: Path) -> None:
    calls = collect_run(write_run(tmp_path / "run", task="bss3z", is_final=False)).final["solver_calls"]
    assert calls["rounding"] == 300


@pytest.mark.parametrize("source", ["evaluations.jsonl", "final.json"])
def test_a_violation_in_any_evaluation_reaches_the_result(source: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / CELL.name, cell=CELL)
    assert collect_run(folder).worst_violation == 0
    written = (folder / source).read_text()
    assert '"worst_violation": 0.0' in written
    (folder / source).write_text(written.replace('"worst_violation": 0.0', '"worst_violation": 1e-9', 1))
    assert collect_run(folder).worst_violation == 1e-9


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    result = make_result()
    path = save_result(result, tmp_path)
    assert json.loads(json.dumps(load_result(path).as_json())) == json.loads(json.dumps(result.as_json()))


def test_what_a_method_trains_beforehand_reaches_the_result_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", learner="flowpg")
    assert collect_run(folder).preparation_seconds is None  # a folder of an older version
    RunFolder(folder).amend_provenance(preparation_seconds=42.5)
    assert load_result(save_result(collect_run(folder), tmp_path)).preparation_seconds == 42.5


def test_a_full_cell_stays_below_200_kilobytes(tmp_path: Path) -> None:
    steps = thinned(list(range(10_000, 1_500_001, 10_000)))
    curve = [[-1234.5678 - index for index in range(len(steps))] for _ in range(5)]
    names = ("return", "valid_action_rate", "deterministic_valid_rate", "training_projections")
    result = make_result(
        curve={"step": steps, **dict.fromkeys(names, curve), "seconds": steps},
        training={"step": steps, "acceptance": curve},
    )
    assert save_result(result, tmp_path).stat().st_size < 200_000


def test_thinning_keeps_the_last_step() -> None:
    assert thinned(list(range(1000)), 100)[-1] == 999
    assert len(thinned(list(range(1000)), 100)) <= 100
    assert thinned([]) == []


def test_seeds_from_two_machines_become_one_result() -> None:
    whole = merged([make_result(seeds=(0, 1)), make_result(seeds=(2, 3, 4))])
    assert len(whole) == 1 and whole[0].seeds == (0, 1, 2, 3, 4)
    assert whole[0].final["return"] == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert whole[0].curve["return"][2] == [3.0, 4.0, 5.0] and len(whole[0].provenance) == 2
    assert whole[0].environment_steps == 1500


def test_the_same_seed_twice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="seed 1 was trained twice"):
        merged([make_result(seeds=(0, 1)), make_result(seeds=(1, 2))])


def test_seeds_of_different_length_are_not_merged() -> None:
    with pytest.raises(InvalidInputError, match="equally long"):
        merged([make_result(seeds=(0,)), make_result(seeds=(1,), steps=200)])


def test_results_of_two_mujoco_versions_are_not_put_into_one_table(tmp_path: Path) -> None:
    one = collect_run(write_run(tmp_path / "one"))
    two = collect_run(write_run(tmp_path / "two", mujoco="4.0.0"))
    with pytest.raises(
        InvalidInputError, match=r"MuJoCo 3\.17\.0 and 4\.0\.0 \(one with 3\.17\.0, two with 4\.0\.0\)"
    ):
        require_same_origin([one, two])


def test_one_cell_has_one_setting_but_suites_may_differ_in_theirs() -> None:
    one = make_result()
    origin = {**one.provenance[0], "learner_settings": {"name": "aram", "penalty": 7.0}}
    other = dataclasses.replace(one, provenance=(origin,))
    with pytest.raises(InvalidInputError, match="different settings"):
        require_same_origin([one, other])
    require_same_origin([one, dataclasses.replace(other, suite="smoke")])


def test_a_missing_seed_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (folder / "evaluations.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(InvalidInputError, match="seed 1 has no row at step 300"):
        collect_run(folder)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with open(folder / "evaluations.jsonl", "a") as handle:
        handle.write('{"step": 400, "se\n')
    with pytest.raises(InvalidInputError, match="line 7"):
        collect_run(folder)


def test_a_last_line_that_is_still_being_written_is_not_a_result_yet(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = collect_run(folder)
    with open(folder / "evaluations.jsonl", "a") as handle:
        handle.write('{"step": 400, "se')
    assert collect_run(folder) == before


@pytest.mark.parametrize("name", ["final.json", "cell.json"])
@pytest.mark.parametrize("text", ['{"final": {"seeds": [0', "[]", ""])
def test_a_damaged_file_of_a_cell_is_named_with_its_remedy(name: str, text: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", cell=CELL)
    (folder / name).write_text(text)
    with pytest.raises(InvalidInputError, match=rf"{name} is damaged .*run the suite again"):
        collect_run(folder)


def test_final_numbers_that_lack_a_seed_are_not_averaged(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    final = json.loads((folder / "final.json").read_text())
    final["final"]["return"].pop()
    (folder / "final.json").write_text(json.dumps(final))
    with pytest.raises(InvalidInputError, match=r"2 seeds \[0, 1\], but has numbers of 1 for 'final return'"):
        collect_run(folder)


@pytest.mark.parametrize("part", ["curve", "final"])
def test_a_result_file_that_lacks_a_seed_is_refused(part: str, tmp_path: Path) -> None:
    path = save_result(make_result(), tmp_path)
    data = json.loads(path.read_text())
    data[part]["return"].pop()
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidInputError, match="a seed is missing"):
        load_result(path)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_a_damaged_or_foreign_result_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="Collect it again"):
        load_result(path)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not a run"):
        read_results([tmp_path])
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_results([tmp_path / "nowhere"])


def test_runs_of_no_suite_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "one")
    write_run(tmp_path / "b" / "two")
    assert [result.name for result in read_results([tmp_path])] == ["a-one", "b-two"]


def test_only_finished_cells_are_collected_and_those_of_other_machines_are_added(tmp_path: Path) -> None:
    write_run(tmp_path / "here" / "paper" / CELL.name, cell=CELL)
    write_run(tmp_path / "here" / "paper" / "other", cell=CELL, is_final=False)
    write_run(tmp_path / "there" / "paper" / CELL.name, seed=2, cell=CELL)
    (found,) = finished_cells([tmp_path / "here", tmp_path / "there"], suite_by_name("paper"))
    assert found.seeds == (0, 1, 2, 3) and found.suite == "paper"


def test_a_cell_that_ran_for_fewer_steps_than_its_suite_plans_is_not_complete(tmp_path: Path) -> None:
    planned = suite_by_name("paper").cells()[0]
    shorter = dataclasses.replace(planned, steps=CELL.steps, seeds=CELL.seeds)
    write_run(tmp_path / "paper" / planned.name, cell=shorter)
    (found,) = finished_cells([tmp_path], suite_by_name("paper"))
    assert (found.expected_steps, found.expected_seeds) == (planned.steps, planned.seeds)
    assert not found.is_complete


def test_results_are_read_from_files_and_from_run_folders_alike(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs" / "paper" / CELL.name, cell=CELL)
    (from_folder,) = read_results([folder])
    path = save_result(from_folder, tmp_path / "results")
    (from_file,) = read_results([path.parent])
    assert from_file.final == from_folder.final and from_file.suite == "paper"


def test_two_runs_of_one_method_with_other_seeds_are_put_together(tmp_path: Path) -> None:
    write_run(tmp_path / "first", seed=0)
    write_run(tmp_path / "second", seed=2)
    (both,) = read_results([tmp_path])
    assert both.seeds == (0, 1, 2, 3) and both.method == "aram-default"


@pytest.mark.parametrize("change", [{"seed": 0}, {"seed": 2, "steps": 600}, {"seed": 2, "mujoco": "4.0.0"}])
def test_two_runs_that_are_no_sample_of_one_thing_are_two_methods(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_run(tmp_path / "first")
    write_run(tmp_path / "second", **change)
    assert [result.method for result in read_results([tmp_path])] == [
        "aram-default-first",
        "aram-default-second",
    ]


ANOTHER_PROBLEM: list[dict[str, Any]] = [
    {"constraint": {"kind": "Ball", "radius_squared": 0.07}},
    {"horizon": 40},
    {"functions": {"limits:allowed": "another checksum"}},
    {"own_reward_scale": {"reward_divisor": 3.0, "reward_shift": 7.0}},
    {"observation_scale": [2.0, 2.0]},
    {"training": {"warm_up": 20}},
    {"training": {"capacity": 99}},
    {"training": {"preference": [0.5, 0.5]}},
    {"training": {"scale_rewards": True}},
]


@pytest.mark.parametrize("changes", ANOTHER_PROBLEM, ids=str)
def test_runs_of_another_problem_or_setting_are_not_averaged(tmp_path: Path, changes: dict[str, Any]) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path / f"run-{seed}", seed=seed, seeds=1, changes=changes if seed == 1 else None)
    assert [result.seeds for result in read_results([tmp_path])] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("changes", ANOTHER_PROBLEM, ids=str)
def test_seeds_of_another_problem_or_setting_do_not_join_those_of_another_machine(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write_run(tmp_path / "here" / "paper" / CELL.name, cell=CELL)
    write_run(tmp_path / "there" / "paper" / CELL.name, seed=2, cell=CELL, changes=changes)
    ((name, part),) = changes.items()
    what = next(iter(part)) if name == "training" else name
    with pytest.raises(InvalidInputError, match=rf"trained with different settings \({what}\)\. Report them"):
        finished_cells([tmp_path / "here", tmp_path / "there"], suite_by_name("paper"))


def test_runs_that_were_resumed_on_another_device_or_evaluated_more_often_are_put_together(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "one", seed=0)
    write_run(tmp_path / "two", seed=2, changes={"training": {"device": "gpu", "threads": 4, "keep": 2}})
    (both,) = read_results([tmp_path])
    assert both.seeds == (0, 1, 2, 3)


def test_runs_of_one_name_in_two_places_are_two_results(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / place / "run") for place in ("here", "there")]
    assert [result.name for result in read_results(paths)] == ["run", "run-2"]


def test_a_run_of_no_suite_is_complete_when_it_is_trained_to_the_end(tmp_path: Path) -> None:
    run = collect_run(write_run(tmp_path / "run", is_final=False))
    assert run.is_complete and run.final["source"] == LAST_EVALUATION
    assert not dataclasses.replace(run, expected_steps=400).is_complete
    assert not dataclasses.replace(run, suite="paper").is_complete


def test_a_result_has_the_formula_and_the_diagnostics_of_its_run(tmp_path: Path) -> None:
    result = collect_run(write_run(tmp_path / "run"))
    assert result.formula == "sum_i a_i^2 <= 0.05"
    assert result.diagnostics is not None and result.diagnostics["alpha"] == [[0.1] * 3, [0.1] * 3]
    saved = load_result(save_result(result, tmp_path))
    assert saved.formula == result.formula and saved.diagnostics is None


def test_a_function_of_the_user_is_not_imported_for_its_formula() -> None:
    assert formula_of({"constraint": {"kind": "Oracle", "function": "antigravity:fly"}}) is None


def test_the_version_of_mujoco_matters_only_where_a_task_runs_on_it() -> None:
    for task, is_refused in (("ant", True), ("bss3z", False), ("Heating", False)):
        results = [make_result(name=version, task=task) for version in ("one", "two")]
        results[1].provenance[0]["packages"] = {"jax": "0.10.2", "mujoco": "4.0.0"}  # type: ignore[index]
        with pytest.raises(InvalidInputError, match="MuJoCo") if is_refused else contextlib.nullcontext():
            require_same_origin(results)


def test_runs_of_no_suite_beside_result_files_are_read_as_well_and_cells_only_once(tmp_path: Path) -> None:
    cell = write_run(tmp_path / "runs" / "paper" / CELL.name, cell=CELL)
    save_result(read_results([cell])[0], tmp_path / "results")
    write_run(tmp_path / "mine")
    results = read_results([tmp_path])
    assert [(result.name, result.suite) for result in results] == [(CELL.name, "paper"), ("mine", "")]
    assert [name for name, _ in read_named_folders([tmp_path])] == ["mine"]
