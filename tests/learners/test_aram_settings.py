"""Settings of ARAM that cannot be learnt with are refused, with what to change; those left open suit the task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.learners.aram import Aram
from inbounds.learners.aram_settings import COUNTS, NUMBERS, wanted_entropy
from inbounds.learners.learner import Spec
from inbounds.policies.acceptance import accept_first
from tests.learners import probes

SPEC = Spec.of(3, -np.ones(2, np.float32), np.ones(2, np.float32), probes.boundary_optimum().task.constraint)
SMALL = {"hidden": (8,), "batch_size": 8}


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"augmented": False, "share_decay": 0.9}, "augmented=True"),
        *(
            (
                {name: value, "acceptance_target": 0.9},
                "share_decay=1.0. Pass these, or drop acceptance_target",
            )
            for name, value in (("augmented", False), ("dual_replay", False), ("share_decay", 0.9))
        ),
        ({"acceptance_target": 0.9, "acceptance_lever": "none"}, "or drop acceptance_target"),
        ({"preference": (0.9, 0.1), "snapshots": 2}, "snapshots=0"),
        ({"penalty": -0.2}, "above 0"),
        ({"augmented_share": 1.0}, r"\[0, 1\)"),
        ({"proposals": 0}, "1 or more"),
        ({"least_return_weight": 1.0}, r"\[0, 1\)"),
        ({"critic_lead": -1}, "0 or more"),
        ({"entropy_ramp": -1}, "0 or more"),
        ({"gamma": 1.0}, "the task's"),
        ({"entropy_at_first": 0.7}, "ln 2"),
        *(
            ({"entropy_at_first": -0.6, "entropy_target": target}, "Begin above it")
            for target in (-0.5, None)
        ),
        ({"entropy_target": 0.7}, "ln 2"),
        ({"entropy_target": -0.5, "temperature": 0.2}, "or pass temperature=None"),
        *(
            ({"acceptance_target": 0.9, "share_range": limits}, "Widen it or move augmented_share")
            for limits in ((0.3, 0.5), [0.0, 0.1])
        ),
        *(
            ({"share_range": limits}, "the least first")
            for limits in ((0.9, 0.1), (0.1, 1.0), (-0.1, 0.5), (0.2,), "x", ("a", "b"))
        ),
        *(
            ({name: value, "share_range": (0.1, 0.3)}, "share_decay=1.0. Pass these, or drop share_range")
            for name, value in (("acceptance_lever", "none"), ("augmented", False), ("share_decay", 0.9))
        ),
        (
            {"share_range": (0.1, 0.3), "acceptance_target": 0.9, "acceptance_lever": "entropy"},
            "or drop share_range",
        ),
        ({"entropy_at_first": 0.5, "temperature": 0.2}, "or pass temperature=None"),
        ({"entropy_at_first": 0.5, "entropy_ramp": 0}, "such as entropy_ramp=100_000"),
        (
            {"entropy_at_first": 0.5, "acceptance_lever": "entropy", "acceptance_target": 0.9},
            "Drop one of them",
        ),
        ({"acceptance_lever": "penalty"}, "'share', 'entropy', 'none'"),
        ({"acceptance_lever": "entropy"}, "Pass acceptance_target"),
        (
            {"acceptance_lever": "entropy", "acceptance_target": 0.9, "temperature": 0.2},
            "Pass temperature=None",
        ),
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
        Aram(**settings)


def test_an_explicit_value_wins_over_its_preset():
    assert Aram(preset="paper").share_decay == 0.9
    assert Aram(preset="paper", share_decay=0.99).share_decay == 0.99
    with pytest.raises(UnknownNameError, match="paper"):
        Aram(preset="papre")


# What is left open -----------------------------------------------------------------------------------------------


def share_after(learner, spec, feasible):
    """The share of self-loops after 10,000 steps of which so many proposals were feasible."""
    state = learner.init(jax.random.key(0), spec)
    draw = accept_first(SPEC.constraint, jnp.zeros((1, 3)), jnp.full((1, 1, 2), 0.1))
    draw = draw._replace(acceptance=jnp.full(10_000, feasible))
    state = learner.adapt(state, spec, draw, jnp.asarray(0), warm=False)
    return float(learner.shares(state, spec, jnp.asarray(0))[0])


def test_by_default_the_share_is_lowered_to_a_tenth_and_never_raised():
    assert share_after(Aram(**SMALL), SPEC, feasible=1.0) == pytest.approx(0.1)  # 0.01 too many, 10,000 times
    assert share_after(Aram(augmented_share=0.05, **SMALL), SPEC, feasible=1.0) == pytest.approx(0.005)
    assert share_after(Aram(**SMALL), SPEC, feasible=0.5) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "settings", [{"acceptance_lever": "none"}, {"share_decay": 0.99}, {"preset": "paper"}], ids=str
)
def test_a_share_with_a_schedule_or_without_a_lever_is_left_alone(settings):
    assert share_after(Aram(**settings, **SMALL), SPEC, feasible=1.0) == pytest.approx(0.2)


def test_a_policy_that_begins_at_the_tasks_start_keeps_its_share_and_wants_less_entropy():
    begins = SPEC._replace(start=jnp.zeros(2))
    for learner, spec, share, wanted in (
        (Aram(**SMALL), SPEC, 0.1, -0.5),
        (Aram(**SMALL), begins, 0.2, -1.0),
        (Aram(start="box", **SMALL), begins, 0.1, -0.5),
        (Aram(acceptance_target=0.99, entropy_target=-0.5, **SMALL), begins, 0.1, -0.5),
        (Aram(share_range=(0.02, 0.2), **SMALL), begins, 0.1, -1.0),
    ):
        assert share_after(learner, spec, feasible=1.0) == pytest.approx(share)
        assert wanted_entropy(learner, spec) == wanted
