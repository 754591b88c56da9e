"""Policy heads: how a network's output becomes actions, and how files hold heads and networks.

A learner declares its head as data. Evaluation, the NumPy policy and the ONNX graph run the lines below; training runs
the functions that they call.
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints.arrays import clip, convert, namespace_of
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.references import Reference, reference_from_json
from inbounds.errors import CheckpointError, ConfigurationError
from inbounds.limits import MOST_LAYERS, MOST_PROPOSALS, is_number, is_whole, misfit
from inbounds.policies.box import ActionBox, FloatArray
from inbounds.policies.gaussian import Gaussian, around_reference, gaussian_of, sample, squashed_actions
from inbounds.policies.layers import (
    Coupling,
    Flow,
    allocate,
    alpha_projection,
    condition_of,
    radial_squash,
    ray,
    to_action,
)
from inbounds.policies.networks import Layer, apply_network, with_preference

Arrays = Mapping[str, NDArray[Any]]
Layers = tuple[Layer, ...]


def read_network(arrays: Arrays, name: str) -> Layers:
    """Return the layers called `name/0/weight`, `name/0/bias`, ... after checking that they fit together."""
    layers: list[Layer] = []
    for index in range(_count(arrays, name, "weight")):
        weight, bias = (array_of(arrays, f"{name}/{index}/{part}") for part in ("weight", "bias"))
        inputs = layers[-1].weight.shape[1] if layers else None
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or inputs not in (None, weight.shape[0]):
            raise CheckpointError(
                f"layer {index} of '{name}' is {weight.shape} with a bias of {bias.shape}, which does not fit "
                f"the layer before it. The file is damaged; export or train again."
            )
        layers.append(Layer(weight, bias))
    if not layers:
        raise CheckpointError(
            f"the file holds no network called '{name}'. It is damaged, or the learner's `export` has another name "
            f"for it; export or train again."
        )
    return _with_inputs_folded(arrays, name, tuple(layers))


def read_flow(arrays: Arrays, name: str) -> Flow:
    """Return the couplings called `name/0/scale`, `name/0/shift`, ..."""
    count = _count(arrays, name, "scale/0/weight")
    if not 1 <= count <= MOST_LAYERS:
        raise CheckpointError(
            f"the file holds {count} couplings called '{name}', but 1 to {MOST_LAYERS} are possible. Train again."
        )
    return tuple(
        Coupling(read_network(arrays, f"{name}/{index}/scale"), read_network(arrays, f"{name}/{index}/shift"))
        for index in range(count)
    )


def array_of(arrays: Arrays, name: str, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return one array of finite float32 numbers, of this shape where one is given, or refuse the file."""
    array = arrays.get(name)
    if array is None:
        raise CheckpointError(f"the file lacks '{name}'. It is damaged or of another version; train again.")
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise CheckpointError(
            f"'{name}' holds {array.dtype} values that are not all finite float32 numbers. Train again."
        )
    if shape not in (None, array.shape):
        raise CheckpointError(f"'{name}' has shape {array.shape}, but {shape} is expected. Train again.")
    return array


