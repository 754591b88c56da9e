"""A learner from outside the package: one class trains, is evaluated, exported, deployed in NumPy and audited."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import inbounds as ib
from inbounds.deploy.export_check import compare
from inbounds.evaluation.protocol import evaluate_run
from inbounds.evaluation.trained import TrainedRun
from inbounds.learners import registry
from inbounds.learners.learner import Memory, Metrics, Outcome, Spec
from inbounds.learners.networks import init_network
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.heads import Deterministic, Query
from inbounds.policies.networks import apply_network
from inbounds.replay import Transition
from tests.tasks.own_environments import Plant


@dataclasses.dataclass(frozen=True)
class RewardWeighted(ib.Learner):
    """Reward-weighted regression: the actor imitates the actions of a batch, the better ones more."""

    batch_size: int = 16

    def head(self, spec: Spec) -> Deterministic:
        return Deterministic(std=0.3, proposals=8)

    def init(self, key: jax.Array, spec: Spec) -> Any:
        actor = init_network(key, (spec.observation_size, 16, spec.box.size), spec.inputs)
        return {"actor": actor, "optimiser": optax.adam(1e-2).init(actor)}

    def act(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        shape = (observation.shape[1], 8, spec.box.size)
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        output = jax.vmap(apply_network)(state["actor"], observation)
        query = Query(observation[..., None, :], output[..., None, :], noise)
        return accept_first(spec.constraint, observation, self.head(spec).actions(spec, {}, query))

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        reward = outcome.reward[:, None]
        step = Transition(observation, draw.action, reward, outcome.not_done, outcome.next_observation)
        return {"real": Memory(step, None)}

    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        weight = jax.nn.softmax(batch.reward[:, 0])

        def loss(actor: Any) -> jax.Array:
            missed = jnp.tanh(apply_network(actor, batch.observation)) - spec.box.normalise(batch.action)
            return jnp.sum(weight * jnp.sum(missed**2, axis=-1))

        value, gradient = jax.value_and_grad(loss)(state["actor"])
        change, optimiser = optax.adam(1e-2).update(gradient, state["optimiser"])
        return {"actor": optax.apply_updates(state["actor"], change), "optimiser": optimiser}, {"loss": value}

    def export(self, state: Any) -> dict[str, Any]:
        return {"actor": state["actor"]}


@pytest.mark.sweep
def test_one_class_is_all_that_a_new_method_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.LEARNERS, "reward-weighted", RewardWeighted)
    limit = ib.WeightedL1(weights=[1.0, 2.0], bound=ib.obs["cap", 0] * 0.3)
    task = ib.Task(Plant, limit, name="plant", horizon=10).normalised(steps=50)
    settings: dict[str, Any] = {"warm_up": 40, "environments": 2, "episodes": 2, "evaluate_every": 60}
    run = ib.train(task, RewardWeighted(), steps=120, out=tmp_path / "run", **settings)
    assert run.worst_violation <= 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["head"] == Deterministic(std=0.3, proposals=8).to_json()

    opened = TrainedRun.open(tmp_path / "run", task)
    assert evaluate_run(opened, episodes=2).worst_violation <= 0

    exported = ib.export(run, tmp_path / "exported").path
    found = compare(exported, 50)
    assert found.violations == 0 and found.largest_difference < 1e-5

    state = jax.tree.map(lambda leaf: leaf[0], opened.states)
    observations = np.random.default_rng(0).uniform(size=(10, task.observation_size)).astype(np.float32)
    raw = np.asarray(opened.learner.mode(state, opened.spec, jnp.asarray(observations), jnp.zeros(2)))
    for folder in (tmp_path / "run", exported):
        policy = ib.load(folder)
        for seen, wanted in zip(observations.astype(np.float64), raw, strict=True):
            acted = policy.act(seen, deterministic=True)
            np.testing.assert_allclose(acted, task.constraint.project(seen, wanted), atol=1e-5)

    for given in (exported, exported / "policy.onnx"):
        certificate = ib.audit(given, task, steps=40)
        assert certificate.violations == 0 and certificate.steps == 40
