"""How a policy leaves the lab: one folder with a graph that holds its constraint, and the same for numpy alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from inbounds.constraints import Constraint
from inbounds.constraints.references import Reference
from inbounds.deploy.acting import PROJECTED, UNANSWERED, Policy
from inbounds.deploy.correction import expressions_of, reads_previous_action
from inbounds.deploy.onnx_namespace import Namespace, new_namespace
from inbounds.deploy.policy import (
    ARRAYS,
    FORMAT,
    GRAPH,
    MANIFEST,
    VERSION,
    Plan,
    identity,
    known_constraint,
    names_code,
    policy_of,
    read_plan,
    sealed,
)
from inbounds.errors import CheckpointError, ConfigurationError
from inbounds.limits import MOST_PROPOSALS
from inbounds.policies.heads import named_arrays, query_of
from inbounds.reading import FINITE, NUMBER, SEED, Several, Whole, read_object
from inbounds.storage.files import told, write_folder
from inbounds.storage.sealed_arrays import POLICY_FILES, checksum, checksum_of_json, read_json

FEASIBLE = (
    "Feasible by construction: the first of the proposals that lies in C(s), or else the projection of the last "
    "one, decided in float64. 'accepted' is the number of the proposal, -1 for a projection, and -2 where no "
    "action was found (an empty set, or inputs that are not finite); then the action is NaN."
)
UNFILTERED = (
    "NOT feasible by construction: the constraint is a function that no graph can hold. Every proposal must pass "
    "a filter before it is executed, such as inbounds.SafetyFilter(constraint).correct(observation, proposal)."
)


def policy_model(policy: Policy, proposals: int, facts: dict[str, str], *, is_filtered: bool) -> Any:
    """Return the graph of a policy for one state per call; `facts` become its metadata.

    Inputs: `observation` (float64, since constraints are decided in it), `noise` (proposals x d, float32) where
    the policy draws, `preference` where it takes one, `previous_action` (float64) where the constraint reads it.
    With `is_filtered=False` the graph ends with the raw proposals.
    """
    xp = new_namespace()
    graph, size = xp.graph, policy.action_size
    observation = graph.input("observation", (policy.observation_size,), np.float64)
    noise = previous = preference = None
    if policy.head.takes_noise:
        noise = graph.input("noise", (proposals, size), np.float32)
    if policy.preference is not None:
        preference = graph.input("preference", policy.preference.shape, np.float32)
    if is_filtered and reads_previous_action(policy.constraint):
        previous = graph.input("previous_action", (size,), np.float64)
    output = policy.head.output(policy.parameters, xp.astype(observation, np.float32)[None, :], preference)
    query = query_of(observation, previous, output, noise)
    candidates = policy.head.actions(policy, policy.parameters, query)
    if not is_filtered:
        return graph.model({"proposals": candidates}, facts, UNFILTERED)
    action, accepted = _decision(xp, policy, observation, previous, candidates)
    return graph.model({"action": action, "accepted": accepted}, facts, FEASIBLE)


def _decision(
    xp: Namespace, policy: Policy, observation: Any, previous: Any, candidates: Any
) -> tuple[Any, Any]:
    constraint = policy.constraint
    at, exact, _ = constraint.situation(observation, candidates, previous)

    def is_finite(array: Any) -> Any:
        # A sum would not do: that of finite numbers may overflow.
        return xp.all(xp.isfinite(array))

    # Nothing else would notice an input that no set reads.
    is_sound = is_finite(observation if previous is None else xp.concat([observation, previous]))
    # Runtimes differ in what the larger of a number and NaN is: values that are not finite are looked for here.
    for expression in expressions_of(constraint):
        if not isinstance(expression, Reference):
            axes = len(expression.own_shape)
            for known in (at.value(expression, axes), at.magnitude(expression, axes)):
                is_sound = is_sound & is_finite(known)
        elif expression.overflows_beyond < float("inf"):
            is_sound = is_sound & is_finite(expression.read(at.source_of(expression)))
    is_accepted = policy.accepted(at, exact) & xp.all(xp.isfinite(exact), axis=-1) & is_sound
    first = xp.argmax(xp.astype(is_accepted, np.int32), axis=0)

    def accepted() -> tuple[Any, Any]:
        return xp.take(candidates, first, axis=0), first

    def projected() -> tuple[Any, Any]:
        moved = constraint.project(observation, candidates[-1], previous_action=previous)
        moved = xp.where(is_sound, moved, float("nan"))
        is_answer = xp.all(xp.isfinite(moved))
        return moved, xp.where(is_answer, np.int64(PROJECTED), np.int64(UNANSWERED))

    chosen: tuple[Any, Any] = xp.cond(xp.take(is_accepted, first, axis=0), accepted, projected)
    return chosen


DEFAULT_FOLDER = "exported"
CARD = "README.md"
FILES = (MANIFEST, ARRAYS, GRAPH, CARD)
EVALUATION = "evaluation.json"
"""What `inbounds evaluate` writes into the folder of a run."""
EVALUATION_SHAPE = {
    "policy_sha256?": str,
    "final": {
        "seeds": [SEED],
        "episodes": Whole(1),
        "preference": Several(FINITE, 2),
        "return": [FINITE],
        "return_std": [FINITE],
        "valid_action_rate": [FINITE],
        "worst_violation": NUMBER,
    },
}


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written, and whether the graph holds the constraint."""

    path: Path
    task: str
    seed: int
    proposals: int
    is_feasible_by_construction: bool
    """False for an `Oracle`: the graph ends with proposals, and the caller must filter them."""
    sizes: dict[str, int]
    """Bytes of every file."""

    def __str__(self) -> str:
        files = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.sizes.items())
        promise = FEASIBLE if self.is_feasible_by_construction else UNFILTERED
        return f"{self.path}: {files}\n{promise}"


