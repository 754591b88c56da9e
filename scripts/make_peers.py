"""Installs the libraries that we compare and work with into `.peers/`, beside our package; says its size first.

They are torch, stable-baselines3, SBX, TorchRL, RLlib, cvxpy and rliable. A torch that the interpreter already has is
used; otherwise `torch==2.13.0` is asked for, of which pip may find a small CPU build or only the large CUDA one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".peers"
TORCH = "torch==2.13.0"
# Rough sizes on disk: the peers with a CPU build of torch, and what the CUDA packages of torch add to that.
CPU_GIGABYTES, CUDA_GIGABYTES = 2.4, 5.0


def has_torch() -> bool:
    """Whether the interpreter that runs this can already import torch."""
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def cuda_packages() -> list[str]:
    """Return the CUDA packages that installing torch would bring, none for a CPU build."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", TORCH]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    names = [package["metadata"]["name"] for package in report["install"]]
    return [name for name in names if name.startswith(("nvidia", "cuda"))]


def main() -> None:
    """Announce the size, create the environment, install the pins and our own package."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--allow-cuda", action="store_true", help="accept torch with its CUDA packages")
    parser.add_argument("--dry-run", action="store_true", help="say what would be installed, and stop")
    options = parser.parse_args()

    installed = has_torch()
    cuda = [] if installed else cuda_packages()
    gigabytes = CPU_GIGABYTES + (CUDA_GIGABYTES if cuda else 0.0)
    free = shutil.disk_usage(ROOT).free / 1e9
    source = "the one already installed" if installed else "a CUDA build" if cuda else "a CPU build"
    print(
        f"make peers: about {gigabytes:.1f} GB in .peers/ ({free:.0f} GB free); torch is {source}.",
        flush=True,
    )
    if cuda and not options.allow_cuda:
        sys.exit(
            f"pip finds only a torch that brings {len(cuda)} CUDA packages. Point pip at a CPU build of "
            f"{TORCH} (or install one first), or accept the size: python scripts/make_peers.py --allow-cuda"
        )
    if free < 2 * gigabytes:
        sys.exit(f"that needs about {2 * gigabytes:.0f} GB while it installs: free some space first.")

    pins = ["-r", "requirements/peers.txt", "-r", "requirements/build.txt", *([] if installed else [TORCH])]
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if options.dry_run:
        subprocess.run([sys.executable, *pip, "--dry-run", "--ignore-installed", *pins], cwd=ROOT, check=True)
        return
    shared = ["--system-site-packages"] if installed else []
    subprocess.run([sys.executable, "-m", "venv", "--clear", *shared, str(FOLDER)], check=True)
    python = str(FOLDER / "bin" / "python")
    subprocess.run([python, *pip, *pins], cwd=ROOT, check=True)
    subprocess.run(
        [python, *pip, "--no-build-isolation", "--no-deps", "--editable", "."], cwd=ROOT, check=True
    )
    print("done: .peers/bin/python -m benchmarks.run runs the benchmarks with the peers beside us.")


if __name__ == "__main__":
    main()
