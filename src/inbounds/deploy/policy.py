"""From a folder that training or export wrote to a policy that acts, with checks of all that could be wrong with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from inbounds.constraints import Constraint, constraint_from_json
from inbounds.deploy.acting import Policy
from inbounds.errors import CheckpointError, ConfigurationError, EmptySetError, InvalidInputError
from inbounds.policies.box import ActionBox
from inbounds.policies.gaussian import before_squashing
from inbounds.policies.heads import Arrays, Head, SquashedGaussian, head_from_json
from inbounds.storage.sealed_arrays import (
    DAMAGE,
    POLICY_FILES,
    checksum,
    checksum_of_json,
    meaning_of_run,
    read_json,
    read_sealed,
)

FORMAT, VERSION = "inbounds policy", 3
MANIFEST, ARRAYS, GRAPH = "policy.json", "policy.safetensors", "policy.onnx"

FIELDS: dict[str, type | tuple[type, ...]] = {
    "task": str,
    "learner": dict,
    "seed": int,
    "observation_size": int,
    "action_low": list,
    "action_high": list,
    "constraint": dict,
    "constraint_sha256": str,
    "head": dict,
    "preference": (list, type(None)),
    "arrays": dict,
    "files": dict,
}


def identity(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what every file of a folder repeats in its metadata, so that files of two tasks cannot be mixed.

    It is one entry, since the order of several would change the bytes of a file from export to export.
    """
    names = ("format", "version", "task", "seed", "constraint_sha256")
    return {"inbounds": json.dumps({name: manifest[name] for name in names})}


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the checksum of its own content."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return {**content, "sha256": checksum_of_json(content)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read policy.json and refuse it where it is damaged, foreign, newer, or contradicts the files beside it."""
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise damaged(folder, f"{MANIFEST} does not describe a policy")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{folder} has version {manifest.get('version')!r}, but this library reads {VERSION}. "
            f"Export it again, or use the version that wrote it."
        )
    if manifest != sealed(manifest):
        raise damaged(folder, f"{MANIFEST} does not match its own checksum")
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise damaged(folder, f"'{name}' is missing or of another type in {MANIFEST}")
    if checksum_of_json(manifest["constraint"]) != manifest["constraint_sha256"]:
        raise damaged(folder, "the constraint does not match its checksum")
    for name in manifest["files"]:
        if name not in (ARRAYS, GRAPH):
            raise damaged(folder, f"{MANIFEST} lists the file {name!r}, which is not part of an export")
        # The numpy runtime does without the graph, which may have been left behind.
        if name == ARRAYS or (folder / name).exists():
            require_checksum(folder, manifest, name)
    return manifest


def require_checksum(folder: Path, manifest: Mapping[str, Any], name: str) -> None:
    """Refuse a file that is missing, has another size, or other bytes than when it was exported."""
    path, recorded = folder / name, manifest["files"].get(name)
    if not isinstance(recorded, dict) or not path.is_file():
        raise damaged(folder, f"{name} is missing or not listed in {MANIFEST}")
    size = path.stat().st_size
    if size != recorded.get("bytes"):
        raise damaged(folder, f"{name} has {size} bytes instead of {recorded.get('bytes')}")
    if checksum(path.read_bytes()) != recorded.get("sha256"):
        raise damaged(
            folder, f"{name} does not match its checksum: it was changed or belongs to another export"
        )