def export(
    run: Any,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    proposals: int | None = None,
    preference: tuple[float, float] | None = None,
    constraint: Constraint | None = None,
) -> Exported:
    """Write policy.onnx, policy.safetensors, policy.json and a model card of one seed into one folder.

    Args:
        run: what `train` returned, or the folder of a run.
        out: where to write; `exported` inside the run's folder by default. A folder that is there must be empty or
            an earlier export, which is replaced.
        seed: which of the trained seeds; the first one by default.
        proposals: how many proposals the graph tests per call, N; by default as many as in training.
        preference: weights of return and validity that `load` takes by default; the graph has them as an input.
        constraint: the set of a run that was trained with an `Oracle`, if the policy itself needs it.
    """
    path = getattr(run, "path", run)
    plan, folder = read_plan(path, seed), Path(path)
    if plan.preference is not None and preference is not None:
        plan = plan._replace(preference=preference)
    count = plan.head.proposals if proposals is None else proposals
    if not isinstance(count, int | np.integer) or not 1 <= count <= MOST_PROPOSALS:
        raise ConfigurationError(f"proposals={count}, but 1 to {MOST_PROPOSALS} are possible. Change it.")
    is_filtered = not names_code(plan.constraint)
    policy = policy_of(plan, known_constraint(plan)) if is_filtered else _unfiltered(plan, constraint)
    count = count if policy.head.takes_noise else 1
    manifest = _manifest(plan, policy, count, is_filtered)
    arrays = named_arrays(policy.parameters)
    model = policy_model(policy, count, identity(manifest), is_filtered=is_filtered)
    contents = {
        GRAPH: model.SerializeToString(deterministic=True),
        ARRAYS: save(arrays, metadata=identity(manifest)),
    }
    manifest["graph"] = {"inputs": _described(model.graph.input), "outputs": _described(model.graph.output)}
    manifest["arrays"] = {name: list(array.shape) for name, array in arrays.items()}
    manifest["files"] = {
        name: {"bytes": len(content), "sha256": checksum(content)} for name, content in contents.items()
    }
    contents[MANIFEST] = (json.dumps(sealed(manifest), indent=1) + "\n").encode()
    contents[CARD] = model_card(
        folder, plan, manifest["formula"] if is_filtered else None, has_graph=True
    ).encode()
    target = folder / DEFAULT_FOLDER if out is None else Path(out)
    _write(target, contents)
    sizes = {name: len(contents[name]) for name in FILES}
    return Exported(target, plan.task, plan.seed, count, is_filtered, sizes)


