"""Random shells, products of simplices and barriers: what is projected satisfies the definition, in extended floats."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.attack.groups_and_shells import BATCH, MAKERS, examined


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MAKERS))
def test_no_projection_leaves_its_set_or_is_far_from_the_nearest(name: str) -> None:
    found = examined(name, 5_000 if "barrier" in name else 100_000, seed=1)
    assert found["projections"] > 0 and found["moved"] > 0.5 * found["projections"]
    assert found["outside"] == 0
    assert found["farther"] < 1e-5


@pytest.mark.parametrize("name", list(MAKERS))
def test_the_judge_sees_actions_that_are_a_little_outside(name: str) -> None:
    rng = np.random.default_rng(2)
    case = MAKERS[name](rng, 4)
    states, far = case.states[:200], 50.0 * rng.standard_normal((200, 4))
    border = case.constraint.project(states, far)
    assert np.all(case.missed(states, border) <= 0)
    away = (far - border) / np.linalg.norm(far - border, axis=-1, keepdims=True)
    # An equality has a tolerance of 1e-5 of its total, and totals are at most 100.
    assert np.all(case.missed(states, border + 5e-3 * away) > 0)
    assert len(case.states) == BATCH