def read_arrays(folder: Path, manifest: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of policy.safetensors, which must be those that the manifest lists."""
    with safe_open(folder / ARRAYS, framework="numpy") as opened:
        written = opened.metadata() or {}
        if written != identity(manifest):
            whose = written.get("inbounds", "nothing of ours")
            raise damaged(folder, f"{ARRAYS} belongs to another export ({whose})")
        found = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        shapes = {name: list(part.get_shape()) for name, part in found.items()}
        if shapes != manifest["arrays"]:
            raise damaged(folder, f"{ARRAYS} holds other arrays than {MANIFEST} lists")
        return {name: np.asarray(opened.get_tensor(name)) for name in found}


def damaged(folder: Path, what: str) -> CheckpointError:
    """Return the error of a folder that cannot be trusted."""
    return CheckpointError(f"{folder} cannot be trusted: {what}. Copy it again, or export the run once more.")


class Plan(NamedTuple):
    """Everything that was learnt and decided, before it is put to use: what a file holds of a policy."""

    task: str
    learner: dict[str, Any]
    seed: int
    observation_size: int
    box: ActionBox
    arrays: Arrays
    constraint: dict[str, Any]
    head: Head
    preference: tuple[float, float] | None
    """The default weights of return and validity where the network reads them."""


def load(
    path: Any,
    seed: int | None = None,
    preference: tuple[float, float] | None = None,
    *,
    policy: Literal["last", "best"] = "last",
    constraint: Constraint | None = None,
    task: str | None = None,
) -> Policy:
    """Load the policy of a run folder, or of a folder that `inbounds export` wrote.

    Args:
        path: what `train` or `export` returned, the folder that they wrote, or one that holds its config.json and
            policy.safetensors.
        seed: which of the trained seeds; the first one by default. The policy's own draws start from it, too.
        preference: weight of reward and of validity, for policies that were learnt for all of them; by default
            that of the export, or the one at which training evaluated the run.
        policy: of a run folder, the last policy or that of the best evaluation.
        constraint: the set of a policy that was trained with an `Oracle`, whose function no file may name.
        task: the name of the task that the policy must be for; any other one is refused.
    """
    if constraint is not None and not isinstance(constraint, Constraint):
        raise InvalidInputError(
            f"constraint={constraint!r} is not a constraint. Pass the set itself, such as task.constraint."
        )
    path = getattr(path, "path", path)
    plan = read_plan(path, seed, policy)
    if task is not None and task != plan.task:
        raise InvalidInputError(
            f"{path} holds a policy for '{plan.task}', not for '{task}'. Give the folder of '{task}'."
        )
    try:
        known = known_constraint(plan) if constraint is None else constraint
        return policy_of(plan, known, preference)
    except DAMAGE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise CheckpointError(
            f"{path} is damaged ({error}). Restore it, or train and export again."
        ) from error


def read_plan(path: str | Path, seed: int | None = None, policy: Literal["last", "best"] = "last") -> Plan:
    """Return what a folder holds of a policy; an exported one is compared with its checksums first."""
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"{path!r} is not a path. Give the folder that training or export wrote.")
    if seed is not None and not isinstance(seed, int | np.integer):
        raise InvalidInputError(
            f"seed={seed!r} is not an integer. Pass the number of a seed that was trained."
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
            f"{_not_a_run(folder, error)} Give the folder that training or export wrote."
        ) from error
    except InvalidInputError:
        raise
    except DAMAGE as error:
        raise CheckpointError(
            f"{folder} is damaged or was written by another version ({error}). Train again or restore it."
        ) from error
    if not isinstance(plan.learner["name"], str):
        raise CheckpointError(f"{folder} names no learner. Restore the folder, or train and export again.")
    return plan


def _not_a_run(folder: Path, error: FileNotFoundError) -> str:
    if folder.exists():
        return f"{folder} is not a run ({error})."
    where = "" if folder.is_absolute() else f" in {Path.cwd()}"
    return f"{folder} is not a run: the folder does not exist{where}."


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
    head, size = plan.head, plan.box.size
    given = plan.preference if preference is None else preference
    if preference is not None:
        weights_of(preference)  # also where the policy has no use for them
    chosen = None if plan.preference is None else learnt_weights(given, head.min_return_weight)
    policy = Policy(
        head,
        head.read(plan.arrays),
        plan.box,
        constraint,
        preference=chosen,
        rng=np.random.default_rng(plan.seed),
    )
    outputs, wanted = policy.parameters["actor"][-1].bias.shape[0], head.outputs_per_entry * size
    if policy.observation_size != plan.observation_size or outputs != wanted:
        raise CheckpointError(
            f"the network reads {policy.observation_size} entries and writes {outputs}, but the configuration asks "
            f"for {plan.observation_size} and {wanted}: they belong to different tasks. Restore the folder."
        )
    require_reference_action(plan)
    if constraint.size() not in (None, size):
        raise CheckpointError(
            f"the set speaks of {constraint.size()} entries, but actions have {size}. Restore the folder."
        )
    if not names_code(plan.constraint):
        # A set that reads what an observation does not have is found now, and not at the first action.
        with contextlib.suppress(EmptySetError):  # an expression may have no value at zero
            constraint.violation(
                np.zeros(plan.observation_size), plan.box.middle, previous_action=np.zeros(size)
            )
    return policy


def learnt_weights(preference: Any, least: float) -> NDArray[np.float32]:
    """Return the weights of a preference, or refuse one that a policy does not learn: `least` is of the return."""
    weights = weights_of(preference)
    if weights[0] < np.float32(least):
        raise InvalidInputError(
            f"preference=({weights[0]:g}, {weights[1]:g}) weighs the return less than this policy has learnt for, "
            f"which is {least:g} to 1. Pass ({least:g}, {1 - least:g}), say, or train with a smaller min_return_weight."
        )
    return weights


def weights_of(preference: Any) -> NDArray[np.float32]:
    """Return the weights of return and validity, or refuse what is not two weights that sum to 1."""
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


def require_reference_action(plan: Plan) -> None:
    """Refuse a reference that reads what an observation does not have, or is not an action."""
    reference = plan.head.reference if isinstance(plan.head, SquashedGaussian) else None
    if reference is None:
        return
    nothing = np.zeros(plan.observation_size, np.float32)
    why: Exception | None = None
    try:
        with np.errstate(all="ignore"):
            read = reference.read(nothing)
            is_action = read.shape == (plan.box.size,) and reference.source == "observation"
            is_action = is_action and bool(np.isfinite(before_squashing(plan.box, read)).all())
    except DAMAGE as error:
        is_action, why = False, error
    if not is_action:
        raise CheckpointError(
            f"the policy acts around {reference}, which is not an action of {plan.box.size} entries out of an "
            f"observation of {plan.observation_size}. Restore the folder, or train and export again."
        ) from why


def described_head(data: Any, learner: str) -> Head:
    """Return the head that a file describes; a learner without one cannot be deployed."""
    if data is None:
        raise InvalidInputError(
            f"'{learner}' declares no policy head, so that its policy acts in training alone. Evaluate it with "
            f"`inbounds evaluate`, or define `head` in the learner and train again."
        )
    try:
        return head_from_json(data)
    except ConfigurationError as error:
        raise CheckpointError(f"the policy head is damaged or unknown: {error}") from error


def _run_plan(folder: Path, seed: int | None, file: str) -> Plan:
    config = read_json(folder / "config.json")
    arrays = read_sealed(folder / file, meaning_of_run(config))
    learner = dict(config["learner"])
    head = described_head(config.get("head"), str(learner["name"]))
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
        head=head,
        preference=recorded_preference(config) if head.preference_size else None,
    )


def recorded_preference(config: Mapping[str, Any]) -> tuple[float, float]:
    """Return the pair that a run's learner fixes, or else that at which training evaluated it, (0.9, 0.1) if untold."""
    fixed, own = config["learner"].get("preference"), config["training"].get("preference", (0.9, 0.1))
    is_pair = isinstance(fixed, list) and [type(weight) for weight in fixed] == [float, float]
    of_return, of_validity = fixed if is_pair else own
    return float(of_return), float(of_validity)


def _exported_plan(folder: Path, seed: int | None) -> Plan:
    manifest = read_manifest(folder)
    if seed not in (None, manifest["seed"]):
        raise InvalidInputError(
            f"{folder} holds seed {manifest['seed']} alone, not {seed}. Export that one from its run."
        )
    preference, learner = manifest["preference"], dict(manifest["learner"])
    head = described_head(manifest["head"], str(learner["name"]))
    if (preference is None) == bool(head.preference_size):
        raise CheckpointError(f"{folder}: head and preference contradict each other. Restore the folder.")
    return Plan(
        task=str(manifest["task"]),
        learner=learner,
        seed=int(manifest["seed"]),
        observation_size=int(manifest["observation_size"]),
        box=_box(manifest),
        arrays=read_arrays(folder, manifest),
        constraint=dict(manifest["constraint"]),
        head=head,
        preference=None if preference is None else (float(preference[0]), float(preference[1])),
    )


def _box(data: Mapping[str, Any]) -> ActionBox:
    low, high = (np.asarray(data[side], np.float32) for side in ("action_low", "action_high"))
    if (
        low.ndim != 1
        or low.shape != high.shape
        or not (np.isfinite([low, high]).all() and (low <= high).all())
    ):
        raise CheckpointError("action_low and action_high are not a finite box. Restore the folder.")
    return ActionBox(low, high)
