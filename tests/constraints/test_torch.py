"""torch tensors are answered as numpy arrays are; these tests run where torch is installed (`make peers`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inbounds.constraints import Ball, Box, Ellipsoid, Polytope, WeightedL1, obs
from inbounds.errors import EmptySetError, InvalidInputError
from tests.constraints.strategies import FAMILIES, Family

torch: Any = pytest.importorskip("torch")


def question(family: Family) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    state = rng.uniform(0.3, 0.9, size=family.state_size)
    return state, rng.normal(size=(50, family.dimension)) * 2.0 * family.action_scale


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_and_numpy_agree(name: str, dtype: str) -> None:
    family = FAMILIES[name]
    constraint = family.constraint
    state, actions = question(family)
    actions = actions.astype(dtype)
    tensors = torch.asarray(state), torch.asarray(actions)
    projected = constraint.project(*tensors)
    assert isinstance(projected, torch.Tensor) and projected.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(projected.numpy(), constraint.project(state, actions), rtol=1e-6, atol=1e-6)
    assert bool(torch.all(constraint.violation(*tensors[:1], projected) <= 0))
    np.testing.assert_array_equal(constraint.contains(*tensors).numpy(), constraint.contains(state, actions))
    np.testing.assert_allclose(
        constraint.violation(*tensors).numpy(), constraint.violation(state, actions), rtol=1e-12
    )
    inside = constraint.interior_point(tensors[0], dimension=family.dimension)
    np.testing.assert_allclose(inside.numpy(), constraint.interior_point(state, dimension=family.dimension))
    np.testing.assert_allclose(
        constraint.distance(tensors[0], inside, tensors[1]).numpy(),
        constraint.distance(state, inside.numpy(), actions),
        rtol=1e-9,
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_flow_through_projections_and_are_finite(name: str) -> None:
    family = FAMILIES[name]
    state, actions = (torch.tensor(part, requires_grad=True) for part in question(family))
    torch.sin(family.constraint.project(state, actions)).sum().backward()
    assert bool(torch.all(torch.isfinite(actions.grad)))
    assert bool(torch.any(actions.grad != 0))


def test_the_gradient_of_a_ball_is_that_of_normalising() -> None:
    action = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    Ball(radius_squared=1.0).project(None, action)[0].backward()
    np.testing.assert_allclose(action.grad.numpy(), [0.2 * 0.64, -0.2 * 0.48], rtol=1e-5)


def test_tensors_that_cannot_be_checked_are_errors() -> None:
    constraint = WeightedL1(weights=obs[[0, 2]], bound=1.0) & Box(-1.0, 1.0)
    with pytest.raises(InvalidInputError, match="not finite"):
        constraint.contains(torch.ones(3), torch.tensor([float("nan"), 0.0]))
    with pytest.raises(InvalidInputError, match="real numbers"):
        constraint.contains(torch.ones(3), torch.tensor([True, False]))
    assert constraint.project(torch.ones(3), torch.tensor([1, 5])).dtype == torch.float64


def test_violations_that_overflow_are_infinite() -> None:
    crossed = Ellipsoid([[4.0, -3.0], [-3.0, 4.0]], 1.0) & Box(-1.0, 1.0)
    action = torch.tensor([[1e308, 1e308], [0.0, 0.0]], dtype=torch.float64)
    assert crossed.violation(None, action)[0] == float("inf")
    assert crossed.contains(None, action).tolist() == [False, True]
    read = WeightedL1(10.0 * obs[0:2], 1.0)
    assert read.violation(torch.full((2,), 1e308, dtype=torch.float64), action[1]) == float("inf")


def test_a_set_between_the_numbers_of_a_type_is_refused() -> None:
    rows, limits = [[1.0, -1.0], [-1.0, 1.0]], Box([5e4, 5e4], [6.5e4, 6.5e4])
    action = torch.tensor([[5.1e4, 6e4], [6e4, 5.5e4]], dtype=torch.float32, requires_grad=True)
    with pytest.raises(EmptySetError, match="no float32 action"):
        (Polytope(rows, [2e-3, -1e-3]) & limits).project(None, action)
    equal = Polytope(rows, [5e-4, 5e-4]) & limits
    projected = equal.project(None, action)
    assert projected.dtype == torch.float32
    assert bool(torch.all(equal.violation(None, projected) <= 0))
