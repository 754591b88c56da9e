"""Boxes: a lower and an upper limit for every entry of the action, or for its change since the one before."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inbounds.constraints.arrays import Array, all_true, clip, largest, least, stack_rows
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.expressions import Expression
from inbounds.constraints.references import previous_action
from inbounds.constraints.situation import (
    RELATIVE_MARGIN,
    Parameter,
    Situation,
    entry,
    length,
    parameter,
    show,
)
from inbounds.errors import ConstraintError, EmptySetError, MissingDependencyError

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

FAR, FAR_IN_SINGLE = 1e8, 1e4
"""How many times as far away as the rest of a set something is before rounding leaves nothing of the set beside it."""


class Bounds(NamedTuple):
    """The lower and upper limits of a box, as arrays that broadcast with actions."""

    low: Array
    high: Array


class BoxLike(Constraint):
    """A constraint that is a box in every state."""

    @abc.abstractmethod
    def bounds(self, at: Situation) -> Bounds:
        """Return the bounds that `violation` compares with."""

    @abc.abstractmethod
    def inner_bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the bounds that `contains` compares with, or bounds that are some more margins inside."""

    def excess(self, at: Situation, action: Array) -> Array:
        """Return low - a and a - high, entry by entry."""
        return box_excess(at.xp, self.bounds(at), action)

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return the excess over the bounds that `contains` compares with."""
        return box_excess(at.xp, self.inner_bounds(at), action)

    def accepts(self, at: Situation, action: Array) -> Array:
        """Compare every entry with both bounds."""
        low, high = self.inner_bounds(at)
        return all_true(at.xp, (action >= low) & (action <= high))

    def nearest(self, at: Situation, action: Array) -> Array:
        """Clip every entry."""
        return clip(at.xp, action, *self.inner_bounds(at, at.slack))

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return the centre; where a bound is infinite, one unit from the other bound or zero."""
        return box_centre(at.xp, spread(at.xp, self.inner_bounds(at), dimension))

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the smallest ratio of room to speed over the entries."""
        return box_reach(at.xp, self.inner_bounds(at), point, direction)

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return the corner that lies farthest."""
        return corner(at.xp, direction, self.inner_bounds(at, at.slack))


class Box(BoxLike):
    """Actions with `low_i <= a_i <= high_i`; single numbers hold for every entry, infinite ones for none.

    `contains` needs no margin here: it compares exactly with bounds that were rounded inward to float32, so
    that a saturated tanh is accepted. Only bounds that are read from an observation, which may itself have
    been rounded, keep the margin of the other sets.
    """

    def __init__(self, low: Parameter, high: Parameter) -> None:
        """Store the bounds as given, and constant ones also rounded inward to float32."""
        self.low = parameter("Box", "low", low, 1, is_finite=False)
        self.high = parameter("Box", "high", high, 1, is_finite=False)
        self._size = length("Box", low=self.low, high=self.high)
        self._inner_low = None if isinstance(self.low, Expression) else round_inward(self.low, towards=np.inf)
        self._inner_high = (
            None if isinstance(self.high, Expression) else round_inward(self.high, towards=-np.inf)
        )
        self._constant: Bounds | None = None
        if self._inner_low is not None and self._inner_high is not None:
            self._constant = Bounds(np.atleast_1d(self._inner_low), np.atleast_1d(self._inner_high))
            crossed = np.flatnonzero(np.atleast_1d(self._inner_low > self._inner_high))
            if crossed.size:
                width = float(np.min(self.high - self.low))
                raise EmptySetError(
                    f"Box: no action satisfies {self.formula()}; entries {crossed.tolist()} have no float32 "
                    f"number between low and high (the narrowest width is {width:.3g}). Swap or widen them."
                )

    @classmethod
    def from_mjcf(cls, model: Any) -> Box:
        """Return the limits that a MuJoCo model states for its controls, one entry per actuator, in units of `ctrl`.

        These are control ranges and, for motors (whose force is a constant times the control), the force ranges of
        actuators and of the joints that they alone drive, divided by gain and gear. Force ranges of servos limit
        no control by themselves and are left to the simulator. An actuator without limits is unbounded. MJCF has no
        velocity limits of joints.

        Args:
            model: the path of an MJCF file, or a `mujoco.MjModel`.
        """
        return cls(*_control_limits(_mujoco_model(model)))

    def bounds(self, at: Situation) -> Bounds:
        """Return the bounds as they were given."""
        return Bounds(at.value(self.low), at.value(self.high))

    def inner_bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the bounds that `contains` compares with, or bounds that keep more margins."""
        if self._constant is not None and at.xp is np:
            return self._constant
        share = RELATIVE_MARGIN * (at.margins if margins is None else margins)
        if self._inner_low is None:
            low = at.value(self.low) + share * at.magnitude(self.low)
        else:
            low = at.value(self._inner_low)
        if self._inner_high is None:
            high = at.value(self.high) - share * at.magnitude(self.high)
        else:
            high = at.value(self._inner_high)
        return Bounds(low, high)

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Clip every entry to the bounds that `contains` compares with."""
        return clip(at.xp, action, *self.inner_bounds(at))

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the lower and then the upper limits."""
        return [f"a[{i}] >= {entry(self.low, i)}" for i in range(dimension)] + [
            f"a[{i}] <= {entry(self.high, i)}" for i in range(dimension)
        ]

    def formula(self) -> str:
        """Write the limits."""
        return f"{show(self.low)} <= a_i <= {show(self.high)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the bounds as they were given."""
        return {"low": self.low, "high": self.high}

    def size(self) -> int | None:
        """Return the length of the bounds where they are vectors."""
        return self._size


