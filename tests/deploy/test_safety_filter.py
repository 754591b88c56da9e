"""Whatever is proposed, what leaves the filter is feasible; what it did is counted, logged and explained."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import (
    ConfigurationError,
    EmptySetError,
    InboundsError,
    InfeasibleActionError,
    InvalidInputError,
)
from tests.constraints.strategies import FAMILIES

CUBE = ib.Box(-np.ones(3), np.ones(3))
BALL = ib.Ball(radius_squared=0.25) & CUBE
MOVING = ib.Ball(radius_squared=ib.obs[0]) & CUBE
SETS: dict[str, tuple[ib.Constraint, int, int, float]] = {
    **{name: (f.constraint, f.dimension, f.state_size, f.action_scale) for name, f in FAMILIES.items()},
    "polytope": (ib.Polytope(np.array([[1.0, 2.0, -1.0], [-1.0, 0.5, 3.0]]), np.ones(2)) & CUBE, 3, 0, 1.0),
    "ellipsoid": (ib.Ellipsoid(matrix=np.diag([1.0, 2.0, 3.0]), bound=0.5) & CUBE, 3, 0, 1.0),
    "union": (ib.Box(-np.ones(3), -0.5 * np.ones(3)) | BALL, 3, 0, 1.0),
    "oracle": (
        ib.Oracle(
            lambda observation, action: np.sum(action**2, axis=-1) <= 0.5,
            within=CUBE,
            is_batched=True,
            samples=50,
        ),
        3,
        0,
        1.0,
    ),
}


class Script:
    """A policy that proposes what it was told to, in turn."""

    def __init__(self, *actions: Any) -> None:
        self.actions, self.asked = list(actions), 0

    def act(self, observation: Any) -> Any:
        self.asked += 1
        return self.actions[(self.asked - 1) % len(self.actions)]


OUT, INSIDE = np.array([2.0, 0.0, 0.0], np.float32), np.array([0.1, 0.2, 0.0], np.float32)


# What leaves


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("correction", ["ray", "projection"])
def test_every_corrected_action_is_feasible_with_no_tolerance(name: str, dtype: Any, correction: Any) -> None:
    constraint, dimension, state_size, scale = SETS[name]
    rng = np.random.default_rng(1)
    safety = ib.SafetyFilter(constraint, correction=correction)
    for spread in (0.1, 1.0, 1.0, 30.0, 1e6) if name != "oracle" else (1.0, 30.0):
        state = rng.uniform(0.3, 0.9, size=state_size) if state_size else None
        proposed = (rng.normal(size=dimension) * spread * scale).astype(dtype)
        left = safety.correct(state, proposed)
        assert left.dtype == dtype
        assert constraint.violation(state, left.astype(np.float64)) <= 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_feasible_action_passes_bit_for_bit_even_on_the_boundary(dtype: Any) -> None:
    safety = ib.SafetyFilter(BALL)
    on_boundary = np.array([0.5, 0.0, 0.0], dtype)
    assert np.array_equal(safety.correct(None, on_boundary), on_boundary)
    assert safety.metrics()["passed"] == 1 and not safety.interventions()


def test_the_ray_keeps_the_direction_and_the_projection_the_distance() -> None:
    corner = ib.WeightedL1(weights=np.array([1.0, 3.0]), bound=1.0) & ib.Box(-np.ones(2), np.ones(2))
    proposed = np.array([1.0, 1.0])
    ray = ib.SafetyFilter(corner, correction="ray").correct(None, proposed)
    near = ib.SafetyFilter(corner, correction="projection").correct(None, proposed)
    assert ray == pytest.approx([0.25, 0.25], abs=1e-4)
    assert np.linalg.norm(near - proposed) < np.linalg.norm(ray - proposed) - 0.05


def test_a_polytope_that_moves_with_the_state_is_projected_on_since_its_interior_costs_more() -> None:
    rows = ib.Polytope(ib.obs[0:6].reshape(2, 3), np.ones(2)) & CUBE
    state, far = np.array([1.0, 2.0, -1.0, 0.5, 1.0, 3.0]), np.full(3, 5.0)
    kinds = {}
    for correction in ("quickest", "ray", "projection"):
        safety = ib.SafetyFilter(rows, correction=correction)  # type: ignore[arg-type]
        assert rows.violation(state, safety.correct(state, far)) <= 0.0
        kinds[correction] = safety.interventions()[0].kind
    assert kinds == {"quickest": "projection", "ray": "ray", "projection": "projection"}


def test_the_caller_may_write_into_what_it_gave_and_got() -> None:
    limit = ib.RateLimit(0.5, previous=ib.previous_action)
    safety = ib.SafetyFilter(limit, previous_action=np.zeros(2))
    given = np.array([0.3, 0.3])
    got = safety.correct(None, given)
    given[:], got[:] = 9.0, 9.0
    assert safety.correct(None, np.ones(2)) == pytest.approx([0.8, 0.8], abs=1e-3)


def test_dtype_decides_what_leaves_and_is_what_is_checked() -> None:
    safety = ib.SafetyFilter(BALL, dtype=np.float32)
    left = safety.correct(None, np.array([1 / 3, 1 / 3, 0.0]))
    assert left.dtype == np.float32 and BALL.violation(None, left.astype(np.float64)) <= 0.0


def test_an_empty_set_is_refused_by_name_and_nothing_leaves() -> None:
    safety = ib.SafetyFilter(ib.Ball(radius_squared=ib.obs[0]) & ib.Box(np.ones(2), 2 * np.ones(2)))
    with pytest.raises(EmptySetError, match="Conflicting rows"):
        safety.correct(np.array([0.1]), np.array([1.5, 1.5]))
    (entry,) = safety.interventions()
    assert (entry.kind, entry.cause, entry.executed) == ("refused", "empty set", None)


# Proposals


def test_the_first_feasible_proposal_is_the_one_taken() -> None:
    policy = Script(OUT, OUT * 2, INSIDE, OUT)
    safety = ib.SafetyFilter(BALL, policy)
    assert np.array_equal(safety.act(np.zeros(1)), INSIDE)
    metrics = safety.metrics()
    assert (policy.asked, metrics["proposals"], metrics["rejected_proposals"]) == (3, 3, 2)
    assert metrics["interventions"] == 0 and metrics["worst_excess"] == pytest.approx(15.75)


def test_after_the_cap_the_last_proposal_is_moved_inside() -> None:
    policy = Script(OUT, OUT * 2, OUT * 3, INSIDE)
    safety = ib.SafetyFilter(BALL, policy, proposals=3)
    assert BALL.violation(None, safety.act(np.zeros(1)).astype(np.float64)) <= 0.0
    (entry,) = safety.interventions()
    assert policy.asked == 3 and entry.kind == "ray" and np.array_equal(entry.proposed, OUT * 3)


def test_a_policy_that_repeats_itself_is_asked_twice() -> None:
    policy = Script(OUT)
    ib.SafetyFilter(BALL, policy, proposals=50).act(np.zeros(1))
    assert policy.asked == 2


def test_no_proposal_is_asked_for_after_the_time_limit() -> None:
    policy = Script(OUT, OUT * 2, OUT * 3, INSIDE)
    ib.SafetyFilter(BALL, policy, time_limit=1e-9).act(np.zeros(1))
    assert policy.asked == 1


def test_policies_of_other_libraries_and_functions_are_asked_their_own_way() -> None:
    class Model:
        def predict(self, observation: Any, deterministic: bool = True) -> tuple[Any, None]:
            return INSIDE if not deterministic else OUT, None

    for policy in (Model(), lambda observation: INSIDE):
        assert np.array_equal(ib.SafetyFilter(BALL, policy).act(np.zeros(1)), INSIDE)


def test_a_policy_that_takes_the_previous_action_gets_what_was_executed() -> None:
    class Careful:
        def act(self, observation: Any, previous_action: Any = None) -> Any:
            return previous_action + 1.0

    limit = ib.RateLimit(0.25, previous=ib.previous_action)
    safety = ib.SafetyFilter(limit, Careful(), previous_action=np.zeros(2))
    steps = [safety.act(np.zeros(1)) for _ in range(3)]
    assert np.diff([np.zeros(2), *steps], axis=0) == pytest.approx(0.25, abs=1e-4)
    measured = safety.act(np.zeros(1), previous_action=np.array([5.0, 5.0]))
    assert measured == pytest.approx([5.25, 5.25], abs=1e-4)


# Observations and actions that cannot be trusted


def test_what_is_not_finite_is_refused_by_default_with_the_remedy() -> None:
    safety = ib.SafetyFilter(MOVING)
    with pytest.raises(InvalidInputError, match="on_invalid_observation='hold'"):
        safety.correct(np.array([np.nan]), INSIDE)
    with pytest.raises(InvalidInputError, match="on_invalid_action='hold'"):
        safety.correct(np.array([0.5]), np.array([np.inf, 0.0, 0.0]))
    assert safety.metrics()["interventions_refused"] == 2


def test_hold_repeats_the_last_action_and_the_interior_point_is_that_of_the_last_good_observation() -> None:
    broken = np.array([np.nan])
    holding = ib.SafetyFilter(MOVING, on_invalid_observation="hold")
    first = holding.correct(np.array([0.5]), INSIDE)
    assert np.array_equal(holding.correct(broken, OUT), first)
    central = ib.SafetyFilter(MOVING, on_invalid_observation="interior_point")
    central.correct(np.array([0.5]), INSIDE)
    left = central.correct(broken, OUT)
    assert left == pytest.approx(0.0) and left.dtype == np.float32
    assert [entry.kind for entry in (*holding.interventions(), *central.interventions())] == [
        "hold",
        "interior_point",
    ]


def test_what_is_held_on_to_does_not_move_with_the_callers_array() -> None:
    safety = ib.SafetyFilter(MOVING, on_invalid_observation="interior_point")
    observation = np.array([0.5])
    safety.correct(observation, INSIDE)
    observation[0] = -1.0  # no action would be feasible there
    assert safety.correct(np.array([np.nan]), OUT) == pytest.approx(0.0)


def test_a_held_action_that_has_left_its_moving_set_is_moved_inside() -> None:
    band = ib.Box(ib.previous_action + 0.1, ib.previous_action + 0.2) & ib.Box(-np.ones(2), np.ones(2))
    safety = ib.SafetyFilter(band, on_invalid_observation="hold", previous_action=np.zeros(2))
    first = safety.correct(np.zeros(1), np.full(2, 0.15))
    second = safety.correct(np.array([np.nan]), np.zeros(2))
    assert band.violation(None, second, previous_action=first) <= 0.0


@pytest.mark.parametrize("fallback", ["hold", "interior_point"])
def test_without_anything_to_fall_back_on_the_call_is_refused(fallback: Any) -> None:
    safety = ib.SafetyFilter(MOVING, on_invalid_observation=fallback)
    with pytest.raises(InvalidInputError, match="no earlier one"):
        safety.correct(np.array([np.nan]), INSIDE)


def test_a_constant_set_needs_no_earlier_observation() -> None:
    safety = ib.SafetyFilter(BALL, on_invalid_observation="interior_point")
    assert safety.correct(np.array([np.nan]), OUT) == pytest.approx(0.0)


@pytest.mark.parametrize("fallback", ["hold", "interior_point"])
def test_a_rate_limit_in_the_observation_counts_from_what_was_executed_since(fallback: Any) -> None:
    limit = ib.Polytope([[1.0, 1.0]], [0.0]) & ib.RateLimit(0.5, previous=ib.obs[1:3]) & ib.Box(-1.0, 1.0)
    safety = ib.SafetyFilter(limit, on_invalid_observation=fallback)
    corner = np.array([0.4999, -0.4999])  # far from the middle of the triangle
    actions = [safety.correct(np.zeros(3), corner)]
    actions += [safety.correct(np.full(3, np.nan), np.zeros(2)) for _ in range(5)]
    assert np.array_equal(actions[0], corner)
    assert np.abs(np.diff(actions, axis=0)).max() <= 0.5
    moved = safety.correct(np.full(3, np.nan), np.zeros(2), previous_action=[-0.9, 0.4])
    assert np.abs(moved - [-0.9, 0.4]).max() <= 0.5


@pytest.mark.parametrize("fallback", ["hold", "interior_point"])
def test_a_rate_limit_inside_a_union_counts_from_what_was_executed_since(fallback: Any) -> None:
    halves = ib.Box([-1.0], [-0.05]) | ib.Box([-0.04], [1.0])
    safety = ib.SafetyFilter(
        halves & ib.RateLimit(0.1, previous=ib.obs[0:1]), on_invalid_observation=fallback
    )
    first = safety.correct(np.zeros(1), np.array([0.09]))
    second = safety.correct(np.full(1, np.nan), np.array([0.5]))
    assert np.abs(second - first).max() <= 0.1


@pytest.mark.parametrize("reading", [2.0 * ib.obs[0:2], -0.5 * ib.obs[[1, 0]]])
def test_a_scaled_reading_of_the_previous_action_gets_what_was_executed_since(reading: Any) -> None:
    limit = ib.RateLimit([0.1, 0.1], previous=reading) & ib.Polytope([[1.0, 1.0]], [0.0]) & ib.Box(-1.0, 1.0)
    safety = ib.SafetyFilter(limit, on_invalid_observation="interior_point")
    actions = [safety.correct(np.zeros(2), np.array([0.09, -0.09]))]
    actions += [safety.correct(np.full(2, np.nan), np.zeros(2)) for _ in range(4)]
    assert np.abs(np.diff(actions, axis=0)).max() <= 0.1


@pytest.mark.parametrize("reading", [0.1 * ib.obs[0:2], ib.obs[0:2] + 0.5, ib.clip(ib.obs[0:2], -1.0, 1.0)])
@pytest.mark.parametrize("cause", ["on_invalid_observation", "on_stale_observation"])
def test_a_reading_that_an_action_cannot_be_written_into_is_refused(reading: Any, cause: str) -> None:
    limit = ib.RateLimit(0.1, previous=reading) | ib.Box([-0.1, -0.1], [0.1, 0.1])
    with pytest.raises(ConfigurationError, match=rf"{cause}='hold'.*previous=ib.obs\[a:b\]"):
        ib.SafetyFilter(limit, **{cause: "hold"})
    ib.SafetyFilter(limit, on_invalid_action="hold")


def test_one_entry_for_a_whole_action_is_refused_where_it_cannot_hold_it() -> None:
    limit = ib.RateLimit(0.1, previous=ib.obs[0]) & ib.Box([-1.0, -1.0], [1.0, 1.0])
    safety = ib.SafetyFilter(limit, on_invalid_observation="interior_point")
    safety.correct(np.zeros(1), np.array([0.05, 0.05]))
    assert np.abs(safety.correct(np.full(1, np.nan), np.zeros(2)) - 0.05).max() <= 0.1
    safety.correct(np.zeros(1), np.array([0.05, -0.05]))
    with pytest.raises(InvalidInputError, match="cannot be read from"):
        safety.correct(np.full(1, np.nan), np.zeros(2))


def test_a_policy_that_writes_into_the_previous_action_does_not_move_the_limit() -> None:
    class Writing:
        def act(self, observation: Any, *, previous_action: Any) -> Any:
            previous_action += 1.0
            return previous_action.copy()

    safety = ib.SafetyFilter(ib.RateLimit(0.1), Writing(), previous_action=np.zeros(2))
    assert np.abs(safety.act(None)).max() <= 0.1


class Walking:
    """Draws actions, some of them feasible; told the previous one, it begins there."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def act(self, observation: Any, *, previous_action: Any) -> Any:
        return previous_action + 0.1 * self.rng.standard_normal(3)


