"""Training on MJX: executed actions are feasible in float64, runs go on exactly, C MuJoCo evaluates the policy."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.cli.main import main
from inbounds.learners.aram import Aram
from inbounds.tasks.mujoco_batch import MujocoBatch
from inbounds.training.checkpoint import collector_state, flatten, restore_collector
from inbounds.training.compiled_collector import CompiledCollector
from inbounds.training.config import seed_keys
from inbounds.training.loop import spec_of
from inbounds.training.program import Programs

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(importlib.util.find_spec("mujoco.mjx") is None, reason="mujoco-mjx is not installed"),
]
SMALL = {"hidden": (8, 8), "batch_size": 16, "proposals": 8}


class Recording(CompiledCollector):
    """Keeps what the compiled loop executed, and where."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.observations: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []

    def _inspect(self, trace: Any, episodes: Any) -> None:
        self.observations.append(trace.observation)
        self.actions.append(trace.action)
        super()._inspect(trace, episodes)


def test_no_executed_action_violates_the_limit_in_float64_and_a_saved_state_goes_on_exactly() -> None:
    task, environments = ib.make("halfcheetah-mjx"), 8
    programs = Programs(Aram(**SMALL), spec_of(task), environments, 1, 2_000)
    keys = seed_keys(0, 1)
    collector = Recording(task, programs, keys, [0], warm_up=16 * environments)
    collector.start()
    state, *_ = collector.run(programs.init(keys), 40)
    learnt = jax.tree.map(jnp.copy, state)  # the loop takes over the arrays that it is given
    saved = {
        name: np.array(leaf) for name, leaf in flatten({"collector": collector_state(collector)}).items()
    }
    collector.run(state, 24)
    observations, actions = (
        np.concatenate(rows).astype(np.float64) for rows in (collector.observations, collector.actions)
    )
    assert actions.shape == (64, 1, environments, 6)
    power = np.abs(observations[..., 11:17] * actions).sum(axis=-1)
    assert power.max() <= 20.0 and np.abs(actions).max() <= 1.0
    assert power.max() > 10.0  # the limit was in reach
    assert np.max(task.constraint.violation(observations, actions)) <= 0.0

    restore_collector(collector, saved)
    assert collector.turn == 40
    collector.run(learnt, 24)
    np.testing.assert_array_equal(np.concatenate(collector.actions)[64:], actions[40:])
    np.testing.assert_array_equal(np.concatenate(collector.observations)[64:], observations[40:])


@pytest.mark.timeout(900)
def test_a_policy_trained_on_mjx_is_judged_by_the_c_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: list[int] = []
    step = MujocoBatch.step
    monkeypatch.setattr(
        MujocoBatch, "step", lambda batch, actions: (counted.append(batch.count), step(batch, actions))[1]
    )
    settings: dict[str, Any] = {"environments": 4, "episodes": 3, "warm_up": 80, "capacity": 2_000}
    settings |= {"scale_observations": False, "scale_rewards": False}
    run = ib.train("reacher-mjx", Aram(**SMALL), steps=160, out=tmp_path / "run", **settings)
    assert counted and set(counted) == {3}  # evaluations, and nothing else
    by_name, by_judge = ib.evaluate(run, episodes=4), ib.evaluate(run, "reacher", episodes=4)
    np.testing.assert_array_equal(by_name.returns, by_judge.returns)
    assert by_judge.worst_violation <= 0.0
    command = ["evaluate", str(run.path), "reacher", "--episodes", "4", "--no-timing", "--no-sweep"]
    assert main(command) == 0
    assert json.loads((run.path / "evaluation.json").read_text())["final"]["worst_violation"] <= 0.0
    assert main(["evaluate", str(run.path), "ant", *command[3:]]) == 2
    assert "Name the one it was trained on" in capsys.readouterr().err
