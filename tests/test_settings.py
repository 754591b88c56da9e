"""Which settings are numbers, and which are what their fields say."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest

from inbounds.limits import fits, is_number, is_whole, misfit


@pytest.mark.parametrize("value", [0, -2.5, np.float32(1.0), np.int64(3)], ids=repr)
def test_finite_numbers_are_numbers_whatever_library_they_come_from(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), [1.0]], ids=repr)
def test_nothing_else_is(value: Any) -> None:
    assert not is_number(value)
    assert not is_whole(value, 0)


def test_a_whole_number_has_no_fraction_and_is_large_enough() -> None:
    assert is_whole(3, 3) and is_whole(np.int32(4), 3)
    assert not is_whole(2, 3) and not is_whole(3.0, 3)


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    hidden: tuple[int, ...] = (8,)
    target: float | None = None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        *((3, int), (3, float), (float("inf"), float), ("x", str), (True, bool), (None, float | None)),
        *(((1, 2), tuple[int, ...]), ((), tuple[int, ...]), ((0.5, 1), tuple[float, float])),
        ("a", Literal["a", "b"]),
    ],
)
def test_a_value_fits_the_type_of_its_field(value: Any, hint: Any) -> None:
    assert fits(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        *((True, int), (0.5, int), (True, float), ("1", float), (1, bool), ("x", float | None), (1, str)),
        *(
            (("x",), tuple[int, ...]),
            ([1], tuple[int, ...]),
            (1, tuple[int, ...]),
            ((1,), tuple[float, float]),
        ),
        *(("c", Literal["a", "b"]), (["a"], Literal["a", "b"])),
    ],
)
def test_a_value_of_another_type_does_not(value: Any, hint: Any) -> None:
    assert not fits(value, hint)


def test_the_first_field_that_does_not_fit_is_named() -> None:
    assert misfit(Settings()) is None
    assert misfit(Settings(hidden=("x",), target="y")) == "hidden"  # type: ignore[arg-type]
