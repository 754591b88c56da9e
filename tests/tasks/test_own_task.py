"""Any Gymnasium environment as a task: how it is laid out, what its set reads, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import (
    ConfigurationError,
    ConstraintError,
    InfeasibleActionError,
    InvalidInputError,
    SimulationError,
    UnknownNameError,
)
from inbounds.tasks.named_parts import flattening_of_space
from tests.tasks.own_environments import Line, Plant, Published, Shapes

SUM_BELOW_CAP = ib.WeightedL1(weights=[1.0, 1.0], bound=ib.obs["cap", 0])


def plant(constraint: Any = SUM_BELOW_CAP, environment: Any = Plant, **options: Any) -> ib.Task:
    return ib.Task(environment, constraint, **{"horizon": 10, **options})


@pytest.mark.parametrize("name", ["NoSuchEnv-v0", "nowhere:NoSuchEnv-v0", "Pendulum-v99", "no id"])
def test_an_id_that_gymnasium_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Gymnasium cannot make .* Correct the id"):
        ib.Task(name, ib.Box(-1.0, 1.0))


def test_a_task_of_an_id_is_a_task_like_the_built_in_ones() -> None:
    task = ib.Task("Pendulum-v1", ib.Box(-1.0, 1.0))
    assert isinstance(task, ib.Task) and isinstance(ib.make("reacher"), ib.Task)
    assert (task.name, task.horizon, task.environment_id) == ("Pendulum-v1", 200, "Pendulum-v1")
    assert (task.action_low, task.action_high, task.observation_size) == (-1.0, 1.0, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.horizon = 7  # type: ignore[misc]


def test_a_dictionary_becomes_one_vector_in_the_order_of_its_space() -> None:
    task = plant()
    assert task.observation_parts == (("cap", 1), ("load", 2), ("matrix", 4))
    assert task.observation_names[:4] == ("cap", "load[0]", "load[1]", "matrix[0]")
    observation, _ = task.make_environment().reset(seed=3)
    bare, _ = Plant().reset(seed=3)
    for part in ("cap", "load", "matrix"):
        np.testing.assert_array_equal(observation[task.observation_slice(part)], np.ravel(bare[part]))


def test_a_part_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'load'"):
        plant().observation_slice("loads")
    with pytest.raises(ConstraintError, match=r"reads obs\['caps'\].*'cap', 'load', 'matrix'"):
        plant(ib.Ball(radius_squared=ib.obs["caps", 0]))


@pytest.mark.parametrize(
    ("named", "plain"),
    [(ib.obs["load"], ib.obs[1:3]), (ib.obs["load", 1], ib.obs[2]), (ib.obs["load", -1], ib.obs[2]),
     (ib.obs["matrix", 1:3], ib.obs[4:6]), (ib.obs["matrix", ::2], ib.obs[[3, 5]]),
     (2.0 * ib.obs["matrix", [3, 0]] + 1.0, 2.0 * ib.obs[[6, 3]] + 1.0)],
)  # fmt: skip
def test_a_name_reads_what_its_numbers_read(named: Any, plain: Any) -> None:
    task = plant()
    place = task.observation_slice(named.part)
    assert named.at_part(place.start, place.stop - place.start) == plain


def test_entries_beyond_a_part_are_refused() -> None:
    with pytest.raises(ConstraintError, match="beyond the part's 2"):
        plant(ib.Ball(radius_squared=ib.obs["load", 2]))
    with pytest.raises(ConstraintError, match="names no entries"):
        plant(ib.WeightedL1(weights=ib.obs["load", 5:], bound=1.0))


def test_a_name_means_nothing_before_a_task_has_resolved_it() -> None:
    with pytest.raises(InvalidInputError, match="only a Task knows"):
        SUM_BELOW_CAP.contains(np.ones(7), np.ones(2))
    with pytest.raises(ConstraintError, match=r"task\.constraint"):
        SUM_BELOW_CAP.to_json()
    plant().constraint.to_json()


def test_the_guard_holds_an_environment_to_the_set_of_its_own_state() -> None:
    task = plant()
    environment = task.make_environment()
    observation, _ = environment.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="Nothing has moved"):
        environment.step(np.array([2.0, 2.0]))
    cap = observation[0]
    environment.step(np.array([0.5 * cap, 0.4 * cap]))


def test_single_and_batched_environments_live_through_the_same_episodes() -> None:
    task = plant()
    assert task.host is not None
    batch, single = task.host(2, 1), task.make_environment()
    rows = batch.reset([5, 6])
    alone, _ = single.reset(seed=6)
    for _ in range(15):
        np.testing.assert_array_equal(rows[1], alone)
        step = batch.step(np.full((2, 2), 0.1))
        alone, reward, terminated, truncated, _ = single.step(np.full(2, 0.1))
        np.testing.assert_array_equal(step.final_observation[1], alone)
        assert (step.reward[1], step.terminated[1], step.truncated[1]) == (reward, terminated, truncated)
        rows = step.observation
        if terminated or truncated:
            alone, _ = single.reset()


@pytest.mark.parametrize(("horizon", "cut"), [(4, "truncated"), (10, "terminated")])
def test_an_episode_ends_with_the_environment_or_the_horizon(horizon: int, cut: str) -> None:
    environment = plant(horizon=horizon).make_environment()
    environment.reset(seed=0)
    for _ in range(min(horizon, 6)):
        *_, terminated, truncated, _ = environment.step(np.zeros(2))
    assert {"terminated": terminated, "truncated": truncated} == {"terminated": cut == "terminated",
                                                                  "truncated": cut == "truncated"}  # fmt: skip


def test_the_horizon_is_the_shorter_of_what_was_asked_for_and_registered() -> None:
    assert [ib.Task("Pendulum-v1", horizon=steps).horizon for steps in (50, 500, None)] == [50, 200, 200]


# Published sets -------------------------------------------------------------------------------------------


def test_an_environment_may_publish_its_own_set() -> None:
    task = plant(None, Published)
    assert task.constraint.formula() == plant().constraint.formula()


def test_a_given_set_and_a_published_one_hold_together() -> None:
    task = plant(ib.Ball(radius_squared=0.25), Published)
    observation = np.array([1.0, 0, 0, 1, 0, 0, 1])
    assert task.constraint.contains(observation, np.array([0.3, 0.3]))
    assert not task.constraint.contains(observation, np.array([0.6, 0.0]))
    assert not task.constraint.contains(0.1 * observation, np.array([0.3, 0.3]))


def test_numbers_that_the_environment_publishes_become_part_of_the_observation() -> None:
    limit = ib.WeightedL1(weights=ib.obs["constraint/weights"], bound=ib.obs["constraint/limit", 0])
    task = plant(limit, functools.partial(Plant, publishes=True))
    assert task.observation_parts[-2:] == (("constraint/limit", 1), ("constraint/weights", 2))
    environment = task.make_environment()
    observation, _ = environment.reset(seed=1)
    for _ in range(12):
        np.testing.assert_allclose(observation[7], 0.5 * observation[0], rtol=1e-6)
        action = environment.action_space.sample()
        assert action @ [1.0, 2.0] <= observation[7]
        observation, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            observation, _ = environment.reset()


def test_a_set_that_is_not_published_at_every_step_is_missed() -> None:
    class Forgetful(Plant):
        def _seen(self) -> Any:
            self.publishes = self.time == 0
            return super()._seen()

    environment = plant(ib.Ball(radius_squared=1.0), Forgetful).make_environment()
    environment.reset(seed=0)
    with pytest.raises(SimulationError, match="every reset and step"):
        environment.step(np.zeros(2))


def rows_and_ball(cap: float) -> ib.Constraint:
    return ib.Polytope([[1.0, 1.0], [1.0, -cap]], [cap, 0.5]) & ib.Ball(radius_squared=cap**2)


@pytest.mark.parametrize(
    "law",
    [lambda cap: ib.WeightedL1(weights=[1.0, 2.0], bound=cap), rows_and_ball,
     lambda cap: ib.RateLimit(0.3 * cap) & ib.Box(0.1 * cap, [0.3 * cap, 9.0])],
)  # fmt: skip
def test_a_set_that_is_published_anew_at_every_step_is_followed(law: Any) -> None:
    class Moving(Plant):
        def _seen(self) -> Any:
            seen, _ = super()._seen()
            self.law = law(float(seen["cap"][0]))
            return seen, {"constraint": self.law}

    made: list[Moving] = []

    def make() -> Moving:
        made.append(Moving())
        return made[-1]

    task = plant(None, make)
    environment = task.make_environment()
    observation, _ = environment.reset(seed=2)
    previous = np.zeros(2)
    rng = np.random.default_rng(0)
    for _ in range(8):
        actions = rng.uniform(0.0, 2.0, (200, 2))
        published = (made[-1].law & ib.Box(0.0, 2.0)).violation(None, actions, previous_action=previous)
        np.testing.assert_allclose(task.constraint.violation(observation, actions), published, atol=1e-6)
        previous = environment.action_space.sample()
        observation, _, terminated, truncated, _ = environment.step(previous)
        if terminated or truncated:
            break


def test_a_published_set_may_not_become_another_kind() -> None:
    class Fickle(Plant):
        def _seen(self) -> Any:
            kind = ib.WeightedL1 if self.time == 0 else ib.PowerBudget
            return super()._seen()[0], {"constraint": kind(weights=[1.0, 1.0], bound=1.0)}

    environment = plant(None, Fickle).make_environment()
    environment.reset(seed=0)
    with pytest.raises(SimulationError, match=r"WeightedL1\.weights"):
        environment.step(np.zeros(2))


@pytest.mark.parametrize(
    "published", ["wide open", ib.Box(0.0, np.inf), ib.Oracle(lambda observation, action: True, dimension=2)]
)
def test_what_cannot_be_followed_is_refused(published: Any) -> None:
    class Wrong(Plant):
        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0], {"constraint": published}

    with pytest.raises(ConfigurationError, match="Publish the numbers"):
        plant(None, Wrong)


def test_a_limit_on_the_change_reads_the_previous_action_from_the_observation() -> None:
    task = plant(ib.RateLimit(0.25), first_previous_action=[1.0, 0.5])
    assert task.observation_parts[-1] == ("previous_action", 2)
    environment = task.make_environment()
    previous = np.array([1.0, 0.5])
    observation, _ = environment.reset(seed=0)
    for _ in range(20):
        np.testing.assert_array_equal(observation[-2:], previous)
        action = environment.action_space.sample()
        assert np.abs(action - previous).max() <= 0.25
        observation, _, terminated, truncated, _ = environment.step(action)
        previous = action
        if terminated or truncated:
            observation, _ = environment.reset()
            previous = np.array([1.0, 0.5])


def test_an_episode_begins_with_zero_in_the_box_as_the_previous_action() -> None:
    task = plant(ib.RateLimit(0.25) & ib.Box(0.5, 1.5))
    observation, _ = task.make_environment().reset(seed=0)
    np.testing.assert_array_equal(observation[-2:], [0.5, 0.5])
    with pytest.raises(ConfigurationError, match="vector of 2 numbers"):
        plant(ib.RateLimit(0.25), first_previous_action=[1.0, 2.0, 3.0])


def test_a_first_previous_action_beyond_the_box_is_refused_since_limits_would_hold_from_another_one() -> None:
    with pytest.raises(
        ConfigurationError, match=r"entry 1 of first_previous_action is 5, but .* Pass an action"
    ):
        plant(ib.RateLimit(0.25) & ib.Box(0.5, 1.5), first_previous_action=[1.0, 5.0])


# Actions and boxes ----------------------------------------------------------------------------------------


def test_actions_with_parts_arrive_in_their_shapes() -> None:
    made: list[Shapes] = []

    def make() -> Shapes:
        made.append(Shapes())
        return made[-1]

    task = ib.Task(make, ib.Ball(radius_squared=1.0), horizon=5)
    assert task.action_names == ("grid[0]", "grid[1]", "grid[2]", "grid[3]", "valve")
    assert task.observation_size == 4
    environment = task.make_environment()
    environment.reset(seed=0)
    environment.step(np.array([0.1, 0.2, 0.3, 0.4, -0.5], np.float32))
    (received,) = made[-1].received
    np.testing.assert_array_equal(received["grid"], np.array([[0.1, 0.2], [0.3, 0.4]], np.float32))
    assert received["valve"] == np.float32(-0.5) and received["valve"].shape == ()


def test_tuples_are_put_together_again_as_tuples() -> None:
    space = gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Box(0, 1, (2,))])
    order = flattening_of_space("action", space, "")
    whole = order.unflatten(np.array([0.1, 0.2, 0.3]))
    assert isinstance(whole, tuple)
    np.testing.assert_allclose(order.flatten(whole), [0.1, 0.2, 0.3], rtol=1e-6)


def test_the_box_is_that_of_environment_and_constraint_together_rounded_inward() -> None:
    task = plant(ib.Ball(radius_squared=4.0) & ib.Box(0.1, [1.7, 9.0]))
    assert np.all(task.action_low.astype(np.float64) >= 0.1)
    assert task.action_high[0] <= 1.7 and task.action_high[1] == 2.0
    corner = np.array([task.action_low, task.action_high])
    assert task.constraint.contains(np.zeros(7), corner[0])


def endless() -> gymnasium.Env[Any, Any]:
    environment = Line()
    environment.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    return environment


def pinned() -> gymnasium.Env[Any, Any]:
    environment = Line()
    environment.action_space = gymnasium.spaces.Box(1.0, 1.0, (1,))
    return environment


def spaceless() -> gymnasium.Env[Any, Any]:
    environment = Line()
    del environment.observation_space
    return environment


def discrete_entry() -> gymnasium.Env[Any, Any]:
    environment = Line()
    environment.observation_space = gymnasium.spaces.Dict({"mode": gymnasium.spaces.Discrete(3)})
    return environment


@pytest.mark.parametrize(
    ("make", "constraint", "remedy"),
    [
        ("CartPole-v1", None, "Only continuous actions"),
        (discrete_entry, None, "at 'mode'.*FlattenObservation"),
        (endless, ib.Ball(radius_squared=1.0), r"constraint & ib\.Box\(low, high\)"),
        (
            Line,
            ib.WeightedL1(weights=ib.obs[3:4], bound=1.0),
            "an observation has 3 entries.*Correct the indices",
        ),
        (Line, ib.Box(3.0, 4.0), "units that env.step receives"),
        (Line, ib.Box(0.5, 0.5), "entry 0 of an action nothing but 0.5.*or widen the box"),
        (pinned, None, "can only be 1, so.*Leave it out of the action space"),
        (spaceless, None, "has no observation_space. Set it"),
        (Line, ib.Box([0.0, 0.0], 1.0), "one entry for each"),
        (Line, "power", "not a constraint"),
        (Line(), None, "function that makes one"),
        (lambda: 3, None, "not a Gymnasium environment"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_remedy(make: Any, constraint: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        ib.Task(make, constraint, horizon=10)


@pytest.mark.parametrize("horizon", [None, 0, "10", 2.5, True, float("nan")])
def test_a_horizon_has_to_be_known(horizon: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"horizon.*Pass|Pass horizon"):
        ib.Task(Line, horizon=horizon)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"reward_divisor": value} for value in (0, -1.0, float("nan"), "a")),
        *({"reward_shift": value} for value in (float("inf"), "a", None)),
        *({"ends_only_in_failure": "no"}, {"name": "a/b"}, {"name": 5}, {"name": ""}),
        *(
            {"constraint": ib.RateLimit(0.1), "first_previous_action": value}
            for value in ("a", [0, 0], np.nan)
        ),
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"{list(wrong)[-1]}=.*Pass"):
        ib.Task(Line, **{"horizon": 10, **wrong})


def test_a_reset_without_info_is_refused_with_the_remedy() -> None:
    with pytest.raises(SimulationError, match=r"reset returned one ndarray.*return observation, \{\}"):
        ib.Task(functools.partial(Line, "old reset"), horizon=10)


@pytest.mark.parametrize(
    ("flaw", "what"), [("nan", "entry 0 of the observation"), ("nan reward", "the reward")]
)
def test_what_is_not_a_number_stops_the_environment(flaw: str, what: str) -> None:
    environment = ib.Task(functools.partial(Line, flaw), horizon=10).make_environment()
    environment.reset(seed=0)
    with pytest.raises(SimulationError, match=what):
        for _ in range(5):
            environment.step(np.zeros(1))


def test_pictures_show_where_the_last_action_led() -> None:
    environment = plant().make_environment(render_mode="rgb_array")
    environment.reset(seed=0)
    pictures = [environment.render()]
    for _ in range(6):
        environment.step(np.zeros(2))
        pictures.append(environment.render())
    assert [int(picture[0, 0, 0]) for picture in pictures] == [0, 1, 2, 3, 4, 5, 6]
    assert environment.metadata["render_fps"] == 7


def test_a_function_that_cannot_draw_is_told_to_take_a_render_mode() -> None:
    for function in (lambda: Plant(), Line):
        task = plant(None, function, name="undrawn")
        with pytest.raises(ConfigurationError, match=r"takes no render_mode.*\(render_mode=None\)"):
            task.make_environment(render_mode="rgb_array")
    plant(SUM_BELOW_CAP, lambda **options: Plant(**options)).make_environment(render_mode="rgb_array").close()


class AlwaysDrawn(Plant):
    """Refuses to be made without a render mode, as the environments of panda-gym do."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, render_mode: str = "rgb_array") -> None:
        if render_mode not in ("rgb_array", "human"):
            raise ValueError(f"render_mode={render_mode!r}")
        super().__init__(render_mode=render_mode)


