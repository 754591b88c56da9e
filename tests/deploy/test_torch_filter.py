"""Every row of a batch of torch actions leaves feasible; these tests run where torch is installed (`make peers`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import ConfigurationError, EmptySetError, InvalidInputError
from tests.constraints.strategies import FAMILIES

torch: Any = pytest.importorskip("torch")

BALL = ib.Ball(radius_squared=ib.obs[0]) & ib.Box(-np.ones(2), np.ones(2))
RATE = ib.RateLimit(0.25) & ib.Box(-np.ones(2), np.ones(2))
SQUARE = ib.Box(-np.ones(2), np.ones(2))
SETS = {
    name: (one.constraint, one.state_size, one.dimension, one.action_scale) for name, one in FAMILIES.items()
}
SETS["polytope"] = (ib.Polytope([[1.0, 1.0], [-1.0, 2.0]], [1.0, 1.0]) & SQUARE, 1, 2, 1.0)
SETS["ellipsoid"] = (ib.Ellipsoid([[4.0, -3.0], [-3.0, 4.0]], 1.0) & SQUARE, 1, 2, 1.0)
SETS["shell"] = (ib.Shell(0.5, 1.0), 1, 2, 1.0)
SETS["expression"] = (ib.Ball(radius_squared=ib.sin(ib.obs[0]) ** 2 + 0.1) & SQUARE, 1, 2, 1.0)
NAN = float("nan")


def require_feasible_rows(name: str, rows: int) -> None:
    constraint, states, dimension, scale = SETS[name]
    rng = np.random.default_rng(0)
    observations = rng.uniform(0.3, 0.9, (rows, states)).astype(np.float32)
    actions = (rng.normal(size=(rows, dimension)) * 2.0 * scale).astype(np.float32)
    safety = ib.TorchFilter(constraint)
    executed = safety.correct(torch.asarray(observations), torch.asarray(actions)).numpy()
    assert executed.dtype == np.float32
    seen, checked = observations.astype(np.float64), executed.astype(np.float64)
    assert int(np.sum(~(constraint.violation(seen, checked) <= 0))) == 0
    is_accepted = constraint.contains(seen, actions)
    np.testing.assert_array_equal(executed[is_accepted], actions[is_accepted])
    assert safety.metrics()["passed"] == np.sum(is_accepted)
    assert safety.metrics()["interventions"] == np.sum(~is_accepted) == int(safety.is_corrected.sum())


@pytest.mark.parametrize("name", SETS)
def test_no_row_violates_its_set_by_a_float64_check_in_numpy(name: str) -> None:
    require_feasible_rows(name, 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_no_row_of_many_violates_its_set(name: str) -> None:
    require_feasible_rows(name, 20_000)


def test_a_rate_limit_counts_from_what_each_row_executed_last() -> None:
    safety = ib.TorchFilter(RATE, previous_action=torch.zeros(2))
    far = torch.ones(3, 2)
    assert torch.allclose(safety.correct(None, far), torch.full((3, 2), 0.25), atol=1e-5)
    assert torch.allclose(safety.correct(None, far), torch.full((3, 2), 0.5), atol=1e-5)
    safety.reset(torch.tensor([False, True, False]))
    expected = torch.tensor([[0.75, 0.75], [0.25, 0.25], [0.75, 0.75]])
    assert torch.allclose(safety.correct(None, far), expected, atol=1e-5)


def test_a_set_that_reads_the_previous_action_needs_the_first_one() -> None:
    with pytest.raises(ConfigurationError, match="previous_action="):
        ib.TorchFilter(RATE)


def test_rows_that_are_not_finite_are_refused_by_name() -> None:
    safety, seen = ib.TorchFilter(BALL), torch.full((3, 1), 0.5)
    with pytest.raises(InvalidInputError, match="row 1: invalid action"):
        safety.correct(seen, torch.tensor([[0.0, 0.0], [NAN, 0.0], [0.0, 0.0]]))
    with pytest.raises(InvalidInputError, match="row 2: invalid observation"):
        safety.correct(torch.tensor([[0.5], [0.5], [NAN]]), torch.zeros(3, 2))
    assert safety.metrics()["calls"] == 0


def test_only_broken_rows_take_a_fallback() -> None:
    safety = ib.TorchFilter(BALL, on_invalid_action="hold", on_invalid_observation="interior_point")
    first = torch.tensor([[0.1, 0.2], [0.3, 0.1], [0.2, 0.2]])
    safety.correct(torch.full((3, 1), 0.5), first)
    given = torch.tensor([[NAN, 0.0], [0.4, 0.1], [0.3, 0.3]])
    executed = safety.correct(torch.tensor([[0.5], [NAN], [0.5]]), given)
    assert torch.equal(executed, torch.tensor([[0.1, 0.2], [0.0, 0.0], [0.3, 0.3]]))
    assert safety.is_corrected.tolist() == [True, True, False]
    counted = safety.metrics()
    assert counted["interventions_hold"] == counted["interventions_interior_point"] == 1
    assert counted["causes_invalid_action"] == counted["causes_invalid_observation"] == 1


def test_a_row_without_an_earlier_action_or_observation_cannot_fall_back() -> None:
    safety = ib.TorchFilter(BALL, on_invalid_action="hold", on_invalid_observation="hold")
    seen, actions = torch.full((2, 1), 0.5), torch.zeros(2, 2)
    safety.correct(seen, actions)
    safety.reset(torch.tensor([True, False]))
    with pytest.raises(InvalidInputError, match="row 0"):
        safety.correct(seen, torch.full((2, 2), NAN))
    with pytest.raises(InvalidInputError, match="row 0"):
        safety.correct(torch.full((2, 1), NAN), actions)


def test_a_set_without_an_action_is_refused_and_nothing_is_counted() -> None:
    safety = ib.TorchFilter(BALL)
    with pytest.raises(EmptySetError):
        safety.correct(torch.tensor([[0.5], [-1.0]]), torch.ones(2, 2))
    assert safety.metrics()["actions"] == 0


def test_other_arrays_and_shapes_are_refused() -> None:
    safety = ib.TorchFilter(BALL)
    for actions in (np.zeros((2, 2)), torch.zeros(2), torch.zeros(2, 2, dtype=torch.int64)):
        with pytest.raises(InvalidInputError, match="torch tensor of shape"):
            safety.correct(torch.zeros(2, 1), actions)
    with pytest.raises(InvalidInputError, match="observation="):
        safety.correct({"other": torch.zeros(2, 1)}, torch.zeros(2, 2))


def test_a_tensor_with_a_gradient_is_read_by_its_values_where_the_answer_is_numpy() -> None:
    seen = torch.tensor([0.25], requires_grad=True)
    limit = ib.Ball(radius_squared=ib.obs[0])
    assert np.linalg.norm(limit.project(seen, np.ones(2))) <= 0.5
    executed = ib.SafetyFilter(limit).correct(seen, torch.ones(2, requires_grad=True))
    assert limit.violation(np.array([0.25]), executed) <= 0.0


def test_a_rate_limit_in_the_observation_counts_from_what_each_row_executed_since() -> None:
    corner = ib.Polytope([[1.0, 1.0]], [0.0]) & SQUARE
    for limit in (
        ib.RateLimit(0.1, previous=ib.obs[0:2]) & corner,
        ib.RateLimit(0.1, previous=2.0 * ib.obs[0:2]) & corner,
        (corner | ib.Box([0.5, 0.5], [1.0, 1.0])) & ib.RateLimit(0.1, previous=ib.obs[0:2]),
    ):
        for fallback in ("hold", "interior_point"):
            for dtype in (torch.float32, torch.float64):
                safety = ib.TorchFilter(limit, on_invalid_observation=fallback)
                actions = torch.tensor([[0.09, -0.09], [0.0, 0.0]], dtype=dtype)
                before = safety.correct(torch.zeros(2, 2), actions)
                for _ in range(4):
                    seen = torch.tensor([[NAN, NAN], [0.0, 0.0]])
                    after = safety.correct(seen, torch.zeros(2, 2, dtype=dtype))
                    assert float((after.double() - before.double()).abs().max()) <= 0.1
                    before = after


def test_a_reading_that_an_action_cannot_be_written_into_is_refused() -> None:
    limit = ib.RateLimit(0.1, previous=0.1 * ib.obs[0:2])
    with pytest.raises(ConfigurationError, match="on_invalid_observation='hold'"):
        ib.TorchFilter(limit, on_invalid_observation="hold")


def test_a_set_that_reads_the_previous_action_inside_a_union_needs_and_uses_it() -> None:
    either = ib.RateLimit(0.1) | ib.Ball(radius=0.05)
    with pytest.raises(ConfigurationError, match="previous_action="):
        ib.TorchFilter(either)
    safety = ib.TorchFilter(either, previous_action=torch.full((2,), 0.5))
    executed = safety.correct(None, torch.ones(1, 2))
    assert torch.allclose(executed, torch.full((1, 2), 0.6), atol=1e-5)


def test_a_batch_without_rows_changes_nothing() -> None:
    safety = ib.TorchFilter(RATE, previous_action=torch.zeros(2))
    assert safety.correct(None, torch.zeros(0, 2)).shape == (0, 2)
    safety.correct(None, torch.ones(3, 2))
    assert safety.correct(None, torch.zeros(0, 2)).shape == (0, 2)
    assert torch.allclose(safety.correct(None, torch.ones(3, 2)), torch.full((3, 2), 0.5), atol=1e-5)


def test_tensors_without_a_number_for_every_entry_are_refused() -> None:
    safety = ib.TorchFilter(BALL)
    for tensor in (
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, 2, device="meta"),
    ):
        with pytest.raises(InvalidInputError, match=r"actions are a tensor .*to_dense"):
            safety.correct(torch.ones(2, 1), tensor)
        with pytest.raises(InvalidInputError, match=r"observations are a tensor .*to_dense"):
            safety.correct(tensor, torch.ones(2, 2))


def test_writing_into_the_observations_of_a_wrapped_environment_does_not_move_the_set() -> None:
    inner = Vectorised()
    env = ib.TorchFilter(ib.Ball(radius_squared=ib.obs[0])).wrap(inner)
    seen = env.reset()[0]["policy"]
    for _ in range(3):
        limit = seen.double().clone()
        seen *= 100.0
        seen = env.step(torch.ones(4, 2))[0]["policy"]
        assert bool((inner.received[-1].double().square().sum(-1, keepdim=True) <= limit).all())


UINT8 = {"env_ids": torch.tensor([1, 0, 0, 0], dtype=torch.uint8)}  # a mask, as torch takes it


@pytest.mark.parametrize(
    "named",
    [{"env_ids": [0]}, {"env_ids": torch.tensor([0])}, {"options": {"reset_mask": np.arange(4) == 0}}, UINT8],
)
def test_a_reset_of_some_rows_keeps_what_the_others_executed(named: Any) -> None:
    inner = Vectorised()
    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(inner)
    env.reset()
    for _ in range(2):
        env.step(torch.ones(4, 2))
    env.reset(**named)
    env.step(torch.full((4, 2), 0.3))
    assert torch.allclose(inner.received[-1][:, 0], torch.tensor([0.25, 0.3, 0.3, 0.3]), atol=1e-5)


MASK = {"options": {"reset_mask": torch.ones(3, dtype=torch.bool)}}


@pytest.mark.parametrize(
    "named",
    [
        MASK,
        *({"env_ids": rows} for rows in ({0, 1}, [7], [0.5], torch.tensor([1.0]), [True], "x", [[0], []])),
    ],
    ids=str,
)
def test_rows_that_are_none_are_refused_before_the_environment_moves(named: Any) -> None:
    inner = Vectorised()
    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(inner)
    env.reset()
    env.step(torch.ones(4, 2))
    with pytest.raises(InvalidInputError, match=r"do not fit 4 rows.*Nothing was reset.*env_ids=\[0\]"):
        env.reset(**named)
    assert inner.resets == 1
    env.step(torch.ones(4, 2))
    assert torch.allclose(inner.received[-1], torch.full((4, 2), 0.5), atol=1e-5)


@pytest.mark.parametrize("rows", [[], np.array([0, -1]), slice(0, 2), torch.tensor([0]), (1, 2), range(2), 3])
def test_rows_may_be_numbered_in_every_usual_way(rows: Any) -> None:
    inner = Vectorised()
    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(inner)
    env.reset()
    env.step(torch.ones(4, 2))
    env.reset(env_ids=rows)
    env.step(torch.ones(4, 2))
    begun = np.zeros(4, bool)
    begun[[] if isinstance(rows, list) else np.arange(4)[np.r_[rows]]] = True
    expected = torch.tensor(np.where(begun, 0.25, 0.5), dtype=torch.float32)
    assert torch.allclose(inner.received[-1][:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("call", [((0, [0]), {}), (([0],), {}), ((), {"rows": [0]})])
def test_a_reset_of_unknown_rows_is_refused_with_the_remedy(call: Any) -> None:
    inner = Vectorised()
    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(inner)
    env.reset()
    with pytest.raises(ConfigurationError, match="env_ids="):
        env.reset(*call[0], **call[1])


def test_a_wrapped_environment_that_raised_must_be_reset() -> None:
    class Failing(Vectorised):
        def step(self, actions: Any) -> Any:
            super().step(actions)
            raise RuntimeError("the cable came off")

    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(Failing())
    env.reset()
    with pytest.raises(RuntimeError):
        env.step(torch.ones(4, 2))
    with pytest.raises(InvalidInputError, match=r"Call reset\(\)"):
        env.step(torch.ones(4, 2))


class Vectorised:
    """Takes and returns tensors as Isaac Lab's environments do; the episode of row 0 ends at every third step."""

    num_envs = 4

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.resets = 0

    def reset(self, seed: int | None = None, env_ids: Any = None, options: Any = None) -> Any:
        self.resets += 1
        return {"policy": torch.full((4, 1), 0.5)}, {}

    def step(self, actions: Any) -> Any:
        self.received.append(actions.clone())
        ended = torch.tensor([len(self.received) % 3 == 0, False, False, False])
        return {"policy": torch.rand(4, 1) + 0.1}, torch.zeros(4), ended, torch.zeros_like(ended), {}


def test_a_wrapped_environment_receives_feasible_actions_and_follows_resets() -> None:
    inner = Vectorised()
    env = ib.TorchFilter(RATE, previous_action=torch.zeros(2)).wrap(inner)
    assert env.num_envs == 4
    with pytest.raises(InvalidInputError, match="reset"):
        env.step(torch.ones(4, 2))
    env.reset(seed=0)
    for _ in range(4):
        env.step(torch.ones(4, 2))
    assert torch.allclose(inner.received[-1][:, 0], torch.tensor([0.25, 1.0, 1.0, 1.0]), atol=1e-5)


def test_points_inside_polytopes_and_other_sets_stay_on_the_device_of_a_tensor() -> None:
    seen = torch.full((5, 1), 0.5, dtype=torch.float64)
    actions = torch.full((5, 2), 3.0)
    torch.set_default_device("meta")  # a tensor that is made without a device fits no other one
    try:
        for name in ("polytope", "ellipsoid", "expression"):
            safety = ib.TorchFilter(SETS[name][0])
            assert safety.correct(seen, actions).device == actions.device
            assert SETS[name][0].interior_point(seen, dimension=2).device == actions.device
    finally:
        torch.set_default_device(None)
