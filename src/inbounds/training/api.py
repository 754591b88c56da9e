"""`train`: from a task and a learner to a run folder, in one call."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from inbounds.deploy.policy import learnt_weights
from inbounds.errors import ConfigurationError, InvalidInputError, told_by_python
from inbounds.learners.learner import Learner
from inbounds.limits import require_moderate
from inbounds.tasks.normalisation import with_recorded_scales
from inbounds.tasks.task import Task
from inbounds.training.config import CHANGEABLE, TrainingConfig
from inbounds.training.loop import LOG, Training, resolved
from inbounds.training.record import (
    RunFolder,
    as_recorded,
    as_tuples,
    described_task,
    own_reward_scale,
    provenance,
    require_same_constraint,
)
from inbounds.training.summary import Callback, RunSummary


def train(
    task: Task | str,
    learner: Learner | str = "aram",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    warn: Callable[[str], None] = told_by_python,
    command: str | None = None,
    **settings: Any,
) -> RunSummary:
    """Train a learner on a task and return the summary of the run.

    Args:
        task: a task or the name of one of ours.
        learner: a learner or its name.
        out: the run folder; by default runs/TASK-LEARNER-TIME.
        resume: go on with the run in `out`, from its newest checkpoint and with its settings; those given here may be
            more `steps`, and others that do not change what was learnt. A run without a checkpoint begins again.
        callbacks: called with every row that is logged (`ib.MetricsRow`, `ib.EvaluationRow`); one that returns True
            stops the run after a checkpoint.
        warn: called with what a user should know but need not act upon; by default a Python warning.
        command: the command line that asked for the run, which its provenance keeps.
        settings: fields of `TrainingConfig`: steps, seeds, environments, ...
    """
    from inbounds.learners.registry import make_learner, name_of
    from inbounds.tasks.registry import make

    chosen = make(task) if isinstance(task, str) else task
    agent = make_learner(learner) if isinstance(learner, str) else learner
    if not isinstance(chosen, Task):
        raise ConfigurationError(
            f"train() needs a task, not {task!r}. Give the name of one, or ib.Task(environment, constraint)."
        )
    if not isinstance(agent, Learner):
        raise ConfigurationError(
            f"train() needs a learner, not {learner!r}. Give the name of one, or an instance such as ib.Aram()."
        )
    chosen.constraint.to_json()  # what no run folder can hold is refused before anything is played or compiled
    require_moderate(vars(agent))
    fields = {field.name for field in dataclasses.fields(TrainingConfig)}
    unknown = sorted(set(settings) - fields)
    if unknown:
        raise ConfigurationError(
            f"train() has no setting {', '.join(unknown)}. Known: {', '.join(sorted(fields))}."
        )
    wanted = settings.get("out") if out is None else out
    if wanted == "":
        raise ConfigurationError(
            "out='' names no folder. Name one, or leave it out for runs/TASK-LEARNER-TIME."
        )
    # A callback or a simulator may change the working directory, and the run stays where it began.
    path = Path(default_folder(chosen.name, name_of(agent)) if wanted is None else wanted).absolute()
    folder = RunFolder(path)
    if resume:
        folder.config()  # what is not a run is told so, and gets no lock
    with folder.held() if resume else contextlib.nullcontext():
        recorded = folder.config() if resume else None
        config = TrainingConfig(**settings) if recorded is None else resumed_config(settings, recorded, path)
        if config.device is not None:
            jax.config.update(
                "jax_platforms", {"cpu": "cpu", "gpu": "cuda"}.get(config.device, config.device)
            )
        require_learnt_preference(agent, config)
        if recorded is not None:
            require_same_task(chosen, recorded, path)
            require_same_learner(agent, name_of(agent), recorded, path)
        unscaled, chosen = chosen, scaled_task(chosen, agent, config, recorded)
        if chosen.is_reward_scaled:
            is_measured_now = chosen.reward_divisor != unscaled.reward_divisor
            callbacks = (*callbacks, FarRewardWarning(warn, is_measured_now))
        if not (chosen.ends_only_in_failure and chosen.is_reward_scaled):
            callbacks = (*callbacks, RewardWarning(agent, warn))  # nothing has lifted the rewards
        training = Training(chosen, agent, config, folder, callbacks)
        with contextlib.closing(training), folder.held():
            if recorded is None:
                settled = resolved(chosen, agent, name_of(agent), config, training.environments)
                settled["own_reward_scale"] = own_reward_scale(unscaled)
                folder.create(settled, {**provenance(), **({} if command is None else {"command": command})})
                begin(training)
            else:
                go_on(training, warn)
            LOG.info("%s on %s, in %s", name_of(agent), chosen.name, path)
            training.run()
    return RunSummary.read(path)


def require_learnt_preference(learner: Learner, config: TrainingConfig) -> None:
    """Refuse to evaluate policies at a preference that they do not learn."""
    if learner.preference_size:
        try:
            learnt_weights(config.preference, learner.min_return_weight)
        except InvalidInputError as error:
            raise ConfigurationError(str(error)) from error


def begin(training: Training) -> None:
    """Start a run at its first step and record how long that took."""
    training.start()
    training.folder.amend_provenance(preparation_seconds=round(training.seconds, 2))


def go_on(training: Training, warn: Callable[[str], None]) -> None:
    """Resume a run where its newest checkpoint is, or begin it again where it died before its first one."""
    folder = training.folder
    folder.restore_provenance(provenance())
    if folder.checkpoint_folders():
        step, is_exact = training.resume(warn), training.collector.exact_resume
    else:
        step, is_exact = 0, True
        warn(f"{folder.path} has no checkpoint yet, so the run begins again, with the settings it has.")
        folder.cut_logs(-1)
        begin(training)
    changeable = {name: getattr(training.config, name) for name in CHANGEABLE if name != "out"}
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    folder.record_resume(changeable, step, when, is_exact)


def resumed_config(given: Mapping[str, Any], recorded: Mapping[str, Any], path: Path) -> TrainingConfig:
    """Return the settings of a resumed run: its own, unless others are given that may change."""
    fields = {field.name for field in dataclasses.fields(TrainingConfig)} - {"out"}
    settings = {name: as_tuples(value) for name, value in recorded["training"].items() if name in fields}
    for name, value in as_tuples(as_recorded(given)).items():
        if name not in fields or value is None or settings.get(name) == value:
            continue
        if name not in CHANGEABLE:
            raise ConfigurationError(
                f"{path} was trained with {name}={settings.get(name)}, and {value} would make another run of it. "
                f"Resume with {name}={settings.get(name)}, or leave it out; or train in another folder."
            )
        settings[name] = value
    return TrainingConfig(**settings)


def require_same_task(task: Task, recorded: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume a run on another task than it was begun on: one folder describes one problem.

    Reward scales are compared as the task brings them along. Those that training measured are recorded beside them,
    and a resumed run goes on with these.
    """
    require_same_constraint(task, recorded, path)
    # The scales of observations are not compared: those of the run are used, as in its evaluation.
    # Runs without `own_reward_scale` record only the scale that training used, which it may have measured.
    begun = {name: recorded[name] for name in described_task(task) if name in recorded}
    begun |= recorded.get("own_reward_scale", {})
    for name, value in as_recorded({**described_task(task), **own_reward_scale(task)}).items():
        if name in begun and begun[name] != value:
            raise ConfigurationError(
                f"{path} was trained with {name} {begun[name]}, the task has {value}. Resume with the same, "
                f"or train in another folder."
            )


