"""Policy heads: plain data that a file may name, the same actions in JAX and NumPy, and nothing that is run by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inbounds as ib
from inbounds.deploy.acting import PreparedGaussian, PreparedNetwork
from inbounds.errors import InboundsError
from inbounds.learners.networks import init_flow, init_network
from inbounds.policies import heads
from inbounds.policies.box import ActionBox
from inbounds.policies.heads import Head, Query, head_from_json, named_arrays
from tests.slices import quick_slice

D, SIZE, COUNT = 3, 6, 5
BOX = ActionBox(np.float32([-1.0, 0.0, -2.0]), np.float32([1.0, 2.0, 2.0]))
SET = ib.SumBand(total=ib.obs[0] * 0.2 + 1.0, tolerance=0.3) & ib.Box(
    BOX.low.astype(float), BOX.high.astype(float)
)
HEADS: list[Head] = [
    heads.SquashedGaussian(proposals=7, preference_size=2, min_return_weight=0.5, student_df=4.0),
    heads.SquashedGaussian(reference=ib.obs[1:4] * 0.5 + 0.1),
    heads.RadialGaussian(),
    heads.DiagonalGaussian(),
    heads.Deterministic(),
    heads.Deterministic(std=0.2, proposals=3),
    heads.AlongRay(),
    heads.AlongRay(smooth=False),
    heads.Allocation(leaky=True),
    heads.ThroughFlow(condition_range=(-2.0, 3.0)),
]


class Where(NamedTuple):
    """What a head reads of a task."""

    box: ActionBox
    constraint: Any


SPEC = Where(BOX, SET)


def parameters_of(head: Head) -> dict[str, Any]:
    inputs = SIZE + head.preference_size
    actor_key, flow_key = jax.random.split(jax.random.key(0))
    return {
        "actor": init_network(actor_key, (inputs, 8, head.outputs_per_entry * D)),
        "log_std": jnp.asarray([-0.5, 0.1, -1.0]),
        "flow": init_flow(flow_key, D, 1, 2, (4,)),
    }


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
def test_a_head_comes_back_from_a_file_as_it_was(head: Head) -> None:
    again = head_from_json(json.loads(json.dumps(head.to_json())))
    assert type(again) is type(head) and again.to_json() == head.to_json()


def test_every_kind_is_tried_here() -> None:
    assert {head.kind for head in HEADS} == set(heads.KINDS)


@pytest.mark.parametrize("head", quick_slice(HEADS, HEADS[:3]), ids=lambda head: head.kind)
def test_numpy_acts_as_jax_does_from_the_arrays_of_a_file(head: Head) -> None:
    rng = np.random.default_rng(1)
    observation, noise = (rng.standard_normal((COUNT, size)).astype(np.float32) for size in (SIZE, D))
    preference = np.float32([0.8, 0.2])
    trained = parameters_of(head)
    stored = head.read({name: np.asarray(array) for name, array in named_arrays(trained).items()})
    found = []
    for parameters, seen, xp in ((trained, jnp.asarray(observation), jnp), (stored, observation, np)):
        output = head.output(parameters, seen, xp.asarray(preference))
        # A deployed policy asks its constraint in float64.
        exact = seen if xp is jnp else observation.astype(np.float64)
        found.append(np.asarray(head.actions(SPEC, parameters, Query(exact, output, xp.asarray(noise)))))
    assert found[1].dtype == np.float32
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


@pytest.mark.parametrize("head", HEADS[:2], ids=["plain", "around a reference action"])
def test_the_fast_gaussian_returns_the_numbers_of_the_head(head: Any) -> None:
    rng = np.random.default_rng(2)
    plain = dataclasses.replace(head, preference_size=0)
    parameters = plain.read({name: np.asarray(a) for name, a in named_arrays(parameters_of(plain)).items()})
    fast = PreparedGaussian(PreparedNetwork(parameters["actor"], None), plain, BOX)
    for observation in rng.standard_normal((20, SIZE)).astype(np.float32):
        noise = rng.standard_normal((COUNT, D)).astype(np.float32)
        output = plain.output(parameters, observation[None, :], None)
        wanted = plain.actions(SPEC, parameters, Query(observation[None, :], output, noise))
        np.testing.assert_allclose(fast.drawn(fast(observation), noise), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "deterministic",
        {},
        {"kind": "os.system"},
        {"kind": ["deterministic"]},
        {"kind": "deterministic", "function": "os:system"},
        {"kind": "deterministic", "std": -1.0},
        {"kind": "deterministic", "std": float("nan")},
        {"kind": "deterministic", "std": "0.1"},
        {"kind": "deterministic", "proposals": 0},
        {"kind": "deterministic", "proposals": 10**9},
        {"kind": "squashed_gaussian", "preference_size": 10**9},
        {"kind": "squashed_gaussian", "min_return_weight": 1.0},
        {"kind": "squashed_gaussian", "student_df": 0.0},
        {"kind": "squashed_gaussian", "reference": [0, 1]},
        {"kind": "squashed_gaussian", "reference": {"source": "file"}},
        {"kind": "along_ray", "smooth": 1},
        {"kind": "through_flow", "condition_range": [1.0, 1.0]},
        {"kind": "through_flow", "condition_range": [0.0]},
    ],
    ids=str,
)
def test_what_no_head_writes_is_refused(data: Any) -> None:
    with pytest.raises(InboundsError, match=r"\.$"):
        head_from_json(data)


def test_a_program_may_add_a_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Still(heads.Deterministic):
        kind = "still"

    with pytest.raises(InboundsError, match="not a kind"):
        head_from_json(Still().to_json())
    monkeypatch.setitem(heads.KINDS, "still", Still)
    assert isinstance(head_from_json(Still().to_json()), Still)
