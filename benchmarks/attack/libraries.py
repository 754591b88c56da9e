"""The array libraries that a constraint can be asked in: numpy, JAX at once, compiled and mapped, torch, the standard.

Each asks a constraint's method for a batch, with one observation and one previous action for each action, and returns
numpy arrays.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Method = Callable[[Any, Any, Any], Any]
"""A function of observation, action and previous action."""


class Library(NamedTuple):
    """How a library is asked."""

    name: str
    is_single: bool
    """It computes in float32."""
    is_compiled: bool
    """It cannot raise, and answers NaN instead."""
    ask: Callable[[Method], Callable[[Any, Any, Any], Any]]
    """Wraps a method of a constraint so that it takes and returns numpy arrays."""


def _numpy(method: Method) -> Callable[[Any, Any, Any], Any]:
    return method


def _eager(method: Method) -> Callable[[Any, Any, Any], Any]:
    import jax.numpy as jnp

    def ask(observation: Any, action: Any, previous: Any) -> Any:
        given = [None if part is None else jnp.asarray(part) for part in (observation, action, previous)]
        return np.asarray(method(*given))

    return ask


def _compiled(method: Method) -> Callable[[Any, Any, Any], Any]:
    import jax

    compiled = jax.jit(method)
    return lambda observation, action, previous: np.asarray(compiled(observation, action, previous))


def _mapped(method: Method) -> Callable[[Any, Any, Any], Any]:
    import jax

    compiled: dict[tuple[bool, ...], Any] = {}

    def ask(observation: Any, action: Any, previous: Any) -> Any:
        given = (observation, action, previous)
        key = tuple(part is not None for part in given)
        if key not in compiled:
            compiled[key] = jax.jit(jax.vmap(method, in_axes=tuple(0 if there else None for there in key)))
        return np.asarray(compiled[key](*given))

    return ask


def _wide(method: Method) -> Callable[[Any, Any, Any], Any]:
    import jax

    compiled = jax.jit(method)

    def ask(observation: Any, action: Any, previous: Any) -> Any:
        with _float64():
            return np.asarray(compiled(observation, action, previous))

    return ask


def _float64() -> contextlib.AbstractContextManager[Any]:
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def _torch(method: Method) -> Callable[[Any, Any, Any], Any]:
    import torch

    def ask(observation: Any, action: Any, previous: Any) -> Any:
        given = [
            None if part is None else torch.asarray(np.ascontiguousarray(part))
            for part in (observation, action, previous)
        ]
        return method(*given).numpy()

    return ask


def _strict(method: Method) -> Callable[[Any, Any, Any], Any]:
    import array_api_strict as strict

    def ask(observation: Any, action: Any, previous: Any) -> Any:
        given = [None if part is None else strict.asarray(part) for part in (observation, action, previous)]
        return np.asarray(method(*given))

    return ask


NUMPY = Library("numpy", False, False, _numpy)
JIT = Library("jax.jit", True, True, _compiled)
OTHERS = (
    JIT,
    Library("jax.vmap", True, True, _mapped),
    Library("jax", True, False, _eager),
    Library("jax.jit in float64", False, True, _wide),
    *((Library("torch", False, False, _torch),) if importlib.util.find_spec("torch") else ()),
    *(
        (Library("array_api_strict", False, False, _strict),)
        if importlib.util.find_spec("array_api_strict")
        else ()
    ),
)