def test_a_filter_that_was_sent_to_another_process_goes_on_where_it_was() -> None:
    limit = ib.RateLimit(0.1) & ib.Ball(radius_squared=ib.obs[0])
    safety = ib.SafetyFilter(
        limit, Walking(), previous_action=np.zeros(3), on_invalid_observation="hold", proposals=3
    )
    for _ in range(20):
        safety.act(np.array([0.5]))
    sent = pickle.loads(pickle.dumps(safety))
    assert len(sent.interventions()) == len(safety.interventions()) > 0
    for observation in (0.5, math.nan, 0.5, 0.5):
        np.testing.assert_array_equal(sent.act(np.array([observation])), safety.act(np.array([observation])))
    counted, same = safety.metrics(), sent.metrics()
    assert counted.pop("seconds") > 0 and same.pop("seconds") > 0
    assert counted["calls"] == same["calls"] == 24 and safety.limits() == sent.limits()


def test_a_clock_that_tells_no_time_is_named() -> None:
    safety = ib.SafetyFilter(BALL, stale_after=1.0, clock=lambda: "noon")  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidInputError, match=r"clock\(\)='noon' is not a time"):
        safety.correct(None, np.zeros(3), stamp=1.0)


def test_an_old_observation_is_stale_by_the_filters_clock() -> None:
    now = [10.0]
    safety = ib.SafetyFilter(
        BALL, stale_after=0.1, on_stale_observation="interior_point", clock=lambda: now[0]
    )
    assert np.array_equal(safety.correct(np.zeros(1), INSIDE, stamp=9.95), INSIDE)
    for stamp in (9.8, float("nan")):
        assert safety.correct(np.zeros(1), INSIDE, stamp=stamp) == pytest.approx(0.0)
    with pytest.raises(InvalidInputError, match="Pass stamp="):
        safety.correct(np.zeros(1), INSIDE)
    with pytest.raises(InvalidInputError, match=r"ahead of the filter's clock.*clock="):
        safety.correct(np.zeros(1), INSIDE, stamp=1.8e9)  # a wall clock's


