"""Which array library a value belongs to, and whether it is fit to be checked: shape, type, finite numbers."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from inbounds.errors import InvalidInputError, MissingDependencyError

Array = Any
"""An array of numpy, JAX, torch or any other array-API library."""

LARGE = 1e100
"""Products of three numbers below this do not overflow in float64."""
SMALLEST = float(np.finfo(np.float64).smallest_normal)
"""Of the numbers that are rounded by no more than half a unit of the last place."""
SHORT = 40
"""Up to so many entries Python adds numbers faster than numpy."""


def is_jax(array: object) -> bool:
    """Tell whether an array is JAX's (traced ones included) without importing JAX."""
    return type(array).__module__.split(".", 1)[0] in ("jax", "jaxlib")


def is_traced(array: Array) -> bool:
    """Tell whether an array of JAX, or of a graph that is being written, has no values yet to be checked."""
    if isinstance(array, (np.ndarray, np.generic)):
        return False
    if not is_jax(array):
        return bool(getattr(array, "is_symbolic", False))
    import jax

    return isinstance(array, jax.core.Tracer)


def is_tensor(value: Any) -> bool:
    """Tell whether a value is a tensor of torch, without importing torch."""
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(value).__mro__)


def is_array(value: object) -> bool:
    """Tell whether a value already belongs to an array library."""
    if isinstance(value, np.ndarray):
        return True
    return is_jax(value) or hasattr(value, "__array_namespace__") or type(value).__module__ == "torch"


def namespace_of(array: Array) -> Any:
    """Return the array-API functions that act on `array`; numpy first, as a deployed policy asks often."""
    if isinstance(array, np.ndarray | np.generic):
        return np
    if is_jax(array):
        import jax.numpy as jnp

        return jnp
    from array_api_compat import array_namespace

    return array_namespace(array)


def working_dtype(xp: Any) -> Any:
    """Return the type to compute in: float64 where the library has it, JAX's own default there."""
    if xp is np or not xp.__name__.startswith("jax"):
        return xp.float64
    refuse_miscompiling_jax()
    import jax

    return jax.dtypes.canonicalize_dtype(np.float64)


@functools.cache
def refuse_miscompiling_jax() -> None:
    """Refuse jaxlib 0.10.2 on CPUs: it compiles sums over the last axis of more than 32,768 entries wrongly."""
    import jax
    import jaxlib.version

    if jaxlib.version.__version__ == "0.10.2" and jax.default_backend() == "cpu":
        raise MissingDependencyError(
            "jaxlib 0.10.2 computes wrong sums in large batches on CPUs, so that infeasible actions may seem feasible. "
            "Install another version: pip install 'jax!=0.10.2'."
        )


def as_array(name: str, value: Any) -> Array:
    """Accept real arrays of any library as they are and turn lists of numbers into float64 numpy arrays."""
    if is_array(value):
        array = value
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
            # Other kinds of arrays of numpy calculate in their own way: a matrix keeps two axes, a mask hides NaN.
            require_no_mask(name, value)
            array = np.asarray(value)
        xp = namespace_of(array)
        is_real = (
            array.dtype.kind in "fiu" if xp is np else xp.isdtype(array.dtype, ("real floating", "integral"))
        )
        if not is_real:
            raise InvalidInputError(
                f"the {name} has type {array.dtype}, but real numbers are expected. Convert it to float32."
            )
        if xp is np and array.dtype.char == "g":
            with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused
                array = array.astype(np.float64)
    else:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"the {name} is {value!r}, which is not an array of numbers. Pass an array of floats."
            ) from error
    if array.ndim == 0:
        raise InvalidInputError(
            f"the {name} is a single number, but a vector with one entry per dimension is expected. "
            f"Wrap it in a list."
        )
    return array


