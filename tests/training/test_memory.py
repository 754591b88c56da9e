"""A run that does not fit is refused before it starts, with the number needed."""

from __future__ import annotations

import re

import jax
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Spec
from inbounds.training.config import available_bytes, bytes_of, require_memory, seed_keys
from inbounds.training.program import Programs


def shapes_of(capacity: int, seeds: int = 5) -> object:
    task, learner = ib.make("ant"), ib.Aram()
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    return jax.eval_shape(Programs(learner, spec, 1, 1, capacity).init, seed_keys(0, seeds))


def test_two_replays_of_a_million_for_five_seeds_of_ant_fit_into_24_gib() -> None:
    shapes = shapes_of(1_000_000)
    assert 2.0 < bytes_of(shapes.replay) / 2**30 < 4.0
    require_memory(shapes, available=20 * 2**30, on_cpu=True)


def test_what_does_not_fit_is_refused_with_the_number_and_a_capacity_that_does() -> None:
    available = 2 * 2**30
    with pytest.raises(ConfigurationError, match=r"need \d+\.\d GiB") as refused:
        require_memory(shapes_of(1_000_000), available, on_cpu=True)
    offered = int(re.search(r"to ([\d,]+), or", str(refused.value)).group(1).replace(",", ""))
    require_memory(shapes_of(offered - 10_000), available, on_cpu=True)


def test_a_gpu_keeps_no_copy_of_the_replay() -> None:
    state = shapes_of(100, seeds=1)
    require_memory(state, int(bytes_of(state) / 0.85), on_cpu=False)
    with pytest.raises(ConfigurationError):
        require_memory(state, int(bytes_of(state) / 0.85), on_cpu=True)


def test_this_machine_says_what_is_free() -> None:
    free = available_bytes()
    assert free is None or free > 2**20


def test_training_asks_before_it_allocates(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("inbounds.training.loop.available_bytes", lambda: 2**20)
    with pytest.raises(ConfigurationError, match="Lower capacity"):
        ib.train("bss3z", ib.Aram(), out=tmp_path / "run", steps=1_000)
    assert not (tmp_path / "run").exists()
