"""Settings of learners: named presets, and the rejection of values that cannot be trained."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.settings import is_number, is_whole


def require_numbers(
    settings: Any, least: Mapping[str, int], ranges: Mapping[str, tuple[str, Callable[[float], bool]]]
) -> None:
    """Reject settings that are not integers of at least so much, or not numbers within their range.

    None is accepted where the setting's type has it.
    """
    optional = {field.name for field in dataclasses.fields(settings) if "None" in str(field.type)}
    values = {
        name: value for name, value in vars(settings).items() if value is not None or name not in optional
    }
    for name in values.keys() & least.keys():
        if not is_whole(values[name], least[name]):
            raise ConfigurationError(f"{name}={values[name]!r} must be an integer, {least[name]} or more.")
    for name in values.keys() & ranges.keys():
        where, is_allowed = ranges[name]
        if not (is_number(values[name]) and is_allowed(values[name])):
            raise ConfigurationError(f"{name}={values[name]!r} must be a number {where}.")


def require_widths(hidden: Any) -> None:
    """Reject hidden layer sizes that are not a sequence of positive integers."""
    if not isinstance(hidden, tuple | list) or not hidden or not all(is_whole(width, 1) for width in hidden):
        raise ConfigurationError(f"hidden={hidden!r} must be sizes of layers, such as (256, 256).")


LearnerClass = TypeVar("LearnerClass", bound=type)


def with_presets(presets: Mapping[str, Mapping[str, Any]]) -> Callable[[LearnerClass], LearnerClass]:
    """Give a learner's dataclass named sets of values: `Aram(preset="paper", penalty=0.1)`.

    Explicit arguments win over the preset, the preset over the defaults.
    """

    def decorate(learner: LearnerClass) -> LearnerClass:
        plain = learner.__init__  # type: ignore[misc]  # the class is still being built, nothing subclasses it

        @functools.wraps(plain)
        def chosen(self: Any, preset: str = "default", **values: Any) -> None:
            if preset not in presets:
                raise UnknownNameError("preset", preset, presets, f"`{learner.__name__}` has these.")
            plain(self, preset=preset, **{**presets[preset], **values})

        learner.__init__ = chosen  # type: ignore[misc]
        setattr(learner, "presets", dict(presets))  # noqa: B010  # LearnerClass may be any class
        return learner

    return decorate
