"""How often a learner asks a solver, by cause: the price that acceptance-rejection saves.

Projections of executed actions are counted by the loop. A learner counts what else it asks, one call per row
of a batch whether a closed form or an iteration answers it, and reports the sums with its metrics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Calls = dict[str, jax.Array]
"""From a cause (`layer`, `linear_program`, ...) to the number of calls so far."""


def no_calls(causes: tuple[str, ...]) -> Calls:
    """Return a count of zero for every cause that a learner knows."""
    return {cause: jnp.zeros((), jnp.int32) for cause in causes}


def add_calls(calls: Calls, more: dict[str, jax.Array | int]) -> Calls:
    """Return the sums, cause by cause."""
    return {cause: count + jnp.asarray(more.get(cause, 0), jnp.int32) for cause, count in calls.items()}


def call_metrics(calls: Calls) -> dict[str, jax.Array]:
    """Return the counts under the names that are logged."""
    return {f"{cause}_calls": count for cause, count in calls.items()}
