"""Does a run fit into memory? Asked before anything is allocated, and answered with the number needed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax

from inbounds.errors import ConfigurationError

COPIES_ON_CPU = 2
"""Replay, and its copy while a checkpoint is written; on a GPU the copy is in the host's memory."""
SHARE_FOR_REPLAY = 0.9
"""What is left of a device's memory beside compiled programs and their temporary arrays."""


def bytes_of(shapes: Any) -> int:
    """Return the size of all arrays of a tree of shapes."""
    return sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(shapes))


def available_bytes() -> int | None:
    """Return what the device that will hold the replay can still give, or None where nobody says."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else int(limit - stats.get("bytes_in_use", 0))
    answers = [size for size in (_free_of_machine(), _free_of_container()) if size is not None]
    return min(answers, default=None)


def _free_of_machine() -> int | None:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _free_of_container() -> int | None:
    """Return what a control group still allows: a container's limit is below that of its machine."""
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if not (limit.exists() and used.exists()) or limit.read_text().strip() == "max":
        return None
    return int(limit.read_text()) - int(used.read_text())


def require_room(shapes: Any, available: int | None, path: Path) -> None:
    """Refuse to open a run whose state cannot be held, before it is allocated."""
    needed = bytes_of(shapes)
    if available is not None and needed > SHARE_FOR_REPLAY * available:
        raise ConfigurationError(
            f"{path} describes a learner that needs {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are "
            f"free. Restore its config.json, or open it on a larger machine."
        )


def require_memory(shapes: Any, available: int | None, on_cpu: bool) -> None:
    """Refuse a state that cannot be held, before it is allocated.

    Args:
        shapes: the training state as shapes, of all seeds.
        available: bytes that are free; None asks for nothing.
        on_cpu: whether checkpoints are copied in the same memory.
    """
    needed = bytes_of(shapes) * (COPIES_ON_CPU if on_cpu else 1)
    if available is None or needed <= SHARE_FOR_REPLAY * available:
        return
    fitting = SHARE_FOR_REPLAY * available / needed
    capacity = shapes.replay.rows.shape[2]
    raise ConfigurationError(
        f"replay and networks of {shapes.replay.rows.shape[0]} seeds need {needed / 2**30:.1f} GiB"
        f"{' with the copy that a checkpoint makes' if on_cpu else ''}, and "
        f"{SHARE_FOR_REPLAY * available / 2**30:.1f} GiB can be used. "
        f"Lower capacity from {capacity:,} to {int(capacity * fitting):,}, or train fewer seeds at once."
    )
