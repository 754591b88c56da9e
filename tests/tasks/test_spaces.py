"""The constrained box: feasible samples at the current observation, and a plain Box to everyone else."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Constraint, Polytope, RateLimit, SumBand, WeightedL1, obs
from inbounds.errors import EmptySetError, InvalidInputError
from inbounds.tasks.spaces import ConstrainedBox

LOW, HIGH = np.full(3, -1.0), np.full(3, 1.0)
TEN, FORTY = np.full(3, 10.0), np.full(3, 40.0)
POWER = WeightedL1(weights=obs[0:3], bound=1.0) & Box(LOW, HIGH)

SETS = {
    "ball": (Ball(radius_squared=0.05) & Box(LOW, HIGH), LOW, HIGH),
    "power": (POWER, LOW, HIGH),
    "band": (SumBand(total=90.0, tolerance=5.0, low=10.0, high=40.0) & Box(TEN, FORTY), TEN, FORTY),
    "links": (Polytope(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), np.array([50.0, 50.0]))
              & Box(np.zeros(3), np.full(3, 100.0)), np.zeros(3), np.full(3, 100.0)),
}  # fmt: skip


def space(
    constraint: object = POWER, low: np.ndarray = LOW, high: np.ndarray = HIGH, seed: int = 0
) -> ConstrainedBox:
    made = ConstrainedBox(constraint, low, high, seed=seed)
    made.move_to(np.array([5.0, -3.0, 0.5]))
    return made


@pytest.mark.parametrize("kind", SETS)
def test_every_sample_is_feasible_in_float64_after_rounding_to_float32(kind: str) -> None:
    constraint, low, high = SETS[kind]
    here = space(constraint, low, high)
    for _ in range(200):
        action = here.sample()
        assert action.dtype == np.float32 and action.shape == (3,)
        assert float(constraint.violation(np.array([5.0, -3.0, 0.5]), action.astype(np.float64))) <= 0.0
        assert action in here


THIN: dict[str, tuple[Constraint, type[np.floating]]] = {
    "half precision": (SumBand(total=1.0, tolerance=1e-3) & Box(LOW, HIGH), np.float16),
    "half precision beside zero": (Ball(radius_squared=0.7501) & Box(np.full(3, 0.5), HIGH), np.float16),
    "a slab of a few numbers": (Polytope([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]], [1.8e-7, 0.0]) & Box(LOW, HIGH),
                                np.float32),
    "a corner of the box": (SumBand(total=3.0, tolerance=9e-6) & Box(LOW, HIGH), np.float32),
}  # fmt: skip


@pytest.mark.parametrize("name", THIN)
def test_the_space_contains_what_it_draws_from_thin_sets_and_in_every_type(name: str) -> None:
    constraint, kind = THIN[name]
    here = ConstrainedBox(constraint, LOW, HIGH, dtype=kind, seed=0)
    for _ in range(20):
        action = here.sample()
        assert action.dtype == kind and action in here


def test_a_box_narrower_than_the_constraint_holds_for_samples_too() -> None:
    here = ConstrainedBox(Ball(radius_squared=100.0), LOW, HIGH, seed=0)
    assert all(here.sample() in here for _ in range(50))


def test_a_set_that_only_the_box_bounds_is_drawn_from_uniformly() -> None:
    half = ConstrainedBox(Polytope([[1.0, 1.0]], [0.0]), -np.ones(2), np.ones(2), seed=0)
    drawn = np.array([half.sample() for _ in range(400)])
    assert (drawn.sum(axis=1) <= 0).all() and (np.abs(drawn) <= 1).all()
    np.testing.assert_allclose(drawn.mean(axis=0), -1 / 3, atol=0.1)  # the centroid of the triangle


def test_a_set_between_two_numbers_of_the_type_is_refused_with_a_remedy() -> None:
    gap = Polytope([[1.0, -1.0], [-1.0, 1.0]], [2.1e-8, -1.1e-8]) & Box([0.6, 0.6], [0.9, 0.9])
    sides = np.full(2, 0.6), np.full(2, 0.9)
    with pytest.raises(EmptySetError, match=r"rounded to float32.* Widen the constraint, or give .* float64"):
        ConstrainedBox(gap, *sides, seed=0).sample()
    wide = ConstrainedBox(gap, *sides, dtype=np.float64, seed=0)
    assert wide.sample() in wide


def test_a_state_without_any_action_has_no_sample() -> None:
    here = ConstrainedBox(RateLimit(0.1) & Box(LOW, HIGH), LOW, HIGH, seed=0)
    here.move_to(np.zeros(1), np.full(3, 5.0))
    with pytest.raises(EmptySetError, match=r"a\[0\] >= previous_action\[0\] - 0.1"):
        here.sample()


def test_samples_follow_the_observation() -> None:
    here = space()
    here.move_to(np.array([100.0, 100.0, 100.0]))
    tight = np.abs([here.sample() for _ in range(50)]).sum(axis=1).max()
    here.move_to(np.array([0.1, 0.1, 0.1]))
    wide = np.abs([here.sample() for _ in range(50)]).sum(axis=1).max()
    assert tight <= 0.01 < 1.0 < wide


def test_membership_is_what_the_guard_would_say() -> None:
    here = space()
    here.move_to(np.array([1.0, 1.0, 1.0]))
    assert np.array([0.5, 0.5, 0.0], dtype=np.float32) in here
    assert np.array([0.5, 0.5, 0.25], dtype=np.float32) not in here
    assert np.array([2.0, 0.0, 0.0], dtype=np.float32) not in here
    assert np.zeros(2, dtype=np.float32) not in here
    assert np.array([np.nan, 0.0, 0.0], dtype=np.float32) not in here


def test_the_seed_of_the_space_decides_its_samples() -> None:
    first, second, other = space(seed=1), space(seed=1), space(seed=2)
    drawn = first.sample()
    np.testing.assert_array_equal(drawn, second.sample())
    assert (drawn != other.sample()).any()
    first.seed(1)
    np.testing.assert_array_equal(drawn, first.sample())


def test_sampling_neither_reads_nor_changes_the_global_generator() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    drawn = space().sample()
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(1)
    np.testing.assert_array_equal(drawn, space().sample())


def test_without_an_observation_a_varying_set_cannot_be_sampled() -> None:
    with pytest.raises(InvalidInputError, match=r"call env\.reset"):
        ConstrainedBox(POWER, LOW, HIGH).sample()


def test_without_an_observation_a_constant_set_can() -> None:
    constraint, low, high = SETS["ball"]
    assert ConstrainedBox(constraint, low, high, seed=0).sample().shape == (3,)


def test_masks_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="without mask"):
        space().sample(mask=np.ones(3))


def test_to_other_libraries_it_is_a_box() -> None:
    here = space()
    assert isinstance(here, gymnasium.spaces.Box)
    assert here == gymnasium.spaces.Box(LOW.astype(np.float32), HIGH.astype(np.float32), dtype=np.float32)
    assert gymnasium.vector.utils.batch_space(here, 4).shape == (4, 3)
    assert gymnasium.spaces.flatdim(here) == 3


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_stands_where_the_original_stood(duplicate: object) -> None:
    here = space()
    there = duplicate(here)
    np.testing.assert_array_equal(here.sample(), there.sample())


def test_the_later_fate_of_an_observation_does_not_matter() -> None:
    here = space()
    observation = np.array([1.0, 1.0, 1.0])
    here.move_to(observation)
    observation[:] = 1e6
    assert np.array([0.5, 0.25, 0.0], dtype=np.float32) in here


def test_it_shows_its_constraint() -> None:
    assert POWER.formula() in repr(space())
