"""Ideas beyond the paper: each a small change of a common reference, on tasks where it can show something."""

from __future__ import annotations

import pytest

from inbounds.benchmark.ideas import IDEAS, ON_RAW_OBSERVATIONS, RAW, STEPS, idea_cells
from inbounds.benchmark.suite import PAPER_TASKS, SUITES
from inbounds.learners.aram import Aram

CELLS = list(idea_cells())


def test_the_suite_beyond_paper_has_every_idea_on_each_of_its_tasks() -> None:
    assert tuple(SUITES["beyond-paper"].cells()) == tuple(CELLS)
    assert {(cell.variant, cell.task) for cell in CELLS} == {
        (name, task) for name, idea in IDEAS.items() for task in idea.tasks
    }


@pytest.mark.parametrize("name", IDEAS)
def test_an_idea_is_tried_on_tasks_of_the_paper_for_as_long_as_every_other(name: str) -> None:
    cells = [cell for cell in CELLS if cell.variant == name]
    assert cells and {cell.task for cell in cells} <= set(PAPER_TASKS)
    assert all(cell.steps == STEPS[cell.task] and cell.seeds == 5 for cell in cells)
    assert all(dict(cell.training)["capacity"] >= cell.steps for cell in cells)  # nothing is forgotten


def test_no_two_ideas_are_the_same_learner() -> None:
    learners = [Aram(**idea.settings) for idea in IDEAS.values()]
    assert len(set(learners)) == len(learners)


def test_the_first_ideas_see_raw_observations_and_the_reference_is_nothing_but_that() -> None:
    reference = Aram(**IDEAS["temperature-from-0.1"].settings)
    assert reference == Aram(**RAW)
    assert (reference.start, reference.scale_observations) == ("box", False)
    for name, idea in ON_RAW_OBSERVATIONS.items():
        learner = Aram(**IDEAS[name].settings)
        assert not learner.scale_observations
        assert learner.start == idea.settings.get("start", "box")


@pytest.mark.parametrize("name", sorted(IDEAS.keys() - ON_RAW_OBSERVATIONS.keys()))
def test_the_other_ideas_see_scaled_observations(name: str) -> None:
    assert Aram(**IDEAS[name].settings).scale_observations


def test_a_start_of_the_task_is_tried_only_where_tasks_have_one() -> None:
    import inbounds as ib

    for name in ("start-of-task", "start-of-task-critics-first"):
        assert all(ib.make(task).starting_action is not None for task in IDEAS[name].tasks)
