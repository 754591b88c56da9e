"""Tasks of compiled environments: our own protocol, and the states of Brax and MuJoCo Playground."""

from __future__ import annotations

import functools
import operator
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, InboundsError, InfeasibleActionError, SimulationError

HORIZON = 4
FAILS_ABOVE = 2.0


class Data(NamedTuple):
    qpos: jax.Array
    qvel: jax.Array


class State(NamedTuple):
    """The fields of a state of MuJoCo Playground."""

    data: Data
    obs: Any
    reward: jax.Array
    done: jax.Array
    metrics: dict[str, jax.Array]
    info: dict[str, jax.Array]


class Cart:
    """Two carts, pushed by the action; the first one falls off a table of half-width 2. It observes places alone."""

    action_size, observation_size = 2, 2
    _config = types.SimpleNamespace(episode_length=HORIZON)

    def reset(self, key: jax.Array) -> State:
        return self._state(
            Data(jnp.zeros(2), 0.1 * jax.random.normal(key, (2,))), 0.0, {"budget": jnp.float32(0.5)}
        )

    def step(self, state: State, action: jax.Array) -> State:
        speed = state.data.qvel + action
        return self._state(Data(state.data.qpos + speed, speed), 1.0, state.info)

    def _state(self, data: Data, reward: Any, info: dict[str, jax.Array]) -> State:
        is_off = (jnp.abs(data.qpos[0]) > FAILS_ABOVE).astype(jnp.float32)
        return State(data, self._observe(data), jnp.asarray(reward), is_off, {"speed": data.qvel[0]}, info)

    def _observe(self, data: Data) -> Any:
        return data.qpos


class CartOfTwoViews(Cart):
    def _observe(self, data: Data) -> Any:
        return {"state": data.qpos, "privileged_state": jnp.concatenate(data)}


class BreakingCart(Cart):
    def _observe(self, data: Data) -> Any:
        return jnp.where(data.qpos[0] > 0.5, jnp.nan, data.qpos)


class CartThatAddsMetrics(Cart):
    def step(self, state: State, action: jax.Array) -> State:
        after = super().step(state, action)
        return after._replace(metrics={**after.metrics, "late": jnp.float32(0.0)})


class AutoResetWrapper:
    def __init__(self, env: Any) -> None:
        self.env = env


class VmapWrapper(AutoResetWrapper):
    pass


class RandomisingWrapper(AutoResetWrapper):
    """A wrapper of the user, which neither cuts nor resets."""


class RandomisedCart(Cart):
    """A wrapper of the user that passes on what it wraps."""

    def __init__(self, env: Any) -> None:
        self.env = env


def speed_and_budget(state: State) -> dict[str, jax.Array]:
    return {"speed": state.data.qvel, "budget": state.info["budget"]}


def limited_cart() -> ib.Task:
    limit = ib.PowerBudget(weights=ib.obs["speed"], bound=ib.obs["budget", 0])
    return ib.from_mjx(Cart(), limit, observe=speed_and_budget)


def played(task: ib.Task, action: Any, steps: int = HORIZON) -> list[ib.CompiledStep]:
    """Step the pure functions one by one."""
    assert task.compiled is not None
    environment = task.compiled()
    state, _ = environment.reset(jax.random.key(0))
    taken = []
    for index in range(steps):
        taken.append(environment.step(state, jnp.asarray(action), jax.random.key(index)))
        state = taken[-1].state
    return taken


def test_what_observe_returns_is_appended_under_its_names_and_read_by_the_constraint() -> None:
    task = limited_cart()
    assert task.observation_parts == (("observation", 2), ("speed", 2), ("budget", 1))
    step = played(task, [0.25, 0.5], steps=1)[0]
    state = step.state.inner
    np.testing.assert_array_equal(step.observation, [*state.data.qpos, *state.data.qvel, 0.5])
    seen = np.array([0.0, 0.0, 2.0, 0.0, 0.5])
    assert (
        task.constraint.violation(seen, np.array([0.25, 1.0]))
        <= 0
        < task.constraint.violation(seen, np.array([0.26, 0.0]))
    )