def test_a_diverged_policy_is_held() -> None:
    policy = Script(INSIDE, np.full(3, np.nan, np.float32))
    safety = ib.SafetyFilter(BALL, policy, proposals=1, on_invalid_action="hold")
    assert np.array_equal(safety.act(np.zeros(1)), safety.act(np.zeros(1)))
    assert safety.metrics()["causes_invalid_action"] == 1


# What is kept


def test_the_log_is_bounded_and_says_which_row_was_broken() -> None:
    safety = ib.SafetyFilter(BALL, log_size=3)
    for factor in range(1, 8):
        safety.correct(None, OUT * factor)
    kept = safety.interventions()
    assert [entry.call for entry in kept] == [5, 6, 7] and safety.metrics()["interventions"] == 7
    assert "exceeded by 195.75" in kept[-1].reason and kept[-1].moved == pytest.approx(13.5, abs=1e-4)
    plain = kept[-1].as_json()
    assert plain["kind"] == "ray" and plain["proposed"] == [14.0, 0.0, 0.0]


def test_prometheus_reads_every_counter_with_its_type_and_labels() -> None:
    safety = ib.SafetyFilter(BALL)
    safety.correct(None, OUT)
    safety.correct(None, INSIDE)
    lines = safety.prometheus(robot='arm "1"').splitlines()
    assert "# TYPE inbounds_filter_calls_total counter" in lines
    assert 'inbounds_filter_calls_total{robot="arm \\"1\\""} 2' in lines
    assert 'inbounds_filter_interventions_total{robot="arm \\"1\\"",kind="ray"} 1' in lines
    assert 'inbounds_filter_seconds_bucket{robot="arm \\"1\\"",le="+Inf"} 2' in lines
    samples = [line for line in lines if not line.startswith("#")]
    assert all(
        float(line.rsplit(" ", 1)[1].replace("Inf", "inf")) >= 0 or "excess" in line for line in samples
    )


