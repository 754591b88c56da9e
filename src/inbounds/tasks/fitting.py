"""Does a constraint fit an environment: the number of its entries, what it reads, and the box of the actions?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box, Constraint
from inbounds.errors import ConfigurationError
from inbounds.limits import is_whole
from inbounds.tasks.environment import NamesParts
from inbounds.tasks.named_parts import PREVIOUS_ACTION, placed, places_of_parts, references_of

if TYPE_CHECKING:
    from inbounds.tasks.environment import CompiledEnvironment


def fitted(
    constraint: Any, box: gymnasium.spaces.Box, observations: gymnasium.Space[Any], task_name: str
) -> Constraint:
    """Return the set together with the box of the action space, its names replaced by places in the observation.

    A set that speaks of another number of entries, or reads what the observation does not have, is refused.
    """
    if not isinstance(constraint, Constraint):
        raise ConfigurationError(
            f"{task_name}: the constraint is {constraint!r}, not a constraint. Use ib.Box, ib.Ball, ib.Polytope, ... "
            f"or ib.Oracle for a function that tells whether an action is allowed."
        )
    size, entries = constraint.size(), box.shape[0]
    if size not in (None, entries):
        raise ConfigurationError(
            f"{task_name}: {constraint.formula()} speaks of {size} entries, but an action has {entries}. Give it one "
            f"entry for each."
        )
    return within_box(with_places(constraint, observations, entries, task_name), box)


def with_places(
    constraint: Constraint, observations: gymnasium.Space[Any], entries: int, task_name: str
) -> Constraint:
    """Return the set with parts of the observation read by their place, and every reading checked."""
    references = list(references_of(constraint))
    if not references:
        return constraint
    parts = list(sizes_of_parts(observations))
    available = sum(size for _, size in parts)
    found = placed(constraint, places_of_parts(parts))
    for kind, argument, reference in references_of(found):
        had = entries if reference.source == PREVIOUS_ACTION else available
        if reference.least_size > had:
            source = "action" if reference.source == PREVIOUS_ACTION else "observation"
            raise ConfigurationError(
                f"{task_name}: {argument} of {kind} reads {reference}, but an {source} has {had} entries. Correct the "
                f"indices."
            )
    return found


def sizes_of_parts(space: gymnasium.Space[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Yield names and sizes of the parts of an observation, in the order of `gymnasium.spaces.flatten`."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        for key, part in inner:
            yield from sizes_of_parts(part, (*path, str(key)))
    else:
        yield "/".join(path) or "observation", gymnasium.spaces.flatdim(space)


def within_box(constraint: Constraint, space: gymnasium.spaces.Box) -> Constraint:
    """Return the set together with the box of an action space: simulators clip, or fail, beyond it.

    A set that states a box which lies in that of the space stays as it is.
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    # A subclass may allow more than its bounds say.
    stated = [member for member in constraint.members() if type(member) is Box and member.is_constant()]
    if any(
        box.size() in (None, len(low)) and np.all(box.low >= low) and np.all(box.high <= high)
        for box in stated
    ):
        return constraint
    is_bounded = np.isfinite(low).any() or np.isfinite(high).any()
    return constraint & Box(low, high) if is_bounded else constraint


def named_sizes_of(environment: CompiledEnvironment, task_name: str) -> tuple[tuple[str, int], ...]:
    """Return names and sizes of the parts of an observation, if they are all of it.

    What has no name would shift the entries behind it, and constraints would read others than they name.
    """
    whole = environment.observation_size
    if not isinstance(environment, NamesParts):
        return (("observation", whole),)
    given, parts = environment.observation_parts, []
    for part in given if isinstance(given, Sequence) else (given,):
        if not (
            isinstance(part, Sequence)
            and len(part) == 2
            and isinstance(part[0], str)
            and is_whole(part[1], 1)
        ):
            raise ConfigurationError(
                f"{task_name}: observation_parts has {part!r}, which is not a name and a number of entries. Write "
                f"pairs: observation_parts = (('place', 2), ('speed', {whole}))."
            )
        parts.append((part[0], int(part[1])))
    names = [name for name, _ in parts]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"{task_name}: observation_parts has two parts '{name}'. Give each a name of its own."
            )
    if sum(size for _, size in parts) != whole:
        raise ConfigurationError(
            f"{task_name}: observation_parts names {sum(size for _, size in parts)} entries, but observation_size is "
            f"{whole}. Name all entries in their order, with a part ('rest', ...) for those that nobody reads."
        )
    return tuple(parts)