@pytest.mark.parametrize("further", [[], [ib.RateLimit(5.0)]])
def test_numbers_count_the_entries_of_the_environment_and_not_what_observe_appends(
    further: list[Any],
) -> None:
    limit = functools.reduce(operator.and_, [ib.WeightedL1([1.0, 1.0], ib.abs(ib.obs[-1]) + 0.1), *further])
    task = ib.from_mjx(Cart(), limit, observe=speed_and_budget)
    seen = np.array([9.0, 0.2, 9.0, 9.0, 9.0, *(0.0 for _ in further for _ in range(2))])
    assert task.constraint.violation(seen, np.array([0.3, 0.0])) == pytest.approx(0.0, abs=1e-12)
    assert task.constraint.violation(seen, np.array([0.4, 0.0])) == pytest.approx(0.1, abs=1e-12)
    with pytest.raises(ConfigurationError, match=r"has 2 entries.*ib\.obs\['speed'\]"):
        ib.from_mjx(Cart(), ib.WeightedL1([1.0, 1.0], ib.obs[2]), observe=speed_and_budget)


def test_an_array_without_a_name_is_called_observed() -> None:
    task = ib.from_mjx(Cart(), ib.PowerBudget(ib.obs["observed"], 0.5), observe=lambda state: state.data.qvel)
    assert task.observation_parts == (("observation", 2), ("observed", 2))


def test_the_time_limit_truncates_and_a_fall_terminates() -> None:
    task = ib.from_mjx(Cart())
    ends = [(bool(step.terminated), bool(step.truncated)) for step in played(task, [0.0, 0.0])]
    assert ends == [(False, False)] * (HORIZON - 1) + [(False, True)]
    fall = played(task, [1.0, 0.0], steps=2)[-1]  # at 1 and then at 3
    assert (bool(fall.terminated), bool(fall.truncated)) == (True, False)


def test_a_fall_at_the_time_limit_is_a_termination() -> None:
    last = played(ib.from_brax(Cart(), horizon=2), [1.0, 0.0], steps=2)[-1]
    assert (bool(last.terminated), bool(last.truncated)) == (True, False)


def test_the_last_step_keeps_where_its_action_led_and_the_next_episode_begins_afresh() -> None:
    batch = ib.from_mjx(Cart()).host(2, 1)  # type: ignore[misc]
    batch.reset([0, 1])
    places = []
    for _ in range(HORIZON):
        step = batch.step(np.full((2, 2), 0.125))
        places.append(step.final_observation)
    assert step.truncated.all() and not step.terminated.any()
    assert (step.final_observation > places[-2]).any() and (step.observation == 0.0).all()


def test_the_guard_refuses_what_the_velocities_of_the_state_forbid() -> None:
    environment = limited_cart().make_environment()
    observation, _ = environment.reset(seed=0)
    towards = np.sign(observation[2:4]) * 0.9
    observation, *_ = environment.step(towards * 0.5)
    with pytest.raises(InfeasibleActionError, match="exceeds its constraint"):
        environment.step(np.sign(observation[2:4]) * 1.0)


def test_the_previous_action_is_shown_where_the_constraint_reads_it() -> None:
    task = ib.from_mjx(Cart(), ib.RateLimit(0.25))
    assert task.observation_parts == (("observation", 2), ("previous_action", 2))
    assert task.compiled is not None
    _, first = task.compiled().reset(jax.random.key(0))
    np.testing.assert_array_equal(first[2:], [0.0, 0.0])
    np.testing.assert_array_equal(played(task, [0.25, -0.125], steps=1)[0].observation[2:], [0.25, -0.125])


def test_one_view_of_several_is_chosen_by_name() -> None:
    assert ib.from_mjx(CartOfTwoViews(), observation="privileged_state").observation_size == 4


def test_a_simulation_that_breaks_is_reported() -> None:
    batch = ib.from_mjx(BreakingCart()).host(1, 1)  # type: ignore[misc]
    batch.reset([0])
    with pytest.raises(SimulationError, match="not finite numbers after 1 steps"):
        batch.step(np.array([[1.0, 0.0]]))


