"""From any Gymnasium environment with continuous actions, and a constraint, to the parts of a task."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Constraint
from inbounds.constraints.references import Reference
from inbounds.errors import ConfigurationError
from inbounds.tasks.fitting import first_action
from inbounds.tasks.guard import require_known_past, require_one_length
from inbounds.tasks.gymnasium_batch import GymnasiumBatch, SingleEnvironment
from inbounds.tasks.gymnasium_group import (
    PUBLISHED,
    Group,
    GroupPlan,
    Interface,
    announced,
    begun,
    made_by_name,
    maker_of,
    moving_set,
    own_set,
)
from inbounds.tasks.named_parts import (
    Flattening,
    flattening_of_space,
    places_of_parts,
    reads_previous_action,
    references_of,
    resolved,
    resolved_reference,
)
from inbounds.tasks.task import require_task_name

if TYPE_CHECKING:
    from inbounds.tasks.action_guard import OnViolation

FLATTEN_OBSERVATION = (
    "Wrap it in gymnasium.wrappers.FlattenObservation, which turns counts and flags into numbers."
)
CONTINUOUS_ONLY = (
    "Only continuous actions can be trained here: a Box, or a Dict or Tuple of Boxes of real numbers."
)


class Bounds(NamedTuple):
    """The box of an action, rounded inward to float32."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]


def parts_from_gymnasium(
    environment: str | Callable[..., gymnasium.Env[Any, Any]],
    constraint: Constraint | None,
    *,
    name: str | None,
    horizon: int | None,
    first_previous_action: Any,
    reference_action: Any = None,
) -> dict[str, Any]:
    """Look at one environment and return the fields of its task, less the reward's scale."""
    make, own_name = maker_of(environment)
    task_name = require_task_name(own_name if name is None else name)
    sample = make(None)
    try:
        for space in ("observation_space", "action_space"):
            if getattr(sample, space, None) is None:
                raise ConfigurationError(
                    f"{task_name}: the environment has no {space}. Set it, in the class or in __init__: "
                    f"gymnasium.spaces.Box(low, high, shape)."
                )
        observations = flattening_of_space("observation", sample.observation_space, FLATTEN_OBSERVATION)
        actions = flattening_of_space("action", sample.action_space, CONTINUOUS_ONLY)
        if any(part.dtype.kind != "f" for part in actions.parts):
            raise ConfigurationError(
                f"the action space {sample.action_space} holds integers. {CONTINUOUS_ONLY}"
            )
        if any(part.dtype.itemsize < 4 for part in actions.parts):
            raise ConfigurationError(
                f"the action space {sample.action_space} holds numbers of half precision, and rounding to them would "
                f"carry actions out of their set. Declare it with dtype=np.float32 or np.float64."
            )
        info = begun(sample, 0, task_name).info
        own_limit = own_set(sample)
        limits = declared_limits(constraint, own_limit, info, task_name)
        require_known_past(sample, limits, task_name)
        for found in (own_limit, info.get(PUBLISHED)):
            require_one_length(sample, found, task_name)
        published = announced(info)
        bounds = action_bounds(limits, sample.action_space, actions, task_name)
        steps = chosen_horizon(horizon, sample, task_name)
        frames_per_second = int(sample.metadata.get("render_fps") or 30)
        if isinstance(environment, str):
            # An id that the user's script registered is unknown in other processes.
            known = gymnasium.registry.get(getattr(sample.unwrapped.spec, "id", environment))
            make = functools.partial(made_by_name, environment, registered=known)
    finally:
        sample.close()
    box = Box(bounds.low.astype(np.float64), bounds.high.astype(np.float64))
    first = None
    if limits is not None and reads_previous_action(limits):
        first = first_action(first_previous_action, bounds.low, bounds.high, task_name)
    interface = Interface(observations, actions, published, first)
    parts = () if limits is None else limits.members()
    others = [with_places(part, interface) for part in parts if not is_plain_box(part)]
    joint = functools.reduce(operator.and_, [*others, box])
    refuse_misfit(joint, interface, task_name)

    def plan(count: int, render_mode: str | None = None) -> GroupPlan:
        return GroupPlan(make, interface, steps, count, task_name, own_limit, render_mode)

    def host(count: int, threads: int = 1, on_violation: OnViolation = "refuse") -> GymnasiumBatch:
        # Python steps one environment at a time in a process, so that what others use as threads are processes here.
        return GymnasiumBatch(plan(count), joint, processes=threads, on_violation=on_violation)

    def make_environment(
        render_mode: str | None = None, on_violation: OnViolation = "refuse"
    ) -> gymnasium.Env[Any, Any]:
        batch = GymnasiumBatch(plan(1, render_mode), joint, on_violation=on_violation)
        group = batch.group
        assert isinstance(group, Group)  # one environment stays in this process
        return SingleEnvironment(
            batch,
            batch.guard,
            observation_size=sum(size for _, size in interface.observation_parts),
            action_low=bounds.low,
            action_high=bounds.high,
            frames_per_second=frames_per_second,
            render_mode=render_mode,
            picture=(lambda is_first: group.render() if is_first else group.frame) if render_mode else None,
        )

    return {
        "name": task_name,
        "constraint": joint,
        "observation_size": sum(size for _, size in interface.observation_parts),
        "action_low": bounds.low,
        "action_high": bounds.high,
        "horizon": steps,
        "source": "a Gymnasium environment of the user",
        "environment_id": environment if isinstance(environment, str) else "",
        "host": host,
        "compiled": None,
        "make_environment": make_environment,
        "observation_names": entry_names(interface.observation_parts),
        "action_names": entry_names(actions.named_sizes()),
        "observation_parts": interface.observation_parts,
        "reference_action": sensible_start(reference_action, interface, bounds, task_name),
    }


