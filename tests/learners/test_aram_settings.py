"""Settings of ARAM that cannot be trained are rejected with what to change; those left open suit the task."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Outcome, Spec
from inbounds.learners.settings import INTEGERS, NUMBERS
from inbounds.policies.acceptance import accept_first
from tests.learners import probes

SPEC = Spec.of(3, -np.ones(2, np.float32), np.ones(2, np.float32), probes.boundary_optimum().task.constraint)
WARM = SPEC._replace(reference_action=jnp.zeros(2))
SMALL = {"hidden": (8,), "batch_size": 8}
OUTCOME = Outcome(jnp.zeros(1), jnp.ones(1), jnp.zeros((1, 3)))
SETTINGS = {field.name: field.default for field in dataclasses.fields(Aram)}


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"augmented": False, "eta_decay": 0.9}, "augmented=True"),
        ({"dual_replay": False, "eta": 0.4}, "dual_replay=True"),
        ({"dual_replay": False, "eta_decay": 0.9}, "eta_decay=1.0"),
        ({"preset": "paper", "dual_replay": False}, "eta_decay=1.0"),
        ({"preference": (0.9, 0.1), "q_snapshots": 2}, "q_snapshots=0"),
        ({"preference": (0.9, 0.1), "preference_samples": 2}, "preference_samples=1"),
        ({"preference": (0.9, 0.2)}, "sum to 1"),
        ({"preference": 0.9}, "sum to 1"),
        ({"target_entropy": -0.5, "alpha": 0.2}, "alpha=None"),
        ({"hidden": ()}, "excluded"),
        ({"hidden": (8, 0)}, r"\(256, 256\)"),
        ({"penalty": -0.2}, "at least 0"),
        ({"penalty": 0}, "excluded"),
        ({"eta": 1.0}, r"\[0, 1\)"),
        ({"proposals": 0}, "1 or more"),
        ({"min_return_weight": 1.0}, r"\[0, 1\)"),
        ({"critic_warmup": -1}, "0 or more"),
        ({"gamma": 1.0}, "excluded"),
        ({"backbone": "strong"}, "'scaled' or 'normalised'"),
        ({"preset": "normalised", "q_snapshots": 2}, "q_snapshots=0"),
        ({"backbone": "normalised"}, "warm_start=False"),
        ({"preset": "normalised", "hidden": (64, 32)}, "one width"),
        ({"target_entropy": 0.7}, "ln 2"),
        *(
            ({name: value}, f"{name}=.*integer")
            for name in sorted(INTEGERS.keys() & SETTINGS)
            for value in (-1, 1.5, "2", True, None)
        ),
        *(
            ({name: value}, f"{name}=.*number")
            for name in sorted(NUMBERS.keys() & SETTINGS)
            for value in (float("nan"), "x", True)
        ),
        *(({name: 1.5}, "number in") for name in ("tau", "eta_decay", "target_acceptance", "gamma")),
    ],
)
def test_settings_that_cannot_be_trained_are_rejected_with_the_remedy(settings, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        Aram(**settings)


def test_aram_has_at_most_24_settings_and_every_number_has_a_range():
    assert len(SETTINGS) <= 24
    assert not INTEGERS.keys() & NUMBERS.keys()
    numbers = {
        name
        for name, value in SETTINGS.items()
        if isinstance(value, int | float) and value not in (True, False)
    }
    assert numbers - {"eta_decay"} <= INTEGERS.keys() | NUMBERS.keys() and "eta_decay" in NUMBERS


def test_an_explicit_value_wins_over_its_preset():
    assert Aram(preset="paper").eta_decay == 0.9
    assert Aram(preset="paper", eta_decay=0.99).eta_decay == 0.99
    with pytest.raises(UnknownNameError, match="paper"):
        Aram(preset="papre")


# Settings that are left open -------------------------------------------------------------------------------------


def eta_after(learner, spec, feasible, steps=10_000):
    """Return eta after environment steps in which this fraction of proposals was feasible."""
    state = probes.first_state(learner, spec)
    draw = accept_first(SPEC.constraint, jnp.zeros((1, 3)), jnp.full((1, 1, 2), 0.1))
    draw = draw._replace(acceptance=jnp.full(steps, feasible))
    state = learner.adapt(state, spec, draw, OUTCOME, jnp.asarray(0), is_random=False)
    return float(learner.batch_fractions(state, spec, jnp.asarray(0))[0])


def test_by_default_eta_is_lowered_to_a_tenth_and_never_above_its_first_value():
    assert eta_after(Aram(**SMALL), SPEC, feasible=1.0) == pytest.approx(0.1)  # 0.01 too many, 10,000 times
    assert eta_after(Aram(eta=0.05, **SMALL), SPEC, feasible=1.0) == pytest.approx(0.005)
    assert eta_after(Aram(**SMALL), SPEC, feasible=0.5) == pytest.approx(0.2)


def test_eta_falls_in_proportion_to_the_error_of_the_acceptance_rate_and_rises_again():
    learner = Aram(target_acceptance=0.9, **SMALL)
    assert eta_after(learner, SPEC, feasible=1.0, steps=1_000) == pytest.approx(0.1)
    state = probes.first_state(learner, SPEC)._replace(eta=jnp.asarray(0.1))
    draw = accept_first(SPEC.constraint, jnp.zeros((1, 3)), jnp.full((1, 1, 2), 0.1))
    after = learner.adapt(
        state, SPEC, draw._replace(acceptance=jnp.full(100, 0.4)), OUTCOME, jnp.asarray(0), is_random=False
    )
    assert float(after.eta) == pytest.approx(0.1 + 0.05)


@pytest.mark.parametrize(
    "settings", [{"target_acceptance": None}, {"eta_decay": 0.99}, {"preset": "paper"}], ids=str
)
def test_without_a_target_or_with_a_schedule_eta_does_not_follow_acceptance(settings):
    assert eta_after(Aram(**settings, **SMALL), SPEC, feasible=1.0) == pytest.approx(0.2)


def test_a_single_buffer_has_no_eta():
    learner = Aram(dual_replay=False, **SMALL)
    state = probes.first_state(learner, SPEC)
    assert learner.batch_fractions(state, SPEC, jnp.asarray(0)).shape == (0,)


def test_a_warm_start_keeps_eta_and_aims_at_less_entropy():
    for learner, spec, eta, wanted in (
        (Aram(**SMALL), SPEC, 0.1, -0.5),
        (Aram(**SMALL), WARM, 0.2, -1.0),
        (Aram(warm_start=False, **SMALL), WARM, 0.1, -0.5),
        (Aram(target_entropy=-0.25, **SMALL), WARM, 0.2, -0.25),
    ):
        assert eta_after(learner, spec, feasible=1.0) == pytest.approx(eta)
        state = probes.first_state(learner, spec)
        assert float(learner.entropy_target(state, spec)) == pytest.approx(2 * wanted)
