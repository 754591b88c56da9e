"""The network of a deployed policy: read from arrays, checked, and with what its inputs are relative to folded in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError

FloatArray = NDArray[np.float32]
Layers = tuple[tuple[FloatArray, FloatArray], ...]
"""Weight and bias of every layer: `inputs @ weight + bias`; all but the last are rectified."""

Arrays = Mapping[str, NDArray[Any]]


def read_layers(arrays: Arrays, name: str) -> Layers:
    """Return the layers called `name/0/weight`, `name/0/bias`, ... after checking that they fit together."""
    depth = sum(1 for key in arrays if key.startswith(f"{name}/") and key.endswith("/weight"))
    layers: list[tuple[FloatArray, FloatArray]] = []
    for index in range(depth):
        weight, bias = (array_of(arrays, f"{name}/{index}/{part}") for part in ("weight", "bias"))
        inputs = layers[-1][0].shape[1] if layers else None
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or inputs not in (None, weight.shape[0]):
            raise CheckpointError(
                f"layer {index} of '{name}' is {weight.shape} with a bias of {bias.shape}, which does not fit "
                f"the layer before it. The file is damaged; export or train again."
            )
        layers.append((weight, bias))
    if not layers:
        raise CheckpointError(
            f"the file holds no network called '{name}'. It is damaged; export or train again."
        )
    return _with_inputs_folded(arrays, name, tuple(layers))


def array_of(arrays: Arrays, name: str) -> FloatArray:
    """Return one array of finite float32 numbers, or refuse the file."""
    array = arrays.get(name)
    if array is None:
        raise CheckpointError(f"the file lacks '{name}'. It is damaged or of another version; train again.")
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise CheckpointError(
            f"'{name}' holds {array.dtype} values that are not all finite float32 numbers. Train again."
        )
    return array


def _with_inputs_folded(arrays: Arrays, name: str, layers: Layers) -> Layers:
    """Put (inputs - shift) / scale into the first layer: (x - m)/s W + b = x (W/s) + (b - (m/s) W)."""
    if f"{name}/input_shift" not in arrays and f"{name}/input_scale" not in arrays:
        return layers
    shift, scale = (array_of(arrays, f"{name}/input_{part}") for part in ("shift", "scale"))
    weight, bias = layers[0]
    if shift.shape != weight.shape[:1] or scale.shape != shift.shape or not (scale > 0).all():
        raise CheckpointError(
            f"the inputs of '{name}' are scaled by {scale.shape} numbers, but its first layer has "
            f"{weight.shape[0]} inputs, or a scale is not positive. The file is damaged; train again."
        )
    scaled = weight.astype(np.float64) / scale[:, None]
    moved = bias - shift.astype(np.float64) @ scaled
    return ((scaled.astype(np.float32), moved.astype(np.float32)), *layers[1:])


def layer_arrays(name: str, layers: Layers) -> dict[str, NDArray[Any]]:
    """Return layers under the names that `read_layers` reads."""
    named: dict[str, NDArray[Any]] = {}
    for index, (weight, bias) in enumerate(layers):
        named |= {f"{name}/{index}/weight": weight, f"{name}/{index}/bias": bias}
    return named


class PreparedNetwork:
    """The network for one observation at a time, with what never changes put in: numpy alone, as fast as it goes."""

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


def forward(xp: Any, layers: Layers, inputs: Any) -> Any:
    """Return the outputs for rows of inputs, in any array library."""
    hidden = inputs
    for index, (weight, bias) in enumerate(layers):
        hidden = xp.matmul(hidden, xp.asarray(weight)) + xp.asarray(bias)
        if index < len(layers) - 1:
            hidden = xp.maximum(hidden, 0.0)
    return hidden
