"""How ARAM acts: where its first policy lies, when it begins to move, and which entropy it aims at."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.learners.learner import Spec
from inbounds.policies.networks import InputScale
from inbounds.replay import Transition
from tests.learners.probes import first_state

SMALL = {"hidden": (8,), "batch_size": 16, "proposals": 4}
WARM = {**SMALL, "warm_start": True}
LOW, HIGH = np.zeros(2, np.float32), np.array([2.0, 4.0], np.float32)
ALLOWED = ib.SumBand(total=2.0, tolerance=1.0) & ib.Box(LOW, HIGH)
OBSERVED = Spec.of(3, LOW, HIGH, ALLOWED, reference_action=ib.obs[1:3])
FIXED = Spec.of(3, LOW, HIGH, ALLOWED, reference_action=np.array([0.5, 1.0], np.float32))
NOWHERE = Spec.of(3, LOW, HIGH, ALLOWED)
SEEN = jnp.asarray([[7.0, 0.5, 1.0], [-40.0, 1.9, 0.3], [0.0, 1.0, 3.8]])
PREFERENCE = jnp.asarray([0.7, 0.3])


def first_policy(spec, seen=SEEN, **settings):
    learner = Aram(**{**WARM, **settings})
    actor = first_state(learner, spec).params.actor
    return jax.jit(lambda now: learner.policy(now, spec, seen, jnp.broadcast_to(PREFERENCE, (3, 2))))(actor)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OBSERVED, SEEN[:, 1:3]),
        (OBSERVED._replace(inputs=InputScale(np.ones(3), np.full(3, 9.0))), SEEN[:, 1:3]),
        (FIXED, np.broadcast_to([0.5, 1.0], (3, 2))),
    ],
    ids=["observed", "observed and scaled", "fixed"],
)
def test_a_warm_start_proposes_the_reference_action_in_every_state(spec, expected):
    proposed = spec.box.rescale(jnp.tanh(first_policy(spec).mean))
    np.testing.assert_allclose(proposed, expected, rtol=1e-4)


@pytest.mark.parametrize("spec", [OBSERVED, FIXED], ids=["observed", "fixed"])
def test_the_first_policy_has_the_entropy_that_a_tuned_alpha_aims_at(spec):
    std = np.exp(np.asarray(first_policy(spec).log_std))
    np.testing.assert_allclose(scipy.stats.norm(scale=std).entropy(), -1.0, rtol=1e-5)


def test_mode_samples_and_proposals_of_the_first_policy_are_centred_on_the_observed_reference_action():
    learner = Aram(**{**WARM, "proposals": 200})
    state = first_state(learner, OBSERVED)
    centre = learner.mode(state, OBSERVED, SEEN, PREFERENCE)
    np.testing.assert_allclose(centre, SEEN[:, 1:3], rtol=1e-4)
    samples = jax.jit(lambda key: learner.samples(state, OBSERVED, SEEN, PREFERENCE, key, 200))(
        jax.random.key(1)
    )
    seeds, context = jax.tree.map(lambda leaf: leaf[None], state), jnp.broadcast_to(PREFERENCE, (1, 3, 2))
    act = jax.jit(lambda keys: learner.act(seeds, OBSERVED, SEEN[None], context, keys, is_random=False))
    draw = act(jax.random.split(jax.random.key(2), 1))
    for actions in (samples, draw.proposals[0]):
        np.testing.assert_allclose(jnp.median(actions, axis=1), SEEN[:, 1:3], atol=0.05)


def test_a_reference_action_on_the_edge_of_the_box_or_beyond_keeps_a_finite_mean():
    edges = jnp.asarray([[0.0, 0.0, 4.0], [0.0, 2.0, 0.0], [0.0, -5.0, 90.0]])
    mean = first_policy(OBSERVED, edges).mean
    np.testing.assert_allclose(np.tanh(mean), [[-0.99, 0.99], [0.99, -0.99], [-0.99, 0.99]], rtol=1e-4)


@pytest.mark.parametrize("spec", [OBSERVED, FIXED], ids=["observed", "fixed"])
def test_without_a_warm_start_the_reference_action_changes_nothing(spec):
    given, none = first_policy(spec, warm_start=False), first_policy(NOWHERE)
    np.testing.assert_array_equal(given.mean, none.mean)
    np.testing.assert_array_equal(given.log_std, none.log_std)
    assert np.std(none.mean, axis=0).min() > 0


def test_the_paper_begins_anywhere_in_the_box_on_raw_observations_and_rewards():
    paper, ours = Aram(preset="paper"), Aram()
    assert not paper.warm_start and not paper.scales_task and ours.scales_task
    assert (paper.proposals, paper.penalty, paper.self_loops) == (100, 0.2, "discounted")
    assert (paper.min_return_weight, paper.entropy_ramp, paper.target_acceptance) == (0.0, 0, None)


def test_scales_hang_on_the_backbone_and_not_on_the_name_of_the_preset():
    paper = {**Aram.presets["paper"], "hidden": (8,)}
    assert not Aram(**paper).scales_task
    assert Aram(preset="paper", backbone="scaled").scales_task


def test_student_proposals_have_heavier_tails_and_so_have_the_samples_that_are_evaluated():
    spread, evaluated = {}, {}
    for df in (None, 2.0):
        learner = Aram(hidden=(8,), proposals=4_000, student_df=df, warm_start=True)
        state = jax.tree.map(lambda leaf: leaf[None], first_state(learner, OBSERVED))
        context = jnp.broadcast_to(PREFERENCE, (1, 3, 2))
        act = jax.jit(partial(learner.act, state, OBSERVED, SEEN[None], context, is_random=False))
        draw = act(jax.random.key(1)[None])
        before = np.arctanh(np.clip(OBSERVED.box.normalise(draw.proposals[0, 0]), -1 + 1e-6, 1 - 1e-6))
        spread[df] = scipy.stats.kurtosis(before[:, 0])
        raw = learner.samples(
            first_state(learner, OBSERVED), OBSERVED, SEEN, PREFERENCE, jax.random.key(2), 4_000
        )
        before = np.arctanh(np.clip(OBSERVED.box.normalise(raw[0]), -1 + 1e-6, 1 - 1e-6))
        evaluated[df] = scipy.stats.kurtosis(before[:, 0])
    for kurtosis in (spread, evaluated):
        assert abs(kurtosis[None]) < 0.5 and kurtosis[2.0] > 3


# Critics first --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    action = rng.uniform(LOW, HIGH, (16, 2))
    rows = [rng.normal(size=(16, 3)), action, rng.normal(size=(16, 2)), np.ones(16), rng.normal(size=(16, 3))]
    return Transition(*(jnp.asarray(values, jnp.float32) for values in rows))


def states_of(learner, spec, batch, updates):
    """Return the states before and after every one of some updates."""
    update = jax.jit(lambda state, key: learner.update(state, spec, batch, learner.noise(key, spec))[0])
    states = [first_state(learner, spec)]
    for turn in range(updates):
        states.append(update(states[-1], jax.random.key(turn)))
    return states


def has_moved(before, after):
    return any(not np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (before, after)), strict=True))


def test_policy_and_alpha_wait_for_the_critics_and_then_move(batch):
    states = states_of(Aram(critic_warmup=3, **WARM), OBSERVED, batch, 4)
    for before, after in itertools.pairwise(states[:4]):
        assert not has_moved(before.params.actor, after.params.actor)
        assert not has_moved(before.params.log_alpha, after.params.log_alpha)
        assert has_moved(before.params.critic, after.params.critic)
        assert has_moved(before.target_critic, after.target_critic)
    assert has_moved(states[3].params.actor, states[4].params.actor)
    assert has_moved(states[3].params.log_alpha, states[4].params.log_alpha)


@pytest.mark.parametrize(
    ("spec", "warm_start"), [(NOWHERE, True), (OBSERVED, False)], ids=["no reference", "no warm start"]
)
def test_a_policy_that_begins_anywhere_waits_for_nothing(spec, warm_start, batch):
    (first, led), (_, plain) = (
        states_of(Aram(critic_warmup=lead, warm_start=warm_start, **SMALL), spec, batch, 1)
        for lead in (100, 0)
    )
    assert has_moved(first.params.actor, led.params.actor)
    assert not has_moved(led, plain)


# The falling target entropy -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ramp", "updates", "done"),
    [(400, 0, 0.0), (400, 200, 0.5), (400, 400, 1.0), (400, 9_000, 1.0), (0, 9_000, 0.0)],
)
def test_the_target_entropy_falls_in_a_straight_line_to_that_of_the_feasible_set_or_stays(
    ramp, updates, done
):
    learner = Aram(entropy_ramp=ramp, **SMALL)
    empty = jax.eval_shape(lambda key: learner.init(key, NOWHERE), jax.random.key(0))
    state = empty._replace(updates=jnp.asarray(updates), feasible_fraction=jnp.asarray([10.0, 100.0]))
    wanted = float(learner.entropy_target(state, NOWHERE))
    assert wanted == pytest.approx(-1.0 + done * np.log(0.1), rel=1e-5)


def test_a_target_entropy_counts_for_every_dimension():
    learner = Aram(target_entropy=-0.25, entropy_ramp=0, **SMALL)
    empty = jax.eval_shape(lambda key: learner.init(key, NOWHERE), jax.random.key(0))
    assert float(learner.entropy_target(empty, NOWHERE)) == pytest.approx(-0.5)


def test_without_warm_up_steps_the_target_entropy_stays_that_of_the_box():
    learner = Aram(**SMALL, entropy_ramp=10)
    late = first_state(learner, NOWHERE)._replace(updates=jnp.asarray(100))
    assert float(learner.entropy_target(late, NOWHERE)) == pytest.approx(2 * -0.5)


def test_a_warm_up_action_of_a_seed_does_not_depend_on_the_seeds_beside_it():
    thin = Spec.of(1, LOW, HIGH, ib.SumBand(total=2.0, tolerance=1e-3) & ib.Box(LOW, HIGH))
    keys = jax.random.split(jax.random.key(3), 2)
    act = jax.jit(lambda keys, seen: Aram(**SMALL).act(None, thin, seen, None, keys, True))
    together, alone = act(keys, jnp.zeros((2, 3, 1))), act(keys[1:], jnp.zeros((1, 3, 1)))
    assert together.is_projected.any()
    np.testing.assert_array_equal(together.action[1], alone.action[0])
