"""A function that tells whether an action is allowed is asked in float64, with what will be executed."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import inbounds as ib
from inbounds.constraints.oracle import asks_a_function
from inbounds.errors import ConstraintError, EmptySetError
from inbounds.learners.learner import Spec
from inbounds.tasks.empty_states import Settling
from inbounds.training.config import seed_keys
from inbounds.training.evaluate import Evaluator
from tests.tasks.own_environments import Counter
from tests.training.test_empty_states import collected, small

MOST = 0.1


def below(observation: Any, action: Any) -> Any:
    """Allow first entries up to the second entry of the observation."""
    return action[..., 0] <= observation[..., 1]


def right(observation: Any, action: Any) -> Any:
    return action[..., 0] >= 0.0


class Wandering(Counter):
    """Shows a limit with all the digits of float64."""

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self._answer()[0], {}

    def _answer(self) -> Any:
        seen = np.array([float(len(self.received)), self.np_random.uniform(-MOST, MOST)])
        return seen, 1.0, False, False, {}


def limit(function: Any = below) -> ib.Oracle:
    return ib.Oracle(function, 2, is_batched=True, samples=30)


@functools.cache
def task() -> ib.Task:
    return ib.Task(Wandering, limit(), horizon=20, name="wandering")


def test_the_guard_never_refuses_what_training_executes_next_to_the_boundary() -> None:
    collector, state, _ = collected(task(), small("spre"), warm_up=1_000, turns=100)
    assert collector.turn == 100  # with float32 observations about half of the projections lie outside
    assert int(np.asarray(state.counters.projections)[0]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aram", "td3", "iar"])
def test_the_guard_never_refuses_other_learners_either(name: str) -> None:
    collector, _, _ = collected(task(), small(name), warm_up=20, turns=60)
    assert collector.turn == 60


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in ("dpre", "optlayer", "nfwpo", "srad")] + ["spre"],
)
def test_methods_that_need_a_gradient_of_the_set_are_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(ConstraintError, match=r"below .* has no gradient.*Take ARAM"):
        collected(task(), small(name), warm_up=20, turns=60)


@pytest.mark.slow
def test_the_guard_never_refuses_what_an_evaluation_executes() -> None:
    learner = small("spre")
    spec = Spec.of(2, task().action_low, task().action_high, task().constraint)
    states = jax.vmap(lambda key: learner.init(key, spec))(seed_keys(0, 1))
    found = Evaluator(task(), learner, spec, episodes=4).evaluate(states, [0], (0.9, 0.1), salt=1)
    assert found.worst_violation <= 0.0


def test_what_the_function_refuses_in_float64_is_projected_from_there() -> None:
    settling = Settling(task())
    seen = np.array([[0.0, np.nextafter(np.float64(np.float32(0.1)), 0.0)]])
    action = np.array([[np.float32(0.1), 0.0]], np.float32)
    assert task().constraint.contains(seen.astype(np.float32), action).all()
    found = settling.settle(seen, action, action)
    assert found.is_projected.tolist() == [True]
    assert below(seen, found.actions.astype(np.float64)).all()


def test_a_function_that_allows_nothing_stops_with_the_observation() -> None:
    nothing = ib.Task(Wandering, limit(lambda s, a: a[..., 0] > 5.0), horizon=20, name="nothing")
    action = np.zeros((1, 2), np.float32)
    with pytest.raises(EmptySetError, match=r"nothing: .*observation \[0, 0\.05\].*30 samples"):
        Settling(nothing).settle(np.array([[0.0, 0.05]]), action, action)


@pytest.mark.parametrize(
    ("constraint", "asks"),
    [
        (limit(), True),
        (limit() & ib.Box(-1.0, 1.0), True),
        (limit() | ib.Box(-1.0, 1.0), True),
        (ib.Ball(radius_squared=1.0) & ib.Box(-1.0, 1.0), False),
        (ib.Ball(radius_squared=1.0) | ib.Box(-1.0, 1.0), False),
    ],
)
def test_a_set_with_a_function_anywhere_inside_is_known(constraint: Any, asks: bool) -> None:
    assert asks_a_function(constraint) == asks


SCRIPT = """
import numpy as np
import inbounds as ib
from tests.training.test_oracle_training import Wandering

def inside(observation, action):
    return bool(action[0] >= 0.0)

if __name__ == "__main__":
    task = ib.Task(Wandering, ib.Oracle(inside, 2, samples=30), horizon=20, name="wandering")
    print(ib.check_task(task, steps=5))
    ib.train(task, steps=10)
"""


def test_a_function_of_the_script_itself_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=tmp_path,
        env={
            "PYTHONPATH": f"{root / 'src'}:{root}",
            "JAX_PLATFORMS": "cpu",
            "PATH": "",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert "ConstraintError: the function inside of __main__" in ran.stderr, ran.stderr
    assert "Move it to the top level of a module" in ran.stderr
    assert "not ready" in ran.stdout and "function inside of __main__" in ran.stdout
    assert not (tmp_path / "runs").exists()


def test_a_function_under_the_name_of_another_is_not_written_as_that_one() -> None:
    @functools.wraps(right)
    def wrapped(observation: Any, action: Any) -> Any:
        return ~right(observation, action)

    with pytest.raises(ConstraintError, match="top level of a module"):
        limit(wrapped).to_json()
    assert limit(right).to_json()["function"] == f"{__name__}:right"


def test_a_function_that_was_named_by_its_path_is_written_as_that_path() -> None:
    named = ib.Oracle(f"{__name__}:CALLABLE", 2) & ib.Box(-1.0, 1.0)
    written = json.loads(json.dumps(named.to_json()))
    again = ib.Constraint.from_json(written, allow_code=True)
    assert again.violation(None, [0.5, 0.0]) <= 0 < again.violation(None, [-0.5, 0.0])


CALLABLE = functools.partial(lambda least, observation, action: bool(action[0] >= least), 0.0)
"""It can be imported, but does not know its own name."""
