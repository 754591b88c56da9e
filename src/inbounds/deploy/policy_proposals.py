"""How the output of a network becomes proposals, for every learner that acts through a network and a map.

Written for any array library, since the same lines act with numpy and are written into an exported graph.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Constraint
from inbounds.constraints.arrays import clip, convert, repeat
from inbounds.constraints.intersection import BoxLike
from inbounds.constraints.situation import Situation
from inbounds.constraints.sum_band import SumBand
from inbounds.deploy.policy_network import FloatArray, Layers, forward

LOG_DEVIATION_RANGE = (-20.0, 2.0)
INSIDE = 1.0 - 1e-5
"""How much of the way to the boundary the layers along rays use; the same as in training."""


class Asked(NamedTuple):
    """One question to a policy: arrays of the library `xp`."""

    xp: Any
    observation: Any
    """float64, as the environment returned it."""
    previous_action: Any
    output: Any
    """What the network says, a float32 vector."""
    noise: Any
    """(N, d) float32; one row of zeros for the action that the policy is centred on."""


class Head(Protocol):
    """Turns the network's output into N proposals, (N, d) float32, in the units of `env.step`."""

    @property
    def box(self) -> Range:
        """Return the box of actions."""

    @property
    def takes_noise(self) -> bool:
        """Tell whether proposals differ."""

    def proposals(self, asked: Asked) -> Any:
        """Return the proposals in the order in which they are tried."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The box that squashed outputs in [-1, 1] are stretched over."""

    low: FloatArray
    high: FloatArray

    @functools.cached_property
    def middle(self) -> FloatArray:
        """Return the centre."""
        return np.float32(0.5) * (self.high + self.low)

    @functools.cached_property
    def half(self) -> FloatArray:
        """Return half the widths."""
        return np.float32(0.5) * (self.high - self.low)

    @functools.cached_property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Return low and high, without an axis where all entries are alike: many rows are compared faster then."""
        low, high = self.low, self.high
        is_alike = len(low) > 0 and bool((low == low[0]).all() and (high == high[0]).all())
        return (np.asarray(low[0]), np.asarray(high[0])) if is_alike else (low, high)

    @functools.cached_property
    def is_unit(self) -> bool:
        """Tell whether this is [-1, 1] in every entry, so that nothing has to be stretched."""
        return bool((self.low == -1).all() and (self.high == 1).all())

    def holds(self, constraint: Constraint) -> bool:
        """Tell whether a constraint is a constant box that accepts all of this one."""
        if not isinstance(constraint, Box) or not constraint.is_constant():
            return False
        at, corners = Situation(np, np.float64, None, None), np.stack([self.low, self.high])
        return bool(constraint.accepts(at, corners.astype(np.float64)).all())

    def stretched(self, xp: Any, squashed: Any) -> Any:
        """Map [-1, 1] to the box in float32; rounding never leaves it."""
        low, high, middle, half = self.low, self.high, self.middle, self.half
        if xp is not np:
            low, high, middle, half = (xp.asarray(side) for side in (low, high, middle, half))
        return clip(xp, middle + half * convert(squashed, xp, xp.float32), low, high)


@dataclasses.dataclass(frozen=True)
class Squashed:
    """The action itself, a = stretch(tanh(output)); the constraint does the rest."""

    box: Range
    takes_noise: bool = False

    def proposals(self, asked: Asked) -> Any:
        """Return the only proposal."""
        return self.box.stretched(asked.xp, asked.xp.tanh(asked.output))[None, :]


@dataclasses.dataclass(frozen=True)
class NoisySquashed:
    """Actions around the network's, a = stretch(clip(tanh(output) + exploration noise))."""

    box: Range
    exploration: float
    takes_noise: bool = True

    def proposals(self, asked: Asked) -> Any:
        """Return one proposal per row of noise."""
        xp = asked.xp
        around = xp.tanh(asked.output) + self.exploration * asked.noise
        return self.box.stretched(xp, clip(xp, around, -1.0, 1.0))