def model_card(run: Path, plan: Plan, formula: str | None, *, has_graph: bool) -> str:
    """Return the README.md of a folder with one policy, with the header that Hugging Face's hub reads.

    Args:
        run: the folder of the run. The returns are those of `inbounds evaluate`, if it evaluated the policy that the
            run holds now, at the preference of the plan.
        plan: the policy of one seed.
        formula: the constraint in words and symbols; `None` for an `Oracle`, whose caller must filter proposals.
        has_graph: whether policy.onnx lies in the folder.
    """
    learner = plan.learner["name"]
    title, names = f"{learner} on {plan.task}", ["reinforcement-learning", "inbounds", learner]
    found = _evaluated(run, plan)
    header = ["---", "library_name: inbounds", "pipeline_tag: reinforcement-learning"]
    header += ["tags:", *(f"- {json.dumps(name)}" for name in names)]
    at = "" if plan.preference is None else " --preference {} {}".format(*plan.preference)
    results = f"Not evaluated. `inbounds evaluate RUN{at}` before the export adds a table here."
    if found is not None:
        episodes, reward, std, valid, violation = found
        header += [
            "model-index:",
            f"- name: {json.dumps(title)}",
            "  results:",
            "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
            f"    dataset: {{type: {json.dumps(plan.task)}, name: {json.dumps(plan.task)}}}",
            "    metrics:",
            f"    - {{type: mean_reward, name: mean_reward, value: {reward:.6g} +/- {std:.3g}}}",
            f"    - {{type: valid_action_rate, name: valid action rate, value: {valid:.4f}}}",
        ]
        results = (
            f"| return of {episodes} episodes | valid action rate | worst violation |\n|---|---|---|\n"
            f"| {reward:.6g} ± {std:.3g} (standard deviation of episodes) | {valid:.4f} | {violation:g} |\n\n"
            "The valid action rate is that of the raw policy, before any correction. The worst violation is that of "
            "the executed actions."
        )
    constraint = [UNFILTERED]
    if formula is not None:
        constraint = [
            "Every executed action satisfies, without tolerance in float64:",
            "",
            "```text",
            formula,
            "```",
        ]
    graph = "\nWithout this library, `policy.onnx` runs in onnxruntime.\n" if has_graph else ""
    return "\n".join(
        [
            *header,
            "---",
            f"# {title}",
            "",
            f"Seed {plan.seed}; observations of {plan.observation_size} numbers, actions of {plan.box.low.size}.",
            "",
            "## Constraint",
            "",
            *constraint,
            "",
            "## Evaluation",
            "",
            results,
            "",
            "## Use",
            "",
            "```python",
            "import inbounds as ib",
            "",
            'policy = ib.load("FOLDER")       # this folder, in a clone or a download',
            "action = policy.act(observation)",
            "```",
            graph,
        ]
    )


