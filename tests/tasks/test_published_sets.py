"""Sets that an environment publishes: a task keeps them or says that it cannot, a wrapper for the next action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import (
    ConfigurationError,
    ConstraintError,
    EmptySetError,
    InfeasibleActionError,
    SimulationError,
)
from inbounds.tasks.wrappers import AcceptReject, AugmentedMDP, ProjectAction
from tests.tasks.own_environments import Counter

pytestmark = pytest.mark.filterwarnings("ignore:AcceptReject has no policy:UserWarning")

WIDE, NARROW = ib.Box(-0.5 * np.ones(2), 0.5 * np.ones(2)), ib.Box(-0.1 * np.ones(2), 0.1 * np.ones(2))
OUT = np.array([0.9, 0.9], np.float32)


class Publishing(Counter):
    """Publishes what a function of the time says, in `info["constraint"]`."""

    def __init__(self, published: Callable[[int], Any], **options: Any) -> None:
        super().__init__(**options)
        self.published = published

    def reset(self, **options: Any) -> Any:
        observation, _ = super().reset(**options)
        return observation, self._info()

    def step(self, action: Any) -> Any:
        *head, _ = super().step(action)
        return (*head, self._info())

    def _info(self) -> dict[str, Any]:
        published = self.published(len(self.received))
        return {} if published is None else {"constraint": published}


def task_of(published: Callable[[int], Any], limit: Any = None) -> ib.Task:
    return ib.Task(lambda: Publishing(published), limit, horizon=9, name="publishing")


LATER: dict[str, Callable[[int], Any]] = {
    "a set where there was none": lambda time: None if time < 2 else NARROW,
    "numbers where there were none": lambda time: None if time < 2 else [0.1],
    "another limit": lambda time: WIDE if time < 2 else WIDE & ib.Ball(radius_squared=0.01),
    "another kind": lambda time: WIDE if time < 2 else ib.Ball(radius_squared=0.01),
    "another reading": lambda time: ib.Ball(radius_squared=1.0 + ib.obs[int(time >= 2)]),
    "a union instead": lambda time: (WIDE & NARROW) if time < 2 else (WIDE | NARROW),
    "numbers instead of a set": lambda time: WIDE if time < 2 else [0.1, 0.1],
    "more numbers": lambda time: {"cap": 1.0} if time < 2 else {"cap": 1.0, "rate": 0.1},
    "other numbers": lambda time: {"cap": 1.0} if time < 2 else {"rate": 0.1},
    "a matrix turned around": lambda time: np.ones((2, 3) if time < 2 else (3, 2)),
    "nothing any more": lambda time: WIDE if time < 2 else None,
}


@pytest.mark.parametrize("published", LATER.values(), ids=LATER)
@pytest.mark.parametrize("count", [1, 3])
def test_a_limit_that_is_published_later_is_an_error_and_never_ignored(
    published: Callable[[int], Any], count: int
) -> None:
    task = task_of(published)
    assert task.host is not None
    environments = task.host(count, 1)
    environments.reset(range(count))
    environments.step(np.zeros((count, 2), np.float32))
    with pytest.raises(SimulationError, match=r"info\['constraint'\].*every reset and step"):
        environments.step(np.zeros((count, 2), np.float32))


def test_the_numbers_of_a_published_set_may_move_and_are_kept() -> None:
    environment = task_of(
        lambda time: ib.Box(-np.ones(2), (1.0 - 0.2 * time) * np.ones(2))
    ).make_environment()
    environment.reset(seed=0)
    for time in range(4):
        with pytest.raises(InfeasibleActionError):
            environment.step(np.full(2, 1.01 - 0.2 * time, np.float32))
        environment.step(np.full(2, 0.99 - 0.2 * time, np.float32))


def test_a_number_may_be_published_with_or_without_an_axis() -> None:
    limit = ib.WeightedL1([1.0, 1.0], bound=ib.obs["constraint", 0])
    environment = task_of(lambda time: 1.0 if time % 2 else np.array([1.0]), limit).make_environment()
    environment.reset(seed=0)
    for _ in range(4):
        environment.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("when", ["at a reset", "in a step", "where there was none"])
def test_a_set_of_the_environment_that_changes_is_an_error(when: str) -> None:
    class Changing(Counter):
        resets = 0

        def reset(self, **options: Any) -> Any:
            self.resets += 1
            answer = super().reset(**options)
            if self.resets == 2 and when == "at a reset":
                self.action_constraint = NARROW
            return answer

        def step(self, action: Any) -> Any:
            answer = super().step(action)
            if when != "at a reset":
                self.action_constraint = NARROW
            return answer

    def make() -> Changing:
        environment = Changing()
        if when != "where there was none":
            environment.action_constraint = WIDE
        return environment

    environment = ib.Task(make, horizon=9, name="changing").make_environment()
    environment.reset(seed=0)
    with pytest.raises(SimulationError, match=r"action_constraint.*info\['constraint'\]"):
        environment.step(np.zeros(2, np.float32))
        environment.reset(seed=1)


def test_a_published_number_that_is_read_as_a_vector_is_refused_with_the_way_to_read_it_as_one() -> None:
    with pytest.raises(
        ConstraintError, match=r"obs\[2:3\] is a vector of one entry.*ib.obs\[1\].*'name', 0\]"
    ):
        task_of(lambda time: 0.5, ib.Box(-1.0, ib.obs["constraint"]))
    task = task_of(lambda time: 0.5, ib.Box(-1.0, ib.obs["constraint", 0]))
    assert not task.constraint.contains(np.array([0.0, 0.0, 0.5]), np.array([0.6, 0.0]))
    with pytest.raises(ConstraintError, match=r"Give them the same dimension\.$"):
        ib.Box(-np.ones(2), np.ones(2)) & ib.Box(-np.ones(3), np.ones(3))


@pytest.mark.parametrize("name", ["bound", "radius", "radius_squared"])
def test_a_set_of_the_environment_cannot_be_changed_in_place(name: str) -> None:
    class Shrinking(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.action_constraint = ib.Ball(radius_squared=0.5)

        def step(self, action: Any) -> Any:
            answer = super().step(action)
            setattr(self.action_constraint, name, np.array(0.01))
            return answer

    environment = ib.Task(Shrinking, horizon=9, name="shrinking").make_environment()
    environment.reset(seed=0)
    with pytest.raises(ConstraintError, match=rf"Ball\.{name} cannot be set.*info\['constraint'\]"):
        environment.step(np.full(2, 0.4, np.float32))


def test_a_set_of_the_environment_may_be_made_anew_as_long_as_it_is_the_same() -> None:
    class Fresh(Counter):
        @property
        def action_constraint(self) -> Any:
            return ib.Box(-0.5 * np.ones(2), 0.5 * np.ones(2)) & ib.Ball(radius_squared=1.0 + ib.obs[0])

    environment = ib.Task(Fresh, horizon=9, name="fresh").make_environment()
    environment.reset(seed=0)
    for _ in range(3):
        environment.step(np.full(2, 0.25, np.float32))


def test_a_task_whose_environment_raised_must_be_reset() -> None:
    class Failing(Counter):
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            if len(self.received) == 2:
                raise RuntimeError("the cable came off")
            return answer

    environment = ib.Task(Failing, ib.RateLimit(0.25), horizon=9, name="failing").make_environment()
    environment.reset(seed=0)
    environment.step(np.full(2, 0.25, np.float32))
    with pytest.raises(RuntimeError):
        environment.step(np.full(2, 0.5, np.float32))
    with pytest.raises(ib.errors.InvalidInputError, match="reset"):
        environment.step(np.zeros(2, np.float32))
    environment.reset(seed=0)
    environment.step(np.full(2, 0.25, np.float32))


def test_a_task_whose_environment_writes_into_its_action_keeps_the_rate_limit() -> None:
    class Scribbling(Counter):
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            action[:] = 0.9
            return answer

    environment = ib.Task(Scribbling, ib.RateLimit(0.25), horizon=9, name="scribbling").make_environment()
    environment.reset(seed=0)
    observation, *_ = environment.step(np.full(2, 0.25, np.float32))
    assert observation[-2:].tolist() == [0.25, 0.25]
    with pytest.raises(InfeasibleActionError):
        environment.step(np.full(2, 0.9, np.float32))


def test_no_part_of_an_action_is_rounded_after_it_was_checked() -> None:
    received: list[Any] = []

    class Mixed(Counter):
        def __init__(self) -> None:
            super().__init__()
            single, double = (
                gymnasium.spaces.Box(-1.0, 1.0, (1,), kind) for kind in (np.float32, np.float64)
            )
            self.action_space = gymnasium.spaces.Dict({"fine": double, "rough": single})

        def step(self, action: Any) -> Any:
            received.append(np.concatenate([action["fine"], action["rough"]], dtype=np.float64))
            return self._answer()

    limit = ib.WeightedL1([1.0, 1.0], bound=0.3)
    task = ib.Task(Mixed, limit, horizon=9, name="mixed")
    environment = task.make_environment(on_violation="correct")
    environment.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        share = rng.random()
        environment.step(np.array([share * 0.3, (1.0 - share) * 0.3]))
        environment.reset(seed=0)
    assert np.max(limit.violation(None, np.stack(received))) <= 0.0


def test_actions_of_half_precision_are_refused() -> None:
    half = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float16)
    with pytest.raises(ConfigurationError, match=r"half precision.*float32"):
        ib.Task(lambda: Counter(half), horizon=9, name="half")


@pytest.mark.parametrize("wrapper", [ProjectAction, AcceptReject])
def test_a_set_in_info_holds_for_one_action_and_not_for_later_ones(wrapper: Any) -> None:
    env = wrapper(Publishing(lambda time: NARROW if time == 1 else None), WIDE)
    env.reset(seed=0)
    sent = [env.step(OUT)[4]["executed_action"].max() for _ in range(4)]
    assert sent == pytest.approx([0.5, 0.1, 0.5, 0.5])


def test_a_guard_keeps_a_set_in_info_for_one_action_and_refuses_an_empty_one() -> None:
    late = {1: NARROW, 3: ib.Box(2.0 * np.ones(2), 3.0 * np.ones(2))}
    guard = ib.Guard(Publishing(late.get), WIDE)
    guard.reset(seed=0)
    half = np.full(2, 0.4, np.float32)
    assert half in guard.action_space
    guard.step(half)
    assert half not in guard.action_space and np.abs(guard.action_space.sample()).max() <= 0.1
    with pytest.raises(InfeasibleActionError, match="Nothing has moved"):
        guard.step(half)
    guard.step(np.zeros(2, np.float32))
    guard.step(half)
    with pytest.raises(EmptySetError):
        guard.step(half)
    guard.reset(seed=0)
    guard.step(half)


@pytest.mark.parametrize("wrapper", [ProjectAction, AcceptReject, AugmentedMDP])
def test_a_set_in_info_does_not_outlive_its_episode(wrapper: Any) -> None:
    env = wrapper(Publishing(lambda time: NARROW if time == 1 else None), WIDE)
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    assert np.abs(env.constraint.project(None, OUT)).max() == pytest.approx(0.1)
    env.reset(seed=0)
    *_, info = env.step(np.full(2, 0.4, np.float32))
    assert info["action_outcome"] == "accepted"


def test_after_a_set_in_info_the_one_that_the_environment_publishes_holds_again() -> None:
    inner = Publishing(lambda time: ib.Box(-np.ones(2), np.ones(2)) if time == 1 else None)
    inner.action_constraint = NARROW
    env = ProjectAction(inner)
    env.reset(seed=0)
    sent = [env.step(OUT)[4]["executed_action"].max() for _ in range(3)]
    assert sent == pytest.approx([0.1, 0.9, 0.1])


def test_a_set_in_info_never_leads_beyond_the_box_of_the_actions() -> None:
    env = ProjectAction(Publishing(lambda time: ib.Ball(radius_squared=9.0)), WIDE)
    env.reset(seed=0)
    *_, info = env.step(np.array([2.0, 0.0]))
    assert np.abs(info["executed_action"]).max() <= 1.0


def test_an_empty_set_in_info_is_an_error_only_if_another_action_follows() -> None:
    env = ProjectAction(
        Publishing(lambda time: ib.Box(2.0 * np.ones(2), 3.0 * np.ones(2)) if time else None), WIDE
    )
    env.reset(seed=0)
    env.step(OUT)
    with pytest.raises(EmptySetError, match=r"ProjectAction.*observation \[1, 0\]"):
        env.step(OUT)
    env.reset(seed=0)
    env.step(OUT)


def test_environments_of_a_vector_keep_their_own_sets() -> None:
    def make(first: int) -> Callable[[], gymnasium.Env[Any, Any]]:
        return lambda: ProjectAction(Publishing(lambda time: NARROW if time == first else None), WIDE)

    envs = gymnasium.vector.SyncVectorEnv([make(0), make(1)])
    envs.reset(seed=0)
    sent = [envs.step(np.stack([OUT, OUT]))[4]["executed_action"].max(axis=-1) for _ in range(3)]
    assert np.stack(sent).ravel() == pytest.approx([0.1, 0.5, 0.5, 0.1, 0.5, 0.5])
    envs.close()


def longer(env: Any) -> Any:
    space = gymnasium.spaces.Box(-9.0, 9.0, (3,))
    return gymnasium.wrappers.TransformObservation(env, lambda seen: np.append(seen, np.float32(0.0)), space)


class Stating(Counter):
    """Publishes a set as its attribute."""

    action_constraint: Any = None


def stating(limit: Any) -> Any:
    environment = Stating()
    environment.action_constraint = limit
    return environment


DOORS: list[Callable[[Any], Any]] = [
    lambda env: ib.Task(lambda: env, horizon=9, name="published").make_environment(),
    ProjectAction,
    AugmentedMDP,
]


@pytest.mark.parametrize("reading", [ib.obs[-1], ib.sum(ib.obs[1:]), ib.sum(ib.obs[-2:2])])
@pytest.mark.parametrize("door", DOORS)
def test_a_published_set_that_counts_from_the_end_of_what_a_wrapper_lengthens_is_refused(
    door: Callable[[Any], Any], reading: Any
) -> None:
    limit = ib.Ball(radius_squared=1.0 + ib.abs(reading))
    with pytest.raises(ConfigurationError, match=r"counted from the end, .* show 2 or 3 entries.*Count from"):
        door(longer(stating(limit)))
    door(stating(limit)).reset(seed=0)
    door(longer(stating(ib.Ball(radius_squared=1.0 + ib.abs(ib.obs[1]))))).reset(seed=0)


@pytest.mark.parametrize(
    "door", [DOORS[0], *(lambda env, kind=kind: kind(env, WIDE) for kind in (ib.Guard, ProjectAction))]
)
def test_so_is_one_that_is_published_in_info(door: Callable[[Any], Any]) -> None:
    def publishing(reading: Any) -> Any:
        return Publishing(lambda time: ib.Ball(radius_squared=1.0 + ib.abs(reading)))

    with pytest.raises(ConfigurationError, match=r"counted from the end, .* show 2 or 3 entries.*Count from"):
        door(longer(publishing(ib.obs[-1]))).reset(seed=0)
    door(publishing(ib.obs[-1])).reset(seed=0)
    door(longer(publishing(ib.obs[1]))).reset(seed=0)


def test_a_set_that_is_given_may_count_from_the_end_of_the_observation_that_it_is_given_for() -> None:
    limit = ib.Ball(radius_squared=1.0 + ib.abs(ib.obs[-1]))
    ProjectAction(longer(Counter()), limit).reset(seed=0)
    ib.Task(lambda: longer(Counter()), limit, horizon=9, name="published").make_environment().reset(seed=0)