def test_an_id_keeps_its_own_render_mode_where_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", gymnasium.registry)
    gymnasium.register("AlwaysDrawn-v0", AlwaysDrawn, max_episode_steps=5)
    task = ib.Task("AlwaysDrawn-v0", SUM_BELOW_CAP)
    task.make_environment().close()
    task.make_environment(render_mode="rgb_array").close()


def box_of(size: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-9.0, 9.0, (size,), np.float64)


class NamedTwice(gymnasium.Env[Any, Any]):
    """An environment that gives parts of its observation names which others have, too."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, space: gymnasium.Space[Any], seen: Any, info: dict[str, Any]) -> None:
        self.observation_space, self.seen, self.info = space, seen, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.seen, dict(self.info)

    def step(self, action: Any) -> Any:
        return self.seen, 0.0, False, False, dict(self.info)


NAMED_TWICE: dict[str, tuple[Any, Any, dict[str, Any], Any, str]] = {
    "a published set": (
        {"constraint": box_of(1)},
        {"constraint": np.array([0.1])},
        {"constraint": np.array([7.0])},
        ib.Ball(radius_squared=ib.obs["constraint", 0]),
        "constraint",
    ),
    "the previous action": (
        {"previous_action": box_of(2)},
        {"previous_action": np.zeros(2)},
        {},
        ib.RateLimit(0.1),
        "previous_action",
    ),
    "a part inside another": (
        {"a/b": box_of(1), "a": gymnasium.spaces.Dict({"b": box_of(1)})},
        {"a/b": np.array([7.0]), "a": {"b": np.array([0.1])}},
        {},
        ib.Ball(radius_squared=ib.obs["a/b", 0]),
        "a/b",
    ),
}


@pytest.mark.parametrize("case", NAMED_TWICE)
def test_a_set_does_not_read_a_name_that_two_parts_have(case: str) -> None:
    spaces, seen, info, constraint, name = NAMED_TWICE[case]
    make = functools.partial(NamedTwice, gymnasium.spaces.Dict(spaces), seen, info)
    with pytest.raises(ConstraintError, match=rf"several parts .* are called '{name}'\. Rename"):
        ib.Task(make, constraint, horizon=5)


def test_a_guard_does_not_read_a_name_that_two_parts_have() -> None:
    spaces, seen, info, constraint, _ = NAMED_TWICE["a part inside another"]
    with pytest.raises(ConstraintError, match=r"are called 'a/b'\. Rename"):
        ib.Guard(NamedTwice(gymnasium.spaces.Dict(spaces), seen, info), constraint)


def test_names_that_nothing_reads_may_be_equal() -> None:
    spaces, seen, info, _, _ = NAMED_TWICE["a part inside another"]
    make = functools.partial(NamedTwice, gymnasium.spaces.Dict(spaces), seen, info)
    assert ib.Task(make, ib.Ball(radius=0.5), horizon=5).observation_size == 2


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "a\nb", "a\0b", "x" * 151, "\u00e9" * 80, "", "a/b", 7, "\udcff"]
)
def test_what_cannot_begin_the_name_of_a_run_folder_is_no_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"run folder's name\. Pass a word of visible characters"):
        plant(name=name)
    assert plant(name="x" * 150).name == "x" * 150
    assert plant(name='"><img src=x>').name == '"><img src=x>'


@pytest.mark.parametrize("name", ["hopper", "Hopper", "reacher-mjx", "bss3z"])
def test_a_task_of_the_user_is_not_called_like_one_of_ours(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"name='{name}' is the name of one of our tasks.* Pass another"
    ):
        plant(name=name)
    own = type(name, (Plant,), {})
    with pytest.raises(ConfigurationError, match=f'name="my-{name.lower()}"'):
        ib.Task(own, horizon=10)
    assert ib.Task(own, horizon=10, name=f"my-{name}").name == f"my-{name}"
