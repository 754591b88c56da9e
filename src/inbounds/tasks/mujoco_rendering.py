"""Pictures of MuJoCo environments without a display, through EGL (graphics card or Mesa) or OSMesa."""

from __future__ import annotations

import atexit
import importlib
import os
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from inbounds.errors import MissingDependencyError
from inbounds.tasks.drawing import draw_gauge
from inbounds.tasks.guard import share_of_bound
from inbounds.tasks.mujoco_batch import MujocoBatch

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
