"""Other constraints that the literature reports MuJoCo tasks with, and Walker2d, which two of them need.

The sets are those of the benchmark of Kasaura et al. (2023), and nonconvex shells that CV-Flow adds to it. Reacher is
MuJoCo's, in place of PyBullet's. Model, observation, reward and health are those of `locomotion`; Walker2d follows
Gymnasium's v4 environment.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Ellipsoid, Polytope, PowerBudget, Shell, WeightedL1, obs
from inbounds.constraints.functions import sin
from inbounds.constraints.functions import sum as total
from inbounds.tasks.locomotion import SPECS, Bodies, task_of, torques, with_unit
from inbounds.tasks.task import Task

_WALKER_JOINTS = ("thigh", "leg", "foot", "left thigh", "left leg", "left foot")


def _walker_stands(bodies: Bodies) -> NDArray[np.bool_]:
    height, angle = bodies.positions[:, 1], bodies.positions[:, 2]
    stands: NDArray[np.bool_] = (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)
    return stands


def _diagonal(entries: list[object]) -> list[list[object]]:
    """Return a matrix with these entries on its diagonal."""
    size = len(entries)
    return [[entries[i] if i == j else 0.0 for j in range(size)] for i in range(size)]


_WALKER = dataclasses.replace(
    SPECS["hopper"],  # the same observation, reward, first states and length of a step, on another body
    name="walker2dpower",
    environment_id="inbounds/Walker2dPower-v0",
    source="Kasaura et al. 2023, W+M: sum max(w_i a_i, 0) <= 10, w the six joint rates clipped to +-10",
    model_file="walker2d.xml",
    limit=PowerBudget(weights=obs[11:17], bound=10.0),
    is_healthy=_walker_stands,
    observation_names=(
        *with_unit("m", "height"),
        *with_unit("rad", "torso angle", *_WALKER_JOINTS),
        *with_unit("m/s", "forward velocity", "vertical velocity"),
        *with_unit("rad/s", "torso rate", *(f"{joint} rate" for joint in _WALKER_JOINTS)),
    ),
    action_names=torques((100,) * 6, _WALKER_JOINTS),
    camera=(4.0, -20.0, (0.0, 0.0, 1.15), 1),
)

VARIANTS = {
    spec.name: spec
    for spec in (
        dataclasses.replace(
            SPECS["reacher"],
            name="reachershell",
            environment_id="inbounds/ReacherShell-v0",
            source="CV-Flow, R+L2LB: 0.045 <= a1^2 + a2^2 <= 0.05",
            limit=Shell(math.sqrt(0.045), math.sqrt(0.05)),
        ),
        dataclasses.replace(
            SPECS["reacher"],
            name="reachertip",
            environment_id="inbounds/ReacherTip-v0",
            source="Kasaura et al. 2023, R+T: (2 + 2 cos t) a1^2 + 2 (1 + cos t) a1 a2 + a2^2 <= 0.05, t the elbow",
            limit=Ellipsoid([[2.0 + 2.0 * obs[1], 1.0 + obs[1]], [1.0 + obs[1], 1.0]], 0.05),
        ),
        dataclasses.replace(
            SPECS["halfcheetah"],
            name="halfcheetahangular",
            environment_id="inbounds/HalfCheetahAngular-v0",
            source="Kasaura et al. 2023, HC+MA: w1 a1 sin(t1+t2+t3) + w4 a4 sin(t4+t5+t6) <= 5",
            limit=Polytope(
                [[obs[11] * sin(total(obs[2:5])), 0.0, 0.0, obs[14] * sin(total(obs[5:8])), 0.0, 0.0]], [5.0]
            ),
        ),
        dataclasses.replace(
            SPECS["hopper"],
            name="hoppersine",
            environment_id="inbounds/HopperSine-v0",
            source="Kasaura et al. 2023, H+O+S: sum |w_i a_i| <= 10 and sum sin^2(t_i) a_i^2 <= 0.1",
            limit=WeightedL1(obs[8:11], 10.0)
            & Ellipsoid(_diagonal([sin(obs[i]) ** 2 for i in (2, 3, 4)]), 0.1),
        ),
        dataclasses.replace(
            SPECS["hopper"],
            name="hopperleast",
            environment_id="inbounds/HopperLeast-v0",
            # The upper norm lies outside the box [-1, 1]^3 and never binds.
            source="CV-Flow, H+L2N: a1^2 + a2^2 + a3^2 >= 0.617",
            limit=Shell(math.sqrt(0.617), 2.0),
        ),
        _WALKER,
        dataclasses.replace(
            _WALKER,
            name="walker2dsine",
            environment_id="inbounds/Walker2dSine-v0",
            source="Kasaura et al. 2023, W+O+S: sum |w_i a_i| <= 10 and sum sin^2(t_i) a_i^2 <= 0.1",
            limit=WeightedL1(obs[11:17], 10.0)
            & Ellipsoid(_diagonal([sin(obs[i]) ** 2 for i in range(2, 8)]), 0.1),
        ),
    )
}


def variant_task(name: str) -> Task:
    """Return one of the tasks of `VARIANTS`."""
    return task_of(VARIANTS[name])
