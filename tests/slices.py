"""Which cases of a property run in `make test`, and which wait for `make test-slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick_slice(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return all cases as parameters of a test; those that are not in `quick` carry the marker `sweep`."""
    listed = list(cases)
    unknown = [case for case in quick if case not in listed]
    assert quick and not unknown, f"no such cases: {unknown}"
    return [case if case in quick else as_sweep(case) for case in listed]


def as_sweep(case: Any) -> Any:
    """Return a case, or a `pytest.param` of one, with the marker `sweep`."""
    if hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.sweep])
    return pytest.param(case, marks=pytest.mark.sweep)
