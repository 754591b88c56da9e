"""Where else the numbers of a run can go while it runs: TensorBoard events, Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbounds.errors import MissingDependencyError

NOT_A_CURVE = ("kind", "step", "seed")


class TensorBoardTracker:
    """Writes every number of every row as a scalar, one curve per seed; a callback of `train`."""

    def __init__(self, folder: Path) -> None:
        """Open the event file; raises ImportError where tensorboardX is not installed."""
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Write one row."""
        for name, value in row.items():
            if name not in NOT_A_CURVE and value is not None:
                self.writer.add_scalar(f"{row['kind']}/{name}/seed {row['seed']}", value, row["step"])

    def close(self) -> None:
        """Write what is still in memory."""
        self.writer.close()


class WandbTracker:
    """Logs every row to Weights & Biases, all seeds into one run; a callback of `train`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Start a run; WANDB_MODE=offline keeps it on this machine."""
        try:
            import wandb
        except ImportError as error:
            raise MissingDependencyError(
                '--wandb needs the package wandb: `pip install "inbounds[wandb]"`, or leave --wandb out.'
            ) from error
        self.run = wandb.init(project="inbounds", name=folder.name, dir=str(folder), config=dict(settings))

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Log one row; W&B's own step only grows, so ours is logged as a number beside the others."""
        values = {
            f"{row['kind']}/{name}/seed {row['seed']}": value
            for name, value in row.items()
            if name not in NOT_A_CURVE and value is not None
        }
        self.run.log({**values, "step": row["step"]})

    def close(self) -> None:
        """End the run."""
        self.run.finish()
