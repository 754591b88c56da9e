"""`help` of a learner shows every setting with its meaning and default, and what presets change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import inbounds as ib
from inbounds.learners.learner import Learner
from inbounds.learners.settings import setting_docs

PUBLIC = [
    getattr(ib, name)
    for name in ib.__all__
    if isinstance(getattr(ib, name), type)
    and issubclass(getattr(ib, name), Learner)
    and getattr(ib, name) is not Learner
]


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_setting_of_a_public_learner_is_explained(kind: Any) -> None:
    documented, shown = setting_docs(kind), kind.__doc__
    for field in dataclasses.fields(kind):
        assert documented.get(field.name), f"{field.name} has no docstring"
        assert f"  {field.name} = {field.default!r}" in shown


def test_there_are_as_many_learners_as_are_public() -> None:
    assert len(PUBLIC) == 16


def test_the_nearest_class_explains_a_setting() -> None:
    assert "those of the ARAM paper" in setting_docs(ib.Sac)["preset"]
    assert "only if none is feasible" in setting_docs(ib.Aram)["proposals"]


def test_presets_are_listed_with_what_they_change() -> None:
    assert "paper: learning_rate=0.0003" in ib.Sac.__doc__  # type: ignore[operator]
    assert "kasaura: " in ib.Spre.__doc__  # type: ignore[operator]
