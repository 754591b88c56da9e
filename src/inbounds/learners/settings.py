"""Settings of learners: named presets, and the rejection of values that cannot be trained."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.settings import is_number, is_whole

INTEGERS = {
    **dict.fromkeys(("q_snapshots", "entropy_ramp", "critic_warmup"), 0),
    **dict.fromkeys(("batch_size", "proposals", "preference_samples", "policy_delay", "critics"), 1),
    **dict.fromkeys(("rollout", "epochs", "density_draws", "correction_draws", "layers"), 1),
    **dict.fromkeys(("flow_layers", "flow_steps", "flow_samples", "flow_batch_size"), 1),
    "policy_draws": 2,
}
"""Settings that are integers, and the smallest value of each."""
NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys(
        ("learning_rate", "init_alpha", "flow_learning_rate"), ("above 0", lambda value: value > 0)
    ),
    **dict.fromkeys(("alpha", "student_df"), ("above 0, or None", lambda value: value > 0)),
    **dict.fromkeys(("eta_decay", "tau", "rate"), ("in (0, 1]", lambda value: 0 < value <= 1)),
    **dict.fromkeys(
        ("penalty", "exploration", "smoothing", "smoothing_limit"),
        ("of at least 0", lambda value: value >= 0),
    ),
    "eta": ("in [0, 1), or no real transition is left", lambda value: 0 <= value < 1),
    "gamma": ("in [0, 1]", lambda value: 0 <= value <= 1),
    "min_return_weight": ("in [0, 1)", lambda value: 0 <= value < 1),
    "target_acceptance": ("in (0, 1], or None", lambda value: 0 < value <= 1),
    "target_entropy": (
        "of at most ln 2, a uniform distribution's, or None",
        lambda value: value <= math.log(2),
    ),
}
"""Settings that are real numbers, and where they may lie: in words and as a test."""
LAYERS = ("hidden", "flow_hidden")
"""Settings that are sizes of hidden layers."""


def require_valid(settings: Any, excluded: Mapping[str, Any] | None = None) -> None:
    """Reject settings of a learner that cannot be trained, by the tables above; others are left to the learner.

    None is accepted where the setting's type has it. `excluded` has values that this learner cannot use.
    """
    optional = {field.name for field in dataclasses.fields(settings) if "None" in str(field.type)}
    for name, value in vars(settings).items():
        if value is None and name in optional:
            continue
        if name in INTEGERS and not is_whole(value, INTEGERS[name]):
            raise ConfigurationError(f"{name}={value!r} must be an integer, {INTEGERS[name]} or more.")
        if name in NUMBERS and not (is_number(value) and NUMBERS[name][1](value)):
            raise ConfigurationError(f"{name}={value!r} must be a number {NUMBERS[name][0]}.")
        if excluded and value == excluded.get(name):
            raise ConfigurationError(
                f"{name}={value!r} is excluded for {type(settings).__name__}. Pass another value."
            )
        is_list = isinstance(value, tuple | list)
        if name in LAYERS and not (is_list and all(is_whole(width, 1) for width in value)):
            raise ConfigurationError(f"{name}={value!r} must be sizes of layers, such as (256, 256).")


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
