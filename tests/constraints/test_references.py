from __future__ import annotations

import json
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.constraints import Box, Polytope
from inbounds.constraints.references import Reference, obs, previous_action, reference_from_json
from inbounds.deploy.safety_filter import SafetyFilter
from inbounds.errors import ConstraintError, InvalidInputError

OBSERVATION = np.arange(10.0)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (obs[3], 3.0),
        (obs[-1], 9.0),
        (obs[2:5], [2.0, 3.0, 4.0]),
        (obs[:2], [0.0, 1.0]),
        (obs[8:], [8.0, 9.0]),
        (obs[1:8:3], [1.0, 4.0, 7.0]),
        (obs[[4, -1, 0]], [4.0, 9.0, 0.0]),
        (obs[[4, 4]], [4.0, 4.0]),
        (2.0 * obs[1:3] + 1.0, [3.0, 5.0]),
        (1.0 - obs[1:3] / 2.0, [0.5, 0.0]),
        (-(obs[3] - 1.0), -2.0),
        (obs[0:4].reshape(2, 2), [[0.0, 1.0], [2.0, 3.0]]),
    ],
)
def test_a_reference_reads_what_indexing_reads(reference: Reference, expected: Any) -> None:
    for library in (np, jnp, array_api_strict):
        read = reference.read(library.asarray(OBSERVATION))
        np.testing.assert_allclose(np.asarray(read), expected)
    batch = np.stack([OBSERVATION, OBSERVATION + 0.5])
    assert reference.read(batch).shape == (2, *np.shape(expected))


@pytest.mark.parametrize("reference", [obs[10], obs[-11], obs[5:11], obs[10:], obs[[1, 10]]])
def test_reading_beyond_the_observation_is_an_error_and_never_a_shorter_vector(reference: Reference) -> None:
    with pytest.raises(InvalidInputError, match="has only 10 entries"):
        reference.read(OBSERVATION)


def test_the_previous_action_must_be_passed_along() -> None:
    with pytest.raises(InvalidInputError, match="no previous action was given"):
        previous_action.read(None)


@pytest.mark.parametrize(
    ("reference", "text", "size"),
    [
        (obs[3], "obs[3]", None),
        (obs[2:5], "obs[2:5]", 3),
        (obs[1:8:3], "obs[1:8:3]", 3),
        (obs[8:], "obs[8:]", None),
        (obs[[4, -1]], "obs[[4, -1]]", 2),
        (2.0 * obs[1:3] - 0.5, "(2*obs[1:3] - 0.5)", 2),
        (obs[5:2:-1], "obs[5:2:-1]", 3),
        (obs[:2:-1], "obs[:2:-1]", None),
        (obs[-3:-1], "obs[-3:-1]", None),
        (previous_action, "previous_action", None),
        (obs[0:6].reshape(2, 3), "obs[0:6]", 3),
    ],
)
def test_a_reference_shows_itself_and_survives_a_file(
    reference: Reference, text: str, size: int | None
) -> None:
    assert str(reference) == text
    assert reference.size() == size
    assert reference_from_json(json.loads(json.dumps(reference.to_json()))) == reference


EMPTY = [slice(5, 2), slice(3, 3), slice(None, 0), slice(-2, -5), slice(2, 5, -1), ("power", slice(5, 2))]


@pytest.mark.parametrize(
    "selection", ["", 1.5, None, True, [], [1.5], slice(0, 4, 0), slice("a", None), *EMPTY]
)
def test_what_names_no_entries_is_refused(selection: Any) -> None:
    with pytest.raises(ConstraintError, match="names no entries"):
        obs[selection]


@pytest.mark.parametrize(
    "mask", [[True, False, True], (True, False), [0, True], [np.True_, np.False_], ("power", [True])]
)
def test_a_mask_is_not_read_as_the_entries_one_and_zero(mask: Any) -> None:
    with pytest.raises(ConstraintError, match=r"names no entries: True and False .*np\.flatnonzero\(mask\)"):
        obs[mask]


@pytest.mark.parametrize("operand", ["x", np.array([1.0, np.nan]), np.nan, np.inf, None, True])
def test_only_finite_numbers_scale_and_shift(operand: Any) -> None:
    with pytest.raises((ConstraintError, TypeError)):
        obs[0:2] * operand
    with pytest.raises((ConstraintError, TypeError)):
        operand * obs[0:2]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"source": "environment", "indices": 0},
        {"source": "observation", "indices": "__import__"},
        {"source": "observation", "indices": [0, "1"]},
        {"source": "observation", "indices": {"start": 0, "stop": "9", "step": None}},
        {"source": "observation", "indices": {"start": 0, "stop": 9, "step": 0}},
        {"source": "observation", "indices": {"start": 5, "stop": 2, "step": None}},
        {"source": "observation", "indices": 0, "scale": "2"},
        {"source": "observation", "indices": 0, "offset": float("nan")},
        {"source": "observation", "indices": [0], "shape": 3},
    ],
)
def test_a_file_that_no_reference_wrote_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConstraintError):
        reference_from_json(data)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (obs[-2:5], "10 entries is no entry at all"),
        (obs[7:].reshape(2, 2), r"is 3 entries, not the 4 of \(2, 2\)"),
    ],
)
def test_a_reading_whose_length_only_an_observation_tells_is_refused_where_it_does_not_fit(
    reference: Reference, expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"{expected}.*Check the indices"):
        reference.read(OBSERVATION)


def test_a_reading_of_another_length_than_the_action_is_refused_in_a_sentence() -> None:
    limit = Box(-1.0, obs[7:])
    questions = (
        limit.violation,
        limit.project,
        jax.jit(limit.project),
        limit.linear_maximiser,
        lambda seen, action: limit.interior_point(seen, dimension=len(action)),
        lambda seen, action: limit.sample(np.random.default_rng(0), seen, n=1, dimension=len(action)),
        SafetyFilter(limit).correct,
    )
    for ask in questions:
        with pytest.raises(
            InvalidInputError,
            match=r"high of Box is obs\[7:\], which has 3 entries here, but 2 are expected. Check",
        ):
            ask(OBSERVATION, np.zeros(2))


@pytest.mark.parametrize(
    "data",
    [
        {"source": "observation", "indices": []},
        {"source": "observation", "indices": 10**10},
        {"source": "observation", "indices": {"start": 0, "stop": 10**400, "step": None}},
        {"source": "observation", "indices": 0, "scale": 10**400},
        {"source": "observation", "indices": None, "shape": []},
        {"source": "observation", "indices": None, "shape": [0]},
    ],
)
def test_a_file_whose_numbers_nothing_could_read_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConstraintError, match=r"Give|Correct|Name"):
        reference_from_json(data)


def test_integers_too_large_for_a_float_are_refused() -> None:
    for make in (lambda: Box(0.0, 10**400), lambda: obs[0] + [10**400]):
        with pytest.raises(ConstraintError, match=r"Pass numbers|finite numbers"):
            make()


def test_a_bound_for_each_row_is_as_long_as_there_are_rows() -> None:
    rows = Polytope(np.eye(2), obs[7:])
    with pytest.raises(
        InvalidInputError, match=r"b of Polytope is obs\[7:\], which has 3 entries here, but 2"
    ):
        (rows & Box(-1.0, 1.0)).project(OBSERVATION, np.zeros(2))
