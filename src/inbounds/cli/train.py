"""`inbounds train`: settings first, a live view and trackers meanwhile, Ctrl-C that saves, and a summary at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from inbounds.cli.display import LiveDisplay, PlainDisplay, show_summary, write_csv
from inbounds.cli.options import Request, parse, started_device
from inbounds.cli.terminal import Terminal, command, shown
from inbounds.errors import (
    CheckpointError,
    FolderBusyError,
    InboundsError,
    MissingDependencyError,
    StorageError,
    explained,
)
from inbounds.learners.settings import usual_discount
from inbounds.storage.files import make_folder
from inbounds.tasks.named_tasks import is_import_path, named_task, task_of_run
from inbounds.training.interrupts import Requests, break_off_at_second
from inbounds.training.record import CONFIG, RunFolder
from inbounds.training.summary import plural


def run(arguments: list[str]) -> int:
    """Train as the arguments say."""
    request = parse(arguments)
    terminal = Terminal()
    device = started_device(request.training.device)
    from inbounds.training.api import default_folder, train

    here = Path.cwd()  # the task may change the working directory
    task = requested_task(request)
    named = request.training.out or default_folder(task.name, request.learner_name)
    folder = here / named
    show_settings(terminal, request, task, named, device)
    stopper = Stopper(terminal, request.training.steps)
    title = f"{task.name}, {request.learner_name}, {plural(request.training.seeds, 'seed')}"
    is_live = terminal.is_terminal and not request.output.plain
    display = (
        LiveDisplay(title, request.training.steps, request.training.seeds, terminal)
        if is_live
        else PlainDisplay(request.training.steps, request.training.seeds, terminal)
    )
    is_new, trackers = not folder.exists(), list[Any]()

    def warn(message: str) -> None:
        terminal.say(Text.assemble(("warning: ", "yellow"), shown(message)))

    settings = {
        field.name: getattr(request.training, field.name)
        for field in dataclasses.fields(request.training)
        if field.name != "out"
    }
    compilation = CompilationTime()
    began = time.monotonic()
    own = [request.task] if is_import_path(request.task) else []
    resume = command("train", *own, "--resume", named)
    try:
        trackers.extend(open_trackers(terminal, request, folder))
        with display, stopper.requests.catching(signal.SIGINT, signal.SIGTERM), compilation.measured():
            train(
                task,
                request.learner,
                out=folder,
                resume=request.resume is not None,
                callbacks=[display, *trackers, stopper],
                warn=warn,
                command=command("train", *arguments),
                **settings,
            )
    except FolderBusyError:
        is_new = False  # another process may be about to write its first files
        raise
    except Exception as error:
        # An error about checkpoints says itself which of them can be used.
        if not isinstance(error, CheckpointError) and RunFolder(folder).checkpoint_folders():
            terminal.say(f"The newest checkpoint is kept; resume with: {resume}")
        raise
    finally:
        # What went wrong before must not be hidden by what goes wrong here, such as the same full disk.
        with contextlib.suppress(InboundsError, OSError):
            for tracker in trackers:
                tracker.close()
            if is_new and not (folder / CONFIG).exists():
                # Refused before it began: there is nothing in it to keep.
                shutil.rmtree(folder, ignore_errors=True)
            elif request.output.csv and stopper.has_begun:
                write_csv(RunFolder(folder))
    run_folder = RunFolder(folder)
    run_folder.amend_provenance(compilation_seconds=round(compilation.seconds, 1))
    if stopper.has_stopped:
        terminal.say(f"Stopped and saved. Resume with: {resume}")
        return 130
    show_summary(terminal, run_folder, task, request.output.references, time.monotonic() - began, own)
    return 0


def requested_task(request: Request) -> Any:
    """Return the task to train on; that of a resumed run must be the one it was begun on."""
    if request.resume is None:
        return named_task(request.task)
    given = request.task if is_import_path(request.task) else None
    recorded = RunFolder(request.resume).config()["task"]
    task = task_of_run(request.resume, recorded, given, "inbounds train --resume FOLDER ")
    return named_task(recorded) if task is None else task


def show_settings(terminal: Terminal, request: Request, task: Any, folder: Path, device: Any) -> None:
    """Print what is going to happen, with every setting."""
    began = "resuming" if request.resume else "training"
    what = f"{began} {request.learner_name} on {shown(task.name)}"
    terminal.print(Text.assemble((what, "bold"), f", {device.platform}: {device.device_kind}"))
    terminal.say(f"constraint: {task.constraint.formula()}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    for name, value in settings_rows(request, task):
        table.add_row(name, value)
    terminal.print(table)
    terminal.say(
        f"run folder: {folder}   the replay in a checkpoint holds up to {size(replay_bytes(request, task))}"
    )


def settings_rows(request: Request, task: Any) -> Iterator[tuple[str, str]]:
    """Return training settings and the learner's own, on a few lines; what is left open is the task's."""
    training = dataclasses.asdict(request.training) | {
        "warm_up": request.training.warm_up_steps(request.learner),
        "episodes": request.training.episodes_of(task),
    }
    given = [
        f"{name} {plain(value)}" for name, value in training.items() if name != "out" and value is not None
    ]
    yield "training", ", ".join(given)
    settings = dataclasses.asdict(request.learner)
    if settings.get("gamma", 0.0) is None:
        settings["gamma"] = f"{usual_discount(task.horizon):g} (by the horizon)"
    yield request.learner_name, ", ".join(f"{name} {plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """Return a setting without the punctuation of Python."""
    if isinstance(value, tuple):
        return "(" + " ".join(plain(entry) for entry in value) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)


def replay_bytes(request: Request, task: Any) -> int:
    """Return the size of the replay in a checkpoint if it is as full as this run can make it."""
    from inbounds.replay import Layout

    learner, training = request.learner, request.training
    width = Layout(task.observation_size, task.action_size, learner.objectives).width
    rows = sum(
        min(training.capacity, training.steps * (1 if index == 0 else learner.proposals))
        for index in range(len(learner.buffers))
    )
    return 4 * training.seeds * rows * width


def size(count: float) -> str:
    """Return a number of bytes as a person would say it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def open_trackers(terminal: Terminal, request: Request, folder: Path) -> Iterator[Any]:
    """Open what the numbers shall also be sent to; TensorBoard is left out where its writer is missing."""
    if request.output.tensorboard:
        try:
            yield TensorBoardTracker(folder, terminal.say)
        except ImportError:
            terminal.say(
                "no TensorBoard events: tensorboardX is not installed here (metrics.jsonl has all numbers)."
            )
    if request.output.wandb:
        yield WandbTracker(folder, dataclasses.asdict(request.learner) | dataclasses.asdict(request.training))