def named_arrays(tree: Any, name: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of nested mappings and tuples under the names that are read above."""
    if isinstance(tree, Mapping):
        parts: Any = tree.items()
    elif isinstance(tree, tuple):
        parts = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        return {name: np.ascontiguousarray(tree)}
    named: dict[str, NDArray[Any]] = {}
    for key, part in parts:
        named |= named_arrays(part, f"{name}/{key}" if name else str(key))
    return named


def _count(arrays: Arrays, name: str, part: str) -> int:
    """Return how many of `name/0/part`, `name/1/part`, ... there are."""
    pattern = re.compile(rf"{re.escape(name)}/\d+/{part}")
    return sum(1 for key in arrays if pattern.fullmatch(key))


def _with_inputs_folded(arrays: Arrays, name: str, layers: Layers) -> Layers:
    """Put (inputs - shift) / scale into the first layer: (x - m)/s W + b = x (W/s) + (b - (m/s) W)."""
    names = [f"{name}/0/input_{part}" for part in ("shift", "scale")]
    if not any(one in arrays for one in names):
        return layers
    shift, scale = (array_of(arrays, one) for one in names)
    weight, bias = layers[0]
    if shift.shape != weight.shape[:1] or scale.shape != shift.shape or not (scale > 0).all():
        raise CheckpointError(
            f"the inputs of '{name}' are scaled by {scale.shape} numbers, but its first layer has "
            f"{weight.shape[0]} inputs, or a scale is not positive. The file is damaged; train again."
        )
    scaled = weight.astype(np.float64) / scale[:, None]
    moved = bias - shift.astype(np.float64) @ scaled
    return (Layer(scaled.astype(np.float32), moved.astype(np.float32)), *layers[1:])


Parameters = Mapping[str, Any]
"""What a learner exports: the network `actor`, and further arrays that a kind of head names."""


class PolicySpec(Protocol):
    """The parts of a task that a head reads."""

    @property
    def box(self) -> ActionBox:
        """Return the box of actions."""

    @property
    def constraint(self) -> Constraint:
        """Return the set C(s)."""


class Query(NamedTuple):
    """States to act in: arrays of one library, whose leading axes broadcast against one another."""

    observation: Any
    """(..., observation size), as the environment returned it."""
    output: Any = None
    """(..., outputs), the network's output in float32."""
    noise: Any = None
    """(..., action size), standard normal or Student's t; zeros for the mode. Heads without noise ignore it."""
    previous_action: Any = None


def query_of(observation: Any, previous_action: Any, output: Any, noise: Any) -> Query:
    """Return one state as a batch of one, against which rows of noise broadcast; `output` is (1, outputs)."""
    before = None if previous_action is None else previous_action[None, :]
    return Query(observation[None, :], output, noise, before)


@dataclasses.dataclass(frozen=True)
class Head(abc.ABC):
    """Describes a policy in numbers; its arrays are the parameters that it is called with."""

    kind: ClassVar[str]
    """The name of this class in files."""
    outputs_per_entry: ClassVar[int] = 1
    """How many numbers the network returns for every entry of an action."""
    asks_constraint: ClassVar[bool] = False
    """Whether actions depend on the constraint already before they are accepted, rejected or projected."""

    proposals: int = 1
    """Samples that are tried before the last one is projected."""
    preference_size: int = 0
    """Entries of a preference that follow the observation in the network's input: 0 or 2."""
    min_return_weight: float = 0.0
    """The smallest weight of the return among the preferences that were learnt."""
    student_df: float | None = None
    """Degrees of freedom of Student-t noise; None is normal."""

    def __post_init__(self) -> None:
        """Reject values that no policy can have."""
        allowed = self.allowed()
        wrong = misfit(self) or next((name for name, (is_fit, _) in allowed.items() if not is_fit), None)
        if wrong:
            what = allowed[wrong][1] if wrong in allowed else "of the documented type"
            raise ConfigurationError(f"{wrong}={getattr(self, wrong)!r} must be {what}. Correct it.")

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """Return, for each setting, whether it is valid, and which values are."""
        df, most = self.student_df, MOST_PROPOSALS
        return {
            "proposals": (is_whole(self.proposals, 1) and self.proposals <= most, f"from 1 to {most}"),
            "preference_size": (self.preference_size in (0, 2), "0 or 2"),
            "min_return_weight": (is_number(w := self.min_return_weight) and 0 <= w < 1, "in [0, 1)"),
            "student_df": (df is None or (is_number(df) and df > 0), "above 0 and finite, or None"),
        }

    # What a kind of head defines ---------------------------------------------------------------------------------

    @property
    def takes_noise(self) -> bool:
        """Return whether samples differ."""
        return True

    @abc.abstractmethod
    def actions(self, spec: PolicySpec, parameters: Parameters, query: Query) -> Any:
        """Return actions (..., action size) in the units of `env.step`, before acceptance and projection."""

    def read(self, arrays: Arrays) -> dict[str, Any]:
        """Return the parameters out of the arrays of a file, checked; the scales of inputs are folded in."""
        return {"actor": read_network(arrays, "actor")}

    # What all share ----------------------------------------------------------------------------------------------

    def output(self, parameters: Parameters, observation: Any, preference: Any) -> Any:
        """Return the network's output at observations (..., observation size)."""
        inputs = with_preference(observation, preference) if self.preference_size else observation
        return apply_network(parameters["actor"], inputs)

    def to_json(self) -> dict[str, Any]:
        """Return the head as plain data, from which `head_from_json` builds it again."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        references = {name: value.to_json() for name, value in values.items() if isinstance(value, Reference)}
        return {"kind": self.kind, **values, **references}


@dataclasses.dataclass(frozen=True)
class SquashedGaussian(Head):
    """a = rescale(tanh(mean + std * noise)); the network returns mean and log-std.

    With a `reference`, the mean is a residual around the reference action that the observation holds: a network that
    returns zero acts as the observation suggests.
    """

    kind, outputs_per_entry = "squashed_gaussian", 2
    reference: Reference | None = None
    """Where the observation holds a reference action."""

    def actions(self, spec: PolicySpec, parameters: Parameters, query: Query) -> Any:
        """Return rescale(tanh(mean + std * noise))."""
        gaussian = around_reference(gaussian_of(query.output), spec.box, query.observation, self.reference)
        return squashed_actions(gaussian, spec.box, query.noise)


@dataclasses.dataclass(frozen=True)
class RadialGaussian(Head):
    """A Gaussian whose samples `radial_squash` moves into C(s)."""

    kind, outputs_per_entry, asks_constraint = "radial_gaussian", 2, True

    def actions(self, spec: PolicySpec, parameters: Parameters, query: Query) -> Any:
        """Return c + tanh(L)/L (a - c) of every sample a."""
        drawn = sample(gaussian_of(query.output), query.noise)
        at = ray(spec.constraint, spec.box, query.observation, drawn, query.previous_action)
        return spec.box.rescale(radial_squash(at))


@dataclasses.dataclass(frozen=True)
class DiagonalGaussian(Head):
    """a = rescale(tanh(output) + std * noise), not clipped to the box; `log_std` is one array for all states."""

    kind = "diagonal_gaussian"

    def actions(self, spec: PolicySpec, parameters: Parameters, query: Query) -> Any:
        """Return samples around the squashed mean."""
        xp = namespace_of(query.output)
        log_std = convert(parameters["log_std"], xp, xp.float32)
        return spec.box.rescale_unbounded(sample(Gaussian(xp.tanh(query.output), log_std), query.noise))

    def read(self, arrays: Arrays) -> dict[str, Any]:
        """Return the network and `log_std`."""
        parameters = super().read(arrays)
        size = parameters["actor"][-1].bias.shape
        return {**parameters, "log_std": array_of(arrays, "log_std", size)}


@dataclasses.dataclass(frozen=True)
class Deterministic(Head):
    """a = rescale(L(tanh(output))); L is the identity here and a map into the set in other kinds.

    With `std` above 0, noise is added before L and clipped to [-1, 1].
    """

    kind = "deterministic"
    std: float = 0.0
    """Standard deviation of the noise in [-1, 1]."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """Tell whether each number may be what it is."""
        return {**super().allowed(), "std": (is_number(self.std) and self.std >= 0, "finite and >= 0")}

    @property
    def takes_noise(self) -> bool:
        """Return whether there is noise."""
        return self.std > 0

    def bounded(self, spec: PolicySpec, parameters: Parameters, query: Query, squashed: Any) -> Any:
        """Return L(squashed) in [-1, 1]."""
        return squashed

    def actions(self, spec: PolicySpec, parameters: Parameters, query: Query) -> Any:
        """Return rescale(L(clip(tanh(output) + std * noise)))."""
        xp = namespace_of(query.output)
        squashed = xp.tanh(query.output)
        if self.takes_noise:
            squashed = clip(xp, squashed + self.std * query.noise, -1.0, 1.0)
        return spec.box.rescale(self.bounded(spec, parameters, query, squashed))


@dataclasses.dataclass(frozen=True)
class AlongRay(Deterministic):
    """L moves an action along the ray from a centre of C(s): radially squashed, or by alpha-projection."""

    kind, asks_constraint = "along_ray", True
    smooth: bool = True
    """c + tanh(L)/L v, smooth everywhere; False is c + v / max(L, 1), which moves only what is outside."""

    def bounded(self, spec: PolicySpec, parameters: Parameters, query: Query, squashed: Any) -> Any:
        """Return the action inside the set."""
        at = ray(spec.constraint, spec.box, query.observation, squashed, query.previous_action)
        return radial_squash(at) if self.smooth else alpha_projection(at)


@dataclasses.dataclass(frozen=True)
class Allocation(Deterministic):
    """L shifts the entries to the total of a SumBand and clamps them to their limits."""

    kind, asks_constraint = "allocation", True
    leaky: bool = False
    """Let clamped entries pass gradients as if they were free."""

    def bounded(self, spec: PolicySpec, parameters: Parameters, query: Query, squashed: Any) -> Any:
        """Return the allocation."""
        where = (query.observation, squashed, query.previous_action)
        return allocate(spec.constraint, spec.box, *where, leaky=self.leaky)


@dataclasses.dataclass(frozen=True)
class ThroughFlow(Deterministic):
    """L maps a latent through the parameters' `flow`, which depends on the entries that the constraint reads."""

    kind, asks_constraint = "through_flow", True
    condition_range: tuple[float, float] = (-1.0, 1.0)
    """The range of those entries, which is brought to [-1, 1]."""

    def allowed(self) -> dict[str, tuple[bool, str]]:
        """Tell whether each number may be what it is."""
        ends = self.condition_range
        is_range = misfit(self) is None and all(map(is_number, ends)) and ends[0] < ends[1]
        return {**super().allowed(), "condition_range": (is_range, "two finite numbers, the lower one first")}

    def bounded(self, spec: PolicySpec, parameters: Parameters, query: Query, squashed: Any) -> Any:
        """Return g(z, y); the flow may leave the box a little, which is clipped."""
        xp = namespace_of(squashed)
        seen = convert(query.observation, xp, squashed.dtype)
        condition = condition_of(spec.constraint, seen, self.condition_range)
        return clip(xp, to_action(parameters["flow"], squashed, condition), -1.0, 1.0)

    def read(self, arrays: Arrays) -> dict[str, Any]:
        """Return the network and the flow."""
        return {**super().read(arrays), "flow": read_flow(arrays, "flow")}


KINDS: dict[str, type[Head]] = {
    head.kind: head
    for head in (
        *(SquashedGaussian, RadialGaussian, DiagonalGaussian),
        *(Deterministic, AlongRay, Allocation, ThroughFlow),
    )
}
"""The heads that a file may name; a program adds a head of its own here before it loads a file that names it."""


def head_from_json(data: Any) -> Head:
    """Build the head that `to_json` described, or refuse what it never writes; nothing is imported by name."""
    values = dict(data) if isinstance(data, Mapping) else {}
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigurationError(
            f"{kind!r} is not a kind of policy head. Known: {', '.join(KINDS)}. Import the module that adds another."
        )
    known = {field.name for field in dataclasses.fields(KINDS[kind])}
    if unknown := sorted(set(values) - known):
        raise ConfigurationError(f"a head '{kind}' has no {unknown[0]!r}. Correct or remove it.")
    if "reference" in values:
        reference = values["reference"]
        values["reference"] = reference_from_json(reference) if isinstance(reference, dict) else reference
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return KINDS[kind](**plain)
