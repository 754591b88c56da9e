"""How to ask anything for an action: our policies, those of other libraries, plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import require_no_mask
from inbounds.errors import ConfigurationError, InvalidInputError

Proposer = Callable[[Any, NDArray[np.float64] | None], Any]
"""A function of the observation and of the action executed before it."""


def proposer(policy: Any, deterministic: bool = False) -> Proposer:
    """Return how to ask a policy: `act`, `predict` as stable-baselines3 has it, or a plain call.

    The previous action is passed to an `act` that takes it; `deterministic` to an `act` or `predict` that does.
    """
    if hasattr(policy, "act"):
        known = inspect.signature(policy.act).parameters
        fixed = {"deterministic": deterministic} if "deterministic" in known else {}
        if "previous_action" in known:
            return lambda observation, before: policy.act(observation, previous_action=before, **fixed)
        return lambda observation, _: policy.act(observation, **fixed)
    if hasattr(policy, "predict"):
        return lambda observation, _: policy.predict(observation, deterministic=deterministic)[0]
    if callable(policy):
        return lambda observation, _: policy(observation)
    raise ConfigurationError(
        f"{policy!r} cannot be asked for an action. Pass an object with act(observation) or "
        f"predict(observation), or a function."
    )


def vector(name: str, value: Any, dtype: type[np.float64] | None = np.float64) -> NDArray[Any]:
    """Return one vector of real numbers, of its own type for `dtype=None`; anything else is refused."""
    require_no_mask(name, value)
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the {name} is not an array of numbers ({error}). Pass a vector of floats."
        ) from error
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"the {name} is {array.dtype} of shape {array.shape}, but one vector of real numbers is expected. "
            f"Flatten it, and pass one at a time."
        )
    return array