@dataclasses.dataclass(frozen=True)
class SquashedGaussian:
    """Draws a = stretch(tanh(mean + deviation noise)); the network says mean and log-deviation."""

    box: Range
    takes_noise: bool = True

    @functools.cached_property
    def log_deviation_limits(self) -> tuple[FloatArray, FloatArray]:
        """Return both limits as arrays, with which numpy compares faster than with numbers."""
        low, high = (np.full(len(self.box.low), end, np.float32) for end in LOG_DEVIATION_RANGE)
        return low, high

    def proposals(self, asked: Asked) -> Any:
        """Return one proposal per row of noise."""
        if asked.xp is not np:
            return self.box.stretched(asked.xp, asked.xp.tanh(gaussian(asked)))
        return self.drawn(asked.output, asked.noise)

    def drawn(self, output: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the same for numpy in fewer passes, of one row or of several: a robot waits for this one."""
        box, size = self.box, len(self.box.low)
        lowest, highest = self.log_deviation_limits
        deviation = np.maximum(output[size:], lowest)
        np.minimum(deviation, highest, out=deviation)
        drawn: FloatArray = noise * np.exp(deviation, out=deviation)
        drawn += output[:size]
        np.tanh(drawn, out=drawn)
        if not box.is_unit:
            drawn *= box.half
            drawn += box.middle
        lowest, highest = box.limits
        np.maximum(drawn, lowest, out=drawn)
        return np.minimum(drawn, highest, out=drawn)


@dataclasses.dataclass(frozen=True)
class PlainGaussian:
    """Draws around a squashed mean with one deviation for all states, not cut off at the box."""

    box: Range
    log_deviation: FloatArray
    takes_noise: bool = True

    def proposals(self, asked: Asked) -> Any:
        """Return one proposal per row of noise."""
        xp = asked.xp
        drawn = xp.tanh(asked.output) + xp.asarray(np.exp(self.log_deviation)) * asked.noise
        return drawn * xp.asarray(self.box.half) + xp.asarray(self.box.middle)


@dataclasses.dataclass(frozen=True)
class AlongRays:
    """Moves what the network says along the ray from a centre of the set until it is inside.

    With v the offset from the centre c and L(v) its gauge: c + v / max(L, 1) ("alpha"), or the smooth
    c + (tanh(L) / L) v ("radial"), of tanh(output) or of a Gaussian.
    """

    box: Range
    constraint: Constraint
    is_smooth: bool
    takes_noise: bool

    def proposals(self, asked: Asked) -> Any:
        """Return what the layer makes of each draw, in float64 until the very end."""
        xp = asked.xp
        raw = gaussian(asked) if self.takes_noise else xp.tanh(asked.output)[None, :]
        middle, half = (xp.asarray(side.astype(np.float64)) for side in (self.box.middle, self.box.half))
        previous = {"previous_action": asked.previous_action}
        interior = self.constraint.interior_point(asked.observation, dimension=len(self.box.low), **previous)
        centre = (interior - middle) / half
        offset = convert(raw, xp, xp.float64) - centre
        is_centre = xp.all(offset == 0, axis=-1)[..., None]
        heading = half * xp.where(is_centre, 1.0, offset)
        start = xp.broadcast_to(interior, heading.shape)
        length = self.constraint.distance(asked.observation, start, heading, **previous)
        gauge = xp.where(is_centre, 0.0, 1.0 / xp.maximum(length, 1e-300)[..., None])
        if self.is_smooth:
            is_small = gauge < 1e-2
            size, square = xp.where(is_small, 1.0, gauge), gauge * gauge
            series = 1.0 - square / 3.0 + 2.0 * square * square / 15.0
            factor = INSIDE * xp.where(is_small, series, xp.tanh(size) / size)
        else:
            factor = INSIDE / xp.maximum(gauge, INSIDE)
        return self.box.stretched(xp, centre + factor * offset)


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Shifts the stretched output to a total and clamps it to its limits, in as many rounds as entries."""

    box: Range
    constraint: Constraint
    takes_noise: bool = False

    def proposals(self, asked: Asked) -> Any:
        """Return the allocation as the only proposal."""
        xp = asked.xp
        squashed = self.box.stretched(xp, xp.tanh(asked.output))
        at, target, _ = self.constraint.situation(asked.observation, squashed, asked.previous_action)
        low, high = (xp.asarray(side.astype(np.float64)) for side in (self.box.low, self.box.high))
        amount = xp.zeros_like(target[..., 0])
        for member in self.constraint.members():
            if isinstance(member, SumBand):
                amount = amount + at.value(member.total, axes=0)
                low = low if member.low is None else xp.maximum(low, at.value(member.low))
                high = high if member.high is None else xp.minimum(high, at.value(member.high))
            elif isinstance(member, BoxLike):
                own = member.inner_bounds(at)
                low, high = xp.maximum(low, own.low), xp.minimum(high, own.high)

        def shared(is_low: Any, is_high: Any) -> Any:
            is_free = ~(is_low | is_high)
            fixed = xp.where(is_low, low, high)
            count = xp.maximum(xp.sum(convert(is_free, xp, xp.float64), axis=-1), 1.0)
            shift = (amount - xp.sum(xp.where(is_free, target, fixed), axis=-1)) / count
            return xp.where(is_free, target + shift[..., None], fixed)

        nothing, size = xp.zeros_like(target, dtype=xp.bool), target.shape[-1]
        is_low = repeat(size, lambda _, clamped: clamped | (shared(clamped, nothing) < low), nothing)
        is_high = repeat(size, lambda _, clamped: clamped | (shared(is_low, clamped) > high), nothing)
        # Training maps the result to [-1, 1] and back, which clips it to the box.
        return convert(clip(xp, shared(is_low, is_high), low, high), xp, xp.float32)[None, :]


@dataclasses.dataclass(frozen=True)
class ThroughFlow:
    """Maps the latent tanh(output) through a flow of affine couplings that depends on what the set reads."""

    box: Range
    couplings: tuple[tuple[Layers, Layers], ...]
    """Scale and shift network of every layer."""
    places: NDArray[np.int64]
    """Entries of the observation that the constraint reads."""
    condition_range: tuple[float, float]
    takes_noise: bool = False

    def proposals(self, asked: Asked) -> Any:
        """Return g(z, y) as the only proposal."""
        xp = asked.xp
        low, high = self.condition_range
        read = xp.take(convert(asked.observation, xp, xp.float32), xp.asarray(self.places), axis=-1)
        condition = (read - 0.5 * (low + high)) / (0.5 * (high - low))
        value = xp.tanh(asked.output)
        size = value.shape[-1]
        is_first = np.arange(size) < (size + 1) // 2
        for index, (scale, shift) in enumerate(self.couplings):
            mask = (is_first if index % 2 == 0 else ~is_first).astype(np.float32)
            inputs = xp.concat([value * xp.asarray(mask), condition], axis=-1)[None, :]
            outside = xp.asarray(np.float32(1.0) - mask)
            log_scale = xp.tanh(forward(xp, scale, inputs)[0]) * outside
            value = value * xp.exp(log_scale) + forward(xp, shift, inputs)[0] * outside
        return self.box.stretched(xp, clip(xp, value, -1.0, 1.0))[None, :]


def gaussian(asked: Asked) -> Any:
    """Return mean + deviation * noise, row by row."""
    xp = asked.xp
    size = asked.noise.shape[-1]
    mean, log_deviation = asked.output[:size], asked.output[size:]
    return mean + xp.exp(clip(xp, log_deviation, *LOG_DEVIATION_RANGE)) * asked.noise
