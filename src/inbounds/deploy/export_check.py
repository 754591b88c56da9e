"""Whether an exported graph does what the policy does: both are asked the same questions, and checked in float64."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.deploy.acting import Policy
from inbounds.deploy.policy import GRAPH, MANIFEST, load, read_manifest, require_checksum
from inbounds.errors import ConfigurationError, EmptySetError, InvalidInputError, MissingDependencyError


class Comparison(NamedTuple):
    """What was found in states that leave an action; the differences are those between graph and numpy."""

    states: int
    empty: int
    """States without any allowed action, in which both refuse."""
    violations: int
    """Actions of the graph with an excess above 0 in float64."""
    worst_violation: float
    projected: int
    other_choices: int
    """States in which rounding made the two accept different proposals, both feasible."""
    largest_difference: float
    """Between actions that come from the same proposal, relative to the width of the box."""


def session(folder: str | Path) -> Any:
    """Return an onnxruntime session of a folder's graph, after comparing its checksum."""
    path = Path(folder)
    try:
        manifest = read_manifest(path)
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"{path} has no {MANIFEST}. Give a folder that `inbounds export` wrote."
        ) from error
    require_checksum(path, manifest, GRAPH)
    return session_of((path / GRAPH).read_bytes())


def session_of(model: bytes) -> Any:
    """Return an onnxruntime session on one thread, which reports problems as exceptions and not in its own log."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingDependencyError(
            'a graph is run by onnxruntime, which is not installed: pip install "inbounds[export]".'
        ) from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare(
    folder: str | Path,
    states: int = 256,
    *,
    observations: NDArray[np.floating] | None = None,
    seed: int = 0,
) -> Comparison:
    """Ask graph and numpy policy for actions in the same states, with the same noise.

    Args:
        folder: what `export` wrote.
        states: how many random observations are asked about, with entries of all sizes.
        observations: (n, size) real observations to ask about instead.
        seed: where noise and random observations come from.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    if not manifest["is_feasible_by_construction"]:
        raise ConfigurationError(
            "the graph ends with unfiltered proposals, so that there is nothing to check. Compare the filter "
            "around it instead."
        )
    policy, graph, rng = load(path), session(path), np.random.default_rng(seed)
    inputs = {entry.name for entry in graph.get_inputs()}
    asked = _observations(policy, states, rng) if observations is None else observations
    width = np.maximum(policy.box.high - policy.box.low, np.float32(1e-30))
    found: dict[str, int] = dict.fromkeys(("empty", "violations", "projected", "other_choices"), 0)
    worst, difference, previous = -np.inf, 0.0, policy.box.middle.astype(np.float64)
    for observation in np.asarray(asked, np.float64):
        noise = policy.noise(policy.proposals)
        question = {"observation": observation, "noise": noise, "preference": policy.preference}
        question["previous_action"] = previous
        answer = graph.run(None, {name: question[name] for name in inputs})
        action, accepted = np.asarray(answer[0]), int(answer[1])
        try:
            decision = policy.decide(observation, noise, previous_action=previous)
        except EmptySetError:
            found["empty"] += 1
            found["violations"] += bool(np.isfinite(action).all())
            continue
        excess = (
            float(policy.constraint.violation(observation, action, previous_action=previous))
            if (np.isfinite(action).all())
            else np.inf
        )
        worst = max(worst, excess)
        found["violations"] += not excess <= 0
        found["projected"] += accepted < 0
        if accepted != decision.accepted:
            found["other_choices"] += 1
        else:
            difference = max(difference, float(np.max(np.abs(action - decision.action) / width)))
        previous = decision.action.astype(np.float64)
    return Comparison(states=len(asked), worst_violation=worst, largest_difference=difference, **found)


def _observations(policy: Policy, states: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw observations whose entries are small in some and large in others."""
    sizes = 10.0 ** rng.uniform(-2.0, 1.0, (states, 1))
    return sizes * rng.standard_normal((states, policy.observation_size))
