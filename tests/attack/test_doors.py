"""The attack on every door of the library, for a minute or two."""

from __future__ import annotations

import time

import pytest

from benchmarks.attack.__main__ import DOORS, attack

ROUNDS = 4
"""Of every door: about 400,000 questions, the same ones on every machine."""


@pytest.mark.slow
def test_four_rounds_of_attack_find_nothing_at_any_door() -> None:
    ledger = attack(list(DOORS), seed=0, rounds=ROUNDS)
    assert [str(finding) for finding in ledger.findings] == []
    assert all(ledger.cases[door] > 0 for door in DOORS)


def test_every_door_gets_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for door, effort in (("first", 0.02), ("second", 0.002)):
        monkeypatch.setitem(DOORS, door, lambda rng, ledger, effort=effort: burn(effort))
    ledger = attack(["first", "second"], seed=0, minutes=0.4 / 60.0)
    assert ledger.rounds["second"] > 3 * ledger.rounds["first"] > 0
    assert abs(ledger.seconds["first"] - ledger.seconds["second"]) < 0.1


def burn(seconds: float) -> None:
    """Use the processor for a while."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
