"""`train`: from a task and a learner to a run folder, in one call."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from inbounds.errors import ConfigurationError
from inbounds.learners.learner import Learner
from inbounds.tasks.normalisation import with_recorded_scales
from inbounds.tasks.task import Task
from inbounds.training.config import TrainingConfig
from inbounds.training.loop import Callback, Training, resolved
from inbounds.training.provenance import provenance
from inbounds.training.record import RunFolder, as_recorded, require_same_constraint
from inbounds.training.reward_sign import RewardWarning, told_by_python
from inbounds.training.summary import RunSummary


def train(
    task: Task | str,
    learner: Learner | str = "aram",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    warn: Callable[[str], None] = told_by_python,
    **settings: Any,
) -> RunSummary:
    """Train a learner on a task and return the summary of the run.

    Args:
        task: a task or the name of one of the nine.
        learner: a learner or its name.
        out: the run folder; by default runs/TASK-LEARNER-TIME.
        resume: go on from the newest checkpoint in `out`.
        callbacks: called with every logged row; one that returns True stops the run after a checkpoint.
        warn: told what a user should know but need not act upon; by default a Python warning.
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
    if isinstance(agent, type) or not hasattr(agent, "update"):
        raise ConfigurationError(
            f"train() needs a learner, not {learner!r}. Give the name of one, or an instance such as ib.Aram()."
        )
    fields = {field.name for field in dataclasses.fields(TrainingConfig)}
    unknown = sorted(set(settings) - fields)
    if unknown:
        raise ConfigurationError(
            f"train() has no setting {', '.join(unknown)}. Known: {', '.join(sorted(fields))}."
        )
    config = TrainingConfig(**settings)
    least = getattr(agent, "least_return_weight", 0.0)
    if getattr(agent, "conditions", 0) and config.preference[0] < least:
        raise ConfigurationError(
            f"preference={config.preference} is judged but not learnt: weights of the return are learnt from {least:g} "
            f"on. Raise the first weight, or lower least_return_weight."
        )
    path = Path(out) if out is not None else config.out or default_folder(chosen.name, name_of(agent))
    if config.device is not None:
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda"}.get(config.device, config.device))
    folder = RunFolder(path)
    if resume:
        require_same_task(chosen, folder)
        require_same_learner(agent, name_of(agent), folder)
        config = with_recorded_episodes(config, folder)
    chosen = scaled_task(chosen, agent, config, folder.config() if resume else None)
    if not (chosen.ends_only_in_failure and chosen.is_reward_scaled):
        callbacks = (*callbacks, RewardWarning(agent, warn))  # nothing has lifted the rewards
    training = Training(chosen, agent, config, folder, callbacks)
    if resume:
        training.resume()
        folder.extend(config.steps)
    else:
        folder.create(resolved(chosen, agent, name_of(agent), config, training.environments), provenance())
        training.start()
        folder.amend_provenance(preparation_seconds=round(training.seconds, 2))
    training.run()
    return RunSummary.read(path)


def require_same_task(task: Task, folder: RunFolder) -> None:
    """Refuse to resume a run on another task than it was begun on: one folder describes one problem."""
    recorded = folder.config()
    require_same_constraint(task, recorded, folder.path)
    now = {
        "task": task.name,
        "action_low": task.action_low.tolist(),
        "action_high": task.action_high.tolist(),
        "discount": task.discount,
    }
    for name, value in now.items():
        if name in recorded and recorded[name] != value:
            raise ConfigurationError(
                f"{folder.path} was trained with {name} {recorded[name]}, the task has {value}. Resume with the same, "
                f"or train in another folder."
            )


def require_same_learner(learner: Learner, name: str, folder: RunFolder) -> None:
    """Refuse to resume with other settings than the run began with, which its folder would not tell."""
    recorded = folder.config()["learner"]
    settings = dataclasses.asdict(learner)  # type: ignore[call-overload]  # every learner is a dataclass
    for field, value in as_recorded({"name": name, **settings}).items():
        if field in recorded and recorded[field] != value:
            raise ConfigurationError(
                f"{folder.path} was trained by a learner with {field} {recorded[field]}, not {value}. Resume with the "
                f"same, or train in another folder."
            )


def with_recorded_episodes(config: TrainingConfig, folder: RunFolder) -> TrainingConfig:
    """Return the settings of a resumed run, judged as it was: other episodes know another best policy."""
    recorded = folder.config()["training"]["episodes"]
    if config.episodes not in (None, recorded):
        raise ConfigurationError(
            f"{folder.path} is judged by {recorded} episodes, not {config.episodes}: what was the best until now could "
            f"not be compared. Resume with episodes={recorded}, or leave it out."
        )
    return dataclasses.replace(config, episodes=recorded)


def scaled_task(
    task: Task, learner: Learner, config: TrainingConfig, recorded: Mapping[str, Any] | None
) -> Task:
    """Return the task with the scales that are wanted: measured now, or those that a resumed run began with.

    What was measured by `task.normalised(...)` or chosen by the user is left alone, unless the training asks for more.
    """
    wanted = wanted_scales(task, learner, config)
    if not any(wanted):
        return task
    if recorded is not None:
        return with_recorded_scales(task, recorded)
    return task.normalised(observations=wanted.observations, rewards=wanted.rewards)


class Scales(NamedTuple):
    """What is measured before training."""

    observations: bool
    rewards: bool


def wanted_scales(task: Task, learner: Learner, config: TrainingConfig) -> Scales:
    """Return what the training asks for, or else the learner, where nothing was measured or chosen before."""
    observations, rewards = config.scale_observations, config.scale_rewards
    if observations is None:
        observations = task.observation_scale is None and getattr(learner, "scale_observations", False)
    if rewards is None:
        rewards = not task.is_reward_scaled and getattr(learner, "scale_rewards", False)
    return Scales(observations, rewards)


def default_folder(task: str, learner: str) -> Path:
    """Return a folder that names the run and does not exist yet."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{task}-{learner}-{stamp}"
