"""A start that is known to be sensible: numbers, or entries of the observation, told to a task of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, ConstraintError
from tests.tasks.own_environments import Plant


def plant(constraint: Any = None, **options: Any) -> ib.Task:
    """Return a task whose observation has the parts cap (1), load (2) and matrix (2 x 2)."""
    return ib.Task(Plant, constraint, horizon=10, **options)


def test_a_task_without_a_start_says_so() -> None:
    assert plant().reference_action is None


@pytest.mark.parametrize(
    ("start", "read"),
    [
        ([0.5, 1.5], None),
        (np.array([1, 2]), None),
        (ib.obs["load"], lambda seen: seen[1:3]),
        (ib.obs["matrix", [3, 0]], lambda seen: seen[[6, 3]]),
        (0.5 * ib.obs[0:2] + 1.0, lambda seen: 0.5 * seen[:2] + 1.0),
    ],
    ids=["numbers", "integers", "part", "entries of a part", "scaled entries"],
)
def test_a_start_is_numbers_or_a_reading_of_the_observation(start: Any, read: Any) -> None:
    found = plant(reference_action=start).reference_action
    if read is None:
        np.testing.assert_array_equal(found, np.float32(start))
        assert isinstance(found, np.ndarray) and found.dtype == np.float32
    else:
        seen = np.arange(7.0) ** 2
        np.testing.assert_array_equal(found.read(seen), read(seen))


def test_the_previous_action_is_a_start_where_the_observation_holds_it() -> None:
    task = plant(ib.RateLimit(0.5), reference_action=ib.previous_action)
    seen = np.arange(float(task.observation_size))
    np.testing.assert_array_equal(
        task.reference_action.read(seen),  # type: ignore[union-attr]
        seen[task.observation_slice("previous_action")],
    )
    with pytest.raises(ConstraintError, match=r"previous_action.* only the parts 'cap'.*Name one of these"):
        plant(reference_action=ib.previous_action)


@pytest.mark.parametrize(
    "start",
    [
        *(
            [0.5],
            [[0.5, 0.5]],
            [0.5, [0.5]],
            [0.5, float("nan")],
            [0.5, float("inf")],
            [True, False],
            "middle",
        ),
        *(ib.obs["cap"], ib.obs["load", 0], ib.obs[0:3], ib.obs[6:8], ib.obs["matrix"].reshape(2, 2)),
    ],
    ids=str,
)
def test_a_start_that_is_no_action_is_refused_with_the_remedy(start: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"reference_action=.* Give 2 finite numbers, or ib\.obs.*load"
    ):
        plant(reference_action=start)


@pytest.mark.parametrize("start", [[0.5, 2.1], [-1, 0], [1e300, 0.0]], ids=str)
def test_a_start_beyond_the_box_is_refused_with_the_range(start: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"entry [01] of reference_action is .* \[0, 2\] there\. Give it"
    ):
        plant(reference_action=start)


def test_a_start_on_the_edge_is_one_although_the_box_is_rounded_inward() -> None:
    task = plant(ib.Box(0.0, 0.1), reference_action=[0.1, 0.0])
    np.testing.assert_array_equal(task.reference_action, [task.action_high[0], 0.0])
    assert task.action_high[0] < np.float32(0.1)


def test_a_start_in_a_part_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConstraintError, match=r"reference_action reads obs\['loads'\].*'load'.*Name one"):
        plant(reference_action=ib.obs["loads"])


def test_a_task_keeps_its_start_when_its_scales_are_measured() -> None:
    task = plant(reference_action=ib.obs["load"])
    assert task.normalised(steps=20).reference_action is task.reference_action
