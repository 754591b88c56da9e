"""What a constraint may contradict itself in; each function returns a contradiction in words, or None."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from inbounds.constraints.constraint import Constraint
from inbounds.constraints.intersection import is_convex
from inbounds.errors import InboundsError

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

ACTIONS = 200
"""Actions near the set that are asked about in every observation; half as many are far from it."""

NEARNESS = 1e-5
"""By how much of the distance another point may beat a projection before it counts as nearer."""


@dataclasses.dataclass(frozen=True)
class Questions:
    """Random actions for a constraint in one situation, and some of them that it accepts."""

    constraint: Constraint
    observation: FloatArray | None
    previous_action: FloatArray | None
    actions: FloatArray
    inside: FloatArray

    def contains(self, action: Any) -> Any:
        """Ask `contains` in this situation."""
        return self.constraint.contains(self.observation, action, previous_action=self.previous_action)

    def violation(self, action: Any) -> Any:
        """Ask `violation` in this situation."""
        return self.constraint.violation(self.observation, action, previous_action=self.previous_action)

    def project(self, action: Any) -> Any:
        """Ask `project` in this situation."""
        return self.constraint.project(self.observation, action, previous_action=self.previous_action)

    def distance(self, point: Any, direction: Any) -> Any:
        """Ask `distance` in this situation."""
        return self.constraint.distance(
            self.observation, point, direction, previous_action=self.previous_action
        )

    def interior_point(self) -> Any:
        """Ask `interior_point` in this situation."""
        size = None if self.constraint.size() is not None else self.actions.shape[-1]
        return self.constraint.interior_point(
            self.observation, dimension=size, previous_action=self.previous_action
        )


def random_questions(
    constraint: Constraint,
    observation: FloatArray | None,
    previous_action: FloatArray | None,
    size: int,
    rng: np.random.Generator,
) -> Questions:
    """Draw actions around the interior point, at the scale of the set where it can be told."""
    asked = Questions(constraint, observation, previous_action, np.zeros((1, size)), np.zeros((0, size)))
    centre = np.asarray(asked.interior_point(), dtype=np.float64)
    headings = rng.standard_normal((ACTIONS, size))
    headings /= np.linalg.norm(headings, axis=-1, keepdims=True)
    reach = np.asarray(asked.distance(np.broadcast_to(centre, headings.shape), headings))
    reach = np.where(np.isfinite(reach), reach, 1.0 + np.linalg.norm(centre))
    typical = max(float(np.median(reach)), 1e-6)
    near = centre + headings * (reach * rng.uniform(0.0, 1.6, ACTIONS))[:, None]
    far = centre + typical * rng.normal(scale=4.0, size=(ACTIONS // 2, size))
    inside = centre + headings * (0.999 * reach * rng.random(ACTIONS))[:, None]
    inside = inside[np.asarray(asked.contains(inside))]
    return dataclasses.replace(
        asked, actions=np.concatenate([near, far]), inside=np.concatenate([centre[None], inside])
    )


def _shapes(asked: Questions) -> str | None:
    actions = asked.actions[:6].reshape(2, 3, -1)
    expected = {
        "contains": ((2, 3), asked.contains(actions)),
        "violation": ((2, 3), asked.violation(actions)),
        "project": (actions.shape, asked.project(actions)),
        "contains, one action": ((), asked.contains(actions[0, 0])),
        "project, one action": (actions.shape[-1:], asked.project(actions[0, 0])),
    }
    for name, (shape, answer) in expected.items():
        if np.shape(answer) != shape:
            return f"{name} gave shape {np.shape(answer)} instead of {shape}"
    at, array, _ = asked.constraint.situation(asked.observation, actions, asked.previous_action)
    rows = np.shape(asked.constraint.excess(at, array))[-1]
    names = asked.constraint.row_names(at, array.shape[-1])
    return None if rows == len(names) else f"{rows} rows have {len(names)} names"


def _batches(asked: Questions) -> str | None:
    actions = asked.actions[:20]
    together = asked.violation(actions)
    alone = [float(asked.violation(action)) for action in actions]
    worst = int(np.argmax(np.abs(together - alone)))
    if abs(together[worst] - alone[worst]) <= 1e-9 * (1.0 + abs(alone[worst])):
        return None
    return f"a = {numbers(actions[worst])} has violation {alone[worst]:.6g}, but {together[worst]:.6g} in a batch"


def _acceptance(asked: Questions) -> str | None:
    actions = np.concatenate([asked.actions, asked.inside])
    accepted = asked.contains(actions)
    violation = asked.violation(actions)
    wrong = np.flatnonzero(accepted & ~(violation <= 0))
    if wrong.size:
        return (
            f"contains accepts a = {numbers(actions[wrong[0]])}, whose violation is {violation[wrong[0]]:.3g}"
        )
    size = 1.0 + np.max(np.abs(violation))
    lost = np.flatnonzero(~accepted & (violation < -1e-3 * size))
    if lost.size:
        return f"contains refuses a = {numbers(actions[lost[0]])}, although it has {-violation[lost[0]]:.3g} to spare"
    return None


def _feasible_projections(asked: Questions) -> str | None:
    for kind in (np.float64, np.float32):
        projected = asked.project(asked.actions.astype(kind))
        violation = asked.violation(projected.astype(np.float64))
        wrong = np.flatnonzero(~(violation <= 0) | ~asked.contains(projected))
        if wrong.size:
            return (
                f"a = {numbers(asked.actions[wrong[0]])} as {kind.__name__} is projected to "
                f"{numbers(projected[wrong[0]])}, whose violation is {violation[wrong[0]]:.3g}"
            )
    return None


def _unchanged(asked: Questions) -> str | None:
    for kind in (np.float64, np.float32):
        projected = asked.project(asked.actions.astype(kind))
        again = asked.project(projected)
        wrong = np.flatnonzero(np.any(again != projected, axis=-1))
        if wrong.size:
            return f"{numbers(projected[wrong[0]])} is a projection, but is projected to {numbers(again[wrong[0]])}"
    return None


def _nearest(asked: Questions) -> str | None:
    """Compare with the other projections, and with points a little towards others from the projection."""
    if not asked.constraint.projection_is_exact:
        return None
    projected = asked.project(asked.actions)
    rivals = np.concatenate([projected, asked.inside])
    distance = np.linalg.norm(projected - asked.actions, axis=-1)
    for share in (1.0, 0.1, 0.01):
        points = projected[:, None] + share * (rivals[None] - projected[:, None])
        nearer = np.linalg.norm(points - asked.actions[:, None], axis=-1)
        is_better = nearer < distance[:, None] * (1.0 - NEARNESS) - NEARNESS
        is_better &= np.asarray(asked.contains(points))
        if np.any(is_better):
            index, rival = np.argwhere(is_better)[0]
            return (
                f"a = {numbers(asked.actions[index])} is projected to {numbers(projected[index])}, but "
                f"{numbers(points[index, rival])} is allowed and nearer "
                f"({nearer[index, rival]:.4g} instead of {distance[index]:.4g})"
            )
    return None


def _convex(asked: Questions) -> str | None:
    """Look for a point between two accepted ones that is not feasible."""
    if not is_convex(asked.constraint):
        return None
    accepted = np.concatenate([asked.inside, asked.project(asked.actions)])
    rng = np.random.default_rng(1)
    first, second = rng.permutation(accepted), rng.permutation(accepted)
    for share in (0.5, 0.1, 0.02):
        between = first + share * (second - first)
        violation = asked.violation(between)
        scale = 1e-9 * (1.0 + np.max(np.abs(violation)))
        wrong = np.flatnonzero(~(violation <= scale))
        if wrong.size:
            at = wrong[0]
            return (
                f"{numbers(first[at])} and {numbers(second[at])} are allowed, but {numbers(between[at])} between "
                f"them is not (violation {violation[at]:.3g}): join convex parts with | or use an Oracle"
            )
    return None


def _interior(asked: Questions) -> str | None:
    point = asked.interior_point()
    if bool(np.all(asked.contains(point))):
        return None
    return f"the interior point {numbers(point)} is not accepted"


def _distances(asked: Questions) -> str | None:
    if not is_convex(asked.constraint):
        return None
    point = asked.interior_point()
    directions = asked.actions - point
    length = np.asarray(asked.distance(np.broadcast_to(point, directions.shape), directions))
    length = np.minimum(length, 1e3)[:, None]
    inside = point + (1.0 - 1e-6) * length * directions
    violation = asked.violation(inside)
    wrong = np.flatnonzero(~(violation <= 0))
    if wrong.size:
        return f"distance {length[wrong[0], 0]:.6g} from the interior leads to a violation of {violation[wrong[0]]:.3g}"
    beyond = asked.contains(point + 1.3 * length * directions)
    early = np.flatnonzero(beyond & (length[:, 0] < 1e3))
    if early.size:
        return f"distance {length[early[0], 0]:.6g} along {numbers(directions[early[0]])} ends before the set does"
    return None


def _nonsense(asked: Questions) -> str | None:
    broken = asked.actions[0].copy()
    broken[0] = np.nan
    try:
        accepted = asked.contains(broken)
    except InboundsError:
        return None
    return (
        "NaN is accepted as an action"
        if bool(accepted)
        else "NaN is answered instead of refused with an error"
    )


CHECKS: tuple[tuple[str, Callable[[Questions], str | None]], ...] = (
    ("answers have the shape of the question", _shapes),
    ("a batch is answered like its actions one by one", _batches),
    ("what contains accepts has no violation, and almost only that", _acceptance),
    ("the interior point is accepted", _interior),
    ("projections are feasible without tolerance", _feasible_projections),
    ("projections stay where they are", _unchanged),
    ("no allowed point is nearer than the projection", _nearest),
    ("between allowed actions everything is allowed", _convex),
    ("distances end where the set does", _distances),
    ("NaN is refused", _nonsense),
)


def numbers(values: Any) -> str:
    """Write a vector shortly."""
    return np.array2string(np.asarray(values), precision=4, threshold=8, separator=", ")
