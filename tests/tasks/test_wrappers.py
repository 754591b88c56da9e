"""An agent of any library may send what it likes: only feasible actions arrive, and `info` says what happened."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, ConstraintError, EmptySetError, InvalidInputError
from inbounds.tasks.guard import Guard
from inbounds.tasks.wrappers import AcceptReject, AugmentedMDP, ProjectAction

pytestmark = pytest.mark.filterwarnings("ignore:AcceptReject has no policy:UserWarning")

WRAPPERS = (ProjectAction, AugmentedMDP, AcceptReject)
BALL = ib.Ball(radius_squared=ib.obs[0]) & ib.Box(-np.ones(2), np.ones(2))
OUT, INSIDE = np.array([0.9, 0.9], np.float32), np.array([0.2, 0.1], np.float32)


class Walk(gymnasium.Env[Any, Any]):
    """Stands at (room, position); the room for actions alternates, the reward is the first entry."""

    def __init__(
        self, observation_space: gymnasium.Space[Any] | None = None, publishes: bool = False
    ) -> None:
        self.observation_space = observation_space or gymnasium.spaces.Box(-10.0, 10.0, (2,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.executed: list[Any] = []
        if publishes:
            self.action_constraint = BALL

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.executed = []
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.executed.append(np.array(action))
        return self._observation(), float(action[0]), False, len(self.executed) >= 50, {"inner": 1}

    def _observation(self) -> Any:
        room = 0.5 if len(self.executed) % 2 == 0 else 0.1
        seen = np.array([room, float(len(self.executed))], np.float32)
        if isinstance(self.observation_space, gymnasium.spaces.Dict):
            return {"a room": seen[:1], "position": seen[1:]}
        return seen


def is_feasible(observation: Any, action: Any) -> bool:
    return bool(BALL.violation(observation, np.asarray(action, np.float64)) <= 0.0)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_only_feasible_actions_arrive_whatever_is_sent(wrapper: Any) -> None:
    inner = Walk()
    env = wrapper(inner, BALL)
    observation, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(120):
        count = len(inner.executed)
        following, _, _, truncated, info = env.step(rng.uniform(-1.0, 1.0, size=2))
        if len(inner.executed) > count:
            assert is_feasible(observation, inner.executed[-1])
            assert inner.executed[-1].dtype == np.float32
            assert np.array_equal(info["executed_action"], inner.executed[-1])
        observation = following
        if truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_feasible_action_is_executed_as_it_is(wrapper: Any) -> None:
    env = wrapper(Walk(), BALL)
    env.reset(seed=0)
    *_, info = env.step(INSIDE)
    assert info["action_outcome"] == "accepted" and info["action_excess"] <= 0 and info["inner"] == 1
    assert np.array_equal(info["raw_action"], info["executed_action"])


def test_the_projected_environment_executes_the_nearest_action_and_counts_it() -> None:
    env = ProjectAction(Walk(), BALL)
    observation, _ = env.reset(seed=0)
    *_, info = env.step(OUT)
    assert info["action_outcome"] == "projected" and env.projections == 1
    assert info["action_excess"] == pytest.approx(1.12)
    assert info["executed_action"] == pytest.approx(BALL.project(observation, OUT))
    assert np.array_equal(info["raw_action"], OUT)


def test_a_rejected_action_is_a_self_loop_that_costs_the_weighted_penalty() -> None:
    inner = Walk()
    env = AugmentedMDP(inner, BALL, penalty=0.4, preference=(0.75, 0.25))
    first, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(OUT)
    assert np.array_equal(observation, first) and not inner.executed
    assert reward == pytest.approx(-0.25 * 0.4) and not terminated and not truncated
    assert info["action_outcome"] == "rejected" and "executed_action" not in info
    _, reward, *_, info = env.step(INSIDE)
    assert reward == pytest.approx(0.75 * 0.2) and info["reward"] == pytest.approx(0.2)


def test_after_too_many_rejections_in_a_row_the_next_action_is_projected_and_still_pays() -> None:
    inner = Walk()
    env = AugmentedMDP(inner, BALL, rejections=3)
    env.reset(seed=0)
    outcomes = [env.step(OUT)[4]["action_outcome"] for _ in range(8)]
    assert outcomes == (["rejected"] * 3 + ["projected"]) * 2 and len(inner.executed) == 2
    [env.step(OUT) for _ in range(3)]
    _, reward, *_, info = env.step(OUT)
    assert reward == pytest.approx(0.9 * info["executed_action"][0] - 0.1 * 0.2)


def test_a_feasible_action_starts_the_count_of_rejections_anew() -> None:
    env = AugmentedMDP(Walk(), BALL, rejections=2)
    env.reset(seed=0)
    outcomes = [env.step(action)[4]["action_outcome"] for action in (OUT, OUT, INSIDE, OUT, OUT, OUT)]
    assert outcomes == ["rejected", "rejected", "accepted", "rejected", "rejected", "projected"]


def test_the_policy_is_asked_until_a_proposal_is_feasible() -> None:
    asked: list[Any] = []

    def policy(observation: Any) -> Any:
        asked.append(observation)
        return INSIDE if len(asked) == 3 else OUT

    env = AcceptReject(Walk(), BALL)
    env.policy = policy
    first, _ = env.reset(seed=0)
    *_, info = env.step(OUT)
    assert info["action_outcome"] == "resampled" and info["action_proposals"] == 4
    assert np.array_equal(info["executed_action"], INSIDE) and np.array_equal(info["raw_action"], OUT)
    assert all(np.array_equal(seen, first) for seen in asked)


def test_after_the_last_proposal_the_action_is_projected() -> None:
    env = AcceptReject(Walk(), BALL, lambda observation: OUT, proposals=5)
    env.reset(seed=0)
    *_, info = env.step(OUT)
    assert info["action_outcome"] == "projected" and info["action_proposals"] == 5


def test_the_set_may_be_published_by_the_environment_and_replaced_by_info() -> None:
    inner = Walk(publishes=True)
    env = ProjectAction(inner)
    observation, _ = env.reset(seed=0)
    *_, info = env.step(OUT)
    assert is_feasible(observation, info["executed_action"])
    inner.action_constraint = ib.Box(-0.01 * np.ones(2), 0.01 * np.ones(2))
    env.step(INSIDE)
    *_, info = env.step(OUT)
    assert np.abs(info["executed_action"]).max() <= 0.01


def test_a_set_in_info_holds_for_the_next_action() -> None:
    class Announcing(Walk):
        def step(self, action: Any) -> Any:
            *head, info = super().step(action)
            return (*head, {**info, "constraint": ib.Box(np.zeros(2), 0.25 * np.ones(2))})

    env = ProjectAction(Announcing(), BALL)
    env.reset(seed=0)
    env.step(INSIDE)
    *_, info = env.step(OUT)
    assert info["executed_action"] == pytest.approx([0.25, 0.25])


def test_observations_that_are_dictionaries_are_flattened_for_the_constraint_alone() -> None:
    box = gymnasium.spaces.Box(-10.0, 60.0, (1,))
    env = ProjectAction(Walk(gymnasium.spaces.Dict({"a room": box, "position": box})), BALL)
    observation, _ = env.reset(seed=0)
    following, *_, info = env.step(OUT)
    assert is_feasible(np.concatenate(list(observation.values())), info["executed_action"])
    assert set(following) == {"a room", "position"}


def test_limits_on_the_change_of_actions_follow_what_was_executed() -> None:
    limit = ib.RateLimit(0.1, previous=ib.previous_action) & ib.Box(-np.ones(2), np.ones(2))
    env = ProjectAction(Walk(), limit, first_previous_action=np.array([0.5, 0.5]))
    env.reset(seed=0)
    executed = [env.step(np.ones(2))[4]["executed_action"][0] for _ in range(3)]
    assert executed == pytest.approx([0.6, 0.7, 0.8], abs=1e-5)


@pytest.mark.parametrize("name", ["Reacher", "Ant"])
def test_the_guarded_environments_of_this_library_never_refuse_a_wrapped_agent(name: str) -> None:
    for wrapper in WRAPPERS:
        env = wrapper(gymnasium.make(f"inbounds/{name}-v0"))
        env.reset(seed=0)
        env.action_space.seed(0)
        outcomes = {env.step(env.action_space.sample())[4]["action_outcome"] for _ in range(10)}
        assert outcomes - {"accepted"}
        env.close()


def test_the_agents_space_is_the_plain_box() -> None:
    env = ProjectAction(gymnasium.make("inbounds/Reacher-v0"))
    assert type(env.action_space) is gymnasium.spaces.Box
    env.close()


def test_what_cannot_work_is_refused_with_the_remedy() -> None:
    env = ProjectAction(Walk(), BALL)
    with pytest.raises(InvalidInputError, match="step came before reset"):
        env.step(OUT)
    env.reset(seed=0)
    with pytest.raises(InvalidInputError):
        env.step(np.array([np.nan, 0.0]))
    with pytest.raises(ConfigurationError, match="publishes no constraint"):
        ProjectAction(Walk())
    with pytest.raises(ConfigurationError, match="Box with one axis"):
        ProjectAction(gymnasium.make("CartPole-v1"), BALL)
    with pytest.raises(ConfigurationError, match="penalty must be positive"):
        AugmentedMDP(Walk(), BALL, penalty=0.0)
    with pytest.raises(ConfigurationError, match="proposals=0"):
        AcceptReject(Walk(), BALL, proposals=0)


NARROW_SPACE = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


@pytest.mark.parametrize("wrapper", [*WRAPPERS, Guard])
@pytest.mark.parametrize(
    ("limit", "error", "message"),
    [
        (ib.WeightedL1([1.0, 1.0, 1.0], 1.0), ConfigurationError, "speaks of 3 entries, but an action has 2"),
        (
            ib.WeightedL1(ib.obs[3:5], 1.0),
            ConfigurationError,
            r"weights of WeightedL1 reads obs\[3:5\], but an obs",
        ),
        (
            ib.Ball(radius_squared=ib.obs[-3]),
            ConfigurationError,
            "observation has 2 entries. Correct the ind",
        ),
        (ib.WeightedL1(ib.obs["room"], 1.0), ConstraintError, "has only the parts 'observation'. Name one"),
        (ib.Box(2.0, 3.0), EmptySetError, "Widen one of them"),
        ([ib.Box(0.0, 1.0)], ConfigurationError, "not a constraint. Use ib.Box"),
    ],
    ids=["size", "indices", "from the end", "name", "box", "kind"],
)
def test_a_constraint_that_does_not_fit_is_refused_when_the_wrapper_is_built(
    wrapper: Any, limit: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        wrapper(Walk(), limit)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_sizes_are_checked_where_the_action_space_has_no_end_too(wrapper: Any) -> None:
    inner = Walk()
    inner.action_space = NARROW_SPACE
    with pytest.raises(ConfigurationError, match="speaks of 3 entries, but an action has 2"):
        wrapper(inner, ib.WeightedL1([1.0, 1.0, 1.0], 1.0))
    with pytest.raises(ConfigurationError, match="not a vector of 2 numbers"):
        wrapper(Walk(), ib.RateLimit(0.1), first_previous_action=np.zeros(3))


@pytest.mark.parametrize("wrapper", [*WRAPPERS, Guard])
def test_a_part_of_a_dictionary_is_read_by_its_name(wrapper: Any) -> None:
    box = gymnasium.spaces.Box(-10.0, 60.0, (1,))
    spaces = gymnasium.spaces.Dict({"position": box, "a room": box})
    env = wrapper(Walk(spaces), ib.Ball(radius_squared=ib.obs["a room", 0]))
    observation, _ = env.reset(seed=0)
    assert env.constraint.violation(np.concatenate(list(observation.values())), [0.6, 0.6]) == pytest.approx(
        0.22
    )


def test_an_agent_observes_the_previous_action_where_the_constraint_depends_on_it() -> None:
    env = ProjectAction(Walk(), ib.RateLimit(0.1), first_previous_action=np.array([0.5, -0.5]))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.shape == (4,) and observation in env.observation_space
    assert observation == pytest.approx([0.5, 0.0, 0.5, -0.5])
    following, *_, info = env.step(np.ones(2))
    assert following[2:] == pytest.approx(info["executed_action"]) and following in env.observation_space
    assert following[:2] == pytest.approx([0.1, 1.0])


def test_a_rejected_action_leaves_the_observed_previous_action_alone() -> None:
    env = AugmentedMDP(Walk(), ib.RateLimit(0.1))
    first, _ = env.reset(seed=0)
    following, *_, info = env.step(np.ones(2))
    assert info["action_outcome"] == "rejected" and np.array_equal(first, following)


def test_a_dictionary_holds_the_previous_action_under_its_own_key() -> None:
    box = gymnasium.spaces.Box(-10.0, 60.0, (1,))
    env = ProjectAction(Walk(gymnasium.spaces.Dict({"a room": box, "position": box})), ib.RateLimit(0.1))
    env.reset(seed=0)
    following, *_, info = env.step(np.ones(2))
    assert following in env.observation_space
    assert np.array_equal(following["previous_action"], info["executed_action"])


def test_an_observation_that_cannot_hold_the_previous_action_is_refused() -> None:
    pixels = gymnasium.spaces.Box(0, 255, (4, 4), np.uint8)
    with pytest.raises(ConfigurationError, match="FlattenObservation, or let it observe the action itself"):
        ProjectAction(Walk(pixels), ib.RateLimit(0.1))
    assert ProjectAction(Walk(), BALL).observation_space.shape == (2,)


def test_every_member_of_a_vector_environment_takes_a_policy() -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: AcceptReject(Walk(), BALL)] * 3)
    envs.set_attr("policy", lambda observation: INSIDE)
    envs.reset(seed=0)
    *_, infos = envs.step(np.stack([OUT, INSIDE, OUT]))
    assert list(infos["action_outcome"]) == ["resampled", "accepted", "resampled"]
    assert infos["executed_action"] == pytest.approx(np.stack([INSIDE] * 3))
    envs.close()


@pytest.mark.filterwarnings("default:AcceptReject has no policy:UserWarning")
def test_acceptance_rejection_without_a_policy_says_once_that_it_only_projects() -> None:
    env = AcceptReject(Walk(), BALL)
    env.reset(seed=0)
    env.step(INSIDE)
    with pytest.warns(UserWarning, match=r"only projects.*set_attr") as told:
        env.step(OUT)
        env.step(OUT)
    assert len(told) == 1


SLOW = ib.RateLimit(0.3)
NARROW = ib.WeightedL1([1.0, 1.0], ib.obs[0])


def correcting(env: Any, constraint: Any) -> Any:
    return Guard(env, constraint, on_violation="correct")


CHANGING = (*WRAPPERS, correcting)


@pytest.mark.parametrize("inner", CHANGING)
@pytest.mark.parametrize("outer", [*CHANGING, Guard])
def test_a_set_on_the_previous_action_is_refused_around_what_may_change_actions(
    outer: Any, inner: Any
) -> None:
    words = "further inside.*join both sets with &"
    name = {correcting: "Guard"}.get(inner, getattr(inner, "__name__", ""))
    with pytest.raises(ConfigurationError, match=f"{name}, {words}"):
        outer(inner(Walk(), NARROW), SLOW)
    with pytest.raises(ConfigurationError, match=f"{name}, {words}"):
        between = gymnasium.wrappers.TimeLimit(inner(Walk(), NARROW), 5)
        outer(
            between,
            ib.Box(-1.0, 1.0) & ib.Ball(radius_squared=0.5 + ib.dot(ib.previous_action, ib.previous_action)),
        )


@pytest.mark.parametrize("outer", [*CHANGING, Guard])
def test_other_stacks_of_wrappers_are_built(outer: Any) -> None:
    for env in (outer(ProjectAction(Walk(), SLOW), BALL), outer(Guard(Walk(), NARROW), SLOW)):
        env.reset(seed=0)
        env.step(np.zeros(2, np.float32))


@pytest.mark.parametrize("outer", [*CHANGING, Guard])
def test_a_set_in_info_that_reads_the_previous_action_is_refused_in_a_stack(outer: Any) -> None:
    class Announcing(Walk):
        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0], {"constraint": SLOW}

    with pytest.raises(ConfigurationError, match="further inside"):
        outer(ProjectAction(Announcing(), NARROW), BALL).reset(seed=0)


@pytest.mark.parametrize("inner", CHANGING)
def test_a_task_refuses_a_set_on_the_previous_action_around_what_may_change_actions(inner: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"tall: .*further inside"):
        ib.Task(lambda: inner(Walk(), NARROW), SLOW, horizon=5, name="tall")
    ib.Task(lambda: inner(Walk(), NARROW), BALL, horizon=5, name="tall")
    ib.Task(lambda: Guard(Walk(), NARROW), SLOW, horizon=5, name="tall")


@pytest.mark.parametrize("inner", [ProjectAction, AcceptReject, correcting])
@pytest.mark.parametrize("outer", WRAPPERS)
def test_info_tells_what_the_simulator_received_through_several_wrappers(outer: Any, inner: Any) -> None:
    walk = Walk()
    env = outer(inner(walk, NARROW), ib.Box(-0.6, 0.6))
    env.reset(seed=0)
    for _ in range(3):
        *_, info = env.step(np.full(2, 0.5, np.float32))
        assert np.array_equal(info["executed_action"], walk.executed[-1])
        assert np.abs(info["executed_action"]).sum() <= 0.5


def test_an_action_that_a_wrapper_further_inside_rejected_was_not_executed() -> None:
    walk = Walk()
    env = ProjectAction(AugmentedMDP(walk, NARROW), ib.Box(-0.6, 0.6))
    env.reset(seed=0)
    *_, info = env.step(OUT)
    assert info["action_outcome"] == "rejected" and "executed_action" not in info and not walk.executed
    *_, info = env.step(INSIDE)
    assert info["action_outcome"] == "accepted" and np.array_equal(info["executed_action"], walk.executed[-1])
