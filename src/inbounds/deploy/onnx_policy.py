"""A policy as one ONNX graph that holds its constraint: network, proposals, acceptance test and projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from inbounds.constraints import Constraint
from inbounds.constraints.references import Reference
from inbounds.deploy.acting import PROJECTED, UNANSWERED, Policy, query_of
from inbounds.deploy.onnx_namespace import Namespace, new_namespace

FEASIBLE = (
    "Feasible by construction: the first of the proposals that lies in C(s), or else the projection of the last "
    "one, decided in float64. 'accepted' is the number of the proposal, -1 for a projection, and -2 where no "
    "action was found (an empty set, or inputs that are not finite); then the action is NaN."
)
UNFILTERED = (
    "NOT feasible by construction: the constraint is a function that no graph can hold. Every proposal must pass "
    "a filter before it is executed, such as inbounds.SafetyFilter(constraint).correct(observation, proposal)."
)


def policy_model(policy: Policy, proposals: int, facts: dict[str, str], *, is_filtered: bool) -> Any:
    """Return the graph of a policy for one state per call; `facts` become its metadata.

    Inputs: `observation` (float64, since constraints are decided in it), `noise` (proposals x d, float32) where
    the policy draws, `preference` where it takes one, `previous_action` (float64) where the constraint reads it.
    With `is_filtered=False` the graph ends with the raw proposals.
    """
    xp = new_namespace()
    graph, size = xp.graph, policy.action_size
    observation = graph.input("observation", (policy.observation_size,), np.float64)
    noise = previous = preference = None
    if policy.head.takes_noise:
        noise = graph.input("noise", (proposals, size), np.float32)
    if policy.preference is not None:
        preference = graph.input("preference", policy.preference.shape, np.float32)
    if is_filtered and reads_previous_action(policy.constraint):
        previous = graph.input("previous_action", (size,), np.float64)
    output = policy.head.output(policy.parameters, xp.astype(observation, np.float32)[None, :], preference)
    query = query_of(observation, previous, output, noise)
    candidates = policy.head.actions(policy, policy.parameters, query)
    if not is_filtered:
        return graph.model({"proposals": candidates}, facts, UNFILTERED)
    action, accepted = _decision(xp, policy, observation, previous, candidates)
    return graph.model({"action": action, "accepted": accepted}, facts, FEASIBLE)


def _decision(
    xp: Namespace, policy: Policy, observation: Any, previous: Any, candidates: Any
) -> tuple[Any, Any]:
    constraint = policy.constraint
    at, exact, _ = constraint.situation(observation, candidates, previous)
    # A sum is finite only where all its terms are, and nothing else would notice an input that no set reads.
    is_sound = xp.isfinite(xp.sum(observation if previous is None else xp.concat([observation, previous])))
    for reference in references_of(constraint):
        # Runtimes differ in what the larger of a number and NaN is: readings that overflow are looked for here.
        if reference.overflows_beyond < float("inf"):
            is_sound = is_sound & xp.isfinite(xp.sum(reference.read(at.source_of(reference))))
    is_accepted = policy.accepted(at, exact) & xp.all(xp.isfinite(exact), axis=-1) & is_sound
    first = xp.argmax(xp.astype(is_accepted, np.int32), axis=0)

    def accepted() -> tuple[Any, Any]:
        return xp.take(candidates, first, axis=0), first

    def projected() -> tuple[Any, Any]:
        moved = constraint.project(observation, candidates[-1], previous_action=previous)
        moved = xp.where(is_sound, moved, float("nan"))
        is_answer = xp.all(xp.isfinite(moved))
        return moved, xp.where(is_answer, np.int64(PROJECTED), np.int64(UNANSWERED))

    chosen: tuple[Any, Any] = xp.cond(xp.take(is_accepted, first, axis=0), accepted, projected)
    return chosen


def reads_previous_action(constraint: Constraint) -> bool:
    """Tell whether a set depends on the action that was executed before."""
    return any(reference.source == "previous_action" for reference in references_of(constraint))


def references_of(constraint: Constraint) -> Iterator[Reference]:
    """Yield all that a set and its members read."""
    for value in constraint.parameters().values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Reference):
                yield part
            elif isinstance(part, Constraint):
                yield from references_of(part)
