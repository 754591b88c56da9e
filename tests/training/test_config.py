"""Choices of a training run: what cannot work is refused before anything starts, by name."""

from __future__ import annotations

from typing import Any

import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.training.config import TrainingConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("steps", value) for value in (0, -3, "x", 10.5, True, None)),
        *(("seeds", value) for value in ("two", 0)),
        *(("seed", value) for value in (-1, "a")),
        *((name, -1) for name in ("evaluate_every", "checkpoint_every", "warm_up", "threads")),
        *((name, 0) for name in ("keep", "environments", "capacity", "episodes")),
        *(("updates_per_step", value) for value in (0, float("nan"), "often")),
        *(("preference", value) for value in ("x", (0.5,), (-0.1, 1.1), (float("nan"), 1.0))),
        *((name, "x") for name in ("scale_rewards", "scale_observations")),
    ],
)
def test_a_choice_that_cannot_work_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        TrainingConfig(**{"steps": 100, name: value})


def test_what_is_no_task_or_no_learner_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"ib\.Task"):
        ib.train(3, ib.Aram(), steps=10)
    for learner in (3, ib.Aram):
        with pytest.raises(ConfigurationError, match=r"ib\.Aram\(\)"):
            ib.train("bss3z", learner, steps=10)


def test_a_policy_is_not_evaluated_at_weights_that_it_does_not_learn() -> None:
    with pytest.raises(ConfigurationError, match="min_return_weight"):
        ib.train("bss3z", ib.Aram(), steps=10, preference=(0.5, 0.5))


@pytest.mark.parametrize("hidden", ["x", (), (0,), 16, (-1,), (2.5,)])
def test_widths_that_are_none_are_refused(hidden: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sizes of layers|excluded"):
        ib.Aram(hidden=hidden)


@pytest.mark.parametrize("preference", [(2, 2), (0.9,), "x", (-0.1, 1.1)])
def test_a_fixed_preference_is_two_weights_that_sum_to_one(preference: Any) -> None:
    with pytest.raises(ConfigurationError, match="sum to 1"):
        ib.Aram(preference=preference)
