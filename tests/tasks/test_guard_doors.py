"""Ways past the guard that are closed: arrays that are written into, errors halfway, integers, boxes, overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import (
    ConfigurationError,
    EmptySetError,
    InfeasibleActionError,
    InvalidInputError,
    SimulationError,
)
from inbounds.tasks.guard import ActionGuard, Guard
from inbounds.tasks.wrappers import AcceptReject, AugmentedMDP, ProjectAction
from tests.slices import quick_slice
from tests.tasks.own_environments import Counter

pytestmark = pytest.mark.filterwarnings("ignore:AcceptReject has no policy:UserWarning")

SLOW = ib.RateLimit(0.25)
CORRECTING = (ProjectAction, AcceptReject)
EVERYWHERE: list[Callable[..., Any]] = [Guard, ProjectAction, AugmentedMDP, AcceptReject]


@pytest.mark.parametrize("wrapper", EVERYWHERE)
def test_an_environment_that_writes_into_its_action_does_not_move_the_rate_limit(wrapper: Any) -> None:
    class Scribbling(Counter):
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            action[:] = 0.9
            return answer

    env = wrapper(Scribbling(), SLOW)
    env.reset(seed=0)
    *_, info = env.step(np.full(2, 0.25, np.float32))
    assert wrapper is Guard or np.array_equal(info["executed_action"], np.full(2, 0.25, np.float32))
    if wrapper is Guard:
        with pytest.raises(InfeasibleActionError):
            env.step(np.full(2, 0.9, np.float32))
    else:
        env.step(np.full(2, 0.9, np.float32))
    executed = [0.25, *(float(action.max()) for action in env.unwrapped.received[1:])]
    assert np.all(np.abs(np.diff(executed)) <= 0.25)


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_environment_that_raised_in_a_step_must_be_reset(wrapper: Any, error: Any) -> None:
    class Failing(Counter):
        def step(self, action: Any) -> Any:
            super().step(action)
            if len(self.received) == 2:
                raise error("the cable came off")
            return super()._answer()

    env = wrapper(Failing(), SLOW)
    env.reset(seed=0)
    env.step(np.full(2, 0.25, np.float32))
    with pytest.raises(error):
        env.step(np.full(2, 0.5, np.float32))  # it has moved: from here 0.0 would be too fast
    with pytest.raises(InvalidInputError, match=r"raised an error.*reset"):
        env.step(np.zeros(2, np.float32))
    assert len(env.unwrapped.received) == 2
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("wrapper", EVERYWHERE)
def test_an_environment_whose_reset_raised_must_be_reset_again(wrapper: Any) -> None:
    class Failing(Counter):
        resets = 0

        def reset(self, **options: Any) -> Any:
            self.resets += 1
            if self.resets == 2:
                raise RuntimeError("no power")
            return super().reset(**options)

    env = wrapper(Failing(), SLOW)
    env.reset(seed=0)
    env.step(np.full(2, 0.25, np.float32))
    with pytest.raises(RuntimeError):
        env.reset()
    with pytest.raises(InvalidInputError, match="reset"):
        env.step(np.full(2, 0.5, np.float32))


class Showing(Counter):
    """Shows what it is told to; the cap is announced as one number behind a picture of one number."""

    def __init__(self, *shown: Any, space: Any = None) -> None:
        super().__init__()
        box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = space or gymnasium.spaces.Dict({"a picture": box, "cap": box})
        self.shown = iter(shown)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return next(self.shown), {}

    def _answer(self) -> Any:
        return next(self.shown), 1.0, False, False, {}


SOUND = {"a picture": np.zeros(1), "cap": np.array([0.1])}


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize(
    "shown",
    [
        {"a picture": np.full(2, 5.0), "cap": np.array([0.1])},
        {"cap": np.array([0.1])},
        {"a picture": np.zeros(1), "cap": np.ma.array([5.0], mask=[1])},
        {"a picture": np.zeros(1), "cap": np.array([0.1 + 5.0j])},
        None,
    ],
    ids=["longer", "missing", "masked", "complex", "nothing"],
)
def test_a_part_that_is_not_what_was_announced_ends_the_episode(wrapper: Any, shown: Any) -> None:
    env = wrapper(Showing(SOUND, shown, SOUND), ib.Ball(radius_squared=ib.obs["cap", 0]))
    env.reset(seed=0)
    with pytest.raises(SimulationError, match=r"at every reset|Let the environment"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(InvalidInputError, match="reset"):
        env.step(np.full(2, 0.9, np.float32))
    assert len(env.unwrapped.received) == 1


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize(
    "shown",
    [
        np.array([0.0, 0.1, 9.0]),
        np.ma.array([0.0, 9.0], mask=[0, 1]),
        np.array([0.0, 0.1 + 9.0j]),
        ["0", "9"],
    ],
    ids=["longer", "masked", "complex", "text"],
)
def test_a_vector_that_is_not_what_was_announced_ends_the_episode(wrapper: Any, shown: Any) -> None:
    space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    env = wrapper(Showing(np.array([0.0, 0.1]), shown, space=space), ib.Ball(radius_squared=ib.obs[-1]))
    env.reset(seed=0)
    with pytest.raises(SimulationError, match="Let the environment"):
        env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "shown", [np.ma.array([9.0], mask=[1]), np.array([0.1 + 9.0j])], ids=["masked", "complex"]
)
def test_a_task_refuses_numbers_of_which_a_part_would_be_dropped(shown: Any) -> None:
    def make() -> Any:
        return Showing(*[SOUND] * 9) if not made else Showing(SOUND, {**SOUND, "cap": shown})

    made: list[int] = []
    task = ib.Task(make, ib.Ball(radius_squared=ib.obs["cap", 0]), horizon=5)
    made.append(1)
    env = task.make_environment()
    env.reset(seed=0)
    with pytest.raises(SimulationError, match="'cap'"):
        env.step(np.zeros(2, np.float32))


def test_what_a_guard_further_inside_refuses_can_be_tried_again() -> None:
    env = Guard(Guard(Counter(), ib.Ball(radius_squared=0.04), task_name="inner"), SLOW)
    env.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="inner"):
        env.step(np.full(2, 0.25, np.float32))
    env.step(np.full(2, 0.125, np.float32))
    assert len(env.unwrapped.received) == 1


class Repeating(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Executes every action three times, or resets first."""

    def __init__(self, env: Any, resets: bool = False) -> None:
        super().__init__(env)
        self.resets = resets

    def step(self, action: Any) -> Any:
        if self.resets:
            self.env.reset()
        return [self.env.step(action) for _ in range(3)][-1]


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("resets", [False, True])
def test_after_a_refusal_in_the_middle_of_a_repeated_action_comes_a_reset(wrapper: Any, resets: bool) -> None:
    falling = ib.Box(-1.0, 0.6 - 0.3 * ib.obs[0])
    env = wrapper(Repeating(Guard(Counter(), falling, task_name="inner"), resets), ib.Box(-1.0, 0.9))
    env.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="inner"):
        env.step(np.full(2, 0.5, np.float32))
    moved = len(env.unwrapped.received)
    assert moved == 1
    with pytest.raises(InvalidInputError, match=r"call env\.reset"):
        env.step(np.full(2, -0.5, np.float32))
    assert len(env.unwrapped.received) == moved