def bounds_of_entries(
    low: Any, high: Any, size: int, task_name: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the least and the largest value of every entry of an action."""
    sides = []
    for name, side in (("action_low", low), ("action_high", high)):
        try:
            with np.errstate(over="ignore"):
                values = np.broadcast_to(np.asarray(side, np.float32), (size,))
        except (TypeError, ValueError):
            values = np.full(size, np.nan, np.float32)
        if np.isnan(values).any():
            raise ConfigurationError(
                f"{task_name}: {name}={side!r} does not bound an action of {size} entries. Give one number, "
                f"or {size} of them."
            )
        sides.append(values)
    if (sides[0] > sides[1]).any():
        entry = int(np.argmax(sides[0] > sides[1]))
        raise ConfigurationError(
            f"{task_name}: action_low is above action_high at entry {entry} ({sides[0][entry]:g} and "
            f"{sides[1][entry]:g}). Exchange them."
        )
    return sides[0], sides[1]


def first_action(given: Any, low: Any, high: Any, task_name: str) -> NDArray[np.float64]:
    """Return the action that counts as executed before an episode begins: zero, moved into the box, unless given.

    One that is given and lies beyond the box is refused: limits on changes would hold from another action than stated.
    """
    try:
        start = np.broadcast_to(np.asarray(0.0 if given is None else given, np.float64), np.shape(low))
    except (TypeError, ValueError):
        start = np.array(np.nan)
    if not np.isfinite(start).all():
        raise ConfigurationError(
            f"{task_name}: first_previous_action={given!r} is not a vector of {len(low)} numbers. Pass the action "
            f"that counts as executed before an episode begins."
        )
    inside: NDArray[np.float64] = np.clip(start, low, high).astype(np.float64)
    # The box may have been rounded inward to float32.
    is_beyond = np.abs(start - inside) > 1e-6 * np.abs(start)
    if given is not None and is_beyond.any():
        entry = int(np.argmax(is_beyond))
        raise ConfigurationError(
            f"{task_name}: entry {entry} of first_previous_action is {start[entry]:g}, but actions lie in "
            f"[{low[entry]:g}, {high[entry]:g}] there. Pass an action that could have been executed, or leave it out."
        )
    return inside


class WithPreviousAction:
    """How an agent sees the action that was executed last, where the constraint depends on it.

    Without it the set of allowed actions would not be a function of what the agent observes. A vector of numbers gets
    the action behind its last entry, a dictionary gets the key `previous_action`.
    """

    def __init__(
        self, observations: gymnasium.Space[Any], actions: gymnasium.spaces.Box, task_name: str
    ) -> None:
        """Extend the observation space; one that cannot hold the action is refused."""
        if isinstance(observations, gymnasium.spaces.Dict) and PREVIOUS_ACTION not in observations.spaces:
            box = gymnasium.spaces.Box(actions.low, actions.high, dtype=actions.dtype.type)
            self.space: gymnasium.Space[Any] = gymnasium.spaces.Dict(
                {**observations.spaces, PREVIOUS_ACTION: box}
            )
        elif (
            isinstance(observations, gymnasium.spaces.Box)
            and len(observations.shape) == 1
            and observations.dtype.kind == "f"
        ):
            # The wider of both types, so that neither is rounded.
            kind = np.result_type(observations.dtype, actions.dtype)
            low, high = (
                np.concatenate([getattr(observations, side), getattr(actions, side)]).astype(kind)
                for side in ("low", "high")
            )
            self.space = gymnasium.spaces.Box(low, high, dtype=kind.type)
        else:
            raise ConfigurationError(
                f"{task_name}: the constraint depends on the previous action, which an agent must see, but "
                f"observations of {observations} cannot hold it. Wrap the environment in "
                f"gymnasium.wrappers.FlattenObservation, or let it observe the action itself and "
                f"write ib.RateLimit(delta, previous=ib.obs[...])."
            )

    def show(self, observation: Any, previous_action: NDArray[np.floating]) -> Any:
        """Return an observation with the previous action."""
        if isinstance(self.space, gymnasium.spaces.Dict):
            dtype = self.space[PREVIOUS_ACTION].dtype
            return {**observation, PREVIOUS_ACTION: previous_action.astype(dtype)}
        return np.concatenate([observation, previous_action]).astype(self.space.dtype)
