"""`inbounds render`: a film of a trained or a reference policy, with the constraint's use drawn into it."""

from __future__ import annotations

import dataclasses
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from inbounds.cli.device import started_device
from inbounds.cli.output import require_writable
from inbounds.cli.terminal import Terminal
from inbounds.errors import ConfigurationError, InvalidInputError


@dataclasses.dataclass(frozen=True)
class Options:
    """Film one episode of a policy: of a run, or one of the task's reference policies."""

    task: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="TASK")] = None
    """Name of the task; may be left out where a run tells it."""
    policy: Annotated[str, tyro.conf.arg(metavar="RUN|NAME")] = "uniform"
    """A run folder, or a reference policy (uniform, interior, ...; `inbounds list tasks`)."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """An .mp4 or .gif; by default TASK-POLICY.mp4, or .gif where no encoder is installed."""
    seed: int = 0
    """Seed of the episode."""
    policy_seed: int | None = None
    """Which of the run's seeds acts; by default its first."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Preference of a preference-conditioned policy."""
    steps: int | None = None
    """Film so many steps at most; by default the whole episode."""


def run(arguments: list[str]) -> int:
    """Film an episode."""
    options = tyro.cli(Options, prog="inbounds render", args=arguments)
    started_device()
    from inbounds.evaluation.baselines import reference_names, reference_policy
    from inbounds.evaluation.inference import compiled_policy
    from inbounds.evaluation.trained import TrainedRun
    from inbounds.report.video import write_video
    from inbounds.tasks.registry import make

    if Path(options.policy).is_dir():
        opened = TrainedRun.open(options.policy)
        task = opened.task
        if options.task not in (None, task.name):
            raise ConfigurationError(
                f"{options.policy} is a run of {task.name}, not of {options.task}. Leave the task out."
            )
        chosen = opened.only(opened.seeds[0] if options.policy_seed is None else options.policy_seed)
        act = compiled_policy(chosen, options.preference)
        name = Path(options.policy).resolve().name
    else:
        if options.task is None:
            raise ConfigurationError(
                "which task? A reference policy needs one: inbounds render reacher --policy uniform."
            )
        task, name = make(options.task), options.policy
        if name not in reference_names(task):
            raise InvalidInputError(
                f"'{name}' is neither a run folder nor a reference policy of {task.name}. "
                f"Give one of these: {', '.join(reference_names(task))}."
            )
        reference, generator = reference_policy(task, name), np.random.default_rng(options.seed)
        act = lambda observation: reference(observation, generator)  # noqa: E731
    ending = ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"
    target = options.out or Path(f"{task.name}-{name}{ending}")
    require_writable(target)
    environment = task.make_environment(render_mode="rgb_array")
    episode = Episode()
    frames = play(environment, act, options.seed, options.steps or task.horizon, episode)
    with warnings.catch_warnings():
        # The encoder is a program of its own, started at once: nothing runs in the copy that JAX warns about.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        write_video(frames, target, fps=float(environment.metadata["render_fps"]))
    environment.close()
    Terminal().say(
        f"{task.name}, {name}: {episode.steps} steps, return {episode.total:.5g}, every action feasible. "
        f"Wrote {target}"
    )
    return 0


@dataclasses.dataclass
class Episode:
    """What the film shows, in numbers."""

    steps: int = 0
    total: float = 0.0


def play(environment: Any, act: Any, seed: int, steps: int, episode: Episode) -> Iterator[NDArray[np.uint8]]:
    """Play one episode and yield a picture of every state; the guard refuses what is infeasible."""
    observation, _ = environment.reset(seed=seed)
    yield environment.render()
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = environment.step(act(observation))
        episode.steps += 1
        episode.total += float(reward)
        yield environment.render()
        if terminated or truncated:
            return
