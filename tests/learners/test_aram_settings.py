"""Settings of ARAM that cannot be learnt with are refused, each with what to change."""

import pytest

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.learners.aram import Aram
from inbounds.learners.aram_settings import COUNTS, NUMBERS


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"augmented": False, "share_decay": 0.9}, "augmented=True"),
        ({"augmented": False, "acceptance_target": 0.9}, "augmented=True"),
        ({"dual_replay": False, "acceptance_target": 0.9}, "dual_replay=True"),
        ({"preference": (0.9, 0.1), "snapshots": 2}, "snapshots=0"),
        ({"penalty": -0.2}, "above 0"),
        ({"augmented_share": 1.0}, r"\[0, 1\)"),
        ({"proposals": 0}, "1 or more"),
        ({"least_return_weight": 1.0}, r"\[0, 1\)"),
        ({"critic_lead": -1}, "0 or more"),
        ({"entropy_ramp": -1}, "0 or more"),
        ({"gamma": 1.0}, "the task's"),
        ({"entropy_at_first": 0.7}, "ln 2"),
        ({"entropy_at_first": -0.6, "entropy_target": -0.5}, "Begin above it"),
        ({"entropy_target": 0.7}, "ln 2"),
        ({"entropy_target": -0.5, "temperature": 0.2}, "Drop one of them"),
        *(
            ({"acceptance_target": 0.9, "share_range": limits}, "Widen it or move augmented_share")
            for limits in ((0.3, 0.5), [0.0, 0.1])
        ),
        *(
            ({"share_range": limits}, "the least first")
            for limits in ((0.9, 0.1), (0.1, 1.0), (-0.1, 0.5), (0.2,), "x", ("a", "b"))
        ),
        ({"share_range": (0.1, 0.3)}, "or drop share_range"),
        (
            {"share_range": (0.1, 0.3), "acceptance_target": 0.9, "acceptance_lever": "entropy"},
            "or drop share_range",
        ),
        ({"entropy_at_first": 0.5, "temperature": 0.2}, "Drop one of them"),
        ({"entropy_at_first": 0.5, "entropy_ramp": 0}, "such as entropy_ramp=100_000"),
        (
            {"entropy_at_first": 0.5, "acceptance_lever": "entropy", "acceptance_target": 0.9},
            "Drop one of them",
        ),
        ({"acceptance_lever": "penalty"}, "'share', 'entropy'"),
        ({"acceptance_lever": "entropy"}, "Pass acceptance_target"),
        ({"acceptance_lever": "entropy", "acceptance_target": 0.9, "temperature": 0.2}, "Leave temperature"),
        *(
            ({name: "x"}, "Choose one of")
            for name in ("critic_loss", "target", "fallback", "warm_up", "entropy_of")
        ),
        *(({name: value}, f"{name}=.*whole number") for name in COUNTS for value in (-1, 1.5, "2", True)),
        *(
            ({name: value}, f"{name}=.*must be a number")
            for name in NUMBERS
            for value in (float("nan"), "x", True)
        ),
        *(
            ({name: 1.5}, "must be a number in")
            for name in ("tau", "share_decay", "acceptance_target", "gamma")
        ),
        ({"start": "interior"}, "'task'"),
        ({"last_resort": "rays"}, "'ray'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_remedy(settings, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        Aram(**{"acceptance_target": None, **settings})


def test_an_explicit_value_wins_over_its_preset():
    assert Aram(preset="paper").share_decay == 0.9
    assert Aram(preset="paper", share_decay=0.99).share_decay == 0.99
    with pytest.raises(UnknownNameError, match="paper"):
        Aram(preset="papre")
