"""What the gauge shows, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from inbounds.errors import InvalidInputError
from inbounds.tasks.drawing import BLUE, LIMIT_AT, RED, draw_gauge, new_figure, pixels


def has_colour(image: np.ndarray, colour: str) -> np.ndarray:
    """Return where an image shows a colour, within what rounding and transparency change."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return np.all(np.abs(image.astype(int) - wanted) <= 6, axis=-1)


def bar_length(image: np.ndarray, colour: str) -> int:
    """Return the width in pixels of the longest row of that colour."""
    return int(has_colour(image, colour).sum(axis=1).max())


@pytest.fixture
def scene() -> np.ndarray:
    return np.random.default_rng(0).integers(90, 120, (240, 320, 3)).astype(np.uint8)


def test_the_bar_grows_in_proportion_to_the_use(scene):
    lengths = [bar_length(draw_gauge(scene, use, "power"), BLUE) for use in (0.0, 0.25, 0.5, 0.9)]
    assert lengths[0] == 0
    assert lengths[2] == pytest.approx(2 * lengths[1], abs=2)
    assert lengths[3] == pytest.approx(3.6 * lengths[1], abs=4)


@pytest.mark.parametrize("use", [0.0, 0.5, 0.999, 1.0])
def test_red_is_never_shown_up_to_the_limit(scene, use):
    assert not has_colour(draw_gauge(scene, use, "power"), RED).any()


@pytest.mark.parametrize("use", [1.0001, 1.2, 30.0, float("inf")])
def test_above_the_limit_the_bar_is_red_and_passes_the_mark(scene, use):
    drawn = draw_gauge(scene, use, "power")
    assert not has_colour(drawn, BLUE).any()
    full = bar_length(draw_gauge(scene, 1.0 / LIMIT_AT, "power"), RED)
    assert bar_length(drawn, RED) >= LIMIT_AT * full - 4


def test_the_picture_is_copied_and_kept_outside_the_gauge(scene):
    before = scene.copy()
    drawn = draw_gauge(scene, 0.4, "power")
    assert np.array_equal(scene, before)
    assert drawn.shape == scene.shape and drawn.dtype == np.uint8
    assert np.array_equal(drawn[:190], scene[:190])
    assert np.array_equal(drawn[:, 230:], scene[:, 230:])
    assert not np.array_equal(drawn, scene)


@pytest.mark.parametrize("size", [(20, 30), (64, 64), (480, 480), (1080, 1920)])
@pytest.mark.parametrize("label", ["", "a label that is much longer than any gauge has room for"])
def test_it_fits_pictures_of_every_size_and_every_label(size, label):
    image = np.full((*size, 3), 200, np.uint8)
    assert draw_gauge(image, 0.7, label).shape == image.shape


@pytest.mark.parametrize("use", [-0.1, float("nan")])
def test_a_use_that_is_not_a_fraction_is_refused(scene, use):
    with pytest.raises(InvalidInputError, match="fraction of at least 0"):
        draw_gauge(scene, use, "power")


@pytest.mark.parametrize(
    "image", [np.zeros((9, 9), np.uint8), np.zeros((9, 9, 4), np.uint8), np.zeros((9, 9, 3))]
)
def test_a_picture_that_is_not_rgb_is_refused(image):
    with pytest.raises(InvalidInputError, match=r"uint8 of shape \(height, width, 3\)"):
        draw_gauge(image, 0.5, "power")


def test_a_figure_has_the_size_asked_for_in_pixels():
    assert pixels(new_figure(30, 20)).shape == (20, 30, 4)


def test_drawing_never_loads_the_part_of_matplotlib_that_opens_windows():
    program = (
        "import sys, numpy; from inbounds.tasks.drawing import draw_gauge;"
        "assert 'matplotlib' not in sys.modules;"
        "draw_gauge(numpy.zeros((40, 40, 3), numpy.uint8), 0.5, 'x');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
