"""Our projections beside daqp and cvxpy, one action at a time and in batches; the peers come from `make peers`.

`make bench BENCH=projections` compares with what is installed; `.peers/bin/python -m benchmarks.bench_projections` has
cvxpy too. Every contestant gets the same actions in the same round, and rounds are interleaved.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.provenance import save_result
from benchmarks.sets import CLOSED_FORMS, SETS, Set

ROUNDS = 5
BATCHES = (256, 100_000)
POLYTOPE = "polytope (NSFnet)"
CVXPY = importlib.util.find_spec("cvxpy") is not None


class Row(NamedTuple):
    """Microseconds per action of one contestant at one batch size."""

    set: str
    method: str
    batch: int
    microseconds: float
    least: float
    most: float


def seconds_per_action(project: Callable[[int], Any], count: int) -> float:
    """Time `count` calls, each with another action."""
    start = time.perf_counter()
    for index in range(count):
        project(index)
    return (time.perf_counter() - start) / count


def one_at_a_time(name: str, chosen: Set, rng: np.random.Generator) -> list[Row]:
    """Time single actions: ours in numpy and compiled, a prepared cvxpy problem, and one rebuilt for every call."""
    count = 300
    observations, actions = chosen.observations(rng, count), chosen.actions(rng, count)
    compiled = jax.jit(chosen.constraint.project)
    contestants: dict[str, tuple[Callable[[int], Any], int]] = {
        "inbounds, numpy": (lambda i: chosen.constraint.project(at(observations, i), actions[i]), count),
        "inbounds, JAX": (
            lambda i: jax.block_until_ready(compiled(at(observations, i), actions[i])),
            count,
        ),
    }
    if name == POLYTOPE:
        contestants |= daqp_contestants(chosen, actions, count)
    if CVXPY and (prepared := cvxpy_problem(name)) is not None:
        contestants["cvxpy, prepared problem"] = (lambda i: prepared(at(observations, i), actions[i]), 30)
        contestants["cvxpy, problem per call"] = (
            lambda i: cvxpy_problem(name)(at(observations, i), actions[i]),  # type: ignore[misc]
            10,
        )
    return interleaved(name, 1, contestants)


def in_batches(name: str, chosen: Set, rng: np.random.Generator, batch: int) -> list[Row]:
    """Time whole batches: ours in numpy and compiled, and for polytopes a plain loop over daqp."""
    observations, actions = chosen.observations(rng, batch), chosen.actions(rng, batch)
    compiled = jax.jit(chosen.constraint.project)
    on_device = (
        None if observations is None else jnp.asarray(observations, jnp.float32),
        jnp.asarray(actions, jnp.float32),
    )
    repeats = max(1, 2_000 // batch)
    contestants: dict[str, tuple[Callable[[int], Any], int]] = {
        "inbounds, numpy": (lambda _: chosen.constraint.project(observations, actions), repeats),
        "inbounds, JAX": (lambda _: jax.block_until_ready(compiled(*on_device)), repeats),
    }
    if name == POLYTOPE:
        contestants["daqp, loop"] = (daqp_loop(chosen, actions), repeats)
    return interleaved(name, batch, contestants)


def interleaved(name: str, batch: int, contestants: dict[str, tuple[Callable[[int], Any], int]]) -> list[Row]:
    """Run every contestant once to prepare it, then all of them in turns."""
    times: dict[str, list[float]] = {method: [] for method in contestants}
    for project, _ in contestants.values():
        project(0)
    for _ in range(ROUNDS):
        for method, (project, count) in contestants.items():
            times[method].append(1e6 * seconds_per_action(project, count) / batch)
    return [
        Row(name, method, batch, statistics.median(spent), min(spent), max(spent))
        for method, spent in times.items()
    ]


def at(observations: Any, index: int) -> Any:
    """Return one state, or none for a constant set."""
    return None if observations is None else observations[index]


# Peers ---------------------------------------------------------------------------------------------------------


def polytope_arrays(chosen: Set) -> tuple[Any, Any, Any, Any]:
    """Return A, b and the box of the NSFnet polytope, read from its JSON."""
    members = [member["constraint"] for member in chosen.constraint.to_json()["constraints"]]
    by_kind = {member["kind"]: member for member in members}
    rows, box = by_kind["Polytope"], by_kind["Box"]
    return tuple(  # type: ignore[return-value]
        np.asarray(value, np.float64) for value in (rows["A"], rows["b"], box["low"], box["high"])
    )


def daqp_loop(chosen: Set, actions: Any) -> Callable[[int], Any]:
    """Return a plain loop: one prepared model whose linear term changes with the action."""
    import daqp

    matrix, bound, low, high = polytope_arrays(chosen)
    dimension = len(low)
    model = daqp.Model()
    upper, lower = np.concatenate([high, bound]), np.concatenate([low, np.full(len(bound), -1e30)])
    sense = np.zeros(len(upper), np.int32)
    model.setup(np.eye(dimension), -actions[0].copy(), matrix, upper, lower, sense)

    def loop(_: int) -> Any:
        found = np.empty_like(actions)
        for index, action in enumerate(actions):
            model.update(f=-action)
            found[index] = model.solve()[0]
        return found

    return loop


def daqp_contestants(chosen: Set, actions: Any, count: int) -> dict[str, tuple[Callable[[int], Any], int]]:
    """Return daqp with a prepared model and with a fresh one per call."""
    import daqp

    matrix, bound, low, high = polytope_arrays(chosen)
    upper, lower = np.concatenate([high, bound]), np.concatenate([low, np.full(len(bound), -1e30)])
    sense = np.zeros(len(upper), np.int32)
    model = daqp.Model()
    model.setup(np.eye(len(low)), -actions[0].copy(), matrix, upper, lower, sense)

    def prepared(index: int) -> Any:
        model.update(f=-actions[index])
        return model.solve()[0]

    def fresh(index: int) -> Any:
        return daqp.solve(np.eye(len(low)), -actions[index], matrix, upper, lower, sense)[0]

    return {"daqp, prepared model": (prepared, count), "daqp, model per call": (fresh, count)}


def cvxpy_problem(name: str) -> Callable[[Any, Any], Any] | None:
    """Return a function that projects with cvxpy, or None where the set is not compared."""
    import cvxpy as cp

    chosen = SETS[name]
    x, a = cp.Variable(chosen.dimension), cp.Parameter(chosen.dimension)
    weights = cp.Parameter(chosen.dimension, nonneg=True)
    signed, bound = cp.Parameter(chosen.dimension), cp.Parameter(nonneg=True)
    if name == "ball":
        rows = [cp.sum_squares(x) <= 0.05, x >= -1, x <= 1]
    elif name == "weighted L1 and box":
        rows = [weights @ cp.abs(x) <= bound, x >= -1, x <= 1]
    elif name == "power budget and box":
        rows = [cp.sum(cp.pos(cp.multiply(signed, x))) <= bound, x >= -1, x <= 1]
    elif name == "sum band":
        rows = [cp.abs(cp.sum(x) - 150) <= 5, x >= 0, x <= 40]
    elif name == "capped simplex":
        rows = [cp.sum(x) == 1, x >= 0, x <= 0.4]
    elif name == POLYTOPE:
        matrix, limit, low, high = polytope_arrays(chosen)
        rows = [matrix @ x <= limit, x >= low, x <= high]
    else:
        return None
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - a)), rows)

    def project(observation: Any, action: Any) -> Any:
        a.value = action
        if observation is not None:
            weights.value, signed.value, bound.value = (
                np.abs(observation[:6]),
                observation[:6],
                observation[6],
            )
        problem.solve(solver=cp.CLARABEL)
        return x.value

    return project


def main() -> None:
    # JAX starts its threads with its first computation, and they may use what the process may use by then.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows: list[Row] = []
    print(f"{'set':24}{'batch':>8}  {'method':26}{'us per action':>14}{'least':>10}{'most':>10}")
    for name in (*CLOSED_FORMS, POLYTOPE):
        rng = np.random.default_rng(0)
        found = one_at_a_time(name, SETS[name], rng)
        for batch in BATCHES:
            found += in_batches(name, SETS[name], rng, batch)
        for row in found:
            print(
                f"{row.set:24}{row.batch:8}  {row.method:26}{row.microseconds:14.3f}{row.least:10.3f}{row.most:10.3f}"
            )
        rows += found
    save_result("projections", {"cores_used": 1, "rounds": ROUNDS, "rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    main()
