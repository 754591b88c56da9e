"""A task: sizes, the reward that learners see, and how it introduces itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inbounds.tasks import make


@pytest.mark.parametrize(
    ("name", "reward", "seen"),
    [("reacher", -0.1, 0.9), ("halfcheetah", 5.0, 5.0), ("hopper", 2.0, 2.0), ("hoppervel", 1.0, 1.0),
     ("ant", 3.0, 3.0), ("nsfnet", 13.0, 1.3), ("nsfnet20d", 22.0, 2.2), ("bss3z", -16.0, 0.2),
     ("bss5z", -151.0, 0.49)],
)  # fmt: skip
def test_learners_see_the_reward_scaled_and_shifted_as_in_the_paper(
    name: str, reward: float, seen: float
) -> None:
    assert make(name).training_reward(reward) == pytest.approx(seen)


def test_the_transform_works_on_arrays() -> None:
    np.testing.assert_allclose(make("reacher").training_reward(np.array([-1.0, 0.0])), [0.0, 1.0])


def test_a_task_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make("reacher").horizon = 7  # type: ignore[misc]


def test_a_task_shows_its_name_and_its_constraint() -> None:
    task = make("ant")
    assert "ant" in repr(task) and task.constraint.formula() in repr(task)
