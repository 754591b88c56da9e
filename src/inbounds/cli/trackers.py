"""Where else the numbers of a run can go while it runs: TensorBoard events, Weights & Biases."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from inbounds.errors import MissingDependencyError, StorageError
from inbounds.storage.files import make_folder
from inbounds.system_errors import explained

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