def require_same_learner(learner: Learner, name: str, run: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume with other settings than the run began with, which its folder would not tell."""
    recorded = run["learner"]
    settings = dataclasses.asdict(learner)  # type: ignore[call-overload]  # every learner is a dataclass
    for field, value in as_recorded({"name": name, **settings}).items():
        if field in recorded and recorded[field] != value:
            raise ConfigurationError(
                f"{path} was trained by a learner with {field} {recorded[field]}, not {value}. Resume with the "
                f"same, or train in another folder."
            )


def scaled_task(
    task: Task, learner: Learner, config: TrainingConfig, recorded: Mapping[str, Any] | None
) -> Task:
    """Return the task with the scales that are wanted: measured now, or those that a resumed run began with.

    What was measured by `task.normalised(...)` or chosen by the user is left alone, unless the training asks for more.
    """
    if recorded is not None:
        return with_recorded_scales(task, recorded)
    wanted = wanted_scales(task, learner, config)
    if not any(wanted):
        return task
    return task.normalised(observations=wanted.observations, rewards=wanted.rewards)


FAR_REWARD = 100.0
"""How far below zero a scaled reward is before `train` warns; random actions gave rewards of deviation one."""


class Scales(NamedTuple):
    """What is measured before training."""

    observations: bool
    rewards: bool


def wanted_scales(task: Task, learner: Learner, config: TrainingConfig) -> Scales:
    """Return what the training asks for, or else the learner, where nothing was measured or chosen before."""
    observations, rewards = config.scale_observations, config.scale_rewards
    if observations is None:
        observations = task.observation_scale is None and learner.scales_task
    if rewards is None:
        rewards = not task.is_reward_scaled and learner.scales_task
    return Scales(observations, rewards)


def default_folder(task: str, learner: str) -> Path:
    """Return a folder that names the run and does not exist yet."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = Path("runs") / f"{task}-{learner}-{stamp}"
    others = (first.with_name(f"{first.name}-{count}") for count in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


class FarRewardWarning:
    """Scales that were chosen before training may not know rare events, such as a fall; a callback of `train`."""

    def __init__(
        self, tell: Callable[[str], None] = told_by_python, is_measured_by_training: bool = True
    ) -> None:
        """Watch rewards that were divided by a scale which training measured, or which the task brought along."""
        self.tell = tell
        self.is_measured_by_training = is_measured_by_training
        self.is_needed = True

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Look at one row."""
        lowest = row.get("lowest_reward")
        if self.is_needed and lowest is not None and lowest < -FAR_REWARD:
            self.is_needed = False
            self.tell(
                f"a training reward of {lowest:.4g} was seen. {self._cause()}, or train with "
                f"ib.Aram(preset='normalised'), which scales returns as they are met."
            )

    def _cause(self) -> str:
        if self.is_measured_by_training:
            return (
                "Rewards are divided by their deviation under random actions, and those met nothing like it, so that "
                "this event outweighs all others. Train with scale_rewards=False"
            )
        return (
            "The task's own reward scale makes this event outweigh all others. Measure it over more steps, "
            "task.normalised(steps=20_000), raise reward_divisor"
        )


class RewardWarning:
    """Proposition 1 needs r >= 0, since a rejected proposal earns 0; a callback of `train`."""

    def __init__(self, learner: Any, tell: Callable[[str], None] = told_by_python) -> None:
        """Watch learners that are trained on the augmented MDP; the others need no sign."""
        self.tell = tell
        self.is_needed = learner.needs_positive_rewards

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Look at one row."""
        lowest = row.get("lowest_reward")
        if self.is_needed and lowest is not None and lowest < 0:
            self.is_needed = False
            self.tell(
                f"a training reward of {lowest:.3g} was seen. The augmented MDP has the task's optimal policies only "
                f"if rewards are not negative, since a rejected proposal earns 0. Where episodes never end early or "
                f"end only in failure, tell the task so (`ends_only_in_failure`) and rewards are lifted, or raise "
                f"`reward_shift` where the task sets it. Elsewhere train ib.Aram(), whose followed "
                f"self-loops need no sign of rewards."
            )
