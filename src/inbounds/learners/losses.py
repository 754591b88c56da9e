"""Every loss once, on one transition, with the equation it implements; batches come from `vmap`.

Notation: lambda is the preference over the two objectives (task, constraint), Q a vector of two values, alpha the
entropy coefficient, gamma the discount factor, j the index of the twin critics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def bellman_target(
    reward: jax.Array,
    not_done: jax.Array,
    next_values: jax.Array,
    preference: jax.Array,
    log_density: jax.Array,
    alpha: jax.Array,
    gamma: float | jax.Array,
) -> jax.Array:
    """Return y = r + gamma (1 - done) (Q_bar_j*(s', a'; lambda) - alpha log pi(a'|s'; lambda) 1).

    j* = argmin_j lambda^T Q_bar_j, chosen for each transition; the whole vector of that twin is taken, and the
    entropy is added to every objective.

    `next_values` are those of the target critics, (twins, objectives). `reward` and `preference` have one entry per
    objective, and so has `gamma`, unless it is one number. `log_density` is log pi(a'|s').
    """
    smaller = jnp.argmin(next_values @ preference)
    return jax.lax.stop_gradient(reward + gamma * not_done * (next_values[smaller] - alpha * log_density))


def critic_loss(values: jax.Array, target: jax.Array, preference: jax.Array) -> jax.Array:
    """Return sum_k lambda_k (Q_k - y_k)^2, the form of the published code.

    It identifies every objective by itself. The supremum of the policy loss needs this: it evaluates a critic at one
    preference and weights the objectives by another. The paper's equation, (lambda^T (Q - y))^2, identifies their
    weighted sum alone.
    """
    return jnp.sum(preference * (values - target) ** 2)


def alpha_loss(log_alpha: jax.Array, log_density: jax.Array, target_entropy: jax.Array) -> jax.Array:
    """Return alpha (-log pi(a|s) - target), which moves the entropy to its target (SAC, arXiv:1812.05905, Eq. 18).

    The gradient reaches `log_alpha` only. `log_density` may be one number or a batch.
    """
    return jnp.exp(log_alpha) * jax.lax.stop_gradient(-log_density - target_entropy)