def test_threads_lose_no_count_and_get_only_feasible_actions() -> None:
    delta = 0.125
    safety = ib.SafetyFilter(
        ib.RateLimit(delta, previous=ib.previous_action) & CUBE, previous_action=np.zeros(3)
    )
    left: list[np.ndarray[Any, Any]] = []
    seen: list[float] = []
    stop = threading.Event()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(150):
            left.append(safety.correct(None, rng.uniform(-2.0, 2.0, size=3)))

    def scrape() -> None:
        while not stop.is_set():
            metrics = safety.metrics()
            seen.append(metrics["calls"])
            safety.prometheus()
            safety.interventions()

    reader = threading.Thread(target=scrape)
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    reader.start()
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    stop.set()
    reader.join()
    metrics = safety.metrics()
    assert metrics["calls"] == len(left) == 600 == metrics["passed"] + metrics["interventions"]
    assert seen == sorted(seen) and len(seen) > 1
    # Whatever the order was, it was one order: consecutive actions of the log differ by at most delta.
    for entry in safety.interventions():
        assert np.abs(entry.executed - entry.previous_action).max() <= delta
        assert np.abs(entry.executed).max() <= 1.0


# What is refused


@pytest.mark.parametrize(
    "choice",
    [
        {"proposals": 0},
        {"correction": "clip"},
        {"on_invalid_observation": "ignore"},
        {"stale_after": 0.0},
        {"time_limit": float("nan")},
        {"dtype": np.int32},
        {"dtype": "real"},
        {"log_size": 0},
        *({name: "many"} for name in ("proposals", "time_limit", "stale_after", "log_size", "clock")),
        {"policy": 3},
    ],
)
def test_choices_that_cannot_work_are_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ib.SafetyFilter(BALL, **choice)


