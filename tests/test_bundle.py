"""The archive for an offline GPU machine: which packages and files travel, at which versions."""

from __future__ import annotations

import pytest

from scripts.make_bundle import PRESENT, chosen, is_stripped, pinned


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_that_travels_is_pinned_and_mjx_at_the_version_of_mujoco(python: str) -> None:
    versions = pinned(python)
    asked = ["mujoco-mjx", "box2d", "gymnasium-robotics"]
    assert [name for name in chosen(asked) if name not in versions] == []
    assert versions["mujoco-mjx"] == versions["mujoco"]


def test_mjx_travels_when_it_is_asked_for_and_brings_what_it_imports() -> None:
    assert "mujoco-mjx" not in chosen([])
    assert set(chosen(["MuJoCo_MJX"])) - set(chosen([])) == {"mujoco-mjx", "trimesh"}
    assert set(chosen(["mujoco-mjx"])).isdisjoint(PRESENT)


def test_environments_of_others_bring_what_they_import() -> None:
    added = set(chosen(["box2d", "gymnasium-robotics"])) - set(chosen([]))
    assert added == {"box2d", "pygame-ce", "gymnasium-robotics", "jinja2", "markupsafe", "pettingzoo"}


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("gymnasium_robotics/envs/assets/point/point.xml", False),
        ("gymnasium_robotics/envs/assets/hand/hand.xml", True),
        ("mujoco/mjx/_src/forward.py", False),
        ("mujoco/introspect/mjxmacro.py", False),
        ("mujoco/mjx/_src/forward_test.py", True),
        ("mujoco/mjx/test_data/humanoid/humanoid.xml", True),
        ("mujoco/mjx/third_party/mujoco_warp/__init__.py", True),
        ("mujoco/include/mujoco/mujoco.h", True),
    ],
)
def test_what_no_training_run_opens_stays_behind(name: str, stays: bool) -> None:
    assert is_stripped(name) == stays
