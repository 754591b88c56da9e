"""Which settings of ARAM contradict each other, and what those that are left open mean for a task."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING

from inbounds.errors import ConfigurationError
from inbounds.settings import is_number, is_whole

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram
    from inbounds.learners.learner import Spec

ACCEPTANCE = 0.99
"""The acceptance rate that eta is lowered for, unless `acceptance_target` says otherwise."""
ENTROPY_ANYWHERE, ENTROPY_AT_START = -0.5, -1.0
"""Entropy per dimension that a tuned temperature aims at, unless `entropy_target` says otherwise: what was measured to
be best for policies that begin anywhere in the box and for those that begin at their task's start."""

COUNTS = {
    **dict.fromkeys(("proposals", "policy_preferences", "truncation_draws", "batch_size"), 1),
    **dict.fromkeys(("snapshot_interval", "share_interval", "return_steps"), 1),
    **dict.fromkeys(
        ("snapshots", "snapshot_start", "critic_lead", "entropy_ramp", "averaging", "value_bins"), 0
    ),
}
"""Settings that count something, and the least that makes sense."""
NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "penalty": ("above 0, or rejections would be rewarded", lambda value: value > 0),
    "augmented_share": ("in [0, 1), or no real transition is left", lambda value: 0 <= value < 1),
    "share_decay": ("in (0, 1]", lambda value: 0 < value <= 1),
    "acceptance_target": ("in (0, 1], or None", lambda value: 0 < value <= 1),
    "least_return_weight": ("in [0, 1)", lambda value: 0 <= value < 1),
    "temperature": ("above 0, or None", lambda value: value > 0),
    "initial_temperature": ("above 0", lambda value: value > 0),
    **dict.fromkeys(
        ("entropy_target", "entropy_at_first"),
        ("of at most ln 2, a uniform law's, or None", lambda value: value <= math.log(2)),
    ),
    "degrees": ("above 0", lambda value: value > 0),
    "learning_rate": ("above 0", lambda value: value > 0),
    "gamma": ("in [0, 1), or None for the task's", lambda value: 0 <= value < 1),
    "tau": ("in (0, 1]", lambda value: 0 < value <= 1),
}
"""Settings that are numbers: where they may lie, in words and as a test."""


def refuse_values(settings: Aram) -> None:
    """Refuse a word that means nothing and a number that lies where no number may."""
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        known = typing.get_args(hints.get(name))
        if known and all(isinstance(word, str) for word in known) and value not in known:
            raise ConfigurationError(
                f"{name}={value!r} is unknown. Choose one of {', '.join(map(repr, known))}."
            )
        if value is None and field.default is None:
            continue
        if name in COUNTS and not is_whole(value, COUNTS[name]):
            raise ConfigurationError(f"{name}={value!r} must be a whole number, {COUNTS[name]} or more.")
        if name in NUMBERS:
            where, is_allowed = NUMBERS[name]
            if not (is_number(value) and is_allowed(value)):
                raise ConfigurationError(f"{name}={value!r} must be a number {where}.")


def refuse_contradictions(settings: Aram) -> None:
    """Refuse what cannot be learnt with, before anything is computed."""
    refuse_values(settings)
    widths = settings.hidden
    if not isinstance(widths, tuple | list) or not widths or not all(is_whole(width, 1) for width in widths):
        raise ConfigurationError(f"hidden={widths!r} must be widths of layers, such as (256, 256).")
    if settings.preference is not None and not (
        isinstance(settings.preference, tuple | list)
        and len(settings.preference) == 2
        and all(isinstance(weight, int | float) and weight >= 0 for weight in settings.preference)
        and abs(sum(settings.preference) - 1) < 1e-6
    ):
        raise ConfigurationError(
            f"preference={settings.preference!r} must be two weights that sum to 1, or None."
        )
    if not settings.augmented and settings.share_decay != 1.0:
        raise ConfigurationError(
            "share_decay changes the augmented share, but augmented=False stores no self-loop. "
            "Drop share_decay or set augmented=True."
        )
    refuse_idle_controller(settings)
    if settings.preference is not None and (settings.policy_preferences > 1 or settings.snapshots > 0):
        raise ConfigurationError(
            "a fixed preference has nothing to take a supremum over. Set policy_preferences=1 and snapshots=0."
        )
    if settings.acceptance_lever == "entropy" and settings.temperature is not None:
        raise ConfigurationError(
            f"acceptance_lever='entropy' moves what a tuned temperature aims at, but temperature="
            f"{settings.temperature} is fixed. Pass temperature=None, or use acceptance_lever='share'."
        )
    if settings.entropy_at_first is not None and not settings.entropy_ramp:
        raise ConfigurationError(
            f"entropy_at_first={settings.entropy_at_first} is where a ramp begins, and entropy_ramp=0 has none. "
            f"Pass the updates that it takes, such as entropy_ramp=100_000."
        )
    last = ENTROPY_ANYWHERE if settings.entropy_target is None else settings.entropy_target
    if settings.entropy_at_first is not None and settings.entropy_at_first < last:
        raise ConfigurationError(
            f"entropy_at_first={settings.entropy_at_first} is where the target begins to fall to entropy_target="
            f"{last}, both per dimension. Begin above it, or lower entropy_target."
        )
    for name in ("entropy_target", "entropy_at_first"):
        if getattr(settings, name) is not None and settings.temperature is not None:
            raise ConfigurationError(
                f"{name} is for a tuned temperature, but temperature={settings.temperature} is fixed. Drop {name}, or "
                f"pass temperature=None."
            )
    if settings.entropy_at_first is not None and settings.acceptance_lever == "entropy":
        raise ConfigurationError(
            "entropy_at_first begins a schedule, but acceptance_lever='entropy' follows none. Drop one of them."
        )
    if settings.value_bins and (settings.value_bins < 3 or settings.value_bins % 2 == 0):
        raise ConfigurationError(
            f"value_bins={settings.value_bins} must be odd and at least 3, with one bin at 0. Pass 101, or 0 to learn "
            f"the value itself."
        )
    if settings.value_bins and settings.normalise_values:
        raise ConfigurationError(
            "normalise_values rescales a critic's last layer, which value_bins makes probabilities. Drop one of them."
        )
    if settings.value_bins and settings.critic_loss != "componentwise":
        raise ConfigurationError(
            "value_bins learns each objective's probabilities by itself. Use critic_loss='componentwise'."
        )
    if settings.batch_normalised and (settings.policy_preferences > 1 or settings.snapshots > 0):
        raise ConfigurationError(
            "batch_normalised critics say something only beside their batch, not at other preferences or as snapshots. "
            "Set policy_preferences=1 and snapshots=0."
        )
    if settings.batch_normalised and settings.batch_size < 2:
        raise ConfigurationError("batch_normalised critics compare the rows of a batch. Raise batch_size.")
    if settings.batch_normalised and settings.preference is None and not settings.preference_per_sample:
        raise ConfigurationError(
            "batch_normalised critics see only what differs within a batch, and one preference for all its rows does "
            "not. Set preference_per_sample=True, or fix a preference."
        )
    if settings.return_steps > 1 and settings.augmented and not settings.dual_replay:
        raise ConfigurationError(
            f"return_steps={settings.return_steps} follows episodes through the ring of real transitions, which "
            f"dual_replay=False mixes with self-loops. Set dual_replay=True or return_steps=1."
        )


