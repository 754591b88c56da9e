"""Microseconds per action on one core, side by side: a bare network, policies with their constraint, and others'.

    python -m benchmarks.bench_latency

One network (17 inputs, two layers of 256, six actions) and one set, a weighted budget of the state and a box, whose
bound makes about 99 % or 4 % of the proposals feasible. All rows take turns within each round; the table shows
medians over short rounds, and ratios to the bare numpy forward pass of the same round. torch comes from `make peers`.
"""

# ruff: noqa: E402
# The libraries read how many threads they may use when they are imported.
from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import argparse
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import inbounds as ib
from benchmarks.provenance import ROOT, save_result
from inbounds.deploy.acting import Policy
from inbounds.policies.box import ActionBox
from inbounds.policies.heads import SquashedGaussian
from inbounds.policies.networks import Layer

OBSERVATIONS, ACTIONS, HIDDEN = 17, 6, 256
ROUNDS, CALLS, STATES = 300, 20, 200
PROPOSALS = 100
ACCEPTANCE = {"high": 0.99, "hard": 0.04}
PEERS = ROOT / ".peers" / "bin" / "python"
TARGETS = {"numpy policy, high acceptance": 2.5, "numpy policy, 4 % acceptance": 5.0}

Act = Callable[[Any], Any]


class Problem(NamedTuple):
    """One network, the states it is asked about, and the bounds that make proposals feasible often or rarely."""

    layers: tuple[tuple[Any, Any], ...]
    states: Any
    bounds: dict[str, float]


def make_problem() -> Problem:
    """Draw a network whose proposals are spread over the box, and find the bounds by their quantiles."""
    rng = np.random.default_rng(0)
    sizes = (OBSERVATIONS, HIDDEN, HIDDEN, 2 * ACTIONS)
    layers = tuple(
        Layer(
            (rng.standard_normal((before, after)) * np.sqrt(2.0 / before)).astype(np.float32),
            np.zeros(after, np.float32),
        )
        for before, after in itertools.pairwise(sizes)
    )
    # The last layer is small: means near 0 and deviations near 1 in every state, as early in training.
    layers = (*layers[:-1], Layer(layers[-1].weight * np.float32(0.01), layers[-1].bias))
    states = rng.standard_normal((STATES, OBSERVATIONS))
    states[:, 11:17] = np.sign(states[:, 11:17]) * rng.uniform(0.8, 1.2, (STATES, 6))
    draws = np.tanh(rng.standard_normal((STATES, 2000, ACTIONS)))
    levels = np.sum(np.abs(states[:, None, 11:17] * draws), axis=-1)
    bounds = {name: float(np.quantile(levels, share)) for name, share in ACCEPTANCE.items()}
    return Problem(layers, states, bounds)


def constraint(bound: float) -> ib.Constraint:
    return ib.WeightedL1(weights=ib.obs[11:17], bound=bound) & ib.Box(-np.ones(ACTIONS), np.ones(ACTIONS))


def numpy_policy(problem: Problem, case: str) -> Policy:
    return Policy(
        SquashedGaussian(proposals=PROPOSALS),
        {"actor": problem.layers},
        ActionBox(-np.ones(ACTIONS, np.float32), np.ones(ACTIONS, np.float32)),
        constraint(problem.bounds[case]),
        preference=None,
        rng=np.random.default_rng(1),
    )


def bare_forward(problem: Problem) -> Act:
    def act(observation: Any) -> Any:
        hidden = observation.astype(np.float32)
        for weight, bias in problem.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        weight, bias = problem.layers[-1]
        return hidden @ weight + bias

    return act


def numpy_rows(problem: Problem) -> dict[str, Act]:
    high, hard = numpy_policy(problem, "high"), numpy_policy(problem, "hard")
    filtered = ib.SafetyFilter(high.constraint, numpy_policy(problem, "high"))
    passing, moving = ib.SafetyFilter(high.constraint), ib.SafetyFilter(hard.constraint)
    still, large = np.zeros(ACTIONS, np.float32), np.ones(ACTIONS, np.float32)
    return {
        "numpy policy, high acceptance": high.act,
        "numpy policy, 4 % acceptance": hard.act,
        "numpy policy behind a SafetyFilter": filtered.act,
        "SafetyFilter alone, feasible action": lambda seen: passing.correct(seen, still),
        "SafetyFilter alone, infeasible action": lambda seen: moving.correct(seen, large),
    }


