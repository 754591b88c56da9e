"""`check_task`: does an environment with its constraint mean what its author thinks, before hours are spent on it?"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.constraints import Box
from inbounds.errors import ConfigurationError, EmptySetError, InboundsError
from inbounds.tasks.environment import episode, rollout
from inbounds.tasks.gymnasium_batch import GymnasiumBatch
from inbounds.tasks.gymnasium_group import Group
from inbounds.tasks.named_parts import references_of
from inbounds.tasks.task import Task
from inbounds.tasks.task_report import THIN as RARE
from inbounds.tasks.task_report import Finding, TaskReport, recommended

STATES, SAMPLES = 100, 1_000
"""Visited states at which the set is compared with its box, and uniform actions of the box at each."""
COMPILED_STATES = 8
"""Visited states in which the set is evaluated at once in a compiled function, as in training."""
UNIT_CHANGERS = ("RescaleAction", "ClipAction", "TransformAction", "NormalizeAction")
"""Wrappers after which actions have other units than those of the simulator."""


class Played(NamedTuple):
    """What happened under uniformly feasible actions."""

    observations: NDArray[np.float64]
    actions: NDArray[np.float64]
    rewards: NDArray[np.float64]
    endings: int
    """How many episodes the environment itself ended, by failure or success."""
    trouble: Finding | None
    """What stopped it early."""


def check_task(task: Task, *, steps: int = 300, seed: int = 0) -> TaskReport:
    """Play some steps with uniformly feasible actions and report what looks like a mistake, with its remedy.

    Looked for: an environment that does not follow its seed, values that are not numbers, states in which no
    action is feasible, a set that never binds or that hardly any action satisfies, a set that fails in the compiled
    functions of training, units that do not fit, entries of the observation that are not what the constraint takes
    them for, and scales that networks dislike. The report ends with the learner to try first.
    """
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"check_task looks at a Task, not at {task!r}. Pass ib.Task(environment, constraint)."
        )
    for name, value, least in (("steps", steps, 1), ("seed", seed, 0)):
        if not isinstance(value, int | np.integer) or value < least:
            raise ConfigurationError(f"{name}={value!r} is not an integer of {least} or more. Pass one.")
    played = play(task, steps, seed)
    findings = [] if played.trouble is None else [played.trouble]
    share = None
    if played.trouble is None or len(played.rewards):
        findings += about_seeds(task, seed)
    findings += [*about_units(task, played), *about_writing(task)]
    if len(played.observations):
        share, more = about_the_set(task, played, np.random.default_rng(seed))
        findings += [*more, *about_readings(task, played), *about_scales(task, played)]
        findings += about_compiled_answers(task, played, np.random.default_rng(seed))
    if len(played.rewards):
        findings += about_rewards(task, played)
    order = ("problem", "warning", "note")
    ordered = tuple(sorted(findings, key=lambda finding: order.index(finding.level)))
    first = recommended(task, share)
    return TaskReport(task.name, task.constraint.formula(), ordered, len(played.rewards), share, first)


def play(task: Task, steps: int, seed: int) -> Played:
    """Take steps with uniformly feasible actions until something goes wrong."""
    seen: list[Any] = []
    done: list[Any] = []
    paid: list[float] = []
    trouble, endings = None, 0
    environment = task.make_environment()
    try:
        environment.action_space.seed(seed)
        first, _ = environment.reset(seed=seed)

        def act(observation: NDArray[np.float64]) -> Any:
            seen.append(observation)
            return environment.action_space.sample()

        for step in itertools.islice(rollout(environment, act, first), steps):
            done.append(step.action)
            paid.append(step.reward)
            endings += step.terminated
    except EmptySetError as error:
        trouble = Finding(
            "problem",
            f"no action is feasible in a state that was reached after {len(paid)} steps: {error}",
            "Loosen the constraint there (a bound read from the observation may need a floor), or end the episode "
            "before it gets there. At run time such a state stops training.",
        )
    except InboundsError as error:
        trouble = Finding("problem", str(error), "Correct this first; nothing else can be trusted before.")
    finally:
        environment.close()
    size = (len(seen), task.observation_size)
    return Played(
        np.asarray(seen, np.float64).reshape(size),
        np.asarray(done, np.float64).reshape(len(done), task.action_size),
        np.asarray(paid),
        endings,
        trouble,
    )


def about_seeds(task: Task, seed: int) -> Iterator[Finding]:
    """Compare two environments that got the same seed and the same actions."""
    tracks = [_track(task, seed) for _ in range(2)]
    if not np.array_equal(tracks[0][0], tracks[1][0]):
        yield Finding(
            "warning",
            "two resets with the same seed begin differently, so that no run can be repeated",
            "Call super().reset(seed=seed) and draw all randomness from self.np_random.",
        )
    elif not all(np.array_equal(one, other) for one, other in zip(*tracks, strict=False)):
        yield Finding(
            "warning",
            "the same seed and the same actions lead to different states, so that no run can be repeated",
            "Draw the randomness of step from self.np_random, or accept that runs differ.",
        )


def _track(task: Task, seed: int) -> list[NDArray[np.float64]]:
    """Return the first observations under feasible actions that are drawn from the seed."""
    with contextlib.closing(task.make_environment()) as environment:
        environment.action_space.seed(seed)
        track = [environment.reset(seed=seed)[0]]
        with contextlib.suppress(InboundsError):  # what stops an episode has been reported before
            steps = episode(environment, lambda observation: environment.action_space.sample(), track[0])
            for step in itertools.islice(steps, 10):
                track.append(step.next_observation)
    return track


def about_writing(task: Task) -> Iterator[Finding]:
    """Write the constraint down, as every run folder does."""
    try:
        task.constraint.to_json()
    except InboundsError as error:
        yield Finding("problem", str(error), "Training refuses to begin before that.")


def about_units(task: Task, played: Played) -> Iterator[Finding]:
    """Look for signs that constraint and environment speak different units."""
    inner: Any = None
    if task.host is not None:
        batch = task.host(1, 1)
        batch.close()
        if isinstance(batch, GymnasiumBatch) and isinstance(batch.group, Group):
            inner = batch.group.environments[0]
    while inner is not None and hasattr(inner, "env"):
        kind = type(inner).__name__
        if kind in UNIT_CHANGERS:
            yield Finding(
                "note",
                f"the wrapper {kind} stands between the actions and the simulator",
                f"The constraint speaks of what the outermost step receives, here the box [{_short(task.action_low)}, "
                f"{_short(task.action_high)}]; check that its numbers are in these units.",
            )
        inner = inner.env
    if len(played.actions) < 30:
        return
    used = np.ptp(played.actions, axis=0) / (task.action_high - task.action_low)
    for entry in np.flatnonzero(used < 0.01):
        yield Finding(
            "warning",
            f"all feasible actions met use {100 * used[entry]:.2g} % of the range of entry {entry}, "
            f"[{task.action_low[entry]:g}, {task.action_high[entry]:g}]",
            "If the limit is that tight, add ib.Box(low, high) with the range that matters, so that the policy need "
            "not search all of it; if not, one of the two is in other units (normalised or physical).",
        )


def about_the_set(task: Task, played: Played, rng: np.random.Generator) -> tuple[float | None, list[Finding]]:
    """Compare the set with its box at visited states: never binding, hardly ever satisfied, or empty."""
    chosen = np.linspace(0, len(played.observations) - 1, min(STATES, len(played.observations))).astype(int)
    observations = played.observations[np.unique(chosen)]
    box = np.stack([task.action_low, task.action_high]).astype(np.float64)
    actions = rng.uniform(box[0], box[1], (len(observations), SAMPLES, task.action_size))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a state with trouble has been reported before
            accepted = np.asarray(task.constraint.contains(observations[:, None, :], actions))
    except InboundsError as error:
        return None, [Finding("problem", f"the constraint cannot be evaluated: {error}", "Correct it first.")]
    shares = np.broadcast_to(accepted, actions.shape[:-1]).mean(axis=1)
    share = float(shares.mean())
    found: list[Finding] = []
    if all(isinstance(member, Box) for member in task.constraint.members()):
        if task.constraint.is_constant() and share == 1.0:
            remedy = "Nothing has to be learnt about it. Pass a constraint if there is one beside the box."
            found.append(Finding("note", "there is no limit beside the box of the actions", remedy))
    elif share == 1.0:
        found.append(
            Finding(
                "warning",
                f"the set never binds: all of {actions.shape[0] * SAMPLES:,} uniform actions of the box "
                f"[{_short(box[0])}, {_short(box[1])}] are feasible in the states met",
                "Check the units of its bound (those of env.step) and the entries it reads. If it binds only in "
                "states that random actions do not reach, all is well.",
            )
        )
    if share < RARE:
        found.append(
            Finding(
                "warning",
                f"uniform actions of the box are feasible with probability {share:.1g}",
                "Proposals will be projected until the policy has found the set, and always where the set is an "
                "equality. Leave one entry out and let the environment compute it (weights of a portfolio: the "
                "cash), narrow the box, or use a learner that projects: 'dpre', 'spre'.",
            )
        )
    elif float((shares < RARE).mean()) > 0.05:
        found.append(
            Finding(
                "note",
                f"in {100 * float((shares < RARE).mean()):.0f} % of the states met hardly any uniform action is "
                f"feasible, although {100 * share:.2g} % are on average",
                "Expect projections in those states until the policy has found the set.",
            )
        )
    return share, found


def about_compiled_answers(task: Task, played: Played, rng: np.random.Generator) -> Iterator[Finding]:
    """Evaluate the set as training does: in many states at once, in float32, compiled and mapped over seeds."""
    import jax

    chosen = np.linspace(0, len(played.observations) - 1, min(COMPILED_STATES, len(played.observations)))
    observations = played.observations[chosen.astype(int)]
    actions = rng.uniform(task.action_low, task.action_high, (len(observations), task.action_size))
    actions = actions.astype(np.float32)

    def answers(observation: Any, action: Any) -> tuple[Any, Any]:
        return task.constraint.contains(observation, action), task.constraint.project(observation, action)

    with np.errstate(over="ignore"):
        seen = observations.astype(np.float32)
    try:
        asked = jax.jit(jax.vmap(answers))(seen[None], actions[None])
        accepted, projected = (np.asarray(answer)[0] for answer in asked)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        yield Finding(
            "problem",
            f"training evaluates {len(observations)} states at once in a compiled function, and the constraint fails "
            f"there with {type(error).__name__}: {reason}",
            "If a constraint of your own is part of it, use array-API functions that keep leading axes, and try it "
            "with ib.check_constraint. If not, report this error with the constraint.",
        )
        return
    executed = np.where(accepted[:, None], actions, projected).astype(np.float64)
    is_answer = np.asarray(np.isfinite(executed).all(axis=-1))
    excess = np.asarray(
        task.constraint.violation(observations, np.where(is_answer[:, None], executed, actions))
    )
    is_wrong = ~is_answer | ~(excess <= 0)
    if not is_wrong.any():
        return
    try:
        task.constraint.interior_point(observations[is_wrong], dimension=task.action_size)
    except EmptySetError:  # a state without any action has been reported before
        return
    yield Finding(
        "problem",
        f"in {is_wrong.sum()} of {len(is_wrong)} states met, the float32 numbers of training have no action that is "
        f"feasible in float64, first at the observation {observations[is_wrong][0]}",
        "The set is thin next to the size of its numbers: widen it, or state the problem in units in which actions "
        "are about 1.",
    )


def about_readings(task: Task, played: Played) -> Iterator[Finding]:
    """Look at the entries of the observation that the constraint reads."""
    for kind, argument, reference in references_of(task.constraint):
        values = np.asarray(reference.read_unscaled(played.observations)).reshape(
            len(played.observations), -1
        )
        where = f"{argument} of {kind} reads {reference}{_names_of(task, reference)}"
        is_still = np.ptp(values, axis=0) == 0
        if len(values) > 1 and is_still.any():
            count = "which never changes" if is_still.all() else f"of which {is_still.sum()} never change"
            yield Finding(
                "warning",
                f"{where}, {count} (it is {_short(values[0][is_still])})",
                "Check the indices: print(task.observation_parts), or name the part: ib.obs['key']. If the value is "
                "a constant of the problem, write the number.",
            )
        elif argument == "weights" and kind == "PowerBudget" and (values.min() >= 0 or values.max() <= 0):
            yield Finding(
                "note",
                f"{where}, whose values never change sign (they are in [{values.min():.3g}, {values.max():.3g}])",
                "A power is torque times velocity: check that these are velocities and not their sizes.",
            )


def about_scales(task: Task, played: Played) -> Iterator[Finding]:
    """Look at how large the entries of observations are, which networks see as they are."""
    largest = np.abs(played.observations).max(axis=0)
    if task.observation_scale is None and largest.max() > 1e3:
        entry = int(largest.argmax())
        name = f" ({task.observation_names[entry]})" if task.observation_names else ""
        yield Finding(
            "warning",
            f"entry {entry} of the observation{name} reaches {largest[entry]:.3g}, which networks learn badly from",
            "Train on task.normalised(): scales are measured once, saved and exported with the policy.",
        )


def about_rewards(task: Task, played: Played) -> Iterator[Finding]:
    """Look at the reward that learners see."""
    if not np.isfinite(played.rewards).all():
        yield Finding("problem", "a reward is not a finite number", "Correct the environment's reward.")
        return
    if np.ptp(played.rewards) == 0 and len(played.rewards) > 1 and not played.endings:
        yield Finding(
            "warning",
            f"every step paid {played.rewards[0]:g}, whatever was done",
            "Check that the reward depends on the action, or take more steps: check_task(task, steps=...).",
        )


def _names_of(task: Task, reference: Any) -> str:
    """Write what the entries are called, where the task says it."""
    if not task.observation_names:
        return ""
    indices = np.arange(len(task.observation_names), dtype=np.float64)
    chosen = np.atleast_1d(np.asarray(reference.read_unscaled(indices))).ravel().astype(int)
    names = [task.observation_names[index] for index in chosen]
    return f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _short(values: NDArray[Any]) -> str:
    """Write an array in a few characters."""
    flat = np.unique(np.ravel(values))
    return f"{flat[0]:.3g}" if len(flat) == 1 else f"{flat[0]:.3g}..{flat[-1]:.3g}"
