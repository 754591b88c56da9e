"""Sets in boxes whose sides are far away, such as the largest number of a type: many action spaces have them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Constraint, Ellipsoid, Polytope, Simplex, SumBand, WeightedL1
from inbounds.errors import EmptySetError
from tests.slices import quick_slice

SKEWED = Ellipsoid([[4.0, -3.0], [-3.0, 4.0]], 1.0)
SETS: dict[str, Constraint] = {
    "ellipsoid": SKEWED,
    "ellipsoid and rows": SKEWED & Polytope([[1.0, 1.0]], [1.0]),
    "ball and norm": Ball(radius_squared=1.0) & WeightedL1([1.0, 1.0], 1.2),
    "band": SumBand(1.0, 0.1),
    "band and rows": SumBand(1.0, 0.1) & Polytope([[1.0, -1.0]], [0.5]),
    "simplex and ball": Simplex(1.0) & Ball(radius_squared=0.9),
}
SIDES: dict[str, tuple[Any, Any]] = {
    "far": (-1e12, 1e12),
    "of float32": (-3.4e38, 3.4e38),
    "of float32 below": (-3.4e38, 1.0),
    "of float32 above": (0.0, 3.4e38),
    "of float64": (-1.7e308, 1.7e308),
}


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("name", quick_slice(SETS, list(SETS)[::3]))
def test_a_far_side_of_a_box_does_not_empty_a_set(name: str, sides: str) -> None:
    low, high = SIDES[sides]
    joined = SETS[name] & Box(np.full(2, low), np.full(2, high))
    assert joined.violation(None, joined.interior_point()) <= 0
    for action in ([3.0, -2.0], [1e30, 0.9]):
        assert joined.violation(None, joined.project(None, np.array(action))) <= 0


@pytest.mark.parametrize("size", [1e3, 1e6, 1e30])
def test_a_far_action_is_projected_where_the_line_to_it_leads(size: float) -> None:
    direction = np.array([-1.0, 2.0])
    nearest = (SKEWED & Polytope([[1.0, 1.0]], [1.0])).project(None, size * direction)
    # Far away, distances are as along the direction: the ellipsoid ends at Q^-1 v / sqrt(v^T Q^-1 v).
    ahead = np.linalg.solve([[4.0, -3.0], [-3.0, 4.0]], direction)
    farthest = np.sqrt(direction @ ahead)
    assert direction @ nearest > farthest - 0.01


def test_rows_thinner_than_their_margin_are_refused_without_a_search() -> None:
    began = time.process_time()
    with pytest.raises(EmptySetError, match="sum_i a_i"):
        SumBand(1.133e-4, 7.06e-11) & Ellipsoid(69.0 * np.eye(6), 1.38e-4)
    assert time.process_time() - began < 3.0
