"""Networks in files: arrays under the names that training writes, checked before they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import CheckpointError
from inbounds.limits import MOST_LAYERS
from inbounds.policies.box import FloatArray
from inbounds.policies.coupling_flow import Coupling, Flow
from inbounds.policies.networks import Layer

Arrays = Mapping[str, NDArray[Any]]
Layers = tuple[Layer, ...]


def read_network(arrays: Arrays, name: str) -> Layers:
    """Return the layers called `name/0/weight`, `name/0/bias`, ... after checking that they fit together."""
    layers: list[Layer] = []
    for index in range(_count(arrays, name, "weight")):
        weight, bias = (array_of(arrays, f"{name}/{index}/{part}") for part in ("weight", "bias"))
        inputs = layers[-1].weight.shape[1] if layers else None
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or inputs not in (None, weight.shape[0]):
            raise CheckpointError(
                f"layer {index} of '{name}' is {weight.shape} with a bias of {bias.shape}, which does not fit "
                f"the layer before it. The file is damaged; export or train again."
            )
        layers.append(Layer(weight, bias))
    if not layers:
        raise CheckpointError(
            f"the file holds no network called '{name}'. It is damaged, or the learner's `export` has another name "
            f"for it; export or train again."
        )
    return _with_inputs_folded(arrays, name, tuple(layers))


def read_flow(arrays: Arrays, name: str) -> Flow:
    """Return the couplings called `name/0/scale`, `name/0/shift`, ..."""
    count = _count(arrays, name, "scale/0/weight")
    if not 1 <= count <= MOST_LAYERS:
        raise CheckpointError(
            f"the file holds {count} couplings called '{name}', but 1 to {MOST_LAYERS} are possible. Train again."
        )
    return tuple(
        Coupling(read_network(arrays, f"{name}/{index}/scale"), read_network(arrays, f"{name}/{index}/shift"))
        for index in range(count)
    )


def array_of(arrays: Arrays, name: str, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return one array of finite float32 numbers, of this shape where one is given, or refuse the file."""
    array = arrays.get(name)
    if array is None:
        raise CheckpointError(f"the file lacks '{name}'. It is damaged or of another version; train again.")
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise CheckpointError(
            f"'{name}' holds {array.dtype} values that are not all finite float32 numbers. Train again."
        )
    if shape not in (None, array.shape):
        raise CheckpointError(f"'{name}' has shape {array.shape}, but {shape} is expected. Train again.")
    return array


def named_arrays(tree: Any, name: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of nested mappings and tuples under the names that are read above."""
    if isinstance(tree, Mapping):
        parts: Any = tree.items()
    elif isinstance(tree, tuple):
        parts = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        return {name: np.ascontiguousarray(tree)}
    named: dict[str, NDArray[Any]] = {}
    for key, part in parts:
        named |= named_arrays(part, f"{name}/{key}" if name else str(key))
    return named


def _count(arrays: Arrays, name: str, part: str) -> int:
    """Return how many of `name/0/part`, `name/1/part`, ... there are."""
    pattern = re.compile(rf"{re.escape(name)}/\d+/{part}")
    return sum(1 for key in arrays if pattern.fullmatch(key))


def _with_inputs_folded(arrays: Arrays, name: str, layers: Layers) -> Layers:
    """Put (inputs - shift) / scale into the first layer: (x - m)/s W + b = x (W/s) + (b - (m/s) W)."""
    names = [f"{name}/0/input_{part}" for part in ("shift", "scale")]
    if not any(one in arrays for one in names):
        return layers
    shift, scale = (array_of(arrays, one) for one in names)
    weight, bias = layers[0]
    if shift.shape != weight.shape[:1] or scale.shape != shift.shape or not (scale > 0).all():
        raise CheckpointError(
            f"the inputs of '{name}' are scaled by {scale.shape} numbers, but its first layer has "
            f"{weight.shape[0]} inputs, or a scale is not positive. The file is damaged; train again."
        )
    scaled = weight.astype(np.float64) / scale[:, None]
    moved = bias - shift.astype(np.float64) @ scaled
    return (Layer(scaled.astype(np.float32), moved.astype(np.float32)), *layers[1:])
