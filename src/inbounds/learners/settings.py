"""Settings of learners: which values can be trained, named presets, and what `help(ib.Sac)` shows of them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inbounds.errors import ConfigurationError, UnknownNameError
from inbounds.limits import is_number, is_whole

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
BACKBONES = ("plain", "scaled", "normalised")
SELF_LOOPS = ("followed", "discounted", "none")


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


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """Settings that actor-critic learners share; a learner restates a field to give it another default or meaning."""

    preset: str = "default"
    """`default`: the best settings measured. `paper`: those of the ARAM paper."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's learning rate for all networks, and for alpha where it is tuned."""
    gamma: float = 0.99
    """Discount factor."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained."""
        require_valid(self)


def usual_discount(horizon: int) -> float:
    """Return the discount factor that suits episodes of this length: 1 - 5 / horizon, between 0.9 and 0.99."""
    return min(max(1.0 - 5.0 / horizon, 0.9), 0.99)


def require_consistent(settings: Any) -> None:
    """Reject combinations of ARAM's settings that contradict each other."""
    preference, has_supremum = (
        settings.preference,
        settings.preference_samples > 1 or settings.q_snapshots > 0,
    )
    is_pair = isinstance(preference, tuple | list) and len(preference) == 2
    if preference is not None and not (
        is_pair and all(is_number(one) and one >= 0 for one in preference) and abs(sum(preference) - 1) < 1e-6
    ):
        raise ConfigurationError(f"preference={preference!r} must be two weights that sum to 1, or None.")
    if preference is not None and has_supremum:
        raise ConfigurationError(
            "a fixed preference leaves nothing to take a supremum over. Set preference_samples=1 and q_snapshots=0."
        )
    if settings.self_loops not in SELF_LOOPS:
        raise ConfigurationError(
            f"self_loops={settings.self_loops!r} must be 'followed', 'discounted' or 'none'."
        )
    has_own_buffer = settings.self_loops != "none" and settings.dual_replay
    if not has_own_buffer and (settings.eta, settings.eta_decay) != (type(settings).eta, 1.0):
        raise ConfigurationError(
            f"eta={settings.eta} and eta_decay={settings.eta_decay} set how many self-loops a batch has, but only "
            f"where self-loops have a buffer of their own. Pass eta={type(settings).eta} and eta_decay=1.0, or "
            f"dual_replay=True and self_loops='followed'."
        )
    if settings.target_entropy is not None and settings.alpha is not None:
        raise ConfigurationError(
            f"target_entropy is for a tuned alpha, but alpha={settings.alpha} is fixed. Drop target_entropy, or pass "
            f"alpha=None."
        )
    if settings.backbone not in BACKBONES:
        raise ConfigurationError(f"backbone={settings.backbone!r} must be 'plain', 'scaled' or 'normalised'.")
    if settings.backbone != "normalised":
        return
    if settings.self_loops == "discounted":
        raise ConfigurationError(
            "the normalised backbone has no discounted self-loops. Pass self_loops='followed' or 'none', or "
            "backbone='scaled'."
        )
    if has_supremum or settings.warm_start:
        raise ConfigurationError(
            "the normalised backbone has neither a supremum over critics nor a warm start. Pass "
            "preference_samples=1, q_snapshots=0 and warm_start=False, or backbone='scaled'."
        )
    if len(set(settings.hidden)) > 1:
        raise ConfigurationError(
            f"hidden={settings.hidden} must have one width for the residual blocks of the normalised backbone. Pass "
            f"(256, 256), say."
        )


LearnerClass = TypeVar("LearnerClass", bound=type)


def with_presets(presets: Mapping[str, Mapping[str, Any]]) -> Callable[[LearnerClass], LearnerClass]:
    """Give a learner's dataclass named sets of values: `Aram(preset="paper", penalty=0.1)`.

    Explicit arguments win over the preset, the preset over the defaults. The docstring lists all of them.
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
        with_documented_settings(learner, presets)
        return learner

    return decorate


# Documentation: Python drops the strings below the fields of a class; they are read from the source ------------------

WIDTH = 100


def with_documented_settings(kind: type, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the settings of a dataclass, and what its presets change, behind its docstring."""
    lines = ["Settings:"]
    documented = setting_docs(kind)
    for field in dataclasses.fields(kind):
        lines.append(f"  {field.name} = {default_of(field)}")
        lines += textwrap.wrap(
            documented.get(field.name, ""), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    changed = {name: values for name, values in presets.items() if values}
    if changed:
        lines += ["", "Presets (other values than these win over them):"]
    for name, values in changed.items():
        listed = ", ".join(f"{setting}={value!r}" for setting, value in values.items())
        lines += textwrap.wrap(f"{name}: {listed}", WIDTH, initial_indent="  ", subsequent_indent=" " * 6)
    described = inspect.cleandoc(kind.__doc__ or "")
    kind.__doc__ = "\n".join([described, "", *lines])


def default_of(field: dataclasses.Field[Any]) -> str:
    """Write the default of a field."""
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    return "required" if field.default_factory is dataclasses.MISSING else repr(field.default_factory())


def setting_docs(kind: type) -> dict[str, str]:
    """Return the sentences below the fields of a class and of those that it inherits from; the nearest win."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        for name, text in docs_of_module(base.__module__).get(base.__qualname__, {}).items():
            found.setdefault(name, text)
    return found


@functools.cache
def docs_of_module(module: str) -> dict[str, dict[str, str]]:
    """Return, by class and field, the strings below the fields of a module's classes; none where it has no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    return {node.name: docs_in_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def docs_in_class(node: ast.ClassDef) -> dict[str, str]:
    """Return the strings below the annotated fields of one class."""
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found
