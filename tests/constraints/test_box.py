from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, obs
from inbounds.errors import ConstraintError, EmptySetError


@pytest.mark.parametrize("bound", [1.0, 0.1, -0.3, 0.4, 1e-8, 100.0, 3e38, 1e-30])
def test_a_saturated_tanh_is_accepted_and_no_float32_beyond_the_bound_is(bound: float) -> None:
    box = Box(-abs(bound), abs(bound))
    saturated = np.float32(abs(bound)) * np.tanh(np.array([50.0, -50.0], dtype=np.float32))
    inside = np.minimum(
        np.abs(saturated), np.float32(box.inner_bounds(box.situation(None, saturated).at).high)
    )
    for library in (np, jnp):
        assert box.contains(None, library.asarray(inside)) and box.contains(None, library.asarray(-inside))
    assert np.all(box.violation(None, inside) <= 0)
    beyond = np.nextafter(np.float32(abs(bound)), np.float32(np.inf))
    assert not jax.jit(lambda a: box.contains(None, a))(jnp.array([beyond, 0.0]))
    assert not box.contains(None, np.array([beyond, np.float32(0.0)]))


def test_bounds_that_float32_can_hold_are_met_exactly() -> None:
    box = Box([-1.0, 0.0], [1.0, 100.0])
    np.testing.assert_array_equal(box.project(None, [-3.0, 300.0]), [-1.0, 100.0])
    assert box.contains(None, [-1.0, 100.0])


def test_numbers_hold_for_any_dimension_and_vectors_tell_it() -> None:
    assert Box(-1.0, 1.0).size() is None
    assert Box(-1.0, [1.0]).size() == 1
    assert Box([-1.0, 0.0], 1.0).size() == 2
    assert Box(obs[0:3], obs[3]).size() == 3
    assert Box(-1.0, 1.0).contains(None, np.zeros((4, 7))).shape == (4,)


def test_an_infinite_bound_allows_everything() -> None:
    box = Box([0.0, -np.inf, -np.inf], [np.inf, np.inf, 2.0])
    np.testing.assert_array_equal(box.project(None, [-5.0, 1e20, 1e20]), [0.0, 1e20, 2.0])
    np.testing.assert_array_equal(box.interior_point(), [1.0, 0.0, 1.0])
    assert box.distance(None, [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]) == np.inf


def test_an_entry_may_be_fixed() -> None:
    box = Box([0.5, -1.0], [0.5, 1.0])
    np.testing.assert_array_equal(box.project(None, [3.0, 0.25]), [0.5, 0.25])
    assert box.contains(None, box.interior_point())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 0.0, "no action satisfies"),
        ([0.0, 2.0], [1.0, 1.0], r"entries \[1\]"),
        (0.1, 0.1, "no float32 number"),
    ],
)
def test_an_empty_box_is_refused_when_it_is_built(low: Any, high: Any, expected: str) -> None:
    with pytest.raises(EmptySetError, match=expected):
        Box(low, high)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (np.nan, 1.0, "not a finite number"),
        ("low", 1.0, "is expected"),
        (np.zeros((2, 2)), 1.0, "shape"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "low has 2, high has 3"),
        ([], 1.0, "shape"),
    ],
)
def test_bounds_that_are_no_bounds_are_refused(low: Any, high: Any, expected: str) -> None:
    with pytest.raises(ConstraintError, match=expected):
        Box(low, high)


def test_bounds_of_the_state_that_cross_name_their_rows() -> None:
    box = Box(obs[0], obs[1])
    with pytest.raises(EmptySetError, match=r"a\[0\] >= obs\[0\]; a\[1\] >= obs\[0\]; a\[0\] <= obs\[1\]"):
        box.project([1.0, 0.0], [0.0, 0.0])


def test_the_formula_is_short() -> None:
    assert Box(-1.0, 1.0).formula() == "-1 <= a_i <= 1"
    assert Box(obs[0:2] - 1.0, np.arange(1.0, 9.0)[:2]).formula() == "(obs[0:2] - 1) <= a_i <= (1, 2)"
    assert json.dumps(Box(-1.0, 1.0).to_json()) == '{"kind": "Box", "low": -1.0, "high": 1.0}'


@pytest.mark.parametrize("low, high", [(1e-310, 1.0), (1e-40, 1.0), (-1.0, -1e-310), (-1.0, -1e-40)])
def test_a_compiled_projection_keeps_a_subnormal_bound(low: float, high: float) -> None:
    box = Box(low, high)
    for action in (-2.0, 0.0, 2.0):
        point = np.asarray(jax.jit(lambda a: box.project(None, a))(jnp.array([action])), dtype=np.float64)
        assert box.violation(None, point) <= 0
    assert not jax.jit(lambda a: box.contains(None, a))(jnp.array([0.0]))


ROBOT = """
<mujoco>
  <worldbody>
    <body><joint name="hip" type="hinge" actuatorfrcrange="-30 20"/><geom size="0.1"/>
      <body><joint name="knee" type="hinge"/><geom size="0.1"/></body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="hip" gear="100" ctrllimited="true" ctrlrange="-1 1"/>
    <motor joint="knee" gear="50" ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.5 2"/>
    <motor joint="knee"/>
    <position joint="knee" kp="40" ctrllimited="true" ctrlrange="-2 0.5" forcelimited="true" forcerange="-9 9"/>
  </actuator>
</mujoco>
"""


def test_a_model_file_states_the_ranges_of_its_controls(tmp_path: Path) -> None:
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "robot.xml"
    path.write_text(ROBOT)
    for model in (path, str(path), mujoco.MjModel.from_xml_string(ROBOT)):
        box = Box.from_mjcf(model)
        np.testing.assert_allclose(box.low, [-0.3, -0.5, -np.inf, -2.0])
        np.testing.assert_allclose(box.high, [0.2, 1.0, np.inf, 0.5])


def test_the_box_of_a_model_is_the_action_space_of_its_environment() -> None:
    pytest.importorskip("mujoco")
    environment = gymnasium.make("HalfCheetah-v5")
    box = Box.from_mjcf(environment.unwrapped.model)
    np.testing.assert_array_equal(box.low, environment.action_space.low)
    np.testing.assert_array_equal(box.high, environment.action_space.high)


def test_what_is_no_model_is_refused_with_a_remedy(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    (tmp_path / "empty.xml").write_text("<mujoco/>")
    (tmp_path / "broken.xml").write_text("<mujoco><nothing></mujoco>")
    for model, remedy in (
        (3, "MjModel"),
        (tmp_path / "missing.xml", "MJCF file"),
        (tmp_path / "broken.xml", "MJCF file"),
        (tmp_path / "empty.xml", "whole robot"),
    ):
        with pytest.raises(ConstraintError, match=remedy):
            Box.from_mjcf(model)