def test_an_environment_that_refuses_by_itself_may_have_moved() -> None:
    class Refusing(Counter):
        def step(self, action: Any) -> Any:
            super().step(action)
            raise InfeasibleActionError("the drive refused. Take another action.")

    env = Guard(Refusing(), SLOW)
    env.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match="drive"):
        env.step(np.full(2, 0.25, np.float32))
    with pytest.raises(InvalidInputError, match=r"call env\.reset"):
        env.step(np.full(2, 0.25, np.float32))


@pytest.mark.parametrize("wrapper", EVERYWHERE)
def test_a_wrapper_that_resets_instead_of_executing_goes_outside(wrapper: Any) -> None:
    inside = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.Autoreset(Counter()), 3)
    with pytest.raises(ConfigurationError, match=rf"Put it outside: .*Autoreset\({wrapper.__name__}\("):
        wrapper(inside, SLOW)
    gymnasium.wrappers.Autoreset(wrapper(Counter(), SLOW)).reset(seed=0)


NARROW = gymnasium.spaces.Box(-0.1, 0.1, (2,))


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("in_place", [False, True])
def test_an_action_space_that_was_narrowed_is_refused_before_anything_moves(
    wrapper: Any, in_place: bool
) -> None:
    env = wrapper(Counter(), ib.Ball(radius_squared=0.9))
    env.reset(seed=0)
    env.unwrapped.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))  # an equal one
    env.step(np.full(2, 0.5, np.float32))
    if in_place:
        env.unwrapped.action_space.high[:] = 0.1
    else:
        env.unwrapped.action_space = NARROW
    with pytest.raises(SimulationError, match=r"action space is .*now.*info\['constraint'\]"):
        env.step(np.full(2, 0.5, np.float32))
    assert len(env.unwrapped.received) == 1


