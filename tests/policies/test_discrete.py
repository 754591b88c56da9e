"""Whole-number actions: levels and units."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError
from inbounds.policies.box import ActionBox, from_levels, level_count, to_levels


def box(low, high):
    return ActionBox(np.asarray(low, np.float32), np.asarray(high, np.float32))


def test_levels_count_from_the_lower_end():
    whole = box([2.0, -1.0], [5.0, 2.0])
    assert level_count(whole) == 4
    action = jnp.asarray([[2.0, 2.0], [5.0, -1.0]])
    np.testing.assert_array_equal(to_levels(whole, action), [[0, 3], [3, 0]])
    np.testing.assert_array_equal(from_levels(whole, to_levels(whole, action)), action)


@pytest.mark.parametrize(
    ("low", "high"), [([0.0, 0.0], [3.0, 4.0]), ([0.5, 0.5], [3.5, 3.5]), ([0.0, 0.0], [1.5, 1.5])]
)
def test_ranges_without_a_common_number_of_levels_are_refused(low, high):
    with pytest.raises(ConfigurationError, match="whole"):
        level_count(box(low, high))
