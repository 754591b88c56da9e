"""stable-baselines3 becomes action-constrained in two lines; runs where it is installed (`make peers`)."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.auditing.audit import audit
from inbounds.errors import CheckpointError

sb3: Any = pytest.importorskip("stable_baselines3")
torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("default")
OFF_POLICY = {"learning_starts": 50, "batch_size": 16, "buffer_size": 1000}
ALGORITHMS = {"SAC": OFF_POLICY, "TD3": OFF_POLICY, "PPO": {"n_steps": 64, "batch_size": 32}}


def agent(algorithm: str, env: Any, **options: Any) -> Any:
    small = {"policy_kwargs": {"net_arch": [16, 16]}, "device": "cpu", "seed": 0}
    return getattr(sb3, algorithm)("MlpPolicy", env, **small, **ALGORITHMS[algorithm], **options)


class Witness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sits at the simulator's door and keeps the violation of everything that passes."""

    def __init__(self, env: Any, constraint: Any) -> None:
        super().__init__(env)
        self.constraint, self.excesses, self.standpoint = constraint, [], None

    def reset(self, **options: Any) -> Any:
        self.standpoint, info = self.env.reset(**options)
        return self.standpoint, info

    def step(self, action: Any) -> Any:
        seen = np.asarray(self.standpoint, np.float64)
        self.excesses.append(float(self.constraint.violation(seen, np.asarray(action, np.float64))))
        self.standpoint, *rest = self.env.step(action)
        return (self.standpoint, *rest)


def wrapped(wrapper: Any, **options: Any) -> tuple[Any, Witness]:
    task = ib.make("reacher")
    witness = Witness(task.make_environment(), task.constraint)
    return wrapper(gymnasium.wrappers.TimeLimit(witness, task.horizon), task.constraint, **options), witness


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("wrapper", [ib.ProjectAction, ib.AugmentedMDP, ib.AcceptReject])
def test_an_agent_trains_and_no_infeasible_action_arrives(algorithm: str, wrapper: Any) -> None:
    env, witness = wrapped(wrapper)
    model = agent(algorithm, env)
    if wrapper is ib.AcceptReject:
        env.policy = lambda observation: model.predict(observation, deterministic=False)[0]
    model.learn(300)
    assert witness.excesses and max(witness.excesses) <= 0.0
    if wrapper is ib.AugmentedMDP:
        assert len(witness.excesses) < 300  # some actions were self-loops
    else:
        assert len(witness.excesses) >= 300


def test_two_lines_are_enough_for_an_id_of_this_library() -> None:
    env = ib.ProjectAction(gymnasium.make("inbounds/Reacher-v0"))
    model = agent("SAC", env).learn(120)
    assert env.projections > 0 and model.num_timesteps == 120


def test_a_replay_buffer_of_a_few_lines_stores_what_was_executed() -> None:
    class ExecutedActions(sb3.common.buffers.ReplayBuffer):  # type: ignore[misc, name-defined]
        def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
            low, high = self.action_space.low, self.action_space.high
            executed = np.stack([info.get("executed_action", info["raw_action"]) for info in infos])
            scaled = 2.0 * (executed - low) / (high - low) - 1.0
            super().add(obs, next_obs, scaled, reward, done, infos)

    env, _ = wrapped(ib.ProjectAction)
    model = agent("SAC", env, replay_buffer_class=ExecutedActions).learn(100)
    stored = model.replay_buffer.actions[:100, 0]
    task = ib.make("reacher")
    middle, half = (task.action_high + task.action_low) / 2, (task.action_high - task.action_low) / 2
    excess = task.constraint.violation(None, (middle + half * stored).astype(np.float64))
    assert excess.max() <= 1e-5  # the buffer's own scaling rounds


def test_a_trained_agent_is_deployed_behind_a_safety_filter() -> None:
    env, _ = wrapped(ib.ProjectAction)
    model = agent("TD3", env)
    safety = ib.SafetyFilter(env.constraint, model)
    observation, _ = env.reset(seed=0)
    for _ in range(50):
        action = safety.act(observation)
        assert env.constraint.violation(observation, action.astype(np.float64)) <= 0.0
        observation, *_ = env.step(action)
    assert safety.metrics()["calls"] == 50


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("zips")
    env, _ = wrapped(ib.ProjectAction)
    for algorithm in ALGORITHMS:
        agent(algorithm, env).save(folder / algorithm)
    return folder


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_saved_agent_is_audited_as_it_predicts(algorithm: str, saved: Any) -> None:
    task, path = ib.make("reacher"), saved / f"{algorithm}.zip"
    found = audit(path, task, steps=40, deterministic=True, interpreter=sys.executable)
    assert found.kind.endswith({"PPO": "PPO or A2C"}.get(algorithm, algorithm)) and found.steps == 40
    model = getattr(sb3, algorithm).load(path, device="cpu")
    same = audit(lambda seen: model.predict(seen, deterministic=True)[0], task, steps=40)
    assert (found.violations, found.worst_excess) == (same.violations, pytest.approx(same.worst_excess, 1e-4))


def test_an_agent_with_another_activation_is_rebuilt_without_its_pickles(tmp_path: Path, saved: Any) -> None:
    """The options of such an agent are pickled in the file, and a payload there must stay asleep."""
    env, _ = wrapped(ib.ProjectAction)
    options = {"activation_fn": torch.nn.Tanh, "net_arch": [8]}
    sb3.SAC("MlpPolicy", env, policy_kwargs=options, device="cpu").save(tmp_path / "plain")
    touched = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> Any:
            return (Path.touch, (touched,))

    poison = base64.b64encode(pickle.dumps(Payload())).decode()
    with zipfile.ZipFile(tmp_path / "plain.zip") as source, zipfile.ZipFile(tmp_path / "bad.zip", "w") as out:
        for part in source.namelist():
            content = source.read(part)
            if part == "data":
                data = json.loads(content)
                for value in data.values():
                    if isinstance(value, dict) and ":serialized:" in value:
                        value[":serialized:"] = poison
                content = json.dumps(data).encode()
            out.writestr(part, content)
    found = audit(tmp_path / "bad.zip", ib.make("reacher"), steps=5, interpreter=sys.executable)
    assert found.steps == 5 and not touched.exists()


def test_an_agent_for_another_task_is_refused(saved: Any) -> None:
    with pytest.raises(CheckpointError, match="Save it again"):
        audit(saved / "SAC.zip", ib.make("halfcheetah"), steps=5, interpreter=sys.executable)