@pytest.mark.parametrize(
    "action",
    [
        np.zeros((2, 3)),
        1.0,
        "left",
        [[1.0], [2.0, 3.0]],
        np.zeros(4),
        np.ma.array(np.zeros(3), mask=[0, 0, 1]),
    ],
)
def test_what_is_no_single_action_is_refused(action: Any) -> None:
    with pytest.raises(InboundsError):
        ib.SafetyFilter(BALL).correct(None, action)


@pytest.mark.parametrize(
    "observation",
    [np.array([0.5 + 1.0j]), np.ma.array([9.0], mask=[1]), ["0.5"]],
    ids=["complex", "masked", "text"],
)
def test_what_is_no_observation_is_refused_before_anything_is_dropped(observation: Any) -> None:
    safety = ib.SafetyFilter(ib.Ball(radius_squared=ib.obs[0]))
    with pytest.raises(InvalidInputError, match=r"real numbers|masked"):
        safety.correct(observation, np.zeros(2))


def test_a_stamp_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="stamp='now' is not a time"):
        ib.SafetyFilter(BALL, stale_after=1.0).correct(None, np.zeros(3), stamp="now")  # type: ignore[arg-type]


def test_acting_needs_a_policy_and_a_filter_a_constraint() -> None:
    with pytest.raises(ConfigurationError, match="has no policy"):
        ib.SafetyFilter(BALL).act(np.zeros(1))
    with pytest.raises(ConfigurationError, match="needs a constraint"):
        ib.SafetyFilter("ball")  # type: ignore[arg-type]


