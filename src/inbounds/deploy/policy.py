"""From a folder that training or export wrote to a policy that acts, with checks of all that could be wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Constraint, constraint_from_json
from inbounds.constraints.references import Reference
from inbounds.deploy.acting import Policy
from inbounds.deploy.export_manifest import MANIFEST, read_arrays, read_manifest
from inbounds.deploy.observed_start import ObservedStart, read_start, require_fit
from inbounds.deploy.policy_network import Arrays, array_of, read_layers
from inbounds.deploy.policy_proposals import (
    Allocation,
    AlongRays,
    Head,
    NoisySquashed,
    PlainGaussian,
    Range,
    Squashed,
    SquashedGaussian,
    ThroughFlow,
)
from inbounds.errors import CheckpointError, InvalidInputError
from inbounds.limits import MOST_PROPOSALS, require_moderate
from inbounds.storage.sealed_arrays import DAMAGE, POLICY_FILES, meaning_of_run, read_json, read_sealed

GAUSSIAN_LEARNERS = ("aram", "sosac", "sac", "spre")
"""Learners whose network says mean and log-deviation, squashed by tanh."""
DETERMINISTIC_LEARNERS = ("td3", "dpre", "nfwpo", "optlayer")
"""Learners whose network says the action itself; what is infeasible is projected."""
LAYERED_LEARNERS = ("artd3", "focops", "dalpha", "drad", "srad", "appropt", "flowpg")
"""Learners with a map of their own behind the network."""
KNOWN_LEARNERS = GAUSSIAN_LEARNERS + DETERMINISTIC_LEARNERS + LAYERED_LEARNERS


class Plan(NamedTuple):
    """Everything that was learnt and decided, before it is put to use: what a file holds of a policy."""

    task: str
    learner: dict[str, Any]
    seed: int
    observation_size: int
    box: Range
    arrays: Arrays
    constraint: dict[str, Any]
    preference: tuple[float, float] | None
    """The default weights of return and validity where the network takes them."""
    proposals: int
    start: Reference | None = None
    """What the mean of a Gaussian is counted from, where the observation holds a sensible action."""


def load(
    path: str | Path,
    seed: int | None = None,
    preference: tuple[float, float] | None = None,
    *,
    policy: Literal["last", "best"] = "last",
    constraint: Constraint | None = None,
    task: str | None = None,
) -> Policy:
    """Load the policy of a run folder, or of a folder that `inbounds export` wrote.

    Args:
        path: the folder that training or export wrote, or one that holds its config.json and policy.safetensors.
        seed: which of the trained seeds; the first one by default. The policy's own draws start from it, too.
        preference: weight of reward and of validity, for policies that were learnt for all of them; by default
            that of the export, or else (0.9, 0.1).
        policy: of a run folder, the last policy or that of the best evaluation.
        constraint: the set of a policy that was trained with an `Oracle`, whose function no file may name.
        task: the name of the task that the policy must be for; any other one is refused.
    """
    if constraint is not None and not isinstance(constraint, Constraint):
        raise InvalidInputError(
            f"constraint={constraint!r} is not a constraint. Pass the set itself, such as task.constraint."
        )
    plan = read_plan(path, seed, policy)
    if task is not None and task != plan.task:
        raise InvalidInputError(
            f"{path} holds a policy for '{plan.task}', not for '{task}'. Give the folder of '{task}'."
        )
    try:
        return policy_of(plan, constraint or known_constraint(plan), preference)
    except DAMAGE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise CheckpointError(
            f"{path} is damaged ({error}). Restore it, or train and export again."
        ) from error


def read_plan(path: str | Path, seed: int | None = None, policy: Literal["last", "best"] = "last") -> Plan:
    """Return what a folder holds of a policy; an exported one is compared with its checksums first."""
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"{path!r} is no path. Give the folder that training or export wrote.")
    if seed is not None and not isinstance(seed, int | np.integer):
        raise InvalidInputError(
            f"seed={seed!r} is no whole number. Pass the number of a seed that was trained."
        )
    if policy not in POLICY_FILES:
        raise InvalidInputError(f"policy={policy!r} must be 'last' or 'best'.")
    folder = Path(path)
    try:
        is_exported = (folder / MANIFEST).exists()
        if is_exported and policy != "last":
            raise InvalidInputError(
                f"{folder} is an export, which holds one policy. Leave out policy={policy!r}."
            )
        plan = _exported_plan(folder, seed) if is_exported else _run_plan(folder, seed, POLICY_FILES[policy])
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"{folder} is not a run ({error}). Give the folder that training or export wrote."
        ) from error
    except InvalidInputError:
        raise
    except DAMAGE as error:
        raise CheckpointError(
            f"{folder} is damaged or was written by another version ({error}). Train again or restore it."
        ) from error
    if plan.learner["name"] not in KNOWN_LEARNERS:
        raise InvalidInputError(
            f"a policy of '{plan.learner['name']}' acts through more than a network and a map, which this runtime "
            f"does not hold. Known: {', '.join(KNOWN_LEARNERS)}. Evaluate it with `inbounds evaluate`."
        )
    if not 1 <= plan.proposals <= MOST_PROPOSALS:
        raise CheckpointError(
            f"{folder} asks for {plan.proposals} proposals, but 1 to {MOST_PROPOSALS} are possible. Correct it."
        )
    return plan


def known_constraint(plan: Plan) -> Constraint:
    """Return the set of a plan; one that would run a function has to be given by the caller instead."""
    if names_code(plan.constraint):
        raise InvalidInputError(
            "this policy was trained with an Oracle, and a function that a file names is never run. Pass the "
            "set itself: load(path, constraint=task.constraint)."
        )
    return constraint_from_json(plan.constraint)


def names_code(data: Any) -> bool:
    """Tell whether a constraint in JSON, or anything inside it, is an Oracle."""
    if isinstance(data, Mapping):
        return data.get("kind") == "Oracle" or any(names_code(value) for value in data.values())
    return isinstance(data, list) and any(names_code(value) for value in data)


def policy_of(plan: Plan, constraint: Constraint, preference: tuple[float, float] | None = None) -> Policy:
    """Put a plan to use."""
    layers, head = read_layers(plan.arrays, "actor"), head_of(plan, constraint)
    chosen = (
        None if plan.preference is None else weights_of(plan.preference if preference is None else preference)
    )
    settings = plan.learner
    least = float(settings.get("min_return_weight", 0.0))
    if chosen is not None and chosen[0] < np.float32(least):
        raise InvalidInputError(
            f"preference={preference} weighs the return less than this policy has learnt for, which is {least:g} to 1. "
            f"Pass (0.9, 0.1), say, or train with a smaller min_return_weight."
        )
    start = None
    if plan.start is not None and isinstance(head, SquashedGaussian):
        start = ObservedStart(plan.start, plan.box)
    policy = Policy(
        layers,
        head,
        constraint,
        preference=chosen,
        proposals=plan.proposals,
        degrees=None if settings.get("student_df") is None else float(settings["student_df"]),
        rng=np.random.default_rng(plan.seed),
        start=start,
    )
    size, outputs = len(plan.box.low), layers[-1][0].shape[1]
    wanted = 2 * size if isinstance(head, SquashedGaussian) or settings["name"] == "srad" else size
    if policy.observation_size != plan.observation_size or outputs != wanted:
        raise CheckpointError(
            f"the network reads {policy.observation_size} entries and writes {outputs}, but the configuration asks "
            f"for {plan.observation_size} and {wanted}: they belong to different tasks. Restore the folder."
        )
    if start is not None:
        require_fit(start, plan.observation_size)
    if constraint.size() not in (None, size):
        raise CheckpointError(
            f"the set speaks of {constraint.size()} entries, but actions have {size}. Restore the folder."
        )
    if not names_code(plan.constraint):
        # A set that reads what an observation does not have is found now, and not at the first action.
        constraint.violation(np.zeros(plan.observation_size), plan.box.middle, previous_action=np.zeros(size))
    return policy


def weights_of(preference: Any) -> NDArray[np.float32]:
    """Return the weights of return and validity, or refuse what is not two shares of a whole."""
    try:
        weights = np.asarray(preference, np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, np.float32)
    is_pair = weights.shape == (2,) and bool(np.isfinite(weights).all())
    if not is_pair or weights.min() < 0 or abs(weights.sum() - 1) > 1e-3:
        raise InvalidInputError(
            f"preference={preference} is not two finite numbers, none negative, that sum to 1: policies are learnt "
            f"for no other weights. Pass (0.9, 0.1), say."
        )
    return weights


def head_of(plan: Plan, constraint: Constraint) -> Head:
    """Return the map between network and constraint that a learner acts through."""
    name, settings, box = plan.learner["name"], plan.learner, plan.box
    if name in GAUSSIAN_LEARNERS:
        return SquashedGaussian(box)
    if name in DETERMINISTIC_LEARNERS:
        return Squashed(box)
    if name == "artd3":
        return NoisySquashed(box, float(settings["exploration"]))
    if name == "focops":
        return PlainGaussian(box, array_of(plan.arrays, "log_std"))
    if name == "appropt":
        return Allocation(box, constraint)
    if name == "flowpg":
        low, high = settings["condition_range"]
        layers = int(settings["flow_layers"])
        require_moderate({"flow_layers": layers})
        names = [f"layer/flow/{index}" for index in range(layers)]
        networks = [
            [read_layers(plan.arrays, f"{one}/{part}") for part in ("scale", "shift")] for one in names
        ]
        couplings = tuple((scale, shift) for scale, shift in networks)
        places = places_read(constraint, plan.observation_size)
        return ThroughFlow(box, couplings, places, (float(low), float(high)))
    return AlongRays(box, constraint, is_smooth=name != "dalpha", takes_noise=name == "srad")


def places_read(constraint: Constraint, observation_size: int) -> NDArray[np.int64]:
    """Return which entries of an observation a constraint reads, in order."""
    places = np.arange(observation_size, dtype=np.float64)
    read = [
        np.ravel(value.read_unscaled(places))
        for member in constraint.members()
        for value in member.parameters().values()
        if isinstance(value, Reference) and value.source == "observation"
    ]
    return np.unique(np.concatenate([np.zeros(0), *read])).astype(np.int64)


def _run_plan(folder: Path, seed: int | None, file: str) -> Plan:
    config = read_json(folder / "config.json")
    arrays = read_sealed(folder / file, meaning_of_run(config))
    learner = dict(config["learner"])
    first, count = int(config["training"]["seed"]), int(config["training"]["seeds"])
    wanted = first if seed is None else seed
    if not first <= wanted < first + count:
        raise InvalidInputError(
            f"seed {wanted} was not trained in {folder}. Choose one of {first}..{first + count - 1}."
        )
    if any(len(array.shape) == 0 or array.shape[0] != count for array in arrays.values()):
        raise CheckpointError(f"{folder}: {file} does not hold {count} seeds. Train again or restore it.")
    return Plan(
        task=str(config["task"]),
        learner=learner,
        seed=wanted,
        observation_size=int(config["observation_size"]),
        box=_box(config),
        arrays={name: array[wanted - first] for name, array in arrays.items()},
        constraint=dict(config["constraint"]),
        preference=(0.9, 0.1) if learner["name"] == "aram" and learner.get("preference") is None else None,
        proposals=int(learner.get("proposals", 1)),
        start=read_start(config, learner),
    )


def _exported_plan(folder: Path, seed: int | None) -> Plan:
    manifest = read_manifest(folder)
    if seed not in (None, manifest["seed"]):
        raise InvalidInputError(
            f"{folder} holds seed {manifest['seed']} alone, not {seed}. Export that one from its run."
        )
    preference = manifest["preference"]
    return Plan(
        task=str(manifest["task"]),
        learner=dict(manifest["learner"]),
        seed=int(manifest["seed"]),
        observation_size=int(manifest["observation_size"]),
        box=_box(manifest),
        arrays=read_arrays(folder, manifest),
        constraint=dict(manifest["constraint"]),
        preference=None if preference is None else (float(preference[0]), float(preference[1])),
        proposals=int(manifest["proposals"]),
        start=read_start(manifest, manifest["learner"]),
    )


def _box(data: Mapping[str, Any]) -> Range:
    low, high = (np.asarray(data[side], np.float32) for side in ("action_low", "action_high"))
    if (
        low.ndim != 1
        or low.shape != high.shape
        or not (np.isfinite([low, high]).all() and (low <= high).all())
    ):
        raise CheckpointError("action_low and action_high are no box of finite numbers. Restore the folder.")
    return Range(low, high)