def require_no_mask(name: str, value: Any) -> None:
    """Refuse an array of which entries are masked: what lies below a mask is not meant to be used."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInputError(
            f"the {name} is a masked array with missing entries ({value}). Fill them in: array.filled(value)."
        )


def require_values(name: str, tensor: Array) -> None:
    """Refuse tensors that hold no number for every entry: sparse ones, and shapes without values."""
    if str(tensor.layout) != "torch.strided" or tensor.is_meta:
        kind = "on the device 'meta'" if tensor.is_meta else f"of layout {tensor.layout}"
        raise InvalidInputError(
            f"the {name} are a tensor {kind}, which does not hold a number for every entry. Pass a dense one: "
            f"tensor.to_dense()."
        )


def as_numpy(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return real numbers of any library as an array of numpy, of their own type; all else is refused.

    What lies below a mask, or beside a real part, is not to be dropped on the way.
    """
    if type(value) is np.ndarray:
        array: np.ndarray[Any, Any] = value
    else:
        for part in value if isinstance(value, list | tuple) else (value,):
            require_no_mask(name, part)
        try:
            array = np.asarray(detached(value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise _no_numbers(name, str(error)) from error
    if array.dtype.kind in "fiub":
        return array
    if array.dtype.kind in "cSUMm":
        raise _no_numbers(name, f"it has type {array.dtype}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_numbers(name, str(error)) from error


def _no_numbers(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"the {name} is not an array of real numbers ({why}). Pass a vector of floats.")


def detached(value: Any) -> Any:
    """Return a tensor of torch without its gradient, which numpy does not read; anything else as it is."""
    return value.detach() if is_tensor(value) else value


def require_finite(name: str, array: Array) -> float:
    """Refuse NaN and infinities wherever values are known; a traced array is checked by comparison instead.

    Returns a number that no entry exceeds in size: infinity where the values are not looked at.
    """
    if isinstance(array, np.ndarray):
        size = float(np.maximum.reduce(np.abs(array), axis=None, initial=0))
        is_finite = math.isfinite(size)
    elif is_traced(array):
        return math.inf
    else:
        xp, size = namespace_of(array), math.inf
        # Inside a compiled function even what is done to known values would only be known later.
        with known_now(array):
            is_finite = bool(xp.all(xp.isfinite(array)))
    if not is_finite:
        raise InvalidInputError(
            f"the {name} holds a value that is not finite, so it cannot be checked or executed: {array}. "
            f"Look for a diverged policy or a broken sensor, and pass finite numbers."
        )
    return size


def all_finite(values: np.ndarray[Any, Any]) -> bool:
    """Tell whether all entries of a numpy array are finite; of a short vector a sum tells it fastest."""
    if values.ndim == 1 and values.size <= SHORT and math.isfinite(sum(values.tolist())):
        return True
    return bool(np.isfinite(values).all())


def largest_size(vectors: Sequence[np.ndarray[Any, Any] | None]) -> float:
    """Return a number that no entry of finite vectors exceeds in size: for short ones the length of all together."""
    known = [values for values in vectors if values is not None]
    if sum(map(len, known)) > SHORT:
        return max(float(np.abs(values).max(initial=0.0)) for values in known)
    entries: list[float] = []
    for values in known:
        entries += values.tolist()
    return math.hypot(*entries)


def known_now(array: Array) -> AbstractContextManager[Any]:
    """Return a context in which JAX computes with known values at once, also where a function is being compiled."""
    if not is_jax(array):
        return contextlib.nullcontext()
    import jax

    return jax.ensure_compile_time_eval()


def convert(array: Array, xp: Any, dtype: Any, device: Any = None) -> Array:
    """Bring an array to a library and number type, keeping gradients where the library stays the same."""
    if isinstance(array, np.ndarray):
        if xp is np:
            return array if array.dtype == dtype else array.astype(dtype)
        if device is None:
            return xp.asarray(array, dtype=dtype)
        # Only torch has a device here, and it shares memory: constants that must not change are copied.
        return xp.asarray(np.array(array), dtype=dtype, device=device)
    if namespace_of(array) is xp:
        return array if array.dtype == dtype else xp.astype(array, dtype)
    return convert(np.asarray(detached(array)), xp, dtype, device)


def rounded_within(array: Array, xp: Any, dtype: Any) -> Array:
    """Convert; finite numbers beyond the range of float32 become its largest ones, which may be allowed."""
    if dtype != xp.float32 or array.dtype == dtype:
        return convert(array, xp, dtype)
    most = float(np.finfo(np.float32).max)
    return convert(xp.where(xp.isfinite(array), clip(xp, array, -most, most), array), xp, dtype)


def without_gradient(array: Array) -> Array:
    """Return an array that automatic differentiation takes for a constant."""
    if isinstance(array, np.ndarray | np.generic):
        return array
    if is_jax(array):
        import jax

        return jax.lax.stop_gradient(array)
    return array.detach() if type(array).__module__ == "torch" else array


def control_flow(array: Array) -> Any:
    """Return where `fori_loop` and `cond` are for arrays without values: in jax.lax, or in their own library."""
    if not is_jax(array):
        return namespace_of(array)
    import jax

    return jax.lax


def repeat(count: int, step: Callable[[Any, Array], Array], array: Array) -> Array:
    """Apply a step a fixed number of times; a library that compiles does so once."""
    if is_traced(array):
        return control_flow(array).fori_loop(0, count, step, array)
    for index in range(count):
        array = step(index, array)
    return array


def repeated(
    count: int,
    function: Callable[[Any], Any],
    start: Any,
    is_settled: Callable[[Any, Any], Array] | None = None,
) -> Any:
    """Apply a function a fixed number of times to an array or a tuple of arrays, or until it is settled.

    JAX takes all the steps, so that it can differentiate and batch them; the body is compiled once.
    """
    first = start[0] if isinstance(start, tuple) else start
    if is_traced(first):
        flow = control_flow(first)
        if is_settled is not None and hasattr(flow, "settling_loop"):
            return flow.settling_loop(count, function, start, is_settled)
        return flow.fori_loop(0, count, lambda _, state: function(state), start)
    for _ in range(count if 0 not in first.shape else 0):  # an empty batch is settled
        before, start = start, function(start)
        if is_settled is not None and bool(is_settled(before, start)):
            break
    return start


def total(xp: Any, values: Array) -> Array:
    """Return the sum along the last axis."""
    return np.add.reduce(values, axis=-1) if xp is np else xp.sum(values, axis=-1)


def constant_like(array: Array, values: Any) -> Array:
    """Return numpy values as an array of the same library and on the same device as another."""
    xp = namespace_of(array)
    return xp.asarray(values, device=array.device) if "torch" in xp.__name__ else xp.asarray(values)


def dot(xp: Any, left: Array, right: Array) -> Array:
    """Return sum_j left_j right_j over the last axis.

    On an accelerator a matrix product of float32 numbers may be computed with a 10-bit mantissa, which would
    break the promise of `contains`; products and a sum are exact to rounding everywhere.
    """
    if xp is np and left.shape[-1] == right.shape[-1]:
        return np.vecdot(left, right)
    return total(xp, left * right)


def lengths_of(xp: Any, vectors: Array) -> Array:
    """Return Euclidean lengths along the last axis, also where the squares of entries overflow or vanish.

    There a compiled function returns the sum of the entries' sizes, which is longer by at most the root of their
    number: numpy divides by the largest entry first, but XLA turns the square of a quotient into a quotient of squares.
    """
    kind = np.float32 if vectors.dtype == xp.float32 else np.float64
    limits = np.finfo(kind)
    shortest, most = float(limits.tiny) ** 0.5 / float(limits.eps), float(limits.max)
    with np.errstate(over="ignore"):
        lengths = xp.sqrt(total(xp, vectors * vectors))
        is_length = (lengths > shortest) & (lengths < float("inf"))
        if xp is not np:
            return xp.where(is_length, lengths, xp.minimum(total(xp, xp.abs(vectors)), most))
        if is_everywhere(is_length):
            return lengths
        size = np.max(np.abs(vectors), axis=-1, initial=0.0)
        shares = vectors / np.where(size > 0, size, 1.0)[..., None]
        return np.where(is_length, lengths, np.minimum(size * np.sqrt(total(np, shares * shares)), most))


def least(xp: Any, values: Array) -> Array:
    """Return the smallest entry along the last axis."""
    return np.minimum.reduce(values, axis=-1) if xp is np else xp.min(values, axis=-1)


def largest(xp: Any, values: Array) -> Array:
    """Return the largest entry along the last axis."""
    return np.maximum.reduce(values, axis=-1) if xp is np else xp.max(values, axis=-1)


def worst_row(xp: Any, rows: Array) -> Array:
    """Return the largest row along the last axis: +infinity where one is not a number, as no row then holds."""
    worst = largest(xp, rows)
    is_number = worst == worst  # only NaN differs from itself
    if xp is np and is_everywhere(is_number):
        return worst
    return xp.where(is_number, worst, float("inf"))


def or_infinite(xp: Any, rows: Array) -> Array:
    """Return rows with +infinity in place of what is not finite.

    A sum that overflows on the way may end at either infinity, whatever its true sign is.
    """
    if xp is np and all_finite(rows):
        return rows
    return xp.where(xp.isfinite(rows), rows, float("inf"))


def all_true(xp: Any, values: Array) -> Array:
    """Tell whether every entry along the last axis is true."""
    return np.logical_and.reduce(values, axis=-1) if xp is np else xp.all(values, axis=-1)


def is_everywhere(values: Array) -> bool:
    """Tell whether all entries of an array whose values are known are true."""
    return bool(values) if values.ndim == 0 else bool(namespace_of(values).all(values))


def clip(xp: Any, values: Array, low: Array, high: Array) -> Array:
    """Clip entry by entry; where the bounds cross, the upper one wins."""
    return xp.minimum(xp.maximum(values, low), high)


def stack_rows(xp: Any, parts: list[Array]) -> Array:
    """Join rows along the last axis, whatever leading axes each part has."""
    first = parts[0].shape[:-1]
    if any(part.shape[:-1] != first for part in parts):
        common = np.broadcast_shapes(*(tuple(part.shape[:-1]) for part in parts))
        parts = [xp.broadcast_to(part, (*common, part.shape[-1])) for part in parts]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)