def _evaluated(run: Path, plan: Plan) -> tuple[int, float, float, float, float] | None:
    """Return episodes, mean return, its std, valid action rate and worst violation of the run's last policy.

    There are none of another policy, nor of this one at another preference than that at which it acts.
    """
    path = run / EVALUATION
    if not path.is_file():
        return None
    evaluation = read_object(path, "Evaluate the run again: inbounds evaluate RUN.", EVALUATION_SHAPE)
    final, policy = evaluation["final"], run / POLICY_FILES["last"]
    if plan.seed not in final["seeds"] or evaluation.get("policy_sha256") != checksum(policy.read_bytes()):
        return None
    if plan.preference is not None and tuple(plan.preference) != tuple(final["preference"]):
        return None
    at = final["seeds"].index(plan.seed)
    columns = (final[name][at] for name in ("return", "return_std", "valid_action_rate"))
    return (final["episodes"], *columns, final["worst_violation"])


def _unfiltered(plan: Plan, constraint: Constraint | None) -> Policy:
    """Return a policy whose set only the caller knows; its proposals must not depend on the set."""
    if plan.head.asks_constraint:
        raise ConfigurationError(
            f"a policy with the head '{plan.head.kind}' asks its constraint for every proposal, but an Oracle is a "
            f"function that no graph can hold. Deploy it with load(path, constraint=...) in Python."
        )
    from inbounds.constraints import Box

    # The box of actions stands for the set, which the graph does not ask.
    known = Box(plan.box.low, plan.box.high) if constraint is None else constraint
    return policy_of(plan, known)


def _manifest(plan: Plan, policy: Policy, proposals: int, is_filtered: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": plan.task,
        "learner": plan.learner,
        "seed": plan.seed,
        "observation_size": plan.observation_size,
        "action_low": plan.box.low.tolist(),
        "action_high": plan.box.high.tolist(),
        "constraint": plan.constraint,
        "constraint_sha256": checksum_of_json(plan.constraint),
        "formula": policy.constraint.formula() if is_filtered else "a function (Oracle)",
        "is_feasible_by_construction": is_filtered,
        "caller": FEASIBLE if is_filtered else UNFILTERED,
        "head": dataclasses.replace(plan.head, proposals=proposals).to_json(),
        "noise": _noise(policy),
        "preference": None if policy.preference is None else policy.preference.tolist(),
    }


def _noise(policy: Policy) -> dict[str, Any] | None:
    """Say how to draw the noise; zeros give the action that the policy is centred on."""
    if not policy.head.takes_noise:
        return None
    if policy.head.student_df is None:
        return {"distribution": "standard normal", "deterministic": "zeros"}
    return {"distribution": "Student's t", "df": policy.head.student_df, "deterministic": "zeros"}


def _described(values: Any) -> list[dict[str, Any]]:
    """Return name, type and shape of the inputs or outputs of a graph."""
    from inbounds.deploy.onnx_graph import onnx_module

    helper = onnx_module().helper
    return [
        {
            "name": value.name,
            "type": str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            "shape": [side.dim_value for side in value.type.tensor_type.shape.dim],
        }
        for value in values
    ]


def _write(target: Path, contents: dict[str, bytes]) -> None:
    """Write all files or none; only an earlier export or an empty folder is ever replaced."""
    with told(target):
        why = _not_ours(target) if target.exists() else None
    if why:
        raise ConfigurationError(
            f"{target} {why}. Only an earlier export is replaced. Choose a new folder with --out (out=...), or "
            f"remove this one if it is a damaged export."
        )
    write_folder(target, {name: [content] for name, content in contents.items()})


def _not_ours(target: Path) -> str | None:
    """Say why what exists under a name must not be replaced; `None` for an empty folder or an earlier export."""
    if not target.is_dir():
        return "is not a folder"
    inside = sorted(target.iterdir())
    if others := [path.name for path in inside if path.name not in FILES or not path.is_file()]:
        return f"holds other files ({', '.join(others[:3])})"
    if not inside:
        return None
    try:
        written_as = read_json(target / MANIFEST).get("format")
    except (CheckpointError, FileNotFoundError):
        written_as = None
    # An export of an older version, and one whose graph was damaged or left behind, may be written anew.
    return None if written_as == FORMAT else f"holds {inside[0].name}, but no {MANIFEST} that an export wrote"
