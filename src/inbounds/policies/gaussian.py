"""Gaussian policies squashed by tanh, in any array library: from a network's output to actions and densities."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from inbounds.constraints.arrays import clip, convert, namespace_of
from inbounds.constraints.references import Reference
from inbounds.policies.box import ActionBox

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
MOST_OUT = 0.99
"""Largest absolute reference action on [-1, 1]: the bounds of the box are at infinity before tanh."""


class Gaussian(NamedTuple):
    """Independent entries before squashing: mean and log-std, each (..., d)."""

    mean: Any
    log_std: Any


class Squashed(NamedTuple):
    """A sample in [-1, 1] with its log-density there."""

    value: Any
    log_density: Any


def gaussian_of(output: Any) -> Gaussian:
    """Split a network's output (..., 2 d) into mean and log-std; the log-std is clipped to its usual range."""
    size = output.shape[-1] // 2
    log_std = clip(namespace_of(output), output[..., size:], LOG_STD_MIN, LOG_STD_MAX)
    return Gaussian(output[..., :size], log_std)


def around_reference(
    gaussian: Gaussian, box: ActionBox, observation: Any, reference: Reference | None
) -> Gaussian:
    """Return the Gaussian with its mean as a residual around the reference action that the observation holds.

    A mean of zero then gives the reference action. Without a reference the Gaussian stays as it is.
    """
    if reference is None:
        return gaussian
    xp = namespace_of(gaussian.mean)
    suggested = reference.read(convert(observation, xp, xp.float32))
    return gaussian._replace(mean=gaussian.mean + before_squashing(box, suggested))


def squashed_actions(gaussian: Gaussian, box: ActionBox, noise: Any) -> Any:
    """Return rescale(tanh(mean + std * noise)), actions in the units of `env.step`."""
    return box.rescale(namespace_of(noise).tanh(sample(gaussian, noise)))


def sample(gaussian: Gaussian, noise: Any) -> Any:
    """Return mean + std * noise before squashing. Extra leading axes of `noise` draw more than once."""
    return gaussian.mean + namespace_of(noise).exp(gaussian.log_std) * noise


def log_normal(gaussian: Gaussian, noise: Any) -> Any:
    """Return log N(mean + std * noise; mean, std), entry by entry."""
    return -0.5 * (noise**2 + math.log(2 * math.pi)) - gaussian.log_std


def squash(gaussian: Gaussian, noise: Any) -> Squashed:
    """Return tanh(mean + std * noise) and its log-density.

    log pi(a) = sum_i [ log N(x_i; mean_i, std_i) - log(1 - tanh(x_i)^2) ].
    """
    xp, unsquashed = namespace_of(noise), sample(gaussian, noise)
    log_density = xp.sum(log_normal(gaussian, noise) - log_tanh_slope(unsquashed), axis=-1)
    return Squashed(xp.tanh(unsquashed), log_density)


def log_tanh_slope(values: Any) -> Any:
    """Return log(1 - tanh(x)^2) as 2 (log 2 - x - softplus(-2x)), which does not overflow."""
    return 2.0 * (math.log(2.0) - values - namespace_of(values).logaddexp(-2.0 * values, 0.0))


def before_squashing(box: ActionBox, action: Any) -> Any:
    """Return arctanh of an action on [-1, 1] in float32; the bounds of the box are moved to +-0.99."""
    xp = namespace_of(action)
    return xp.atanh(clip(xp, box.normalise(convert(action, xp, xp.float32)), -MOST_OUT, MOST_OUT))
