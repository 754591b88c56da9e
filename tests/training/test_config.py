"""Choices of a training run: what cannot work is refused before anything starts, by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.training.api import resumed_config
from inbounds.training.config import TrainingConfig, folded, seed_keys
from inbounds.training.loop import resolved
from inbounds.training.record import RunFolder, as_tuples
from tests.learners import probes


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
    with pytest.raises(ConfigurationError, match=r"sum to 1.*Pass \(0\.9, 0\.1\)"):
        ib.train("bss3z", ib.Aram(), steps=10, preference=(9, 3))


@pytest.mark.parametrize("hidden", ["x", (), (0,), 16, (-1,), (2.5,)])
def test_widths_that_are_none_are_refused(hidden: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sizes of layers|excluded"):
        ib.Aram(hidden=hidden)


@pytest.mark.parametrize("preference", [(2, 2), (0.9,), "x", (-0.1, 1.1)])
def test_a_fixed_preference_is_two_weights_that_sum_to_one(preference: Any) -> None:
    with pytest.raises(ConfigurationError, match="sum to 1"):
        ib.Aram(preference=preference)


EXTREMES: dict[str, tuple[Any, ...]] = {
    "steps": (1, 2_000_000_000),
    "seed": (0, 2**32 - 1, 2**32, 2**63 - 1, np.int64(2**63 - 1)),
    "seeds": (1, 10_000),
    "environments": (1, 100_000, None),
    "episodes": (1, 100_000, None),
    **{name: (0, 10**15) for name in ("evaluate_every", "checkpoint_every", "threads")},
    "capacity": (1, 10**15),
    "keep": (1, 10**15),
    "warm_up": (0, 99, None),
    "updates_per_step": (5e-324, 1, 1_000.0),
    "preference": ((0, 0), (1e100, 0.0)),
    "device": (None, "cpu"),
    **{name: (True, False) for name in ("deterministic", "scale_rewards", "scale_observations")},
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in EXTREMES for value in EXTREMES[name]])
def test_every_choice_that_is_accepted_is_read_back_from_the_run_folder(
    name: str, value: Any, tmp_path: Path
) -> None:
    config = TrainingConfig(**{"steps": 100, name: value})
    task, learner = probes.moving_optimum().task, ib.Sac(hidden=(4,))
    folder = RunFolder(tmp_path)
    folder.create(resolved(task, learner, "sac", config, config.environments or 1), {})
    recorded = folder.config()["training"]
    if value is not None:
        assert as_tuples(recorded[name]) == value
    assert resumed_config({}, {"training": recorded}, tmp_path) is not None


def test_the_table_of_extremes_names_every_choice() -> None:
    assert {*EXTREMES, "out"} == {field.name for field in dataclasses.fields(TrainingConfig)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 2_000_000_001),
        ("steps", 2 * 10**15),
        ("seed", 2**63),
        *(
            (name, 10**15 + 1)
            for name in ("evaluate_every", "checkpoint_every", "keep", "capacity", "threads")
        ),
        ("preference", (1e101, 0.0)),
        ("device", 3),
        ("deterministic", "yes"),
        ("scale_rewards", 1),
    ],
)
def test_a_choice_that_a_run_folder_would_not_give_back_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        TrainingConfig(**{"steps": 100, name: value})


def test_the_last_of_the_seeds_has_63_bits_too() -> None:
    assert TrainingConfig(seed=2**63 - 5, seeds=5).seeds == 5
    with pytest.raises(ConfigurationError, match=r"seed % 2\*\*32"):
        TrainingConfig(seed=2**63 - 4, seeds=5)


def test_seeds_of_32_bits_have_the_keys_that_jax_gives_them() -> None:
    for seed in (0, 7, 2**32 - 1):
        words = jax.random.key_data(seed_keys(seed, 1))[0]
        np.testing.assert_array_equal(words, jax.random.key_data(jax.random.key(seed)))
        root = jax.random.key(1)
        np.testing.assert_array_equal(*map(jax.random.key_data, (folded(root, seed), _folded(root, seed))))


def _folded(key: jax.Array, seed: int) -> jax.Array:
    return jax.random.fold_in(key, seed)


def test_seeds_that_differ_in_any_of_63_bits_draw_differently() -> None:
    seeds = [5, *(5 + 2**bit for bit in range(63) if bit not in (0, 2))]
    roots = np.stack([np.asarray(jax.random.key_data(seed_keys(seed, 1)))[0] for seed in seeds])
    assert len(np.unique(roots, axis=0)) == len(seeds)
    drawn = np.stack([np.asarray(jax.random.key_data(folded(jax.random.key(1), seed))) for seed in seeds])
    assert len(np.unique(drawn, axis=0)) == len(seeds)