def test_a_task_refuses_an_action_space_that_was_narrowed() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    env = ib.Task(make, ib.Ball(radius_squared=0.9), horizon=5).make_environment()
    env.reset(seed=0)
    env.step(np.full(2, 0.5, np.float32))
    made[-1].action_space = NARROW
    with pytest.raises(SimulationError, match="action space"):
        env.step(np.full(2, 0.5, np.float32))
    assert len(made[-1].received) == 1


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((np.zeros(2), 1.0, False, {}), "a tuple of 4"),
        ((np.zeros(2), 1.0, False, False, None), "info a dictionary"),
    ],
)
def test_an_answer_that_is_none_of_gymnasiums_is_named(wrapper: Any, answer: Any, words: str) -> None:
    class Odd(Counter):
        def _answer(self) -> Any:
            return answer

    env = wrapper(Odd(), SLOW)
    env.reset(seed=0)
    with pytest.raises(SimulationError, match=words):
        env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("answer", [np.zeros(2), (np.zeros(2), None)], ids=["observation", "no info"])
def test_a_beginning_that_is_none_of_gymnasiums_is_named(wrapper: Any, answer: Any) -> None:
    class Odd(Counter):
        def reset(self, **options: Any) -> Any:
            return answer

    with pytest.raises(SimulationError, match="reset returned"):
        wrapper(Odd(), SLOW).reset(seed=0)


@pytest.mark.parametrize("flag", [np.array([True, False]), "False", b"1", []], ids=str)
def test_a_task_needs_one_flag_for_the_end_of_an_episode(flag: Any) -> None:
    class Odd(Counter):
        def _answer(self) -> Any:
            return np.zeros(2), 1.0, flag if made else False, False, {}

    made: list[int] = []
    env = ib.Task(Odd, SLOW, horizon=5).make_environment()
    made.append(1)
    env.reset(seed=0)
    with pytest.raises(SimulationError, match=r"terminated is .*one flag"):
        env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("action", [[300, 0], [-1, 0], [math.nan, 0.0], [2.5, 0.0], [math.inf, 0.0]], ids=str)
def test_integer_actions_are_never_wrapped_or_cut(wrapper: Any, action: Any) -> None:
    env = wrapper(Counter(gymnasium.spaces.Box(0, 100, (2,), np.uint8)), ib.WeightedL1([1.0, 1.0], 60.0))
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match=r"uint8.*whole numbers from 0 to 255"):
        env.step(np.array(action))
    assert env.unwrapped.received == []


@pytest.mark.parametrize("wrapper", CORRECTING)
def test_integer_actions_are_corrected_to_whole_numbers_that_are_feasible(wrapper: Any) -> None:
    env = wrapper(Counter(gymnasium.spaces.Box(0, 100, (2,), np.uint8)), ib.WeightedL1([1.0, 1.0], 60.6))
    env.reset(seed=0)
    env.step(np.array([10, 20], np.uint8))
    env.step(np.array([70, 20], np.uint8))
    first, second = env.unwrapped.received
    assert first.tolist() == [10, 20] and second.dtype == np.uint8 and second.tolist() == [55, 5]


