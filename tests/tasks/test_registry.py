"""Tasks by name, each also a Gymnasium id, and help for whoever mistypes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.tasks import make, names
from inbounds.tasks.registry import register_environments
from inbounds.tasks.spaces import ConstrainedBox

NINE = ("reacher", "halfcheetah", "hopper", "hoppervel", "ant", "nsfnet", "nsfnet20d", "bss3z", "bss5z")
SYNTHETIC = ("polytope50", "allocation")
VARIANTS = (
    *("reachershell", "reachertip", "halfcheetahangular", "hoppersine", "hopperleast"),
    *("walker2dpower", "walker2dsine"),
)
ON_MJX = ("reacher-mjx", "halfcheetah-mjx", "hopper-mjx", "hoppervel-mjx", "ant-mjx")
ALL = (*NINE, *SYNTHETIC, *VARIANTS, *ON_MJX)


def test_the_papers_nine_tasks_come_first_and_synthetic_ones_variants_and_those_on_mjx_follow() -> None:
    assert names() == ALL


@pytest.mark.parametrize("name", ALL)
def test_a_task_is_complete(name: str) -> None:
    task = make(name)
    assert task.name == name
    assert isinstance(task.constraint, Constraint) and task.constraint.formula()
    assert task.action_low.dtype == task.action_high.dtype == np.float32
    assert task.action_low.shape == task.action_high.shape == (task.action_size,)
    assert task.host is not None or task.compiled is not None
    assert task.source


@pytest.mark.parametrize("name", ALL)
def test_gymnasium_knows_a_task_with_its_horizon(name: str) -> None:
    task = make(name)
    specification = gymnasium.spec(task.environment_id)
    assert specification.max_episode_steps == task.horizon


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "nsfnet" in name else name for name in ALL]
)
def test_a_made_environment_is_the_task(name: str) -> None:
    task = make(name)
    environment = gymnasium.make(task.environment_id)
    assert isinstance(environment.action_space, ConstrainedBox)
    np.testing.assert_array_equal(environment.action_space.low, task.action_low)
    np.testing.assert_array_equal(environment.action_space.high, task.action_high)
    assert environment.observation_space.shape == (task.observation_size,)
    observation, _ = environment.reset(seed=0)
    action = environment.action_space.sample()
    assert float(task.constraint.violation(observation, action.astype(np.float64))) <= 0.0
    environment.step(action)
    environment.close()


@pytest.mark.parametrize("name", ["HalfCheetah", "HALFCHEETAH", "halfcheetah"])
def test_the_case_of_letters_does_not_matter(name: str) -> None:
    assert make(name).name == "halfcheetah"


@pytest.mark.parametrize(
    ("typed", "meant"), [("halfchetah", "halfcheetah"), ("nsfnet20", "nsfnet20d"), ("bss3", "bss3z")]
)
def test_an_unknown_name_suggests_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"'{typed}'.*Did you mean '{meant}'"):
        make(typed)


@pytest.mark.parametrize("name", [3, None, Constraint])
def test_what_is_no_name_is_refused_with_the_names(name: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"made by its name, not from .*Pass one of reacher, .*ib\.Task"
    ):
        make(name)


def test_registering_twice_is_harmless() -> None:
    before = dict(gymnasium.registry)
    register_environments()
    assert dict(gymnasium.registry) == before


def test_gymnasium_can_import_the_tasks_by_itself() -> None:
    code = (
        "import gymnasium; e = gymnasium.make('inbounds.tasks:inbounds/Reacher-v0'); "
        "print(e.reset(seed=0)[0].shape)"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "(11,)"


def test_naming_the_tasks_loads_neither_mujoco_nor_jax() -> None:
    code = (
        "import sys, inbounds.tasks as t; t.names(); "
        "print([m for m in ('mujoco', 'jax', 'matplotlib') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