def onnx_rows(problem: Problem) -> dict[str, Act]:
    import onnxruntime

    from inbounds.deploy.export import policy_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def session(model: Any) -> Any:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    rng = np.random.default_rng(2)

    def asked(opened: Any, output: str, rows: int) -> Act:
        return lambda seen: opened.run(
            [output],
            {"observation": seen, "noise": rng.standard_normal((rows, ACTIONS), dtype=np.float32)},
        )[0]

    rows: dict[str, Act] = {}
    raw = session(policy_model(numpy_policy(problem, "high"), 1, {}, is_filtered=False))
    rows["onnxruntime, network and one proposal, no constraint"] = asked(raw, "proposals", 1)
    for case, count, words in (("high", 20, "high acceptance"), ("hard", PROPOSALS, "4 % acceptance")):
        opened = session(policy_model(numpy_policy(problem, case), count, {}, is_filtered=True))
        rows[f"onnxruntime with the constraint, {words}, {count} proposals"] = asked(opened, "action", count)
    return rows


def jax_rows(problem: Problem) -> dict[str, Act]:
    import jax
    import jax.numpy as jnp

    layers = [(jnp.asarray(weight), jnp.asarray(bias)) for weight, bias in problem.layers]

    def output(observation: Any) -> Any:
        hidden = observation
        for weight, bias in layers[:-1]:
            hidden = jnp.maximum(hidden @ weight + bias, 0)
        return hidden @ layers[-1][0] + layers[-1][1]

    def chosen(bound: float) -> Act:
        allowed = constraint(bound)

        @jax.jit
        def act(observation: Any, key: Any) -> Any:
            mean, log_deviation = jnp.split(output(observation), 2)
            noise = jax.random.normal(key, (PROPOSALS, ACTIONS))
            proposals = jnp.tanh(mean + jnp.exp(jnp.clip(log_deviation, -20.0, 2.0)) * noise)
            is_feasible = allowed.contains(observation, proposals)
            first = proposals[jnp.argmax(is_feasible)]
            return jax.lax.cond(
                jnp.any(is_feasible), lambda: first, lambda: allowed.project(observation, proposals[-1])
            )

        keys = jax.random.split(jax.random.key(0), 4096)
        turn = iter(range(10**9))
        pool = [keys[k] for k in range(256)]
        return lambda seen: np.asarray(act(jnp.asarray(seen, jnp.float32), pool[next(turn) % 256]))

    forward = jax.jit(output)
    return {
        "JAX, bare forward": lambda seen: np.asarray(forward(jnp.asarray(seen, jnp.float32))),
        "JAX with the constraint, high acceptance": chosen(problem.bounds["high"]),
        "JAX with the constraint, 4 % acceptance": chosen(problem.bounds["hard"]),
    }


def torch_rows(problem: Problem) -> dict[str, Act]:
    """The pattern of published code: a forward pass, a draw and a check for every try, and no projection."""
    import torch

    torch.set_num_threads(1)
    layers = [
        (torch.from_numpy(weight.T.copy()), torch.from_numpy(bias.copy())) for weight, bias in problem.layers
    ]
    modules: list[Any] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = weight, bias
        modules += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*modules[:-1])

    @torch.no_grad()
    def forward(seen: Any) -> Any:
        return network(torch.as_tensor(seen, dtype=torch.float32))

    def tried(bound: float) -> Act:
        @torch.no_grad()
        def act(seen: Any) -> Any:
            for _ in range(PROPOSALS):
                mean, log_deviation = forward(seen).chunk(2)
                normal = torch.distributions.Normal(mean, log_deviation.clamp(-20.0, 2.0).exp())
                action = torch.tanh(normal.sample()).numpy()
                if np.abs(seen[11:17] * action).sum() <= bound:
                    break
            return action

        return act

    return {
        "torch eager, bare forward": lambda seen: forward(seen).numpy(),
        "torch eager, forward per try, high acceptance": tried(problem.bounds["high"]),
        "torch eager, forward per try, 4 % acceptance": tried(problem.bounds["hard"]),
    }


