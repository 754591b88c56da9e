"""What every method asks of a solver, per action and per update: the price list of the comparison."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.learners.learner import Outcome, Spec
from inbounds.learners.registry import make_learner
from inbounds.replay import Transition
from tests.learners.discrete_probe import ring_optimum
from tests.learners.probes import Probe, allocation_optimum, boundary_optimum

pytestmark = pytest.mark.slow  # every learner is compiled once for acting and once for learning

ACTIONS, BATCH = 12, 4
SMALL: dict[str, Any] = {"hidden": (4,), "batch_size": BATCH}
SETTINGS: dict[str, dict[str, Any]] = {
    "flowpg": {
        **{"hidden": (4,), "batch_size": BATCH, "flow_layers": 1, "flow_hidden": (4,)},
        **{"flow_steps": 1, "flow_samples": 8, "flow_batch_size": 4},
    },
    "focops": {"hidden": (4,), "batch_size": BATCH, "rollout": BATCH, "epochs": 1},
    "iar": {"hidden": (4,), "layers": 1, "posterior_layers": 1, "proposals": 4, "correction_draws": 2},
    "aram-discrete": {"hidden": (4,), "batch_size": BATCH, "proposals": 4},
}
PROJECT_ONE = ("td3", "dpre", "sac", "spre", "nfwpo", "flowpg")
"""Methods with one proposal per action, which is projected where it is infeasible."""
REJECT = ("aram", "sosac", "artd3", "iar", "aram-discrete")
"""Methods that ask only where all of their proposals are infeasible."""
BY_CONSTRUCTION = ("optlayer", "appropt", "dalpha", "drad", "srad")
"""Methods whose last layer leads into the set."""


class Priced(NamedTuple):
    """A learner after one action in each environment and some updates."""

    draw: Any
    memories: Any
    is_feasible: np.ndarray
    """(environments, proposals)."""
    metrics: dict[str, jax.Array]

    def calls(self) -> dict[str, int]:
        """Return what the learner counted itself, by cause."""
        return {
            name.removesuffix("_calls"): int(count)
            for name, count in self.metrics.items()
            if name.endswith("_calls")
        }


def probe_for(name: str) -> Probe:
    if name in ("iar", "aram-discrete"):
        return ring_optimum()
    return allocation_optimum() if name == "appropt" else boundary_optimum()


@cache
def priced(name: str, updates: int = 0, **settings: Any) -> Priced:
    """Act once at random in every environment, then update on a batch of what was done."""
    task, learner = probe_for(name).task, make_learner(name, **{**SETTINGS.get(name, SMALL), **settings})
    spec = Spec.of(task.observation_size, task.action_low, task.action_high, task.constraint)
    states = jax.jit(jax.vmap(lambda key: learner.init(key, spec)))(jax.random.split(jax.random.key(0), 1))
    seen = jnp.ones((1, ACTIONS, task.observation_size))
    keys = jax.random.split(jax.random.key(1), 1)
    context = jax.vmap(lambda key: learner.new_context(key, (ACTIONS,)))(keys)
    draws = jax.jit(lambda now, at: learner.act(now, spec, at, context, keys, is_random=True))(states, seen)
    state, draw = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (states, draws))
    outcome = Outcome(jnp.ones(ACTIONS), jnp.zeros(ACTIONS), seen[0], jnp.ones(ACTIONS, bool))
    state = learner.adapt(state, spec, draw, outcome, jnp.asarray(ACTIONS), True)
    memories = learner.remember(spec, seen[0], draw, outcome)
    ring = memories[learner.buffers[0]].transition
    batch = jax.tree.map(lambda leaf: leaf[:BATCH], ring)
    if getattr(learner, "rollout", 0):
        batch = Transition(*(leaf[None] for leaf in batch))
    metrics: dict[str, jax.Array] = {}
    step = jax.jit(lambda now, rows, noise: learner.update(now, spec, rows, noise))
    for turn in range(updates):
        state, metrics = step(state, batch, learner.noise(jax.random.key(turn), spec))
    is_feasible = np.asarray(spec.constraint.contains(None, np.asarray(draw.proposals, np.float64)))
    return Priced(draw, memories, is_feasible, metrics)


@pytest.mark.parametrize("name", PROJECT_ONE)
def test_methods_that_project_ask_once_for_every_infeasible_action(name: str) -> None:
    made = priced(name)
    assert made.is_feasible.shape == (ACTIONS, 1)
    np.testing.assert_array_equal(made.draw.is_projected, ~made.is_feasible[:, 0])
    assert np.sum(made.draw.is_projected) > 0


@pytest.mark.parametrize("name", REJECT)
def test_methods_that_reject_ask_only_where_every_proposal_is_infeasible(name: str) -> None:
    made = priced(name, proposals=4)
    assert made.is_feasible.shape == (ACTIONS, 4)
    np.testing.assert_array_equal(made.draw.is_projected, ~made.is_feasible.any(axis=1))
    assert not np.all(made.draw.is_projected)


def test_focops_projects_every_action() -> None:
    assert np.all(priced("focops").draw.is_projected)


@pytest.mark.parametrize("name", BY_CONSTRUCTION)
def test_methods_that_are_valid_by_construction_need_no_projection(name: str) -> None:
    made = priced(name)
    assert not np.any(made.draw.is_projected)
    assert not np.all(made.is_feasible) or name == "srad"  # the layers had something to correct


@pytest.mark.parametrize("name", ["td3", "dpre", "sac", "spre", "flowpg", "focops", "appropt", *REJECT])
def test_no_solver_is_asked_in_an_update_of(name: str) -> None:
    assert priced(name, updates=1).calls() == {}


@pytest.mark.parametrize("name", ["dalpha", "drad", "srad"])
def test_radial_methods_look_for_one_centre_per_action_and_none_in_updates(name: str) -> None:
    assert priced(name, updates=2).calls() == {"centre": ACTIONS}


def test_nfwpo_asks_for_a_linear_program_and_at_most_one_projection_per_row_of_every_second_update() -> None:
    counted = {updates: priced("nfwpo", updates=updates).calls() for updates in (1, 2, 4)}
    assert [counted[updates]["linear_program"] for updates in (1, 2, 4)] == [0, BATCH, 2 * BATCH]
    assert counted[1]["projection"] == 0 and counted[4]["projection"] <= 2 * BATCH


def test_optlayer_asks_once_per_action_and_row_and_again_for_rows_of_every_second_update() -> None:
    counted = [priced("optlayer", updates=updates).calls()["layer"] for updates in (1, 2, 4)]
    assert counted == [ACTIONS + BATCH, ACTIONS + 3 * BATCH, ACTIONS + 6 * BATCH]


def test_optlayer_of_the_nfwpo_authors_moves_its_actor_every_fiftieth_update() -> None:
    assert priced("optlayer", updates=50, preset="lin").calls() == {"layer": ACTIONS + 51 * BATCH}


@pytest.mark.parametrize("name", [*PROJECT_ONE, *REJECT, *BY_CONSTRUCTION, "focops"])
def test_only_the_methods_that_project_in_the_environment_store_what_was_not_executed(name: str) -> None:
    made = priced(name)
    stored = np.asarray(next(iter(made.memories.values())).transition.action)
    if name in ("dpre", "spre", "focops"):
        np.testing.assert_array_equal(stored, made.draw.proposals[:, 0])
        assert not np.array_equal(stored, made.draw.action)
    else:
        np.testing.assert_array_equal(stored, made.draw.action)