def refusals() -> dict[str, tuple[Any, str]]:
    return {
        "a dictionary": (lambda: ib.from_mjx(CartOfTwoViews()), "observation='state'"),
        "an entry of an array": (lambda: ib.from_mjx(Cart(), observation="state"), "Omit it"),
        "auto-reset": (
            lambda: ib.from_brax(AutoResetWrapper(Cart())),
            "AutoResetWrapper .* bare environment",
        ),
        "auto-reset within": (
            lambda: ib.from_brax(RandomisingWrapper(AutoResetWrapper(Cart()))),
            "AutoResetWrapper cuts or resets",
        ),
        "a batch": (lambda: ib.from_mjx(VmapWrapper(Cart())), "VmapWrapper steps a batch"),
        "no horizon": (lambda: ib.from_brax(Cart(), horizon=None), "Pass horizon="),  # type: ignore[arg-type]
        "no step": (lambda: ib.from_brax(Cart(), horizon=0), "whole number"),
        "growing metrics": (lambda: ib.from_mjx(CartThatAddsMetrics()), "state of other parts"),
        "an unknown part": (lambda: ib.from_mjx(Cart(), ib.PowerBudget(ib.obs["speed"], 1.0)), "speed"),
        "three entries": (
            lambda: ib.from_mjx(Cart(), ib.PowerBudget([1.0, 1.0, 1.0], 1.0)),
            "same dimension",
        ),
        "a name": (lambda: ib.from_mjx(Cart(), name="a/b"), "without slashes"),
    }


@pytest.mark.parametrize("case", refusals())
def test_refusals_name_the_remedy(case: str) -> None:
    make, message = refusals()[case]
    with pytest.raises(InboundsError, match=message):
        make()


class Flat:
    """An environment by our own protocol, with a fault that each test chooses."""

    observation_size, action_size, horizon = 1, 1, HORIZON
    observation_shape: tuple[int, ...] = (1,)
    state_type: Any = jnp.float32
    first, last = 0.0, 0.0
    """What the first and the last observation of an episode hold."""

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(()), jnp.full(1, self.first)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> ib.CompiledStep:
        after = (state + 1).astype(self.state_type)
        seen = jnp.where(after >= self.horizon, self.last, jnp.zeros(self.observation_shape))
        return ib.CompiledStep(after, seen, -action[0], jnp.asarray(False), after >= self.horizon)


