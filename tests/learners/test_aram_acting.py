"""How ARAM acts: where its first policy lies, when it begins to move, and what acts when every proposal failed."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import inbounds as ib
from inbounds.learners.aram import Aram
from inbounds.learners.aram_acting import drawn, first_actor, law
from inbounds.learners.aram_update import target_entropy
from inbounds.learners.learner import Spec
from inbounds.policies.networks import InputScale
from inbounds.replay.ring import Transition

SMALL = {"hidden": (8,), "batch_size": 16, "proposals": 4}
LOW, HIGH = np.zeros(2, np.float32), np.array([2.0, 4.0], np.float32)
ALLOWED = ib.SumBand(total=2.0, tolerance=1.0) & ib.Box(LOW, HIGH)
OBSERVED = Spec.of(3, LOW, HIGH, ALLOWED, start=ib.obs[1:3])
FIXED = Spec.of(3, LOW, HIGH, ALLOWED, start=np.array([0.5, 1.0], np.float32))
NOWHERE = Spec.of(3, LOW, HIGH, ALLOWED)
SEEN = jnp.asarray([[7.0, 0.5, 1.0], [-40.0, 1.9, 0.3], [0.0, 1.0, 3.8]])
PREFERENCE = jnp.asarray([0.7, 0.3])


def first_state(learner, spec):
    return jax.jit(lambda key: learner.init(key, spec))(jax.random.key(0))


def first_law(spec, **settings):
    learner = Aram(**SMALL, **settings)
    actor = first_actor(learner, jax.random.key(0), spec)
    return law(learner, actor, spec, SEEN, jnp.broadcast_to(PREFERENCE, (3, 2)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OBSERVED, SEEN[:, 1:3]),
        (OBSERVED._replace(inputs=InputScale(np.ones(3), np.full(3, 9.0))), SEEN[:, 1:3]),
        (FIXED, np.broadcast_to([0.5, 1.0], (3, 2))),
    ],
    ids=["observed", "observed and scaled", "fixed"],
)
def test_the_first_policy_proposes_the_start_of_the_task_in_every_state(spec, expected):
    proposed = spec.box.stretch(jnp.tanh(first_law(spec).mean))
    np.testing.assert_allclose(proposed, expected, rtol=1e-4)


@pytest.mark.parametrize("spec", [OBSERVED, FIXED], ids=["observed", "fixed"])
def test_the_first_policy_is_as_wide_as_tuned_temperatures_want_it(spec):
    deviation = np.exp(np.asarray(first_law(spec).log_std))
    np.testing.assert_allclose(scipy.stats.norm(scale=deviation).entropy(), -1.0, rtol=1e-5)


def test_everything_that_the_first_policy_does_is_counted_from_the_observed_start():
    learner = Aram(**{**SMALL, "proposals": 200})
    state = first_state(learner, OBSERVED)
    centre = learner.deterministic(state, OBSERVED, SEEN, PREFERENCE)
    np.testing.assert_allclose(centre, SEEN[:, 1:3], rtol=1e-4)
    samples = learner.samples(state, OBSERVED, SEEN, PREFERENCE, jax.random.key(1), 200)
    seeds, context = jax.tree.map(lambda leaf: leaf[None], state), jnp.broadcast_to(PREFERENCE, (1, 3, 2))
    act = jax.jit(lambda keys: learner.act(seeds, OBSERVED, SEEN[None], context, keys, warm=False))
    draw = act(jax.random.split(jax.random.key(2), 1))
    for actions in (samples, draw.proposals[0]):
        np.testing.assert_allclose(jnp.median(actions, axis=1), SEEN[:, 1:3], atol=0.05)


def test_a_start_on_the_edge_of_the_box_or_beyond_keeps_a_finite_mean():
    edges = jnp.asarray([[0.0, 0.0, 4.0], [0.0, 2.0, 0.0], [0.0, -5.0, 90.0]])
    learner = Aram(**SMALL)
    actor = first_actor(learner, jax.random.key(0), OBSERVED)
    mean = law(learner, actor, OBSERVED, edges, jnp.broadcast_to(PREFERENCE, (3, 2))).mean
    np.testing.assert_allclose(np.tanh(mean), [[-0.99, 0.99], [0.99, -0.99], [-0.99, 0.99]], rtol=1e-4)


@pytest.mark.parametrize("spec", [OBSERVED, FIXED], ids=["observed", "fixed"])
def test_a_policy_that_starts_in_the_box_knows_nothing_of_the_tasks_start(spec):
    given, none = first_law(spec, start="box"), first_law(NOWHERE)
    np.testing.assert_array_equal(given.mean, none.mean)
    np.testing.assert_array_equal(given.log_std, none.log_std)
    assert np.std(none.mean, axis=0).min() > 0


def test_the_paper_begins_anywhere_in_the_box_on_raw_observations():
    paper, ours = Aram(preset="paper"), Aram()
    assert (paper.start, paper.scale_observations, paper.scale_rewards) == ("box", False, False)
    assert (ours.start, ours.scale_observations, ours.scale_rewards) == ("task", True, True)
    assert (paper.least_return_weight, paper.entropy_reference) == (0.0, "box")
    assert (paper.last_resort, paper.entropy_ramp) == ("projection", 0)


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


def test_policy_and_temperature_wait_for_the_critics_and_then_move(batch):
    states = states_of(Aram(critic_lead=3, **SMALL), OBSERVED, batch, 4)
    for before, after in itertools.pairwise(states[:4]):
        assert not has_moved(before.trained.actor, after.trained.actor)
        assert not has_moved(before.trained.log_temperature, after.trained.log_temperature)
        assert has_moved(before.trained.critic, after.trained.critic)
        assert has_moved(before.target_critic, after.target_critic)
    assert has_moved(states[3].trained.actor, states[4].trained.actor)
    assert has_moved(states[3].trained.log_temperature, states[4].trained.log_temperature)


@pytest.mark.parametrize(
    ("spec", "start"), [(NOWHERE, "task"), (OBSERVED, "box")], ids=["no start", "start not wanted"]
)
def test_a_policy_that_begins_anywhere_waits_for_nothing(spec, start, batch):
    (first, led), (_, plain) = (
        states_of(Aram(critic_lead=lead, start=start, **SMALL), spec, batch, 1) for lead in (100, 0)
    )
    assert has_moved(first.trained.actor, led.trained.actor)
    assert not has_moved(led, plain)


# The last resort ------------------------------------------------------------------------------------------

ONES = np.ones(2, np.float32)
SETS = {
    "weighted": ib.WeightedL1(weights=ib.obs[0:2], bound=0.5),
    "band": ib.SumBand(total=0.0, tolerance=0.05),
}


@functools.cache
def draw_of(name, last_resort):
    """Return a draw at 32 states that begin far outside of the set, and 32 that begin inside."""
    constraint = SETS[name] & ib.Box(-ONES, ONES)
    spec = Spec.of(4, -ONES, ONES, constraint, start=ib.obs[2:4])
    learner = Aram(hidden=(4,), proposals=3, last_resort=last_resort)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.8, 1.2, (64, 2))
    start = np.where(np.arange(64)[:, None] < 32, [0.95, 0.9], [0.0, 0.0])
    seen = jnp.asarray(np.concatenate([weights, start], axis=1)[None], jnp.float32)
    actor = jax.tree.map(lambda leaf: leaf[None], first_actor(learner, jax.random.key(0), spec))
    context = jnp.broadcast_to(PREFERENCE, (1, 64, 2))
    draw = jax.jit(lambda keys: drawn(learner, actor, spec, seen, context, keys))(
        jax.random.split(jax.random.key(3), 1)
    )
    return constraint, np.asarray(seen[0], np.float64), jax.tree.map(lambda leaf: np.asarray(leaf[0]), draw)


@pytest.mark.parametrize("last_resort", ["ray", "uniform"])
@pytest.mark.parametrize("name", SETS)
def test_a_last_resort_is_feasible_and_acts_only_where_every_proposal_failed(name, last_resort):
    constraint, seen, draw = draw_of(name, last_resort)
    _, _, projected = draw_of(name, "projection")
    assert draw.is_projected[:32].all() and not draw.is_projected[32:].all()
    assert constraint.violation(seen, draw.action.astype(np.float64)).max() <= 0
    np.testing.assert_array_equal(draw.is_projected, projected.is_projected)
    np.testing.assert_array_equal(draw.proposals, projected.proposals)
    accepted = ~draw.is_projected
    np.testing.assert_array_equal(draw.action[accepted], projected.action[accepted])
    assert np.mean(np.any(draw.action != projected.action, axis=-1)[:32]) > 0.9


def test_the_ray_ends_on_the_boundary_towards_the_last_proposal():
    _, seen, draw = draw_of("weighted", "ray")
    action, last = draw.action[:32], draw.proposals[:32, -1]
    size = np.sum(np.abs(seen[:32, :2] * action), axis=-1)
    np.testing.assert_allclose(size, 0.5, rtol=1e-3)
    np.testing.assert_allclose(action[:, 0] * last[:, 1], action[:, 1] * last[:, 0], atol=1e-5)


def test_a_uniform_last_resort_is_another_draw_from_the_whole_set_in_every_row():
    _, seen, draw = draw_of("weighted", "uniform")
    action = draw.action[:32]
    assert len(np.unique(action, axis=0)) == 32
    share = (np.sum(np.abs(seen[:32, :2] * action), axis=-1) / 0.5) ** 2  # of the area, further inside
    assert scipy.stats.kstest(share, scipy.stats.uniform.cdf).pvalue > 1e-3
    assert (action < 0).any(axis=0).all()  # and not only on the side of the proposals


# The falling target of the entropy -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ramp", "updates", "done"),
    [(400, 0, 0.0), (400, 200, 0.5), (400, 400, 1.0), (400, 9_000, 1.0), (0, 0, 1.0)],
)
def test_the_wanted_entropy_falls_in_a_straight_line_to_that_of_the_feasible_set(ramp, updates, done):
    learner = Aram(entropy_reference="feasible", entropy_ramp=ramp, **SMALL)
    empty = jax.eval_shape(lambda key: learner.init(key, NOWHERE), jax.random.key(0))
    state = empty._replace(updates=jnp.asarray(updates), feasible_share=jnp.asarray([10.0, 100.0]))
    wanted = float(target_entropy(learner, state, NOWHERE))
    assert wanted == pytest.approx(-1.0 + done * np.log(0.1), rel=1e-5)


def test_an_entropy_target_counts_for_every_dimension():
    learner = Aram(entropy_target=-0.25, entropy_reference="box", entropy_ramp=0, **SMALL)
    empty = jax.eval_shape(lambda key: learner.init(key, NOWHERE), jax.random.key(0))
    assert float(target_entropy(learner, empty, NOWHERE)) == pytest.approx(-0.5)


@pytest.mark.parametrize(("updates", "wanted"), [(0, 1.0), (200, 0.0), (400, -1.0), (9_000, -1.0)])
def test_the_wanted_entropy_can_begin_near_that_of_a_uniform_law(updates, wanted):
    learner = Aram(entropy_reference="box", entropy_at_first=0.5, entropy_ramp=400, **SMALL)
    empty = jax.eval_shape(lambda key: learner.init(key, NOWHERE), jax.random.key(0))
    state = empty._replace(updates=jnp.asarray(updates), feasible_share=jnp.asarray([10.0, 100.0]))
    assert float(target_entropy(learner, state, NOWHERE)) == pytest.approx(wanted)


# The average that is judged ----------------------------------------------------------------------------------


def test_an_averaged_policy_follows_the_actor_by_a_fixed_share_of_the_way(batch):
    states = states_of(Aram(averaging=4, **SMALL), NOWHERE, batch, 3)
    actors = [jax.tree.leaves(state.trained.actor) for state in states]
    expected = actors[0]
    for actor in actors[1:]:
        expected = [average + (leaf - average) / 4 for average, leaf in zip(expected, actor, strict=True)]
    for found, wanted in zip(jax.tree.leaves(states[-1].averaged), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_the_average_is_what_is_judged_and_kept_and_the_actor_is_what_explores(batch):
    learner = Aram(averaging=1_000, **SMALL)
    state = states_of(learner, NOWHERE, batch, 3)[-1]
    plain, batched = Aram(**SMALL), jax.tree.map(lambda leaf: leaf[None], state)
    as_average = state._replace(trained=state.trained._replace(actor=state.averaged), averaged=())
    ask = (NOWHERE, SEEN, PREFERENCE)
    np.testing.assert_array_equal(learner.deterministic(state, *ask), plain.deterministic(as_average, *ask))
    assert np.any(
        learner.deterministic(state, *ask) != plain.deterministic(state._replace(averaged=()), *ask)
    )
    jax.tree.map(np.testing.assert_array_equal, learner.export(state), plain.export(as_average))
    explored = [
        one.act(
            batched,
            NOWHERE,
            SEEN[None],
            jnp.broadcast_to(PREFERENCE, (1, 3, 2)),
            jax.random.key(0)[None],
            False,
        )
        for one in (learner, plain)
    ]
    np.testing.assert_array_equal(explored[0].proposals, explored[1].proposals)
