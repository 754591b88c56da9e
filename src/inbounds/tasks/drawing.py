"""How pictures of tasks are made: figures without a screen, one palette, the gauge of a constraint, MuJoCo's scenes.

MuJoCo draws without a display through EGL (graphics card or Mesa) or OSMesa.
"""

from __future__ import annotations

import atexit
import importlib
import math
import os
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import InvalidInputError, MissingDependencyError
from inbounds.tasks.guard import share_of_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from inbounds.tasks.mujoco_batch import MujocoBatch

# Okabe and Ito's colours: distinct for every kind of colour vision, and on grey paper by their lightness.
BLUE, SKY, GREEN, ORANGE, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7"
INK, MUTED, FAINT, PAPER = "#1B1F24", "#5B6570", "#D9DEE3", "#FFFFFF"
RED = "#C1121F"
"""Used for one thing only: a constraint that is exceeded."""

LIMIT_AT = 0.8
"""Where on the gauge's bar the limit stands; what lies beyond it shows an excess of up to a quarter."""


def new_figure(width: int, height: int) -> Figure:
    """Return an empty figure of that many pixels which belongs to no window and to no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def new_canvas(width: int, height: int) -> tuple[Figure, Axes]:
    """Return a figure of `new_figure` and axes that fill it, whose coordinates are pixels from the lower left."""
    figure = new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(0, height))
    return figure, axes


def stretched(
    points: NDArray[np.float64], low: tuple[float, float], high: tuple[float, float]
) -> NDArray[np.float64]:
    """Return points moved and stretched, each axis on its own, until they fill the rectangle from `low` to `high`."""
    size = np.asarray(high) - np.asarray(low)
    placed: NDArray[np.float64] = low + (points - points.min(axis=0)) / np.ptp(points, axis=0) * size
    return placed


def pixels(figure: Figure) -> NDArray[np.uint8]:
    """Return the picture of a figure made by `new_figure`, (height, width, 4) with its transparency."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        raise InvalidInputError(f"the figure has a {type(canvas).__name__}; make it with new_figure.")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)  # type: ignore[no-untyped-call]