def refuse_idle_controller(settings: Aram) -> None:
    """Refuse a controller of the acceptance rate without a lever, and a range of eta that is none or leaves it out."""
    lever, is_asked = settings.acceptance_lever, settings.acceptance_target is not None
    if lever == "none" and is_asked:
        raise ConfigurationError(
            f"acceptance_target={settings.acceptance_target} is held by a controller, and acceptance_lever='none' "
            f"leaves it nothing to move. Use acceptance_lever='share' (and share_decay=1.0), or drop acceptance_target."
        )
    if settings.acceptance_lever == "entropy" and settings.acceptance_target is None:
        raise ConfigurationError(
            "acceptance_lever='entropy' holds nothing without an acceptance rate. Pass acceptance_target, such as 0.99."
        )
    if lever == "share" and is_asked and not eta_is_free(settings):
        raise ConfigurationError(
            "acceptance_target moves eta, the share of the augmented ring: augmented=True, dual_replay=True and no "
            "schedule, share_decay=1.0. Pass these, or drop acceptance_target."
        )
    limits = settings.share_range
    if limits is None:
        return
    is_pair = isinstance(limits, tuple | list) and len(limits) == 2 and all(map(is_number, limits))
    if not is_pair or not 0 <= limits[0] <= limits[1] < 1:
        raise ConfigurationError(
            f"share_range={limits!r} must be two numbers in [0, 1), the least first, such as (0.02, 0.5), or None."
        )
    if lever != "share" or not eta_is_free(settings):
        raise ConfigurationError(
            f"share_range={limits!r} limits a controller of eta, which needs acceptance_lever='share', augmented=True, "
            f"dual_replay=True and no schedule, share_decay=1.0. Pass these, or drop share_range."
        )
    if not limits[0] <= settings.augmented_share <= limits[1]:
        raise ConfigurationError(
            f"share_range={limits!r} leaves out augmented_share={settings.augmented_share}, where the controller "
            f"begins. Widen it or move augmented_share."
        )


# What is left open ---------------------------------------------------------------------------------------------------


def begins_at_start(settings: Aram, spec: Spec) -> bool:
    """Return whether the first policy lies narrowly around the task's own start."""
    return settings.start == "task" and spec.start is not None


def eta_is_free(settings: Aram) -> bool:
    """Return whether there is a ring of self-loops whose share no schedule changes."""
    return settings.augmented and settings.dual_replay and settings.share_decay == 1.0


def held_acceptance(settings: Aram, spec: Spec) -> float | None:
    """Return the acceptance rate that a controller holds, or None where there is no controller."""
    if settings.acceptance_lever == "none":
        return None
    if settings.acceptance_target is not None:
        return settings.acceptance_target
    is_asked = settings.share_range is not None
    begins_anywhere = eta_is_free(settings) and not begins_at_start(settings, spec)
    return ACCEPTANCE if is_asked or begins_anywhere else None


def moves_share(settings: Aram, spec: Spec) -> bool:
    """Return whether the controller, where there is one, moves eta."""
    return settings.acceptance_lever == "share" and held_acceptance(settings, spec) is not None


def range_of_share(settings: Aram) -> tuple[float, float]:
    """Return the least and the largest eta of a controller: by default it only lowers eta, to a tenth at most."""
    return settings.share_range or (settings.augmented_share / 10, settings.augmented_share)


def wanted_entropy(settings: Aram, spec: Spec) -> float:
    """Return the entropy per dimension that a tuned temperature aims at in the end."""
    if settings.entropy_target is not None:
        return settings.entropy_target
    return ENTROPY_AT_START if begins_at_start(settings, spec) else ENTROPY_ANYWHERE
