"""What the picture of bike sharing shows."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from inbounds.tasks.bike_sharing import SYSTEMS, bike_sharing_task, compiled_bike_sharing
from inbounds.tasks.bike_sharing_drawing import draw_bike_sharing, transfers, zone_positions
from tests.slices import quick_slice


def test_zones_lie_at_their_distances_where_the_plane_allows():
    distances = SYSTEMS["bss3z"].distance_matrix()
    points = zone_positions(distances)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points[None], axis=-1), distances, atol=1e-9)


def test_bikes_that_left_are_paired_with_bikes_that_came():
    pairs = transfers(np.array([-4, 3, 0, 2, -1]))
    assert pairs == [(0, 1, 3), (0, 3, 1), (4, 3, 1)]
    assert transfers(np.zeros(5, int)) == []


@pytest.mark.parametrize("name", quick_slice(SYSTEMS, ["bss3z"]))
def test_the_picture_shows_the_state(name):
    environment = bike_sharing_task(name).make_environment(render_mode="rgb_array")
    environment.reset(seed=1)
    first = environment.render()
    assert first.shape == (600, 960, 3) and first.dtype == np.uint8
    assert np.array_equal(first, environment.render())
    environment.step(np.full(environment.action_space.shape, 30.5, np.float32))
    assert not np.array_equal(first, environment.render())


def test_the_gauge_shows_how_far_the_sum_was_missed():
    system = SYSTEMS["bss3z"]
    state, _ = compiled_bike_sharing(system).reset(jax.random.key(0))
    state = jax.tree.map(np.asarray, state)._replace(epoch=1)
    red = np.array([0xC1, 0x12, 0x1F])

    def has_red(action):
        picture = draw_bike_sharing(state, np.array(action), system=system, tolerance=5.0).astype(int)
        return bool((np.abs(picture - red).max(axis=-1) <= 6).any())

    assert not has_red([30.0, 30.0, 35.0])
    assert has_red([30.0, 30.0, 35.1])
