"""Says where a measurement comes from (versions, machine, commit, date) and stores it beside the numbers.

Use it at the end of every benchmark::

    from benchmarks.provenance import save_result
    save_result("projections", {"rows": rows})          # writes benchmarks/results/projections.json
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
# Packages whose version can move a number; those that are not installed are left out.
PACKAGES = (
    *("inbounds", "jax", "jaxlib", "optax", "numpy", "scipy", "mujoco", "mujoco-mjx", "gymnasium", "daqp"),
    *("torch", "stable-baselines3", "sbx-rl", "cvxpy", "clarabel"),
)


def provenance() -> dict[str, object]:
    """Return what a reader needs to check or repeat a measurement made now, in this process."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": _is_dirty(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "devices": _devices(),
        "versions": _versions(),
    }


def save_result(name: str, result: Mapping[str, object], folder: Path = RESULTS) -> Path:
    """Write a result with its provenance as JSON and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(), **result}, indent=1) + "\n")
    return path


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or an unpacked archive: the commit is then unknown, which the file says
    return answer.stdout.strip()


def _is_dirty() -> bool | None:
    # The results themselves change while benchmarks run and do not change what is measured.
    status = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return None if status is None else bool(status)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _devices() -> list[str]:
    try:
        import jax
    except ImportError:
        return ["cpu"]
    return [f"{device.platform}: {device.device_kind}" for device in jax.devices()]


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