def sensible_start(
    start: Any, interface: Interface, bounds: Bounds, task_name: str
) -> Reference | NDArray[np.float32] | None:
    """Return where policies begin: a reading of the observation as long as an action, or finite numbers."""
    size, parts = interface.actions.size, interface.observation_parts
    if start is None:
        return None
    if isinstance(start, Reference):
        places = places_of_parts(interface.observation_parts)
        reader = f"{task_name}: reference_action"
        found = resolved_reference(start, places, reader, own_size(interface))
        available = sum(length for _, length in parts)
        if found.least_size <= available and found.read(np.zeros(available)).shape == (size,):
            return found
    else:
        try:
            values = np.asarray(start)
        except ValueError:  # rows of different lengths
            values = np.empty(0)
        if values.shape == (size,) and values.dtype.kind in "fiu" and np.isfinite(values).all():
            return start_in_box(values.astype(np.float64), bounds, task_name)
    raise ConfigurationError(
        f"{task_name}: reference_action={start} is not an action of {size} entries. Give {size} finite numbers, or "
        f"ib.obs[...] that reads {size} entries of the observation: {describe_parts(parts)}."
    )


def start_in_box(start: NDArray[np.float64], bounds: Bounds, task_name: str) -> NDArray[np.float32]:
    """Return a start of numbers; one beyond the box, which no policy could propose, is refused."""
    inside = np.clip(start, bounds.low, bounds.high)
    # The box was rounded inward to float32, and the start may have been computed.
    is_beyond = np.abs(start - inside) > 1e-6 * np.maximum(np.abs(inside), bounds.high - bounds.low)
    if is_beyond.any():
        entry = int(np.argmax(is_beyond))
        raise ConfigurationError(
            f"{task_name}: entry {entry} of reference_action is {start[entry]:g}, but actions lie in "
            f"[{bounds.low[entry]:g}, {bounds.high[entry]:g}] there. Give it in the units that env.step receives."
        )
    return inside.astype(np.float32)


def declared_limits(
    constraint: Any, own_limit: Any, info: Mapping[str, Any], task_name: str
) -> Constraint | None:
    """Return the constraint that was given and those that the environment publishes, all together."""
    limits: list[Constraint] = []
    for origin, limit in (("constraint", constraint), ("env.action_constraint", own_limit)):
        if isinstance(limit, Constraint):
            limits.append(limit)
        elif limit is not None:
            raise ConfigurationError(
                f"{task_name}: {origin} is {limit!r}, not a constraint. Use ib.Box, ib.Ball, ib.Polytope, ... or "
                f"ib.Oracle for a function that tells whether an action is allowed."
            )
    moving = moving_set(info, task_name)
    if moving is not None:
        limits.append(moving)
    return functools.reduce(operator.and_, limits) if limits else None


