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
        ({"self_loops": "none", "eta_decay": 0.9}, "self_loops='followed'"),
        ({"self_loops": "round"}, "'discounted' or 'none'"),
        ({"preset": "normalised", "self_loops": "discounted"}, "backbone='scaled'"),
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
        ({"backbone": "normalised", "warm_start": True}, "warm_start=False"),
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


def penalty_after(learner, feasible, penalty=3.0, steps=1, is_random=False):
    """Return K and eta after environment steps in which this fraction of proposals was feasible."""
    state = probes.first_state(learner, SPEC)._replace(penalty=jnp.asarray(penalty))
    draw = accept_first(SPEC.constraint, jnp.zeros((1, 3)), jnp.full((1, 1, 2), 0.1))
    draw = draw._replace(acceptance=jnp.full(steps, feasible))
    state = learner.adapt(state, SPEC, draw, OUTCOME, jnp.asarray(0), is_random=is_random)
    assert float(learner.batch_fractions(state, SPEC, jnp.asarray(0))[0]) == pytest.approx(0.2)
    return float(state.penalty)


@pytest.mark.parametrize("preset", ["default", "normalised"])
def test_the_penalty_rises_below_the_target_acceptance_rate_and_falls_above(preset):
    learner = Aram(preset, target_acceptance=0.9, **SMALL)
    assert penalty_after(learner, 0.85) == pytest.approx(3.0 * np.exp(0.001 * 0.05))
    assert penalty_after(learner, 0.85, steps=100) == pytest.approx(3.0 * np.exp(0.1 * 0.05))
    assert penalty_after(learner, 1.0) == pytest.approx(3.0 * np.exp(-0.001 * 0.1))
    assert penalty_after(learner, 0.1) == pytest.approx(3.0 * np.exp(0.001 * 0.1))  # the error is clipped
    assert penalty_after(learner, 0.1, penalty=100.0) == pytest.approx(100.0)
    assert penalty_after(learner, 1.0, penalty=0.01) == pytest.approx(0.01)
    assert penalty_after(learner, 0.1, is_random=True) == 3.0
    dear = Aram(
        preset, penalty=1_000.0, target_acceptance=0.9, **SMALL
    )  # a first K beyond the usual range stays
    assert penalty_after(dear, 0.1, penalty=1_000.0) == pytest.approx(1_000.0)


@pytest.mark.parametrize(
    "settings", [{"target_acceptance": None}, {"self_loops": "discounted"}, {"preset": "paper"}], ids=str
)
def test_without_a_target_or_with_discounted_self_loops_the_penalty_stays(settings):
    assert penalty_after(Aram(**settings, **SMALL), feasible=0.5) == 3.0


def test_a_single_buffer_has_no_eta():
    learner = Aram(dual_replay=False, **SMALL)
    state = probes.first_state(learner, SPEC)
    assert learner.batch_fractions(state, SPEC, jnp.asarray(0)).shape == (0,)


def test_a_warm_start_aims_at_less_entropy():
    for learner, spec, wanted in (
        (Aram(warm_start=True, **SMALL), SPEC, -0.5),
        (Aram(warm_start=True, **SMALL), WARM, -1.0),
        (Aram(**SMALL), WARM, -0.5),
        (Aram(warm_start=True, target_entropy=-0.25, **SMALL), WARM, -0.25),
    ):
        state = probes.first_state(learner, spec)
        assert float(learner.entropy_target(state, spec)) == pytest.approx(2 * wanted)