class Stopper:
    """Ctrl-C once: stop at the next report, after a checkpoint. Twice: stop now."""

    def __init__(self, terminal: Terminal, steps: int) -> None:
        """Start unasked, on a run of so many steps."""
        self.terminal, self.requests = terminal, Requests(self._answer)
        self.steps, self.has_begun, self.has_stopped = steps, False, False

    def __call__(self, row: Mapping[str, Any]) -> bool:
        """Tell the loop whether to stop; a callback of `train`. With the last report nothing is left to stop."""
        self.has_begun = True
        self.has_stopped = bool(self.requests) and row["step"] < self.steps
        return self.has_stopped

    def _answer(self, count: int) -> None:
        break_off_at_second(count)
        self.terminal.say(
            "stopping at the next report, after a checkpoint; Ctrl-C once more stops now and loses the work "
            "since the last one."
        )


class CompilationTime:
    """Adds up how long XLA compiled, since wall-clock curves show it beside the training time."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Listen within a block."""
        import jax

        def listen(event: str, seconds: float, **_: Any) -> None:
            if event.endswith("backend_compile_duration"):
                self.seconds += seconds

        listener: Callable[..., None] = listen
        jax.monitoring.register_event_duration_secs_listener(listener)
        try:
            yield
        finally:
            jax.monitoring.unregister_event_duration_listener(listener)


NOT_A_CURVE = ("kind", "step", "seed")
SYNC_SECONDS = 30.0
"""How old the events on the disk may be."""


class TensorBoardTracker:
    """Writes every number of every row as a scalar, one curve per seed; a callback of `train`.

    The event file is opened with the first row: until then another process may be writing the folder. Events are
    written here and now: the queue of tensorboardX's own writer is read by a thread, and would stop the
    training for ever once that thread has met a full disk.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Name the folder; raises ImportError where tensorboardX is not installed."""
        from tensorboardX import event_file_writer

        self.tell, self.synced = tell, time.monotonic()
        self.folder, self.open = folder / "tensorboard", event_file_writer.EventsWriter
        self.writer: Any = None
        self.has_failed = False

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Write one row; a file that cannot be written any more costs one line and not the run."""
        if self.has_failed:
            return
        try:
            if self.writer is None:
                make_folder(self.folder)
                self.writer = self.open(str(self.folder / "events"))
            self.writer.write_event(self._event(row))
            if time.monotonic() - self.synced > SYNC_SECONDS:
                self.writer.flush()
                self.synced = time.monotonic()
        except (OSError, StorageError) as error:
            self._end(error)

    def close(self) -> None:
        """Write what is still in memory."""
        if self.writer is not None:
            try:
                self.writer.close()
            except OSError as error:
                self._end(error)

    def _event(self, row: Mapping[str, Any]) -> Any:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{row['kind']}/{name}/seed {row['seed']}", simple_value=float(value))
            for name, value in row.items()
            if name not in NOT_A_CURVE and value is not None
        ]
        return Event(wall_time=time.time(), step=int(row["step"]), summary=Summary(value=values))

    def _end(self, error: OSError | StorageError) -> None:
        writer, self.writer, self.has_failed = self.writer, None, True
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()
        why = explained(error) if isinstance(error, OSError) else error
        self.tell(f"no more TensorBoard events: {why}")


class WandbTracker:
    """Logs every row to Weights & Biases, all seeds into one run; a callback of `train`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin with the first row; WANDB_MODE=offline keeps everything on this machine."""
        try:
            import wandb
        except ImportError as error:
            raise MissingDependencyError(
                '--wandb needs the package wandb: `pip install "inbounds[wandb]"`, or leave --wandb out.'
            ) from error
        self.begin = partial(
            wandb.init, project="inbounds", name=folder.name, dir=str(folder), config=dict(settings)
        )
        self.run: Any = None

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Log one row; W&B's own step only grows, so ours is logged as a number beside the others."""
        values = {
            f"{row['kind']}/{name}/seed {row['seed']}": value
            for name, value in row.items()
            if name not in NOT_A_CURVE and value is not None
        }
        if self.run is None:
            self.run = self.begin()
        self.run.log({**values, "step": row["step"]})

    def close(self) -> None:
        """End the run."""
        if self.run is not None:
            self.run.finish()
