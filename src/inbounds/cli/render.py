"""`inbounds render`: a film of a trained or a reference policy, with the constraint's use drawn into it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import itertools
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from inbounds.cli.options import started_device
from inbounds.cli.terminal import Terminal, require_writable
from inbounds.errors import ConfigurationError, InboundsError, InvalidInputError, MissingDependencyError
from inbounds.limits import require_whole
from inbounds.storage.files import replacing
from inbounds.tasks.named_tasks import METAVAR, is_import_path, named_task, task_behind, task_of_run
from inbounds.training.record import RunFolder


@dataclasses.dataclass(frozen=True)
class Options:
    """Film one episode of a policy: of a run, or one of a task's reference policies."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=f"RUN|{METAVAR}")]
    """A run folder; or a task, of which a reference policy is filmed."""
    behind: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[TASK]")] = None
    """FILE.py:TASK or MODULE:TASK behind the folder of a run, if the task is your own."""
    task: Annotated[str | None, tyro.conf.arg(metavar="FILE.py:TASK|MODULE:TASK")] = None
    """The same as TASK behind the folder."""
    policy: Annotated[str, tyro.conf.arg(metavar="NAME")] = "uniform"
    """A reference policy (uniform, interior, ...; `inbounds list tasks`), where no run is given."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """An .mp4 or .gif; by default TASK-POLICY.mp4, or .gif where no encoder is installed."""
    seed: int = 0
    """Seed of the episode."""
    policy_seed: int | None = None
    """Which of the run's seeds acts; by default its first."""
    preference: tuple[float, float] | None = None
    """Preference of a preference-conditioned policy; by default that of the run."""
    steps: int | None = None
    """Film so many steps at most; by default the whole episode."""


def require_possible(seed: int, steps: int | None) -> None:
    """Refuse numbers of an episode that cannot be played."""
    require_whole(0, seed=seed)
    if steps is not None:
        require_whole(1, steps=steps)


class Player(NamedTuple):
    """Who acts where."""

    task: Any
    name: str
    act: Callable[[Any], Any]


def run(arguments: list[str]) -> int:
    """Film an episode."""
    options = tyro.cli(Options, prog="inbounds render", args=arguments)
    if options.behind is not None:
        options = dataclasses.replace(options, task=task_behind([Path(options.behind)], options.task)[1])
    require_possible(options.seed, options.steps)
    started_device()
    here = Path.cwd()  # the task may change the working directory
    if Path(options.run).is_dir():
        recorded = RunFolder(Path(options.run)).config()["task"]
        task = task_of_run(options.run, recorded, options.task)
        player = run_player(here / options.run, task, options.policy_seed, options.preference)
    elif options.task is not None:
        raise ConfigurationError(
            f"{options.run} is not a run folder, so that --task says nothing. Leave it out."
        )
    elif "/" in options.run and not is_import_path(options.run):
        raise InvalidInputError(
            f"{options.run} is not a folder. Give that of a run; or a task, and a reference policy by --policy NAME."
        )
    else:
        player = reference_player(options.policy, named_task(options.run), options.seed)
    shown = film(player, options.out, options.seed, options.steps, here)
    Terminal().say(
        f"{player.task.name}, {player.name}: {shown.steps} steps, return {shown.total:.5g}, every action feasible. "
        f"Wrote {shown.path}"
    )
    return 0


def run_player(
    folder: Path, task: Any, policy_seed: int | None, preference: tuple[float, float] | None
) -> Player:
    """Return the policy of one seed of a run; a task that is not one of ours has to be given."""
    from inbounds.evaluation.inference import compiled_policy
    from inbounds.evaluation.trained import TrainedRun

    opened = TrainedRun.open(folder, task)
    chosen = opened.only(opened.seeds[0] if policy_seed is None else policy_seed)
    return Player(opened.task, folder.resolve().name, compiled_policy(chosen, preference))


def reference_player(name: str, task: Any, seed: int) -> Player:
    """Return a reference policy of a task."""
    from inbounds.evaluation.baselines import reference_names, reference_policy

    if task is None:
        raise ConfigurationError(
            f"'{name}' is not a run folder, and a reference policy needs a task. Name it."
        )
    if name not in reference_names(task):
        raise InvalidInputError(
            f"'{name}' is neither a run folder nor a reference policy of {task.name}. "
            f"Give one of these: {', '.join(reference_names(task))}."
        )
    reference, generator = reference_policy(task, name), np.random.default_rng(seed)
    return Player(task, name, lambda observation: reference(observation, generator))


class Film(NamedTuple):
    """What was written, and what it shows in numbers."""

    path: Path
    steps: int
    total: float