def test_the_filter_needs_no_jax() -> None:
    code = (
        "import sys; sys.modules['jax'] = None; import numpy as np, inbounds as ib\n"
        "f = ib.SafetyFilter(ib.Ball(radius_squared=1.0), lambda o: np.ones(3))\n"
        "f.act(np.zeros(2)); f.prometheus()"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_previous_action_of_another_size_is_refused_before_anything_is_checked_by_it() -> None:
    limit = ib.RateLimit(0.5) & ib.Box(-np.ones(2), np.ones(2))
    for last in ([0.0], [0.0] * 3):
        with pytest.raises(InvalidInputError, match=r"previous action has . entries, but an action has 2"):
            ib.SafetyFilter(limit).correct(None, [0.1, 0.1], previous_action=last)
        with pytest.raises(InvalidInputError, match=r"previous action has . entries, but an action has 2"):
            ib.SafetyFilter(limit).reset(last)


@pytest.mark.parametrize("fallback", ["hold", "interior_point"])
def test_a_set_that_reads_the_previous_action_alone_needs_no_observation(fallback: Any) -> None:
    limit = ib.RateLimit(0.25) & ib.Box(np.zeros(2), np.full(2, 2.0))
    safety = ib.SafetyFilter(limit, previous_action=np.ones(2), on_invalid_action=fallback)
    safety.correct(None, np.ones(2))
    assert np.abs(safety.correct(None, np.full(2, np.nan)) - 1.0).max() <= 0.25


def test_the_filter_counts_how_often_each_limit_binds() -> None:
    constraint = ib.Ball(radius=1.0) & ib.Box([-0.5, -3.0], [0.5, 3.0])
    limited = ib.SafetyFilter(constraint)
    assert limited.limits() == [] or all(use.broken == use.near == 0 for use in limited.limits())
    for action in ([0.0, 0.0], [0.9, 0.0], [0.499, 0.0], [0.0, 2.0], [-0.6, 0.0]):
        limited.correct(None, np.array(action))
    uses = {use.name: use for use in limited.limits()}
    assert len(uses) == 5
    assert (uses["sum_i a_i^2 <= 1"].broken, uses["a[0] <= 0.5"].broken, uses["a[0] >= -0.5"].broken) == (
        1,
        1,
        1,
    )
    assert (uses["a[0] <= 0.5"].near, uses["a[1] <= 3"].broken, uses["a[1] <= 3"].near) == (1, 0, 0)
    assert uses["a[1] <= 3"].least_room == pytest.approx(1.0)
    assert "1 x sum_i a_i^2 <= 1, 2 x" in repr(limited)


def test_counts_do_not_depend_on_when_they_are_read() -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (700, 2))
    often, once = ib.SafetyFilter(ib.Ball(radius=0.8)), ib.SafetyFilter(ib.Ball(radius=0.8))
    for action in actions:
        often.correct(None, action)
        once.correct(None, action)
        often.limits()
    broken = int(np.sum(np.sum(actions**2, axis=-1) > 0.64))
    assert [use.broken for use in often.limits()] == [use.broken for use in once.limits()] == [broken]