@pytest.mark.parametrize("wrapper", CORRECTING)
@pytest.mark.parametrize("dtype", quick_slice([np.int32, np.float16], [np.float16]))
@pytest.mark.parametrize("bound", quick_slice([60.3, 3.7], [3.7]))
def test_actions_of_coarse_types_are_corrected_into_the_set(wrapper: Any, dtype: Any, bound: float) -> None:
    limit = ib.WeightedL1([1.0, 1.0], bound) & ib.Ball(radius_squared=2000.3)
    env = wrapper(Counter(gymnasium.spaces.Box(0, 100, (2,), dtype)), limit)
    rng = np.random.default_rng(0)
    for _ in range(50):
        env.reset(seed=0)
        env.step(rng.integers(0, 100, 2).astype(dtype))
        (executed,) = env.unwrapped.received
        assert executed.dtype == dtype and limit.violation(None, executed.astype(np.float64)) <= 0.0


def test_a_set_without_a_whole_number_is_an_error_before_anything_moves() -> None:
    env = ProjectAction(Counter(gymnasium.spaces.Box(0, 100, (2,), np.int32)), ib.Box(2.2, 2.8))
    env.reset(seed=0)
    with pytest.raises(InfeasibleActionError, match=r"no action of type int32.*float32"):
        env.step(np.array([2, 3]))
    assert env.unwrapped.received == []


@pytest.mark.parametrize("wrapper", EVERYWHERE)
@pytest.mark.parametrize("is_nested", [False, True])
def test_the_set_is_that_of_the_observation_as_it_was_returned(wrapper: Any, is_nested: bool) -> None:
    class Declared(Counter):
        """Declares float32 and returns more digits, as many environments do."""

        def __init__(self) -> None:
            super().__init__()
            box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
            self.observation_space = gymnasium.spaces.Dict({"cap": box}) if is_nested else box

        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            return self._answer()[0], {}

        def _answer(self) -> Any:
            cap = np.array([np.nextafter(np.float64(np.float32(0.3)), 0.0)])
            return {"cap": cap} if is_nested else cap, 1.0, False, False, {}

    env = wrapper(Declared(), ib.Box(-1.0, ib.obs[0]))
    env.reset(seed=0)
    action = np.full(2, 0.3, np.float32)  # above the cap by the last digit of float64
    if wrapper is Guard:
        with pytest.raises(InfeasibleActionError):
            env.step(action)
    else:
        assert env.step(action)[4]["action_outcome"] in ("projected", "rejected")
    assert all(np.all(executed < 0.3) for executed in env.unwrapped.received)


@pytest.mark.parametrize("value", [2**60 + 1, 2.0**62])
def test_integers_that_float64_cannot_tell_apart_are_refused(value: Any) -> None:
    door = ActionGuard(ib.Box(-(2.0**61), 2.0**60), 1, task_name="counter", executed_as=np.int64)
    with pytest.raises(InvalidInputError, match="9007199254740992"):
        door.admit(np.zeros((1, 1)), np.array([[value]]))


def test_no_more_digits_are_executed_than_were_checked() -> None:
    door = ActionGuard(ib.Box(-1.0, 1.0), 1, task_name="counter", executed_as=np.longdouble)
    action = np.array([[np.nextafter(np.longdouble(1), np.longdouble(2))]])
    assert action[0, 0] > 1 and door.admit(np.zeros((1, 1)), action)[0, 0] <= 1


@pytest.mark.parametrize("wrapper", [Guard, *CORRECTING])
@pytest.mark.parametrize(
    ("limit", "action"),
    [
        (ib.Polytope([[-1.0, -1.0]], [-1.8]), [1.0, 0.5]),
        (ib.Ball(radius_squared=9.0), [2.0, 0.0]),
        (ib.Ball(radius_squared=9.0) & ib.Box(-2.0, 2.0), [2.0, 0.0]),
        (ib.Ball(radius_squared=9.0) | ib.Box(5.0, 6.0), [5.5, 5.5]),
        (ib.Oracle(lambda s, a: bool(a.sum() > 1.2), 2), [1.0, 0.0]),
        (ib.RateLimit(1.5), [1.25, 0.0]),
    ],
    ids=["polytope", "ball", "wider box", "union", "oracle", "rate"],
)
def test_no_action_leaves_the_box_of_the_action_space(wrapper: Any, limit: Any, action: Any) -> None:
    env = wrapper(Counter(), limit)
    env.reset(seed=0)
    if wrapper is Guard:
        with pytest.raises(InfeasibleActionError):
            env.step(np.array(action))
    else:
        env.step(np.array(action))
    for executed in env.unwrapped.received:
        assert np.abs(executed).max() <= 1.0
        assert limit.violation(np.zeros(2), executed.astype(np.float64), previous_action=np.zeros(2)) <= 0.0
    env.action_space.seed(0)
    assert wrapper is not Guard or all(np.abs(env.action_space.sample()).max() <= 1.0 for _ in range(20))


