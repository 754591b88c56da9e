"""Which settings of ARAM contradict each other, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbounds.errors import ConfigurationError

if TYPE_CHECKING:
    from inbounds.learners.aram import Aram


def is_width(value: object) -> bool:
    """Tell whether a layer can have so many units."""
    return type(value) is int and value >= 1


def refuse_contradictions(settings: Aram) -> None:
    """Refuse what cannot be learnt with, before anything is computed."""
    widths = settings.hidden
    if not isinstance(widths, tuple | list) or not widths or not all(map(is_width, widths)):
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
    moves_share = settings.acceptance_target is not None and settings.acceptance_lever == "share"
    if not settings.augmented and moves_share:
        raise ConfigurationError(
            "acceptance_target moves the augmented share, but augmented=False stores no self-loop. "
            "Drop acceptance_target or set augmented=True."
        )
    if not settings.dual_replay and moves_share:
        raise ConfigurationError(
            "acceptance_target moves the share of the augmented ring, but dual_replay=False has none. "
            "Drop acceptance_target or set dual_replay=True."
        )
    if settings.proposals < 1 or settings.policy_preferences < 1 or settings.snapshots < 0:
        raise ConfigurationError("proposals and policy_preferences must be at least 1, snapshots at least 0.")
    if settings.truncation_draws < 1:
        raise ConfigurationError(f"truncation_draws={settings.truncation_draws} must be at least 1.")
    if not 0 <= settings.augmented_share < 1:
        raise ConfigurationError(
            f"augmented_share={settings.augmented_share} leaves no real transition: use [0, 1)."
        )
    if not isinstance(settings.least_return_weight, int | float) or not 0 <= settings.least_return_weight < 1:
        raise ConfigurationError(f"least_return_weight={settings.least_return_weight} must lie in [0, 1).")
    if settings.preference is not None and (settings.policy_preferences > 1 or settings.snapshots > 0):
        raise ConfigurationError(
            "a fixed preference has nothing to take a supremum over. Set policy_preferences=1 and snapshots=0."
        )
    for name, known in (
        ("start", ("box", "task")),
        ("last_resort", ("projection", "ray", "uniform")),
        ("acceptance_lever", ("share", "entropy")),
    ):
        if getattr(settings, name) not in known:
            raise ConfigurationError(
                f"{name}='{getattr(settings, name)}' is unknown. Choose one of {', '.join(map(repr, known))}."
            )
    if settings.gamma is not None and not 0 <= settings.gamma < 1:
        raise ConfigurationError(f"gamma={settings.gamma} must lie in [0, 1), or be None for the task's.")
    if settings.critic_lead < 0 or settings.entropy_ramp < 0:
        raise ConfigurationError("critic_lead and entropy_ramp count updates: use 0 or more.")
    if settings.penalty <= 0 and settings.augmented:
        raise ConfigurationError(
            f"penalty={settings.penalty} would reward rejections. Use a positive number."
        )
