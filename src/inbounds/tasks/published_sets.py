"""Sets that an environment publishes: as `action_constraint`, which stays, or as `info["constraint"]`, which moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint
from inbounds.errors import ConfigurationError, InboundsError, SimulationError
from inbounds.tasks.flattening import Flattening, flattening_of_value
from inbounds.tasks.named_parts import form_of, is_same_set, numbers_of, reading_its_numbers

PUBLISHED = "constraint"
"""The key of `info` under which an environment publishes numbers that its set depends on."""
OWN = "action_constraint"
"""The attribute under which an environment publishes a set that does not change but with the observation."""


@dataclasses.dataclass(frozen=True)
class PublishedNumbers:
    """What `info["constraint"]` held when the task was made, and must hold at every reset and step."""

    numbers: Flattening
    form: tuple[Any, ...] | None
    """What the set was apart from its numbers; None where plain numbers were published."""

    def read(self, info: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the published numbers; other ones than were announced would be limits that nobody keeps."""
        published = info.get(PUBLISHED)
        if published is None:
            raise SimulationError(
                f"the environment published info['{PUBLISHED}'] once and left it out now. Publish it at "
                f"every reset and step."
            )
        is_set = isinstance(published, Constraint)
        if is_set != (self.form is not None) or (is_set and form_of(published) != self.form):
            raise SimulationError(
                f"info['{PUBLISHED}'] is {described(published)} now, another kind than when the task was made: "
                f"{', '.join(part.name for part in self.numbers.parts)}. Publish the same kind of set, with the same "
                f"shapes, at every reset and step; a limit that does not hold now gets a bound that nothing reaches."
            )
        numbers = numbers_of(published) if is_set else published
        found = flattening_of_value(PUBLISHED, numbers)
        if found.named_shapes() != self.numbers.named_shapes():
            raise SimulationError(
                f"info['{PUBLISHED}'] holds {found.listed()} now, but held {self.numbers.listed()} when the task was "
                f"made. Publish the same numbers at every reset and step."
            )
        return self.numbers.flatten(numbers)


def announced(info: Mapping[str, Any]) -> PublishedNumbers | None:
    """Return what an environment publishes at its first reset, if anything."""
    published = info.get(PUBLISHED)
    if published is None:
        return None
    if isinstance(published, Constraint):
        return PublishedNumbers(flattening_of_value(PUBLISHED, numbers_of(published)), form_of(published))
    return PublishedNumbers(flattening_of_value(PUBLISHED, published), None)


def refuse_later_limit(info: Mapping[str, Any]) -> None:
    """Refuse a set that is published although none was when the task was made."""
    if info.get(PUBLISHED) is not None:
        raise SimulationError(
            f"the environment publishes info['{PUBLISHED}'] ({described(info[PUBLISHED])}) now, but did not at its "
            f"first reset, so that the task does not keep it. Publish it at every reset and step."
        )


def moving_set(info: Mapping[str, Any], task_name: str) -> Constraint | None:
    """Return a set that is published, with its numbers read from the observation, where they will stand."""
    moving = info.get(PUBLISHED)
    if not isinstance(moving, Constraint):
        return None
    try:
        return reading_its_numbers(moving, PUBLISHED)
    except InboundsError as error:
        raise ConfigurationError(
            f"{task_name}: the set published as info['{PUBLISHED}'] cannot be followed from step to step "
            f"({error}) Publish the numbers that it depends on, and let a constraint read them by "
            f"ib.obs['{PUBLISHED}']."
        ) from error


def own_set(environment: gymnasium.Env[Any, Any]) -> Any:
    """Return what an environment publishes as its `action_constraint`, or None."""
    return environment.get_wrapper_attr(OWN) if environment.has_wrapper_attr(OWN) else None


def require_same_set(declared: Constraint | None, now: Any, task_name: str) -> None:
    """Refuse an `action_constraint` that is another one than when the task was made."""
    if now is declared or (
        isinstance(now, Constraint) and declared is not None and is_same_set(now, declared)
    ):
        return
    raise SimulationError(
        f"{task_name}: env.{OWN} is {described(now)} now, but was {described(declared)} when the task was made, which "
        f"is the set that it keeps. Publish a set that changes as info['{PUBLISHED}'] at every reset and step."
    )


def described(published: Any) -> str:
    """Write what was published in a few words."""
    if isinstance(published, Constraint):
        return f"the set {published.formula()}"
    text = repr(published)
    return text if len(text) <= 80 else f"{text[:77]}..."
