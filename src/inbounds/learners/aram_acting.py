"""How ARAM acts: its first policy, the law of its proposals, and what is done when none of them is feasible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from inbounds.constraints.references import Reference
from inbounds.learners.aram_settings import begins_at_start
from inbounds.learners.learner import Spec
from inbounds.policies.acceptance import Draw, Fallback, accept_first
from inbounds.policies.networks import Network, apply_network, init_network
from inbounds.policies.proposal import (
    Proposal,
    before_squashing,
    gaussian_acceptance_of_student_noise,
    narrow_around,
    proposal_from_output,
    squash,
    student_noise,
)
from inbounds.policies.radial import alpha_projection, ray

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram


def first_actor(settings: Aram, key: jax.Array, spec: Spec) -> Network:
    """Return a fresh policy network, narrow around the task's own start where there is one and it is wanted."""
    inputs = spec.observation_size + settings.conditions
    actor = init_network(key, (inputs, *settings.hidden, 2 * spec.box.size), spec.inputs)
    if not begins_at_start(settings, spec):
        return actor
    is_observed = isinstance(spec.start, Reference)
    return narrow_around(actor, None if is_observed else before_squashing(spec.box, jnp.asarray(spec.start)))


def law(
    settings: Aram, actor: Network, spec: Spec, observation: jax.Array, preference: jax.Array
) -> Proposal:
    """Return the law of a proposal; its mean is counted from the observed start, where the task has one."""
    proposal = proposal_from_output(apply_network(actor, settings.with_preference(observation, preference)))
    if settings.start == "box" or not isinstance(spec.start, Reference):
        return proposal
    return proposal._replace(mean=proposal.mean + before_squashing(spec.box, spec.start.read(observation)))


def drawn(
    settings: Aram,
    actor: Network,
    spec: Spec,
    observation: jax.Array,
    preference: jax.Array,
    keys: jax.Array,
) -> Draw:
    """Draw all proposals of (seeds, environments) in one forward pass and take the first feasible one."""
    shape = (observation.shape[1], settings.proposals, spec.box.size)
    noise_keys, keep_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    proposal = jax.vmap(lambda *of_seed: law(settings, of_seed[0], spec, *of_seed[1:]))(
        actor, observation, preference
    )
    spread = jax.tree.map(lambda leaf: leaf[..., None, :], proposal)
    if settings.target == "proportional":
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(noise_keys)
    else:
        noise = jax.vmap(lambda key: student_noise(key, shape, settings.degrees))(noise_keys)
    is_kept = None
    if settings.target == "gaussian-from-student":
        coin = jax.vmap(lambda key: jax.random.uniform(key, shape[:-1]))(keep_keys)
        is_kept = coin < gaussian_acceptance_of_student_noise(noise, settings.degrees)
    proposals = spec.box.stretch(squash(spread, noise).value)
    resort = last_resort(settings, spec, jax.random.fold_in(keys[0], 2))
    return accept_first(spec.constraint, observation, proposals, resort, is_kept)


def drawn_at_first(settings: Aram, spec: Spec, observation: jax.Array, keys: jax.Array) -> Draw:
    """Draw the random actions of the warm-up: uniform in the box, and in C(s) unless the box alone is asked."""
    shape = (observation.shape[1], settings.proposals, spec.box.size)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)
    resort = None
    if settings.warm_up == "feasible":
        resort = uniform_in_set(spec, jax.random.fold_in(keys[0], 1))
    return accept_first(spec.constraint, observation, spec.box.stretch(uniform), resort)


def last_resort(settings: Aram, spec: Spec, key: jax.Array) -> Fallback | None:
    """Return what chooses the action when every proposal was turned down; None is the constraint's projection."""
    if settings.last_resort == "uniform":
        return uniform_in_set(spec, key)
    if settings.last_resort == "ray":

        def along_ray(observation: jax.Array, raw: jax.Array) -> jax.Array:
            at = ray(spec.constraint, spec.box, observation, spec.box.normalise(raw))
            moved = spec.box.stretch(alpha_projection(at).value)
            # Rounding may still end outside; projection leaves alone what does not.
            inside: jax.Array = spec.constraint.project(observation, moved)
            return inside

        return along_ray
    return None


def uniform_in_set(spec: Spec, key: jax.Array) -> Fallback:
    """Return a draw from C(s) itself: exact for most sets, by hit-and-run for thin polytopes."""
    return lambda observation, _: spec.constraint.sample(key, observation)
