"""Collecting from compiled environments: any number of turns is one program, and how they are split changes nothing."""

import json

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Spec
from inbounds.tasks.registry import make
from inbounds.training.compiled_collector import CHUNK, CompiledCollector
from inbounds.training.config import seed_keys
from inbounds.training.program import Programs

WARM = 7
"""Turns of warm-up, no divisor of anything else here."""


class Counting(CompiledCollector):
    """Counts the turns that were checked."""

    checked = 0

    def _inspect(self, trace, episodes):
        self.checked += len(trace.action)
        super()._inspect(trace, episodes)


def collected(splits):
    """Return the collector, the state, its metrics and the episodes after so many turns, asked for in parts."""
    task, environments = make("bss3z"), 2
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    programs = Programs(Aram(hidden=(8, 8), batch_size=8, proposals=4), spec, environments, 1, 1_000)
    keys = seed_keys(0, 2)
    collector = Counting(task, programs, keys, [0, 1], warm_up=WARM * environments)
    collector.start()
    state, ended = programs.init(keys), []
    for turns in splits:
        state, metrics, episodes = collector.run(state, turns)
        ended += zip(episodes.seed, episodes.value, episodes.length, strict=True)
    return collector, (state, metrics), ended


@pytest.mark.sweep
def test_turns_in_any_parts_compile_two_programs_and_lead_to_the_same_state():
    total = make("bss3z").horizon + 13
    assert total > CHUNK + WARM and total % CHUNK
    whole, expected, ended = collected([total])
    parts, state, ended_in_parts = collected([3, WARM + 1, 11, total - 15 - WARM])
    assert whole.turn == parts.turn == whole.checked == parts.checked == total
    assert whole._run._cache_size() == parts._run._cache_size() == 2
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    assert ended == ended_in_parts and len(ended) > 0


@pytest.mark.sweep
def test_hundreds_of_environments_with_few_updates_fill_whole_chunks(tmp_path):
    environments, capacity = 256, 300
    settings = {"hidden": (8, 8), "batch_size": 64, "proposals": 4}
    run = ib.train(
        make("bss3z"),
        Aram(**settings),
        steps=120 * environments,
        environments=environments,
        updates_per_step=1 / 128,
        warm_up=4 * environments,
        capacity=capacity,  # less than one turn brings
        evaluate_every=0,
        episodes=2,
        checkpoint_every=0,
        out=tmp_path / "run",
    )
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] // environments for row in rows] == [CHUNK, 2 * CHUNK, 120]
    assert run.worst_violation <= 0.0