def _mujoco_model(model: Any) -> Any:
    """Return a model that was given, or read it from a file."""
    try:
        import mujoco
    except ImportError as error:
        raise MissingDependencyError(
            "Box.from_mjcf needs MuJoCo, which is not installed. Run: pip install mujoco."
        ) from error
    if isinstance(model, mujoco.MjModel):
        return model
    if not isinstance(model, str | Path):
        raise ConstraintError(
            f"Box.from_mjcf: {model!r} is neither a path nor a model. Pass the path of an MJCF file, or a "
            f"mujoco.MjModel such as env.unwrapped.model."
        )
    try:
        return mujoco.MjModel.from_xml_path(str(model))
    except ValueError as error:
        raise ConstraintError(
            f"Box.from_mjcf: {str(model)!r} cannot be read: {error}. Pass an MJCF file."
        ) from error


def _control_limits(model: Any) -> Bounds:
    """Return the least and the largest control of every actuator of a MuJoCo model."""
    if not model.nu:
        raise ConstraintError("Box.from_mjcf: the model has no actuators. Pass the model of the whole robot.")
    low, high = np.full(model.nu, -np.inf), np.full(model.nu, np.inf)
    drives_joint = model.actuator_trntype == 0  # mjTRN_JOINT
    joints = np.where(drives_joint, model.actuator_trnid[:, 0], -1)
    for i in range(model.nu):
        limits = [model.actuator_ctrlrange[i]] if model.actuator_ctrllimited[i] else []
        # mjGAIN_FIXED, mjBIAS_NONE and mjDYN_NONE: the force is gain * ctrl.
        kinds = (model.actuator_gaintype[i], model.actuator_biastype[i], model.actuator_dyntype[i])
        gain = float(model.actuator_gainprm[i, 0])
        if kinds == (0, 0, 0) and gain != 0.0:
            if model.actuator_forcelimited[i]:
                limits.append(np.sort(model.actuator_forcerange[i] / gain))
            gear, joint = float(model.actuator_gear[i, 0]), joints[i]
            is_alone = joint >= 0 and np.count_nonzero(joints == joint) == 1
            if is_alone and gear != 0.0 and model.jnt_actfrclimited[joint]:
                limits.append(np.sort(model.jnt_actfrcrange[joint] / (gain * gear)))
        for least_control, largest_control in limits:
            low[i], high[i] = max(low[i], least_control), min(high[i], largest_control)
    return Bounds(low, high)


def round_inward(bound: FloatArray, towards: float) -> FloatArray:
    """Round to the nearest float32 that is not outside the bound; inside lies `towards` an infinity.

    Subnormal numbers are passed over: compiled on a CPU, JAX takes them for zero, which may lie outside.
    """
    with np.errstate(over="ignore", under="ignore"):  # also where a program made them errors
        rounded = bound.astype(np.float32)
        is_outside = rounded < bound if towards > 0 else rounded > bound
        inner = np.where(is_outside, np.nextafter(rounded, np.float32(towards)), rounded).astype(np.float64)
    tiny = np.copysign(float(np.finfo(np.float32).tiny), towards)
    is_subnormal = (np.abs(inner) < abs(tiny)) & (bound != 0)
    inner = np.where(is_subnormal, np.where(inner * tiny > 0, tiny, 0.0), inner)
    inner.flags.writeable = False
    return inner


def box_excess(xp: Any, bounds: Bounds, action: Array) -> Array:
    """Return low - a and a - high along the last axis."""
    return stack_rows(xp, [bounds.low - action, action - bounds.high])


