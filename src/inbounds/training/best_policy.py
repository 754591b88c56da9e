"""The policy of each seed's best evaluation; a run folder holds it beside the last one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


class BestPolicy(NamedTuple):
    """What acting needs, all seeds on a leading axis, as it was when each seed's evaluation was best."""

    arrays: Any
    mean_return: jax.Array
    """Of that evaluation, (seeds,); minus infinity before the first one."""


def unjudged(arrays: Any, seeds: int) -> BestPolicy:
    """Return the policies of a run that has not been evaluated yet."""
    return BestPolicy(arrays, jnp.full(seeds, -jnp.inf))


def or_latest(best: BestPolicy, arrays: Any) -> Any:
    """Return, seed by seed, the best policy; the latest one where none was evaluated yet."""
    return _chosen(jnp.isneginf(best.mean_return), best.arrays, arrays)


def better_of(best: BestPolicy, arrays: Any, mean_return: NDArray[np.floating]) -> BestPolicy:
    """Return, seed by seed, the policy with the larger mean return; the older one where they are equal."""
    found = jnp.asarray(mean_return, jnp.float32)
    is_better = found > best.mean_return
    return BestPolicy(_chosen(is_better, best.arrays, arrays), jnp.where(is_better, found, best.mean_return))


def _chosen(is_new: jax.Array, old: Any, new: Any) -> Any:
    return jax.tree.map(
        lambda before, now: jnp.where(is_new.reshape(-1, *(1,) * (before.ndim - 1)), now, before), old, new
    )