def action_bounds(limits: Constraint | None, space: Any, actions: Flattening, task_name: str) -> Bounds:
    """Return the box of the action space, narrowed by the boxes that the constraint itself states."""
    low, high = (
        np.concatenate([np.ravel(_bound(space, part.path, side)) for part in actions.parts]).astype(
            np.float64
        )
        for side in ("low", "high")
    )
    outer_low, outer_high = low, high
    for box in filter(is_plain_box, () if limits is None else limits.members()):
        assert isinstance(box, Box)
        if box.size() not in (None, actions.size):
            raise ConfigurationError(
                f"{task_name}: {box.formula()} speaks of {box.size()} entries, but an action has {actions.size}. "
                f"Give the box one entry for each."
            )
        low, high = np.maximum(low, box.low), np.minimum(high, box.high)
    if np.any(outer_low == outer_high):
        entry = int(np.argmax(outer_low == outer_high))
        raise ConfigurationError(
            f"{task_name}: entry {entry} of an action can only be {outer_low[entry]:g}, so that there is nothing to "
            f"choose. Leave it out of the action space, and let the environment fill it in."
        )
    if np.any(low == high):
        entry = int(np.argmax(low == high))
        raise ConfigurationError(
            f"{task_name}: the constraint's box leaves entry {entry} of an action nothing but {low[entry]:g}. Leave "
            f"that entry out of the action space and let the environment fill it in, or widen the box."
        )
    if np.any(low >= high):
        entry = int(np.argmax(low >= high))
        raise ConfigurationError(
            f"{task_name}: entry {entry} of an action is left the range [{low[entry]:g}, {high[entry]:g}]: the "
            f"environment allows [{outer_low[entry]:g}, {outer_high[entry]:g}] and the constraint's box does not "
            f"meet it. Write the constraint in the units that env.step receives."
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ConfigurationError(
            f"{task_name}: the action box [{low}, {high}] has no end, so no policy can fill it. Add the range that "
            f"matters to the constraint: constraint & ib.Box(low, high)."
        )
    return Bounds(_inward(low, np.inf), _inward(high, -np.inf))


def is_plain_box(limit: Constraint) -> bool:
    """Tell whether a set is a box of numbers, which the box of the actions can take in."""
    return type(limit) is Box and limit.is_constant()  # a subclass may limit more than its bounds say


def chosen_horizon(horizon: int | None, sample: Any, task_name: str) -> int:
    """Return after how many steps an episode is cut: the shorter of what was asked for and registered."""
    # The wrappers' own `spec` would copy all arguments of the environment, which not every one survives.
    limits = [horizon, getattr(sample.unwrapped.spec, "max_episode_steps", None)]
    while isinstance(sample, gymnasium.Wrapper):
        if isinstance(sample, gymnasium.wrappers.TimeLimit):
            limits.append(sample._max_episode_steps)
        sample = sample.env
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, int | np.integer)):
        raise ConfigurationError(
            f"{task_name}: horizon={horizon!r} is not an integer. Pass the number of steps, such as horizon=200."
        )
    known = [int(limit) for limit in limits if limit is not None]
    if not known:
        raise ConfigurationError(
            f"{task_name}: the environment does not say after how many steps an episode is cut. Pass horizon=..."
        )
    if min(known) < 1:
        raise ConfigurationError(f"{task_name}: horizon={min(known)} leaves no step. Pass 1 or more.")
    return min(known)


def with_places(limits: Constraint, interface: Interface) -> Constraint:
    """Return the constraint with names replaced by where the parts lie in the observation."""
    return resolved(limits, places_of_parts(interface.observation_parts), own_size(interface))


def own_size(interface: Interface) -> int | None:
    """Return the number of the environment's own entries if others are appended to them, else None."""
    own = interface.observations.size if interface.own_entries is None else interface.own_entries
    return own if own < sum(size for _, size in interface.observation_parts) else None


def refuse_misfit(constraint: Constraint, interface: Interface, task_name: str) -> None:
    """Refuse a constraint that speaks of another number of entries than actions or observations have."""
    size = constraint.size()
    if size not in (None, interface.actions.size):
        raise ConfigurationError(
            f"{task_name}: the constraint speaks of {size} entries, but an action has {interface.actions.size}: "
            f"{entry_names(interface.actions.named_sizes())}. Give it one entry for each."
        )
    available = sum(size for _, size in interface.observation_parts)
    for kind, argument, reference in references_of(constraint):
        if reference.least_size > available:
            raise ConfigurationError(
                f"{task_name}: {argument} of {kind} reads {reference}, but an observation has {available} entries: "
                f"{describe_parts(interface.observation_parts)}. Correct the indices."
            )


def describe_parts(parts: tuple[tuple[str, int], ...]) -> str:
    """Write where the parts of an observation lie."""
    lines, start = [], 0
    for name, size in parts:
        lines.append(f"{name} [{start}:{start + size}]")
        start += size
    return ", ".join(lines)


def entry_names(parts: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Name every entry after its part."""
    return tuple(name if size == 1 else f"{name}[{index}]" for name, size in parts for index in range(size))


def _bound(space: Any, path: tuple[Any, ...], side: str) -> Any:
    for step in path:
        space = space[step]
    return getattr(space, side)


def _inward(bound: NDArray[np.float64], towards: float) -> NDArray[np.float32]:
    """Round to float32 without leaving the box."""
    rounded = bound.astype(np.float32)
    is_outside = rounded < bound if towards > 0 else rounded > bound
    return np.where(is_outside, np.nextafter(rounded, np.float32(towards)), rounded)