def spread(xp: Any, bounds: Bounds, dimension: int) -> Bounds:
    """Give both bounds one entry per dimension and the same leading axes."""
    shape = (*np.broadcast_shapes(bounds.low.shape[:-1], bounds.high.shape[:-1]), dimension)
    return Bounds(xp.broadcast_to(bounds.low, shape), xp.broadcast_to(bounds.high, shape))


def corner(xp: Any, direction: Array, bounds: Bounds) -> Array:
    """Return the point of a box that is farthest along a direction; indifferent entries stay near zero."""
    low, high = bounds
    indifferent = clip(xp, 0.0 * direction, low, high)
    return xp.where(direction > 0, high, xp.where(direction < 0, low, indifferent))


def box_centre(xp: Any, bounds: Bounds) -> Array:
    """Return the middle of a box, one unit inside where one side is infinite, and 0 where both are."""
    low, high = bounds
    has_low, has_high = xp.isfinite(low), xp.isfinite(high)
    near_low, near_high = xp.where(has_low, low, 0.0), xp.where(has_high, high, 0.0)
    one_sided = xp.where(has_low, near_low + 1.0, xp.where(has_high, near_high - 1.0, 0.0))
    return xp.where(has_low & has_high, 0.5 * near_low + 0.5 * near_high, one_sided)


def cut_far_sides(xp: Any, bounds: Bounds, scale: Array) -> Bounds:
    """Return a box without what lies many times as far out as the numbers that matter.

    `scale` is the size of the bounds of a set that is joined with the box. Next to sides like the largest float32
    number, which many action spaces have, nothing of the set would be left by rounding. Infinite sides stay.
    """
    low, high = bounds
    nearest = clip(xp, xp.zeros_like(low), low, high)
    size = xp.maximum(largest(xp, xp.abs(nearest)), scale)[..., None]
    reach = (FAR_IN_SINGLE if low.dtype == xp.float32 else FAR) * xp.where(size > 0, size, 1.0)
    return Bounds(
        xp.where(xp.isfinite(low), xp.maximum(low, nearest - reach), low),
        xp.where(xp.isfinite(high), xp.minimum(high, nearest + reach), high),
    )


def box_reach(xp: Any, bounds: Bounds, point: Array, direction: Array) -> Array:
    """Return how far one can go from a point inside a box before the first side is met."""
    is_moving = direction != 0
    speed = xp.where(is_moving, direction, 1.0)
    room = xp.where(direction > 0, bounds.high - point, bounds.low - point) / speed
    return xp.maximum(least(xp, xp.where(is_moving, room, float("inf"))), 0.0)


class RateLimit(BoxLike):
    """Actions with `|a_i - previous_i| <= delta_i`, where `previous` is what was executed last.

    The previous action is passed along with each question (`previous=previous_action`) or is a part of the
    observation (`previous=obs[...]`).
    """

    def __init__(self, delta: Parameter, previous: Parameter = previous_action) -> None:
        """Store the largest change, a positive number or vector, and where the previous action is read."""
        self.delta = parameter("RateLimit", "delta", delta, 1)
        self.previous = parameter("RateLimit", "previous", previous, 1)
        self._size = length("RateLimit", delta=self.delta, previous=self.previous)
        if not isinstance(self.delta, Expression) and np.any(self.delta <= 0):
            raise ConstraintError(
                f"RateLimit: delta={show(self.delta)} must be positive, otherwise no action may ever change. "
                f"Give every entry a positive delta."
            )

    def bounds(self, at: Situation) -> Bounds:
        """Return previous - delta and previous + delta."""
        previous, delta = at.value(self.previous), at.value(self.delta)
        return Bounds(previous - delta, previous + delta)

    def inner_bounds(self, at: Situation, margins: float | None = None) -> Bounds:
        """Return the bounds less their margin, which is relative to |previous| + delta."""
        low, high = self.bounds(at)
        share = RELATIVE_MARGIN * (at.margins if margins is None else margins)
        margin = share * (at.magnitude(self.previous) + at.magnitude(self.delta))
        return Bounds(low + margin, high - margin)

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the limits on falling and then those on rising."""
        pairs = [(entry(self.previous, i), entry(self.delta, i)) for i in range(dimension)]
        return [f"a[{i}] >= {previous} - {delta}" for i, (previous, delta) in enumerate(pairs)] + [
            f"a[{i}] <= {previous} + {delta}" for i, (previous, delta) in enumerate(pairs)
        ]

    def formula(self) -> str:
        """Write the limit on the change."""
        return f"|a_i - {show(self.previous)}| <= {show(self.delta)}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the limit and where the previous action is read."""
        return {"delta": self.delta, "previous": self.previous}

    def size(self) -> int | None:
        """Return the length of delta or of what is read, where they are vectors."""
        return self._size