def test_a_limit_in_wrong_units_is_named_once() -> None:
    constraint = ib.Ball(radius=1.0) & ib.Box(
        [-90.0, -90.0], [90.0, 90.0]
    )  # degrees, where radians were meant
    limited = ib.SafetyFilter(constraint, warn_after=50)
    rng = np.random.default_rng(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for action in rng.uniform(-1.5, 1.5, (200, 2)):
            limited.correct(None, action)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "-90 <= a_i <= 90" in text and "sum_i a_i^2" not in text and "warn_after=None" in text


@pytest.mark.parametrize(
    ("constraint", "warn_after"),
    [
        (ib.Box([-1.0, -1.0], [1.0, 1.0]), 20),
        (ib.Ball(radius=1.0) & ib.Box([-90.0, -90.0], [90.0, 90.0]), None),
        (ib.Ball(radius=1.0) & ib.Box([-np.inf, -np.inf], [np.inf, np.inf]), 20),
    ],
    ids=str,
)
def test_limits_that_bind_or_are_infinite_are_not_named(constraint: Any, warn_after: int | None) -> None:
    limited = ib.SafetyFilter(constraint, warn_after=warn_after)
    for action in np.random.default_rng(2).uniform(-1.5, 1.5, (60, 2)):
        limited.correct(None, action)


def test_a_number_of_calls_that_makes_no_sense_is_refused() -> None:
    for wrong in (0, -1, 1.5, "often"):
        with pytest.raises(ConfigurationError, match="None for no warning"):
            ib.SafetyFilter(ib.Ball(radius=1.0), warn_after=wrong)  # type: ignore[arg-type]


def test_an_action_beyond_a_shell_stays_on_its_side_of_the_hole() -> None:
    safety = ib.SafetyFilter(ib.Shell(0.5, 1.0) & ib.Box([-1.0, -1.0], [1.0, 1.0]))
    for action in ([-2.0, -2.0], [2.0, -0.1], [-0.1, 0.1]):
        moved = safety.correct(None, np.array(action))
        wanted = np.array(action) * np.clip(np.linalg.norm(action), 0.5, 1.0) / np.linalg.norm(action)
        np.testing.assert_allclose(moved, wanted, atol=1e-5)


@pytest.mark.parametrize("correction", ["ray", "projection", "quickest"])
def test_a_set_that_is_not_convex_in_a_state_is_not_called_empty(correction: Any) -> None:
    saddle = ib.Ellipsoid(ib.stack([[ib.obs[0], 0.0], [0.0, 1.0]]), ib.obs[1])
    with pytest.raises(InfeasibleActionError, match=r"negative eigenvalue.*not convex"):
        ib.SafetyFilter(saddle, correction=correction).correct(np.array([-1.0, -1.0]), np.array([0.0, 3.0]))


FORK = """
import os, signal, sys, threading, warnings
import numpy as np
import inbounds as ib

warnings.simplefilter("ignore")  # a fork beside threads is what is tried here
inside, leave = threading.Event(), threading.Event()

def policy(observation):
    inside.set()
    leave.wait(30)
    return np.zeros(2)

safety = ib.SafetyFilter(ib.RateLimit(0.1) & ib.Ball(radius=0.5), policy, previous_action=np.zeros(2))
safety.correct(None, np.ones(2))
locks = {"filter": safety._lock, "log": safety._log._lock, "limits": safety._limits._lock}

def hold(lock):
    with lock:
        inside.set()
        leave.wait(30)

held = sys.argv[1]
target, arguments = (safety.act, (None,)) if held == "policy" else (hold, (locks[held],))
threading.Thread(target=target, args=arguments, daemon=True).start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)  # a child that waits for the lock is ended
    assert np.abs(safety.correct(None, np.ones(2))).max() <= 0.2
    safety.metrics(), safety.interventions(), safety.limits(), safety.reset(np.zeros(2))
    os._exit(0)
_, status = os.waitpid(child, 0)
leave.set()
sys.exit(status != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("held", ["policy", "filter", "log", "limits"])
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have(held: str) -> None:
    assert subprocess.run([sys.executable, "-c", FORK, held], timeout=60, check=False).returncode == 0
