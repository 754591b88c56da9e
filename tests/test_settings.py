"""Which settings are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inbounds.settings import is_number, is_whole


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