def test_our_own_protocol_makes_a_task_in_its_own_units() -> None:
    task = ib.from_compiled(
        Flat(), ib.WeightedL1([1.0], bound=3.0), action_low=0.0, action_high=5.0, name="flat"
    )
    assert (task.name, task.horizon, task.action_high.tolist()) == ("flat", HORIZON, [5.0])
    assert task.constraint.violation(np.zeros(1), np.array([3.5])) > 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"observation_shape": (3,)}, r"step's observation has shape \(3,\), expected \(1,\)"),
        ({"state_type": jnp.int32}, "step's state differs from reset's"),
    ],
)
def test_what_no_compiled_loop_could_carry_is_refused(fault: dict[str, Any], message: str) -> None:
    environment = Flat()
    vars(environment).update(fault)
    with pytest.raises(ConfigurationError, match=message):
        ib.from_compiled(environment)


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [
        (
            object(),
            {},
            r"no observation_size .* ib.CompiledEnvironment; ib.Task takes Gymnasium environments",
        ),
        (Flat(), {"action_low": [-1.0, -1.0]}, r"action_low=.* does not bound an action of 1 entries. Give"),
        (Flat(), {"action_high": "much"}, "action_high='much' does not bound"),
    ],
)
def test_what_is_no_compiled_environment_or_no_bound_is_refused(
    environment: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ib.from_compiled(environment, **options)


def test_a_compiled_task_of_the_user_is_not_called_like_one_of_ours() -> None:
    for make in (
        lambda: ib.from_compiled(Flat(), name="hopper"),
        lambda: ib.from_compiled(type("Ant", (Flat,), {})()),
        lambda: ib.from_mjx(Cart(), name="Reacher"),
    ):
        with pytest.raises(
            ConfigurationError, match=r'one of our tasks.* Pass another one, such as name="my-'
        ):
            make()
    assert ib.from_mjx(type("Reacher", (Cart,), {})(), name="my-reacher").name == "my-reacher"


def test_what_a_package_calls_like_one_of_our_tasks_needs_no_name() -> None:
    ant = type("Ant", (Cart,), {})()
    assert ib.from_brax(ant).name == "brax-ant" and ib.from_mjx(ant).name == "playground-ant"
    assert ib.from_brax(Cart()).name == "cart" and ib.from_mjx(RandomisedCart(ant)).name == "playground-ant"


def flat(**values: float) -> ib.Task:
    environment = Flat()
    vars(environment).update(values)
    return ib.from_compiled(environment, name="flat")


def test_an_observation_that_is_not_a_number_is_refused_where_it_begins_or_ends_an_episode() -> None:
    with pytest.raises(
        SimulationError, match=r"first observation of environment 0 of 1 .* Correct the environment"
    ):
        flat(first=np.nan).make_environment().reset(seed=0)
    with pytest.raises(SimulationError, match="first observation of environment 0 of 2"):
        flat(first=np.inf).host(2, 1).reset([0, 1])
    with pytest.raises(SimulationError, match="its reward or its observation is not a finite number"):
        batch = flat(last=np.nan).host(2, 1)
        batch.reset([0, 1])
        for _ in range(HORIZON):
            batch.step(np.zeros((2, 1)))


@pytest.mark.parametrize(
    "values", [{"last": np.nan}, {"first": np.nan}], ids=["at the end", "at the beginning"]
)
def test_training_does_not_blame_the_learner_for_a_simulation_that_breaks(
    values: dict[str, float], tmp_path: Path
) -> None:
    settings = {"environments": 2, "warm_up": 4, "progress": False, "out": tmp_path / "run"}
    with pytest.raises(SimulationError, match=r"observation.* not a finite number"):
        ib.train(flat(**values), ib.Sac(), steps=40, **settings)


@pytest.mark.slow
def test_an_adapted_task_is_trained_resumed_evaluated_exported_and_audited(tmp_path: Path) -> None:
    task = limited_cart()
    settings = {"environments": 4, "episodes": 2, "warm_up": 40, "progress": False}
    run = ib.train(task, ib.Sac(), steps=80, out=tmp_path / "run", **settings)
    run = ib.train(task, ib.Sac(), steps=120, out=tmp_path / "run", resume=True, progress=False)
    whole = ib.train(task, ib.Sac(), steps=120, out=tmp_path / "whole", **settings)
    seen = np.array([0.5, -0.5, 1.0, -1.0, 0.5])
    resumed, uninterrupted = (ib.load(done.path).act(seen, deterministic=True) for done in (run, whole))
    np.testing.assert_array_equal(resumed, uninterrupted)
    assert ib.evaluate(run, task, episodes=2).worst_violation <= 0
    assert ib.export(run).is_feasible_by_construction
    certificate = ib.audit(str(run.path), task, steps=50)
    assert (certificate.steps, certificate.violations) == (50, 0)


class Parted(Flat):
    """Three observed numbers; what is named of them differs."""

    observation_size = 3
    observation_parts: Any = (("place", 1), ("speed", 2))

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(()), jnp.arange(3.0)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> ib.CompiledStep:
        return super().step(state, action, key)._replace(observation=jnp.arange(3.0))


def parted(parts: Any, constraint: ib.Constraint | None = None) -> ib.Task:
    environment = Parted()
    environment.observation_parts = parts
    return ib.from_compiled(environment, constraint, name="parted")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((("place", 1),), r"names 1 entries, but observation_size is 3.*\('rest', \.\.\.\)"),
        ((("place", 1), ("speed", 3)), "names 4 entries"),
        ((("place", 4), ("speed", -1)), r"has \('speed', -1\).*Write pairs"),
        ((("place", 1.0), ("speed", 2.0)), "Write pairs"),
        ((("place", True), ("speed", 2)), "Write pairs"),
        ((("place", 0), ("speed", 3)), "Write pairs"),
        ((("speed", 1), ("speed", 2)), "two parts 'speed'.*name of its own"),
        (((1, 1), ("speed", 2)), "Write pairs"),
        ("xy", "Write pairs"),
        (7, "Write pairs"),
    ],
)
def test_parts_that_are_not_all_of_an_observation_are_refused(parts: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parted(parts, ib.RateLimit(0.1))


def test_parts_as_lists_and_numbers_of_numpy_are_parts() -> None:
    assert parted([["place", 1], ("speed", np.int64(2))]).observation_parts == (("place", 1), ("speed", 2))


def test_a_part_called_previous_action_beside_the_one_that_a_rate_limit_reads_is_refused() -> None:
    parts = (("previous_action", 1), ("rest", 2))
    assert parted(parts).observation_parts == parts
    with pytest.raises(InboundsError, match=r"several parts .* 'previous_action'\. Rename"):
        parted(parts, ib.RateLimit(0.1))


class Answering(Flat):
    """What the first reset and every step answer is replaced."""

    began: Any = None
    answered: Any = None

    def reset(self, key: jax.Array) -> Any:
        return super().reset(key) if self.began is None else self.began

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return super().step(state, action, key) if self.answered is None else self.answered


def answer(**fields: Any) -> ib.CompiledStep:
    step = ib.CompiledStep(
        jnp.zeros(()), jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool)
    )
    return step._replace(**fields)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"answered": tuple(answer())}, r"step .* returned tuple, .* return ib\.CompiledStep\("),
        ({"answered": None, "began": jnp.zeros(1)}, "reset .* return state, observation"),
        ({"began": (jnp.zeros(()), jnp.zeros(1), {})}, "reset .* return state, observation"),
        ({"began": (jnp.zeros(()), [0.0])}, "returned list as observation.*jnp.asarray"),
        ({"answered": answer(reward=jnp.zeros((), jnp.complex64))}, "complex64 as reward, .* real numbers"),
        ({"answered": answer(reward=None)}, "NoneType as reward"),
        ({"answered": answer(observation=jnp.zeros(1, jnp.complex64))}, "complex64 as observation"),
        ({"answered": answer(terminated=jnp.zeros(()))}, r"float32 as terminated, .* True or False.*bool\)"),
        ({"answered": answer(truncated=0)}, "int.* as truncated"),
        ({"observation_size": 3.0}, r"observation_size=3\.0 is not a number of entries"),
        ({"action_size": True}, "action_size=True is not a number of entries"),
        ({"action_size": 0}, "whole number of 1 or more"),
    ],
)
def test_what_a_compiled_environment_answers_or_states_wrongly_is_named(
    fault: dict[str, Any], message: str
) -> None:
    environment = Answering()
    vars(environment).update(fault)
    with pytest.raises(ConfigurationError, match=message):
        ib.from_compiled(environment)


def test_bounds_of_actions_that_cross_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"action_low is above action_high at entry 0 \(1 and -1\)"):
        ib.from_compiled(Flat(), action_low=1.0, action_high=-1.0)


class Endless(Flat):
    """Its `step` never says that time is over."""

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> ib.CompiledStep:
        return super().step(state, action, key)._replace(truncated=jnp.asarray(False))


def test_an_episode_whose_step_never_truncates_is_cut_at_the_horizon_everywhere() -> None:
    task = ib.from_compiled(Endless(), name="endless")
    environment = task.make_environment()
    environment.reset(seed=0)
    cut = [environment.step(np.zeros(1, np.float32))[3] for _ in range(HORIZON)]
    assert cut == [False] * (HORIZON - 1) + [True]
    batch = task.host(2, 1)  # type: ignore[misc]
    batch.reset([0, 1])
    lengths = [batch.step(np.zeros((2, 1))).truncated.all() for _ in range(2 * HORIZON)]
    assert np.flatnonzero(lengths).tolist() == [HORIZON - 1, 2 * HORIZON - 1]
    assert [bool(step.truncated) for step in played(task, [0.0])] == cut