GROUPS: dict[str, tuple[str, Callable[[Problem], dict[str, Act]]]] = {
    "numpy": ("numpy", numpy_rows),
    "onnx": ("onnxruntime", onnx_rows),
    "jax": ("jax", jax_rows),
    "torch": ("torch", torch_rows),
}


def measure(problem: Problem, rows: dict[str, Act]) -> list[dict[str, Any]]:
    """Let all rows take turns; return the median microseconds and the median ratio to the bare forward pass."""
    everything = {"numpy, bare forward": bare_forward(problem), **rows}
    states = [np.ascontiguousarray(state) for state in problem.states]
    times: dict[str, list[float]] = {name: [] for name in everything}
    for act in everything.values():
        for state in states[:20]:  # compiles, fills caches
            act(state)
    for turn in range(ROUNDS):
        chosen = [states[(turn * CALLS + index) % STATES] for index in range(CALLS)]
        for name, act in everything.items():
            act(chosen[-1])  # brings this row's numbers back into the caches
            began = time.perf_counter()
            for state in chosen:
                act(state)
            times[name].append((time.perf_counter() - began) / CALLS * 1e6)
    bare = times["numpy, bare forward"]
    return [
        {
            "row": name,
            "us": round(statistics.median(own), 2),
            "least_us": round(min(own), 2),
            "ratio": round(statistics.median(a / b for a, b in zip(own, bare, strict=True)), 2),
        }
        for name, own in times.items()
    ]


def from_peers(problem: Problem) -> list[dict[str, Any]] | str:
    """Measure torch in its own interpreter on the same core, beside a bare numpy forward pass there."""
    if not PEERS.exists():
        return "skipped: torch is not installed here; `make peers` brings it"
    done = subprocess.run(
        [str(PEERS), "-m", "benchmarks.bench_latency", "--groups", "torch", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode:
        return f"skipped: {(done.stderr.strip().splitlines() or ['no words'])[-1]}"
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return [{**row, "row": f"{row['row']} (.peers)"} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--json", action="store_true", help="print the rows alone, and store nothing")
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    problem, rows = make_problem(), {}
    skipped: dict[str, str] = {}
    for group in options.groups:
        module, make = GROUPS[group]
        if importlib.util.find_spec(module) is None:
            skipped[group] = f"skipped: {module} is not installed in {Path(sys.prefix).name}"
        else:
            rows |= make(problem)
    measured = measure(problem, rows)
    if options.json:
        print(json.dumps(measured))
        return
    if "torch" in skipped:
        others = from_peers(problem)
        if isinstance(others, str):
            skipped["torch"] = others
        else:
            measured += others
            del skipped["torch"]
    print(f"{'one action, one core':62}{'us':>9}{'least':>9}{'ratio':>8}{'target':>8}")
    for row in measured:
        target = TARGETS.get(row["row"], "")
        print(f"{row['row']:62}{row['us']:9.1f}{row['least_us']:9.1f}{row['ratio']:8.2f}{target!s:>8}")
    for words in skipped.values():
        print(words)
    policy = numpy_policy(problem, "hard")
    for state in problem.states:
        policy.act(state)
    share = policy.proposals_accepted / policy.proposals_checked
    print(f"hard case: {share:.1%} of the proposals are feasible, {policy.projections} of {STATES} projected")
    about = {"rounds": ROUNDS, "calls": CALLS, "proposals": PROPOSALS, "hard_case_acceptance": share}
    save_result("latency", {**about, "targets": TARGETS, "rows": measured, "skipped": skipped})


if __name__ == "__main__":
    main()
