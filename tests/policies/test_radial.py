"""Layers along rays: they end inside, leave the right things alone, and know their Jacobian."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, PowerBudget, SumBand, WeightedL1, obs
from inbounds.policies.box import ActionBox
from inbounds.policies.layers import INSIDE, alpha_projection, radial_log_slope, radial_squash, ray, shrinkage

SQUARE = Box(np.full(2, -1.0), np.full(2, 1.0))
UNIT = ActionBox(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))
SETS = {
    "ball": Ball(radius_squared=0.25) & SQUARE,
    "weighted": WeightedL1(weights=obs[0:2], bound=0.5) & SQUARE,
    "power": PowerBudget(weights=obs[0:2], bound=0.7) & SQUARE,
    "band": SumBand(total=0.4, tolerance=0.3) & SQUARE,
}
OBSERVATION = jnp.asarray([0.8, 1.6])


def some(count=256, scale=1.5):
    rng = np.random.default_rng(3)
    return jnp.asarray(scale * rng.standard_normal((count, 2)), jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def rays(name, action):
    observation = jnp.broadcast_to(OBSERVATION, (*action.shape[:-1], 2))
    return observation, ray(SETS[name], UNIT, observation, action)


def log_slope(at):
    return radial_log_slope(at, shrinkage(at.gauge))


some_sets = pytest.mark.parametrize(
    "name", [name if name == "ball" else pytest.param(name, marks=pytest.mark.slow) for name in SETS]
)


@pytest.mark.optimised
@pytest.mark.parametrize("layer", [alpha_projection, radial_squash])
@pytest.mark.parametrize("name", SETS)
def test_every_action_ends_inside_the_set_without_a_projection(name, layer):
    observation, at = rays(name, some(scale=50.0))
    assert np.all(SETS[name].contains(observation, layer(at)))


@pytest.mark.parametrize("name", SETS)
def test_the_gauge_tells_inside_from_outside(name):
    action = some(scale=0.6)
    observation, at = rays(name, action)
    is_inside = np.asarray(jax.jit(SETS[name].contains)(observation, action))
    assert is_inside.any() and not is_inside.all()
    np.testing.assert_array_equal(np.asarray(at.gauge) <= 1.0, is_inside)


@pytest.mark.parametrize("name", SETS)
def test_alpha_projection_moves_only_what_is_outside_and_along_its_ray(name):
    action = some(scale=0.6)
    _, at = rays(name, action)
    moved = np.asarray(alpha_projection(at))
    is_inside = np.asarray(at.gauge) <= INSIDE
    np.testing.assert_allclose(moved[is_inside], np.asarray(action)[is_inside], atol=1e-6)
    offset, before = moved - np.asarray(at.centre), np.asarray(at.offset)
    cross = offset[:, 0] * before[:, 1] - offset[:, 1] * before[:, 0]
    np.testing.assert_allclose(cross, 0.0, atol=1e-5)


@pytest.mark.slow
@some_sets
def test_the_slope_of_the_squash_is_its_jacobians_determinant(name):
    actions = jnp.concatenate([some(32, scale=0.5), some(8, scale=0.005)])

    def at(action):
        return ray(SETS[name], UNIT, OBSERVATION, action)

    slopes = jax.vmap(lambda action: log_slope(at(action)))(actions)
    jacobian = jax.jacfwd(lambda action: radial_squash(at(action)))
    determinants = jax.vmap(lambda action: jnp.linalg.slogdet(jacobian(action)))(actions)
    np.testing.assert_allclose(slopes, determinants.logabsdet, rtol=1e-3, atol=2e-3)
    assert np.all(np.asarray(determinants.sign) > 0)


@some_sets
def test_the_density_of_a_squashed_gaussian_integrates_to_one(name):
    """Undo the squash on a fine grid of the set and sum the density that SRad reports there."""
    ticks = (np.arange(600) + 0.5) / 300 - 1.0
    grid = jnp.asarray(np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2), jnp.float32)
    _, at = rays(name, grid)
    is_inside = at.gauge < INSIDE
    squashed_gauge = jnp.where(is_inside, at.gauge, 0.5) / INSIDE
    gauge = jnp.arctanh(squashed_gauge)
    gaussian = at.centre + at.offset * (gauge / jnp.where(is_inside, at.gauge, 0.5))[:, None]
    _, before = rays(name, gaussian)
    mean, scale = at.centre[0] + jnp.asarray([0.05, -0.03]), jnp.asarray([0.15, 0.1])
    log_normal = jnp.sum(
        -0.5 * ((gaussian - mean) / scale) ** 2 - jnp.log(scale * jnp.sqrt(2 * jnp.pi)), axis=-1
    )
    density = jnp.where(is_inside, jnp.exp(log_normal - log_slope(before)), 0.0)
    assert float(jnp.sum(density)) / 300**2 == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("layer", [alpha_projection, radial_squash])
def test_gradients_are_finite_at_the_centre_and_far_away(layer):
    def total(actions):
        return jnp.sum(layer(rays("weighted", actions)[1]))

    slope = jax.jit(jax.grad(total))(jnp.asarray([[0.0, 0.0], [1e3, 0.0], [0.0, -1e3], [1e-4, 0.0]]))
    assert np.all(np.isfinite(slope))


def test_units_do_not_matter():
    """The same set in units ten times larger gives the same action in the range [-1, 1]."""
    wide = ActionBox(np.full(2, -10.0, np.float32), np.full(2, 10.0, np.float32))
    large = Ball(radius_squared=25.0) & Box(np.full(2, -10.0), np.full(2, 10.0))
    action = some(16)
    small = radial_squash(rays("ball", action)[1])
    np.testing.assert_allclose(
        radial_squash(ray(large, wide, OBSERVATION, action)), small, rtol=1e-4, atol=1e-5
    )