def film(player: Player, out: Path | None, seed: int, steps: int | None, here: Path) -> Film:
    """Play one episode into a film; a relative path is taken from `here`."""
    ending = ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"
    named = (
        player.name if player.name.startswith(f"{player.task.name}-") else f"{player.task.name}-{player.name}"
    )
    target = Path(f"{named}{ending}") if out is None else out
    require_writable(here / target)
    environment = player.task.make_environment(render_mode="rgb_array")
    shown = Shown()
    frames = play(environment, player.act, seed, steps or player.task.horizon, shown)
    with warnings.catch_warnings():
        # The encoder is a program of its own, started at once: nothing runs in the copy that JAX warns about.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        write_video(frames, here / target, fps=float(environment.metadata["render_fps"]))
    environment.close()
    return Film(target, shown.steps, shown.total)


@dataclasses.dataclass
class Shown:
    """What the film shows, in numbers."""

    steps: int = 0
    total: float = 0.0


def play(environment: Any, act: Any, seed: int, steps: int, shown: Shown) -> Iterator[NDArray[np.uint8]]:
    """Play one episode and yield a picture of every state; the guard refuses what is infeasible."""
    from inbounds.tasks.environment import episode

    observation, _ = environment.reset(seed=seed)
    yield environment.render()
    for step in itertools.islice(episode(environment, act, observation), steps):
        shown.steps += 1
        shown.total += step.reward
        yield environment.render()


def write_video(frames: Iterable[NDArray[np.uint8]], path: str | os.PathLike[str], fps: float = 30.0) -> Path:
    """Write frames of shape (height, width, 3) to an `.mp4` or `.gif` file and return its path.

    Frames are taken one by one, so a generator of any length works. The file appears when it is complete: an
    error on the way leaves neither half a file nor a damaged older one.
    """
    target = Path(path)
    writers = {".mp4": _write_mp4, ".gif": _write_gif}
    write = writers.get(target.suffix.lower())
    if write is None:
        raise InvalidInputError(
            f"'{target.name}' ends in neither .mp4 nor .gif; name the file by the format it shall have."
        )
    if not (np.isfinite(fps) and fps > 0):
        raise InvalidInputError(f"a film of {fps} frames per second cannot be shown; give fps above 0.")
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise InvalidInputError(f"'{target.name}' would be a film without frames. Give at least one picture.")
    with replacing(target) as part:
        write(itertools.chain([first], checked), part, first.shape[:2], fps)
    return target


def _checked(frames: Iterable[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    shape: tuple[int, ...] | None = None
    for number, frame in enumerate(frames):
        array = np.asarray(frame)
        if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
            raise InvalidInputError(
                f"frame {number} is {array.dtype} of shape {array.shape}; "
                "give uint8 of shape (height, width, 3)."
            )
        if shape is not None and array.shape != shape:
            raise InvalidInputError(
                f"frame {number} has shape {array.shape}, the first one {shape}; give frames of one size."
            )
        shape = array.shape
        yield array


def _write_gif(frames: Iterator[NDArray[np.uint8]], path: Path, size: tuple[int, ...], fps: float) -> None:
    from PIL import Image

    # Flat colours of drawings stay flat, and the file small, without dithering.
    images = (Image.fromarray(frame).quantize(256, dither=Image.Dither.NONE) for frame in frames)
    first = next(images)
    # The format counts in hundredths of a second, and players slow down what is faster than two of them.
    duration = max(20, 10 * round(100 / fps))
    first.save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, size: tuple[int, ...], fps: float) -> None:
    height, width = size
    # Players expect colour at half the resolution, which takes even sizes: the last row or column is doubled.
    padding = ((0, height % 2), (0, width % 2), (0, 0))
    command = [
        *(_ffmpeg(), "-loglevel", "error", "-y"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width + width % 2}x{height + height % 2}"),
        *("-r", f"{fps:.6f}", "-i", "-", "-an", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p"),
        *("-movflags", "+faststart", "-f", "mp4", str(path)),
    ]
    # A file takes the messages, for a full pipe that nobody reads would stop the encoder.
    with tempfile.TemporaryFile() as messages:
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)
        assert encoder.stdin is not None
        try:
            for frame in frames:
                encoder.stdin.write(np.pad(frame, padding, mode="edge").tobytes())
        except BrokenPipeError:
            pass  # the encoder has stopped by itself; its messages say why
        finally:
            with contextlib.suppress(BrokenPipeError):
                encoder.stdin.close()
            status = encoder.wait()
        if status != 0:
            messages.seek(0)
            said = messages.read().decode(errors="replace").strip()
            raise InboundsError(
                f"ffmpeg could not write '{path.name}' (status {status}): {said}. "
                "Look for a full disk, or write a .gif, which needs no encoder."
            )


def _ffmpeg() -> str:
    """Return the path of the encoder, or say how to get it."""
    remedy = 'Install it with `pip install "inbounds[video]"`, or write a .gif, which needs nothing more.'
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except ImportError as missing:
        raise MissingDependencyError(f"an mp4 needs the package imageio-ffmpeg. {remedy}") from missing
    except RuntimeError as missing:
        raise MissingDependencyError(f"an mp4 needs ffmpeg, not found ({missing}). {remedy}") from missing
