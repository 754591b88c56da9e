"""Where a number comes from: versions, device, commit and time."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

import inbounds

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco", "daqp")


def provenance() -> dict[str, Any]:
    """Return what somebody needs to check or repeat a result."""
    device = jax.devices()[0]
    return {
        "inbounds": inbounds.__version__,
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "device": f"{device.platform}: {device.device_kind}",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = __import__(name) if name == "mujoco" else None
        return getattr(module, "__version__", None)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "-C", str(Path(__file__).parent), *arguments),
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
