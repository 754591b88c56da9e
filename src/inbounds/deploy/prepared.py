"""The fast path of a deployed policy: one observation, NumPy alone, all that is constant computed beforehand.

The numbers are those of `inbounds.policies.networks` and `inbounds.policies.heads.SquashedGaussian`, in fewer passes.
"""

from __future__ import annotations

import numpy as np

from inbounds.policies.box import ActionBox, FloatArray
from inbounds.policies.gaussian import LOG_STD_MAX, LOG_STD_MIN, MOST_OUT
from inbounds.policies.heads import SquashedGaussian
from inbounds.policies.stored_networks import Layers


class PreparedNetwork:
    """A network for one observation at a time, with a constant preference put in."""

    def __init__(self, layers: Layers, preference: FloatArray | None) -> None:
        """Add the preference's part to the first bias, and keep zeros to compare with, faster than a number."""
        (weight, bias), *others = layers
        if preference is not None:
            inputs = len(weight) - len(preference)
            weight, bias = np.ascontiguousarray(weight[:inputs]), bias + preference @ weight[inputs:]
        *inner, self._last = [(weight, bias), *others]
        self._inner = [(weight, bias, np.zeros_like(bias)) for weight, bias in inner]

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return the output."""
        hidden = observation
        for weight, bias, zeros in self._inner:
            hidden = hidden.dot(weight)  # the method, which is looked up faster than the function
            hidden += bias
            np.maximum(hidden, zeros, out=hidden)
        weight, bias = self._last
        output: FloatArray = hidden.dot(weight)
        output += bias
        return output


class PreparedGaussian:
    """A squashed Gaussian for one observation at a time."""

    def __init__(self, network: PreparedNetwork, head: SquashedGaussian, box: ActionBox) -> None:
        """Keep limits as arrays, with which NumPy compares faster than with numbers."""
        self._network, self._reference, self._box, self._size = network, head.reference, box, box.size
        self._log_std = [np.full(box.size, end, np.float32) for end in (LOG_STD_MIN, LOG_STD_MAX)]
        self._most_out = [np.full(box.size, end, np.float32) for end in (-MOST_OUT, MOST_OUT)]
        self._is_unit = bool((box.low == -1).all() and (box.high == 1).all())
        is_alike = box.size > 0 and bool((box.low == box.low[0]).all() and (box.high == box.high[0]).all())
        # Many rows are compared faster with numbers that have no axis.
        self._limits = (np.asarray(box.low[0]), np.asarray(box.high[0])) if is_alike else (box.low, box.high)

    def __call__(self, observation: FloatArray) -> FloatArray:
        """Return mean and log-std; the mean is around the observed reference action where the head has one."""
        output = self._network(observation)
        if self._reference is not None:
            squashed = (self._reference.read(observation) - self._box.middle) / self._box.divisor
            lowest, highest = self._most_out
            output[: self._size] += np.arctanh(np.minimum(np.maximum(squashed, lowest), highest))
        return output

    def drawn(self, output: FloatArray, noise: FloatArray) -> FloatArray:
        """Return rescale(tanh(mean + std * noise)) of one row of noise or of several."""
        size = self._size
        lowest, highest = self._log_std
        std = np.maximum(output[size:], lowest)
        np.minimum(std, highest, out=std)
        drawn: FloatArray = noise * np.exp(std, out=std)
        drawn += output[:size]
        np.tanh(drawn, out=drawn)
        if not self._is_unit:
            drawn *= self._box.half
            drawn += self._box.middle
        lowest, highest = self._limits
        np.maximum(drawn, lowest, out=drawn)
        return np.minimum(drawn, highest, out=drawn)