def test_an_action_beyond_the_box_is_a_rejected_proposal() -> None:
    env = AugmentedMDP(Counter(), ib.Ball(radius_squared=9.0))
    env.reset(seed=0)
    *_, info = env.step(np.array([2.0, 0.0]))
    assert info["action_outcome"] == "rejected" and info["action_excess"] == pytest.approx(1.0)


def test_a_box_without_an_end_limits_nothing() -> None:
    env = ProjectAction(Counter(gymnasium.spaces.Box(-np.inf, np.inf, (2,))), ib.Ball(radius_squared=9.0))
    env.reset(seed=0)
    env.step(np.array([2.5, 0.0]))
    assert env.unwrapped.received[0].tolist() == [2.5, 0.0]


@pytest.mark.parametrize("found", [math.nan, math.inf])
@pytest.mark.parametrize("reaction", ["refuse", "correct"])
def test_an_excess_that_is_not_finite_is_infeasible(
    found: float, reaction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = ib.Ball(radius_squared=1.0)
    monkeypatch.setattr(
        type(limit), "violation", lambda *asked, **more: np.where(asked[2][..., 0] > 0, found, -1.0)
    )
    door = ActionGuard(limit, 2, task_name="overflow", on_violation=reaction)
    actions = np.array([[-0.5, 0.0], [0.5, 0.0]])
    with pytest.raises(InfeasibleActionError, match="overflow: the action for environment 1 of 2"):
        door.admit(np.zeros((2, 2)), actions)
    assert door.worst_violation == math.inf and door.admitted is None


@pytest.mark.parametrize("wrapper", [*CORRECTING, AugmentedMDP])
def test_a_wrapper_takes_an_excess_that_is_not_a_number_for_infeasible(
    wrapper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = ib.Ball(radius_squared=0.25) & ib.Box(-1.0, 1.0)
    true = type(limit).violation
    monkeypatch.setattr(
        type(limit),
        "violation",
        lambda self, seen, action, **more: np.where(
            action[..., 0] > 0.6, math.nan, true(self, seen, action, **more)
        ),
    )
    env = wrapper(Counter(), limit)
    env.reset(seed=0)
    *_, info = env.step(np.array([0.9, 0.0]))
    assert info["action_outcome"] != "accepted"
    assert all(np.linalg.norm(executed) <= 0.5 for executed in env.unwrapped.received)


@pytest.mark.parametrize("wrapper", EVERYWHERE)
def test_a_state_without_an_allowed_action_is_an_error_that_shows_it(wrapper: Any) -> None:
    env = wrapper(Counter(), ib.WeightedL1([1.0, 1.0], bound=1.0 - 0.5 * ib.obs[0]))
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(2))
    with pytest.raises(EmptySetError, match=r"observation \[3, 0\].*obs\[0\].*= -0\.5.*floor"):
        for _ in range(100):
            env.step(np.zeros(2))
    assert len(env.unwrapped.received) == 3


def test_nan_at_a_state_without_an_allowed_action_is_told_as_such() -> None:
    door = ActionGuard(ib.WeightedL1([1.0, 1.0], bound=ib.obs[0]), 2, task_name="plant")
    with pytest.raises(EmptySetError, match=r"plant.*observation \[-1\]"):
        door.admit(np.array([[1.0], [-1.0]]), np.array([[0.0, 0.0], [np.nan, 0.0]]))
    with pytest.raises(InvalidInputError, match="entry 0 of the action for environment 0"):
        door.admit(np.array([[1.0], [1.0]]), np.array([[np.nan, 0.0], [0.0, 0.0]]))