def draw_gauge(image: NDArray[np.uint8], use: float, label: str) -> NDArray[np.uint8]:
    """Return a copy of an rgb image with a bar in its lower left corner: how much of a constraint is used.

    `use` is 0 where nothing is used and 1 at the limit; above 1 the bar turns red and crosses the limit's
    mark.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise InvalidInputError(
            f"the image is {image.dtype} of shape {image.shape}; give uint8 of shape (height, width, 3)."
        )
    if math.isnan(use) or use < 0:
        raise InvalidInputError(
            f"the use of a constraint is {use}; give a fraction of at least 0, with 1 at the limit."
        )
    height, width = image.shape[:2]
    panel_height = min(height, max(34, round(height / 10)))
    panel_width = min(width, 6 * panel_height)
    margin = min(panel_height // 5, height - panel_height, width - panel_width)
    panel = _gauge_panel(panel_width, panel_height, use, label)
    top, left = height - margin - panel_height, margin
    drawn = image.copy()
    below = drawn[top : top + panel_height, left : left + panel_width].astype(np.float32)
    opacity = panel[..., 3:].astype(np.float32) / 255
    mixed = panel[..., :3] * opacity + below * (1 - opacity)
    drawn[top : top + panel_height, left : left + panel_width] = np.rint(mixed).astype(np.uint8)
    return drawn


def _gauge_panel(width: int, height: int, use: float, label: str) -> NDArray[np.uint8]:
    from matplotlib.patches import FancyBboxPatch, Rectangle

    figure, axes = new_canvas(width, height)
    figure.patch.set_alpha(0)
    inset = 0.14 * height
    size = 0.24 * height
    is_exceeded = use > 1
    colour = RED if is_exceeded else BLUE
    axes.add_patch(
        FancyBboxPatch(
            (1, 1), width - 2, height - 2, boxstyle=f"round,pad=0,rounding_size={0.18 * height}",
            facecolor=PAPER, edgecolor=FAINT, alpha=0.9, linewidth=1,
        )
    )  # fmt: skip
    room = width - 2 * inset
    bar_bottom, bar_height = inset, 0.26 * height
    axes.add_patch(Rectangle((inset, bar_bottom), room, bar_height, facecolor=FAINT, linewidth=0))
    length = room * min(use * LIMIT_AT, 1.0)
    axes.add_patch(Rectangle((inset, bar_bottom), length, bar_height, facecolor=colour, linewidth=0))
    limit = inset + room * LIMIT_AT
    ends = [bar_bottom - 0.05 * height, bar_bottom + bar_height + 0.05 * height]
    axes.plot([limit, limit], ends, color=INK, linewidth=max(1.5, 0.04 * height))
    share = "> 999 %" if use > 9.99 else f"{100 * use:.0f} %"
    text_height = 0.70 * height
    points = size * 72 / 100 * 1.35
    number = axes.text(
        width - inset, text_height, share, ha="right", va="center", fontsize=points, weight="bold",
        color=colour if is_exceeded else INK,
    )  # fmt: skip
    words = axes.text(inset, text_height, label, ha="left", va="center", fontsize=points, color=INK)
    _shrink_to(words, room - number.get_window_extent().width - 2.5 * inset)
    return pixels(figure)


def _shrink_to(text: Text, room: float) -> None:
    """Make a text smaller where it is wider than `room` pixels."""
    width = text.get_window_extent().width
    if width > room:
        text.set_fontsize(max(1.0, float(text.get_fontsize()) * room / width))


# Scenes of MuJoCo ----------------------------------------------------------------------------------------------------

_SIDE = 480  # pixels


def open_context(width: int, height: int) -> Any:
    """Return a current off-screen OpenGL context from the first of EGL and OSMesa that works.

    The variable MUJOCO_GL, where it names one of the two, decides. PyOpenGL binds to one platform for the
    life of the process, so whichever opened a context first stays.
    """
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    platform = os.environ.get("PYOPENGL_PLATFORM")
    problems = []
    for backend in (asked,) if asked in ("egl", "osmesa") else ("egl", "osmesa"):
        try:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
            context.make_current()
            return context
        except Exception as problem:  # a missing driver shows itself in many ways
            problems.append(f"{backend}: {type(problem).__name__} {problem}")
            if platform is None:  # the failed module has claimed the platform, which shuts out the next one
                os.environ.pop("PYOPENGL_PLATFORM", None)
    raise MissingDependencyError(
        f"no OpenGL to draw with ({'; '.join(problems)}). Install Mesa's EGL (`apt install libegl1 "
        "libgl1-mesa-dri`), or OSMesa (`apt install libosmesa6`) and start again with MUJOCO_GL=osmesa, or "
        "make the environment with render_mode=None."
    )


class MujocoPicture:
    """Draws environment 0 of a batch, with a gauge of how much of its bound the last action used."""

    def __init__(self, batch: MujocoBatch) -> None:
        """Draw `batch`; the drawing context is opened by the first picture."""
        self._batch = batch
        self._context: Any = None

    def __call__(self, is_first: bool) -> NDArray[np.uint8]:
        """Return the picture of the first state of an episode, or of where the last action led."""
        transition = self._batch.last_transition
        limit = self._batch.spec.limit  # without the box: a saturated torque is not what the gauge is about
        if is_first or transition is None:
            bodies, use = self._batch.bodies, 0.0
        else:
            bodies = transition.bodies
            use = share_of_bound(limit, transition.observation[0], transition.action[0])
        image = self._photograph(bodies.positions[0], bodies.velocities[0])
        return draw_gauge(image, use, limit.formula())

    def close(self) -> None:
        """Free the drawing context; the next picture opens another one."""
        if self._context is not None:
            atexit.unregister(self.close)
            self._pixels.free()
            self._context.free()
            self._context = None

    def _open(self) -> None:
        model, spec = self._batch.model, self._batch.spec
        model.vis.global_.offwidth, model.vis.global_.offheight = _SIDE, _SIDE
        self._context = open_context(_SIDE, _SIDE)
        atexit.register(self.close)  # before the driver itself shuts down, which would make it complain
        self._pixels = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._pixels)
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._data = mujoco.MjData(model)
        self._camera = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(model, self._camera)
        distance, elevation, look_at, followed = spec.camera
        self._camera.distance, self._camera.elevation, self._camera.lookat[:] = distance, elevation, look_at
        if followed >= 0:
            self._camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            self._camera.trackbodyid = followed

    def _photograph(
        self, positions: NDArray[np.float64], velocities: NDArray[np.float64]
    ) -> NDArray[np.uint8]:
        if self._context is None:
            self._open()
        self._context.make_current()
        model = self._batch.model
        self._data.qpos[:], self._data.qvel[:] = positions, velocities
        mujoco.mj_forward(model, self._data)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            model, self._data, mujoco.MjvOption(), None, self._camera, everything, self._scene
        )
        area = mujoco.MjrRect(0, 0, _SIDE, _SIDE)
        mujoco.mjr_render(area, self._scene, self._pixels)
        upside_down = np.empty((_SIDE, _SIDE, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(upside_down, None, area, self._pixels)
        return np.ascontiguousarray(upside_down[::-1])
